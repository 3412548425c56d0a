"""Two runs of one program are joined to one table of launches, or reported as not matching."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.parse.two_run_join import join_runs
from ncu_parsers.report_data.report import Launch, Metric

BYTES, ADDS = "dram__bytes.sum", "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"


def launch(name: str, number: float, metric: str, process: int, **more: object) -> Launch:
    made = Launch(name, process_id=process, grid=(1, 1, 1), block=(32, 1, 1), **more)  # type: ignore[arg-type]
    made.metrics[metric] = Metric(number, 1.0, "")
    return made


def runs(names: list[str], again: list[str]) -> tuple[list[Launch], list[Launch]]:
    """Two runs in which the counter of each launch is its index among launches of that name."""
    first: list[Launch] = []
    second: list[Launch] = []
    for metric, process, order, into in ((BYTES, 1, names, first), (ADDS, 2, again, second)):
        for number, name in enumerate(order):
            into.append(launch(name, order[:number].count(name), metric, process))
    return first, second


@given(st.lists(st.sampled_from("abc"), max_size=30), st.randoms())
def test_launches_of_a_kernel_are_matched_in_order_whatever_the_order_of_kernels(
    names: list[str], chance: random.Random
) -> None:
    again = names.copy()
    chance.shuffle(again)
    first, second = runs(names, again)
    joined = join_runs(first, second)
    assert joined.mismatch == ""
    assert joined.matched == len(names)
    for one in first:
        assert one.metrics[BYTES].value == one.metrics[ADDS].value
        assert one.process_id == 1


def test_a_kernel_launched_more_often_in_the_second_run_is_named_and_not_joined() -> None:
    first, second = runs(["a", "b", "b"], ["a", "b", "b", "b"])
    joined = join_runs(first, second)
    assert joined.matched == 1
    assert "b 2 and 3 launches" in joined.mismatch
    assert "not deterministic" in joined.mismatch
    assert [ADDS in one.metrics for one in first] == [True, False, False]


def test_a_kernel_only_in_the_second_run_is_a_mismatch() -> None:
    first, second = runs(["a"], ["a", "z"])
    assert "z 0 and 1 launches" in join_runs(first, second).mismatch


def test_an_aborted_second_run_joins_the_launches_that_it_has() -> None:
    first, second = runs(["a", "b", "b"], ["a", "b"])
    joined = join_runs(first, second, ended_early=True)
    assert joined == type(joined)(2, "")
    assert [ADDS in one.metrics for one in first] == [True, True, False]


def test_shape_and_range_distinguish_launches() -> None:
    first = [
        launch("a", 1, BYTES, 1, nvtx_path=("forward",)),
        launch("a", 2, BYTES, 1, nvtx_path=("backward",)),
    ]
    second = [
        launch("a", 2, ADDS, 2, nvtx_path=("backward",)),
        launch("a", 1, ADDS, 2, nvtx_path=("forward",)),
    ]
    assert join_runs(first, second).mismatch == ""
    assert [one.metrics[ADDS].value for one in first] == [1, 2]
    second[0].grid = (2, 1, 1)
    assert join_runs([launch("a", 2, BYTES, 1, nvtx_path=("backward",))], second[:1]).mismatch


def test_a_launch_that_failed_in_either_run_failed() -> None:
    first, second = runs(["a"], ["a"])
    second[0].failed = True
    join_runs(first, second)
    assert first[0].failed
