"""Every rule on real numbers: one kernel on which it finds a cause, and one on which a condition does not hold.

Five rules find a cause in no real report at hand. For them, numbers of public reports are quoted (real_launches.toml).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.rule_agreement import reports_in
from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.diagnosis.diagnose import Diagnosis, diagnoses, quantities_of
from ncu_tools.kernels.diagnosis.rules import failing, rules
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.kernel_row import Hotspot
from tests.conftest import SAMPLES, SHARED
from tests.support.launches import by_title, launch, metric, table
from tests.support.reports import needs_shared_reports, table_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPORTS = SHARED / "reports"
ESMM = "ncu_rep/AveryClapp__ESMM-Research__profile_output.ncu-rep"
GEMV = "ncu_csv/CodeGandee__llm-perf-opt__dsocr-v2-kernel_0001-ncu.details.csv"
CAST = "ncu_csv/CodeGandee__llm-perf-opt__dsocr-v2-kernel_0004-ncu.details.csv"
FMHA = "ncu_csv/CodeGandee__llm-perf-opt__dsocr-v2-kernel_0009-ncu.details.csv"
JULIA = "ncu_rep/eschnett__IndexSpaces.jl__317662_profile.ncu-rep"
MOJO = "ncu_csv/josiahls__cuda_learning_mojo.ncu2022.3.raw.csv"
SILU = "ncu_rep_full/AlpriElse__cs599k__silu_CUDA_ncu-reports_2025-04-21-vector-based.ncu-rep"
TRITON = "ncu_rep_full/AlpriElse__cs599k__silu_triton_silu-2025-04-18-v7.ncu-rep"
OLAJIDE = "ncu_csv/Olajide-Badejo__GPU-Roofline-Profiler__results_sample_run_ncu_{}.csv"
SUMMARY = "ncu_csv/leonsuaudeau__HPC_Fluid_Solver__ncu-ui-summary-export_profiling.csv"
VOXELS = "ncu_csv/GOATnote-Inc__robogoat__artifacts_h100_ncu_reports_metrics.csv"
ATOMIC = "../histories/reports/LakshyaSingh354__CudaCode/7aafec__stage1_reps_dot_product.ncu-rep.gz"
NAIVE, TRANSPOSE = OLAJIDE.format("gemm_naive"), OLAJIDE.format("transpose_naive")

ON_REAL_REPORTS = {
    "few blocks": ((MOJO, "mathKernel1"), (SILU, "silu_kernel_vector")),
    "tail": ((ESMM, "void one_blocktiling"), (GEMV, "enable_if")),
    "uneven": ((GEMV, "enable_if"), (SILU, "silu_kernel_vector")),
    "partial wave": ((GEMV, "enable_if"), (SILU, "silu_kernel_vector")),
    "theoretical occupancy": ((FMHA, "fmha_cutlassF"), (CAST, "void unrolled_elementwise")),
    "achieved occupancy": ((CAST, "void unrolled_elementwise"), (FMHA, "fmha_cutlassF")),
    "stalled": ((JULIA, "julia_bb_4477"), (TRITON, "void at::native")),
    "uncoalesced": ((SILU, "silu_kernel_vector"), (JULIA, "julia_bb_4477")),
    "partial warps": ((SUMMARY, "..query_cuda_kernel_arch"), (NAIVE, "unnamed>::gemm_naive")),
    "one L2 slice": ((ATOMIC, "dot_prod_naive"), (SILU, "silu_kernel_vector")),
    "uncoalesced loads": ((VOXELS, "voxelize_occupancy"), (NAIVE, "unnamed>::gemm_naive")),
    "uncoalesced stores": ((TRANSPOSE, "unnamed>::transpose_naive"), (NAIVE, "unnamed>::gemm_naive")),
}
"""Rule -> report and start of the name of a kernel where it finds a cause, and where one of its conditions fails."""

QUOTED = tomllib.loads(Path(__file__).with_name("real_launches.toml").read_text("utf-8"))["launch"]
"""Launches in public reports that are not at hand, with the counters that a rule and the limits of its cost stand on."""
QUIET_ON = {
    "bank conflicts": NAIVE,
    "local memory": JULIA,
    "divergence": NAIVE,
    "tensor cores idle": SILU,
}
"""Rule of a quoted launch -> a report at hand where one of its conditions fails. None at hand counts spilled registers."""


@cache
def kernels_of(report: str) -> tuple[pa.Table, list[Hotspot]]:
    made = table_of(REPORTS / report)
    assert made is not None
    return made, hotspots(made, ceilings_of(made)).rows


def kernel(report: str, name: str = "") -> tuple[pa.Table, Hotspot]:
    made, rows = kernels_of(report)
    return made, next(row for row in rows if row.kernel.startswith(name))


def causes(made: pa.Table, row: Hotspot) -> set[str]:
    found = diagnoses(made, [row], "name").get(row.key, Diagnosis(None, []))
    return {cause.rule for cause in found.causes}


def fails(rule: str, made: pa.Table, row: Hotspot) -> bool:
    when = next(one.when for one in rules() if one.id == rule)
    return bool(failing(quantities_of(made, row)[0], when))


def quoted(one: dict[str, Any]) -> tuple[pa.Table, Hotspot]:
    """The launch of these numbers, without its device: no number of it is measured against a roof."""
    metrics = {name: metric(value) for name, value in one["metrics"].items()}
    made = table(launch(one["kernel"], metrics, capability=one.get("compute_capability")))
    return made, hotspots(made, ceilings_of(made)).rows[0]


def fires(rule: str) -> dict[str, Any]:
    return next(one for one in QUOTED if one["rule"] == rule and one["fires"])


def test_every_rule_is_here() -> None:
    assert {*ON_REAL_REPORTS, *(one["rule"] for one in QUOTED)} == {rule.id for rule in rules()}


@needs_shared_reports
@pytest.mark.parametrize("rule", ON_REAL_REPORTS)
def test_a_rule_finds_its_cause_in_a_real_report_and_not_in_another_one(rule: str) -> None:
    loud, quiet = ON_REAL_REPORTS[rule]
    assert rule in causes(*kernel(*loud))
    assert rule not in causes(*kernel(*quiet))
    assert fails(rule, *kernel(*quiet))


@pytest.mark.parametrize("rule", sorted({one["rule"] for one in QUOTED}))
def test_a_rule_finds_its_cause_with_its_cost_in_the_numbers_of_a_public_report(rule: str) -> None:
    one = fires(rule)
    made, row = quoted(one)
    (found,) = [cause for cause in diagnoses(made, [row], "name")[row.key].causes if cause.rule == rule]
    if "cost" in one:
        assert found.cost == pytest.approx(one["cost"], abs=0.0001), "as in the whole report"


def test_spilling_is_found_where_29_of_100_instructions_spill_and_not_where_1_of_8000_does() -> None:
    loud, quiet = (one for one in QUOTED if one["rule"] == "spilling")
    (found,) = [
        cause for cause in by_title(diagnoses(*_named(quoted(loud))))["main_kernel"].causes if cause.rule == "spilling"
    ]
    assert found.says == "spilling: 148,406,272 warp instructions (29 %) spill or restore registers"
    assert found.cost == pytest.approx(0.1702, abs=0.0001), "of what was measured; nothing bounds L1"
    assert fails("spilling", *quoted(quiet))
    assert "spilling" not in causes(*quoted(quiet))


def test_a_product_on_cuda_cores_that_its_author_moved_to_tensor_cores_had_them_idle_and_saved_less_than_the_bound() -> (
    None
):
    before, after = (one for one in QUOTED if one["rule"] == "tensor cores idle")
    (found, *_) = by_title(diagnoses(*_named(quoted(before))))[before["kernel"]].causes
    assert found.says.startswith("tensor cores idle though inputs are bf16 (by the kernel's name): they did 0 FLOPs")
    assert found.cost == pytest.approx(1 - 0.0929), "what DRAM leaves, and neither the SMs nor L1, both at 99 %"
    assert 1 - after["milliseconds"] / before["milliseconds"] == pytest.approx(0.629, abs=0.001)
    assert "tensor cores idle" not in causes(*quoted(after)), "its tensor pipe is 4.78 % active, for whatever reason"


def test_bank_conflicts_of_one_launch_are_found_on_its_text_page_as_on_its_details_page() -> None:
    """The text page prints no wavefronts but in the message of NVIDIA's rule, whose name it does not print."""
    says = {}
    costs = {"conflicts-text.txt": 0.57, "conflicts-details-all.csv": 0.54}  # of L1, and of the pipe of shared memory
    for page, cost in costs.items():
        (cause,) = diagnosis_of_page(page).causes
        (conflicts,) = [one for one in cause.evidence if one.quantity == "conflicts"]
        assert (cause.rule, round(conflicts.value, 2), round(cause.cost or 0.0, 2)) == ("bank conflicts", 0.94, cost)
        says[page] = conflicts.metrics
    assert says["conflicts-text.txt"] == ["NVIDIA's rule UncoalescedSharedAccess"]


def diagnosis_of_page(name: str) -> Diagnosis:
    made = table_of(SAMPLES / "h100" / name)
    (row,) = hotspots(made, ceilings_of(made)).rows
    return diagnoses(made, [row], "name")[row.key]


def _named(made: tuple[pa.Table, Hotspot]) -> tuple[pa.Table, list[Hotspot], str]:
    return made[0], [made[1]], "name"


@needs_shared_reports
@pytest.mark.parametrize("rule", QUIET_ON)
def test_a_rule_that_no_report_at_hand_fires_has_its_numbers_in_one_where_it_finds_nothing(rule: str) -> None:
    assert fails(rule, *kernel(QUIET_ON[rule]))


def causes_of_every_kernel() -> Iterator[str]:
    for path in reports_in([str(REPORTS)]):
        made = table_of(path)
        if made is not None:
            for row in hotspots(made, ceilings_of(made)).rows:
                yield from causes(made, row)


@needs_shared_reports
@pytest.mark.slow
def test_the_rules_that_no_report_at_hand_fires_are_those_named_here() -> None:
    found = set(causes_of_every_kernel())
    assert found & {*QUIET_ON, "spilling"} == set(), "a report fires them now: put it into ON_REAL_REPORTS"
