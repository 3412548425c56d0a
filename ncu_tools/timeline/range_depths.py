"""Ranges and calls of host threads as rows of boxes: on which row of its thread each one has room."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import count


def rows_of_threads(owners: Sequence[Hashable], starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """The first row of its thread in which each slice follows or nests in the others, from 0 on.

    Slices are ordered by start, the longer first. A viewer that nests slices itself drops those that only overlap.
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
    """The first row, from 0 on, on which no other slice of one thread is open at the start of each: its depth.

    Slices are ordered by start, the longer first. Slices that only overlap lie on different rows too.
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
