"""Every rule on real reports: one kernel on which it finds a cause, and one on which a condition does not hold.

Seven rules find a cause in no real report at hand. Only made-up numbers show that they find one, and this says which
they are; a report that lands and has such a kernel makes the last test fail, and belongs into the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pyarrow as pa
import pytest

from benchmarks.rule_agreement import reports_in
from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.diagnosis.diagnose import Diagnosis, diagnoses, quantities_of
from ncu_tools.kernels.diagnosis.rules import failing, rules
from ncu_tools.kernels.hotspots import Hotspot, hotspots
from tests.conftest import SHARED
from tests.support.launches import launch, metric, table
from tests.support.reports import needs_shared_reports, table_of

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
    "uncoalesced stores": ((TRANSPOSE, "unnamed>::transpose_naive"), (NAIVE, "unnamed>::gemm_naive")),
}
"""Rule -> report and start of the name of a kernel where it finds a cause, and where one of its conditions fails."""

ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
L1_BUSY = {f"l1tex__data_pipe_lsu_wavefronts{ELAPSED}": 60.0, f"sm__throughput{ELAPSED}": 60.0}
MADE_UP: dict[str, tuple[str, dict[str, float], str | None]] = {
    "uncoalesced loads": ("k", {
        **L1_BUSY, "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 320.0,
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 10.0,
    }, NAIVE),
    "bank conflicts": ("k", {
        **L1_BUSY, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 50.0,
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 100.0,
    }, NAIVE),
    "spilling": ("k", {
        **L1_BUSY, "sass__inst_executed_register_spilling": 200.0, "smsp__inst_executed.sum": 1000.0,
    }, None),
    "local memory": ("k", {
        **L1_BUSY, "sass__inst_executed_local_loads": 100.0, "sass__inst_executed_local_stores": 100.0,
        "smsp__inst_executed.sum": 1000.0,
    }, JULIA),
    "divergence": ("k", {**L1_BUSY, "smsp__thread_inst_executed_per_inst_executed.ratio": 8.0}, NAIVE),
}  # fmt: skip
"""Rule -> name and metrics of a made-up kernel where it finds a cause, and a real report where a condition fails.

No real report at hand counts spilled registers (sass__inst_executed_register_spilling).
"""
OF_INPUTS = ("tensor cores idle", "FP16 without tensor cores")
"""Rules on 16-bit arithmetic, whose made-up kernels are in test_diagnosis.py (TestInputs)."""


@cache
def kernels_of(report: str) -> tuple[pa.Table, list[Hotspot]]:
    made = table_of(REPORTS / report)
    assert made is not None
    return made, hotspots(made, ceilings_of(made)).rows


def kernel(report: str, name: str = "") -> tuple[pa.Table, Hotspot]:
    made, rows = kernels_of(report)
    return made, next(row for row in rows if row.kernel.startswith(name))


def causes(made: pa.Table, row: Hotspot) -> set[str]:
    found = diagnoses(made, [row], "name").get(row.kernel, Diagnosis(None, []))
    return {cause.rule for cause in found.causes}


def fails(rule: str, made: pa.Table, row: Hotspot) -> bool:
    when = next(one.when for one in rules() if one.id == rule)
    return bool(failing(quantities_of(made, row)[0], when))


def test_every_rule_is_here() -> None:
    assert {*ON_REAL_REPORTS, *MADE_UP, *OF_INPUTS} == {rule.id for rule in rules()}


@needs_shared_reports
@pytest.mark.parametrize("rule", ON_REAL_REPORTS)
def test_a_rule_finds_its_cause_in_a_real_report_and_not_in_another_one(rule: str) -> None:
    fires, quiet = ON_REAL_REPORTS[rule]
    assert rule in causes(*kernel(*fires))
    assert rule not in causes(*kernel(*quiet))
    assert fails(rule, *kernel(*quiet))


@pytest.mark.parametrize("rule", MADE_UP)
def test_a_rule_that_no_real_report_fires_finds_its_cause_in_made_up_numbers(rule: str) -> None:
    name, metrics, _ = MADE_UP[rule]
    made = table(launch(name, {key: metric(value) for key, value in metrics.items()}, ns=1e5))
    assert rule in causes(made, hotspots(made, ceilings_of(made)).rows[0])


@needs_shared_reports
@pytest.mark.parametrize("rule", [*(rule for rule, (_, _, report) in MADE_UP.items() if report), *OF_INPUTS])
def test_a_rule_that_no_real_report_fires_has_its_numbers_in_one_where_it_finds_nothing(rule: str) -> None:
    report = SILU if rule in OF_INPUTS else MADE_UP[rule][2]
    assert report is not None
    assert fails(rule, *kernel(report))


def causes_of_every_kernel() -> Iterator[str]:
    for path in reports_in([str(REPORTS)]):
        made = table_of(path)
        if made is not None:
            for row in hotspots(made, ceilings_of(made)).rows:
                yield from causes(made, row)


@needs_shared_reports
@pytest.mark.slow
def test_the_rules_that_only_made_up_numbers_fire_are_those_named_here() -> None:
    found = set(causes_of_every_kernel())
    assert found & {*MADE_UP, *OF_INPUTS} == set(), "a real report fires them now: put it into ON_REAL_REPORTS"
