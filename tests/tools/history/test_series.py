"""The series of a history: one per kernel through its renames, layer, category or step."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ncu_tools.history.run_summary import _once_for_equal
from ncu_tools.history.series import Renamed
from tests.support.histories import counted, history


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
