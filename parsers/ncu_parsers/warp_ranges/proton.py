"""Traces of Proton, Triton's profiler, from inside kernels: a Chrome trace, or a tree of sums for Hatchet.

In the Chrome trace a process is a block ("KERNEL Core7 CTA3": the SM's number and the block's) and a thread a warp
("warp 2 (line 0)"). Times within a block are cycles of its SM's clock, printed as if a cycle took a nanosecond: the
"Frequency (MHz)" is always 1000, and a variant without it prints ns. Newer releases place each block at the global
timer's time of its start; the first ones begin all blocks of a kernel together. An event that one warp begins, and the
same or another one ends, is written after the ranges of its block, without the block's start. The tree has the
total cycles of each range over all warps, and no times. Written by TraceWriter.cpp and TreeData.cpp of
triton-lang/triton.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from ncu_launch.notes import Note, NoteKind

from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.formats.whole_file import whole_file
from ncu_parsers.timelines.kineto.chrome_trace import (
    EXACT_UNTIL,
    LONGEST_TIME,
    NS_PER_US,
    SINCE_1970,
    TraceEvent,
    TraceEvents,
)
from ncu_parsers.warp_ranges.warp_trace import (
    MISSING,
    NO_RANGES,
    Clock,
    RangeSum,
    TracedLaunch,
    WarpRanges,
    Warps,
    WarpTrace,
)

TOOL = "Proton"
_BLOCK = re.compile(r"(.*) Core(\d{1,9}) CTA(\d{1,12})( \[.*\])?", re.DOTALL)
_WARP = re.compile(r"warp (\d{1,9})(?: \(line \d+\))?")
_GAP = re.compile(r"(\d{1,15})cycle")
_FRAME = re.compile(r"(.+):[^:]*@[^@]*")
"""A frame of a call stack: file:line@function, or file:function@line."""
FLOW = "flow"
"""The category of the two ends of an event that one warp begins and another ends."""
IN_CYCLES = Note(
    "times within a block are cycles of its SM's clock; shares are exact, and a time in ns needs the clock that it ran "
    "at", NoteKind.METHOD,
)  # fmt: skip
IN_MICROSECONDS = Note(SINCE_1970, NoteKind.METHOD)
NOT_ALIGNED = Note(
    "this release of Proton begins all blocks of a kernel at one time, so when blocks started is not known",
    NoteKind.NOT_KNOWN,
)


class _Arguments(msgspec.Struct, gc=False):
    init: int = msgspec.field(default=MISSING, name="Init Time (ns)")
    gap: str = msgspec.field(default="", name="Kernel Gap")
    frequency: float = msgspec.field(default=0, name="Frequency (MHz)")
    call_stack: list[str] = []


_ARGUMENTS = msgspec.json.Decoder(_Arguments)


def read_trace(source: Source) -> WarpTrace:
    """Read a Chrome trace of ranges in kernels. Raises `NotAReport` if none of its events is one."""
    reading = _Events()
    with source.open() as stream:
        events = TraceEvents(stream, source.name)
        for batch in events.batches():
            reading.add(batch)
    lost = [f"{events.broken:,} events could not be read"] if events.broken else []
    lost += ["the file ends before its end: what is in front was read"] if events.cut else []
    lost += [f"{reading.others:,} events are no ranges of warps"] if reading.others else []
    if not reading.starts:
        raise NotAReport(
            f"{source.name} holds no range of a warp that this release knows.", " ".join(lost),
            "Trace with: proton.start(backend=\"instrumentation\", data=\"trace\")",
        )  # fmt: skip
    return reading.trace(lost)


class _Events:
    """Ranges as arrays of numbers, 24 bytes each; names, blocks and warps are numbered when they first occur."""

    def __init__(self) -> None:
        self.others = 0
        self.starts, self._ends = array("q"), array("q")
        self._names: dict[str, int] = {}
        self._name, self._lane = array("i"), array("i")
        self._lanes: dict[tuple[str, str, int], int] = {}
        self._parsed: list[tuple[str, int, int, int, int]] = []
        self._files: dict[str, None] = {}
        self._begun: dict[tuple[str, int], int] = {}
        self._times: Counter[tuple[str, int]] = Counter()
        self._before = ("", MISSING)
        self._in_cycles, self._is_aligned = False, False

    def add(self, batch: list[TraceEvent]) -> None:
        for event in batch:
            if event.ph == "M":
                continue
            lane = self._lane_of(event)
            if lane is None or event.ph != "X" or not event.is_timed or event.name is None:
                self.others += 1
                continue
            start = round(event.ts * NS_PER_US)
            self._lane.append(lane)
            self._name.append(self._names.setdefault(event.name, len(self._names)))
            self.starts.append(start)
            self._ends.append(MISSING if event.cat == FLOW else start + round(event.dur * NS_PER_US))

    def _lane_of(self, event: TraceEvent) -> int | None:
        """The number of the warp of a launch; None for events that are on no warp."""
        if not isinstance(event.pid, str) or not isinstance(event.tid, str):
            return None
        place, warp = _block_in(event.pid), _warp_in(event.tid)
        if place is None or warp is None:
            return None
        try:
            known = _ARGUMENTS.decode(event.args)
        except (msgspec.DecodeError, ValueError):
            known = _Arguments()
        kernel, sm, block, in_cycles = place
        launch = self._launch_of(event, known, (kernel, block))
        key = event.pid, event.tid, launch
        if (lane := self._lanes.get(key)) is not None:
            return lane
        self._in_cycles = self._in_cycles or in_cycles or bool(known.frequency or known.gap)
        self._is_aligned = self._is_aligned or (known.init != MISSING and not in_cycles)
        self._files.update(dict.fromkeys(found[1] for one in known.call_stack if (found := _FRAME.fullmatch(one))))
        self._parsed.append((kernel, sm, block, warp, launch))
        return self._lanes.setdefault(key, len(self._lanes))

    def _launch_of(self, event: TraceEvent, known: _Arguments, block: tuple[str, int]) -> int:
        """A number shared by the events of a block in one launch: the block's start, or one counted by gap or order.

        An event without a start is in the launch of the previous range of its block. If no range of a block has one, a
        block that comes again after others is in the next launch, as launches are written one after the other.
        """
        gap = _GAP.match(known.gap)
        if gap and -LONGEST_TIME < event.ts < LONGEST_TIME:
            return int(event.ts * NS_PER_US) // max(int(gap[1]), 1)
        if known.init != MISSING:
            self._begun[block] = known.init
        elif block not in self._begun and block != self._before:
            self._times[block] += 1
        self._before = block
        return self._begun.get(block, self._times[block])

    def trace(self, lost: list[str]) -> WarpTrace:
        """The trace: a warp's lines become one; the n-th start of a block of a kernel is in its n-th launch."""
        begun: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
        for kernel, _, block, _, launch in sorted(self._parsed, key=lambda one: one[-1]):
            begun[kernel, block].setdefault(launch, len(begun[kernel, block]))
        launches: dict[tuple[str, int], int] = {}
        warps: dict[tuple[int, int, int], int] = {}
        sms: list[int] = []
        rows: list[int] = []
        for kernel, sm, block, warp, launch in self._parsed:
            number = launches.setdefault((kernel, begun[kernel, block][launch]), len(launches))
            row = warps.setdefault((number, block, warp), len(warps))
            rows.append(row)
            sms += [sm] if row == len(sms) else []
        launch_of, block_of, warp_of = (list(column) for column in zip(*warps, strict=True))
        ranges = WarpRanges(
            np.array(rows, np.int32)[self._lane], np.array(self._name, np.int32), np.array(self.starts, np.int64),
            np.array(self._ends, np.int64),
        )  # fmt: skip
        return WarpTrace(
            TOOL, [TracedLaunch(kernel) for kernel, _ in launches], Warps.of(launch_of, block_of, warp_of, sm=sms),
            ranges, list(self._names), clock=Clock.CYCLES if self._in_cycles else Clock.NANOSECONDS,
            is_aligned=self._is_aligned, files=list(self._files), damage=lost, notes=self._notes(),
        )  # fmt: skip

    def _notes(self) -> list[Note]:
        is_coarse = max(self.starts) > EXACT_UNTIL * NS_PER_US
        notes = {IN_CYCLES: self._in_cycles, NOT_ALIGNED: not self._is_aligned, IN_MICROSECONDS: is_coarse}
        return [note for note, applies in notes.items() if applies]


@lru_cache(1 << 12)
def _block_in(process: str) -> tuple[str, int, int, bool] | None:
    """Kernel, SM and block of a process, and whether its name says that times are cycles; None for another process."""
    found = _BLOCK.fullmatch(process)
    return None if found is None else (found[1], int(found[2]), int(found[3]), bool(found[4]))


@lru_cache(1 << 12)
def _warp_in(thread: str) -> int | None:
    found = _WARP.fullmatch(thread)
    return None if found is None else int(found[1])


# ----------------------------------------------------------------------------------------------------------- the tree


def read_tree(source: Source) -> WarpTrace:
    """Read a tree of Hatchet. Raises `NotAReport` if no node has cycles of ranges, or the file is damaged."""
    data, damage = whole_file(source)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotAReport(
            f"{source.name} is no whole JSON: {damage or error}.", "The file may be cut.", "Record it again."
        ) from error
    launches: list[TracedLaunch] = []
    sums: list[RangeSum] = []
    for root in document if isinstance(document, list) else ():
        for kernel, path, cycles in _ranges_below(root):
            if not launches or launches[-1].kernel != kernel:
                launches.append(TracedLaunch(kernel))
            sums.append(RangeSum(len(launches) - 1, path, cycles))
    if not sums:
        raise NotAReport(
            f"{source.name} is a tree of Proton without cycles of ranges in kernels.",
            "It was recorded around kernels, not inside of them.",
            "Record with: proton.start(backend=\"instrumentation\"), and data=\"trace\" for times",
        )  # fmt: skip
    return WarpTrace(TOOL, launches, Warps.of([], [], []), NO_RANGES, [], sums=sums, clock=Clock.CYCLES)


def _ranges_below(root: Any) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Kernel, path and cycles of every node with cycles below a root; the root's own cycles are always 0.

    The node above the outermost one is the kernel.
    """
    waiting: list[tuple[Any, str, tuple[str, ...]]] = [(one, "", ()) for one in reversed(_children(root))]
    while waiting:
        node, above, path = waiting.pop()
        if not isinstance(node, dict):
            continue
        frame, metrics = node.get("frame"), node.get("metrics")
        name = frame.get("name") if isinstance(frame, dict) else None
        cycles = metrics.get("cycles") if isinstance(metrics, dict) else None
        name = name if isinstance(name, str) else "?"
        if isinstance(cycles, int | float) and not isinstance(cycles, bool) and 0 <= cycles < 2**63:
            path = (*path, name)
            yield above, path, float(cycles)
        else:
            above, path = name, ()
        waiting += [(child, above, path) for child in reversed(_children(node))]


def _children(node: Any) -> list[Any]:
    children = node.get("children") if isinstance(node, dict) else None
    return children if isinstance(children, list) else []
