"""The events of a trace sorted by what they are for, as columns: GPU work, the calls that launched it, host ranges."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from ncu_parsers.derived.operators import graph_captures
from ncu_parsers.derived.operators.work_from_shapes import RecordedInputs
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.host_ranges import ANNOTATION, MODULE, OPERATOR
from ncu_parsers.timelines.kineto.chrome_trace import (
    LONGEST_TIME,
    NS_PER_US,
    TraceEvent,
    TraceEvents,
    event_mapping,
    event_number,
    event_shape,
    event_whole,
    is_call,
    lost_times,
    whole_nanoseconds,
)
from ncu_parsers.timelines.kineto.host_threads import HostCall, HostThreads
from ncu_parsers.timelines.operation_times import ImpossibleEnd, impossible_ends
from ncu_parsers.timelines.python_frames import PythonFrames

Arguments = TypeVar("Arguments", bound=msgspec.Struct)

KERNEL = "kernel"
OPERATIONS = {
    "kernel": KERNEL, "gpu_memcpy": "memcpy", "gpu_memset": "memset",
    "Kernel": KERNEL, "Memcpy": "memcpy", "Memset": "memset",
}  # fmt: skip
"""Categories of GPU work, those of PyTorch 1.8 to 1.12 in the second line -> what the column `operation` says."""
OPERATORS, ANNOTATIONS, PYTHON = ("cpu_op", "Operator"), ("user_annotation",), ("python_function",)
GRAPH_LAUNCH = "GraphLaunch"
"""In the names of calls that launch a whole graph: cudaGraphLaunch, hipGraphLaunch."""

MODULE_PREFIX = "nn.Module: "
MISSING = -1
EXTERNAL = "External id"
"""What operators, calls and GPU work say of the operator around a call: the same number."""

Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
SequenceNumber = Annotated[int, msgspec.Meta(ge=0, le=2**62 - 1)]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_ABSENT = msgspec.Raw(b"null")


class WorkArguments(msgspec.Struct, gc=False):
    """What an event of GPU work says beside name and time; None is what it does not say."""

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


class CallArguments(msgspec.Struct, gc=False):
    """What a call of the runtime says; HIP's name the kernel, also while a graph is captured and nothing runs."""

    correlation: Whole | None = None
    kernel: str | None = None
    grid: tuple[Size, Size, Size] | None = None
    external: Any = msgspec.field(default=None, name=EXTERNAL)


class OperatorArguments(msgspec.Struct, gc=False):
    """What an operator says; its inputs are JSON."""

    number: SequenceNumber | None = msgspec.field(default=None, name="Sequence number")
    forward_thread: Any = msgspec.field(default=None, name="Fwd thread id")
    shapes: msgspec.Raw = msgspec.field(default=_ABSENT, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=_ABSENT, name="Input type")
    strides: msgspec.Raw = msgspec.field(default=_ABSENT, name="Input Strides")
    values: msgspec.Raw = msgspec.field(default=_ABSENT, name="Concrete Inputs")
    external: Any = msgspec.field(default=None, name=EXTERNAL)


def _decoder(kind: type[Arguments]) -> Callable[[msgspec.Raw], Arguments]:
    """A function that decodes arguments; values of other types than the fields have are as if they were absent."""
    fast, fields = msgspec.json.Decoder(kind), msgspec.structs.fields(kind)

    def decode(args: msgspec.Raw) -> Arguments:
        try:
            return fast.decode(args)
        except (msgspec.DecodeError, RecursionError):
            found = event_mapping(_value_of(bytes(args)))
            return kind(*(_lenient(field.type, found.get(field.encode_name)) for field in fields))

    return decode


def _value_of(text: bytes) -> Any:
    """JSON as Python's json reads it; None for what is nested too deeply."""
    try:
        return json.loads(text, strict=False)
    except RecursionError:
        return None


def _lenient(kind: Any, value: Any) -> Any:
    """A value as a field of that type; what stands for none where it is of another."""
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
    return value if kind is Any or isinstance(value, str) else None


_work_arguments, _call_arguments = _decoder(WorkArguments), _decoder(CallArguments)
_operator_arguments = _decoder(OperatorArguments)


class Launched(NamedTuple):
    """What many rows may have in common."""

    operation: str
    name: str
    grid: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
    registers: int | None = None
    shared_memory: int | None = None
    occupancy: float = math.nan


Columns = dict[str, npt.NDArray[Any]]


class _Columns:
    """Columns of numbers while rows come in; None becomes `MISSING`."""

    def __init__(self, **kinds: str) -> None:
        self._columns: dict[str, array[Any]] = {name: array(kind) for name, kind in kinds.items()}
        self._add = [column.append for column in self._columns.values()]

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def add(self, *values: float | None) -> None:
        """Add a row."""
        for append, value in zip(self._add, values, strict=True):
            append(MISSING if value is None else value)

    def taken(self) -> Columns:
        """The columns, which are given away."""
        return {name: np.array(column) for name, column in self._columns.items()}


class TracedEvents:
    """What a trace holds, by what it is for. `work` and `calls` are columns, of GPU work and of calls with an id.

    `launched` are the distinct operations that `work` has the places of; `kernels` those that calls name. `broken`
    counts events that could not be read, `others` those of no use here, `lost` GPU work without times. `externals` are
    the ids of operators by thread. `impossible` are names and places of operations that were cut.
    """

    def __init__(self, source: Source) -> None:
        self.host = HostThreads()
        self.frames = PythonFrames()
        self.launched: dict[Launched, int] = {}
        self.kernels: dict[graph_captures.Kernel, int] = {}
        self.host_events = self.broken = self.others = 0
        self._work = _Columns(
            launched="i", start="d", duration="d", correlation="q", device="i", context="q", stream="q", bytes="q",
            graph_node="q", external="q",
        )  # fmt: skip
        self._calls = _Columns(correlation="q", thread="i", start="d", is_graph="b", kernel="i", external="q")
        self._externals = _Columns(thread="i", external="q")
        self._operators: dict[tuple[str, bytes, bytes, bytes, bytes], int] = {}
        self._ranges: dict[tuple[str, str], int] = {}
        self._inputs: dict[bytes, Any] = {}
        self._takers = {
            **dict.fromkeys(OPERATIONS, self._take_work),
            **dict.fromkeys((*OPERATORS, *ANNOTATIONS, *PYTHON), self._take_range),
        }  # fmt: skip
        with source.open() as stream:
            events = TraceEvents(stream, source.name)
            for batch in events.batches():
                self._take(batch)
        self.header, self.damage, self.is_cut = events.header, events.damage, events.cut
        self.broken += events.broken
        self.work, self.calls = self._work.taken(), self._calls.taken()
        lost = lost_times(self.work["start"], self.work["duration"], self.header)
        self.lost = int(lost.sum())
        self.work = {name: column[~lost] for name, column in self.work.items()} if self.lost else self.work
        self.impossible = self._cut_impossible_ends()
        self.externals = self._externals.taken()

    def _cut_impossible_ends(self) -> list[tuple[str, ImpossibleEnd]]:
        """Let operations that cannot last so long end where the next one of their stream begins; with their names."""
        work = self.work
        start = whole_nanoseconds(work["start"])
        end = start + whole_nanoseconds(work["duration"])
        streams = (work["device"], work["context"], work["stream"])
        of_graphs = np.isin(work["correlation"], self.calls["correlation"][self.calls["is_graph"] != 0])
        one_by_one = (work["graph_node"] == MISSING) & (work["stream"] != MISSING) & ~of_graphs
        found = impossible_ends(streams, start, end, one_by_one)
        names = list(self.launched) if found else []
        for one in found:
            work["duration"][one.row] = (one.cut_to - int(start[one.row])) / NS_PER_US
        return [(names[work["launched"][one.row]].name, one) for one in found]

    @property
    def has_work(self) -> bool:
        """Whether anything ran on a GPU."""
        return len(self.work["start"]) > 0

    def _take(self, batch: list[TraceEvent]) -> None:
        for event in batch:
            category = event.cat or ""
            take = self._takers.get(category) if event.ph == "X" else None
            if take is None and event.ph == "X" and is_call(category):
                take = self._takers[category] = self._take_call
            if take is None:
                self.others += 1
            else:
                take(event)

    def _take_work(self, event: TraceEvent) -> None:
        if event.name is None or not event.is_timed:
            self.broken += 1
            return
        args = _work_arguments(event.args)
        what = Launched(
            OPERATIONS[event.cat or ""], event.name, args.grid, args.block, args.registers, args.shared_memory,
            args.occupancy if abs(args.occupancy) < LONGEST_TIME else math.nan,
        )  # fmt: skip
        self._work.add(
            self.launched.setdefault(what, len(self.launched)), event.ts, event.dur, args.correlation, args.device,
            args.context, args.stream, args.size, args.graph_node, event_whole(args.external),
        )  # fmt: skip

    def _take_range(self, event: TraceEvent) -> None:
        name, thread, number = event.name, event.thread, MISSING
        if name is None or thread is None or not event.is_timed:
            self.broken += 1
            return
        if event.cat in OPERATORS:
            args = _operator_arguments(event.args)
            call, number = self._operator(name, args)
            external = event_whole(args.external)
            if external is not None:
                self._externals.add(self.host.thread(thread), external)
        elif event.cat in ANNOTATIONS:
            call = self._named(ANNOTATION, name)
        elif name.startswith(MODULE_PREFIX):
            call = self._named(MODULE, name.removeprefix(MODULE_PREFIX))
        else:  # a function of Python's
            is_kept = self.frames.take(thread, event.ts, event.dur, name)
            self.host_events += is_kept
            self.others += not is_kept
            return
        self.host.take(self.host.thread(thread), event.ts, event.dur, call, number)
        self.host_events += 1

    def _named(self, kind: str, name: str) -> int:
        """The code of a range without inputs."""
        call = self._ranges.get((kind, name))
        if call is None:
            call = self._ranges[kind, name] = self._new_call(HostCall(kind, name))
        return call

    def _operator(self, name: str, args: OperatorArguments) -> tuple[int, int]:
        """The code of an operator with its inputs, and its sequence number as `HostThreads.take` wants it."""
        key = name, bytes(args.shapes), bytes(args.types), bytes(args.strides), bytes(args.values)
        call = self._operators.get(key)
        if call is None:
            inputs = RecordedInputs(*(self._decoded(text) for text in key[1:]))
            call = self._operators[key] = self._new_call(HostCall(OPERATOR, name, inputs))
        if args.number is None:
            return call, MISSING
        return call, -2 - args.number if args.forward_thread else args.number

    def _decoded(self, text: bytes) -> Any:
        """Inputs as Python's objects; those of many operators are alike."""
        found = self._inputs.get(text)
        if found is None:
            found = self._inputs[text] = _value_of(text)
        return found

    def _new_call(self, call: HostCall) -> int:
        self.host.calls.append(call)
        return len(self.host.calls) - 1

    def _take_call(self, event: TraceEvent) -> None:
        args, thread = _call_arguments(event.args), event.thread
        if args.correlation is None:
            self.others += 1
        elif thread is None or not abs(event.ts) < LONGEST_TIME:
            self.broken += 1
        else:
            kernel = None
            if args.kernel is not None:
                kernel = self.kernels.setdefault(graph_captures.Kernel(args.kernel, args.grid), len(self.kernels))
            is_graph = GRAPH_LAUNCH in (event.name or "")
            self._calls.add(
                args.correlation, self.host.thread(thread), event.ts, is_graph, kernel, event_whole(args.external)
            )
            self.host_events += 1
