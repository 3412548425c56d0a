"""The Python location of each row of a trace: of the frame in which it was launched, or its forward operator was."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ncu_parsers.derived.operators.python_locations import BY_FORWARD, BY_STACK, Location, location_columns
from ncu_parsers.timelines.kineto.host_threads import NestedRanges
from ncu_parsers.timelines.kineto.places import Places
from ncu_parsers.timelines.python_frames import PythonFrames


def location_columns_of(frames: PythonFrames, places: Places, ranges: NestedRanges) -> list[tuple[str, str, pa.Array]]:
    """Name, unit and values of the columns of locations (`LOCATION_COLUMNS`); [] for a trace without stacks."""
    return location_columns(*locations_of(frames, places, ranges)) if frames.seen else []


def locations_of(
    frames: PythonFrames, places: Places, ranges: NestedRanges
) -> tuple[list[Location | None], list[str | None]]:
    """The location of each row by its place on the host, and what it is that of (`LOCATION_BASIS`).

    A row of the backward pass has the location of its forward operator, where that is known; but where Python ran
    within the node of the backward pass, as a function of the user's or a recomputed forward, the location is there.
    """
    calls = zip(places.thread.tolist(), places.moment.tolist(), strict=True)
    own = frames.innermost([(ranges.threads[thread], moment) if thread >= 0 else None for thread, moment in calls])
    nodes = ranges.node_around(places.operator)
    forward = np.full(len(nodes), -1)
    of_backward = np.flatnonzero(nodes >= 0)
    forward[of_backward] = ranges.forward_of(-2 - ranges.number[nodes[of_backward]])
    threads = ranges.thread_of(forward).tolist()
    behind = frames.innermost(
        [
            (ranges.threads[thread], float(ranges.start[place])) if place >= 0 else None
            for thread, place in zip(threads, forward.tolist(), strict=True)
        ]
    )
    locations: list[Location | None] = []
    bases: list[str | None] = []
    for frame, node, of_forward in zip(own, nodes.tolist(), behind, strict=True):
        ran_within = frame is not None and node >= 0 and frame.start >= ranges.start[node]
        is_forward = of_forward is not None and not ran_within
        taken = of_forward if is_forward else frame
        locations.append(None if taken is None else taken.location)
        bases.append(None if taken is None else BY_FORWARD if is_forward else BY_STACK)
    return locations, bases
