"""Traces of the PyTorch profiler (Kineto): GPU work, API calls and host ranges.

A trace is a timeline: it holds times, shapes of launches and of tensors, and no counters. A kernel and the call that
launched it share a correlation id. Times are in microseconds, with a fraction since PyTorch 2.2 and whole before; they
become whole nanoseconds (`whole_nanoseconds`). A JSON number is a double, so up to 2^43 microseconds (101 days) every
printed nanosecond is exact. Beyond that, a trace without a base time holds times since 1970, whose fractions the double
itself has lost; whole microseconds stay exact. Fields: libkineto's `output_json.cpp` and `MetadataFieldCatalog.h`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from ncu_launch.notes import Note, NoteKind

from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.schema.vendors import Vendor
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import (
    MEMCPY,
    MISSING,
    Activity,
    ApiCalls,
    CollectiveArguments,
    EventWaits,
    GpuOperations,
    HostRanges,
    Integers,
    Overheads,
    Owner,
    columns_of,
    empty,
)
from ncu_parsers.timelines.activity.operation_times import broken_note, lost_note
from ncu_parsers.timelines.activity.samples import SampledActivity
from ncu_parsers.timelines.kineto.chrome_trace import (
    EXACT_UNTIL,
    SINCE_1970,
    Thread,
    TracedDevice,
    event_mapping,
    event_whole,
    lost_times,
    traced_devices,
    vendor_of_runtime,
    whole_nanoseconds,
)
from ncu_parsers.timelines.kineto.launching_calls import Calls, OperatorIds, Work, ambiguous_note, calls_that_launched
from ncu_parsers.timelines.kineto.traced_events import Columns, Launched, TracedEvents, WorkArguments

TOOL = "kineto"
RECORDED_WITH = "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"

COPY_WORDS = {
    "HtoD": activity.HOST_TO_DEVICE, "DtoH": activity.DEVICE_TO_HOST, "DtoD": activity.DEVICE_TO_DEVICE,
    "PtoP": activity.PEER_TO_PEER, "HtoH": activity.HOST_TO_HOST, "HtoA": activity.HOST_TO_DEVICE,
    "AtoH": activity.DEVICE_TO_HOST, "AtoA": activity.DEVICE_TO_DEVICE, "AtoD": activity.DEVICE_TO_DEVICE,
    "DtoA": activity.DEVICE_TO_DEVICE,
}  # fmt: skip
MEMORY_WORDS = {
    "Pageable": activity.PAGEABLE, "Pinned": activity.PINNED, "Device": activity.DEVICE_MEMORY,
    "Array": activity.ARRAY, "Managed": activity.MANAGED, "Managed Static": activity.MANAGED,
    "Device Static": activity.DEVICE_MEMORY,
}  # fmt: skip
"""Kineto's words for CUPTI's kinds of memory. HIP traces have "Host", which may be pageable or pinned."""

_COPY = re.compile(r"Memcpy (\w+)(?: \((.*?) -> (.*?)\))?")

TYPE_BYTES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Float8_e4m3fnuz": 1, "Float8_e5m2fnuz": 1,
    "Short": 2, "Half": 2, "BFloat16": 2, "Int": 4, "Float": 4, "Long": 8, "Double": 8, "ComplexFloat": 8,
    "ComplexDouble": 16,
}  # fmt: skip
"""Bytes of an element, by PyTorch's names of scalar types (c10/core/ScalarType.h)."""


def read_activity(source: Source, functions: Callable[[str], bool] = lambda name: True) -> Activity:
    """Read one trace. Python functions are kept if they are modules, or if `functions` accepts their names.

    Raises `NotAReport` if it holds no event of PyTorch's profiler, `NcuBenchError` if it cannot be opened.
    """
    events = TracedEvents(source, functions)
    if not (
        len(events.counters.samples) or any(len(one["start"]) for one in (events.work, events.calls, events.ranges))
    ):
        raise _refusal(source, events)
    owners = _owners(events.threads)
    process, ambiguous = _launching_processes(events, owners)
    lost = lost_times(events.work["start"], events.work["duration"], events.header)
    rounded = any(_is_rounded(one["start"]) for one in (events.work, events.calls, events.ranges))
    order, operations, fact = _operations(events, process, np.flatnonzero(~lost))
    calls = columns_of(
        ApiCalls, {**_in_ns(events.calls), "owners": owners, "kernels": list(events.kernels)}, list(events.names)
    ).by_start()
    ranges = columns_of(HostRanges, {**_in_ns(events.ranges), "labels": events.labels, "owners": owners}).by_start()
    place = {row: at for at, row in enumerate(order.tolist())} if events.collectives else {}
    header, gpus = events.header, operations.gpus()
    known, runtime = traced_devices(header), vendor_of_runtime(header)
    devices = {gpu: known.get(gpu[1], TracedDevice(None, None, runtime)) for gpu in gpus}
    return Activity(
        source.name, TOOL, operations, calls, ranges, _overheads(events, owners),
        {place[row]: _collective(said) for row, said in events.collectives.items() if row in place},
        {gpu: one.name for gpu, one in devices.items() if one.name},
        _notes(events, rounded, int(lost.sum()), ambiguous),
        _missing(calls, ranges),
        vendors={gpu: one.vendor for gpu, one in devices.items() if one.vendor},
        capabilities={gpu: one.compute_capability for gpu, one in devices.items() if one.compute_capability},
        facts=[one.facts() for one in events.launched], fact=fact,
        as_written=np.argsort(order), broken=events.broken + int(lost.sum()), others=events.others,
        session={key: str(value) for key, value in header.items() if isinstance(value, str | int | float)},
        rank=event_whole(event_mapping(header.get("distributedInfo")).get("rank"), bits=31),
        recorded_with=RECORDED_WITH if {one.vendor for one in devices.values()} <= {None, Vendor.NVIDIA} else "",
        sampled=_sampled(events, operations, calls, ranges), event_waits=_event_waits(events, calls),
        dependencies=events.flows.dependencies(operations),
    )  # fmt: skip


def _sampled(events: TracedEvents, *recorded: GpuOperations | ApiCalls | HostRanges) -> SampledActivity:
    """The samples taken while any operation, call or range was recorded."""
    if not len(events.counters.samples):
        return SampledActivity()
    times = [(int(table.start.min()), int(table.end.max())) for table in recorded if len(table)]
    return events.counters.samples.sampled(min(one for one, _ in times) if times else None,
                                   max(end for _, end in times) if times else None)  # fmt: skip


def _owners(threads: Mapping[Thread, int]) -> list[Owner]:
    """Processes and threads as numbers; texts become negative ones."""
    texts: dict[str, int] = {}

    def number(name: int | str) -> int:
        whole = event_whole(name)
        return texts.setdefault(str(name), -2 - len(texts)) if whole is None else whole

    return [(number(process), number(thread)) for process, thread in threads]


def _in_ns(columns: Columns) -> Columns:
    """Columns with start and end in ns in place of start and duration in microseconds."""
    start = whole_nanoseconds(columns.pop("start"))
    return {**columns, "start": start, "end": start + whole_nanoseconds(columns.pop("duration"))}


def _is_rounded(start: npt.NDArray[np.float64]) -> bool:
    """True if any of these times in microseconds has lost a part of its fraction."""
    return bool(((start > EXACT_UNTIL) & (start % 1 != 0)).any())


def _operations(events: TracedEvents, process: Integers, rows: Integers) -> tuple[Integers, GpuOperations, Integers]:
    """The time order of these rows of a trace; in this order, the operations and the index of each one's facts."""
    columns = _in_ns(events.work)
    order = rows[np.lexsort((-columns["end"][rows], columns["start"][rows]))]
    columns = {name: column[order] for name, column in columns.items()}
    launched, fact = list(events.launched), columns.pop("launched")
    names: dict[str, int] = {}
    of_launched = np.array(
        [(one.kind, names.setdefault(one.name, len(names)), *_copied(one)) for one in launched], np.int64
    ).reshape(-1, 5)
    kinds = ("kind", "name", "direction", "source_memory", "destination_memory")
    columns |= dict(zip(kinds, of_launched[fact].T, strict=True))
    return order, columns_of(GpuOperations, {**columns, "process": process[order]}, list(names)), fact


def _copied(one: Launched) -> tuple[int, int, int]:
    """Direction, source and destination memory of a copy, from its name."""
    if one.kind != MEMCPY:
        return MISSING, MISSING, MISSING
    found = _COPY.match(one.name)
    word, *ends = found.groups() if found else ("", "", "")
    source, destination = (MEMORY_WORDS.get(end or "", activity.UNKNOWN_MEMORY) for end in ends)
    return COPY_WORDS.get(word, activity.OTHER_DIRECTION), source, destination


def _event_waits(events: TracedEvents, calls: ApiCalls) -> EventWaits:
    """Waits for events; empty for a trace of several processes, which does not say whose they are."""
    columns = _in_ns(events.event_waits)
    process = {calls.owners[owner][0] for owner in np.unique(calls.owner).tolist()}
    if len(process) != 1:
        return empty(EventWaits)
    return columns_of(EventWaits, {**columns, "process": np.full(len(columns["start"]), *process)}).at(
        np.argsort(columns["start"], kind="stable")
    )


def _overheads(events: TracedEvents, owners: Sequence[Owner]) -> Overheads:
    columns = _in_ns(events.overheads)
    process, thread = np.array(owners or [(MISSING, MISSING)], np.int64)[columns.pop("owner")].T
    return columns_of(Overheads, {**columns, "process": process, "thread": thread}).by_start()


def _launching_processes(events: TracedEvents, owners: Sequence[Owner]) -> tuple[Integers, int]:
    """The process whose call launched each row of work, and the number of ambiguous rows.

    A trace of one process has one answer. Without calls, the process of the ranges is used.
    """
    work, calls, ranges = events.work, events.calls, events.ranges
    process = np.array([process for process, _ in owners], np.int64)
    is_python = np.array([label.kind == activity.PYTHON for label in events.labels], np.bool_)
    owner = calls["owner"] if len(calls["owner"]) else ranges["owner"][~is_python[ranges["label"]]]
    alone = np.unique(process[np.unique(owner)])
    if len(alone) <= 1 or not len(calls["owner"]):
        return np.full(len(work["start"]), alone[0] if len(alone) == 1 else MISSING), 0
    of_calls = process[calls["owner"]]
    found = calls_that_launched(
        Work(work["correlation"], work["external"], work["device"]),
        Calls(calls["correlation"], calls["external"], of_calls),
        OperatorIds(process[events.externals["owner"]], events.externals["external"]),
    )
    return np.where(found.places >= 0, of_calls[found.places], MISSING), found.ambiguous


def _notes(events: TracedEvents, rounded: bool, lost: int, ambiguous: int) -> list[str]:
    notes: list[str] = [Note(SINCE_1970, NoteKind.METHOD)] if rounded else []
    if lost:
        notes.append(lost_note(lost))
    if events.broken:
        notes.append(broken_note(events.broken))
    if events.is_cut:
        damage = events.damage or "in the middle of an event"
        notes.append(Note(f"the file ends early and was read up to there ({damage})", NoteKind.LOST))
    return [*notes, ambiguous_note(ambiguous)] if ambiguous else notes


def _collective(said: WorkArguments) -> CollectiveArguments:
    size = TYPE_BYTES.get(str(said.dtype))
    elements = [event_whole(one) for one in (said.elements_in, said.elements_out)]
    bytes_in, bytes_out = (None if count is None or size is None else count * size for count in elements)
    name = str(said.collective) if said.collective else None
    return CollectiveArguments(name, bytes_in, bytes_out, event_whole(said.ranks, bits=31) or None)


def _refusal(source: Source, events: TracedEvents) -> NotAReport:
    if events.others or events.broken or "traceEvents" in events.header:
        return NotAReport(
            f"{source.name} is a trace, and none of its {events.others + events.broken} events are GPU work or "
            "operators of PyTorch.",
            "It may be of another program, or cut before its first event.",
            "Write one with torch.profiler: profile(...) and export_chrome_trace(FILE).",
        )
    return NotAReport(
        f"{source.name} is JSON without the events of a trace.",
        "Of JSON, traces of PyTorch's profiler and results of rocprofv3 are read.",
        "Write one with torch.profiler: profile(...) and export_chrome_trace(FILE).",
    )


def _missing(calls: ApiCalls, ranges: HostRanges) -> list[str]:
    missing = []
    if not len(calls):
        missing.append("no API calls were recorded, so the causes of gaps are not known (ProfilerActivity.CPU)")
    if not len(ranges):
        missing.append("no ranges of the host were recorded, so what it did is not named (ProfilerActivity.CPU)")
    return missing
