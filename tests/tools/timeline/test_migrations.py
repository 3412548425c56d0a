"""Pages of managed memory that move: at faults they are no work of their own, and prefetched they are a stream's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import Activity

from ncu_tools.timeline.levers.step_advice import advice_on_recording
from ncu_tools.timeline.migrations import without_migrations
from tests.support.activities import Call, Operation, copy, recording

US, MS = 1_000, 1_000_000
FAULT = {"source_memory": activity.MANAGED, "destination_memory": activity.MANAGED, "stream": 0}
PREFETCH = {"source_memory": activity.MANAGED, "destination_memory": activity.DEVICE_MEMORY, "stream": 0}


def page(start: int, memory: dict[str, Any], lasts: int = 100 * US) -> Operation:
    """Pages of 2 MB that move to the GPU, without a call."""
    return copy(start, start + lasts, 2_000_000, **memory)


def faulting() -> Activity:
    """A kernel of 10 ms during which ten pages move in 1 ms, and one that moves on its own."""
    return recording(
        [Operation(10 * US, 10 * MS + 10 * US, "add", 1), *(page(500 * US + at * MS, FAULT) for at in range(10)),
         page(12 * MS, FAULT)],
        [Call(0, 3 * US, correlation=1), Call(5 * US, 10 * MS + 12 * US, "cudaDeviceSynchronize")],
    )  # fmt: skip


def prefetching(*more: Operation) -> Activity:
    """Two parts of one prefetch, and a kernel behind them."""
    return recording(
        [page(100 * US, PREFETCH), page(300 * US, PREFETCH), Operation(402 * US, 502 * US, "add", 2), *more],
        [Call(50 * US, 60 * US, "cudaMemPrefetchAsync", 1), Call(70 * US, 73 * US, correlation=2)],
    )


def test_pages_that_move_at_faults_are_no_operations() -> None:
    found, moves = without_migrations(faulting())
    assert (len(found.operations), len(moves)) == (1, 11)
    assert found.operations.names[found.operations.name[0]] == "add"


def test_a_recording_of_nothing_else_stays_as_it_is() -> None:
    given = recording([page(0, FAULT)])
    found, moves = without_migrations(given)
    assert found is given
    assert not len(moves)


def test_the_pages_of_a_prefetch_are_one_copy_of_the_only_stream_with_kernels() -> None:
    found, moves = without_migrations(prefetching())
    operations = found.operations
    assert not len(moves)
    assert operations.kind.tolist() == [activity.MEMCPY, activity.KERNEL]
    assert (int(operations.start[0]), int(operations.end[0])) == (100 * US, 400 * US)
    assert (int(operations.bytes[0]), int(operations.correlation[0])) == (4_000_000, 1)
    assert np.unique(operations.stream).tolist() == [7]


def test_a_prefetch_of_an_unknown_stream_is_left_out() -> None:
    found, moves = without_migrations(prefetching(Operation(402 * US, 502 * US, "other", stream=8)))
    assert found.operations.kind.tolist() == [activity.KERNEL] * 2
    assert not (moves.destination_memory == activity.MANAGED).any()


class TestThePrefetchLever:
    def saves(self) -> tuple[float, float | None, float]:
        advice = advice_on_recording(faulting())
        one = next(one for one in advice.levers if one.lever == "prefetch")
        assert "10 page moves during 1 kernel of 10 ms: 20 MB in 1 ms" in one.found.evidence[0]
        return one.saves.low_ns, one.saves.likely_ns, one.saves.high_ns

    def test_saves_30_us_a_move_and_the_move_itself_at_most(self) -> None:
        assert self.saves()[2] == pytest.approx(1 * MS + 10 * 30 * US)

    def test_loses_nothing_where_a_copy_would_take_longer(self) -> None:
        low, likely, _ = self.saves()  # 20 MB at 12 GB/s take 1.67 ms, the moves 1 ms
        assert low == 0
        assert likely == 0

    def test_is_not_named_without_page_moves(self) -> None:
        assert all(one.lever != "prefetch" for one in advice_on_recording(prefetching()).levers)
