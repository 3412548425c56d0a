"""Two runs compared kernel by kernel, the intervals of changes, and gates."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.manifest import Manifest, write_manifest
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import SCHEMA_VERSION, Floats, with_metadata

from ncu_tools.cli import run
from ncu_tools.compare.compare_kernels import ComparedKernel, Comparison, compare, ordered
from ncu_tools.compare.comparison_sums import SignatureSums
from ncu_tools.compare.gate import GateOutcome, evaluate, exit_code, parse_gate
from ncu_tools.compare.per_launch import BETWEEN_SIGNATURES, OF_ALL, SINGLE_AS_OTHERS, WITHIN_SIGNATURES
from ncu_tools.compare.run_conditions import Conditions, Observed, conditions_of, differences, known_of_one
from ncu_tools.kernels.matching.kernel_pairs import BY_PLACE, BY_SHORT_NAME, BY_SHORT_NAME_ALONE
from ncu_tools.numbers.change import Change, verdict
from ncu_tools.numbers.statistics import Codes, Moments, ratio_interval, student_quantile, totals
from tests.conftest import SAMPLES
from tests.support.launches import launch, metric, sass, table, taken
from tests.support.ran import below_head

GRID, BLOCK = (8, 1, 1), (128, 1, 1)


def one(name: str = "kernel", ns: float | None = 100.0, flops: float = 200.0, **attributes: Any) -> Launch:
    attributes = {"grid": GRID, "block": BLOCK, "dram": 1000.0, **attributes}
    device = {"Device Name": attributes.pop("device", "NVIDIA A100")}
    return launch(name, sass(ffma=flops / 2), ns=ns, attributes=device, **attributes)


def several(name: str, *times: float, **attributes: Any) -> list[Launch]:
    return [one(name, ns, **attributes) for ns in times]


def at_clock(hz: float, *times_ms: float) -> list[Launch]:
    """Launches of the kernel `k` at an SM clock."""
    clock = {"sm__cycles_elapsed.avg.per_second": metric(hz, "hz")}
    return [launch("k", sass(ffma=100) | clock, ns=1e6 * ms, grid=GRID) for ms in times_ms]


def known_of(found: pa.Table, manifest: Manifest | None = None) -> Conditions:
    return conditions_of(taken(Observed, found), manifest)


def compared(base: list[Launch], new: list[Launch]) -> Comparison:
    before, after = table(*base), table(*new)
    return compare(taken(SignatureSums, before), taken(SignatureSums, after), (known_of(before), known_of(after)))


def only(comparison: Comparison) -> ComparedKernel:
    (kernel,) = comparison.kernels
    return kernel


def gated(text: str, base: list[Launch], new: list[Launch]) -> GateOutcome:
    return evaluate(parse_gate(text), compared(base, new).subjects)


def side_of(times: Floats, strata: Codes) -> tuple[float, float, float]:
    count = int(strata.max()) + 1
    found = totals(Moments.of(times, strata, count), np.zeros(count, np.int64), 1)
    return float(found.total[0]), float(found.variance[0]), float(found.freedom[0])


class TestIntervals:
    @pytest.mark.parametrize(
        ("freedom", "expected"), [(1, 12.7062), (2, 4.3027), (4, 2.7764), (10, 2.2281), (30, 2.0423), (100, 1.9840)]
    )
    def test_quantiles_are_those_of_published_tables(self, freedom: int, expected: float) -> None:
        assert student_quantile(0.95, freedom) == pytest.approx(expected, abs=5e-5)

    def test_quantiles_of_many_degrees_of_freedom_are_those_of_the_normal_distribution(self) -> None:
        normal = statistics.NormalDist().inv_cdf(0.975)
        assert student_quantile(0.95, 1e6) == pytest.approx(normal, abs=1e-5)

    def test_quantiles_of_two_degrees_of_freedom_follow_the_closed_form(self) -> None:
        for confidence in (0.5, 0.9, 0.99):
            assert student_quantile(confidence, 2) == pytest.approx(confidence * math.sqrt(2 / (1 - confidence**2)))

    def test_an_interval_equals_welchs_formula_written_out(self) -> None:
        base, new = [10.0, 11.0, 12.5, 9.5], [14.0, 13.0, 15.0]
        parts = [statistics.variance(side) / len(side) / statistics.mean(side) ** 2 for side in (base, new)]
        freedom = sum(parts) ** 2 / (parts[0] ** 2 / 3 + parts[1] ** 2 / 2)
        reach = student_quantile(0.95, freedom) * math.sqrt(sum(parts))
        change = only(compared(several("k", *base), several("k", *new))).changes["time"]
        mean_ratio = statistics.mean(new) / statistics.mean(base)
        assert change.low == pytest.approx(mean_ratio * math.exp(-reach), rel=1e-4)
        assert change.high == pytest.approx(mean_ratio * math.exp(reach), rel=1e-4)

    @pytest.mark.parametrize(
        ("before", "after", "works", "least", "most"),
        [
            pytest.param(2, 2, 1, 0.95, 0.985, marks=pytest.mark.nightly),
            (2, 2, 3, 0.95, 0.985),
            pytest.param(5, 5, 1, 0.945, 0.97, marks=pytest.mark.nightly),
            pytest.param(30, 30, 2, 0.94, 0.96, marks=pytest.mark.nightly),
            pytest.param(3, 20, 2, 0.92, 0.96, marks=pytest.mark.nightly),
        ],
    )
    @pytest.mark.slow
    def test_about_95_of_100_intervals_cover_the_true_ratio(
        self, before: int, after: int, works: int, least: float, most: float
    ) -> None:
        random, trials, held = np.random.default_rng(7), 4000, 0
        means = np.array([900.0, 100.0, 10.0])[:works]
        for _ in range(trials):
            sides = []
            for launches, factor in ((before, 1.0), (after, 1.3)):
                strata = np.repeat(np.arange(works), launches)
                sides.append(side_of(factor * means[strata] * (1 + 0.1 * random.standard_normal(len(strata))), strata))
            interval = ratio_interval(sides[0], sides[1])
            assert interval is not None
            held += interval[0] <= 1.3 * after / before <= interval[1]
        assert least <= held / trials <= most

    def test_bytes_without_scatter_in_any_signature_have_no_interval(self) -> None:
        base = [*several("k", 1, 2, dram=10.0), *several("k", 1, 2, dram=9000.0, grid=(1, 1, 1))]
        comparison = compared(base, base)
        assert only(comparison).changes["dram_bytes"].low is None
        assert comparison.total.changes["dram_bytes"].low is None

    def test_differences_between_signatures_are_not_noise(self) -> None:
        base = several("k", 10, 10.1, grid=(1, 1, 1)) + several("k", 990, 1000)
        new = several("k", 11, 11.1, grid=(1, 1, 1)) + several("k", 1190, 1200)
        change = only(compared(base, new)).changes["time"]
        assert change.basis == WITHIN_SIGNATURES
        assert change.low is not None
        assert change.low > 1.1

    def test_a_kernel_with_many_shapes_that_are_each_slower_is_slower(self) -> None:
        shapes = {(number, 1, 1): 10.0 * 2**number for number in range(6)}
        noise = (1.02, 0.99, 1.0, 0.98, 1.01, 1.0)
        base = [one("k", ns, grid=grid) for grid, ns in shapes.items()]
        new = [one("k", 1.25 * ns * by, grid=grid) for by, (grid, ns) in zip(noise, shapes.items(), strict=True)]
        change = only(compared(base, new)).changes["time"]
        assert (change.basis, change.outcome) == (BETWEEN_SIGNATURES, "more")
        assert change.low == pytest.approx(1.21, abs=0.02)
        assert change.high == pytest.approx(1.29, abs=0.02)

    def test_a_shape_that_the_new_run_launched_more_often_weighs_as_in_the_base(self) -> None:
        """And a shape of the base alone, without a time, weighs nothing."""
        times = {(number, 1, 1): 10.0 * 1.5**number for number in range(6)}
        slower = dict(zip(times, (1.22, 1.25, 1.28, 1.24, 1.26, 1.25), strict=True))
        base = [one("k", ns, grid=grid) for grid, ns in times.items()]
        new = [one("k", slower[grid] * ns, grid=grid) for grid, ns in times.items()]
        alike = only(compared(base, new)).changes["time"]
        again = [one("k", slower[grid] * times[grid] * by, grid=grid) for grid in [*times][4:] for by in (0.9, 1.1)]
        more = only(compared([*base, launch("k", grid=(99, 1, 1), block=BLOCK)], [*new, *again])).changes["time"]
        assert alike.basis == more.basis == BETWEEN_SIGNATURES
        assert (more.low, more.high) == (pytest.approx(alike.low), pytest.approx(alike.high))

    def test_launches_of_equal_times_have_the_interval_of_their_own_shape(self) -> None:
        change = only(compared(several("k", 100, 100), several("k", 200, 201))).changes["time"]
        assert change.basis == WITHIN_SIGNATURES

    def test_shapes_of_either_run_alone_whose_launches_take_equal_times_have_no_interval(self) -> None:
        """The difference between shapes is no noise of launches."""
        base = several("k", 100, 100, grid=(1, 1, 1)) + several("k", 110, 110, grid=(2, 1, 1))
        new = several("k", 200, 200, grid=(3, 1, 1)) + several("k", 230, 230, grid=(4, 1, 1))
        assert only(compared(base, new)).changes["time"].low is None

    def test_signatures_launched_once_of_which_one_takes_the_time_have_no_interval_and_trip_a_gate(self) -> None:
        """It was that of all launches, from -99 % to 719 x: a kernel 64 % slower passed for a tiny launch beside it."""
        base = [one("k", 10, grid=(1, 1, 1)), one("k", 1e6)]
        change = only(compared(base, [one("k", 10, grid=(1, 1, 1)), one("k", 1.19e6)])).changes["time"]
        assert (change.low, change.basis, change.outcome) == (None, None, "more")

    def test_signatures_that_each_run_draws_anew_scatter_as_all_launches(self) -> None:
        base, new = (
            [one("k", ns, grid=(at + place, 1, 1)) for place, ns in enumerate((10, 12, 11, 13))] for at in (1, 9)
        )
        assert only(compared(base, new)).changes["time"].basis == OF_ALL

    def test_the_sum_of_a_run_of_one_kernel_has_the_interval_of_the_kernel(self) -> None:
        shapes = [(number, 1, 1) for number in range(1, 5)]
        base = [one("k", 10.0 * 2 ** grid[0], grid=grid) for grid in shapes]
        new = [one("k", 10.2 * 2 ** grid[0] * (1 + grid[0] / 1000), grid=grid) for grid in shapes]
        found = compared(base, new)
        alone, whole = only(found).changes["time"], found.total.changes["time"]
        assert alone.low is not None
        assert (whole.low, whole.high, whole.basis, whole.outcome) == (alone.low, alone.high, alone.basis, "more")

    @pytest.mark.parametrize(
        ("base", "new"),
        [
            (several("k", 100), several("k", 120, 121)),
            (several("k", 100, 100), several("k", 120, 120)),
            ([one("k", 100, invocations=5)] * 2, several("k", 120, 121)),
        ],
        ids=["a single launch", "launches that do not differ", "averages"],
    )
    def test_without_a_known_scatter_there_is_no_interval(self, base: list[Launch], new: list[Launch]) -> None:
        change = only(compared(base, new)).changes["time"]
        assert (change.low, change.high, change.noise_is_known) == (None, None, False)

    times = st.lists(st.floats(1, 1e6), min_size=2, max_size=6)

    @given(times, times)
    def test_an_interval_includes_its_ratio_and_inverts_with_the_runs(self, a: list[float], b: list[float]) -> None:
        there, back = (
            ratio_interval(side_of(np.array(x), np.zeros_like(x, int)), side_of(np.array(y), np.zeros_like(y, int)))
            for x, y in ((a, b), (b, a))
        )
        if there is None or back is None:
            assert there is back
            return
        assert there[0] <= sum(b) / sum(a) * (1 + 1e-9)
        assert there[1] >= sum(b) / sum(a) * (1 - 1e-9)
        assert (1 / back[1], 1 / back[0]) == pytest.approx(there, rel=1e-6)


class TestMatching:
    def test_one_name_in_two_spellings_is_one_kernel(self) -> None:
        kernel = only(
            compared([one("void f<(int)128, (bool)1>(const float *)")], [one("void f<128, true>(float const*)")])
        )
        assert (kernel.pair.matched_by, kernel.pair.was) == ("name", None)

    def test_a_kernel_with_new_template_arguments_is_matched_by_its_shape(self) -> None:
        kernel = only(compared([one("void f<1>(int)")], [one("void f<2, float>(int)")]))
        assert (kernel.pair.was, kernel.pair.matched_by) == ("void f<1>(int)", BY_SHORT_NAME_ALONE)

    def test_the_nvtx_range_distinguishes_two_renamed_kernels_of_one_shape(self) -> None:
        base = [one("f<1>", 10, nvtx_path=("conv1",)), one("f<2>", 20, nvtx_path=("conv2",))]
        new = [one("f<3>", 10, nvtx_path=("conv1",)), one("f<4>", 20, nvtx_path=("conv2",))]
        found = {
            (kernel.pair.was, kernel.pair.kernel, kernel.pair.matched_by) for kernel in compared(base, new).kernels
        }
        assert found == {("f<1>", "f<3>", BY_SHORT_NAME), ("f<2>", "f<4>", BY_SHORT_NAME)}

    def test_a_renamed_kernel_is_matched_by_shape_and_range(self) -> None:
        base = [one("ampere_sgemm", nvtx_path=("iteration 3", "forward", "fc"))]
        kernel = only(compared(base, [one("sm80_xmma_gemm", nvtx_path=("iteration 9", "forward", "fc"))]))
        assert (kernel.pair.was, kernel.pair.matched_by) == ("ampere_sgemm", BY_PLACE)

    def test_two_renamed_kernels_of_the_same_shape_and_range_are_not_paired(self) -> None:
        base, new = ([one(name, nvtx_path=("fc",)) for name in names] for names in ("ab", "c"))
        found = compared(base, new).kernels
        assert {(kernel.pair.kernel, kernel.is_gone, kernel.is_new) for kernel in found} == {
            ("a", True, False), ("b", True, False), ("c", False, True),
        }  # fmt: skip

    launches = st.lists(
        st.builds(
            lambda name, grid, ns: one(name, ns, grid=(grid, 1, 1)),
            st.sampled_from(["f<1>", "f<2>", "g", "h<1>(int)", "h<2>(int)"]), st.integers(1, 2), st.floats(1, 100),
        ), min_size=1, max_size=8,
    )  # fmt: skip

    @given(launches, launches)
    @pytest.mark.slow
    def test_every_launch_is_in_one_row(self, base: list[Launch], new: list[Launch]) -> None:
        comparison = compared(base, new)
        for launches, side in ((base, "base"), (new, "new")):
            rows = [getattr(kernel, side) for kernel in comparison.kernels if getattr(kernel, side)]
            assert sum(row.launches for row in rows) == len(launches)
            times = [float(each.metrics["gpu__time_duration.sum"].value) for each in launches]
            assert sum(row.time_total_ns for row in rows) == pytest.approx(sum(times))

    @given(launches)
    @pytest.mark.slow
    def test_a_run_compared_with_itself_has_no_changes(self, launches: list[Launch]) -> None:
        comparison = compared(launches, launches)
        assert {change.outcome for kernel in comparison.kernels for change in kernel.changes.values()} == {"same"}
        gates = [parse_gate(text) for text in ("time>0%", "flops>0%", "launches>0%", "kernel:.:time>0%")]
        assert {evaluate(gate, comparison.subjects).outcome for gate in gates} == {"passed"}


class TestComparison:
    def test_counts_are_exact_and_times_are_noisy(self) -> None:
        changes = only(compared(several("k", 99, 101), several("k", 100, 104, flops=202))).changes
        assert changes["time"].outcome == "no change shown"
        assert changes["flops"].outcome == "more"
        assert changes["flops"].noise_is_known

    def test_the_total_includes_gone_and_new_kernels(self) -> None:
        comparison = compared(
            [*several("a", 10, 12), one("b", 5)], [*several("a", 10, 12), one("c", 50, grid=(9, 1, 1))]
        )
        assert (comparison.total.changes["time"].base, comparison.total.changes["time"].new) == (27, 72)
        assert [kernel.pair.kernel for kernel in comparison.kernels] == ["c", "b", "a"]

    def test_by_time_the_longest_kernel_comes_first(self) -> None:
        comparison = compared([one("a", 100), one("b", 5)], [one("a", 101), one("b", 15)])
        assert [kernel.pair.kernel for kernel in ordered(comparison.kernels, "time")] == ["a", "b"]

    def test_of_kernels_that_changed_alike_the_longest_comes_first(self) -> None:
        comparison = compared([one("a", 5), one("b", 100), one("c", 50)], [one("a", 5), one("b", 100), one("c", 51)])
        assert [kernel.pair.kernel for kernel in comparison.kernels] == ["c", "b", "a"]

    def test_the_total_has_an_interval_where_every_kernel_has_a_scatter(self) -> None:
        total = compared(several("a", 10, 11) + several("b", 5, 6), several("a", 20, 21) + several("b", 5, 6)).total
        assert total.changes["time"].low is not None
        lone = compared([*several("a", 10, 11), one("b", 5)], [*several("a", 20, 21), one("b", 5)]).total
        assert lone.changes["time"].basis in (None, SINGLE_AS_OTHERS, OF_ALL)

    def test_a_short_kernel_launched_once_leaves_the_total_its_interval(self) -> None:
        """It was "noise not known" for a kernel of 1 us in a run of a second, and the gate on the run tripped at once."""
        base, new = several("a", 1000, 1010, 990), several("a", 1020, 1030, 1000)
        alone = compared(base, new).total.changes["time"]
        beside = compared([*base, one("b", 1)], [*new, one("b", 1)]).total.changes["time"]
        assert None not in (alone.low, alone.high, beside.low, beside.high)
        assert beside.basis == WITHIN_SIGNATURES
        assert (beside.low, beside.high) == pytest.approx((alone.low, alone.high), abs=1e-3)
        assert gated("time>1%", [*base, one("b", 1)], [*new, one("b", 1)]).outcome == "not shown"

    def test_the_interval_of_the_total_holds_a_kernel_launched_once_for_uncertain_by_its_whole_time(self) -> None:
        steady = several("a", 1000, 1000.1)
        total = compared([*steady, one("b", 15)], [*steady, one("b", 15)]).total.changes["time"]
        sd = math.sqrt(2) * 15 / (2000.1 + 15)
        assert total.low is not None
        assert total.low < 1 - sd

    def test_the_total_has_no_interval_where_kernels_launched_once_take_much_of_it(self) -> None:
        base, new = several("a", 1000, 1010, 990), several("a", 1020, 1030, 1000)
        assert compared([*base, one("b", 3200)], [*new, one("b", 3100)]).total.changes["time"].low is None

    def test_kernels_launched_once_scatter_in_the_total_as_the_others_where_these_have_half_of_it(self) -> None:
        """Of a ResNet a few kernels run once, and took more than 1 %: the run had no interval, and its gate tripped."""
        base, new = several("a", 1000, 1040, 960), several("a", 1050, 1090, 1010)
        alone = compared(base, new).total.changes["time"]
        beside = compared([*base, one("b", 1000)], [*new, one("b", 1050)]).total.changes["time"]
        assert beside.basis == SINGLE_AS_OTHERS
        assert None not in (alone.low, alone.high)
        assert beside.growth == pytest.approx(alone.growth)
        assert (beside.low or math.nan) < 1 < (beside.high or math.nan)
        assert gated("time>3%", [*base, one("b", 1000)], [*new, one("b", 1050)]).outcome == "not shown"

    def test_failed_launches_are_left_out_and_noted(self) -> None:
        comparison = compared([one("k")], [one("k"), one("k", 9e9, failed=True)])
        assert comparison.total.changes["launches"].growth == 0
        assert "1 failed launch of the new run left out" in comparison.notes

    def test_a_run_whose_launches_all_failed_cannot_be_gated(self) -> None:
        base, new = several("k", 1, 2), [one("k", failed=True)]
        assert only(compared(base, new)).is_gone
        assert gated("time>5%", base, new).outcome == "not evaluated"
        assert gated("kernel:k:time>5%", base, new).outcome == "not evaluated"

    def test_flops_counted_by_different_units_are_not_compared(self) -> None:
        fp32 = {name: value for name, value in sass(ffma=100).items() if "_f" in name}
        kernel = only(compared([launch("k", fp32, ns=1)], [launch("k", sass(ffma=100, hadd=5), ns=1)]))
        assert kernel.changes["flops"].growth is None
        assert kernel.changes["flops"].unlike

    def test_a_kernel_without_flop_counters_has_no_change_of_flops(self) -> None:
        assert only(compared([launch("k", ns=5)], [one("k")])).changes["flops"].outcome == "not known"

    def test_only_a_change_from_zero_is_infinite(self) -> None:
        assert Change("time", 0.0, 5.0).growth == math.inf
        assert Change("time", 0.0, 0.0).growth == 0
        assert Change("time", None, 5.0).growth is None


class TestConditions:
    def manifest(self, **values: Any) -> Manifest:
        return Manifest([], "ncu", "", **values)

    def test_different_gpus_and_clock_modes_are_refused_and_dtypes_noted(self) -> None:
        base = known_of(table(one()), self.manifest(clock_control="base", workload={"dtype": "fp32"}))
        new = known_of(
            table(one(device="NVIDIA T4", capability="7.5")),
            self.manifest(clock_control="none", workload={"dtype": "fp16"}),
        )
        found = {difference.condition: difference.refused for difference in differences(base, new)}
        assert found == {"GPU": True, "compute capability": True, "clock control": True, "dtype": False}

    @pytest.mark.parametrize(
        ("line", "clocks", "caches", "replay"),
        [
            (
                "/opt/ncu --clock-control none --cache-control=all --replay-mode app-range ./a",
                "none",
                "all",
                "app-range",
            ),
            ("ncu --set full ./a", None, None, None),
            ("", None, None, None),
        ],
    )
    def test_of_a_report_are_those_of_the_command_line_in_its_session(
        self, line: str, clocks: str | None, caches: str | None, replay: str | None
    ) -> None:
        report = with_metadata(table(one()), {"reports": [{"session": {"Profiler Command Line": line}}]})
        known = known_of(report)
        assert [known[name] for name in ("clock control", "cache control", "replay mode")] == [clocks, caches, replay]
        assert known_of(report, self.manifest(clock_control="boost"))["clock control"] == "boost"

    def test_different_numbers_of_threads_are_refused(self) -> None:
        base, new = (known_of(table(one()), self.manifest(facts={"threads": threads})) for threads in (1, 8))
        (difference,) = differences(base, new)
        assert (str(difference), difference.refused) == ("threads: 1 in the base, 8 in the new run", True)

    def test_conditions_known_for_one_run_only_are_noted(self) -> None:
        base = known_of(table(one()), self.manifest(cache_control="all"))
        assert known_of_one(base, known_of(table(one()))) == ["cache control"]

    def test_a_difference_of_reported_clocks_is_noted(self) -> None:
        clock = "sm__cycles_elapsed.avg.per_second"
        base, new = (launch("k", {clock: metric(hz, "hz")}, ns=5e5) for hz in (1.1e9, 1.4e9))
        assert any("1.1 GHz" in note and "1.4 GHz" in note for note in compared([base], [new]).notes)

    @pytest.mark.parametrize(("source", "is_noted"), [("nsys", True), ("kineto", True), ("ncu", False)])
    def test_of_recordings_a_note_says_that_gaps_are_in_no_time(self, source: str, is_noted: bool) -> None:
        found = table(one())
        place = found.schema.get_field_index("source")
        found = found.set_column(place, found.schema.field(place), pa.array([source]).dictionary_encode())
        sums = taken(SignatureSums, found)
        notes = compare(sums, sums, (known_of(found), known_of(found))).notes
        assert any("without the gaps between them" in note for note in notes) == is_noted


class TestGates:
    def test_a_gate_is_a_measure_and_a_limit_optionally_for_kernels(self) -> None:
        assert (parse_gate("time>5%").limit, parse_gate("time>5%").pattern) == (0.05, None)
        gate = parse_gate("kernel:at::native::.*relu:dram_bytes > 2.5 %")
        assert gate.pattern is not None
        assert (gate.pattern.pattern, gate.measure, gate.limit) == ("at::native::.*relu", "dram_bytes", 0.025)

    @pytest.mark.parametrize(
        "text", ["", "time", "time<5%", "time>5", "speed>5%", "time>-5%", "kernel::time>5%", "time>%"]
    )
    def test_an_invalid_gate_is_wrong_usage(self, text: str) -> None:
        with pytest.raises(WrongUsage, match="is no gate"):
            parse_gate(text)

    @pytest.mark.parametrize(
        ("text", "meant"),
        [
            ("time>5", '"time>5%"'), ("any:time>=5%", '"any:time>5%"'), ("tiem>5%", '"time>5%"'),
            ("kernel:gemm:dram_byte>1", '"kernel:gemm:dram_bytes>1%"'), ("time>5%,flops>0%", '"time>5%" --fail-on "flops>0%"'),
            ("time<5%", ""), ("", ""), ("kernel:gemm", ""), ("time>-5%", ""), ("weight>5%", ""),
        ],
    )  # fmt: skip
    def test_an_error_asks_for_the_gate_that_a_slip_was_meant_for(self, text: str, meant: str) -> None:
        with pytest.raises(WrongUsage) as refused:
            parse_gate(text)
        asks = f"is no gate. Did you mean --fail-on {meant}?" if meant else "is no gate."
        assert refused.value.what.endswith(asks)

    def test_the_error_names_all_that_gates_can_find_and_how_operators_are_gated(self) -> None:
        with pytest.raises(WrongUsage, match="layer:, category:, or point:") as refused:
            parse_gate("operator:mm:time>5%")
        assert "With --operators, kernel:REGEX: finds operators." in str(refused.value)

    def test_an_invalid_regular_expression_is_wrong_usage(self) -> None:
        with pytest.raises(WrongUsage, match="no regular expression"):
            parse_gate("kernel:f(:time>5%")

    def test_a_change_above_the_limit_trips_with_its_numbers(self) -> None:
        found = gated("time>5%", several("k", 100, 101), several("k", 120, 121))
        assert found.outcome == "tripped"
        assert "201 ns -> 241 ns: +19.9 %" in found.reason

    def test_a_change_within_its_noise_does_not_trip_and_is_reported(self) -> None:
        found = gated("time>5%", several("k", 50, 150), several("k", 70, 180))
        assert found.outcome == "not shown"
        assert "within the noise" in found.reason

    def test_a_change_below_the_limit_passes_however_significant(self) -> None:
        assert gated("time>5%", several("k", 100, 100.01), several("k", 103, 103.01)).outcome == "passed"

    def test_without_known_noise_the_change_itself_decides_with_a_remark(self) -> None:
        found = gated("time>5%", [one(ns=10_000)], [one(ns=11_000)])
        assert found.outcome == "tripped"
        assert "noise not known" in found.reason

    def test_less_than_two_launches_of_a_short_kernel_differ_by_trips_nothing(self) -> None:
        """A kernel of 2.7 us took 96 ns longer when the same ResNet ran again, three ticks of the clock."""
        found = gated("kernel:k:time>3%", [one("k", 2_720)], [one("k", 2_816)])
        assert (found.outcome, "within what two launches differ by" in found.reason) == ("not shown", True)
        assert gated("kernel:k:time>3%", [one("k", 2_720)], [one("k", 2_880)]).outcome == "tripped"
        assert gated("time>3%", [one("k", 2_720), one("m", 2_720)], [one("k", 2_816), one("m", 2_816)]).outcome == (
            "not shown"
        )

    def test_a_lower_clock_is_no_regression(self) -> None:
        found = gated("time>5%", at_clock(1.3e9, 100, 101), at_clock(1.17e9, 111, 112))
        assert found.outcome == "not evaluated"
        assert "+10.9 %" in found.reason
        assert "in SM cycles same" in found.reason
        assert "the clock decides" in found.reason

    def test_a_higher_clock_hides_no_regression(self) -> None:
        found = gated("kernel:k:time>5%", at_clock(1.3e9, 100, 101), at_clock(1.56e9, 100, 101))
        assert found.outcome == "not evaluated"
        assert "in SM cycles +20.0 %" in found.reason

    def test_at_another_clock_a_gate_is_judged_where_time_and_cycles_agree(self) -> None:
        base = at_clock(1.3e9, 100, 101)
        assert gated("time>5%", base, at_clock(1.17e9, 150, 151)).outcome == "tripped"
        assert gated("time>5%", base, at_clock(1.17e9, 80, 81)).outcome == "passed"
        assert gated("flops>0%", base, at_clock(1.17e9, 150, 151)).outcome == "passed"

    def test_a_clock_within_2_percent_is_the_same_clock(self) -> None:
        found = gated("time>5%", at_clock(1.3e9, 100, 101), at_clock(1.281e9, 106, 107))
        assert found.outcome == "tripped"
        assert "cycles" not in found.reason

    def test_a_time_at_another_clock_is_judged_as_it_is_where_that_is_asked_for(self) -> None:
        subjects = compared(at_clock(1.3e9, 100, 101), at_clock(1.17e9, 111, 112)).subjects
        assert evaluate(parse_gate("time>5%"), subjects, clocks_anyway=True).outcome == "tripped"

    def test_the_verdict_says_where_it_would_be_another_one_at_the_clock_of_the_base(self) -> None:
        slower, hidden, alike = (
            verdict(only(compared(at_clock(1.3e9, 100, 101), new)).changes["time"], is_new=False, is_gone=False)
            for new in (at_clock(1.17e9, 111, 112), at_clock(1.56e9, 100, 101), at_clock(1.17e9, 150, 151))
        )
        assert slower == "slower, clocks differ"
        assert hidden == "same, clocks differ"
        assert alike == "slower"

    def test_exact_counts_trip_at_the_smallest_growth(self) -> None:
        assert gated("flops>0%", [one(flops=2e12)], [one(flops=2e12 + 20_000)]).outcome == "tripped"
        assert gated("flops>0%", [one(flops=200)], [one(flops=180)]).outcome == "passed"
        assert gated("launches>0%", [one()], [one(), one()]).outcome == "tripped"

    def test_growth_of_exactly_the_limit_passes(self) -> None:
        assert gated("launches>10%", several("k", *[1.0] * 10), several("k", *[1.0] * 11)).outcome == "passed"

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("memory>2%", "memory"),
            ("kernel:nothing:time>5%", "no kernel that it finds"),
            ("kernel:lost:time>5%", "has left the new run"),
            ("dram_bytes>1%", "dram_bytes is not known of every launch in the new run"),
        ],
    )
    def test_a_gate_without_data_is_not_evaluated(self, text: str, reason: str) -> None:
        found = gated(text, [one("k"), one("lost")], [one("k", dram=None)])
        assert found.outcome == "not evaluated"
        assert reason in found.reason

    def test_a_gate_on_kernels_applies_to_each_of_them(self) -> None:
        base, new = [one("gemm_a", 1e6), one("gemm_b", 1e6)], [one("gemm_a", 5e5), one("gemm_b", 1.3e6)]
        found = gated("kernel:gemm:time>10%", base, new)
        assert found.outcome == "tripped"
        assert found.reason.startswith("gemm_b: ")
        assert gated("kernel:gemm_a:time>10%", base, new).outcome == "passed"

    def test_a_gate_matches_a_renamed_kernel_by_its_old_name(self) -> None:
        assert gated("kernel:<1>:time>10%", [one("f<1>", 1000)], [one("f<2>", 1500)]).outcome == "tripped"

    def test_a_new_kernel_trips_a_gate_that_matches_it(self) -> None:
        found = gated("kernel:gemm:time>10%", [one("other")], [one("other"), one("gemm", grid=(3, 1, 1))])
        assert found.outcome == "tripped"
        assert "from nothing" in found.reason

    def test_the_exit_code_is_3_if_one_trips_and_4_if_one_cannot_be_evaluated(self) -> None:
        base, new = [one(ns=10_000)], [one(ns=11_000)]
        tripped, passed, unknown = (gated(text, base, new) for text in ("time>5%", "flops>0%", "memory>2%"))
        assert exit_code([passed]) == 0
        assert exit_code([passed, unknown]) == 4
        assert exit_code([passed, unknown, tripped]) == 3


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A run, and one with a slower kernel whose name has characters reserved in XML."""
    return (
        written(tmp_path / "base.parquet", [*several("f<1>(A&)", 100, 101), one("old")]),
        written(tmp_path / "new.parquet", [*several("f<1>(A&)", 120, 121), one("fresh", grid=(2, 1, 1))]),
    )


def written(path: Path, launches: list[Launch]) -> str:
    found: pa.Table = with_metadata(table(*launches), {"schema_version": SCHEMA_VERSION})
    write_table(found, path)
    return str(path)


class TestTheCommand:
    def test_says_when_a_run_is_compared_with_itself(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        link = tmp_path / "again.csv"
        link.symlink_to(SAMPLES / "d04-long-metrics.csv")
        assert run(["compare", str(SAMPLES / "d04-long-metrics.csv"), str(link)]) == 0
        assert f"note: {link} is the base itself: no change can show" in capsys.readouterr().err
        assert run(["compare", str(link), str(SAMPLES / "d01-wide-raw.csv"), "--anyway"]) == 0
        assert "is the base itself" not in capsys.readouterr().err

    def test_says_that_launches_of_several_gpus_are_compared_as_one(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        gpu = "device__attribute_display_name"
        launches = [launch("k", {gpu: metric(name)}, ns=ns) for name, ns in (("fast", 1e5), ("slow", 3e5))]
        both, one = written(tmp_path / "both.parquet", launches), written(tmp_path / "one.parquet", launches[:1])
        assert run(["compare", both, both]) == 0
        assert "launches of several GPUs are compared as one kernel; --device N takes one" in capsys.readouterr().err
        assert run(["compare", one, one]) == 0
        assert "several GPUs" not in capsys.readouterr().err

    def test_compares_two_kernels_of_one_run_and_names_each_once(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        base = launch("void tiles<64, 64>(float *)", ns=200)
        both = written(tmp_path / "run.parquet", [base, launch("void warps<128>(float *)", ns=100)])
        assert run(["compare", both, both, "--pair", "tiles=warps"]) == 0
        shown = capsys.readouterr()
        assert "no change can show" not in shown.err
        assert {line.split("  ")[0] for line in shown.out.splitlines() if line.startswith("tiles")} == {"tiles"}

    def test_shows_what_changed_and_exits_with_0(
        self, files: tuple[str, str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["compare", *files]) == 0
        out = capsys.readouterr().out
        for words in ("slower", "new", "gone", "all kernels", "+19.9 %"):
            assert words in out

    def test_exits_with_3_if_a_gate_trips(self, files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["compare", *files, "--fail-on", "kernel:f<1>:time>5%", "--fail-on", "launches>0%"]) == 3
        out = capsys.readouterr().out
        assert "tripped" in out
        assert "passed" in out

    def test_exits_with_4_if_a_gate_has_no_data(self, files: tuple[str, str]) -> None:
        assert run(["compare", *files, "--fail-on", "memory>2%"]) == 4

    @pytest.mark.parametrize(
        "more", [["--fail-on", "time>x%"], ["--fail-on", "kernel:(:time>1%"], ["--junit", "x.xml"]]
    )
    def test_exits_with_2_on_wrong_usage(self, files: tuple[str, str], more: list[str]) -> None:
        assert run(["compare", *files, *more]) == 2

    def test_a_run_or_standard_input_can_be_named_only_once(
        self, files: tuple[str, str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        for runs, twice in (([*files, files[1]], files[1]), (["-", "-"], "-"), ([*files, "-", "-"], "-")):
            assert run(["compare", *runs]) == 2
            assert f"{twice} is given twice." in capsys.readouterr().err
        assert run(["compare", files[0], files[0]]) == 0

    def test_writes_json_with_ratios_differences_and_gates(
        self, files: tuple[str, str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        run(["compare", *files, "--format", "json", "--fail-on", "kernel:f<1>:time>5%"])
        found = json.loads(capsys.readouterr().out)
        row = next(row for row in found["rows"] if row["kernel"] == "f<1>(A&)")
        assert row["time_ratio"] == pytest.approx(241 / 201)
        assert row["time_ratio_low"] < row["time_ratio"] < row["time_ratio_high"]
        assert row["flops_ratio"] == 1
        assert not row["is_total"]
        assert found["rows"][-1]["is_total"]
        assert found["rows"][-1]["new_launches"] == 3
        assert [gate["outcome"] for gate in found["gates"]] == ["tripped"]

    def test_compares_each_further_run_with_the_base(
        self, files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        again = written(tmp_path / "again.parquet", several("f<1>(A&)", 100, 101))
        assert run(["compare", *files, again, "--format", "csv"]) == 0
        rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        ratios = {row["run"]: row["time_ratio"] for row in rows if row["kernel"] == "f<1>(A&)"}
        assert float(ratios[files[1]]) > 1.15
        assert float(ratios[again]) == 1

    def test_shows_the_gates_first_in_markdown(
        self, files: tuple[str, str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["compare", *files, "--format", "markdown", "--fail-on", "kernel:f<1>:time>5%"]) == 3
        assert below_head(capsys.readouterr().out.partition("first:")[2]).startswith("| gate | outcome | reason |")

    def test_writes_gates_as_junit_for_any_kernel_name(self, files: tuple[str, str], tmp_path: Path) -> None:
        file = tmp_path / "gates.xml"
        gates = ["kernel:f<1>.A&:time>5%", "launches>0%", 'kernel:"\x1b:time>5%']
        arguments = [word for gate in gates for word in ("--fail-on", gate)]
        assert run(["compare", *files, *arguments, "--junit", str(file)]) == 3
        (suite,) = ET.fromstring(file.read_bytes())  # noqa: S314 - written by the test itself
        assert [case.get("name") for case in suite] == [*gates[:2], 'kernel:"\\x1b:time>5%']
        assert [case[0].tag for case in suite] == ["failure", "system-out", "error"]
        assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")

    def test_top_hides_kernels_and_never_the_total(
        self, files: tuple[str, str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        run(["compare", *files, "--top", "1", "--format", "json"])
        found = json.loads(capsys.readouterr().out)
        assert [row["is_total"] for row in found["rows"]] == [False, True]
        assert "2 more kernels; --top shows more" in found["notes"]


class TestRunsOfDifferentConditions:
    def folder(self, path: Path, clocks: str) -> str:
        path.mkdir()
        written(path / "launches.parquet", [one()])
        write_manifest(Manifest([], "ncu", "", clock_control=clocks), path)
        return str(path)

    def test_are_refused_with_the_difference_and_fail_their_gates(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        runs = self.folder(tmp_path / "a", "base"), self.folder(tmp_path / "b", "none")
        file = tmp_path / "gates.xml"
        assert run(["compare", *runs, "--fail-on", "time>5%", "--junit", str(file)]) == 4
        error = capsys.readouterr().err
        assert "clock control: base in the base, none in the new run" in error
        assert "--anyway" in error
        assert b"<error message=" in file.read_bytes()

    def test_are_compared_anyway_with_a_note(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        runs = self.folder(tmp_path / "a", "base"), self.folder(tmp_path / "b", "none")
        assert run(["compare", *runs, "--anyway"]) == 0
        assert "note: the runs differ in clock control" in capsys.readouterr().err

    def test_raise_an_error_from_the_library_as_well(self) -> None:
        from ncu_tools.compare.compare_kernels import require_comparable

        base, new = (known_of(table(one(device=name))) for name in ("NVIDIA A100", "NVIDIA T4"))
        with pytest.raises(NcuBenchError, match="GPU: NVIDIA A100 in the base, NVIDIA T4 in the new run"):
            require_comparable(base, new, ("a", "b"))
