"""Launches summed to kernels: totals, rates, spread and bounds, the same in one piece or merged from several."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from ncu_tools.ceilings.ceilings import Ceilings, ceilings_of
from ncu_tools.kernels.kernel_row import Hotspot, kernels_table, ranked, run_total
from ncu_tools.kernels.kernel_sums import KernelSums, Launches, Times
from ncu_tools.numbers.row_sums import RowNumbers, Sum
from tests.support.launches import launch, metric, sass, table


def summed(found: pa.Table) -> KernelSums[str]:
    """The sums of launches by the names of their kernels."""
    names = found.column("kernel_name").to_pylist()
    titles = list(dict.fromkeys(names))
    sums: KernelSums[str] = KernelSums()
    sums.add_launches(Launches(found, ceilings_of(found)), np.array([titles.index(name) for name in names]), titles)
    return sums


TIMES = (100.0, 300.0, 500.0)


def three() -> pa.Table:
    return table(*(launch("a", sass(ffma=10), ns=ns, dram=40.0) for ns in TIMES), launch("b", ns=50.0))


class TestKernelSums:
    def test_are_totals_rates_and_spread_of_each_kernel(self) -> None:
        sums = summed(three())
        a = sums.number("a")
        assert sums.flops.whole(sums.launches)[a] == 60.0
        assert sums.dram.rate.values[a] == pytest.approx(120.0 / 900e-9)
        assert sums.intensity.values[a] == 0.5
        assert sums.times.mean()[a] == pytest.approx(300e-9)
        assert (sums.times.shortest.values[a], sums.times.longest.values[a]) == (100e-9, 500e-9)
        assert sums.times.deviation()[a] == pytest.approx(np.std(TIMES, ddof=1) * 1e-9)

    def test_of_one_launch_have_no_spread_and_without_counters_no_total(self) -> None:
        sums = summed(three())
        b = sums.number("b")
        assert math.isnan(sums.times.deviation()[b])
        assert math.isnan(sums.flops.whole(sums.launches)[b])
        assert math.isnan(sums.intensity.values[b])

    def test_launches_without_a_time_have_no_spread(self) -> None:
        assert np.isnan(summed(table(launch("a"), launch("a"))).times.deviation()).all()

    def test_a_total_is_not_known_where_one_launch_lacks_it(self) -> None:
        sums = summed(table(launch("a", dram=10.0), launch("a")))
        assert np.isnan(sums.dram.whole(sums.launches)).all()

    def test_failed_launches_have_a_row_and_no_weight(self) -> None:
        sums = summed(table(launch("a", ns=100.0, dram=10.0), launch("a", ns=9e9, dram=1e9, failed=True)))
        assert (sums.seen.values.tolist(), sums.launches.values.tolist()) == ([2.0], [1.0])
        assert sums.dram.whole(sums.launches).tolist() == [10.0]
        assert sums.times.longest.values.tolist() == [100e-9]

    def test_launches_without_a_time_and_failed_ones_are_not_held_against_a_roof(self) -> None:
        made = [launch("a", sass(ffma=10), ns=ns, dram=40.0) for ns in (100.0, 0.0)]
        found = Launches(table(*made, launch("a", sass(ffma=10), ns=100.0, failed=True)))
        assert found.running.tolist() == [True, False, False]

    def test_the_excess_that_is_kept_is_of_the_first_launch_above_a_ceiling_not_of_one_at_it(self) -> None:
        sums: KernelSums[str] = KernelSums()
        for moved in (100.0, 900.0, 700.0):
            made = table(launch("k", measures={"duration_ns": 100.0, "dram_bytes": moved}))
            sums.add_launches(Launches(made, Ceilings({"dram": np.array([1e9])})), np.array([0]), ["k"])
        (kept,) = sums.needs["dram"].excesses.values()
        assert kept.fraction == pytest.approx(9)

    def test_a_share_of_busy_time_is_the_mean_of_the_launches_that_have_one(self) -> None:
        busy = {"sm__throughput.avg.pct_of_peak_sustained_elapsed": metric(40.0)}
        sums = summed(table(launch("a", busy, ns=100.0), launch("a", ns=300.0)))
        assert sums.busy["sm"].mean().tolist() == [0.4]

    def test_the_main_unit_is_that_of_launches_whose_flops_are_known(self) -> None:
        of_fp32, of_fp64 = {"flops_fp32": 500.0}, {"flops": 10.0, "flops_fp64": 10.0}
        made = table(*(launch("a", measures={"duration_ns": 9.0, **one}) for one in (of_fp32, of_fp64)))
        assert summed(made).main_units() == ["fp64"]

    def test_the_main_unit_did_most_of_the_flops(self) -> None:
        sums = summed(table(launch("a", sass(ffma=10, dfma=30)), launch("b")))
        assert sums.main_units() == ["fp64", None]
        assert sums.used_units() == ["fp64", "fp32"]

    def test_merged_from_parts_are_those_of_the_whole(self) -> None:
        whole, merged = summed(three()), summed(three().slice(0, 2))
        merged.merge(summed(three().slice(2)))
        assert merged.titles == whole.titles
        np.testing.assert_array_equal(merged.times.longest.values, whole.times.longest.values)
        for values in (Times.mean, Times.deviation):
            np.testing.assert_allclose(values(merged.times), values(whole.times), rtol=1e-12)
        np.testing.assert_array_equal(merged.flops.whole(merged.launches), whole.flops.whole(whole.launches))

    def test_of_kernels_that_get_one_title_become_one(self) -> None:
        sums = summed(table(launch("a", dram=10.0), launch("b", dram=30.0))).titled(["ab", "ab"])
        assert (sums.titles, sums.dram.whole(sums.launches).tolist()) == (["ab"], [40.0])

    def test_of_kernels_that_become_one_have_the_spread_of_all_launches_that_have_a_time(self) -> None:
        launches = [launch("a"), launch("b", ns=100.0), launch("b", ns=300.0), launch("c", ns=500.0)]
        sums = summed(table(*launches)).titled(["one"] * 3)
        assert sums.times.deviation().tolist() == [pytest.approx(200e-9)]
        sums.merge(summed(table(launch("one", ns=700.0))))
        assert sums.times.deviation().tolist() == [pytest.approx(np.std([100, 300, 500, 700], ddof=1) * 1e-9)]


def test_a_sum_takes_launches_of_rows_that_are_seen_later() -> None:
    rows: RowNumbers[str] = RowNumbers()
    amount = Sum(rows)
    rows.use(["a"], np.array([0, 0]))
    amount.add(np.array([1.0, 2.0]))
    rows.use(["b", "c", "a"], np.array([1, 2]))
    amount.add(np.array([5.0, 7.0]), np.array([True, False]))
    assert amount.values.tolist() == [3.0, 0.0, 5.0]


def kernel(name: str, **known: object) -> Hotspot:
    empty = dict.fromkeys(
        ("time_total_ns", "time_mean_ns", "time_min_ns", "time_max_ns", "time_std_ns", "time_share", "time_cumulative",
         "flops", "flops_per_s", "dram_bytes", "dram_bytes_per_s", "arithmetic_intensity", "bound", "bound_fraction")
    )  # fmt: skip
    return replace(Hotspot(name, 1, **empty), **known)  # type: ignore[arg-type]


class TestRowsOfKernels:
    def test_are_in_order_of_time_with_shares_that_add_up(self) -> None:
        found = ranked([kernel("a", time_total_ns=25.0), kernel("b", time_total_ns=75.0, headroom_ns=10.0)], [])
        assert [(row.kernel, row.time_share, row.time_cumulative, row.headroom_share) for row in found.rows] == [
            ("b", 0.75, 0.75, 0.1), ("a", 0.25, 1.0, None),
        ]  # fmt: skip

    def test_have_no_shares_where_one_time_is_not_known(self) -> None:
        found = ranked([kernel("a", time_total_ns=25.0), kernel("b")], [])
        assert [(row.kernel, row.time_share) for row in found.rows] == [("a", None), ("b", None)]

    def test_that_are_flagged_are_noted_up_to_a_few(self) -> None:
        found = ranked([kernel(name, flag="too fast") for name in "abcde"], ["a note"])
        assert found.notes[:2] == ["a note", "a: too fast"]
        assert found.notes[-1] == "2 more kernels are above a ceiling; --format json says why"

    def test_that_are_flagged_are_called_as_in_the_table(self) -> None:
        name = "void softmax_warp_forward<float, float, float, 10, false, false>(float *, const float *, int, int, int)"
        assert ranked([kernel(name, flag="too fast")], []).notes == ["softmax_warp_forward fp32: too fast"]

    def test_sum_up_to_what_every_kernel_has(self) -> None:
        rows = [kernel("a", time_total_ns=1e9, flops=6.0, dram_bytes=3.0), kernel("b", time_total_ns=1e9, flops=4.0)]
        total = run_total(rows)
        assert (total.launches, total.flops, total.flops_per_s, total.dram_bytes) == (2, 10.0, 5.0, None)
        assert total.arithmetic_intensity is None

    def test_share_flops_among_units_but_not_integer_operations(self) -> None:
        row = kernel("a", flops=10.0, work={"fp32": 4.0, "tensor_int8": 100.0})
        assert (row.share_of_flops("fp32"), row.share_of_flops("tensor_int8")) == (0.4, None)

    def test_become_a_table_with_nulls_for_what_is_not_known(self) -> None:
        rows = kernels_table([kernel("a", flops=1.0, work={"fp32": 1.0}), kernel("b", work={"fp32": None})]).to_pylist()
        assert [(row["kernel"], row["flops"], row["flops_fp32"], row["bound"]) for row in rows] == [
            ("a", 1.0, 1.0, None), ("b", None, None, None),
        ]  # fmt: skip
