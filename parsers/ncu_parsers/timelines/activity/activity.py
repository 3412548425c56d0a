"""The contract of a timeline: tables of numpy columns, the same for every tool that recorded it.

Times are int64 nanoseconds since the zero of the recording. In integer columns `MISSING` means not recorded. Values
shared by many rows are stored once in a list, and a column of codes indexes it. A column with one value in every row
takes the memory of one, and a column of small numbers may have a narrower type (`narrow`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ncu_parsers.schema.vendors import Vendor
from ncu_parsers.timelines.activity.samples import SampledActivity

Integers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.integer[Any]]
"""Indices into a list."""

MISSING = int(np.iinfo(np.int64).min)

FARTHEST = 2**62
"""ns (146 years); events beyond it, on either side of zero, are damage, and are left out so that no sum overflows."""

KERNEL, MEMCPY, MEMSET, GRAPH = range(4)
"""`GpuOperations.kind`; a graph was recorded as a whole, without its nodes."""

OPERATION_KINDS = ("kernel", "memcpy", "memset", "graph")

DIRECTIONS = ("host to device", "device to host", "device to device", "peer to peer", "host to host", "other")
"""`GpuOperations.direction` of copies indexes it."""
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, PEER_TO_PEER, HOST_TO_HOST, OTHER_DIRECTION = range(6)

MEMORIES = ("pageable", "pinned", "device", "array", "managed", "unknown")
"""`GpuOperations.source_memory` and `.destination_memory` of copies index it."""
PAGEABLE, PINNED, DEVICE_MEMORY, ARRAY, MANAGED, UNKNOWN_MEMORY = range(6)

NVTX, OPERATOR, ANNOTATION, PYTHON, OS_CALL = range(5)
"""`HostRanges.kind`: NVTX ranges, operators and annotations of PyTorch, Python functions, calls of the OS's library."""

MODULE_PREFIX = "nn.Module: "
"""Prefix of the names of Python functions that are PyTorch modules."""

MODULE_LOADING, PROFILER, QUEUE_FULL = range(3)
"""`Overheads.kind`: loading or compiling code; the profiler's own work; a launch that waits for room in the queue."""

NUMBERS_IN_NAMES = ", (?:seq|op_id|sizes|input_op_ids) = .*$"
"""Pattern of what PyTorch's `emit_nvtx` appends to operator names (getNvtxStr, torch/csrc/profiler/util.cpp)."""

_NUMBERS = re.compile(NUMBERS_IN_NAMES, re.DOTALL)

Rows = TypeVar("Rows", bound="_Columns")


class _Columns:
    """Columns of the same length; fields that are lists of names are shared by every selection."""

    def __len__(self) -> int:
        return len(self.start)  # type: ignore[attr-defined]

    def at(self: Rows, rows: npt.NDArray[Any] | slice) -> Rows:
        """The rows at indices, of a slice, or where a mask is true."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        return type(self)(**{name: _chosen(value, rows) for name, value in values.items()})

    def by_start(self: Rows) -> Rows:
        """The rows ordered by start, longer ones first among equal starts."""
        order = order_of(self.start, self.end)  # type: ignore[attr-defined]
        return self if order is None else self.at(order)


def order_of(start: Integers, end: Integers) -> npt.NDArray[np.int32] | None:
    """The order by start, longer ones first among equal starts; None if already in order, as usual."""
    after, same = start[1:] > start[:-1], start[1:] == start[:-1]
    if (after | (same & (end[1:] <= end[:-1]))).all():
        return None
    order = np.argsort(start, kind="stable").astype(np.int32)  # with the ends it would take twice the memory
    in_turn = start[order]
    same = in_turn[1:] == in_turn[:-1]
    ties = np.flatnonzero(np.append(same, False) | np.append(False, same))
    order[ties] = order[ties][np.lexsort((-end[order[ties]], start[order[ties]]))]
    return order


@dataclass(frozen=True)
class GpuOperations(_Columns):
    """Work on GPUs, a row per kernel, copy, memset, or graph as a whole, ordered by start.

    `process` and `device` (the process's CUDA number) identify the GPU. `bytes` were copied or set; `direction` and
    both memories are negative where unknown, and for all but copies. `correlation` is shared with the API call of the
    process that launched it. `iteration` is set for runs of our launcher whose ranges are unknown.
    """

    kind: Codes
    name: Codes
    names: list[str]
    process: Integers
    device: Integers
    context: Integers
    stream: Integers
    start: Integers
    end: Integers
    bytes: Integers
    direction: Integers
    source_memory: Integers
    destination_memory: Integers
    correlation: Integers
    graph_node: Integers
    iteration: Integers

    @property
    def durations(self) -> npt.NDArray[np.float64]:
        """end - start in ns (float64); NaN if the end is missing or before the start."""
        return np.where(self.end >= self.start, elapsed(self.start, self.end), np.nan)

    def gpus(self) -> list[tuple[int, int]]:
        """The process and device of every GPU, in order."""
        return [
            (process, device)
            for process in np.unique(self.process).tolist()
            for device in np.unique(self.device[self.process == process]).tolist()
        ]


Owner = tuple[int, int]
"""A process and one of its threads."""


class HostTime(NamedTuple):
    """A time of a host thread, [start, end), in ns."""

    thread: int
    start: int
    end: int


class CalledKernel(NamedTuple):
    """The kernel that an API call names."""

    name: str
    grid: tuple[int, int, int] | None


class OperatorInputs(NamedTuple):
    """The inputs of an operator as the profiler recorded them, one list per field; any other value if not recorded."""

    shapes: Any = None
    types: Any = None
    strides: Any = None
    values: Any = None


class RangeLabel(NamedTuple):
    """Label of a host range: its kind, its name and, for an operator, its inputs; its NVTX domain, if that is read."""

    kind: int
    name: str
    inputs: OperatorInputs | None = None
    domain: str | None = None


class _OfThreads(_Columns):
    """Columns of host thread activity: `owner` indexes `owners`."""

    owner: Codes
    owners: list[Owner]

    @cached_property
    def process(self) -> Integers:
        """The process of each row."""
        return self._part(0)

    @cached_property
    def thread(self) -> Integers:
        """The thread of each row."""
        return self._part(1)

    def threads_of(self, rows: npt.NDArray[Any]) -> Integers:
        """The thread of each selected row; for millions of rows, `thread` takes as much memory as their starts."""
        found: Integers = np.array([thread for _, thread in self.owners], np.int64)[self.owner[rows]]
        return found

    def owner_of(self, row: int) -> Owner:
        """The process and the thread of a row."""
        return self.owners[int(self.owner[row])]

    def of_process(self, process: int) -> npt.NDArray[np.bool_]:
        """Mask of the rows of a process."""
        return self._of(0, process)

    def of_thread(self, thread: int) -> npt.NDArray[np.bool_]:
        """Mask of the rows of a thread."""
        return self._of(1, thread)

    def _part(self, part: int) -> Integers:
        found = np.array([owner[part] for owner in self.owners] or [MISSING], np.int64)
        return found[self.owner] if len(found) > 1 else np.broadcast_to(found, len(self))

    def _of(self, part: int, wanted: int) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = np.array([owner[part] == wanted for owner in self.owners], np.bool_)[self.owner]
        return found


@dataclass(frozen=True)
class ApiCalls(_OfThreads):
    """Calls of the CUDA or HIP API, runtime and driver, ordered by start; `name` is without version.

    `kernel` indexes `kernels`, the kernels that calls name; `MISSING` for none.
    """

    name: Codes
    names: list[str]
    owner: Codes
    owners: list[Owner]
    start: Integers
    end: Integers
    correlation: Integers
    kernel: Codes
    kernels: list[CalledKernel]


@dataclass(frozen=True)
class HostRanges(_OfThreads):
    """Ranges of host threads, ordered by start. A range that never ended lasts to the end of the recording.

    `sequence`: for a PyTorch operator, the number of the backward node that it creates; for such a node, -2 minus that
    number.
    """

    label: Codes
    labels: list[RangeLabel]
    owner: Codes
    owners: list[Owner]
    start: Integers
    end: Integers
    sequence: Integers

    @cached_property
    def kind(self) -> Codes:
        """The kind of each range."""
        return np.array([label.kind for label in self.labels], np.int8)[self.label]

    @property
    def name(self) -> Codes:
        """Index of each range's name in `names`."""
        return self.label

    @cached_property
    def names(self) -> list[str]:
        """The names of the labels; a name may occur several times."""
        return [label.name for label in self.labels]


@dataclass(frozen=True)
class Overheads(_Columns):
    """Time that the driver or the profiler took on a host thread, as recorded."""

    kind: Integers
    process: Integers
    thread: Integers
    start: Integers
    end: Integers


@dataclass(frozen=True)
class EventWaits(_Columns):
    """Waits of streams for events (cudaStreamWaitEvent), in order of the API calls.

    After the call `correlation`, `stream` waits for the work that was launched on stream `source` before the event was
    recorded by the call `record` (a correlation id). Unknown values are `MISSING`.
    """

    start: Integers
    process: Integers
    context: Integers
    stream: Integers
    correlation: Integers
    source: Integers
    record: Integers


class Window(NamedTuple):
    """A time span of a recording, [start, end), in ns."""

    start: int
    end: int


class LaunchFacts(NamedTuple):
    """Recorded facts on an operation besides its times, or on the range that launched it; None if not recorded.

    `registers` are per thread, `shared_memory` is in bytes. `path`: enclosing scopes, outermost first, if the operation
    names them. `more`: further text columns by name. `numbers`: whole numbers by names of `FACTS`. `occupancy`: the
    profiler's estimate in %.
    """

    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = None
    shared_memory: int | None = None
    path: tuple[str, ...] = ()
    operator: str | None = None
    phase: str | None = None
    module: str | None = None
    more: tuple[tuple[str, str], ...] = ()
    occupancy: float | None = None
    numbers: tuple[tuple[str, int], ...] = ()


FACTS = {
    "priority": "", "channel": "", "blocks_per_sm": "block", "block_limit_registers": "block",
    "block_limit_shared_memory": "block", "block_limit_warps": "block", "block_limit_blocks": "block",
    "block_limit_barriers": "block", "allocated_registers_per_block": "register",
    "allocated_shared_memory_per_block": "byte",
}  # fmt: skip
"""Names and units of `LaunchFacts.numbers`: stream priority, hardware channel, blocks that fit on an SM, the limit that
each resource sets on them, and registers and shared memory allocated per block."""


class Dependencies(NamedTuple):
    """Pairs of operations (row numbers): `after` starts when `before` has ended, by an edge of a CUDA graph."""

    before: Integers
    after: Integers


NO_DEPENDENCIES = Dependencies(np.zeros(0, np.int64), np.zeros(0, np.int64))


class CollectiveArguments(NamedTuple):
    """The arguments of a collective; None if not recorded.

    `bytes_in` and `bytes_out` are the sizes of one rank's input and output.
    """

    name: str | None
    bytes_in: int | None
    bytes_out: int | None
    ranks: int | None


@dataclass(frozen=True)
class Activity:
    """One recording of a profiler, as tables.

    `collectives`: arguments of communication kernels by row of `operations`. `devices`, `uuids`, `vendors` and
    `capabilities` (compute capability): by (process, device). `missing`: sentences on what was not recorded. `whole`:
    first start to last end of the recording, if only a part of its time was read. `utc_ns`: the zero of all times, in
    ns since 1970. `facts`: distinct facts, indexed by `fact` for each operation; None if there are none. `as_written`:
    rows of `operations` in file order; None if the file is ordered by start. `broken`, `others`: numbers of unreadable
    and of unused events. `session`: single values that describe the recording; `rank`: its rank in a distributed run.
    `recorded_with`: the command for another such recording. `sampled`: samples of whole GPUs. `dependencies`: edges of
    CUDA graphs. `ranges_over`: if `ranges` lacks recorded ones, looks up all that cover at least half of a given time.
    """

    name: str
    tool: str
    operations: GpuOperations
    calls: ApiCalls
    ranges: HostRanges
    overheads: Overheads
    collectives: Mapping[int, CollectiveArguments] = field(default_factory=dict)
    devices: Mapping[tuple[int, int], str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    whole: Window | None = None
    utc_ns: int | None = None
    uuids: Mapping[tuple[int, int], str] = field(default_factory=dict)
    vendors: Mapping[tuple[int, int], Vendor] = field(default_factory=dict)
    capabilities: Mapping[tuple[int, int], str] = field(default_factory=dict)
    facts: Sequence[LaunchFacts] = ()
    fact: Codes | None = None
    as_written: Integers | None = None
    broken: int = 0
    others: int = 0
    session: Mapping[str, str] = field(default_factory=dict)
    rank: int | None = None
    recorded_with: str = ""
    event_waits: EventWaits = field(default_factory=lambda: empty(EventWaits))
    sampled: SampledActivity = field(default_factory=SampledActivity)
    dependencies: Dependencies = NO_DEPENDENCIES
    ranges_over: Callable[[Sequence[HostTime]], HostRanges] | None = None


def plain_name(name: str) -> str:
    """A range's name without the numbers that end PyTorch's NVTX names: "aten::add, seq = 4, op_id = 7"."""
    return _NUMBERS.sub("", name)


def columns_of(table: type[Rows], values: Mapping[str, Any], names: Sequence[str] = ()) -> Rows:
    """A table from columns, converted to int64 unless arrays, and lists; missing columns are `MISSING`.

    For `ApiCalls` and `HostRanges`, the columns `process` and `thread` may replace `owner`, and `kind` and `name`
    replace `label`.
    """
    known = dict(values)
    length = len(known["start"])
    if "thread" in known and issubclass(table, _OfThreads):
        known["owner"], known["owners"] = _numbered(known.pop("process"), known.pop("thread"))
    if "kind" in known and table is HostRanges:
        known["label"], pairs = _numbered(known.pop("kind"), known.pop("name"))
        known["labels"] = [RangeLabel(kind, names[name]) for kind, name in pairs]
    found: dict[str, Any] = {}
    for one in fields(table):  # type: ignore[arg-type]
        value = known.get(one.name)
        if one.type not in ("Integers", "Codes"):
            found[one.name] = list(names) if one.name == "names" else list(value or ())
        elif value is None:
            found[one.name] = np.broadcast_to(np.array(MISSING), length)
        else:
            found[one.name] = value if isinstance(value, np.ndarray) else np.array(value, np.int64)
    return table(**found)


def _numbered(first: Any, second: Any) -> tuple[Codes, list[tuple[int, int]]]:
    """Index of each pair into the distinct pairs, which are returned too."""
    pairs = np.stack([np.asarray(first, np.int64), np.asarray(second, np.int64)])
    order = np.lexsort(pairs[::-1])
    is_new = np.append(True, (np.diff(pairs[:, order]) != 0).any(axis=0))[: len(order)]
    code = np.empty(len(order), np.int32)
    code[order] = np.cumsum(is_new) - 1
    return code, [(one, other) for one, other in pairs[:, order[is_new]].T.tolist()]


def _chosen(value: Any, rows: npt.NDArray[Any] | slice) -> Any:
    """The rows of a column; one value stands for a column that is the same in every row."""
    if not isinstance(value, np.ndarray):
        return value
    if isinstance(rows, slice) or not len(value) or value.strides[0]:
        return value[rows]
    return np.broadcast_to(value[:1], int(rows.sum()) if rows.dtype == np.bool_ else len(rows))


def empty(table: type[Rows]) -> Rows:
    """A table without rows."""
    return columns_of(table, {"start": np.zeros(0, np.int64)})


def elapsed(start: Integers, end: Integers) -> npt.NDArray[np.float64]:
    """end - start as float64, computed without overflow of 64-bit integers."""
    return (end.view(np.uint64) - start.view(np.uint64)).astype(np.float64)


def are_times(start: Integers, end: Integers) -> npt.NDArray[np.bool_]:
    """Mask of pairs of a start and an end that is not before it, both nearer to zero than `FARTHEST`."""
    near = (start > -FARTHEST) & (start < FARTHEST) & (end > -FARTHEST) & (end < FARTHEST)
    found: npt.NDArray[np.bool_] = near & (end >= start)
    return found


class FilledColumns:
    """Columns that are filled block by block, with room for `rows`; unused room takes no memory.

    `kinds` are the types of the columns by name, such as "i8"; one that cannot hold the values becomes wider.
    """

    def __init__(self, rows: int, kinds: Mapping[str, str]) -> None:
        self._columns = {name: np.empty(rows, kind) for name, kind in kinds.items()}
        self._filled = 0
        self.left_out = 0

    def add(self, columns: Mapping[str, Any], kept: npt.NDArray[np.bool_]) -> None:
        """Add the rows of a block where a mask is true; a column may be one number for all. Other rows are counted."""
        self.left_out += len(kept) - int(kept.sum())
        first, self._filled = self._filled, self._filled + int(kept.sum())
        for name, column in self._columns.items():
            value = columns[name][kept] if isinstance(columns[name], np.ndarray) else columns[name]
            if column.itemsize < 8:
                needed = _narrowest(int(np.min(value, initial=0)), int(np.max(value, initial=0)))
                column = self._columns[name] = _widened(column, np.promote_types(column.dtype, needed), first)
            column[first : self._filled] = value

    @property
    def columns(self) -> dict[str, Any]:
        """The filled part of the columns."""
        return {name: column[: self._filled] for name, column in self._columns.items()}


def _widened(column: Codes, kind: npt.DTypeLike, filled: int) -> Codes:
    """A column with room for values of a type; only the `filled` part is copied, as the rest takes no memory yet."""
    if column.dtype == kind:
        return column
    found = np.empty(len(column), kind)
    found[:filled] = column[:filled]
    return found


def in_order(columns: dict[str, Any]) -> dict[str, Any]:
    """The columns ordered by `start`, longer ones first among equal starts: sorted in place, one after the other."""
    order = order_of(columns["start"], columns["end"])
    for column in columns.values() if order is not None else ():
        if column.strides[0]:
            column[:] = column[order]
    return columns


def narrow(column: Integers) -> Integers:
    """A column in the narrowest type that holds its values, or as one value for all rows; `MISSING` takes 64 bits."""
    if not len(column) or not column.strides[0]:
        return column
    least, most = int(column.min()), int(column.max())
    kind = _narrowest(least, most)
    return column.astype(kind) if least < most else np.broadcast_to(np.array(least, kind), len(column))


def _narrowest(least: int, most: int) -> np.dtype[np.integer[Any]]:
    """The narrowest type that holds both values."""
    limits = (np.iinfo(kind) for kind in (np.int8, np.int16, np.int32, np.int64))
    return next(one.dtype for one in limits if one.min <= least and most <= one.max)


class Numbered:
    """Distinct values, numbered from 0 in order of first use."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        """The number of a value."""
        return self._numbers.setdefault(value, len(self._numbers))

    def numbers(self, values: Integers) -> Codes:
        """Numbers of an integer column that has few distinct values."""
        distinct, code = np.unique(values, return_inverse=True)
        found = np.array([self.number(value) for value in distinct.tolist()], np.int32)
        return found[code.reshape(-1)]

    @property
    def texts(self) -> list[Any]:
        """The values in order of their numbers."""
        return list(self._numbers)
