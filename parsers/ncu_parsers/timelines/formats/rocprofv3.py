"""JSON of rocprofv3 (ROCprofiler-SDK): work on AMD's GPUs, calls of HIP and HSA, and ranges of ROCTx.

One list `rocprofiler-sdk-tool` with an object per process: `agents` are its CPUs and GPUs, `kernel_symbols` the names
of kernels, `strings` the names of API calls, by numbers of kind and operation, and of ranges. `buffer_records` hold the
events. Times are ns, and grids count work-items. A truncated file is read up to its end. Layout: rocprofiler-sdk,
source/lib/output/generateJSON.cpp, and the records of include/rocprofiler-sdk/buffer_tracing.h.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.schema.vendors import Vendor, vendor_named
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import DAMAGE, Source, read_some
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import KERNEL, MEMCPY, NVTX, Activity, LaunchFacts
from ncu_parsers.timelines.activity.recording import Recording

TOOL = "rocprofv3"
ROOT = "rocprofiler-sdk-tool"
GPU = 2
"""`type` of agents: rocprofiler_agent_type_t."""
KERNELS, COPIES, MARKERS = "kernel_dispatch", "memory_copy", "marker_api"
NO_EVENTS = frozenset({KERNELS, COPIES, MARKERS, "memory_allocation", "scratch_memory"})
"""Records other than API calls and samples."""
BLOCK = 1 << 20
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

COPIED = {
    "HOST_TO_DEVICE": ("HtoD", activity.HOST_TO_DEVICE, activity.UNKNOWN_MEMORY, activity.DEVICE_MEMORY),
    "DEVICE_TO_HOST": ("DtoH", activity.DEVICE_TO_HOST, activity.DEVICE_MEMORY, activity.UNKNOWN_MEMORY),
    "DEVICE_TO_DEVICE": ("DtoD", activity.DEVICE_TO_DEVICE, activity.DEVICE_MEMORY, activity.DEVICE_MEMORY),
    "HOST_TO_HOST": ("HtoH", activity.HOST_TO_HOST, activity.UNKNOWN_MEMORY, activity.UNKNOWN_MEMORY),
}
"""Ends of copies' names (rocprofiler_memory_copy_operation_t) -> Kineto's word, direction, memory at both ends."""

UNNAMED = "(kernel without a name)"
OTHER_COPY = ("", activity.OTHER_DIRECTION, activity.UNKNOWN_MEMORY, activity.UNKNOWN_MEMORY)

Known = TypeVar("Known")


class _Handle(msgspec.Struct, frozen=True, gc=False):
    handle: int | None = None


class _Correlation(msgspec.Struct, frozen=True, gc=False):
    internal: int | None = None


class _Size(msgspec.Struct, frozen=True, gc=False):
    x: int = 0
    y: int = 0
    z: int = 0


class _Dispatch(msgspec.Struct, frozen=True, gc=False):
    agent_id: _Handle = _Handle()
    queue_id: _Handle = _Handle()
    kernel_id: int | None = None
    group_segment_size: int | None = None
    workgroup_size: _Size = _Size()
    grid_size: _Size = _Size()


class _Record(msgspec.Struct, frozen=True, gc=False):
    """Any event; None for fields that it lacks."""

    start_timestamp: int
    end_timestamp: int
    kind: int = -1
    operation: int = -1
    thread_id: int | None = None
    correlation_id: _Correlation = _Correlation()
    dispatch_info: _Dispatch | None = None
    stream_id: _Handle | None = None
    src_agent_id: _Handle = _Handle()
    dst_agent_id: _Handle = _Handle()
    size: int | None = msgspec.field(default=None, name="bytes")


class _Agent(msgspec.Struct, frozen=True):
    id: _Handle
    type: int = 0
    name: str = ""
    product_name: str = ""
    vendor_name: str = ""
    logical_node_type_id: int | None = None


class _Symbol(msgspec.Struct, frozen=True):
    kernel_id: int
    kernel_name: str = ""
    formatted_kernel_name: str = ""
    arch_vgpr_count: int | None = None


class _Named(msgspec.Struct, frozen=True):
    kind: str = ""
    operations: tuple[str, ...] = ()


class _Marker(msgspec.Struct, frozen=True):
    key: int
    value: str


class _Tool(msgspec.Struct, frozen=True):
    """Records of one process; each part is decoded by itself, so that damage in one does not affect others."""

    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    agents: msgspec.Raw = msgspec.Raw(b"[]")
    strings: msgspec.Raw = msgspec.Raw(b"{}")
    kernel_symbols: msgspec.Raw = msgspec.Raw(b"[]")
    buffer_records: msgspec.Raw = msgspec.Raw(b"{}")
    callback_records: msgspec.Raw = msgspec.Raw(b"{}")


def read_activity(source: Source) -> Activity:
    """Read one file. Raises `NotAReport` if nothing of it can be read, `NcuBenchError` if it cannot be opened."""
    found = Recording(source.name, TOOL)
    text, damage = _text_of(source)
    try:
        tools = _tools_in(text)
    except UNREADABLE as error:
        text = _closed(text.decode("utf-8", "replace")).encode("utf-8", "replace")
        try:
            tools = _tools_in(text)
        except UNREADABLE:
            raise NotAReport(
                f"{source.name} is JSON of rocprofv3, and cannot be read: {error}.",
                "It is cut off or damaged before its first event.",
                "Copy it again, or record anew: rocprofv3 --sys-trace --output-format json -- PROGRAM",
            ) from error
        found.notes.append(f"the file is cut off or damaged, and was read up to there ({damage or error})")
    for number, tool in enumerate(tools):
        memory.require_memory(source.name)
        _Process(found, tool, number).read()
    return found.activity()


def _text_of(source: Source) -> tuple[bytes, str]:
    """The text, unpacked up to any damage, and a description of the damage; "" if there is none."""
    blocks: list[bytes] = []
    with source.open() as stream:
        try:
            while block := read_some(stream, BLOCK):
                blocks.append(block)
                memory.require_memory(source.name)
        except DAMAGE as error:
            return b"".join(blocks), str(error)
    return b"".join(blocks), ""


def _tools_in(text: bytes) -> list[_Tool]:
    found = msgspec.json.decode(text, type=dict[str, msgspec.Raw]).get(ROOT, msgspec.Raw(b"[]"))
    return [tool for one in _each(found) if (tool := _decoded(one, _Tool)) is not None]


def _each(data: msgspec.Raw) -> Sequence[msgspec.Raw]:
    """The items of a list; any other value counts as its only item."""
    found = _decoded(data, list[msgspec.Raw])
    return [data] if found is None else found


def _decoded(data: msgspec.Raw, kind: type[Known]) -> Known | None:
    """A value of that type; None for another type."""
    try:
        return msgspec.json.decode(data, type=kind)
    except UNREADABLE:
        return None


def _closed(text: str) -> str:
    """Repair truncated JSON: cut it after the last complete inner object or list, and close the open brackets."""
    opened: list[str] = []
    whole, closing = 0, ""
    for found in re.finditer(r'"(?:[^"\\]|\\.)*"|[][{}]', text):
        one = found[0]
        if one in "{[":
            opened.append("}" if one == "{" else "]")
        elif one in "}]":
            if not opened or opened.pop() != one:
                break
            whole, closing = found.end(), "".join(reversed(opened))
    return text[:whole] + closing


class _Process:
    """Records of one process, on their way into a recording. `number` replaces the process id if it is missing."""

    def __init__(self, found: Recording, tool: _Tool, number: int) -> None:
        self._found, self._tool = found, tool
        said = _decoded(tool.metadata, dict[str, Any]) or {}
        process = said.get("pid")
        self._process = process if isinstance(process, int) else number
        if isinstance(command := said.get("command"), list):
            found.session.setdefault("command", " ".join(map(str, command)))
        strings = _decoded(tool.strings, dict[str, msgspec.Raw]) or {}
        self._operations = [one or _Named() for one in self._items(strings.get("buffer_records"), _Named)]
        self._markers = {one.key: one.value for one in self._items(strings.get(MARKERS), _Marker) if one}
        agents = (one for one in self._items(tool.agents, _Agent) if one)
        self._agents = {one.id.handle: one for one in agents if one.id.handle is not None}
        self._symbols = {one.kernel_id: one for one in self._items(tool.kernel_symbols, _Symbol) if one}
        self._facts: dict[tuple[Any, ...], LaunchFacts] = {}

    def read(self) -> None:
        """Add all events to the recording."""
        self._take_devices()
        records = _decoded(self._tool.buffer_records, dict[str, msgspec.Raw]) or {}
        for kernel in self._items(records.get(KERNELS), _Record):
            self._take_kernel(kernel)
        for copy in self._items(records.get(COPIES), _Record):
            self._take_copy(copy)
        for marker in self._items(records.get(MARKERS), _Record):
            self._take_marker(marker)
        calls = [kind for kind in records if kind.endswith("_api") and kind not in NO_EVENTS]
        for kind in calls:
            for call in self._items(records[kind], _Record):
                self._take_call(call)
        self._say_what_is_missing(records, calls)

    def _items(self, data: msgspec.Raw | None, kind: type[Known]) -> Iterator[Known | None]:
        """The items of a list: all decoded at once, or one by one if that fails; None for a broken one."""
        if data is None:
            return
        whole = _decoded(data, list[kind])  # type: ignore[valid-type]
        if whole is not None:
            yield from whole
            return
        for item in _each(data):
            one = _decoded(item, kind)
            self._found.broken += one is None
            yield one

    def _take_devices(self) -> None:
        for agent in self._agents.values():
            if agent.type == GPU and agent.logical_node_type_id is not None:
                gpu = (self._process, agent.logical_node_type_id)
                if agent.product_name or agent.name:
                    self._found.devices[gpu] = agent.product_name or agent.name
                self._found.vendors[gpu] = vendor_named(agent.vendor_name) or Vendor.AMD

    def _device(self, handle: int | None) -> int | None:
        agent = None if handle is None else self._agents.get(handle)
        return agent.logical_node_type_id if agent is not None and agent.type == GPU else None

    def _take_kernel(self, one: _Record | None) -> None:
        if one is None or one.dispatch_info is None:
            self._found.broken += one is not None
            return
        run = one.dispatch_info
        symbol = None if run.kernel_id is None else self._symbols.get(run.kernel_id)
        name = (symbol.formatted_kernel_name or symbol.kernel_name) if symbol is not None else ""
        unnamed = UNNAMED if run.kernel_id is None else f"(kernel {run.kernel_id})"
        self._found.operation(
            KERNEL, name.removesuffix(".kd") or unnamed, one.start_timestamp, one.end_timestamp,
            process=self._process, device=self._device(run.agent_id.handle), stream=_stream_of(one),
            correlation=one.correlation_id.internal, facts=self._facts_of(run, symbol),
        )  # fmt: skip

    def _facts_of(self, run: _Dispatch, symbol: _Symbol | None) -> LaunchFacts:
        sides = ((run.grid_size.x, run.workgroup_size.x), (run.grid_size.y, run.workgroup_size.y),
                 (run.grid_size.z, run.workgroup_size.z))  # fmt: skip
        registers = symbol.arch_vgpr_count if symbol is not None else None
        key = (*sides, run.group_segment_size, registers)
        if key not in self._facts:
            is_known = all(0 < items < 1 << 31 and 0 < group < 1 << 31 for items, group in sides)
            x, y, z = (-(-items // group) if is_known else 0 for items, group in sides)
            block = tuple(group for _, group in sides)
            self._facts[key] = LaunchFacts(
                (x, y, z) if is_known else None, (block[0], block[1], block[2]) if is_known else None, registers,
                run.group_segment_size,
            )  # fmt: skip
        return self._facts[key]

    def _take_copy(self, one: _Record | None) -> None:
        if one is None:
            return
        source, target = (self._device(agent.handle) for agent in (one.src_agent_id, one.dst_agent_id))
        end = self._name_of(one).removeprefix("MEMORY_COPY_")
        word, *copied = COPIED.get(end, OTHER_COPY)
        if word == "DtoD" and source != target:
            word, copied[0] = "PtoP", activity.PEER_TO_PEER
        self._found.operation(
            MEMCPY, f"Memcpy {word}".strip(), one.start_timestamp, one.end_timestamp, process=self._process,
            device=source if target is None else target, stream=_stream_of(one), size=one.size,
            copied=(copied[0], copied[1], copied[2]), correlation=one.correlation_id.internal,
        )  # fmt: skip

    def _take_marker(self, one: _Record | None) -> None:
        """Add a range of ROCTx; a mark has no duration and is ignored."""
        name = self._markers.get(one.correlation_id.internal or 0) if one is not None else None
        if one is not None and name is not None and one.end_timestamp != one.start_timestamp:
            self._found.range(
                NVTX, name, one.start_timestamp, one.end_timestamp, process=self._process, thread=one.thread_id
            )

    def _take_call(self, one: _Record | None) -> None:
        if one is not None:
            self._found.call(
                self._name_of(one), one.start_timestamp, one.end_timestamp, process=self._process,
                thread=one.thread_id, correlation=one.correlation_id.internal,
            )  # fmt: skip

    def _name_of(self, one: _Record) -> str:
        """The name of an event's operation within its kind."""
        operations = self._operations[one.kind].operations if 0 <= one.kind < len(self._operations) else ()
        return operations[one.operation] if 0 <= one.operation < len(operations) else "(no name)"

    def _say_what_is_missing(self, records: Mapping[str, msgspec.Raw], calls: Sequence[str]) -> None:
        missing = self._found.missing
        if not any(_each(records[kind]) for kind in calls):
            missing.append("no API calls were recorded, so the causes of gaps are not known (rocprofv3 --sys-trace)")
        if not _each(records.get(MARKERS, msgspec.Raw(b"[]"))):
            missing.append("no ranges of ROCTx were recorded, so what the host did is not named (--marker-trace)")
        if not _each(records.get(COPIES, msgspec.Raw(b"[]"))):
            missing.append("copies were not recorded, except those that kernels do (--memory-copy-trace)")
        counted = (_decoded(self._tool.callback_records, dict[str, msgspec.Raw]) or {}).get("counter_collection")
        if counted is not None and (rows := _each(counted)):
            self._found.notes.append(f"the counters of {len(rows):,} dispatches are not read, only times are")


def _stream_of(one: _Record) -> int | None:
    """The HIP stream; if not recorded, the queue of the GPU."""
    if one.stream_id is not None:
        return one.stream_id.handle
    return one.dispatch_info.queue_id.handle if one.dispatch_info is not None else None
