"""Advice for GPUs that share their memory with the CPU: they have no counters of DRAM, so none is asked for."""

from __future__ import annotations

import pytest
from ncu_launch.counters.metrics import byte_metrics, table

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.ceilings.levels import ceiling_metrics
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.roofline.level_notes import on_missing_points
from tests.support.launches import launch
from tests.support.launches import table as launches_of
from tests.support.ran import ran
from tests.support.reports import FAULTS, needs_faults

READS, WRITES = "lts__d_sectors_fill_sysmem.sum", "lts__t_sectors_aperture_sysmem_op_write.sum"
INTEGRATED = sorted(table("bytes")["system_memory"]["compute_capabilities"])


@pytest.mark.parametrize("capability", INTEGRATED)
def test_the_note_on_dram_bytes_names_the_counters_that_the_gpu_has(capability: str) -> None:
    made = launches_of(launch("k", ns=1e5, capability=capability))
    (note,) = (note for note in hotspots(made, ceilings_of(made)).notes if "DRAM bytes" in note)
    assert note == f"the only launch has no DRAM bytes; ask ncu for --metrics {READS},{WRITES}"
    assert READS in on_missing_points("dram", "traffic", [made])
    assert not any("dram__" in name for name in ceiling_metrics("dram", capability))


def test_gpus_of_both_kinds_are_told_the_counters_of_each() -> None:
    assert (
        byte_metrics("dram", ["8.0"]) == byte_metrics("dram", []) == byte_metrics("dram", [None]) == ["dram__bytes.sum"]
    )
    assert byte_metrics("dram", ["8.0", "8.7"]) == ["dram__bytes.sum", READS, WRITES]
    assert byte_metrics("l2", ["8.7"]) == ["lts__t_bytes.sum"]


@needs_faults
def test_nothing_advises_counters_of_dram_for_the_report_of_an_orin() -> None:
    for command in ("hotspots", "kernel", "report --format digest", "roofline"):
        found = ran(*command.split(), str(FAULTS / "06_integrated_gpu.csv"))
        assert "dram__" not in found.stdout + found.stderr
    assert READS in ran("hotspots", str(FAULTS / "06_integrated_gpu.csv")).stderr
