"""How long each GPU of a timeline was busy, and the note on operations that overlap."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.timelines.gpu_busy_time import BusyAccount

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


def test_a_note_says_that_times_of_operations_that_overlap_add_up_to_more_than_time() -> None:
    (note,) = account_of([(7, 0, 0, 2_000_000), (7, 0, 1_000_000, 3_000_000)]).notes()
    assert note == "operations overlap: their times add up to 5.0 ms, in which the GPUs were busy for 4.0 ms"


def test_operations_one_behind_the_other_give_no_note() -> None:
    assert account_of([]).notes() == []
    assert account_of([(7, 0, 0, 2_000_000), (7, 0, 6_000_000, 2_000_000), (8, 0, 0, 9)]).notes() == []
