"""The choice of kernels to count within ncu's time limit."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.counters.replay_plan import PASS_S
from ncu_launch.errors import NcuBenchError
from ncu_parsers.report_data.report import Launch

from ncu_tools.profiling.counting_budget import CountingPlan, launch_count, plan
from tests.support.launches import table


def kernels(times: dict[str, list[float]], grid: tuple[int, int, int] = (1, 1, 1)) -> list[Launch]:
    """Launches by kernel name, with their times in ns."""
    return [
        Launch(name, grid=grid, block=(32, 1, 1), measures={"duration_ns": time})
        for name, each in times.items()
        for time in each
    ]


def counted(found: CountingPlan) -> dict[str, int]:
    return {signature.kernel: signature.counted for signature in found.signatures}


@pytest.fixture
def timeline() -> pa.Table:
    return table(*kernels({"rare": [5], "long": [30, 30], "often": [7] * 5}))


def test_the_fewest_signatures_that_cover_the_share_are_counted_longest_first(timeline: pa.Table) -> None:
    found = plan(timeline, budget_s=60, passes=1, coverage=0.9, launches_each=1)
    assert counted(found) == {"long": 1, "often": 1}
    assert found.covered == pytest.approx(0.95)
    assert found.kernels == ("long", "often")


def test_a_share_that_is_met_exactly_needs_no_further_signature(timeline: pa.Table) -> None:
    assert list(counted(plan(timeline, budget_s=60, passes=1, coverage=0.6))) == ["long"]


def test_no_signature_is_counted_more_often_than_it_was_launched(timeline: pa.Table) -> None:
    assert counted(plan(timeline, budget_s=60, passes=1, coverage=1, launches_each=4)) == {
        "long": 2, "often": 4, "rare": 1,
    }  # fmt: skip


def test_every_signature_gets_one_launch_before_any_gets_a_second(timeline: pa.Table) -> None:
    found = plan(timeline, budget_s=4.5 * PASS_S, passes=1, coverage=1)
    assert counted(found) == {"long": 2, "often": 1, "rare": 1}


def test_signatures_beyond_the_budget_are_left_out_and_not_covered(timeline: pa.Table) -> None:
    found = plan(timeline, budget_s=2.5 * PASS_S, passes=2, coverage=1)
    assert counted(found) == {"long": 1}
    assert [signature.kernel for signature in found.left_out] == ["often", "rare"]
    assert found.covered == pytest.approx(0.6)
    assert found.cost_s == pytest.approx(2 * (30e-9 + PASS_S))


def test_launches_of_another_shape_are_counted_separately() -> None:
    both = table(*kernels({"gemm": [10]}), *kernels({"gemm": [20]}, grid=(2, 1, 1)))
    found = plan(both, budget_s=60, passes=1, coverage=1)
    assert [(signature.shape, signature.time_ns) for signature in found.signatures] == [
        ((2, 1, 1, 32, 1, 1), 20), ((1, 1, 1, 32, 1, 1), 10),
    ]  # fmt: skip


def flooded(before_rare: int) -> pa.Table:
    """A function that is launched often with a small grid, and then with a large one that takes as much time."""
    small, large = [10.0] * before_rare, [10.0 * before_rare] * 3
    return table(*kernels({"gemm": small}), *kernels({"gemm": large}, grid=(2, 1, 1)))


def test_launches_counted_on_the_way_cost_too() -> None:
    found = plan(flooded(20), budget_s=60, passes=1, coverage=1)
    assert launch_count(flooded(20), found) == 23
    assert found.cost_s == pytest.approx(23 * PASS_S, rel=1e-3)


def test_fewer_launches_of_each_are_counted_if_others_use_up_the_budget() -> None:
    found = plan(flooded(20), budget_s=21.5 * PASS_S, passes=1, coverage=1)
    assert [one.counted for one in found.signatures] == [1, 1]
    assert launch_count(flooded(20), found) == 21
    assert found.cost_s <= 21.5 * PASS_S


def test_signatures_that_come_too_late_are_left_out_and_not_covered() -> None:
    found = plan(flooded(20), budget_s=10 * PASS_S, passes=1, coverage=1)
    assert [one.shape for one in found.signatures] == [(1, 1, 1, 32, 1, 1)]
    assert [one.shape for one in found.left_out] == [(2, 1, 1, 32, 1, 1)]
    assert found.covered == pytest.approx(0.25)
    assert launch_count(flooded(20), found) == 1


def test_leaving_out_a_function_makes_room_for_another() -> None:
    early, late = [10.0] * 20, [1000.0]
    other = kernels({"norm": [900.0]})
    timeline = table(*kernels({"gemm": early}), *other, *kernels({"gemm": late}, grid=(2, 1, 1)))
    found = plan(timeline, budget_s=15 * PASS_S, passes=1, coverage=0.9)
    assert found.kernels == ("norm",)
    assert found.cost_s <= 15 * PASS_S


def test_copies_are_not_kernels() -> None:
    copy = Launch("Memcpy", measures={"duration_ns": 99.0}, attributes={"operation": "memcpy"})
    assert counted(plan(table(copy, *kernels({"a": [1]})), budget_s=60, passes=1)) == {"a": 1}


def graph(time: float) -> Launch:
    return Launch("[CUDA graph 1]", measures={"duration_ns": time}, attributes={"operation": "graph"})


def test_graphs_recorded_as_a_whole_cannot_be_counted_and_are_not_covered() -> None:
    found = plan(table(graph(30.0), *kernels({"a": [10]})), budget_s=60, passes=1)
    assert (found.kernels, found.covered) == (("a",), 0.25)
    assert launch_count(table(graph(30.0), *kernels({"a": [10]})), found) == 1
    with pytest.raises(NcuBenchError, match="--cuda-graph-trace=node"):
        plan(table(graph(30.0)), budget_s=60, passes=1)


def test_a_timeline_without_kernels_is_refused() -> None:
    with pytest.raises(NcuBenchError, match="no kernel with a time"):
        plan(table(Launch("a")), budget_s=60, passes=1)


@given(
    times=st.dictionaries(
        st.sampled_from("abcdef"), st.lists(st.integers(1, 10**9), min_size=1, max_size=5), min_size=1
    ),
    budget=st.floats(0, 20),
    coverage=st.floats(0.01, 1),
)
def test_a_plan_stays_within_its_budget_and_reaches_its_coverage_if_possible(
    times: dict[str, list[float]], budget: float, coverage: float
) -> None:
    found = plan(table(*kernels(times)), budget_s=budget, passes=3, coverage=coverage)
    assert found.cost_s <= budget + 1e-9
    assert found.covered >= coverage - 1e-9 or found.left_out
    assert all(1 <= one.counted <= min(3, one.launches) for one in found.signatures)
