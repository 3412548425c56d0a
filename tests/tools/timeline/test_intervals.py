"""Sets of moments are exact: they agree with sets of whole nanoseconds, whatever the intervals."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ncu_tools.timeline import intervals
from ncu_tools.timeline.intervals import NOTHING, IntervalSet

Pairs = list[tuple[int, int]]

pairs = st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 9)).map(lambda one: (one[0], one[0] + one[1])))


def interval_set(some: Pairs) -> IntervalSet:
    start, end = (np.array([pair[side] for pair in some], np.int64) for side in (0, 1))
    return IntervalSet.union_of(start, end)


def moments(some: IntervalSet) -> set[int]:
    return {
        moment
        for start, end in zip(some.start.tolist(), some.end.tolist(), strict=True)
        for moment in range(start, end)
    }


def moments_of(some: Pairs) -> set[int]:
    return {moment for start, end in some for moment in range(start, end)}


@given(pairs)
def test_a_union_holds_every_moment_once_and_its_intervals_are_apart(some: Pairs) -> None:
    found = interval_set(some)
    assert moments(found) == moments_of(some)
    assert found.total == len(moments_of(some))
    assert (found.start < found.end).all()
    assert (found.start[1:] > found.end[:-1]).all()


@given(pairs, pairs)
def test_intervals_have_the_intersection_union_and_difference_of_sets(one: Pairs, other: Pairs) -> None:
    here, there = interval_set(one), interval_set(other)
    assert moments(here & there) == moments(here) & moments(there)
    assert moments(here | there) == moments(here) | moments(there)
    assert moments(here - there) == moments(here) - moments(there)
    assert (here & there).total + (here - there).total == here.total


@given(pairs, st.integers(-25, 35), st.integers(0, 20))
def test_the_part_within_an_interval_is_counted_to_the_nanosecond(some: Pairs, start: int, length: int) -> None:
    found = interval_set(some)
    end = start + length
    counted = found.within(np.array([start], np.int64), np.array([end], np.int64))
    assert counted.tolist() == [len([moment for moment in moments(found) if start <= moment < end])]


@given(pairs, st.integers(-25, 35))
def test_a_set_knows_which_moments_it_holds(some: Pairs, moment: int) -> None:
    found = interval_set(some)
    assert found.holds(np.array([moment], np.int64)).tolist() == [moment in moments(found)]


def test_large_times_lose_no_nanosecond() -> None:
    begin = 1_682_725_898_082_228_001
    found = IntervalSet.between(begin, begin + 3) | IntervalSet.between(begin + 5, begin + 6)
    assert found.total == 4


def test_nothing_is_empty() -> None:
    assert NOTHING.total == 0
    assert len(NOTHING - IntervalSet.between(0, 5)) == 0
    assert NOTHING.before(np.array([3], np.int64)).tolist() == [0]


@given(pairs, pairs, st.integers(1, 4))
def test_sets_that_are_made_in_blocks_hold_the_same_moments(some: Pairs, others: Pairs, at_once: int) -> None:
    start, end = (np.array([pair[side] for pair in some], np.int64) for side in (0, 1))
    ordered = np.sort(start)
    rows = np.arange(0, len(some), 2)
    with patch.object(intervals, "AT_ONCE", at_once):
        pairs_in_order = list(zip(ordered.tolist(), end.tolist(), strict=True))
        assert moments(IntervalSet.union_at(ordered, end, rows)) == moments_of(pairs_in_order[::2])
        for found, wanted in (
            (interval_set(some) & interval_set(others), moments_of(some) & moments_of(others)),
            (interval_set(some) - interval_set(others), moments_of(some) - moments_of(others)),
            (interval_set(some) | interval_set(others), moments_of(some) | moments_of(others)),
            (IntervalSet.only_in_one(list(map(interval_set, (some, others)))), moments_of(some) ^ moments_of(others)),
        ):
            assert moments(found) == wanted
            assert (found.start[1:] > found.end[:-1]).all()


@given(pairs, pairs, st.integers(1, 3))
def test_moments_are_asked_for_in_blocks(some: Pairs, spans: Pairs, at_once: int) -> None:
    found, of_set = interval_set(some), moments_of(some)
    start, end = (np.array([pair[side] for pair in spans], np.int64) for side in (0, 1))
    with patch.object(intervals, "AT_ONCE", at_once):
        assert found.holds(start).tolist() == [moment in of_set for moment, _ in spans]
        assert found.within(start, end).tolist() == [len(of_set & set(range(*span))) for span in spans]
        touched = [one[0] in of_set or not of_set.isdisjoint(range(*one)) for one in spans]
        assert found.touches(start, end).tolist() == touched


@given(pairs, st.integers(-25, 35), st.integers(-1, 20))
def test_a_span_is_split_into_what_belongs_to_a_set_and_the_rest(some: Pairs, start: int, length: int) -> None:
    span, (inside, outside) = set(range(start, start + length)), interval_set(some).split(start, start + length)
    assert moments(inside) == moments_of(some) & span
    assert moments(outside) == span - moments_of(some)
    for one in (inside, outside):
        assert (one.start < one.end).all()
        assert (one.start[1:] > one.end[:-1]).all()


def test_sets_behind_each_other_are_chained_and_joined_where_they_touch() -> None:
    found = IntervalSet.chained(
        [IntervalSet.between(0, 5), NOTHING, IntervalSet.between(5, 7), interval_set([(9, 10)])]
    )
    assert (found.start.tolist(), found.end.tolist()) == ([0, 9], [7, 10])
    assert not len(IntervalSet.chained([]))


@given(st.lists(pairs, max_size=4))
def test_moments_in_one_set_only_are_in_no_other(some: list[Pairs]) -> None:
    of_each = [moments_of(one) for one in some]
    found = moments(IntervalSet.only_in_one([interval_set(one) for one in some]))
    assert found == {at for one in of_each for at in one if sum(at in other for other in of_each) == 1}
