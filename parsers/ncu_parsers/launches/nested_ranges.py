"""Nested ranges of host threads: the parent of each range, and the program position (phase, module) inside it.

A range takes about 50 bytes: kind, name and inputs are stored once for all equal ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from ncu_launch.nvtx_ranges import DOMAIN, RUN_PHASES

from ncu_parsers.derived.operators.forward_operators import ForwardOperators
from ncu_parsers.derived.operators.work_from_shapes import RecordedInputs
from ncu_parsers.launches.host_ranges import ANNOTATION, DEEPEST, MODULE, MODULE_PATH, OPERATOR
from ncu_parsers.sources import memory
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import MISSING, MODULE_PREFIX, Codes, HostRanges, Integers, RangeLabel

OPTIMIZER_PREFIX = "Optimizer.step#"
BACKWARD_PREFIX = "autograd::engine::evaluate_function"
STEP_PREFIX = "ProfilerStep#"
PATH_PREFIX = f"{DOMAIN}:"
"""Prefix of a module's path in a range of our launcher."""

OUTSIDE, CUT = 0, -2
"""Codes of contexts: outside all ranges, and a context cut to the innermost `DEEPEST` ranges."""


class HostCall(NamedTuple):
    """Meaning of a range: an operator with its inputs, a user's annotation, or a module.

    `label` is (domain, name) if the domain is known.
    """

    kind: str
    name: str
    inputs: RecordedInputs = RecordedInputs()
    label: tuple[str, str] | None = None


Captured = dict[int, list[tuple[int, HostCall]]]
"""Row of a kernel -> (index in the capture's trace, call) of each operator around its launch, outermost first."""


def host_call(label: RangeLabel) -> HostCall | None:
    """The meaning of a range; None if it says nothing about launches, as most Python functions."""
    known = None if label.domain is None else (label.domain, label.name)
    if label.kind == activity.OPERATOR:
        return HostCall(OPERATOR, label.name, RecordedInputs(*(label.inputs or ())), known)
    if label.kind == activity.ANNOTATION and label.name.startswith(PATH_PREFIX):
        return HostCall(MODULE_PATH, label.name.removeprefix(PATH_PREFIX))
    if label.kind in (activity.NVTX, activity.ANNOTATION):
        return HostCall(ANNOTATION, label.name, label=known)
    if label.kind == activity.PYTHON and label.name.startswith(MODULE_PREFIX):
        return HostCall(MODULE, label.name.removeprefix(MODULE_PREFIX))
    return None


class Context(NamedTuple):
    """Program position of a row: names of the ranges around it, outermost first.

    Ranges with a known domain are only in `labels`, as (domain, name).
    """

    annotations: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    is_backward: bool = False
    labels: tuple[tuple[str, str], ...] = ()

    @classmethod
    def around(cls, calls: Sequence[HostCall]) -> Context:
        """The context inside nested ranges, given outermost first."""
        context = cls(labels=tuple([call.label for call in calls if call.label is not None]))
        for call in calls:
            context = context if call.label is not None else context.within(call)
        return context

    def within(self, call: HostCall) -> Context:
        """The context inside one more range."""
        if call.label is not None:
            return self._replace(labels=(*self.labels, call.label))
        if call.kind == ANNOTATION:
            return self._replace(annotations=(*self.annotations, call.name))
        if call.kind == MODULE_PATH:
            return self._replace(annotations=(*self.annotations, call.name), modules=(call.name,))
        if call.kind == MODULE:
            return self._replace(modules=(*self.modules, call.name))
        return self._replace(is_backward=self.is_backward or call.name.startswith(BACKWARD_PREFIX))

    def phase(self) -> str | None:
        """Forward, backward or optimizer, if a range says so; modules recomputed for the backward pass are backward."""
        if any(name.startswith(OPTIMIZER_PREFIX) for name in self.annotations):
            return "optimizer"
        if self.is_backward:
            return "backward"
        named = [name for name in self.annotations if name in RUN_PHASES]
        if named:
            return named[-1]
        return "forward" if self.modules else None


class Contexts:
    """Every distinct context once; its code is its index in `known`."""

    def __init__(self) -> None:
        self.known = [Context()]
        self._codes = {Context(): OUTSIDE}

    def code(self, context: Context) -> int:
        """The code of a context; adds it if new."""
        found = self._codes.setdefault(context, len(self.known))
        if found == len(self.known):
            self.known.append(context)
        return found


class Nesting:
    """Nesting of one thread's ranges, sorted by start, longer first: `parent` of each (index, -1 for none), and
    `levels`.

    The parent is the innermost range open at the start. If ranges overlap without nesting, a range that began before a
    still open one counts as open too, so the parents of the innermost open range always include all open ranges.
    `levels[d]` holds the indices of ranges with d ancestors.
    """

    def __init__(self, start: Integers, end: Integers) -> None:
        instant = end == start
        ended = np.searchsorted(np.sort(end), start, "right")
        itself = np.searchsorted(start[instant], start, "right") - (np.cumsum(instant) - instant)
        depth = np.arange(len(start)) - (ended - itself)
        self.levels = _by_depth(depth)
        self.parent = np.full(len(start), -1)
        for above, level in pairwise(self.levels):
            self.parent[level] = above[np.searchsorted(above, level) - 1]
        inside = self.parent >= 0
        if not (end[inside] <= end[self.parent[inside]]).all():
            self._nest_overlapping(start, end)

    def _nest_overlapping(self, starts: Integers, end: Integers) -> None:
        parents: list[int] = []
        depths: list[int] = []
        open_ranges: list[int] = []
        ends = end.tolist()
        for place, start in enumerate(starts.tolist()):
            while open_ranges and ends[open_ranges[-1]] <= start:
                open_ranges.pop()
            parents.append(open_ranges[-1] if open_ranges else -1)
            depths.append(len(open_ranges))
            open_ranges.append(place)
        self.parent, self.levels = np.array(parents), _by_depth(np.array(depths))


def innermost(start: Integers, end: Integers, parent: Codes, moments: Integers) -> Integers:
    """Index of the innermost range open at each moment, start and end included; -1 for none."""
    found = np.searchsorted(start, moments, "right") - 1
    left = np.flatnonzero(found >= 0)
    while len(left):
        left = left[end[found[left]] < moments[left]]
        found[left] = parent[found[left]]
        left = left[found[left] >= 0]
    return found


def _by_depth(depth: Integers) -> list[npt.NDArray[np.intp]]:
    """The indices of each depth, in order."""
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.searchsorted(depth[order], np.arange(1, int(depth.max(initial=0)) + 1)))


class NestedRanges:
    """Columns of the ranges that have a meaning for launches, sorted by thread, then outer ranges first; times in ns.

    `calls` are the meanings of labels. `above` is the index of the parent range, `operator` the index of the innermost
    operator that is or encloses the range, -1 for none; `context` is the code of the context inside the range; `last`
    is the last moment at which the range is open, `until` ns before its end; `reach` is the smallest `last` of the
    range and its ancestors. Thread i of `owners` has the ranges from `begins[i]` to `begins[i + 1]`. Raises
    `memory.TooBig`, which says `name`, beyond the memory limit; never with `name` None, for ranges read in parts.
    """

    def __init__(self, ranges: HostRanges, name: str | None = "the trace", *, until: int = 0) -> None:
        told = [host_call(label) for label in ranges.labels]
        self.calls = [one or HostCall(ANNOTATION, "") for one in told]
        self.owners, self.contexts = ranges.owners, Contexts()
        self._within: dict[tuple[int, int], int] = {}
        self._given: dict[int, int] = {}
        says = np.array([one is not None for one in told], np.bool_)
        rows = np.flatnonzero(says[ranges.label])
        rows = rows[np.argsort(ranges.owner[rows], kind="stable")]
        self.begins = np.searchsorted(ranges.owner[rows], np.arange(len(ranges.owners) + 1))
        mine = ranges.at(rows)
        self.start, self.end, self.call, self.number = mine.start, mine.end, mine.label, mine.sequence
        self.above, self.operator, self.context = np.full((3, len(rows)), -1, np.int32)
        self.last = self.end - until
        self.reach = self.last.copy()
        for begin, end in pairwise(self.begins.tolist()):
            if name is not None:
                memory.require_memory(name)
            self._nest(slice(begin, end))
        self._forward: ForwardOperators | None = None

    def __len__(self) -> int:
        return len(self.start)

    def _nest(self, thread: slice) -> None:
        """Fill the nesting columns of one thread."""
        if thread.start == thread.stop:
            return
        base, nesting = thread.start, Nesting(self.start[thread], self.end[thread])
        self.above[thread] = np.where(nesting.parent >= 0, nesting.parent + base, -1)
        is_operator = np.array([call.kind == OPERATOR for call in self.calls], np.bool_)
        mine = base + np.flatnonzero(is_operator[self.call[thread]])
        self.operator[mine] = mine
        self._inherit(thread, nesting.parent)
        stays = np.array([Context().within(call) == Context() for call in self.calls], np.bool_)
        self.context[thread] = CUT
        for depth, level in enumerate(nesting.levels[:DEEPEST]):
            places, codes = level + base, self.call[level + base]
            around = self.context[self.above[places]].astype(np.int64) if depth else np.full(len(places), OUTSIDE)
            self.context[places] = around
            changes = np.flatnonzero(~stays[codes])
            pairs, code = np.unique(around[changes] * len(self.calls) + codes[changes], return_inverse=True)
            within = [self._context_within(*divmod(pair, len(self.calls))) for pair in pairs.tolist()]
            self.context[places[changes]] = np.array(within, np.int32)[code.reshape(-1)]

    def _inherit(self, thread: slice, parent: Codes) -> None:
        """Take the innermost operator and the smallest `last` from ancestors, twice as far away in each round."""
        reach, operator, ancestor = self.reach[thread], self.operator[thread], parent.copy()
        inside = np.flatnonzero(ancestor >= 0)
        while len(inside):
            outer = ancestor[inside]
            reach[inside] = np.minimum(reach[inside], reach[outer])
            operator[inside] = np.where(operator[inside] >= 0, operator[inside], operator[outer])
            ancestor[inside] = ancestor[outer]
            inside = inside[ancestor[inside] >= 0]

    def _context_within(self, context: int, code: int) -> int:
        return self.contexts.code(self.contexts.known[context].within(self.calls[code]))

    def call_code(self, call: HostCall) -> int:
        """The index in `calls` of a call from another trace, added if new; valid while that trace is in memory."""
        found = self._given.setdefault(id(call), len(self.calls))
        if found == len(self.calls):
            self.calls.append(call)
        return found

    def owner_of(self, places: Codes) -> Integers:
        """The thread index of each range."""
        return np.searchsorted(self.begins, places, side="right") - 1

    def is_kind(self, kind: str) -> npt.NDArray[np.bool_]:
        """Mask of the ranges of a kind."""
        found: npt.NDArray[np.bool_] = np.array([call.kind == kind for call in self.calls], np.bool_)[self.call]
        return found

    def forward_of(self, numbers: Integers) -> Integers:
        """Index of the forward operator for each sequence number of a backward node; -1 if unknown."""
        if self._forward is None:
            self._forward = ForwardOperators(self.number, self.owner_of(np.arange(len(self))), self.start)
        return self._forward.behind(numbers)

    def node_around(self, places: Codes) -> Integers:
        """Index of the innermost backward node that is or encloses each range, within `DEEPEST`; -1 for none."""
        found, at = np.full(len(places), -1), places.astype(np.int64)
        for _ in range(DEEPEST):
            looking = np.flatnonzero((at >= 0) & (found < 0))
            if not len(looking):
                break
            is_node = self.is_node(at[looking])
            found[looking[is_node]] = at[looking[is_node]]
            at[looking] = self.above[at[looking]]
        return found

    def is_node(self, places: Codes) -> npt.NDArray[np.bool_]:
        """Mask of the ranges that are nodes of the backward pass."""
        number = self.number[places]
        found: npt.NDArray[np.bool_] = (number < -1) & (number != MISSING)
        return found

    def operator_above(self) -> npt.NDArray[np.int32]:
        """Index of the innermost operator that encloses each range, itself excluded; -1 for none."""
        return np.where(self.above >= 0, self.operator[self.above], -1) if len(self) else self.above

    def own_times(self) -> Integers:
        """Duration of each range minus its directly enclosed operators, at least 0, in ns."""
        left = self.end - self.start
        around = self.operator_above()
        inner = np.flatnonzero(self.is_kind(OPERATOR) & (around >= 0))
        outer = around[inner]
        np.subtract.at(left, outer, np.minimum(self.end[inner], self.end[outer]) - self.start[inner])
        own: Integers = np.maximum(left, 0)
        return own

    def path_to(self, place: int) -> list[int]:
        """The indices of a range's ancestors and itself, outermost first; only the innermost `DEEPEST`."""
        found: list[int] = []
        while place >= 0 and len(found) < DEEPEST:
            found.append(place)
            place = int(self.above[place])
        return found[::-1]

    def context_of(self, path: list[int]) -> int:
        """The code of the context inside the ranges of a path, outermost first."""
        return self.contexts.code(Context.around([self.calls[code] for code in self.call[path].tolist()]))

    def steps(self) -> list[tuple[int, int, int]]:
        """Start and end in ns and number of every profiler step, by start. Steps hold for all threads."""
        numbers = {}
        for code, (kind, name, *_) in enumerate(self.calls):
            number = name.removeprefix(STEP_PREFIX)
            if kind == ANNOTATION and number != name and number.isdecimal() and len(number) < 10:
                numbers[code] = int(number)
        places = np.flatnonzero(np.isin(self.call, list(numbers))).tolist() if numbers else []
        return sorted((int(self.start[at]), int(self.end[at]), numbers[self.call[at]]) for at in places)

    def open_at(self, owner: int, moments: Integers) -> tuple[Integers, Iterator[tuple[int, list[int]]]]:
        """Index of the innermost range open on a thread at each moment; -1 for none.

        Where the open ranges are not all ancestors of the innermost one, the iterator gives the index into `moments`
        and these ranges, outermost first and at most `DEEPEST` + 1. `moments` ascend.
        """
        thread = slice(*self.begins[owner : owner + 2].tolist())
        parent = np.maximum(self.above[thread] - thread.start, -1)
        found = innermost(self.start[thread], self.last[thread], parent, moments)
        there = np.flatnonzero(found >= 0)
        found[there] += thread.start
        places = found[there]
        unlike = there[(self.reach[places] < moments[there]) | (self.context[places] == CUT)]
        skipped: dict[int, int] = {}
        return found, ((at, self._path_at(int(found[at]), int(moments[at]), skipped)) for at in unlike.tolist())

    def _path_at(self, place: int, moment: int, skipped: dict[int, int]) -> list[int]:
        """A range that is open at `moment` and its open ancestors, outermost first.

        `skipped` caches jumps past ranges that have ended, for all later moments.
        """
        found: list[int] = []
        while place >= 0 and len(found) <= DEEPEST:
            found.append(place)
            above = before = int(self.above[place])
            while above >= 0 and self.last[above] < moment:
                above = skipped.get(above, int(self.above[above]))
            while before != above:
                skipped[before], before = above, skipped.get(before, int(self.above[before]))
            place = above
        return found[::-1]
