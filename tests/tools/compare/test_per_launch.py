"""Samples of a kernel are launches: what is compared per launch, what as sums, and what gates make of both."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.compare.compare_kernels import Comparison, compare
from ncu_tools.compare.comparison_sums import SignatureSums, printed_steps
from ncu_tools.compare.gate import GateOutcome, evaluate, parse_gate
from ncu_tools.compare.per_launch import (
    OF_COMMON_SIGNATURES,
    OF_ITERATIONS,
    OF_OTHER_SIGNATURES,
    PER_CALL,
    PER_LAUNCH,
    SINGLE_AS_OTHERS,
    WITHIN_SIGNATURES,
)
from ncu_tools.compare.run_conditions import conditions_of
from ncu_tools.kernels.matching.asked_pairs import asked_pairs
from ncu_tools.numbers.change import Change, sentence, verdict_text
from ncu_tools.numbers.statistics import Moments, mean_of, ratio_interval, totals
from ncu_tools.report.head import short_names
from tests.support.launches import launch, sass, table, taken
from tests.support.nightly import one_in
from tests.support.ran import Ran, below_head, ran

SMALL, LARGE, BLOCK = (8, 1, 1), (64, 1, 1), (128, 1, 1)


def several(name: str, *times: float, flops: float = 200.0, dram: float = 1000.0, **attributes: Any) -> list[Launch]:
    attributes = {"grid": SMALL, "block": BLOCK, **attributes}
    return [launch(name, sass(ffma=flops / 2), ns=ns, dram=dram, **attributes) for ns in times]


SILU_3, SILU_4 = several("silu_kernel", 284, 285, 286), several("silu_kernel", 269, 270, 271, 272)
"""A kernel that became faster, with one more sample in the new run."""


def compared(base: list[Launch], new: list[Launch], *asked: str, sums_anyway: bool = False) -> Comparison:
    sides = [taken(SignatureSums, table(*launches)) for launches in (base, new)]
    conditions = conditions_of(sides[0].observed), conditions_of(sides[1].observed)
    pairs = asked_pairs(asked, sides[0].signatures.names, [sides[1].signatures.names])
    return compare(sides[0], sides[1], conditions, asked=pairs, sums_anyway=sums_anyway)


def gated(text: str, base: list[Launch], new: list[Launch], **options: Any) -> GateOutcome:
    return evaluate(parse_gate(text), compared(base, new, **options).subjects)


class TestPerLaunch:
    def test_a_kernel_with_more_samples_is_compared_by_the_mean_of_its_launches(self) -> None:
        (kernel,) = compared(SILU_3, SILU_4).kernels
        time = kernel.changes["time"]
        assert (time.base, time.new, time.outcome, time.compares) == (285, 270.5, "less", PER_LAUNCH)
        assert time.low is not None
        assert time.high is not None
        assert time.low < 270.5 / 285 < time.high < 1
        assert (kernel.changes["flops"].growth, kernel.changes["dram_bytes"].growth) == (0, 0)
        assert (kernel.changes["launches"].base, kernel.changes["launches"].new) == (3, 4)

    @pytest.mark.parametrize("measure", ["time", "flops", "dram_bytes"])
    def test_a_gate_does_not_trip_on_a_faster_kernel_because_it_was_sampled_once_more(self, measure: str) -> None:
        assert gated(f"kernel:silu:{measure}>5%", SILU_3, SILU_4).outcome == "passed"
        assert gated("kernel:silu:launches>5%", SILU_3, SILU_4).outcome == "tripped"

    def test_a_gate_trips_on_a_slower_kernel_that_was_sampled_once_less(self) -> None:
        found = gated("kernel:silu:time>5%", SILU_4, SILU_3)
        assert (found.outcome, "time per launch 270.5 ns -> 285 ns" in found.reason) == ("tripped", True)
        assert gated("kernel:silu:launches>5%", SILU_4, SILU_3).outcome == "passed"

    def test_more_of_the_large_launches_do_not_make_a_kernel_slower(self) -> None:
        base = several("gemm", 10, 10.2) + several("gemm", 1000, 1010, grid=LARGE)
        new = several("gemm", 9, 9.1) + several("gemm", 900, 905, 910, grid=LARGE)
        (kernel,) = compared(base, new).kernels
        time = kernel.changes["time"]
        assert (time.base, time.new) == (pytest.approx(507.55), pytest.approx((2 * 9.05 + 2 * 905) / 4))
        assert (time.outcome, time.compares) == ("less", PER_LAUNCH)
        assert gated("kernel:gemm:time>5%", base, new).outcome == "passed"

    def test_one_launch_of_another_shape_does_not_hide_a_slower_kernel(self) -> None:
        """Of a real convolution kernel: four launches of one grid, one of half of it."""
        base = several("conv", 68.9, 68.35, 68.3, 68.4, grid=LARGE) + several("conv", 47.62)
        new = several("conv", *(1.2 * ns for ns in (68.4, 68.9, 68.3, 68.35)), grid=LARGE) + several("conv", 57.1)
        time = compared(base, new).kernels[0].changes["time"]
        assert (time.outcome, time.basis) == ("more", SINGLE_AS_OTHERS)
        assert gated("kernel:conv:time>5%", base, new).outcome == "tripped"
        assert gated("kernel:conv:time>5%", base, base[::-1]).outcome == "passed"

    def test_two_shapes_launched_twice_each_are_held_to_the_scatter_within_them(self) -> None:
        """Each adds 2 x the variance 2 to that of the sum of 404 ns, with one degree of freedom."""
        base = several("gemm", 100, 102) + several("gemm", 100, 102, grid=LARGE)
        new = several("gemm", 110, 112) + several("gemm", 130, 132, grid=LARGE)
        time = compared(base, new).kernels[0].changes["time"]
        assert time.basis == WITHIN_SIGNATURES
        assert (time.low, time.high) == pytest.approx(ratio_interval((404, 8, 2), (484, 8, 2)))

    def test_launches_outside_of_all_ranges_are_no_calls_of_operators(self) -> None:
        outside = several("gemm", 100, 102, nvtx_path=())
        (kernel,) = compared(outside, outside).kernels
        assert kernel.changes["time"].compares == PER_LAUNCH

    @pytest.mark.parametrize("known_before", [True, False])
    def test_calls_of_operators_are_told_by_the_inputs_of_either_run(self, known_before: bool) -> None:
        known, unknown = several("mm", 100, 102, nvtx_path=("inputs [4, 4] float",)), several("mm", 100, 102)
        (row,) = compared(known, unknown).kernels if known_before else compared(unknown, known).kernels
        assert row.changes["time"].compares == PER_CALL

    def test_equal_times_of_one_shape_do_not_say_that_a_single_launch_of_another_has_no_noise(self) -> None:
        base = several("conv", 68, 68, grid=LARGE) + several("conv", 47)
        new = several("conv", 72, 72, grid=LARGE) + several("conv", 50)
        assert compared(base, new).kernels[0].changes["time"].outcome == "no change shown"

    def test_launches_of_a_grid_that_one_run_lacks_are_left_out_with_a_note(self) -> None:
        new = several("gemm", 9, 9.1) + several("gemm", 900, grid=LARGE)
        comparison = compared(several("gemm", 10, 10.2), new)
        time = comparison.kernels[0].changes["time"]
        assert (time.new, time.outcome, time.compares) == (9.05, "less", OF_COMMON_SIGNATURES)
        assert f"1 kernel is compared {OF_COMMON_SIGNATURES}" in comparison.notes
        time = compared(new, several("gemm", 10, 10.2)).kernels[0].changes["time"]
        assert (time.base, time.new, time.compares) == (9.05, pytest.approx(10.1), OF_COMMON_SIGNATURES)

    def test_launches_that_are_left_out_need_no_time(self) -> None:
        new = [*several("gemm", 9, 9.1), launch("gemm", grid=LARGE, block=BLOCK)]
        assert compared(several("gemm", 10, 10.2), new).kernels[0].changes["time"].new == 9.05
        new.append(launch("gemm", grid=SMALL, block=BLOCK))
        assert compared(several("gemm", 10, 10.2), new).kernels[0].changes["time"].new is None

    def test_launches_of_other_grids_weigh_as_in_the_base_whatever_other_kernels_did(self) -> None:
        huge = (512, 1, 1)
        base = several("gemm", 10) + several("gemm", 100, grid=LARGE) + several("relu", 1, 1, 1, grid=LARGE)
        new = several("gemm", 9) + several("gemm", 90, 92, grid=huge) + several("relu", 1, grid=huge)
        time = compared(base, new).kernels[0].changes["time"]
        assert (time.base, time.new, time.compares) == (55, pytest.approx((9 + 91) / 2), OF_OTHER_SIGNATURES)

    def test_runs_without_a_launch_that_succeeded_have_no_kernels(self) -> None:
        assert compared([launch("k", failed=True)], [launch("k", failed=True)]).kernels == []

    def test_a_kernel_with_another_grid_is_compared_by_all_its_launches_with_a_note(self) -> None:
        comparison = compared(several("gemm", 10, 11), several("gemm", 20, 21, 22, grid=LARGE))
        time = comparison.kernels[0].changes["time"]
        assert (time.base, time.new, time.compares) == (10.5, pytest.approx(21), OF_OTHER_SIGNATURES)
        assert time.low is not None
        assert f"1 kernel is compared {OF_OTHER_SIGNATURES}" in comparison.notes

    def test_averages_count_all_their_launches(self) -> None:
        base = [*several("k", 10, invocations=9), *several("k", 20)]
        (kernel,) = compared(base, several("k", 11)).kernels
        assert kernel.changes["time"].base == 11

    @pytest.mark.slow
    @pytest.mark.parametrize(("before", "after"), one_in(2, [((5, 5), (3, 12)), ((4, 8), (20, 4))]))
    def test_about_95_of_100_intervals_cover_the_true_ratio_though_the_mix_changed(
        self, before: tuple[int, int], after: tuple[int, int]
    ) -> None:
        random, held, trials, truth = np.random.default_rng(5), 0, 3000, 1.3
        weights = np.array([before[0] / after[0], before[1] / after[1]])
        for _ in range(trials):
            sides = []
            for counts, factor, of_strata in ((before, 1.0, None), (after, truth, weights)):
                strata = np.repeat(np.arange(2), counts)
                values = factor * np.array([900.0, 100.0])[strata] * (1 + 0.1 * random.standard_normal(len(strata)))
                found = totals(Moments.of(values, strata, 2), np.zeros(2, np.int64), 1, of_strata)
                sides.append((float(found.total[0]), float(found.variance[0]), float(found.freedom[0])))
            interval = ratio_interval(sides[0], sides[1])
            assert interval is not None
            held += interval[0] <= truth <= interval[1]
        assert 0.935 <= held / trials <= 0.975

    times = st.lists(st.floats(1, 1e4), min_size=1, max_size=5)

    @given(times, times, times, times, st.integers(1, 4))
    @pytest.mark.slow
    def test_means_do_not_depend_on_how_often_the_new_run_repeats_a_signature(
        self, a: list[float], b: list[float], c: list[float], d: list[float], times: int
    ) -> None:
        base = several("k", *a) + several("k", *b, grid=LARGE)
        once = compared(base, several("k", *c) + several("k", *d, grid=LARGE)).kernels[0].changes["time"]
        more = compared(base, several("k", *c) + several("k", *(d * times), grid=LARGE)).kernels[0].changes["time"]
        assert more.new == pytest.approx(once.new)
        assert once.base == pytest.approx(np.mean([*a, *b]))


class TestSums:
    def test_are_compared_if_both_runs_did_the_same_work(self) -> None:
        base = SILU_3 + several("add", 5, grid=LARGE)
        comparison = compared(base, several("silu_kernel", 270, 271, 272) + several("add", 6, grid=LARGE))
        assert not comparison.other_work
        assert comparison.total.changes["time"].growth == pytest.approx((813 + 6) / (855 + 5) - 1)

    @pytest.mark.parametrize(
        ("base", "new", "words"),
        [
            (SILU_3, SILU_4, "3 -> 4 launches of silu_kernel"),
            (SILU_3, [*SILU_3, *several("add", 1)], "0 -> 1 launches of add"),
            (several("k", 1, 2), several("k", 1) + several("k", 2, grid=LARGE), "another grid, block or range of k"),
            (several("k", 1, nvtx_path=("a",)), several("k", 1, nvtx_path=("b",)), "another grid, block or range of k"),
        ],
    )
    def test_of_different_work_are_marked_and_have_no_change(
        self, base: list[Launch], new: list[Launch], words: str
    ) -> None:
        comparison = compared(base, new)
        assert str(comparison.other_work) == f"not the same work: {words}"
        changes = comparison.total.changes
        assert {changes[name].growth for name in ("time", "flops", "dram_bytes")} == {None}
        assert changes["launches"].growth is not None

    @pytest.mark.parametrize(
        "base", [several("k", 1, nvtx_path=("a",)), several("k", 1, grid=None, block=None)], ids=["range", "grid"]
    )
    def test_are_the_same_work_if_only_one_run_knows_a_range_or_a_grid(self, base: list[Launch]) -> None:
        assert not compared(base, several("k", 1)).other_work

    def test_of_a_rewritten_kernel_are_the_same_work_if_it_is_launched_as_often(self) -> None:
        base, new = several("rms_norm_v1", 20, 21), several("rms_norm_float4", 10, 11, grid=LARGE)
        assert compared(base, new).total.changes["time"].new == 21
        assert str(compared(base, new[:1]).other_work) == "not the same work: 2 -> 1 launches of rms_norm_float4"

    def test_of_a_kernel_that_the_user_pairs_are_the_same_work_whatever_its_grid(self) -> None:
        base, new = several("k", 20, 21), several("k", 10, 11, grid=LARGE)
        assert compared(base, new).other_work
        assert not compared(base, new, "k=k").other_work

    def test_are_refused_by_a_gate_if_the_work_differs_with_advice(self) -> None:
        found = gated("time>5%", SILU_3, SILU_4)
        assert found.outcome == "refused"
        assert "3 -> 4 launches of silu_kernel" in found.reason
        assert '--fail-on "any:time>5%" or "kernel:silu_kernel:time>5%"' in found.reason
        assert "--anyway" in found.reason

    def test_of_launches_are_exact_and_always_gated(self) -> None:
        assert gated("launches>0%", SILU_3, SILU_4).outcome == "tripped"
        assert gated("launches>50%", SILU_3, SILU_4).outcome == "passed"

    def test_are_gated_with_anyway(self) -> None:
        assert gated("time>5%", SILU_3, SILU_4, sums_anyway=True).outcome == "tripped"
        assert gated("time>50%", SILU_3, SILU_4, sums_anyway=True).outcome == "passed"


class TestShownChanges:
    def test_a_change_below_the_printed_digits_is_the_same(self) -> None:
        assert Change("time", 1234.4, 1234.5).outcome == "same"
        assert Change("time", 1234.0, 1235.1).outcome == "more"
        assert Change("dram_bytes", 5.0004e9, 5.0e9).outcome == "same"
        assert Change("time", 6.7191e9, 6.7189e9, 0.99, 1.01).outcome == "same"

    def test_a_report_that_prints_three_digits_does_not_differ_from_one_that_prints_all(self) -> None:
        """As ncu's details page prints 8.97 msecond of 8974464 ns."""
        for base, new in ((8974464.0, 8970000.0), (8970000.0, 8974464.0), (8970000.0, 8970000.0)):
            comparison = compared(
                [*several("k", base), *several("l", 1234567)], [*several("k", new), *several("l", 1234567)]
            )
            assert {one.changes["time"].outcome for one in (*comparison.kernels, comparison.total)} == {"same"}
        (kernel,) = compared(several("k", 8974464), several("k", 8960000)).kernels
        assert kernel.changes["time"].outcome == "less"
        (kernel,) = compared(several("k", 8970000, 8970001), several("k", 8974464, 8974465)).kernels
        assert kernel.changes["time"].outcome == "more"

    def test_a_number_of_three_digits_may_be_rounded_by_a_step_of_its_last_one(self) -> None:
        coarse = {8970000.0: 10000.0, 123.0: 1.0, 5.0: 0.01, 0.0123: 0.0001, 99.9: 0.1, 100.0: 1.0}
        found = printed_steps(np.array([*coarse, 1234.0, 8974464.0, 100.0001, 0.0, np.nan, np.inf]))
        assert found.tolist() == pytest.approx([*coarse.values(), 0, 0, 0, 0, 0, 0])

    def test_sums_keep_the_notes_on_reading_their_reports(self) -> None:
        first, other = (
            taken(SignatureSums, with_metadata(table(*SILU_3), {"notes": [note, "both"]})) for note in ("one", "other")
        )
        first.merge(other)
        assert list(first.reports) == ["one", "both", "other"]

    def test_the_step_of_printed_digits_is_that_of_each_launch_whatever_their_number_and_tables(self) -> None:
        base = taken(SignatureSums, table(*several("k", 8970000)), table(*several("k", 8970000), *several("l", 10)))
        new = taken(SignatureSums, table(*several("k", 8974464, 8974464), *several("l", 10)))
        conditions = conditions_of(base.observed), conditions_of(new.observed)
        assert compare(base, new, conditions).kernels[0].changes["time"].outcome == "same"
        slower = taken(SignatureSums, table(*several("k", 8975464, 8975464), *several("l", 10)))
        assert compare(base, slower, conditions).kernels[0].changes["time"].outcome == "more"

    def test_exact_counts_are_the_same_only_if_they_are(self) -> None:
        assert Change("flops", 2e12, 2e12 + 20_000).outcome == "more"
        assert Change("launches", 100_000, 100_001).outcome == "more"

    def test_a_gate_does_not_trip_below_the_printed_digits(self) -> None:
        found = gated("time>0%", several("k", 123456.0), several("k", 123457.0))
        assert (found.outcome, found.reason) == ("passed", "time 123.5 µs -> 123.5 µs: same")

    def test_a_change_within_its_interval_is_shown_as_no_change_with_the_interval_everywhere(self) -> None:
        change = Change("dram_bytes", 100.0, 102.0, 0.97, 1.08)
        assert verdict_text(change) == "no change shown [-3.0 %, +8.0 %]"
        assert sentence(change) == "dram_bytes 100 B -> 102 B: +2.0 % [-3.0 %, +8.0 %], no change shown"

    def test_runs_have_the_shortest_names_that_differ(self) -> None:
        assert short_names(["x/a.csv", "y/b.csv"]) == {"x/a.csv": "a.csv", "y/b.csv": "b.csv"}
        assert list(short_names(["x/run", "y/run/"]).values()) == ["x/run", "y/run"]
        long = [f"someone__project__kernels_{name}.csv" for name in ("gemm", "gemv")]
        assert list(short_names(long).values()) == ["…gemm.csv", "…gemv.csv"]
        assert short_names(["a", "a"]) == {"a": "a"}


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    return written(tmp_path / "before.parquet", SILU_3), written(tmp_path / "after.parquet", SILU_4)


def written(path: Path, launches: list[Launch]) -> str:
    write_table(with_metadata(table(*launches), {"schema_version": SCHEMA_VERSION}), path)
    return str(path)


def invoked(*arguments: str) -> Ran:
    return ran("compare", *arguments)


def titles(found: Ran) -> list[str]:
    return [title.strip() for title in below_head(found.stdout).splitlines()[0].split("   ") if title.strip()]


class TestTheCommand:
    def test_marks_totals_of_different_work_and_shows_no_percentage(self, files: tuple[str, str]) -> None:
        found = invoked(*files, "--wide")
        (total,) = (line for line in found.stdout.splitlines() if line.startswith(" all kernels"))
        assert "not the same work" in total
        assert "%" not in total
        assert "all kernels: not the same work: 3 -> 4 launches of silu_kernel" in found.stdout
        assert (found.exit_code, "faster" in found.stdout) == (0, True)

    def test_refuses_a_gate_on_totals_with_exit_code_2_and_evaluates_one_on_a_kernel(
        self, files: tuple[str, str]
    ) -> None:
        found = invoked(*files, "--fail-on", "time>5%")
        assert found.exit_code == 2
        assert "3 -> 4 launches of silu_kernel" in found.stderr
        assert '--fail-on "any:time>5%" or "kernel:silu_kernel:time>5%"' in found.stderr
        assert invoked(*files, "--fail-on", "kernel:silu_kernel:time>5%").exit_code == 0
        assert invoked(*files, "--fail-on", "time>5%", "--anyway").exit_code == 3
        assert invoked(*files, "--fail-on", "time>90%", "--anyway").exit_code == 0

    def test_evaluates_every_gate_though_one_is_refused(self, files: tuple[str, str], tmp_path: Path) -> None:
        junit = tmp_path / "gates.xml"
        gates = ("--fail-on", "flops>0%", "--fail-on", "kernel:silu:time>5%", "--junit", str(junit))
        found = invoked(*files, *gates)
        assert (found.exit_code, "refused" in found.stdout, "passed" in found.stdout) == (2, True, True)
        (suite,) = ET.fromstring(junit.read_bytes())  # noqa: S314 - written by the command
        assert [case[0].tag for case in suite] == ["error", "system-out"]
        assert invoked(*files, *gates, "--fail-on", "launches>0%").exit_code == 3

    def test_distinguishes_per_launch_and_sums_in_json_and_csv(self, files: tuple[str, str]) -> None:
        kernel, total = json.loads(invoked(*files, "--format", "json").stdout)["rows"]
        assert (kernel["base_time_mean_ns"], kernel["new_time_mean_ns"]) == (285, 270.5)
        assert (kernel["base_time_ns"], kernel["new_time_ns"], kernel["compares"]) == (855, 1082, "per launch")
        assert (kernel["base_flops_mean"], kernel["new_dram_bytes_mean"]) == (200, 1000)
        assert kernel["time_ratio"] == pytest.approx(270.5 / 285)
        assert (total["base_time_mean_ns"], total["new_time_ns"], total["time_ratio"]) == (None, 1082, None)
        assert total["verdict"] == "not the same work: 3 -> 4 launches of silu_kernel"
        rows = list(csv.DictReader(io.StringIO(invoked(*files, "--format", "csv").stdout)))
        assert [row["launches_ratio"] for row in rows] == [str(4 / 3)] * 2

    @pytest.mark.parametrize("runs", [2, 3])
    def test_never_has_two_columns_of_the_same_name(self, files: tuple[str, str], tmp_path: Path, runs: int) -> None:
        more = [written(tmp_path / "later.parquet", SILU_3)] if runs == 3 else []
        found = titles(invoked(*files, *more, "--wide"))
        assert len(found) == len(set(found))
        named = {"base time", "new time"} if runs == 2 else {"run", "base time", "time"}
        assert named <= set(found)

    def test_pairs_the_kernels_that_the_user_names(self, tmp_path: Path) -> None:
        base = written(tmp_path / "a.parquet", several("softmax(float*)", 10, 11))
        new = written(tmp_path / "b.parquet", several("attention<4>(float*)", 20, 21, grid=LARGE))
        assert "gone" in invoked(base, new).stdout
        found = invoked(base, new, "--pair", "softmax=attention", "--fail-on", "kernel:attention:time>5%")
        assert (found.exit_code, "--pair" in found.stdout) == (3, True)
        near = invoked(base, new, "--pair", "softmacks=attention")
        assert (near.exit_code, "softmax" in near.stderr) == (2, True)
        assert invoked(base, new, "--pair", "softmax=attention", "--layers").exit_code == 2

    @pytest.mark.parametrize("dram", [1000.0, 1500.0])
    def test_drops_unchanged_counts_first_on_a_narrow_terminal(
        self, dram: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        base = written(tmp_path / "a.parquet", several("a_kernel", 100, 101))
        new = written(tmp_path / "b.parquet", several("a_kernel", 120, 121, dram=dram))
        monkeypatch.setattr("ncu_tools.cli.options.terminal_width", lambda: 112)
        header = below_head(invoked(base, new).stdout).splitlines()[0]
        assert ("FLOPs" in header, "launches" in header, "DRAM" in header) == (False, False, dram > 1000)
        monkeypatch.setattr("ncu_tools.cli.options.terminal_width", lambda: 80)
        narrow = invoked(base, new).stdout
        for evidence in ("+19.9 % [+16.5 %, +23.4 %]", "slower", "verdict"):
            assert evidence in narrow


class TestIntervalsOfIterations:
    """Launches of one iteration are slow together: two kernels, three iterations, the middle one 10 % slower."""

    @staticmethod
    def run(factor: float, *, of: tuple[float, ...] = (1.0, 1.1, 1.0), **more: Any) -> list[Launch]:
        return [
            one
            for number, slow in enumerate(of)
            for name, ns in (("gemm", 100.0), ("relu", 10.0))
            for one in several(
                name, *(ns * slow * factor * part for part in (1.0, 1.001) * 5), iteration=number, **more
            )
        ]

    def test_cover_the_variation_between_iterations_and_not_only_between_launches(self) -> None:
        base, new = self.run(1.0), self.run(1.03)
        found = compared(base, new)
        for change in (found.total.changes["time"], *(one.changes["time"] for one in found.kernels)):
            assert (change.basis, change.outcome) == (OF_ITERATIONS, "no change shown")
        for one in (*base, *new):
            one.iteration = None
        alone = compared(base, new).total.changes["time"]
        assert (alone.basis, alone.outcome) == (WITHIN_SIGNATURES, "more")

    def test_are_those_of_the_means_of_iterations(self) -> None:
        time = compared(self.run(1.0), self.run(1.3)).kernels[0].changes["time"]
        means = [np.array([100.0, 110.0, 100.0]) * 1.0005 * factor for factor in (1.0, 1.3)]
        assert (time.low, time.high) == pytest.approx(ratio_interval(mean_of(means[0]), mean_of(means[1])))

    def test_are_those_of_launches_where_iterations_launch_a_kernel_unequally_often(self) -> None:
        base = [*self.run(1.0), *several("gemm", 100.0, iteration=0)]
        by_name = {one.pair.kernel: one.changes["time"].basis for one in compared(base, base).kernels}
        assert by_name == {"gemm": WITHIN_SIGNATURES, "relu": OF_ITERATIONS}

    def test_need_two_iterations_in_each_run(self) -> None:
        two, one = self.run(1.0), self.run(1.0, of=(1.0,))
        for base, new in ((two, one), (one, two)):
            assert compared(base, new).kernels[0].changes["time"].basis == WITHIN_SIGNATURES
        two = self.run(1.0, of=(1.0, 1.1))
        assert compared(two, two).kernels[0].changes["time"].basis == OF_ITERATIONS

    @pytest.mark.filterwarnings("error")
    def test_are_those_of_launches_where_one_launch_has_no_iteration(self) -> None:
        base = [*self.run(1.0), *several("gemm", 100.0)]
        assert compared(base, self.run(1.0)).kernels[0].changes["time"].basis == WITHIN_SIGNATURES

    def test_weigh_launches_of_each_grid_as_in_the_base_and_leave_out_those_of_other_grids(self) -> None:
        """The new run has twice as many small launches in each iteration, the base some of a grid without a time."""
        means = (100.0, 110.0, 101.0)
        base = [one for number, ns in enumerate(means) for one in self.mixed(number, ns, small=1)]
        new = [one for number, ns in enumerate(means) for one in self.mixed(number, 1.2 * ns, small=2)]
        base += [launch("gemm", grid=(512, 1, 1), block=BLOCK, iteration=number) for number in range(3)]
        time = compared(base, new).kernels[0].changes["time"]
        each = 5.5 * np.array(means)
        assert (time.basis, time.compares) == (OF_ITERATIONS, OF_COMMON_SIGNATURES)
        assert (time.low, time.high) == pytest.approx(ratio_interval(mean_of(each), mean_of(1.2 * each)))

    @staticmethod
    def mixed(iteration: int, ns: float, *, small: int) -> list[Launch]:
        """Launches of one iteration: some of a small grid, and a large one that takes ten times as long."""
        return several("gemm", *[ns] * small, iteration=iteration) + several(
            "gemm", 10 * ns, grid=LARGE, iteration=iteration
        )

    def test_are_the_same_whether_launches_are_added_at_once_or_in_parts(self) -> None:
        launches = self.run(1.0)
        whole, parts = taken(SignatureSums, table(*launches)), taken(SignatureSums, table(*launches[:25]))
        parts.merge(taken(SignatureSums, table(*launches[25:])))
        one, other = (sums.iterations.total("duration_ns", len(sums.rows)) for sums in (whole, parts))
        assert one is not None
        assert other == pytest.approx(one)
        unknown = taken(SignatureSums, table(*several("gemm", 1.0)))
        parts.merge(unknown)
        assert parts.iterations.total("duration_ns", len(parts.rows)) is None


def test_the_sum_of_iterations_has_the_variance_between_them_times_their_number_squared() -> None:
    """Iterations of 10, 14 and 12 ns: a mean of 12 with the variance 4 / 3, and so a sum of 36 with 12."""
    launches = [one for number, ns in enumerate((10, 14, 12)) for one in several("k", ns, iteration=number)]
    sums = taken(SignatureSums, table(*launches))
    total, variance, freedom = sums.iterations.total("duration_ns", 3) or (0, 0, 0)
    assert (total, variance, freedom) == (36, pytest.approx(12), 2)


def test_iterations_with_more_launches_are_compared_by_the_means_of_their_launches() -> None:
    base, new = (
        [
            one
            for number, ns in enumerate((100, 102, 98))
            for one in several("k", *[ns * slower] * each, iteration=number)
        ]
        for slower, each in ((1.0, 2), (1.2, 4))
    )
    (kernel,) = compared(base, new).kernels
    time = kernel.changes["time"]
    assert (time.basis, time.compares) == (OF_ITERATIONS, PER_LAUNCH)
    assert time.low is not None
    assert time.high is not None
    assert 1.1 < time.low < 1.2 < time.high < 1.3
