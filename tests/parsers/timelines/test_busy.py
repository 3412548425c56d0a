"""How long each GPU of a timeline was busy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.timelines.gpu_busy_time import GPUS_NAMED, Busy, BusyTimes, busy_notes

OPERATIONS = st.lists(st.tuples(st.integers(0, 1), st.integers(-1, 2), st.integers(0, 60), st.integers(0, 20)))


def times_of(operations: list[tuple[int, int, int, int]]) -> list[Busy]:
    """Busy times of operations given as (process, device, start, duration)."""
    process, device, start, duration = np.array(operations, np.int64).reshape(-1, 4).T
    times = BusyTimes()
    times.add(process, device, start.astype(float), duration.astype(float))
    return times.gpus()


def notes_of(operations: list[tuple[int, int, float, float]], copies: int = 0) -> list[str]:
    """Notes on such operations, of which the last `copies` are copies."""
    columns = np.array(operations).reshape(-1, 4).T
    is_kernel = np.arange(len(operations)) < len(operations) - copies
    return busy_notes(columns[0].astype(np.int64), columns[1].astype(np.int64), columns[2], columns[3], is_kernel)


@given(OPERATIONS)
def test_busy_time_counts_each_ns_in_which_some_operation_runs(operations: list[tuple[int, int, int, int]]) -> None:
    gpus = sorted({(process, device) for process, device, _, _ in operations})
    expected = []
    for gpu in gpus:
        mine = [
            (start, start + duration) for process, device, start, duration in operations if (process, device) == gpu
        ]
        running = {moment for start, end in mine for moment in range(start, end)}
        span = max(end for _, end in mine) - min(start for start, _ in mine)
        expected.append(Busy(*gpu, len(mine), len(running), span))
    assert times_of(operations) == expected


def test_the_note_gives_the_busy_share_of_a_gpu_that_waits() -> None:
    (note,) = notes_of([(7, 0, 0, 2e6), (7, 0, 6e6, 2e6)])
    assert note == "the GPU was busy for 50.0 % of the 8.000 ms from its first operation to its last"


def test_the_note_separates_time_with_kernels_from_time_with_copies_only() -> None:
    note, _ = notes_of([(7, 0, 0, 2e6), (7, 0, 1e6, 3e6), (7, 0, 6e6, 2e6)], copies=2)
    assert "busy for 75.0 % (25.0 % with kernels) of the 8.000 ms from" in note


def test_each_of_several_gpus_is_named() -> None:
    (note,) = notes_of([(7, 0, 0, 2e6), (7, 0, 6e6, 2e6), (7, 1, 0, 4e6), (7, 1, 4e6, 4e6)])
    assert note.endswith("each GPU was busy: device 0 for 50.0 % of the 8.000 ms, device 1 for 100.0 % of the 8.000 ms")


def test_processes_number_their_gpus_each_for_itself() -> None:
    (note,) = notes_of([(pid, 0, at, 1e6) for pid in (7, 8) for at in (0, 3e6)])
    assert "device 0 of process 7 for 50.0 %" in note
    assert "device 0 of process 8 for 50.0 %" in note


def test_beyond_eight_gpus_the_note_gives_a_range_of_shares() -> None:
    (note,) = notes_of([(7, gpu, at, 1e6) for gpu in range(GPUS_NAMED + 2) for at in (0, 3e6)])
    assert note.endswith(f"device {GPUS_NAMED - 1} for 50.0 % of the 4.000 ms, 2 more for 50.0 to 50.0 %")


def test_one_operation_or_none_gives_no_note() -> None:
    assert notes_of([]) == []
    assert notes_of([(7, 0, 5e6, 2e6)]) == []
