"""Buffers of 64-bit records that flashinfer and profilers modelled on it write from inside kernels.

The first word holds the number of blocks (low half) and of groups per block (high half); every other word a tag (low
half) and the low 32 bits of the global timer in ns (high half). Word i belongs to lane (i - 1) mod (blocks * groups),
the stride at which each lane writes; 0 is a word that was not written. The 32 bits wrap after 4.29 s. The fields of a
tag differ; `LAYOUTS` has them, and `layout_of` tells them apart by the lanes that words are at. Names of ranges are in
the program, not in the buffer.

Read from include/flashinfer/profiler.cuh of flashinfer (before and since SM numbers were added), tvm.tirx.bench,
include/mirage/persistent_kernel/profiler.h and triton_dist/tools/profiler/language.py of Triton-distributed, which has
a word for each block in front of the records: the block's number in its low and that of its SM in its high half.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from ncu_launch.errors import NcuBenchError, WrongUsage

from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.formats.whole_file import whole_file
from ncu_parsers.warp_ranges.warp_trace import MISSING, Integers, TracedLaunch, WarpRanges, Warps, WarpTrace

TOOL = "a buffer of 64-bit records"
Words = npt.NDArray[np.uint64]
NUMPY, ZIP = b"\x93NUMPY", b"PK\x03\x04"
_WORDS_OF_NUMPY = re.compile(rb"'descr':\s*'[<=]?[iu]8'")
DAMAGED = (ValueError, OSError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile)
"""Errors of arrays and archives that are no buffer."""
MOST_BLOCKS, MOST_GROUPS = 1 << 20, 1 << 10
BEGIN, END, INSTANT, FINALIZE = range(4)
HALF = 1 << 31
WRAP = 1 << 32
CLEAR = 0.95
"""Share of words that must be at the lanes that their tags name, by which a layout is told; else events must pair."""


class TagLayout(NamedTuple):
    """Shift and bits of the fields of a tag; `sm` is None where it has none.

    `kinds` are by the value of the lowest bits. `lane` is the lane's number; in tags with an SM, that of its block.
    """

    event: tuple[int, int]
    lane: tuple[int, int]
    sm: tuple[int, int] | None = None
    kinds: tuple[int, ...] = (BEGIN, END, INSTANT, FINALIZE)


LAYOUTS = {
    "sm": TagLayout((2, 10), (12, 12), (24, 8)),
    "wide": TagLayout((2, 10), (12, 20)),
    "mirage": TagLayout((2, 9), (11, 8)),
    "triton-dist": TagLayout((1, 11), (12, 20), kinds=(END, BEGIN)),
}
"""sm: flashinfer since it writes SM numbers. wide: flashinfer before, TIRx, warpscope. mirage: Mirage's megakernels.
triton-dist: Triton-distributed."""
MOST_SMS = 1 << 12


def looks_like(head: bytes) -> bool:
    """True if a file may be such a buffer, by its first bytes: raw, as saved by numpy, or by torch.save."""
    try:
        words = _words_in(head, whole=False)
    except DAMAGED:
        return head.startswith(ZIP) and b"/data.pkl" in head[:128]
    return len(words) > 1 and _is_header(int(words[0])) and _are_tags(words)


def read_trace(source: Source) -> WarpTrace:
    """Read a buffer, with the settings `layout` and `event_names` of the source.

    Raises `NotAReport` if it is none, `WrongUsage` if its layout must be named.
    """
    data, damage = whole_file(source)
    try:
        words = _words_in(data, whole=True)
    except DAMAGED as error:
        raise NotAReport(
            f"{source.name} could not be read as a buffer: {damage or error}.", "The file may be cut.",
            "Save it with numpy.save, or as raw 64-bit words.",
        ) from error  # fmt: skip
    if not len(words) or not _is_header(int(words[0])):
        raise NotAReport(
            f"{source.name} does not begin with the numbers of blocks and groups, as buffers of flashinfer do.",
            "The kernel may not have run, or it writes records of another form.",
            "Compile with the profiler on, copy the buffer after the kernel, and save it whole.",
        )
    return _Buffer(words, source, damage).trace()


def _words_in(data: bytes, *, whole: bool) -> Words:
    """The 64-bit words of a file. Raises `ValueError` for arrays of other types."""
    if data.startswith(NUMPY):
        width = 2 if data[6:7] == b"\1" else 4  # bytes of the header's length, by the version of the format
        begin = 8 + width
        behind = begin + int.from_bytes(data[8:begin], "little")
        if not _WORDS_OF_NUMPY.search(data, begin, behind):
            raise ValueError("an array of another type, and records are 64-bit integers")
        data = data[behind:]
    elif data.startswith(ZIP):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            stored = [one for one in archive.infolist() if one.filename.endswith("/data/0")]
            if len(stored) != 1 or stored[0].compress_type != zipfile.ZIP_STORED:
                raise ValueError("an archive that does not hold one tensor")
            data = archive.read(stored[0])
    elif whole and len(data) % 8 > 0 and len(data) < 16:
        raise ValueError("less than two words")
    return np.frombuffer(data[: len(data) // 8 * 8], "<u8")


def _is_header(word: int) -> bool:
    return 0 < word & (WRAP - 1) <= MOST_BLOCKS and 0 < word >> 32 <= MOST_GROUPS


def _are_tags(words: Words) -> bool:
    """True if the first words have times, and are at lanes as in some layout, unlike those of other binary files."""
    lanes = _Lanes.of(int(words[0]))
    words, _ = _without_blocks(words, lanes)
    at = np.flatnonzero(words[1:])
    if not len(at) or np.mean(words[1 + at] >= WRAP) < CLEAR:  # no times
        return False
    near = max(float(lanes.agree(words, at, layout).mean()) for layout in LAYOUTS.values())
    return near > 0.5 or any(_are_paired(words, at, lanes.in_all, layout) for layout in LAYOUTS.values())


class _Lanes(NamedTuple):
    """The numbers in the first word: blocks, and groups per block. Each group writes records as a lane."""

    blocks: int
    groups: int

    @classmethod
    def of(cls, word: int) -> _Lanes:
        return cls(word & (WRAP - 1), word >> 32)

    @property
    def in_all(self) -> int:
        return self.blocks * self.groups

    def agree(self, words: Words, at: Integers, layout: TagLayout) -> npt.NDArray[np.bool_]:
        """Mask of words whose tag names the lane that they are at."""
        lane = at % self.in_all if layout.sm is None else at % self.in_all // self.groups
        found: npt.NDArray[np.bool_] = _field(words[1 + at], layout.lane) == lane & ((1 << layout.lane[1]) - 1)
        return found


def _without_blocks(words: Words, lanes: _Lanes) -> tuple[Words, Integers | None]:
    """The words without those that Triton-distributed writes for blocks, and the SM of each; None if there are none."""
    of_blocks = words[1 : 1 + lanes.blocks]
    number, sm = _field(of_blocks, (0, 32)), _field(of_blocks, (32, 32))
    if (sm >= MOST_SMS).any() or (number != np.arange(len(of_blocks))).any():
        return words, None
    records = np.concatenate([words[:1], words[1 + lanes.blocks :]])
    of_lanes = [lanes.agree(some, np.flatnonzero(some[1:]), LAYOUTS["triton-dist"]) for some in (words, records)]
    whole, behind = (float(one.mean()) if len(one) else 0.0 for one in of_lanes)
    return (records, sm) if behind >= whole else (words, None)  # word 1 is 0 also if lane 0 wrote nothing


def _kinds(words: Words, layout: TagLayout) -> Integers:
    """Begin, end, instant or finalize, of each word."""
    bits = len(layout.kinds).bit_length() - 1
    return np.array(layout.kinds, np.int64)[_field(words, (0, bits))]


def _are_paired(words: Words, at: Integers, lanes: int, layout: TagLayout) -> bool:
    """True if lanes exist, and each begins every event as often as it ends it, or once more."""
    lane, event = (_field(words[1 + at], place) for place in (layout.lane, layout.event))
    _, row = np.unique(lane << 11 | event, return_inverse=True)
    open_events = np.bincount(row.reshape(-1), np.choose(_kinds(words[1 + at], layout), [1, -1, 0, 0]))
    return bool(np.mean(lane < lanes) >= CLEAR and np.mean((open_events == 0) | (open_events == 1)) >= CLEAR)


def _field(words: Words, place: tuple[int, int]) -> Integers:
    shift, bits = place
    return ((words >> np.uint64(shift)) & np.uint64((1 << bits) - 1)).astype(np.int64)


def layout_of(words: Words, at: Integers, lanes: _Lanes) -> str | None:
    """The layout of a buffer's tags; None if it cannot be told.

    A tag with an SM number, read as wide, names a lane that does not exist, unless all blocks ran on SM 0. Tags of
    Triton-distributed have the lane where wide ones do, but their lanes begin with what wide reads as an end. If words
    are not at the lanes that they name, as with a stride of one's own, lanes must exist and events begin and end.
    """
    found = {name: float(lanes.agree(words, at, layout).mean()) for name, layout in LAYOUTS.items()}
    best = max(found, key=found.__getitem__)
    if found[best] < CLEAR:
        paired = [name for name, layout in LAYOUTS.items() if _are_paired(words, at, lanes.in_all, layout)]
        return "wide" if "wide" in paired else paired[0] if len(paired) == 1 else None
    if found["wide"] == found[best]:  # also where an SM number is 0 everywhere
        first = np.unique(at % lanes.in_all, return_index=True)[1]
        begins = _kinds(words[1 + at[first]], LAYOUTS["wide"])
        return "triton-dist" if np.mean((begins == END) | (begins == FINALIZE)) > 0.5 else "wide"
    return best


class _Buffer:
    def __init__(self, words: Words, source: Source, damage: str) -> None:
        self._settings, self._lanes = source.settings, _Lanes.of(int(words[0]))
        self.lost = [f"the file is damaged: {damage}"] if damage else []
        words, self._sm_of_block = _without_blocks(words, self._lanes)
        at = np.flatnonzero(words[1:] >= WRAP)
        if not len(at):
            raise NotAReport(
                f"{source.name} holds no record.", "The kernel may not have run, or not with its profiler.",
                "Compile with the profiler on, and copy the buffer after the kernel.",
            )  # fmt: skip
        if untimed := int(np.count_nonzero(words[1:])) - len(at):
            self.lost.append(f"{untimed:,} words have no time, as counters behind the records")
        name = self._settings.layout or layout_of(words, at, self._lanes)
        if name is None:
            raise WrongUsage(
                f"How the tags of {source.name} are laid out cannot be told.",
                "Its words are not at the lanes that they name, as with a stride of one's own.",
                f"Name the layout: --layout {' or --layout '.join(LAYOUTS)}",
            )  # fmt: skip
        layout = LAYOUTS[name]
        records, agrees = words[1 + at], self._lanes.agree(words, at, layout)
        lane, kept = at % self._lanes.in_all, agrees
        if agrees.mean() < CLEAR:
            if layout.sm is not None and self._lanes.groups > 1:
                raise NotAReport(
                    f"Which groups wrote the records of {source.name} cannot be told.",
                    "Its tags name the block alone, and its words are not at the lanes of groups.",
                    "Give PROFILER_INIT as many groups as write records, and save the whole buffer.",
                )
            lane = _field(records, layout.lane)
            kept = lane < self._lanes.in_all
        if not kept.all():
            self.lost.append(f"{int((~kept).sum()):,} records are of no lane of the kernel")
        self._records, self._lane = records[kept], lane[kept]
        self._kind = _kinds(self._records, layout)
        self._event = _field(self._records, layout.event)
        fits = self._lanes.blocks <= 1 << layout.lane[1]
        self._sm = _field(self._records, layout.sm) if layout.sm is not None and fits else None

    def trace(self) -> WarpTrace:
        order = np.argsort(self._lane, kind="stable")  # words of a lane are in the order of time
        lane, kind, event = self._lane[order], self._kind[order], self._event[order]
        time = self._unwrapped(lane, (self._records[order] >> np.uint64(32)).astype(np.int64))
        present, row = np.unique(lane, return_inverse=True)
        row = row.reshape(-1)
        ranges = self._paired(row, kind, event, time)
        final = (kind == FINALIZE) & (event == 0)  # as TIRx writes it
        end = np.full(len(present), MISSING)
        end[row[final]] = time[final]
        first = np.concatenate([[True], np.diff(lane) > 0]) if len(lane) else np.zeros(0, np.bool_)
        block, group = np.divmod(present, self._lanes.groups)
        known = {} if self._sm is None else {"sm": self._sm[order][first]}
        if self._sm_of_block is not None and len(self._sm_of_block) == self._lanes.blocks:
            known = {"sm": self._sm_of_block[block]}
        start = np.where(end == MISSING, MISSING, time[first])
        warps = Warps.of(np.zeros(len(present)), block, group, start=start, end=end, **known)
        names = names_of_events(self._settings.event_names, int(event.max(initial=-1)) + 1)
        launch = TracedLaunch("the kernel of this buffer", (self._lanes.blocks, 1, 1))
        notes = [] if self._settings.event_names or not names else [
            f"a buffer has no names of its {len(names):,} events: --event-names load,mma,... names them from 0 on",
        ]  # fmt: skip
        return WarpTrace(TOOL, [launch], warps, ranges, names, lane="group", damage=self.lost, notes=notes)

    def _unwrapped(self, lane: Integers, low: Integers) -> Integers:
        """Times without the wraps of the 32-bit clock, on one clock for all lanes, whose starts lie within 2.1 s."""
        step = np.diff(low, prepend=low[:1])
        new = np.diff(lane, prepend=lane[:1] - 1) != 0
        wraps = np.cumsum(np.where(~new & (step < -HALF), 1, 0))
        since = np.maximum.accumulate(np.where(new, np.arange(len(lane)), 0))
        time = low + (wraps - wraps[since]) * WRAP
        origin = int(low[0]) if len(low) else 0
        shift = np.where(low[since] - origin > HALF, -WRAP, np.where(low[since] - origin < -HALF, WRAP, 0))
        found: Integers = time + shift
        return found - found.min(initial=0) if len(found) and found.min() < 0 else found

    def _paired(self, row: Integers, kind: Integers, event: Integers, time: Integers) -> WarpRanges:
        """Ranges from the alternating begins and ends of each lane's events; the rest is noted and left out."""
        instant = np.flatnonzero(kind == INSTANT)
        sides = np.flatnonzero(kind <= END)
        order = sides[np.lexsort((sides, event[sides], row[sides]))]
        same = (row[order][1:] == row[order][:-1]) & (event[order][1:] == event[order][:-1])
        pairs = np.flatnonzero(same & (kind[order][:-1] == BEGIN) & (kind[order][1:] == END))
        begin, end = order[pairs], order[pairs + 1]
        begun, ended = (int((kind == one).sum()) - len(pairs) for one in (BEGIN, END))
        if begun or ended:
            self.lost.append(f"{begun:,} ranges have no end and {ended:,} no beginning: the buffer may be too short")
        backwards = time[end] < time[begin]
        if backwards.any():
            self.lost.append(f"{int(backwards.sum()):,} ranges end before they begin")
            begin, end = begin[~backwards], end[~backwards]
        rows = np.concatenate([row[begin], row[instant]]).astype(np.int32)
        names = np.concatenate([event[begin], event[instant]]).astype(np.int32)
        ends = np.concatenate([time[end], np.full(len(instant), MISSING)])
        return WarpRanges(rows, names, np.concatenate([time[begin], time[instant]]), ends)


def names_of_events(given: str, events: int) -> list[str]:
    """Names of all events: those `given` (separated by commas, or "@FILE" with one a line), else "event NUMBER".

    Raises `NcuBenchError` if a file of names cannot be read.
    """
    names: Sequence[str] = []
    if given.startswith("@"):
        try:
            with open(given[1:], encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - a name the user typed
                names = [line.strip() for line in lines]
        except OSError as error:
            raise NcuBenchError(
                f"{given[1:]} could not be read: {error.strerror or error}.",
                advice="Name a file with the name of an event in each line: --event-names @names.txt",
            ) from error
    elif given:
        names = [one.strip() for one in given.split(",")]
    return [names[at] if at < len(names) and names[at] else f"event {at}" for at in range(events)]
