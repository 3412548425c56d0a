"""What binary reports are expected to hold: a made one in full, and other people's in sums."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from ncu_parsers.ncu_rep.instances import instance_tables
from ncu_parsers.schema import tables
from ncu_parsers.sources.sources import Source

from tests.conftest import ROOT
from tests.support.binary_reports import Kernel, field, nvtx_state, report_of
from tests.support.launches import SASS
from tests.support.reports import summed_up, table_of

OF_REAL = ROOT / "tests" / "expectations" / "ncu_rep.json"
OF_MADE = ROOT / "tests" / "expectations" / "made_binary_report.json"

CODE, BEGIN = 2**40, 2**60
METRICS: dict[str, Any] = {
    "gpu__time_duration.sum": 5000, "dram__bytes.sum": 10**6, "lts__t_bytes.sum": 2 * 10**6, "sm__warps_active.avg": 3,
    "smsp__inst_executed.sum": 30, "launch__grid_size": 8, "launch__block_size": 128, "device__attribute_chip": 384,
    "device__attribute_compute_capability_major": 9, "device__attribute_compute_capability_minor": 0,
    "device__attribute_display_name": "NVIDIA H100 80GB HBM3", "launch__function_pcs": (1, {0: CODE}),
    "inst_executed": (30, {CODE: 20, CODE + 16: 10}), "thread_inst_executed_true": (960, {CODE: 640, CODE + 16: 320}),
    "smsp__pcsamp_sample_count": (9, {CODE: 4, CODE + 16: 5}),
    "smsp__pcsamp_warps_issue_stalled_wait": (9, {CODE: 4, CODE + 16: 5}),
    "sass__inst_executed_per_opcode_with_modifier_all": (30, {"FFMA": 20, "EXIT": 10}),
    "pmsampling:sm__cycles_active.avg": (None, {BEGIN + 1000 * step: step for step in range(1, 5)}),
    "profiler__timestamp_workload_start_0": (None, {BEGIN: 0}),
    "profiler__timestamp_workload_end_0": (None, {BEGIN + 5000: 0}),
    **{SASS.format(f"{kind}{operation}"): 64 for kind in "dfh" for operation in ("add", "mul", "fma")},
}  # fmt: skip
RANGES = field(21, nvtx_state([], {"ncu_bench": ["iteration 0", "forward", "layer1"]}))


def made(folder: Path) -> Path:
    """A report with some of everything: counters, counts per instruction and opcode, samples over time, NVTX ranges."""
    path = folder / "made.ncu-rep"
    path.write_bytes(report_of([Kernel(metrics=METRICS, more=RANGES), Kernel("copy", {"gpu__time_duration.sum": 700})]))
    return path


def instances_of(path: Path) -> list[dict[str, Any]]:
    """The instances of a report without what says where it is; what is null is left out."""
    return [
        {name: value for name, value in row.items() if value is not None and name != "report"}
        for table in instance_tables(Source(str(path)))
        for row in table.to_pylist()
    ]


def held_by(path: Path) -> dict[str, Any]:
    """Launches and sums of a real report: of each number of the contract, of instances by kind, and of rules."""
    table = table_of(path)
    assert table is not None
    numbers = [one.name for one in tables.COLUMNS if str(one.type) == "double"]
    sums = {name: tables.floats(table, name) for name in numbers}
    metrics = [one.name for one in table.schema if "__" in one.name and str(one.type) == "double"]
    kinds: Counter[str] = Counter()
    for instances in instance_tables(Source(str(path))):
        kinds.update(instances.column("kind").to_pylist())
    return {
        **summed_up(path),
        "sums": {name: float(np.nansum(values)) for name, values in sums.items() if not np.isnan(values).all()},
        "values": sum(int((~np.isnan(tables.floats(table, name))).sum()) for name in metrics),
        "bases": dict(Counter(str(basis) for basis in tables.words(table, "flops_basis"))),
        "instances": dict(kinds),
        "rules": sum(len(rules or ()) for rules in table.column("rules").to_pylist()),
    }
