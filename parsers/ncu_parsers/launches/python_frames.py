"""Where in a Python program launches come from, by the functions that ran on the launching thread."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ncu_parsers.derived.operators.python_locations import (
    BY_FORWARD,
    BY_STACK,
    Location,
    location_columns,
    location_in,
)
from ncu_parsers.launches.nested_ranges import NestedRanges, Nesting, innermost
from ncu_parsers.launches.places import Places
from ncu_parsers.timelines.activity.activity import PYTHON, HostRanges, Integers


def may_be_a_location(function: str) -> bool:
    """True if a Python function, as PyTorch's profiler names it, can be a launch's location."""
    return location_in(function) is not None


class PythonFrames:
    """Python functions among the ranges that can be a location. Functions of one thread nest like calls."""

    def __init__(self, ranges: HostRanges) -> None:
        self.locations = [location_in(label.name) if label.kind == PYTHON else None for label in ranges.labels]
        known = np.array([location is not None for location in self.locations], np.bool_)
        self._frames = ranges.at(np.flatnonzero(known[ranges.label]))

    def __len__(self) -> int:
        return len(self._frames)

    def innermost(self, owner: Integers, moment: Integers) -> Integers:
        """Index of the innermost function open on each thread at each moment, start and end included; -1: none."""
        found, frames = np.full(len(owner), -1), self._frames
        for one in np.unique(frames.owner):
            mine, rows = np.flatnonzero(frames.owner == one), np.flatnonzero(owner == one)
            if len(rows):
                start, end = frames.start[mine], frames.end[mine]
                at = innermost(start, end, Nesting(start, end).parent, moment[rows])
                found[rows] = np.where(at >= 0, mine[at], -1)
        return found

    def location(self, frame: int) -> Location | None:
        """The location of a function; None for -1."""
        return self.locations[self._frames.label[frame]] if frame >= 0 else None

    def began(self, frames: Integers) -> Integers:
        """Start times of functions in ns."""
        return self._frames.start[frames]


def location_columns_of(frames: PythonFrames, places: Places, ranges: NestedRanges) -> list[tuple[str, str, pa.Array]]:
    """Name, unit and values of the columns of locations (`LOCATION_COLUMNS`); [] for a recording without stacks."""
    return location_columns(*locations_of(frames, places, ranges)) if len(frames) else []


def locations_of(
    frames: PythonFrames, places: Places, ranges: NestedRanges
) -> tuple[list[Location | None], list[str | None]]:
    """The location of each row by its place on the host, and the location's basis (`LOCATION_BASIS`).

    A row of the backward pass gets the location of its forward operator, if known, unless Python ran inside the
    backward node itself (a user's function, a recomputed forward): then the location is that function.
    """
    own = frames.innermost(places.thread, places.moment)
    nodes = ranges.node_around(places.operator)
    forward, behind = np.full((2, len(nodes)), -1)
    of_backward = np.flatnonzero(nodes >= 0)
    forward[of_backward] = ranges.forward_of(-2 - ranges.number[nodes[of_backward]])
    there = np.flatnonzero(forward >= 0)
    behind[there] = frames.innermost(ranges.owner_of(forward[there]), ranges.start[forward[there]])
    ran_within = (own >= 0) & (nodes >= 0)
    ran_within[ran_within] = frames.began(own[ran_within]) >= ranges.start[nodes[ran_within]]
    is_forward = (behind >= 0) & ~ran_within
    locations = [frames.location(frame) for frame in np.where(is_forward, behind, own).tolist()]
    bases = [BY_FORWARD if forward else BY_STACK for forward in is_forward.tolist()]
    return locations, [None if location is None else base for location, base in zip(locations, bases, strict=True)]
