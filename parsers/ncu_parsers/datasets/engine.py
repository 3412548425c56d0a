"""Apply a function to many reports: in this process one by one, or through an engine that distributes the work.

Functions, items and results are pickled. Results come in the order of the items, whatever the order of execution, so
that floating-point sums are the same everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from ncu_launch.errors import NcuBenchError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Protocol):
    """Maps a function over items."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result | NcuBenchError]:
        """Yield each item's result in order, or an `NcuBenchError` if the function raised one or its worker died."""


class InOrder:
    """Runs in this process, one item after another."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result | NcuBenchError]:
        """As in `Engine`; an item is processed when its result is requested."""
        return (attempted(function, item) for item in items)


def attempted(function: Callable[[Item], Result], item: Item) -> Result | NcuBenchError:
    """The result of `function(item)`, or the `NcuBenchError` that it raised."""
    try:
        return function(item)
    except NcuBenchError as error:
        return error.drop_traceback()


def cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
