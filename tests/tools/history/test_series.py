"""The series of a history: one per kernel through its renames, layer, category or step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from ncu_parsers.schema import arrays

from ncu_tools.history.changes import moves_in
from ncu_tools.history.run_summary import TITLES, VARIANCE, RunFacts, RunSummary, _once_for_equal
from ncu_tools.history.series import EVERY, Renamed, history_of
from ncu_tools.kernels.grouping import NO_MODULE, NO_PHASE
from tests.support.histories import counted, history

NAN = np.nan


def test_a_kernel_has_one_series_with_its_values_per_launch_and_gaps_where_it_did_not_run() -> None:
    found = history(counted("a", 10, 20), counted("b", 5, grid=(9, 1, 1)), [*counted("a", 30), *counted("b", 6)])
    assert found.names == ["a", "b"]
    assert found.values("time") == pytest.approx(np.array([[15e3, np.nan], [np.nan, 5e3], [30e3, 6e3]]), nan_ok=True)
    assert found.values("launches")[:, 0] == pytest.approx([2, np.nan, 1], nan_ok=True)
    assert found.values("registers")[0, 0] == 32
    assert not found.has("dram_bytes")
    assert np.isnan(found.values("dram_bytes")).all()


class TestARename:
    def test_goes_on_in_the_same_series_by_the_rules_of_compare(self) -> None:
        found = history(counted("norm_v1", 10), counted("norm_float4", 9), counted("norm_float4", 8))
        assert found.names == ["norm_float4"]
        assert found.values("time")[:, 0].tolist() == [10e3, 9e3, 8e3]
        (one,) = found.renamed
        assert (one.series, one.run, one.was) == (0, 1, "norm_v1")
        assert one.matched_by.startswith("similar name (norm)")

    def test_is_none_of_a_kernel_that_still_runs(self) -> None:
        found = history(counted("norm_v1", 10), [*counted("norm_v1", 10), *counted("norm_v2", 9)])
        assert (found.names, found.renamed) == (["norm_v1", "norm_v2"], [])

    def test_is_none_of_a_name_that_was_there_before(self) -> None:
        found = history(counted("norm_v1", 1), counted("norm_v2", 2), counted("norm_v1", 3))
        assert found.values("time")[:, 0].tolist() == [1e3, 2e3, 3e3]
        assert found.renamed == [Renamed(0, 1, "norm_v1", found.renamed[0].matched_by)]

    def test_may_not_join_two_series(self) -> None:
        found = history([*counted("add_relu", 1), *counted("mul", 2)], [*counted("softmax", 3), *counted("sort", 4)])
        assert len(found.names) == 4


def test_layers_have_sums_of_an_iteration_and_steps_the_time_of_one() -> None:
    runs = [
        [
            one
            for iteration in range(3)
            for name, us in (("a", 10.0), ("b", 5.0))
            for one in counted(name, us + more, module="model.conv", phase="forward", iteration=iteration)
        ]
        for more in (0.0, 2.0)
    ]
    layers = history(*runs, by="layer")
    assert layers.names == ["model.conv forward"]
    assert layers.values("time")[:, 0].tolist() == [15e3, 19e3]
    assert layers.values("launches")[:, 0].tolist() == [2, 2]
    steps = history(*runs, by="step")
    assert (steps.names, steps.values("time")[:, 0].tolist()) == (["step"], [15e3, 19e3])
    assert history(*runs).values("launches")[:, 0].tolist() == [1, 1]


def test_categories_follow_from_names() -> None:
    found = history(counted("ampere_sgemm_128x64_tn", 10), by="category")
    assert found.names == ["GEMM"]


def test_what_runs_have_alike_is_kept_once_and_what_moved_as_it_was() -> None:
    found = history(*(counted("a", us, us) for us in (10, 10, 20)))
    launches, time = found.watched.index("launches"), found.watched.index("time")
    assert all(block[launches] is found.blocks[0][1][launches] for _, block in found.blocks)
    assert found.blocks[1][1][time] is found.blocks[0][1][time]
    assert found.values("time")[:, 0] == pytest.approx([10e3, 10e3, 20e3])


def test_titles_are_made_again_where_launches_are_others() -> None:
    made: list[pa.Table] = []

    @_once_for_equal
    def number(table: pa.Table) -> int:
        made.append(table)
        return len(made)

    assert [number(pa.table({"a": values})) for values in ([1, 2], [1, 2], [1, 3], [1, 2])] == [1, 1, 2, 3]


def run(
    *titles: tuple[str | None, ...], points: bool = False, iterations: int | None = None, **sums: list[float]
) -> RunSummary:
    """A run with rows of kernel, shape, range, module and phase, and their sums."""
    columns = zip(*(row + (None,) * (5 - len(row)) for row in titles), strict=True)
    table = pa.table({name: arrays.dictionary(column) for name, column in zip(TITLES, columns, strict=True)})
    facts = RunFacts(points=points, iterations=iterations, identity=str(titles))
    return RunSummary("run", facts, table, {name: np.array(values, float) for name, values in sums.items()})


ROWS = (("a", "1"), ("a", "2"), ("b", "1"))
SUMS: dict[str, Any] = {
    "launches": [2.0, 4, 3], "time": [20.0, 40, 9], "registers": [32.0, 40, 16], VARIANCE: [2.0, 4, NAN],
    "flops": [NAN] * 3,
}  # fmt: skip


class TestTheValuesOfARun:
    @pytest.mark.parametrize("iterations", [None, 2])
    def test_of_kernels_are_means_of_a_launch_and_launches_of_an_iteration(self, iterations: int | None) -> None:
        found = history_of([run(*ROWS, iterations=iterations, **SUMS)])
        assert (found.names, found.noun) == (["a", "b"], "kernel")
        assert found.values("time")[0].tolist() == [10, 3]
        assert found.values("registers")[0].tolist() == [40, 16]
        assert found.values("launches")[0].tolist() == [6 / (iterations or 1), 3 / (iterations or 1)]
        assert found.values(VARIANCE)[0] == pytest.approx([6 / 6**2, NAN], nan_ok=True)
        assert [found.has(name) for name in ("time", "flops", "spills")] == [True, False, False]

    @pytest.mark.parametrize("iterations", [None, 2])
    def test_of_layers_are_sums_of_an_iteration(self, iterations: int | None) -> None:
        titles = ("a", "1", "", "conv", "forward"), ("a", "1", "", "conv", None), ("b", "1", "", None, "forward")
        found = history_of([run(*titles, iterations=iterations, **SUMS)], "layer")
        assert found.names == ["conv forward", f"conv {NO_PHASE}", f"{NO_MODULE} forward"]
        assert found.values("time")[0].tolist() == [one / (iterations or 1) for one in (20, 40, 9)]
        assert found.values(VARIANCE)[0, 0] == 2 / (iterations or 1) ** 2

    def test_of_a_quantity_that_one_run_knows_are_not_known_in_others(self) -> None:
        runs = [run(("a",), launches=[1], time=[1]), run(("a",), launches=[1], time=[1], flops=[8])]
        found = history_of(runs)
        assert found.values("flops")[:, 0] == pytest.approx([NAN, 8], nan_ok=True)
        assert "spills" not in found.watched


class TestTheMixOfLaunches:
    @staticmethod
    def mixes(*runs: dict[tuple[str, str], float]) -> list[int]:
        """The runs from which on the mix of one kernel is another one."""
        made = [run(*(("a", *key) for key in one), launches=list(one.values())) for one in runs]
        return [at for _, at in sorted(moves_in(history_of(made)).mixes)]

    def test_is_their_shares_by_grid_block_and_range(self) -> None:
        one, two, there = ("1", ""), ("2", ""), ("1", "step")
        assert self.mixes({one: 1, two: 2}, {one: 2, two: 4}, {two: 4, one: 2}) == []
        assert self.mixes({one: 1, two: 2}, {one: 2, two: 2}, {one: 1, two: 1}, {one: 3}, {two: 3}) == [1, 3, 4]
        assert self.mixes({one: 1}, {there: 1}, {one: 1}) == [1, 2]
        assert self.mixes({one: 10_000, two: 1}, {one: 10_000, two: 2}) == [1]


class TestASeries:
    def test_of_all_has_the_plural_of_what_they_are(self) -> None:
        found = history_of([run(("a",), ("b",), launches=[1, 1])])
        assert [found.name_of(at) for at in (0, 1, EVERY)] == ["a", "b", "all kernels"]
        found = history_of([run(("a",), launches=[1])], "category")
        assert found.name_of(EVERY) == "all categories"

    def test_of_measured_points_has_no_other_name(self) -> None:
        points = [run((name,), points=True, launches=[1]) for name in ("norm_v1", "norm_float4")]
        found = history_of(points)
        assert (found.noun, found.names, found.renamed) == ("point", ["norm_v1", "norm_float4"], [])

    def test_has_its_kernel_in_every_spelling_and_a_question_mark_without_a_name(self) -> None:
        found = history_of([run((name,), launches=[1]) for name in ("f<(int)1>", "f<1>", None)])
        assert found.names == ["f<(int)1>", "?"]
