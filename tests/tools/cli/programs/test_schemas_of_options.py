"""What options change in a command's JSON is part of its schema: other rows, and parts that are left out."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.conftest import ROOT, SAMPLES, SHARED
from tests.support.called_here import called_here
from tests.support.nightly import by_day
from tests.support.reports import needs_shared_reports

SWEEP = ROOT / "tests" / "released" / "schema-1" / "sweep"
FULL = SHARED / "reports" / "ncu_rep_full" / "AlpriElse__cs599k__silu_CUDA_ncu-reports_2025-04-21-vector-based.ncu-rep"
FULL_LINES = SHARED / "reports" / "ncu_rep_full" / "AlpriElse__cs599k__silu_triton_silu-2025-04-18-v7.ncu-rep"
BEFORE, AFTER = (
    SHARED / "reports" / "nsys" / f"GindaChen__nsys-ai__tests_fixtures_mfu_2gpu_{side}.sqlite"
    for side in ("before", "after")
)
RANKS = [
    SHARED / "reports" / "kineto" / f"facebookresearch__HTA__trace_filter__sampled_rank-{rank}.json.gz"
    for rank in (0, 1)
]


def answer_to(words: str) -> dict[str, object]:
    """The JSON that a command prints; printing it in a test holds it against its schema (tests/support/pages)."""
    called = called_here(*shlex.split(words), "--format", "json", cwd=SAMPLES)
    assert called.code == 0, called.out
    answer: dict[str, object] = json.loads(called.out)
    return answer


@pytest.mark.parametrize("words", [
    "machines --metrics", "machines --metrics flops --chip gh100", "machines --all-chips", "machines", "machines t4",
    "hotspots d01-wide-raw.csv --units", "hotspots d02-long-rules.csv --rules", "hotspots d01-wide-raw.csv --mix",
    "hotspots d10-details-all.csv --columns memory", "hotspots d12-range-nvtx.csv --by nvtx",
    "kernel d14-kernel-failed.csv --id k9ee774080a", "kernel d14-kernel-failed.csv --id kcad579207d",
    "kernel d10-details-all.csv --part identity", "kernel d10-details-all.csv --against d10-details-all.csv",
    "roofline d01-wide-raw.csv --points launches", "roofline d01-wide-raw.csv d02-long-rules.csv --points runs",
    "roofline d01-wide-raw.csv --instructions", "roofline d01-wide-raw.csv --levels all",
    "compare d01-wide-raw.csv d01-wide-raw.csv --by category",
    "compare d01-wide-raw.csv d02-long-rules.csv d01-wide-raw.csv --anyway",
    "query d01-wide-raw.csv 'SELECT * FROM rules'", "query d01-wide-raw.csv 'SELECT [1, 2] AS list'",
])  # fmt: skip
def test_answers_on_samples_fit_their_schema(words: str) -> None:
    answer_to(words)


@pytest.mark.parametrize("options", ["", "--correlations"])
def test_scaling_fits_its_schema(options: str) -> None:
    answer_to(f"bench {shlex.quote(str(SWEEP))} {options}")


def test_series_of_chosen_columns_fit_their_schema() -> None:
    answer_to(f"bench {shlex.quote(str(SWEEP))} -x batch_size -y time")


@needs_shared_reports
@pytest.mark.parametrize("options", ["--part steps", "--part verdicts", "--part waits,streams", "--part gaps,longest"])
def test_parts_of_a_timeline_fit_their_schema(options: str) -> None:
    answer_to(f"timeline {shlex.quote(str(AFTER))} {options}")


@pytest.mark.slow
@needs_shared_reports
@pytest.mark.parametrize("options", ["", "--by rank", "--by category"])
def test_ranks_fit_their_schema(options: str) -> None:
    answer_to(f"timeline {' '.join(shlex.quote(str(path)) for path in RANKS)} {options}")


@needs_shared_reports
def test_one_rank_fits_its_schema() -> None:
    answer_to(f"timeline {shlex.quote(str(RANKS[0]))} --by kernel")


@pytest.mark.slow
@needs_shared_reports
@pytest.mark.parametrize("by", ["line", "opcode", "function"])
def test_changes_inside_a_kernel_fit_their_schema(by: str) -> None:
    report = shlex.quote(str(FULL_LINES))
    answer_to(f"compare {report} {report} --by {by}")


@pytest.mark.slow
@needs_shared_reports
@pytest.mark.parametrize("report", by_day([FULL_LINES], [FULL, FULL_LINES]), ids=lambda path: path.stem)
def test_a_kernel_with_counts_of_its_instructions_fits_its_schema(report: object) -> None:
    answer = answer_to(f"kernel {shlex.quote(str(report))}")
    assert answer["places"]
    answer_to(f"kernel {shlex.quote(str(report))} --against {shlex.quote(str(report))}")


@pytest.mark.slow
@needs_shared_reports
def test_a_kernel_with_counts_of_shared_memory_fits_its_schema() -> None:
    report = SHARED / "reports" / "ncu_rep" / "eschnett__IndexSpaces.jl__317662_profile.ncu-rep"
    answer_to(f"kernel {shlex.quote(str(report))}")


@needs_shared_reports
def test_compared_timelines_fit_their_schema() -> None:
    answer_to(f"compare {shlex.quote(str(BEFORE))} {shlex.quote(str(AFTER))} --by category --anyway")
