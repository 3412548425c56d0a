"""Find the NVTX ranges open on a thread at a given time, outermost first, and the operators among them.

A push/pop range belongs to its thread, a start/end range to the whole process. Ranges of a thread usually nest: then
each has a parent, and the open ranges at a time are the innermost one and its ancestors. Ranges of different domains,
and of a process, may overlap without nesting: then the open ranges are kept as a set ordered by start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ncu_parsers.derived.operators.nvtx_operators import NvtxOperator
from ncu_parsers.launches.host_ranges import DEEPEST
from ncu_parsers.launches.nsys.nvtx import Codes, Label, TracedRanges, process_of, rows_by_key
from ncu_parsers.timelines.nsys.database import Integers

MOST_LABELS = 4_000_000
"""Limit on the labels in all distinct paths; beyond it, paths are cut to fewer innermost ranges."""

Rows = npt.NDArray[np.intp]


class PathsAt(NamedTuple):
    """The ranges open at each time: index into `paths` (int64), paths (outermost first), and the length limit."""

    path: Codes
    paths: list[tuple[Label, ...]]
    deepest: int


def paths_at(ranges: TracedRanges, times: Integers, threads: Integers) -> PathsAt:
    """The ranges open at each of `times` (ns) on each of `threads`.

    Ranges of the process come first, as in reports of ncu; a range pushed under the same name is listed once.
    """
    pushed = ~ranges.of_process
    thread_code, thread_paths, thread_kept = _open_at(ranges, pushed, ranges.thread, times, threads)
    process_code, process_paths, process_kept = _open_at(
        ranges, ranges.of_process, process_of(ranges.thread), times, process_of(threads)
    )
    both, code = np.unique(process_code * len(thread_paths) + thread_code, return_inverse=True)
    found = []
    for pair in both.tolist():
        outer, inner = process_paths[pair // len(thread_paths)], thread_paths[pair % len(thread_paths)]
        kept = [*outer, *(label for label in inner if label not in outer)]
        found.append(tuple(ranges.labels[label] for label in kept))
    return PathsAt(code.astype(np.int64), found, min(thread_kept, process_kept))


@dataclass
class OpenOperators:
    """The PyTorch operators around each launch: index of the innermost one among `ranges` (int64; -1: none).

    `parent`: for each range, the index of the operator that called it, -1 for none.
    """

    ranges: TracedRanges
    innermost: Codes
    parent: Codes

    @property
    def innermost_call(self) -> Codes:
        """Index of each launch's innermost operator among the calls of `ranges`; -1 for none."""
        return np.append(self.ranges.operator, -1)[self.innermost]

    @property
    def calls(self) -> list[NvtxOperator | None]:
        """The innermost operator of each launch."""
        calls = [*self.ranges.calls, None]
        return [calls[code] for code in self.innermost_call.tolist()]

    def path_to(self, place: int) -> list[int]:
        """Indices of the operators around `place`, itself included, outermost first; only the innermost ones."""
        found: list[int] = []
        while place >= 0 and len(found) < DEEPEST:
            found.append(place)
            place = int(self.parent[place])
        return found[::-1]


def operators_at(ranges: TracedRanges, times: Integers, threads: Integers) -> OpenOperators:
    """The operators open at each of `times` (ns) on each of `threads`, start and end included."""
    result = OpenOperators(ranges, np.full(len(times), -1), np.full(len(ranges), -1))
    wanted = rows_by_key(threads, np.arange(len(threads)))
    own = rows_by_key(ranges.thread, np.flatnonzero((ranges.operator >= 0) & (ranges.end > ranges.start)))
    for thread, rows in own.items():
        nested = Nested(ranges.start[rows], ranges.end[rows])
        rows = rows[nested.order]
        result.parent[rows] = np.where(nested.parent < 0, -1, rows[nested.parent])
        if thread in wanted:
            at = nested.innermost(times[wanted[thread]], 0)
            result.innermost[wanted[thread]] = np.where(at < 0, -1, rows[at])
    return result


class Nested:
    """Ranges of one thread in the `order` of their starts, longer ones first, and the `parent` of each; -1 for none.

    The parent is the innermost range open at the start. `is_exact`: each range ends before its parent.
    """

    def __init__(self, start: Integers, end: Integers) -> None:
        self.order = np.lexsort((-end, start))
        self.start, self.end = start[self.order], end[self.order]
        begun_before = np.arange(len(start))
        self.depth = begun_before - np.searchsorted(np.sort(end), self.start, "right")
        by_depth = np.argsort(self.depth, kind="stable")
        levels = np.split(by_depth, np.searchsorted(self.depth[by_depth], np.arange(1, self.depth.max(initial=0) + 1)))
        self.levels: list[Rows] = levels
        self.parent = np.full(len(start), -1)
        for above, level in pairwise(levels):
            self.parent[level] = above[np.searchsorted(above, level) - 1]
        inside = self.parent >= 0
        self.is_exact = bool((self.end[inside] <= self.end[self.parent[inside]]).all())
        if not self.is_exact:
            self.parent = self._parents_of_overlapping()

    def _parents_of_overlapping(self) -> Codes:
        """The parents where ranges do not nest: a range that ends while inner ranges are open closes them."""
        parents: list[int] = []
        open_ranges: list[int] = []
        ends = self.end.tolist()
        for place, start in enumerate(self.start.tolist()):
            while open_ranges and ends[open_ranges[-1]] <= start:
                open_ranges.pop()
            parents.append(open_ranges[-1] if open_ranges else -1)
            open_ranges.append(place)
        return np.array(parents, np.int64)

    def innermost(self, times: Integers, after_end: int) -> Codes:
        """Index of the innermost range open at each time, -1 for none.

        A range is open from its start until `after_end` ns before its end, both included.
        """
        found = np.searchsorted(self.start, times, "right") - 1
        left = np.flatnonzero(found >= 0)
        while len(left):
            left = left[self.end[found[left]] - after_end < times[left]]
            found[left] = self.parent[found[left]]
            left = left[found[left] >= 0]
        return found


class _TooMany(Exception):
    """The paths contain more labels than `MOST_LABELS`."""


@dataclass
class Paths:
    """Numbered distinct paths of at most `deepest` labels each. Raises `_TooMany` if there are too many labels."""

    deepest: int
    numbers: dict[tuple[int, ...], int] = field(default_factory=lambda: {(): 0})
    labels: int = 0

    def number(self, path: tuple[int, ...]) -> int:
        """The number of a path of labels, outermost first."""
        number = self.numbers.get(path)
        if number is None:
            number = self.numbers[path] = len(self.numbers)
            self.labels += len(path)
            if self.labels > MOST_LABELS and self.deepest > 1:
                raise _TooMany
        return number


def _open_at(
    ranges: TracedRanges, which: npt.NDArray[np.bool_], owner: Integers, times: Integers, owners: Integers
) -> tuple[Codes, list[tuple[int, ...]], int]:
    """Per time, the labels of the ranges `which` that are open for its owner; and the ranges kept per path."""
    range_groups = rows_by_key(owner, np.flatnonzero(which & (ranges.end > ranges.start)))
    deepest = DEEPEST
    while True:
        codes, found = np.zeros(len(times), np.int64), Paths(deepest)
        try:
            for one, rows in rows_by_key(owners, np.arange(len(owners))).items():
                mine = range_groups.get(one)
                if mine is not None:
                    nested = Nested(ranges.start[mine], ranges.end[mine])
                    is_simple = nested.is_exact and len(nested.levels) <= deepest
                    open_at = ancestors if is_simple else sweep
                    codes[rows] = open_at(nested, ranges.label[mine][nested.order], times[rows], found)
            return codes, list(found.numbers), deepest
        except _TooMany:
            deepest //= 4


def ancestors(nested: Nested, labels: Codes, times: Integers, found: Paths) -> Codes:
    """Index into `found` of the NVTX path (outermost to innermost open range) at each time."""
    node, above, label = np.zeros(len(labels), np.int64), [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
    nodes, most = 1, int(labels.max(initial=0)) + 1
    for level in nested.levels:
        outer = np.where(nested.parent[level] < 0, 0, node[nested.parent[level]])
        kinds, inverse = np.unique(outer * most + labels[level], return_inverse=True)
        node[level] = nodes + inverse
        nodes += len(kinds)
        above.append(kinds // most)
        label.append(kinds % most)
    innermost = nested.innermost(times, 1)
    used, inverse = np.unique(np.append(node, 0)[innermost], return_inverse=True)
    outer_of, label_of = np.concatenate(above).tolist(), np.concatenate(label).tolist()
    numbers = []
    for one in used.tolist():
        path: list[int] = []
        while one:
            path.append(label_of[one])
            one = outer_of[one]
        numbers.append(found.number(tuple(path[::-1])))
    return np.array(numbers, np.int64)[inverse]


def sweep(nested: Nested, labels: Codes, times: Integers, found: Paths) -> Codes:
    """As `ancestors`, for ranges that overlap: one pass over all starts, ends and times in order.

    At equal times, ends are processed before starts, longer ranges start first, and `times` come last.
    """
    count = len(labels)
    kind = np.repeat(np.array([1, 0, 2], np.int8), [count, count, len(times)])
    events = np.lexsort((kind, np.concatenate([nested.start, nested.end, times]))).tolist()
    result, listed = np.zeros(len(times), np.int64), labels.tolist()
    now_open: dict[int, int] = {}
    path: int | None = 0
    for event in events:
        if event < count:
            now_open[event] = listed[event]
            path = None
        elif event < 2 * count:
            del now_open[event - count]
            path = None
        else:
            if path is None:
                path = found.number(tuple(islice(reversed(now_open.values()), found.deepest))[::-1])
            result[event - 2 * count] = path
    return result
