"""A kernel before and after a change: what counts as a change, what explains the time, and what is said where."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ncu_launch.errors import NcuBenchError
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.cli.tables.kernel.against_table import _rows_of, compared
from ncu_tools.kernels.view.against import KernelChange, ValueChange, against
from ncu_tools.kernels.view.kernel_view import kernel_view
from ncu_tools.runs.run import Run
from tests.conftest import SAMPLES, SHARED
from tests.support.launches import launch, metric, table
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, table_of

FULL = SHARED / "reports" / "ncu_rep_full"
REPORTS = SHARED / "reports" / "ncu_rep"
TRITON = FULL / "AlpriElse__cs599k__silu_triton_silu-2025-04-18-v7.ncu-rep"
JULIA = REPORTS / "eschnett__IndexSpaces.jl__317662_profile.ncu-rep"
GPP = [REPORTS / f"rashwanth__RooflineAnalysis_On_NVIDIA_GPU__custom-scripts_output{one}.ncu-rep" for one in (0, 5)]

INSTRUCTIONS, ISSUED = "smsp__inst_executed.sum", "smsp__issue_active.avg.per_cycle_active"
ACTIVE, LATENCY = "smsp__warps_active.avg.per_cycle_active", "smsp__average_warp_latency_per_inst_issued.ratio"
ACHIEVED = "sm__warps_active.avg.pct_of_peak_sustained_active"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
L1 = "l1tex__throughput.avg.pct_of_peak_sustained_active"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


def of_kernel(ns: float, name: str = "k", **more: Any) -> Launch:
    """A launch of `ns` nanoseconds with these metrics (name -> value)."""
    metrics = {key: metric(value) for key, value in more.pop("metrics", {}).items()}
    return launch(name, metrics, ns=ns, **more)


def change(base: Launch | list[Launch], new: Launch | list[Launch]) -> KernelChange:
    before, after = (table(*(one if isinstance(one, list) else [one])) for one in (base, new))
    return against(kernel_view(before), kernel_view(after))


def value(base: float, new: float, kind: str = "number", part: str = "memory", **ranges: Any) -> ValueChange:
    low = {"base_range": (base, base), "new_range": (new, new), **ranges}
    return ValueChange(part, "key", "title", kind, "", base, new, **low)


# ------------------------------------------------------------------------------------------ what is a change


@pytest.mark.parametrize(
    ("one", "changed"),
    [
        (value(100, 101.9), False),
        (value(100, 103), True),
        (value(50.0, 50.9, "percent"), False),
        (value(50.0, 51.1, "percent"), True),
        (value(100, 110, base_range=(95, 120)), False),
        (value(100, 110, base_range=(95, 105), new_range=(106, 112)), True),
        (value(32, 33, "count", "identity"), True),
        (value(1000, 1010, "time", "identity"), False),
        (value(0.001, 0.002, least=0.3), False),
    ],
)
def test_a_change_exceeds_the_threshold_and_the_spread_of_the_launches(one: ValueChange, changed: bool) -> None:
    assert one.changed is changed


# --------------------------------------------------------------------------------------------- why it changed


def test_fewer_instructions_explain_a_kernel_that_issues_as_before() -> None:
    found = change(
        of_kernel(2e5, metrics={INSTRUCTIONS: 4e6, ISSUED: 0.5}),
        of_kernel(1e5, metrics={INSTRUCTIONS: 2e6, ISSUED: 0.5}),
    )
    (factor,) = found.factors
    assert (factor.what, factor.factor, factor.share) == ("executed warp instructions", 0.5, pytest.approx(1))
    assert found.why == (
        "2 x faster: 200 µs -> 100 µs, one launch each. "
        "Executed warp instructions 4,000,000 -> 2,000,000 alone would make it 0.5 x the time."
    )


def test_more_occupancy_but_longer_stalls_are_told_with_both_numbers() -> None:
    before = {INSTRUCTIONS: 4e6, ISSUED: 0.5, ACTIVE: 6.0, LATENCY: 12.0, ACHIEVED: 50.0}
    after = {INSTRUCTIONS: 4e6, ISSUED: 0.4, ACTIVE: 12.0, LATENCY: 30.0, ACHIEVED: 100.0}
    stalls = {STALL.format("long_scoreboard"): 6.0, STALL.format("wait"): 2.0}
    longer = {STALL.format("long_scoreboard"): 25.0, STALL.format("wait"): 2.0}
    found = change(of_kernel(1e5, metrics={**before, **stalls}), of_kernel(1.25e5, metrics={**after, **longer}))
    assert found.why == (
        "1.25 x slower: 100 µs -> 125 µs, one launch each. "
        "Instructions issued per scheduler and cycle 0.5 -> 0.4 alone would make it 1.25 x the time. "
        "Behind the issue rate: active warps per scheduler 6 -> 12 (achieved occupancy 50.0 % -> 100.0 %); "
        "cycles between two instructions of a warp 12 -> 30, most of it long scoreboard 6 -> 25."
    )


def test_what_acts_against_a_change_is_told_behind_its_reasons() -> None:
    found = change(
        of_kernel(2e5, metrics={INSTRUCTIONS: 8e6, ISSUED: 0.8}),
        of_kernel(1e5, metrics={INSTRUCTIONS: 2e6, ISSUED: 0.4}),
    )
    assert [round(one.share, 6) for one in found.factors] == [2, -1]
    assert found.why.endswith(
        "Against that, instructions issued per scheduler and cycle 0.8 -> 0.4 would make it 2 x the time."
    )


def test_bytes_are_a_reason_only_where_their_level_was_near_its_limit_in_the_slower_run() -> None:
    def moved(ns: float, read: float, busy: float) -> Launch:
        return of_kernel(
            ns, metrics={"dram__bytes_read.sum": read, "dram__bytes_write.sum": read, DRAM: busy, INSTRUCTIONS: 1e6}
        )

    bound = change(moved(2e5, 2e8, 90.0), moved(1e5, 1e8, 88.0))
    assert [one.what for one in bound.factors] == ["bytes moved, DRAM at 90.0 % -> 88.0 % of its peak,"]
    assert "400 MB -> 200 MB alone would make it 0.5 x the time" in bound.why
    assert change(moved(2e5, 2e8, 40.0), moved(1e5, 1e8, 88.0)).factors == []


def test_bytes_explain_no_more_than_the_time_for_which_their_level_is_busy() -> None:
    """L1 serves shared memory, too: of 4 % of its bytes, moved to shared memory, it stays busy half as long."""

    def moved(ns: float, sectors: float, busy: float) -> Launch:
        return of_kernel(ns, metrics={"l1tex__t_sectors.sum": sectors, L1: busy, INSTRUCTIONS: 1e6})

    found = change(moved(3e5, 1e8, 80.0), moved(2e5, 4e6, 60.0))
    (factor,) = found.factors
    assert factor.factor == pytest.approx(0.5)
    assert "3.2 GB -> 128 MB, L1 busy for 240 µs -> 120 µs, alone would make it 0.5 x the time" in found.why
    assert change(moved(3e5, 1e8, 80.0), moved(2.5e5, 4e6, 99.0)).factors == [], "busy for longer with fewer bytes"


def test_no_cause_is_claimed_where_the_evidence_lacks() -> None:
    found = change(of_kernel(2e5, metrics={ACHIEVED: 50.0}), of_kernel(1e5, metrics={ACHIEVED: 80.0}))
    assert found.factors == []
    assert "not explained by what was collected: instructions and the issue rate were not collected" in found.why
    assert "Changed with it, which proves no cause: achieved occupancy 50.0 % -> 80.0 %." in found.why
    counted = [of_kernel(ns, metrics={INSTRUCTIONS: 1e6}) for ns in (2e5, 1e5)]
    assert "the issue rate was not collected in both runs" in change(*counted).why


def test_runs_of_two_gpus_get_no_reason() -> None:
    metrics = {INSTRUCTIONS: 4e6, ISSUED: 0.5, "launch__sm_count": 108.0}
    found = change(
        of_kernel(2e5, metrics=metrics),
        of_kernel(1e5, metrics={**metrics, INSTRUCTIONS: 2e6, "launch__sm_count": 80.0}),
    )
    assert found.factors == []
    assert found.why.endswith("The GPUs differ, so no reason is given.")


def test_times_whose_launches_overlap_are_no_change() -> None:
    found = change([of_kernel(1e5), of_kernel(2e5)], [of_kernel(1.5e5), of_kernel(2.5e5)])
    assert found.why.startswith(
        "No change of time is shown: 150 µs -> 200 µs, medians of 2 and 2 launches, which take "
    )
    assert "; their means differ by -" in found.why
    assert found.factors == []


def test_one_slow_launch_of_many_hides_no_change_of_time_that_compare_shows() -> None:
    base = [of_kernel(1e5 + 100 * place) for place in range(30)]
    new = [of_kernel(1.06e5 + 100 * place) for place in range(30)]
    found = change([*base, of_kernel(1.2e5)], new)
    assert found.why.startswith("1.06 x slower: 101.5 µs -> 107.5 µs, medians of 31 and 30 launches, which take 100 µs")
    low, high = (
        float(word) for word in re.findall(r"[+-][\d.]+(?= %)", found.why.partition("means differ by ")[2])[:2]
    )
    assert 2 < low < 5.3 < high < 8


def test_a_change_that_is_sure_and_small_is_said_to_be_none_beyond_2_per_cent() -> None:
    sides = [[of_kernel(ns + 50 * place) for place in range(20)] for ns in (1e5, 1.01e5)]
    found = change(*sides)
    assert found.why.startswith("No change of time beyond 2 % is shown: 100.5 µs -> 101.5 µs, medians of 20 and 20")
    assert "their means differ by +0.8 % to +1.2 %" in found.why


def test_launches_of_several_shapes_have_no_interval_of_their_means() -> None:
    mixed = [of_kernel(1e5), of_kernel(1.1e5), of_kernel(3e5, grid=(2, 1, 1))]
    found = change(mixed, mixed).time
    assert found is not None
    assert found.interval is None


@needs_shared_reports
@pytest.mark.parametrize(
    ("report", "pair"),
    [
        (TRITON, "silu_kernel_non_strided=distribution_elementwise_grid_stride_kernel"),
        (JULIA, "julia_bb_4477=julia__5_6739"),
    ],
)
@pytest.mark.slow
def test_the_factors_of_real_kernels_multiply_to_the_ratio_of_their_times(report: Any, pair: str) -> None:
    """Time = instructions / (issue rate x schedulers x share of busy cycles x clock) holds within 5 %."""
    launches = table_of(report)
    assert launches is not None
    run = Run.held("one", launches)
    found = compared((run, run), (), pair, None, None)
    assert found.time is not None
    product = math.prod(one.factor for one in found.factors if not one.what.startswith("bytes"))
    assert product == pytest.approx(found.time.new / found.time.base, rel=0.05)


# ------------------------------------------------------------------------------------------------ which kernel


def runs_of(base: pa.Table, new: pa.Table) -> tuple[Run, Run]:
    return Run.held("before", base), Run.held("after", new)


def test_a_kernel_is_matched_by_its_short_name_if_only_its_parameters_changed() -> None:
    both = runs_of(table(of_kernel(2e5, "norm(float *, int)")), table(of_kernel(1e5, "norm(float *, long)")))
    found = compared(both, (), None, None, None)
    assert found.new.kernel_name == "norm(float *, long)"


def test_a_kernel_that_is_gone_is_refused_with_the_likest_names_and_pair() -> None:
    new = [of_kernel(1e5, name) for name in ("rms_norm_v2", "rms_norm_v3", "gemm")]
    both = runs_of(table(of_kernel(2e5, "rms_norm")), table(*new))
    with pytest.raises(NcuBenchError, match=r"after has no kernel rms_norm.*likest first: rms_norm_v\d.*--pair"):
        compared(both, (), None, None, None)
    found = compared(both, (), "rms_norm=rms_norm_v2", None, None)
    assert (found.new.kernel_name, found.matched_by) == ("rms_norm_v2", None)


def test_a_renamed_kernel_is_found_as_compare_finds_it_and_a_note_says_by_what(tmp_path: Path) -> None:
    before, after = (
        table(of_kernel(2e5, "rms_norm_v1")),
        table(of_kernel(1e5, "rms_norm_float4"), of_kernel(1e5, "gemm")),
    )
    found = compared(runs_of(before, after), (), None, None, None)
    assert (found.new.kernel_name, found.matched_by) == (
        "rms_norm_float4",
        "similar name (rms_norm), grid, block, only candidate",
    )
    for name, made in (("before", before), ("after", after)):
        write_table(with_metadata(made, {"schema_version": SCHEMA_VERSION}), tmp_path / f"{name}.parquet")
    shown = ran("kernel", str(tmp_path / "before.parquet"), "--against", str(tmp_path / "after.parquet"))
    said = "rms_norm_float4 was rms_norm_v1, by similar name (rms_norm), grid, block, only candidate; if not, --pair OLD=NEW"
    assert said in " ".join(shown.stderr.split())
    before_and_after = [str(tmp_path / f"{name}.parquet") for name in ("before", "after")]
    digest = ran(
        "report", "--format", "digest", before_and_after[1], "--against", before_and_after[0], "--kernel", "rms"
    )
    assert said in digest.stdout


def test_two_kernels_of_one_short_name_are_refused() -> None:
    both = runs_of(
        table(of_kernel(2e5, "k<int>(a)")), table(of_kernel(1e5, "k<long>(a)"), of_kernel(1e5, "k<char>(a)"))
    )
    with pytest.raises(NcuBenchError, match=r"after has 2 kernels called k, and none with exactly that full name"):
        compared(both, (), None, None, None)


@pytest.mark.slow
@needs_shared_reports
def test_launches_of_the_shape_with_the_most_time_are_compared_if_a_run_has_several() -> None:
    before, after = (table_of(path) for path in GPP)
    assert before is not None
    assert after is not None
    found = compared((Run.held("before", before), Run.held("after", after)), (), None, None, None)
    assert found.base.grids == found.new.grids == [(65535, 1, 1)]
    assert (found.base.other_shapes, found.new.other_shapes) == (1, 2)
    result = ran("kernel", str(GPP[0]), "--against", str(GPP[1]))
    assert "3 launches of other shapes left out" in result.stderr
    assert "registers per thread" in result.stdout


# ------------------------------------------------------------------------------------------------ command line


def test_a_cause_that_one_run_lacks_or_rules_out_is_told_as_no_cause() -> None:
    """A limit of occupancy is still found where warps are ready, and is then ruled out."""
    limited = {"sm__maximum_warps_per_active_cycle_pct": 50.0, "smsp__warps_eligible.avg.per_cycle_active": 0.2}
    slow, fast = (of_kernel(1e5, metrics={**limited, ISSUED: issued}) for issued in (0.2, 0.7))
    (row,) = _rows_of(change(slow, fast), "verdict")
    assert (row["base"], row["new"]) == ("50.0 %", "no cause")


@needs_shared_reports
@pytest.mark.slow
def test_the_comparison_fits_80_columns_and_json_has_every_value() -> None:
    arguments = ["kernel", str(JULIA), "--against", str(JULIA), "--pair", "julia_bb_4477=julia__5_6739"]
    result = ran(*arguments)
    assert result.exit_code == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    found = json.loads(ran(*arguments, "--format", "json").stdout)
    rows = {row["key"]: row for row in found["rows"]}
    assert (rows["registers"]["base"], rows["registers"]["new"], rows["registers"]["changed"]) == (80, 16, True)
    assert rows["fp64"]["changed"] is False
    assert found["why"].startswith("19.5 x faster")
    assert [one["rule"] for one in found["causes"]] == ["stalled"]
    markdown = ran(*arguments, "--format", "markdown").stdout
    assert "| 1 identity | blocks | 84 | 258,048 | +257,964 |" in markdown
    assert "* 19.5 x faster" in markdown


def test_a_run_against_itself_shows_no_change() -> None:
    report = str(SAMPLES / "d02-long-rules.csv")
    result = ran("kernel", report, "--against", report)
    assert result.exit_code == 0, result.stderr
    assert "No change of time is shown" in result.stdout
    assert "1 identity" not in result.stdout


def test_pair_without_a_run_to_compare_with_is_refused() -> None:
    result = ran("kernel", str(SAMPLES / "d02-long-rules.csv"), "--pair", "a=b")
    assert result.exit_code == 2
    assert "--pair goes with --against" in result.stderr


def test_a_name_beside_a_pair_is_refused_since_the_pair_names_the_kernel() -> None:
    report = str(SAMPLES / "d02-long-rules.csv")
    result = ran("kernel", report, "gemm", "--against", report, "--pair", "a=b")
    assert result.exit_code == 2
    assert "--pair names the kernel already" in result.stderr
