"""The NVTX ranges open where operations of an nsys timeline were launched, and where graph nodes were captured.

A push/pop range belongs to its thread, a start/end range to the whole process. A range is open from its start until
1 ns before its end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ncu_parsers.launches.host_ranges import DEEPEST
from ncu_parsers.launches.nested_ranges import OUTSIDE, Captured, NestedRanges
from ncu_parsers.launches.places import Places, places_at
from ncu_parsers.timelines.activity.activity import MISSING, Codes, HostRanges, Integers, Numbered
from ncu_parsers.timelines.nsys.nsys_ranges import owners_of

Label = tuple[str, str]
"""Domain and name of a range; the default domain is ""."""

MOST_LABELS = 4_000_000
"""Limit on the labels in all distinct paths; beyond it, paths are cut to fewer innermost ranges."""


class OpenPaths(NamedTuple):
    """The ranges open at some moments: `code` is each moment's index into `paths`, -1 if the moment is unknown.

    A path lists labels, outermost first. `places` are the moments' places among ranges of the thread, without ranges
    of the process. `cut_to` is the number of innermost ranges that are kept if more are open; None if no path was cut.
    """

    code: Codes
    paths: list[tuple[Label, ...]]
    places: Places
    cut_to: int | None


class CallSites(NamedTuple):
    """Ranges open where operations were launched, and where graph nodes (`is_node`) were captured."""

    ranges: NestedRanges
    launched: OpenPaths
    captured: OpenPaths
    is_node: npt.NDArray[np.bool_]

    @property
    def operator(self) -> Integers:
        """Index in `ranges` of the innermost operator around each launch, for graph nodes around the capture; or -1."""
        return np.where(self.is_node, self.captured.places.operator, self.launched.places.operator)

    @property
    def captures(self) -> int:
        """Number of operations whose ranges at the capture are known."""
        return int((self.captured.code >= 0).sum())

    def captured_operators(self) -> Captured:
        """The operators around the capture of each node."""
        places, ranges = self.captured.places, self.ranges
        return {
            row: [(one, ranges.calls[ranges.call[one]]) for one in places.operators_around(row, ranges)]
            for row in np.flatnonzero(self.is_node & (places.operator >= 0)).tolist()
        }


def nested(ranges: HostRanges) -> NestedRanges:
    """The nesting of `ranges`; ranges of zero length are dropped, since they enclose nothing."""
    return NestedRanges(ranges.at(ranges.end > ranges.start), None, until=1)


def open_paths(ranges: NestedRanges, moment: Integers, thread: Integers) -> OpenPaths:
    """The ranges open at each moment (ns) on each serialised thread; `MISSING` if unknown.

    Ranges of the process come first, as in reports of ncu; a range pushed under the same name is listed once.
    """
    threads = Numbered()
    owner = np.where(thread == MISSING, -1, threads.numbers(thread))
    owners = owners_of(threads)
    inner = places_at(owners, owner, moment, ranges)
    outer = places_at([(process, MISSING) for process, _ in owners], owner, moment, ranges)
    known = ranges.contexts.known
    contexts = np.maximum([outer.context, inner.context], OUTSIDE).astype(np.int64)
    pairs, code = np.unique(contexts[0] * len(known) + contexts[1], return_inverse=True)
    paths = []
    for pair in pairs.tolist():
        of_process, of_thread = (known[one].labels for one in divmod(pair, len(known)))
        paths.append((*of_process, *(label for label in of_thread if label not in of_process)))
    code, deepest = np.where(owner >= 0, code.reshape(-1), -1), DEEPEST
    while sum(map(len, paths)) > MOST_LABELS and deepest > 1:
        deepest //= 4
        paths = [path[-deepest:] for path in paths]
    is_cut = deepest < DEEPEST or inner.too_deep + outer.too_deep > 0
    return OpenPaths(code, paths, inner, deepest if is_cut else None)
