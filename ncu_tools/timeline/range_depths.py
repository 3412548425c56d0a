"""Layout of a thread's ranges and calls as boxes: the row of each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import count


def rows_of_threads(owners: Sequence[Hashable], starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """The first row of its thread, from 0, in which each slice follows the others or nests in them.

    Slices must be ordered by start, longer first. Viewers that nest slices themselves drop those that overlap partly.
    """
    rows: dict[Hashable, list[list[int]]] = {}
    found = []
    for owner, start, end in zip(owners, starts, ends, strict=True):
        for row in count():
            own = rows.setdefault(owner, [])
            if row == len(own):
                own.append([])
            around = own[row]
            while around and around[-1] <= start:
                around.pop()
            if not around or around[-1] >= end:
                around.append(end)
                found.append(row)
                break
    return found


def nested_depths(starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """The first row, from 0, that is free at the start of each slice of one thread: its depth.

    Slices must be ordered by start, longer first. Partly overlapping slices get different rows, too.
    """
    until: list[int] = []
    found = []
    for start, end in zip(starts, ends, strict=True):
        row = next((row for row, reached in enumerate(until) if reached <= start), len(until))
        if row == len(until):
            until.append(end)
        else:
            until[row] = end
        found.append(row)
    return found
