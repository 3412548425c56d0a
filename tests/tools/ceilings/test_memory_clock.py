"""The memory clock of a run is that of its longest launch, for each report and device."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_tools.ceilings.memory_clock import (
    NEEDED,
    RUN_CLOCK,
    MemoryClocks,
    longest_launches,
    needed,
    run_clock,
    with_clock_of,
)
from tests.support.launches import taken

Run = tuple[str, str | None, str | None, float | None, float | None]


def runs(*launches: Run) -> pa.Table:
    """A table of launches: report, device, compute capability, ns, Hz."""
    columns = list(zip(*launches, strict=True)) if launches else [()] * 5
    types = [pa.string()] * 3 + [pa.float64()] * 2
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    return pa.table([array.dictionary_encode() if array.type == pa.string() else array for array in arrays], NEEDED)


def hz(table: pa.Table) -> list[float | None]:
    return [None if math.isnan(clock) else clock for clock in run_clock(table)]


@pytest.mark.parametrize(("ns", "shown"), [(0.1e6, True), (0.15e6, True), (0.0999e6, False), (None, False)])
def test_a_launch_of_a_tenth_of_a_millisecond_or_more_shows_its_clock(ns: float | None, shown: bool) -> None:
    assert hz(runs(("a", "X", "8.0", ns, 7e9))) == [7e9 if shown else None]


@pytest.mark.parametrize("clock", [0.0, None, -1.0])
def test_a_launch_without_a_positive_clock_shows_none(clock: float | None) -> None:
    assert hz(runs(("a", "X", "8.0", 5e6, clock), ("a", "X", "8.0", 1e6, 7e9))) == [7e9, 7e9]
    assert hz(runs(("a", "X", "8.0", 5e6, clock))) == [None]


@pytest.mark.parametrize(
    "other", [("b", "X", "8.0"), ("a", "Y", "8.0"), ("a", "X", "9.0"), ("a", None, "8.0"), ("a", "X", None)]
)
def test_each_report_device_and_capability_has_its_own(other: tuple[str, str | None, str | None]) -> None:
    table = runs(("a", "X", "8.0", 1e6, 7e9), (*other, 2e6, 5e9), ("a", "X", "8.0", 3e6, 6e9), (*other, 1e6, 4e9))
    assert hz(table) == [6e9, 5e9, 6e9, 5e9]
    assert sorted(longest_launches(table).tolist()) == [1, 2]


def test_the_highest_clock_of_equally_long_launches_is_taken() -> None:
    table = runs(("a", "X", "8.0", 1e6, 6e9), ("a", "X", "8.0", 1e6, 7e9), ("a", "X", "8.0", 1e6, 5e9))
    assert hz(table) == [7e9] * 3
    assert longest_launches(table).tolist() == [1]
    assert hz(table.take([2, 1, 0])) == [7e9] * 3


def test_a_table_without_launches_has_no_clocks() -> None:
    assert hz(runs()) == []
    assert longest_launches(runs()).tolist() == []
    known = taken(MemoryClocks, runs(("a", "X", "8.0", 1e6, 7e9)))
    assert known.of(runs()).tolist() == []


LAUNCHES = st.tuples(
    st.sampled_from("ab"), st.sampled_from(["X", "Y", None]), st.sampled_from(["8.0", None]),
    st.sampled_from([5e4, 1e5, 2e5, 2e6, None]), st.sampled_from([0.0, 5e9, 6e9, 7e9, None]),
)  # fmt: skip


@given(st.lists(LAUNCHES, min_size=1, max_size=12))
def test_any_launches_have_the_clock_of_the_longest_of_their_report_and_device(launches: list[Run]) -> None:
    expected = []
    for launch in launches:
        beside = [other for other in launches if other[:3] == launch[:3]]
        shown = [(ns, clock) for *_, ns, clock in beside if ns is not None and ns >= 1e5 and clock]
        expected.append(max(shown)[1] if shown else None)
    assert hz(runs(*launches)) == expected


class TestBatchesOfAFile:
    FIRST, SECOND = runs(("a", "X", "8.0", 1e6, 7e9)), runs(("a", "X", "8.0", 2e6, 5e9), ("b", "X", "8.0", 1.0, 6e9))

    def test_have_the_clock_of_the_whole_file_in_a_column(self) -> None:
        clocks = taken(MemoryClocks, self.FIRST, self.SECOND)
        assert hz(with_clock_of(clocks, self.FIRST)) == [5e9]
        assert hz(with_clock_of(clocks, self.SECOND)) == [5e9, None]
        assert RUN_CLOCK in with_clock_of(clocks, self.FIRST).column_names

    def test_keep_their_columns_if_no_launch_shows_a_clock(self) -> None:
        short = runs(("a", "X", "8.0", 1.0, 7e9))
        assert with_clock_of(taken(MemoryClocks, short), short).column_names == list(NEEDED)
        assert np.isnan(MemoryClocks().of(short)).all()

    def test_need_the_columns_that_a_file_has_if_one_launch_has_a_clock(self) -> None:
        names = ["dram_clock_hz", "flops", "report", "duration_ns"]
        assert needed(names, ["dram_clock_hz"]) == ["report", "duration_ns", "dram_clock_hz"]
        assert needed(names, ["flops"]) == []
