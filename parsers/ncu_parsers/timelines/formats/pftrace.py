"""Perfetto's own traces (`.pftrace`) as PyTorch's newer profiler ("Cuspy") writes them: a message of packets.

GPU work is a GpuRenderStageEvent on a queue that stands for a stream, with its duration, launch and the events that it
waited for; API calls and host ranges are slices that begin and end on tracks; samples are GpuCounterEvents. Names are
interned: a packet may define numbers that later packets of its sequence use. The format states no version. A Cuspy
trace clamps the end of an operation to the start of the next one of its queue, where CUPTI's times of graph replays
overlap. Facts: the descriptions in PyPI's `perfetto` 0.59, and PyTorch's
`torch/profiler/_cuspy` and `cuspy_pftrace.cpp`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ncu_parsers.report_data.protobuf_messages import Damaged, MessageTypes, fields_in
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.schema.vendors import Vendor
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import (
    FARTHEST,
    KERNEL,
    MEMCPY,
    MEMSET,
    Activity,
    LaunchFacts,
    OperatorInputs,
)
from ncu_parsers.timelines.activity.recording import Recording
from ncu_parsers.timelines.activity.sample_series import SampleSeries
from ncu_parsers.timelines.formats.whole_file import whole_file

TOOL = "PyTorch's profiler (Perfetto)"
PACKET = 1
"""The field of a trace that holds a packet; all others are skipped."""
CLEARED = 1
"""Bit of a packet's `sequence_flags`: numbers that its sequence defined before are void."""
SLICE_BEGIN, SLICE_END = 1, 2
REALTIME, BOOTTIME = 1, 6
"""Perfetto's ids of the wall clock, and of the clock of all times unless a packet names another."""

OPERATIONS = {"Kernel": KERNEL, "Memcpy": MEMCPY, "Memset": MEMSET}
PASSED_OVER = ("Annotation", "EventRecord", "HostNode")
"""Stages that are not GPU work: ranges, and nodes of graphs that record an event or call the host."""
RANGES = {"cpu_op": activity.OPERATOR, "user_annotation": activity.ANNOTATION, "python_function": activity.PYTHON}
CALLS = ("cuda_runtime", "cuda_driver")
NUMBERS = {"priority": "priority", "channel": "channel"}
"""Names of a stage's extra data -> names of `LaunchFacts.numbers`."""
CLAMPED = ("end_basis", "start of the next on its stream")
MOST_ENTRIES = 1 << 20
"""Most numbers of one kind that a sequence may define."""

_EXTRA = ((1, "name", "bytes"), (2, "value", "bytes"))
_NAMED = ((1, "iid", "uint64"), (2, "name", "bytes"))
PFTRACE_MESSAGES = {
    "Packet": (
        (6, "clock_snapshot", "ClockSnapshot"), (8, "timestamp", "uint64"), (10, "sequence", "uint32"),
        (11, "track_event", "TrackEvent"), (12, "interned", "Interned"), (13, "flags", "uint32"),
        (52, "counters", "CounterEvent"), (53, "stage", "StageEvent"), (58, "clock", "uint32"),
        (60, "track", "Track"),
    ),
    "ClockSnapshot": ((1, "clocks", "Clock*"),),
    "Clock": ((1, "id", "uint32"), (2, "timestamp", "uint64")),
    "Track": ((1, "uuid", "uint64"), (3, "process", "Process"), (4, "thread", "Thread")),
    "Process": ((1, "pid", "uint32"),),
    "Thread": ((1, "pid", "uint32"), (2, "tid", "int64")),
    "TrackEvent": (
        (3, "categories", "uint64*"), (4, "said", "Said*"), (9, "type", "uint32"), (10, "name_iid", "uint64"),
        (11, "track", "uint64"), (22, "category_names", "bytes*"), (23, "name", "bytes"),
    ),
    "Said": (
        (10, "name", "bytes"), (3, "positive", "uint64"), (4, "whole", "int64"), (5, "real", "double"),
        (6, "text", "bytes"), (11, "entries", "Said*"), (12, "values", "Said*"),
    ),
    "Interned": (
        (1, "categories", "Named*"), (2, "names", "Named*"), (23, "contexts", "Context*"), (24, "stages", "Named*"),
        (47, "counters", "CounterTable*"), (1000, "kernels", "Kernel*"), (1001, "arguments", "Named*"),
    ),
    "Named": _NAMED,
    "Context": ((1, "iid", "uint64"), (2, "pid", "uint32")),
    "Kernel": (*_NAMED, (3, "demangled", "bytes")),
    "CounterTable": ((1, "iid", "uint64"), (2, "description", "CounterDescription"), (3, "gpu", "uint32")),
    "CounterDescription": ((1, "specs", "CounterSpec*"),),
    "CounterSpec": ((1, "id", "uint32"), (2, "name", "bytes")),
    "CounterEvent": (
        (1, "description", "CounterDescription"), (2, "values", "CounterValue*"), (3, "gpu", "uint32"),
        (4, "table", "uint64"),
    ),
    "CounterValue": ((1, "id", "uint32"), (2, "whole", "int64"), (3, "real", "double")),
    "StageEvent": (
        (1, "id", "uint64"), (2, "duration", "uint64"), (5, "context", "uint64"), (6, "extra", "Extra*"),
        (11, "gpu", "uint32"), (13, "queue", "uint64"), (14, "stage", "uint64"), (17, "name", "bytes"),
        (18, "waits", "uint64*"), (19, "kernel", "uint64"), (20, "name_iid", "uint64"), (21, "launch", "Launch"),
    ),
    "Extra": _EXTRA,
    "Launch": ((1, "grid", "Size"), (2, "block", "Size"), (3, "arguments", "Argument*")),
    "Size": ((1, "x", "uint32"), (2, "y", "uint32"), (3, "z", "uint32")),
    "Argument": ((1, "name_iid", "uint64"), (2, "name", "bytes"), (3, "whole", "int64"), (4, "positive", "uint64")),
}  # fmt: skip
"""Number, name and type of the fields that are read."""
TYPES = MessageTypes("ncu_bench_pftrace", PFTRACE_MESSAGES)


@dataclass
class _Sequence:
    """Definitions by the packets of one sequence so far, by number."""

    names: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)
    stages: dict[int, str] = field(default_factory=dict)
    processes: dict[int, int] = field(default_factory=dict)
    kernels: dict[int, str] = field(default_factory=dict)
    arguments: dict[int, str] = field(default_factory=dict)
    counters: dict[int, tuple[int, dict[int, str]]] = field(default_factory=dict)

    def define(self, interned: Any) -> None:
        """Add the definitions of a packet."""
        for known, entries in (
            (self.names, interned.names), (self.categories, interned.categories), (self.stages, interned.stages),
            (self.arguments, interned.arguments),
        ):  # fmt: skip
            known.update((one.iid, _text(one.name)) for one in entries if len(known) < MOST_ENTRIES)
        self.processes.update((one.iid, one.pid) for one in interned.contexts)
        self.kernels.update((one.iid, _text(one.demangled or one.name)) for one in interned.kernels)
        self.counters.update((one.iid, (one.gpu, _specs(one.description))) for one in interned.counters)


class _Begun(NamedTuple):
    """The begin of a slice: time in ns, track, name, category and annotations."""

    start: int
    track: int
    name: str
    category: str
    said: Sequence[Any]


class _Queued(NamedTuple):
    """A known stage of a GPU. `lane`: GPU and stream (-1 if unknown). `kind` is None for `PASSED_OVER` stages."""

    start: int
    end: int
    process: int | None
    lane: tuple[int, int]
    kind: int | None
    name: str
    number: int
    waits: tuple[int, ...]
    extra: dict[str, str]
    facts: LaunchFacts


def read_activity(source: Source) -> Activity:
    """Read one trace. Raises `NotAReport` if it holds no known GPU work, no slice and no sample."""
    data, damage = whole_file(source)
    found = _Trace(Recording(source.name, TOOL))
    try:
        for number, content in fields_in(memoryview(data)):
            if number == PACKET:
                found.take(bytes(content))
    except Damaged as error:
        damage = damage or str(error)
    if damage:
        found.recording.notes.append(f"the file ends early and was read up to there ({damage})")
    memory.require_memory(source.name)
    found.finish()
    if found.is_empty:
        raise NotAReport(
            f"{source.name} is no trace of PyTorch's profiler that can be read.",
            found.what_was_met(),
            "Write one with torch.profiler: profile(...) and export_chrome_trace(FILE.json), or of Cuspy FILE.pftrace.",
        )
    return found.recording.activity()


class _Trace:
    """Takes the packets of a trace one by one into a recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._sequences: dict[int, _Sequence] = {}
        self._threads: dict[int, tuple[int, int]] = {}
        self._begun: list[_Begun] = []
        self._ended: list[tuple[int, int]] = []
        self._slices = self._packets = 0
        self._queued: list[_Queued] = []
        self._samples = SampleSeries()
        self._series: dict[tuple[int, str], int] = {}
        self._met: Counter[str] = Counter()
        self._other_clocks: Counter[int] = Counter()

    @property
    def is_empty(self) -> bool:
        """True if no known GPU work, slice or sample was found."""
        return not (self._slices or any(one.kind is not None for one in self._queued) or len(self._samples))

    def what_was_met(self) -> str:
        """A sentence on the number of packets, the unknown stages that were met, and the known ones."""
        stages = ", ".join(sorted(self._met)[:8])
        met = f"{self._packets:,} packets" + (f", and stages of GPUs called {stages}" if stages else "")
        return f"It holds {met}; known are the stages {', '.join((*OPERATIONS, *PASSED_OVER))}, and slices of threads."

    def take(self, data: bytes) -> None:
        """Take one packet."""
        try:
            packet = TYPES.decoded("Packet", data)
        except Damaged:
            self.recording.broken += 1
            return
        self._packets += 1
        sequence = self._sequences.setdefault(packet.sequence, _Sequence())
        if packet.flags & CLEARED:
            sequence = self._sequences[packet.sequence] = _Sequence()
        if packet.HasField("interned"):
            sequence.define(packet.interned)
        if packet.HasField("clock_snapshot"):
            self._take_clocks(packet.clock_snapshot)
        if packet.HasField("track"):
            thread = packet.track.thread
            self._threads[packet.track.uuid] = thread.pid or packet.track.process.pid, thread.tid
        if packet.clock not in (0, BOOTTIME) and packet.HasField("timestamp"):
            self._other_clocks[packet.clock] += 1
        elif packet.timestamp >= FARTHEST:
            self.recording.broken += 1
        elif packet.HasField("stage"):
            self._take_stage(packet.timestamp, packet.stage, sequence)
        elif packet.HasField("track_event"):
            self._take_slice(packet.timestamp, packet.track_event, sequence)
        elif packet.HasField("counters"):
            self._take_counters(packet.timestamp, packet.counters, sequence)

    def _take_clocks(self, snapshot: Any) -> None:
        at = {clock.id: clock.timestamp for clock in snapshot.clocks}
        if REALTIME in at and BOOTTIME in at and abs(at[REALTIME] - at[BOOTTIME]) < FARTHEST:
            self.recording.utc_ns = at[REALTIME] - at[BOOTTIME]

    def _take_stage(self, start: int, event: Any, known: _Sequence) -> None:
        stage = known.stages.get(event.stage, "")
        if stage not in OPERATIONS and stage not in PASSED_OVER:
            self._met[stage or "(no name)"] += 1
            self.recording.others += 1
            return
        extra = {_text(one.name): _text(one.value) for one in event.extra}
        kind = OPERATIONS.get(stage)
        self.recording.others += kind is None
        name = known.kernels.get(event.kernel) or known.names.get(event.name_iid) or _text(event.name) or stage
        lane = re.match(r"\[(\d{1,18})\]", known.stages.get(event.queue, ""))
        stream = int(lane[1]) if lane else _number(extra.get("stream id", ""))
        process = known.processes.get(event.context) or _number(extra.get("process_id", ""))
        self._queued.append(
            _Queued(
                start, min(start + event.duration, FARTHEST), process, (event.gpu, -1 if stream is None else stream),
                kind, name, event.id, tuple(event.waits), extra, _facts(event, extra, known),
            )
        )  # fmt: skip

    def _take_slice(self, time: int, event: Any, known: _Sequence) -> None:
        if event.type == SLICE_BEGIN:
            if self._ended:
                self._close()
            name = known.names.get(event.name_iid) or _text(event.name) or "(no name)"
            categories = [known.categories.get(one, "") for one in event.categories]
            category = next(iter((*categories, *map(_text, event.category_names))), "")
            self._begun.append(_Begun(time, event.track, name, category, event.said))
        elif event.type == SLICE_END:
            self._ended.append((time, event.track))

    def _close(self) -> None:
        """Add the slices that have ended; those that are still open wait for their ends."""
        pairs, self._begun = _paired(self._begun, self._ended)
        self._ended = []
        for begun, end in pairs:
            self._add_slice(begun, end)

    def _add_slice(self, begun: _Begun, end: int) -> None:
        self._slices += 1
        process, thread = self._threads.get(begun.track, (None, None))
        if begun.category in CALLS:
            correlation = _said(begun.said, ("correlation",)).get("correlation")
            self.recording.call(
                begun.name, begun.start, end, process=process, thread=thread,
                correlation=correlation if isinstance(correlation, int) and correlation > 0 else None,
            )  # fmt: skip
        elif (kind := RANGES.get(begun.category)) is not None:
            inputs, sequence = _inputs(begun.said) if kind == activity.OPERATOR else (None, None)
            self.recording.range(
                kind, begun.name, begun.start, end, process=process, thread=thread, inputs=inputs, sequence=sequence
            )
        else:
            self.recording.others += 1

    def _take_counters(self, time: int, event: Any, known: _Sequence) -> None:
        gpu, specs = known.counters.get(event.table, (event.gpu, {}))
        specs = specs or _specs(event.description)
        for one in event.values:
            key = gpu, specs.get(one.id, "")
            series = self._series.get(key)
            if series is None:
                series = self._series[key] = self._samples.series(*key)
            value = one.real if one.HasField("real") else float(one.whole)
            if series >= 0 and math.isfinite(value):
                self._samples.add(np.array([series], np.int32), np.array([time]), np.array([value]))

    def finish(self) -> None:
        """Add what only the end settles: operations with their waits, samples, notes."""
        self._close()
        self.recording.broken += len(self._begun)
        clamped = _clamped(self._queued)
        rows: dict[int, int] = {}
        for place, one in enumerate(self._queued):
            if one.kind is not None:
                rows[place] = self._add_operation(one, is_clamped=place in clamped)
        self.recording.waits += _waits(self._queued, rows)
        if clamped:
            self.recording.notes.append(
                f"{len(clamped):,} of {len(rows):,} operations end exactly where the next one of their stream starts, "
                "and may have ended later: PyTorch clamps ends in this format (end_basis), and not in its JSON"
            )
        if self._other_clocks:
            of = ", ".join(f"{count:,} of clock {clock}" for clock, count in self._other_clocks.most_common(3))
            self.recording.notes.append(
                f"packets of other clocks than the trace's own ({BOOTTIME}) were left out: {of}"
            )
        if self._met and not self.is_empty:
            self.recording.notes.append(
                f"stages of GPUs that are not known were left out: {', '.join(sorted(self._met)[:8])}"
            )
        times = [(one.start, one.end) for one in self._queued if one.kind is not None]
        begin, end = min((start for start, _ in times), default=None), max((end for _, end in times), default=None)
        if len(self._samples):
            self.recording.sampled = self._samples.sampled(begin, end)

    def _add_operation(self, one: _Queued, *, is_clamped: bool) -> int:
        device, stream = one.lane
        gpu = (activity.MISSING if one.process is None else one.process, device)
        self.recording.vendors[gpu] = Vendor.NVIDIA
        if arch := re.fullmatch(r"sm_(\d{1,3})(\d)", one.extra.get("arch", "")):
            self.recording.capabilities[gpu] = f"{arch[1]}.{arch[2]}"
        facts = one.facts._replace(more=(*one.facts.more, CLAMPED)) if is_clamped else one.facts
        number = self.recording.operation(
            one.kind or KERNEL, one.name, one.start, one.end, process=one.process, device=device,
            stream=None if stream < 0 else stream, size=_number(one.extra.get("bytes", "")),
            correlation=_number(one.extra.get("correlation", "")), facts=facts,
        )  # fmt: skip
        node = _number(one.extra.get("graph node id", ""))
        if number >= 0 and node is not None:
            self.recording.graph_nodes[number] = node
        return number


def _paired(begun: Sequence[_Begun], ended: Sequence[tuple[int, int]]) -> tuple[list[tuple[_Begun, int]], list[_Begun]]:
    """Slices with their ends, and slices without one.

    PyTorch writes the begins of many slices, then their ends in the same order. If they do not match in that order, an
    end closes the latest open slice of its track.
    """
    if (
        len(begun) == len(ended)
        and all(one.track == track and one.start <= end for one, (end, track) in zip(begun, ended, strict=True))
        and _nest(begun, ended)
    ):
        return [(one, end) for one, (end, _) in zip(begun, ended, strict=True)], []
    pairs: list[tuple[_Begun, int]] = []
    opened: dict[int, list[_Begun]] = {}
    moments = sorted(
        [(one.start, 1, place, one.track) for place, one in enumerate(begun)]
        + [(end, 0, place, track) for place, (end, track) in enumerate(ended)]
    )
    for time, is_begin, place, track in moments:
        stack = opened.setdefault(track, [])
        if is_begin:
            stack.append(begun[place])
        elif stack:
            pairs.append((stack.pop(), time))
    return pairs, [one for stack in opened.values() for one in stack]


def _nest(begun: Sequence[_Begun], ended: Sequence[tuple[int, int]]) -> bool:
    """True if slices with these ends are disjoint or nested on every track."""
    around: dict[int, list[int]] = {}
    for one, end in sorted(
        ((one, end) for one, (end, _) in zip(begun, ended, strict=True)), key=lambda pair: (pair[0].start, -pair[1])
    ):
        stack = around.setdefault(one.track, [])
        while stack and stack[-1] <= one.start:
            stack.pop()
        if stack and stack[-1] < end:
            return False
        stack.append(end)
    return True


def _clamped(queued: Sequence[_Queued]) -> set[int]:
    """Indices of operations that end exactly where the next one of their stream starts."""
    work = sorted(
        (one.lane, one.start, place) for place, one in enumerate(queued) if one.kind is not None and one.lane[1] >= 0
    )
    return {
        place
        for (lane, start, place), (other, following, _) in pairwise(work)
        if lane == other and queued[place].end == following and start < following
    }


def _waits(queued: Sequence[_Queued], rows: dict[int, int]) -> Iterable[tuple[int, int]]:
    """Pairs of `rows`: the second operation waited for the first, directly or through stages that are not GPU work."""
    place_of = {one.number: place for place, one in enumerate(queued)}
    found = []
    for place, row in rows.items():
        waiting, seen = list(queued[place].waits), set[int]()
        while waiting:
            before = place_of.get(waiting.pop())
            if before is None or before in seen or before == place:
                continue
            seen.add(before)
            if before not in rows:
                waiting += queued[before].waits
            elif rows[before] >= 0 and row >= 0:
                found.append((rows[before], row))
    return sorted(found)


def _facts(event: Any, extra: dict[str, str], known: _Sequence) -> LaunchFacts:
    """The facts on a stage's launch."""
    launch = event.launch
    named = {
        known.arguments.get(one.name_iid) or _text(one.name): one.positive if one.HasField("positive") else one.whole
        for one in launch.arguments
    }
    numbers = tuple(
        (ours, int(text)) for name, ours in NUMBERS.items() if re.fullmatch(r"-?\d{1,9}", text := extra.get(name, ""))
    )
    shared = named.get("shared_mem_dynamic")
    return LaunchFacts(
        _size(launch.grid), _size(launch.block), _bounded(named.get("registers_per_thread")), _bounded(shared),
        numbers=numbers,
    )  # fmt: skip


def _size(size: Any) -> tuple[int, int, int] | None:
    found = size.x, size.y, size.z
    return found if all(0 < one < 1 << 31 for one in found) else None


def _bounded(value: int | None) -> int | None:
    return value if value is not None and 0 <= value < 1 << 62 else None


def _inputs(said: Sequence[Any]) -> tuple[OperatorInputs, int | None]:
    """The inputs of an operator, and its `HostRanges.sequence`, None if not recorded."""
    found = _said(said, ("Input Dims", "Input type", "Input Strides", "Concrete Inputs", "Sequence number",
                         "Fwd thread id"))  # fmt: skip
    number = found.get("Sequence number")
    sequence = number if isinstance(number, int) and 0 <= number < 1 << 62 else None
    if sequence is not None and found.get("Fwd thread id"):
        sequence = -2 - sequence
    words = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
    return OperatorInputs(*(found.get(word) for word in words)), sequence


def _said(said: Sequence[Any], wanted: Sequence[str]) -> dict[str, Any]:
    """The `wanted` annotations of a slice by name, as Python values."""
    found: dict[str, Any] = {}
    for one in said:
        name = _text(one.name)
        if name in wanted:
            found[name] = _value(one)
    return found


def _value(one: Any, depth: int = 0) -> Any:
    if one.values and depth < 8:
        return [_value(each, depth + 1) for each in one.values]
    for name in ("whole", "positive", "real", "text"):
        if one.HasField(name):
            value = getattr(one, name)
            return _text(value) if isinstance(value, bytes) else value
    return []


def _specs(description: Any) -> dict[int, str]:
    return {one.id: _text(one.name) for one in description.specs}


def _number(text: str) -> int | None:
    """A number of at most 18 digits; None for other text."""
    return int(text) if text.isdecimal() and len(text) < 19 else None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
