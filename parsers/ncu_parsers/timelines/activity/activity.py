"""The contract of a timeline: tables of numpy columns, the same for every tool that recorded it.

Times are int64 nanoseconds since the zero of the recording. `MISSING` stands for what the recording does not say, in
every integer column. Names are numbered: a column of codes (int64) indexes a list of texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ncu_parsers.schema.vendors import Vendor

Integers = npt.NDArray[np.int64]

MISSING = int(np.iinfo(np.int64).min)

FARTHEST = 2**62
"""ns (146 years); events beyond it, on either side of zero, are damage, and are left out so that no sum overflows."""

KERNEL, MEMCPY, MEMSET, GRAPH = range(4)
"""`GpuOperations.kind`; a graph is one that was recorded as a whole, without its nodes."""

OPERATION_KINDS = ("kernel", "memcpy", "memset", "graph")

DIRECTIONS = ("host to device", "device to host", "device to device", "peer to peer", "host to host", "other")
"""`GpuOperations.direction` of copies indexes it."""
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, PEER_TO_PEER, HOST_TO_HOST, OTHER_DIRECTION = range(6)

MEMORIES = ("pageable", "pinned", "device", "array", "managed", "unknown")
"""`GpuOperations.source_memory` and `.destination_memory` of copies index it."""
PAGEABLE, PINNED, DEVICE_MEMORY, ARRAY, MANAGED, UNKNOWN_MEMORY = range(6)

NVTX, OPERATOR, ANNOTATION, PYTHON, OS_CALL = range(5)
"""`HostRanges.kind`: NVTX ranges, operators and annotations of PyTorch, Python functions, calls of the OS's library."""

MODULE_LOADING, PROFILER, QUEUE_FULL = range(3)
"""`Overheads.kind`: loading or compiling code; the profiler's own work; a launch that waits for room in the queue."""

NUMBERS_IN_NAMES = ", (?:seq|op_id|sizes|input_op_ids) = .*$"
"""What PyTorch's `emit_nvtx` appends to the name of an operator (getNvtxStr, torch/csrc/profiler/util.cpp)."""

_NUMBERS = re.compile(NUMBERS_IN_NAMES, re.DOTALL)

Rows = TypeVar("Rows", bound="_Columns")


class _Columns:
    """Columns of the same length; fields that are lists of names are shared by every selection."""

    def __len__(self) -> int:
        return len(self.start)  # type: ignore[attr-defined]

    def at(self: Rows, rows: npt.NDArray[Any]) -> Rows:
        """The rows at indices, or where a mask is true."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        return type(self)(
            **{name: value[rows] if isinstance(value, np.ndarray) else value for name, value in values.items()}
        )

    def by_start(self: Rows) -> Rows:
        """The rows in order of their starts; the longer first of those that start together."""
        start, end = self.start, self.end  # type: ignore[attr-defined]
        after, same = start[1:] > start[:-1], start[1:] == start[:-1]
        if (after | (same & (end[1:] <= end[:-1]))).all():
            return self  # as most recordings have them: a copy of millions of rows is saved
        return self.at(np.lexsort((-end, start)))


@dataclass(frozen=True)
class GpuOperations(_Columns):
    """What ran on GPUs, a row per kernel, copy, memset, or graph as a whole, in order of their starts.

    `process` and `device` (the process's CUDA number) identify the GPU. `bytes` are those copied or set. `correlation`
    is shared with the API call of the process that launched it. `iteration` is known of runs of our launcher where
    their ranges are not.
    """

    kind: Integers
    name: Integers
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

    def gpus(self) -> list[tuple[int, int]]:
        """The process and device of every GPU, in order."""
        processes, of_process = np.unique(self.process, return_inverse=True)
        devices, of_device = np.unique(self.device, return_inverse=True)
        pairs = np.unique(of_process * max(len(devices), 1) + of_device).tolist()
        return [(int(processes[one // len(devices)]), int(devices[one % len(devices)])) for one in pairs]


@dataclass(frozen=True)
class ApiCalls(_Columns):
    """Calls of the CUDA or HIP API, runtime and driver, in order of their starts; `name` is without version."""

    name: Integers
    names: list[str]
    process: Integers
    thread: Integers
    start: Integers
    end: Integers
    correlation: Integers


@dataclass(frozen=True)
class HostRanges(_Columns):
    """Ranges of host threads, in order of their starts. One that never ended lasts to the end of the recording."""

    kind: Integers
    name: Integers
    names: list[str]
    process: Integers
    thread: Integers
    start: Integers
    end: Integers


@dataclass(frozen=True)
class Overheads(_Columns):
    """Time that the driver or the profiler took on a host thread, as the recording itself says."""

    kind: Integers
    process: Integers
    thread: Integers
    start: Integers
    end: Integers


class Window(NamedTuple):
    """A time of a recording, [start, end), in ns."""

    start: int
    end: int


class LaunchFacts(NamedTuple):
    """What a recording says of an operation beside its times, or of the range that launched it; None: it does not say.

    `path` are the scopes around it, outermost first, where the operation itself names them; `more` are further columns
    of the launches by their names.
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


class CollectiveArguments(NamedTuple):
    """What a collective was called with; None is what the recording does not say.

    `bytes_in` and `bytes_out` are those of one rank's input and output.
    """

    name: str | None
    bytes_in: int | None
    bytes_out: int | None
    ranks: int | None


@dataclass(frozen=True)
class Activity:
    """One recording. `collectives` are the arguments of communication kernels, by their row in `operations`.

    `devices` are names by (process, device). `missing` says, a sentence each, what was not recorded. Where a part of
    the time alone was read, `whole` is when the recording's first operation or API call begins and its last one ends.
    `utc_ns` is the zero of its times in ns since 1970, `uuids` are GPUs' own numbers by (process, device), where known.
    `vendors` made the GPUs. `facts` are distinct, and `fact` is the place of each operation's among them; None where
    the reader says none. `broken` events were left out. `session` is what the recording says of itself.
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
    facts: Sequence[LaunchFacts] = ()
    fact: Integers | None = None
    broken: int = 0
    session: Mapping[str, str] = field(default_factory=dict)


def plain_name(name: str) -> str:
    """A range's name without the numbers that PyTorch's NVTX ranges end in: "aten::add, seq = 4, op_id = 7"."""
    return _NUMBERS.sub("", name)


def columns_of(table: type[Rows], values: Mapping[str, Any], names: Sequence[str] = ()) -> Rows:
    """A table from columns; `MISSING` where one is not given. Columns become int64 arrays."""
    length = len(values["start"])
    found: dict[str, Any] = {}
    for one in fields(table):  # type: ignore[arg-type]
        if one.name == "names":
            found["names"] = list(names)
        else:
            value = values.get(one.name)
            found[one.name] = np.full(length, MISSING) if value is None else np.asarray(value, np.int64)
    return table(**found)


def empty(table: type[Rows]) -> Rows:
    """A table without rows."""
    return columns_of(table, {"start": []})


def are_times(start: Integers, end: Integers) -> npt.NDArray[np.bool_]:
    """Which pairs are a start and an end that is not before it (bool, one per pair)."""
    near = (start > -FARTHEST) & (start < FARTHEST) & (end > -FARTHEST) & (end < FARTHEST)
    found: npt.NDArray[np.bool_] = near & (end >= start)
    return found


class FilledColumns:
    """Columns of int64 that are filled block by block, with room for `rows`; room that stays empty takes no memory."""

    def __init__(self, rows: int, *names: str) -> None:
        self._columns = {name: np.empty(rows, np.int64) for name in names}
        self._filled = 0
        self.left_out = 0

    def add(self, columns: Mapping[str, Any], kept: npt.NDArray[np.bool_]) -> None:
        """The rows of a block where a mask is true; a column may be one number for all. The others are counted."""
        self.left_out += len(kept) - int(kept.sum())
        first, self._filled = self._filled, self._filled + int(kept.sum())
        for name, column in self._columns.items():
            value = columns[name]
            column[first : self._filled] = value[kept] if isinstance(value, np.ndarray) else value

    @property
    def columns(self) -> dict[str, Integers]:
        """The columns as far as they are filled."""
        return {name: column[: self._filled] for name, column in self._columns.items()}


class Numbered:
    """Texts by number, in order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of a text."""
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> list[str]:
        """The texts in order of their numbers."""
        return list(self._numbers)
