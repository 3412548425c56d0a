"""Advice where nobody counted: by shapes, timeline and samples. The timelines are made up, of columns of launches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from ncu_parsers.parse.sampled_timeline import SampledTimeline
from ncu_parsers.timelines.activity.samples import GpuSamples, SampledActivity

from ncu_tools.advice.advise import rows_of
from ncu_tools.advice.situation.known_facts import BY_SHAPES, SAMPLED, SAMPLED_BYTES, bound_of
from ncu_tools.advice.without_counters import without_counters
from ncu_tools.kernels.source.spread.sampled_bytes import SampledBytes, sampled_bytes
from tests.support.launches import launch, table

MS = 1_000_000


def timeline(
    kernels: list[tuple[str, float, float]], dram: list[float], metric: str = "sampled_dram_pct"
) -> SampledTimeline:
    """Kernels by name, start and end in ms, and a sample of DRAM in % each ms."""
    columns = {
        "kernel_name": pa.array([name for name, _, _ in kernels]).dictionary_encode(),
        "start_ns": pa.array([int(start * MS) for _, start, _ in kernels]),
        "end_ns": pa.array([int(end * MS) for _, _, end in kernels]),
        "sampled_gpu": pa.array([0] * len(kernels)),
    }
    samples = GpuSamples(np.arange(len(dram)) * MS, {metric: np.array(dram, np.float64)})
    return SampledTimeline(SampledActivity({0: samples}), pa.table(columns))


class TestBytesBySamples:
    def test_are_the_share_of_the_peak_while_a_kernel_ran_alone(self) -> None:
        found = sampled_bytes(timeline([("copy", 0, 10), ("gemm", 10, 20)], [50.0] * 10 + [10.0] * 10), {0: 3000.0})
        assert found == {"copy": SampledBytes(1500.0, 10), "gemm": SampledBytes(300.0, 10)}

    @pytest.mark.parametrize(
        "kernels",
        [
            [("k", at, at + 0.79) for at in range(10)],
            [(name, at + (name == "other") * 0.9, at + (0.9 if name == "k" else 1)) for at in range(10)
             for name in ("k", "other")],
            [("k", 0, 4)],
        ],
        ids=["a fifth of each sample ran nothing", "another had a tenth of it", "four samples are too few"],
    )  # fmt: skip
    def test_are_unknown_otherwise(self, kernels: list[tuple[str, float, float]]) -> None:
        assert sampled_bytes(timeline(kernels, [50.0] * 10), {0: 3000.0}) == {}

    def test_are_unknown_where_only_reads_were_sampled_or_the_peak_is_unknown(self) -> None:
        assert sampled_bytes(timeline([("k", 0, 9)], [50.0] * 9, "sampled_dram_read_pct"), {0: 3000.0}) == {}
        assert sampled_bytes(timeline([("k", 0, 9)], [50.0] * 9), {}) == {}


def row(**columns: Any) -> dict[str, Any]:
    """What is said of a kernel without a counter, with further columns of its launch."""
    one = table(launch("k", {}, ns=1e7, capability="9.0"))
    for name, value in columns.items():
        one = one.append_column(name, pa.array([value]))
    (found,) = rows_of(without_counters(one))
    return found


def test_a_kernel_with_nothing_but_its_time_is_said_to_have_that_alone() -> None:
    found = row()
    assert found["says"].startswith("only its time is known")
    assert found["evidence"] == []


def test_a_kernel_that_waits_for_other_gpus_is_not_sent_to_ncu() -> None:
    (found,) = rows_of(without_counters(table(launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", {}, ns=1e7))))
    assert "ncu --set full" not in found["says"]
    assert found["says"].endswith("ncu-bench advise RANK0 RANK1 ...")
    assert "ncu --set full" in row()["says"]


def test_a_busy_resource_bounds_it_and_each_number_has_its_class() -> None:
    found = row(sampled_dram_pct=82.0, sampled_tensor_active_pct=12.0)
    assert found["roof"] == "DRAM"
    assert [(one["quantity"], one["value"], one["provenance"]) for one in found["evidence"]] == [
        ("DRAM busy", pytest.approx(0.82), SAMPLED), ("tensor pipe busy", pytest.approx(0.12), SAMPLED)
    ]  # fmt: skip
    assert found["basis"] == "shapes, timeline and samples"


def test_no_resource_that_is_busy_enough_is_no_bound_though_others_are_not_seen() -> None:
    found = row(sampled_dram_pct=20.0)
    assert (found["roof"], found["reason"]) == (None, "not collected")
    assert "of DRAM nothing is busy enough to bound it, and tensor pipe, issue slots were not sampled" in found["says"]
    known = row(sampled_dram_pct=20.0, sampled_tensor_active_pct=5.0, sampled_sm_issue_pct=9.0)["says"]
    assert "of DRAM, tensor pipe, issue slots nothing is busy enough to bound it: " in known


def test_samples_come_before_shapes() -> None:
    assert bound_of({"DRAM": 0.7, "tensor pipe": 0.65}) == "DRAM"
    assert bound_of({"DRAM": 0.59}) == ""
    assert len({SAMPLED, BY_SHAPES, SAMPLED_BYTES}) == 3


@pytest.mark.parametrize(("device", "says"), [(None, "advise MODEL --check"), (0, "ncu --set full counts")])
def test_operators_of_a_cpu_are_told_what_can_be_measured_there_and_not_to_collect_counters(
    device: int | None, says: str
) -> None:
    made = table(launch("aten::mm", ns=1e5, capability=None, device_id=device))
    made = made.set_column(made.column_names.index("source"), "source", pa.array(["operators"]))
    advice = without_counters(made)
    told = [*map(str, advice.notes), *(one.says for one in advice.kernels)]
    assert [says in one for one in told].count(True) == 1
    assert any("counts what bounds it" in one for one in told) == (device is not None)
