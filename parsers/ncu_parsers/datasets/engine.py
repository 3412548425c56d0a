"""Who does the same work on many reports: this process, one after the other, or an engine that has others do it.

A function and its items travel between processes, and so do results. Results come in the order of the items, whoever
worked on them in whatever order, so that what is summed from them has the same digits everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from ncu_launch.errors import NcuBenchError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Engine(Protocol):
    """What maps a function over items."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result | NcuBenchError]:
        """Each item's result, in order; an error in its place, if the function raised one or its worker died."""


class InOrder:
    """This process, one item after the other."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result | NcuBenchError]:
        """As `Engine` says; an item is worked on when its result is asked for."""
        return (attempted(function, item) for item in items)


def attempted(function: Callable[[Item], Result], item: Item) -> Result | NcuBenchError:
    """What `function` gives of `item`, or the error that it raises on purpose."""
    try:
        return function(item)
    except NcuBenchError as error:
        return error.drop_traceback()


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
