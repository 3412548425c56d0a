"""How long each GPU of a timeline was busy, and the note on operations that overlap."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.timelines.activity.activity import GpuOperations, columns_of
from ncu_parsers.timelines.activity.operation_times import (
    BusyAccount,
    exclusive_times,
    impossible_ends,
    impossible_notes,
)

OPERATIONS = st.lists(st.tuples(st.integers(0, 1), st.integers(-1, 2), st.integers(0, 60), st.integers(0, 20)))


def account_of(operations: list[tuple[int, int, int, int]]) -> BusyAccount:
    """The account of operations given as (process, device, start, duration)."""
    process, device, start, duration = np.array(operations, np.int64).reshape(-1, 4).T
    account = BusyAccount()
    account.add(process, device, start.astype(float), duration.astype(float))
    return account


@given(OPERATIONS)
def test_busy_time_counts_each_ns_in_which_some_operation_runs(operations: list[tuple[int, int, int, int]]) -> None:
    expected = {}
    for gpu in {(process, device) for process, device, _, _ in operations}:
        mine = [
            (start, start + duration) for process, device, start, duration in operations if (process, device) == gpu
        ]
        expected[gpu] = len({moment for start, end in mine for moment in range(start, end)})
    assert account_of(operations).busy() == expected


@given(OPERATIONS)
def test_exclusive_time_is_that_in_which_no_other_operation_of_the_gpu_runs(
    operations: list[tuple[int, int, int, int]],
) -> None:
    process, device, start, duration = np.array(operations, np.int64).reshape(-1, 4).T
    columns = {"process": process, "device": device, "start": start, "end": start + duration}
    found = exclusive_times(columns_of(GpuOperations, columns)).tolist()
    for (of_process, of_device, begun, lasts), alone in zip(operations, found, strict=True):
        mine = [one for one in operations if one[:2] == (of_process, of_device)]
        running = Counter(moment for _, _, at, long in mine for moment in range(at, at + long))
        assert alone == sum(running[moment] == 1 for moment in range(begun, begun + lasts))


def test_a_note_says_that_times_of_operations_that_overlap_add_up_to_more_than_time() -> None:
    (note,) = account_of([(7, 0, 0, 2_000_000), (7, 0, 1_000_000, 3_000_000)]).notes()
    assert note == "operations overlap: their times add up to 5.0 ms, in which the GPUs were busy for 4.0 ms"


def test_operations_one_behind_the_other_give_no_note() -> None:
    assert account_of([]).notes() == []
    assert account_of([(7, 0, 0, 2_000_000), (7, 0, 6_000_000, 2_000_000), (8, 0, 0, 9)]).notes() == []


def ends_of(*operations: tuple[int, int, int], nodes: tuple[int, ...] = ()) -> list[tuple[int, int]]:
    """Row and new end in ms of impossible operations given as (stream, start, end) in ms."""
    stream, start, end = np.array(operations, np.int64).reshape(-1, 3).T
    one_by_one = ~np.isin(np.arange(len(stream)), nodes)
    found = impossible_ends((stream,), start * 1_000_000, end * 1_000_000, one_by_one)
    return [(one.row, one.cut_to // 1_000_000) for one in found]


def test_an_operation_that_ends_after_one_behind_it_on_its_stream_is_impossible() -> None:
    assert ends_of((7, 0, 10), (7, 20, 500), (7, 30, 40), (7, 50, 60)) == [(1, 30)]
    assert ends_of((7, 50, 60), (7, 20, 500), (7, 0, 10), (7, 30, 40)) == [(1, 30)]  # in any order


def test_operations_of_other_streams_and_of_graphs_may_overlap() -> None:
    assert ends_of((7, 20, 500), (8, 30, 40)) == []
    assert ends_of((7, 20, 500), (7, 30, 40), nodes=(1,)) == []
    assert ends_of((7, 0, 31), (7, 30, 40)) == []  # a dependent launch ends after the one before it
    assert ends_of() == []


def test_the_notes_name_three_records() -> None:
    stream, start = np.full(5, 7), np.arange(5) * 1_000_000
    end = start + np.array([9, 8, 7, 6, 1]) * 1_000_000_000
    notes = impossible_notes([(f"k{one.row}", one) for one in impossible_ends((stream,), start, end, stream > 0)])
    assert notes[0].startswith("the record of k0 is impossible: it lasts 9,000.0 ms, and 8,999.0 ms of that after")
    assert notes[-1] == "1 more record is impossible alike"
