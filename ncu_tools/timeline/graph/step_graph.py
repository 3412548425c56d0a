"""The tables of a step's graph: nodes in chains, and edges between chains.

A chain is a host thread or a stream of a GPU. Its nodes are ordered: those of a thread are the starts of API calls and
the ends of calls that may block; those of a stream are the starts of operations. Node i of a chain is reached at

    x[i] = max(x[i-1] + work[i-1] + call[i] + rest[i], x[source] + work[source] + offset for every edge) + lag[i]

where `work` of the source counts only for an edge from the end of an operation. A lag is the recorded time that the
edges do not explain: with all lags, an unchanged replay is exact by construction, and proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from ncu_launch.files.toml_tables import table_beside

Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

LAUNCH, SYNC, COPY, HAND_OVER, FULL_QUEUE, EVENT, COLLECTIVE, STREAM_ORDER = range(8)
"""Values of `Edges.kind`."""
EDGE_KINDS = ("launch", "sync", "copy", "hand-over", "full queue", "event", "collective", "stream order")

NONE = -1


def graph_facts() -> dict[str, Any]:
    """The contents of graph.toml: limits for finding edges."""
    return table_beside(__file__, "graph")


def numbered(*columns: Integers) -> tuple[list[tuple[int, ...]], Integers]:
    """The distinct rows of some columns, sorted, and for each row its index among them."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:  # columns have few distinct values, which a search finds faster than a sort
        values = np.unique(column)
        code = code * max(len(values), 1) + np.searchsorted(values, column)
    distinct, first = np.unique(code, return_index=True) if len(np.unique(code)) > 1 else (code[:1], np.arange(1))
    rows = list(zip(*(column[first[: len(distinct)]].tolist() for column in columns), strict=True))
    return rows, np.searchsorted(distinct, code)


@dataclass(frozen=True)
class Edges:
    """Edges between chains, ordered by target; with `from_end`, an edge leaves the end of an operation."""

    kind: npt.NDArray[np.int8]
    source: npt.NDArray[np.int32]
    target: npt.NDArray[np.int32]
    offset: Numbers
    from_end: Mask

    def __len__(self) -> int:
        return len(self.source)

    def at(self, rows: npt.NDArray[np.generic]) -> Edges:
        """The edges at these indices, or where this mask is true."""
        return Edges(self.kind[rows], self.source[rows], self.target[rows], self.offset[rows], self.from_end[rows])


@dataclass(frozen=True)
class Chain:
    """A host thread (`thread`) or a stream of a GPU, with its nodes [first, behind)."""

    first: int
    behind: int
    process: int
    thread: int | None = None
    device: int | None = None
    stream: int | None = None

    @property
    def is_host(self) -> bool:
        """True for a thread of the host."""
        return self.thread is not None


@dataclass(frozen=True)
class StepGraph:
    """A recording as a graph. Times are in ns since `origin`, the first event of the recording.

    Per node: `row` is the row of its operation or API call in the recording, -1 for neither; `is_end` marks ends of
    calls; `work` is the duration of its operation; `call` is the time before it that its thread spent in API calls,
    `rest` the other time before it (host code of a thread; gap of a stream, or, before its first operation, work from
    before the recording). `launch` is the node that launched an operation, the begin or end of a call, -1 for none, and
    `latency` the time from it until the operation can start. Per operation, by row: `operation_node` is its node,
    `entry_node` the node to which its launch leads, which differs if a collective waits for other ranks. `unmatched`
    are waiting calls (rows) whose end no operation explains.
    """

    origin: int
    end: int
    chains: tuple[Chain, ...]
    chain: npt.NDArray[np.int32]
    time: Numbers
    work: Numbers
    call: Numbers
    rest: Numbers
    lag: Numbers
    row: npt.NDArray[np.int32]
    is_end: Mask
    launch: npt.NDArray[np.int32]
    latency: Numbers
    edges: Edges
    segments: npt.NDArray[np.int32]
    operation_node: npt.NDArray[np.int32]
    entry_node: npt.NDArray[np.int32]
    unmatched: Integers
    no_launch: int
    inferred: int
    dropped: int

    def __len__(self) -> int:
        return len(self.time)

    @property
    def is_host(self) -> Mask:
        """Mask of the nodes of host threads."""
        return np.array([one.is_host for one in self.chains], np.bool_)[self.chain]

    def launching_node(self, rows: Integers) -> Integers:
        """The node at the begin of the call that launched each operation (rows); -1 for none."""
        found: Integers = self.launch[self.entry_node[rows]].astype(np.int64)
        at_end = np.flatnonzero(self.is_end[found] & (found >= 0))
        if len(at_end):
            starts = np.flatnonzero(self.is_host & ~self.is_end & (self.row >= 0))
            start_of = np.zeros(int(self.row[starts].max()) + 1, np.int64)
            start_of[self.row[starts]] = starts
            found[at_end] = start_of[self.row[found[at_end]]]
        return found

    @property
    def first_of_streams(self) -> Integers:
        """The first node of every stream."""
        return np.array([one.first for one in self.chains if not one.is_host], np.int64)

    @property
    def length(self) -> int:
        """The time from the origin to the end of the recording, in ns."""
        return self.end - self.origin
