"""The events of a trace sorted by purpose, as columns: GPU work, calls, host ranges, overheads."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import (
    KERNEL,
    MEMCPY,
    MEMSET,
    MISSING,
    MODULE_PREFIX,
    CalledKernel,
    LaunchFacts,
    OperatorInputs,
    RangeLabel,
)
from ncu_parsers.timelines.kineto.chrome_trace import (
    LONGEST_TIME,
    Thread,
    TraceEvent,
    TraceEvents,
    event_mapping,
    event_number,
    event_shape,
    event_whole,
    is_call,
)
from ncu_parsers.timelines.kineto.gpu_counters import COUNTER, CounterEvents
from ncu_parsers.timelines.kineto.graph_edges import GraphFlows

Arguments = TypeVar("Arguments", bound=msgspec.Struct)

OPERATIONS = {
    "kernel": KERNEL, "gpu_memcpy": MEMCPY, "gpu_memset": MEMSET,
    "Kernel": KERNEL, "Memcpy": MEMCPY, "Memset": MEMSET,
}  # fmt: skip
"""Categories of GPU work; the second line is for PyTorch 1.8 to 1.12."""
OPERATORS, ANNOTATIONS, PYTHON, OVERHEAD = ("cpu_op", "Operator"), ("user_annotation",), "python_function", "overhead"
SYNCHRONISATION, STREAM_WAIT = "cuda_sync", "Stream Wait Event"
BETWEEN_OPERATIONS = ("graph_event_node", "graph_host_node")
"""Categories of CUDA-graph nodes without GPU work: they record an event or call the host."""
FLOWS = ("s", "f")
MODULE_LOADING_OVERHEADS = ("Lazy Function Loading", "Runtime Triggered Module Loading", "Driver Compiler")
QUEUE_FULL_OVERHEAD = "Command Buffer Full"

EXTERNAL = "External id"
"""Argument of operators, calls and GPU work: the number of the operator around a call."""

Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
SequenceNumber = Annotated[int, msgspec.Meta(ge=0, le=2**62 - 1)]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_ABSENT = msgspec.Raw(b"null")


LIMITERS = {"WARPS": "warps", "REGS": "registers", "SMEM": "shared memory", "BLOCKS": "blocks", "BARRIERS": "barriers"}
"""Kineto's words for the resources that limit blocks per SM, and ours."""
UNLIMITED = 2**31 - 1
"""Kineto's limit for a resource that a kernel does not use (cuda_occupancy.h)."""


class OccupancyLimits(msgspec.Struct, gc=False, rename="camel"):
    """Blocks that fit on an SM, and the limit by each resource; in traces since 2026 (CUDA's `cudaOccResult`)."""

    limiting_factors: str | None = None
    active_blocks_per_multiprocessor: Size | None = None
    block_limit_regs: Size | None = None
    block_limit_shared_mem: Size | None = None
    block_limit_warps: Size | None = None
    block_limit_blocks: Size | None = None
    block_limit_barriers: Size | None = None
    allocated_registers_per_block: Size | None = None
    allocated_shared_mem_per_block: Whole | None = None

    @property
    def limited_by(self) -> str | None:
        """Resources that limit the blocks per SM, separated by commas; None if unknown."""
        words = [one.strip() for one in (self.limiting_factors or "").split("|")]
        return ", ".join(LIMITERS.get(one, one.lower()) for one in words if one) or None


_NUMBERS_OF_LIMITS = (
    ("blocks_per_sm", "active_blocks_per_multiprocessor"), ("block_limit_registers", "block_limit_regs"),
    ("block_limit_shared_memory", "block_limit_shared_mem"), ("block_limit_warps", "block_limit_warps"),
    ("block_limit_blocks", "block_limit_blocks"), ("block_limit_barriers", "block_limit_barriers"),
    ("allocated_registers_per_block", "allocated_registers_per_block"),
    ("allocated_shared_memory_per_block", "allocated_shared_mem_per_block"),
)  # fmt: skip
"""Names of `FACTS`, and the matching fields of `OccupancyLimits`."""


class WorkArguments(msgspec.Struct, gc=False):
    """Arguments of GPU work; None if absent."""

    correlation: Whole | None = None
    device: Size | None = None
    context: Whole | None = None
    stream: Whole | None = None
    grid: tuple[Size, Size, Size] | None = None
    block: tuple[Size, Size, Size] | None = None
    size: Whole | None = msgspec.field(default=None, name="bytes")
    registers: Whole | None = msgspec.field(default=None, name="registers per thread")
    shared_memory: Whole | None = msgspec.field(default=None, name="shared memory")
    occupancy: float = msgspec.field(default=math.nan, name="est. achieved occupancy %")
    graph_node: Whole | None = msgspec.field(default=None, name="graph node id")
    external: Any = msgspec.field(default=None, name=EXTERNAL)
    collective: Any = msgspec.field(default=None, name="Collective name")
    dtype: Any = None
    elements_in: Any = msgspec.field(default=None, name="In msg nelems")
    elements_out: Any = msgspec.field(default=None, name="Out msg nelems")
    ranks: Any = msgspec.field(default=None, name="Group size")
    copy_kind: Any = msgspec.field(default=None, name="copy kind")
    source_kind: Any = msgspec.field(default=None, name="src kind")
    destination_kind: Any = msgspec.field(default=None, name="dst kind")
    limits: OccupancyLimits | None = msgspec.field(default=None, name="occupancy")
    priority: Any = None
    channel: Whole | None = None

    def name_of_copy(self) -> str:
        """Kineto's name for a copy, "Memcpy HtoD (Pinned -> Device)", built from Cuspy's separate fields."""
        ends = (str(one).replace("_", " ").title() for one in (self.source_kind, self.destination_kind))
        return f"Memcpy {self.copy_kind} ({' -> '.join(ends)})"

    def numbers(self) -> tuple[tuple[str, int], ...]:
        """The known `FACTS` with their values. Priorities may be negative; the lowest is the most urgent."""
        found: list[tuple[str, Any]] = [("priority", self.priority), ("channel", self.channel)]
        if self.limits is not None:
            found += [(name, getattr(self.limits, field)) for name, field in _NUMBERS_OF_LIMITS]
        return tuple((name, one) for name, one in found if type(one) is int and -UNLIMITED < one < UNLIMITED)


class SyncArguments(msgspec.Struct, gc=False):
    """Arguments of a synchronisation; None if absent, or unknown to the profiler (-1 in the trace)."""

    kind: str | None = msgspec.field(default=None, name="cuda_sync_kind")
    correlation: Whole | None = None
    context: Whole | None = None
    stream: Whole | None = None
    source: Whole | None = msgspec.field(default=None, name="wait_on_stream")
    record: Whole | None = msgspec.field(default=None, name="wait_on_cuda_event_record_corr_id")


class NodeArguments(msgspec.Struct, gc=False):
    """Device and stream of a graph node that is not an operation."""

    stream: Whole | None = None
    device: Size | None = None


class CallArguments(msgspec.Struct, gc=False):
    """Arguments of a runtime call. HIP calls name the kernel even during graph capture, when nothing runs."""

    correlation: Whole | None = None
    kernel: str | None = None
    grid: tuple[Size, Size, Size] | None = None
    external: Any = msgspec.field(default=None, name=EXTERNAL)


class OperatorArguments(msgspec.Struct, gc=False):
    """Arguments of an operator; its inputs are JSON."""

    number: SequenceNumber | None = msgspec.field(default=None, name="Sequence number")
    forward_thread: Any = msgspec.field(default=None, name="Fwd thread id")
    shapes: msgspec.Raw = msgspec.field(default=_ABSENT, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=_ABSENT, name="Input type")
    strides: msgspec.Raw = msgspec.field(default=_ABSENT, name="Input Strides")
    values: msgspec.Raw = msgspec.field(default=_ABSENT, name="Concrete Inputs")
    external: Any = msgspec.field(default=None, name=EXTERNAL)


def _decoder(kind: type[Arguments]) -> Callable[[msgspec.Raw], Arguments]:
    """A function that decodes arguments; values of the wrong type count as absent."""
    fast, fields = msgspec.json.Decoder(kind), msgspec.structs.fields(kind)

    def decode(args: msgspec.Raw) -> Arguments:
        try:
            return fast.decode(args)
        except (msgspec.DecodeError, RecursionError):
            found = event_mapping(_value_of(bytes(args)))
            return kind(*(_lenient(field.type, found.get(field.encode_name)) for field in fields))

    return decode


def _value_of(text: bytes) -> Any:
    """JSON as Python's json reads it; None if nested too deeply."""
    try:
        return json.loads(text, strict=False)
    except RecursionError:
        return None


def _lenient(kind: Any, value: Any) -> Any:
    """A value converted to a field's type; the field's absent value if it has another type."""
    if kind is msgspec.Raw:
        return msgspec.Raw(json.dumps(value).encode())
    if kind is float:
        return event_number(value)
    if kind == Whole | None:
        return event_whole(value)
    if kind == SequenceNumber | None:
        return event_whole(value, bits=62)
    if kind == Size | None:
        return event_whole(value, bits=31)
    if kind == tuple[Size, Size, Size] | None:
        return event_shape(value)
    if kind == OccupancyLimits | None:
        found = event_mapping(value)
        fields = msgspec.structs.fields(OccupancyLimits)
        return OccupancyLimits(*(_lenient(one.type, found.get(one.encode_name)) for one in fields)) if found else None
    return value if kind is Any or isinstance(value, str) else None


_work_arguments, _call_arguments = _decoder(WorkArguments), _decoder(CallArguments)
_operator_arguments, _sync_arguments = _decoder(OperatorArguments), _decoder(SyncArguments)
_node_arguments = _decoder(NodeArguments)


class Launched(NamedTuple):
    """Facts that many operations may share: the distinct values are stored once."""

    kind: int
    name: str
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = None
    shared_memory: int | None = None
    occupancy: float | None = None
    limited_by: str | None = None
    numbers: tuple[tuple[str, int], ...] = ()

    def facts(self) -> LaunchFacts:
        """The facts in the form of the contract, without kind and name."""
        more = () if self.limited_by is None else (("occupancy_limited_by", self.limited_by),)
        return LaunchFacts(
            self.grid, self.block, self.registers, self.shared_memory,
            more=more, occupancy=self.occupancy, numbers=self.numbers,
        )  # fmt: skip


Columns = dict[str, npt.NDArray[Any]]

MOST_NAMES = 1 << 20
"""Limit of distinct range names that are cached; a program has fewer functions."""


class _Columns:
    """Columns of numbers that grow by rows; None is stored as `MISSING`."""

    def __init__(self, **kinds: str) -> None:
        self._columns: dict[str, array[Any]] = {name: array(kind) for name, kind in kinds.items()}
        self._add = [column.append for column in self._columns.values()]

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def add(self, *values: float | None) -> None:
        """Add a row."""
        for append, value in zip(self._add, values, strict=True):
            append(MISSING if value is None else value)

    def columns(self) -> Columns:
        """The columns, without a copy; no rows can be added afterwards."""
        return {
            name: np.frombuffer(column, column.typecode) if column else np.array(column)
            for name, column in self._columns.items()
        }


class TracedEvents:
    """The content of a trace by purpose, as columns with times in microseconds.

    `launched` are distinct operations, indexed by `work`; `labels` are indexed by `ranges`, and `kernels` by calls.
    `threads` maps each thread to its number. `collectives`: communication arguments by row of `work`. `counters`:
    samples of GPUs. `event_waits`: waits of streams for events. `flows`: edges of graphs. `broken`, `others`: numbers
    of unreadable and of unused events. `externals`: ids of operators by thread. Python functions are kept if they are
    modules or if `is_kept` accepts them.
    """

    def __init__(self, source: Source, is_kept: Callable[[str], bool]) -> None:
        self.threads: dict[Thread, int] = {}
        self.labels: list[RangeLabel] = []
        self.launched: dict[Launched, int] = {}
        self.names: dict[str, int] = {}
        self.kernels: dict[CalledKernel, int] = {}
        self.collectives: dict[int, WorkArguments] = {}
        self.broken = self.others = 0
        self.counters, self.flows = CounterEvents(), GraphFlows()
        self._is_kept = is_kept
        work = _Columns(
            launched="i", start="d", duration="d", correlation="q", device="q", context="q", stream="q", bytes="q",
            graph_node="q", external="q",
        )  # fmt: skip
        calls = _Columns(
            name="i", owner="i", start="d", duration="d", correlation="q", kernel="q", external="q"
        )  # fmt: skip
        ranges = _Columns(label="i", owner="i", start="d", duration="d", sequence="q")
        externals, overheads = _Columns(owner="i", external="q"), _Columns(kind="b", owner="i", start="d", duration="d")
        event_waits = _Columns(
            start="d", duration="d", context="q", stream="q", correlation="q", source="q", record="q"
        )  # fmt: skip
        self._work, self._calls, self._ranges, self._externals, self._overheads, self._event_waits = (
            work, calls, ranges, externals, overheads, event_waits
        )  # fmt: skip
        self._operators: dict[tuple[str, bytes, bytes, bytes, bytes], int] = {}
        self._named: dict[tuple[int, str], int] = {}
        self._inputs: dict[bytes, Any] = {}
        self._takers = {
            **dict.fromkeys(OPERATIONS, self._take_work),
            **dict.fromkeys(OPERATORS, self._take_operator),
            **dict.fromkeys((*ANNOTATIONS, PYTHON), self._take_range),
            OVERHEAD: self._take_overhead,
            SYNCHRONISATION: self._take_synchronisation,
            **dict.fromkeys(BETWEEN_OPERATIONS, self._take_node),
        }  # fmt: skip
        with source.open() as stream:
            events = TraceEvents(stream, source.name)
            for batch in events.batches():
                self._take(batch)
        self.header, self.damage, self.is_cut = events.header, events.damage, events.cut
        self.broken += events.broken + self.counters.broken
        self.work, self.calls, self.ranges = work.columns(), calls.columns(), ranges.columns()
        self.externals, self.overheads, self.event_waits = (
            externals.columns(),
            overheads.columns(),
            event_waits.columns(),
        )

    def _take(self, batch: list[TraceEvent]) -> None:
        counters: list[TraceEvent] = []
        for event in batch:
            category = event.cat or ""
            take = self._takers.get(category) if event.ph == "X" else None
            if take is None and event.ph == "X" and is_call(category):
                take = self._takers[category] = self._take_call
            if take is not None:
                take(event)
            elif event.ph == COUNTER:
                counters.append(event)
            else:
                if event.ph in FLOWS:
                    self.flows.take(event)
                self.others += 1
        if counters:
            self.others += self.counters.take(counters)

    def _take_work(self, event: TraceEvent) -> None:
        if event.name is None or not event.is_timed:
            self.broken += 1
            return
        args = _work_arguments(event.args)
        name = event.name if args.copy_kind is None else args.name_of_copy()
        what = Launched(
            OPERATIONS[event.cat or ""], name, args.grid, args.block, args.registers, args.shared_memory,
            args.occupancy if abs(args.occupancy) < LONGEST_TIME else None,
            None if args.limits is None else args.limits.limited_by, args.numbers(),
        )  # fmt: skip
        if args.collective is not None:
            self.collectives[len(self._work)] = args
        self._work.add(
            self.launched.setdefault(what, len(self.launched)), event.ts, event.dur, args.correlation, args.device,
            args.context, args.stream, args.size, args.graph_node, event_whole(args.external),
        )  # fmt: skip

    def _owner(self, thread: Thread) -> int:
        return self.threads.setdefault(thread, len(self.threads))

    def _take_operator(self, event: TraceEvent) -> None:
        name, thread = event.name, event.thread
        if name is None or thread is None or not event.is_timed:
            self.broken += 1
            return
        args, owner = _operator_arguments(event.args), self._owner(thread)
        external = event_whole(args.external)
        if external is not None:
            self._externals.add(owner, external)
        number = args.number if args.number is None or not args.forward_thread else -2 - args.number
        self._ranges.add(self._operator(name, args), owner, event.ts, event.dur, number)

    def _take_range(self, event: TraceEvent) -> None:
        name, thread = event.name, event.thread
        if name is None or thread is None or not event.is_timed:
            self.broken += 1
            return
        kind = activity.PYTHON if event.cat == PYTHON else activity.ANNOTATION
        label = self._named.get((kind, name))
        if label is None:
            label = -1
            if kind != activity.PYTHON or name.startswith(MODULE_PREFIX) or self._is_kept(name):
                label = self._new_label(RangeLabel(kind, name))
            if len(self._named) < MOST_NAMES:
                self._named[kind, name] = label
        if label < 0:
            self.others += 1
        else:
            self._ranges.add(label, self._owner(thread), event.ts, event.dur, None)

    def _operator(self, name: str, args: OperatorArguments) -> int:
        """Index of the label of an operator with its inputs."""
        key = name, bytes(args.shapes), bytes(args.types), bytes(args.strides), bytes(args.values)
        label = self._operators.get(key)
        if label is None:
            inputs = OperatorInputs(*(self._decoded(text) for text in key[1:]))
            label = self._operators[key] = self._new_label(RangeLabel(activity.OPERATOR, name, inputs))
        return label

    def _decoded(self, text: bytes) -> Any:
        """Inputs as Python objects; equal inputs share one object."""
        found = self._inputs.get(text)
        if found is None:
            found = self._inputs[text] = _value_of(text)
        return found

    def _new_label(self, label: RangeLabel) -> int:
        self.labels.append(label)
        return len(self.labels) - 1

    def _take_call(self, event: TraceEvent) -> None:
        thread = event.thread
        if thread is None or event.name is None or not event.is_timed:
            self.broken += 1
            return
        args, kernel = _call_arguments(event.args), None
        if args.kernel is not None:
            kernel = self.kernels.setdefault(CalledKernel(args.kernel, args.grid), len(self.kernels))
        self._calls.add(
            self.names.setdefault(event.name, len(self.names)), self._owner(thread), event.ts, event.dur,
            args.correlation, kernel, event_whole(args.external),
        )  # fmt: skip

    def _take_overhead(self, event: TraceEvent) -> None:
        thread = event.thread
        if thread is None or not event.is_timed:
            self.broken += 1
            return
        kind = activity.QUEUE_FULL if event.name == QUEUE_FULL_OVERHEAD else activity.PROFILER
        kind = activity.MODULE_LOADING if event.name in MODULE_LOADING_OVERHEADS else kind
        self._overheads.add(kind, self._owner(thread), event.ts, event.dur)

    def _take_node(self, event: TraceEvent) -> None:
        args = _node_arguments(event.args)
        if event.is_timed and args.device is not None and args.stream is not None:
            self.flows.add_between(args.device, args.stream, event.ts, event.dur)
        self.others += 1

    def _take_synchronisation(self, event: TraceEvent) -> None:
        args = _sync_arguments(event.args)
        if args.kind != STREAM_WAIT or args.stream is None or args.correlation is None or not event.is_timed:
            self.others += 1
            return
        self._event_waits.add(
            event.ts, event.dur, args.context, args.stream, args.correlation, args.source, args.record
        )
