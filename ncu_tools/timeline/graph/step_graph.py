"""The tables of a step's graph: nodes in chains, and the edges between chains.

A chain is a host thread or a stream of a GPU. Its nodes are in order: of a thread the starts of API calls, and the ends
of those that may block; of a stream the starts of operations. Node i of a chain is reached at

    x[i] = max(x[i-1] + work[i-1] + call[i] + rest[i], x[source] + work[source] + offset for every edge) + lag[i]

where an edge counts `work` of its source only if it leaves from the end of an operation. A lag is what the edges do not
explain of the recorded time: with all lags a replay with nothing changed is exact by construction, and proves nothing.
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
"""`Edges.kind`."""
EDGE_KINDS = ("launch", "sync", "copy", "hand-over", "full queue", "event", "collective", "stream order")

NONE = -1


def graph_facts() -> dict[str, Any]:
    """The contents of graph.toml: limits by which edges are found."""
    return table_beside(__file__, "graph")


def numbered(*columns: Integers) -> tuple[list[tuple[int, ...]], Integers]:
    """The distinct rows of some columns in order, and the number of each row among them."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:  # of few distinct values, which a search finds faster than a sort of all
        values = np.unique(column)
        code = code * max(len(values), 1) + np.searchsorted(values, column)
    distinct, first = np.unique(code, return_index=True) if len(np.unique(code)) > 1 else (code[:1], np.arange(1))
    rows = list(zip(*(column[first[: len(distinct)]].tolist() for column in columns), strict=True))
    return rows, np.searchsorted(distinct, code)


@dataclass(frozen=True)
class Edges:
    """Edges between chains, in order of their targets; `from_end`: it leaves from the end of an operation."""

    kind: npt.NDArray[np.int8]
    source: npt.NDArray[np.int32]
    target: npt.NDArray[np.int32]
    offset: Numbers
    from_end: Mask

    def __len__(self) -> int:
        return len(self.source)

    def at(self, rows: npt.NDArray[np.generic]) -> Edges:
        """The edges at indices, or where a mask is true."""
        return Edges(self.kind[rows], self.source[rows], self.target[rows], self.offset[rows], self.from_end[rows])


@dataclass(frozen=True)
class Chain:
    """A host thread (`thread`) or a stream, and its nodes: [first, behind)."""

    first: int
    behind: int
    process: int
    thread: int | None = None
    device: int | None = None
    stream: int | None = None

    @property
    def is_host(self) -> bool:
        """Whether it is a thread of the host."""
        return self.thread is not None


@dataclass(frozen=True)
class StepGraph:
    """A recording as a graph. Times are ns since `origin`, the first thing that the recording holds.

    `row` is the place of a node's operation or API call in the recording, -1 for neither, `is_end` whether it is the
    end of a call. `work` is how long the operation of a node runs; `call` the time before a node that its thread
    spent in API calls, `rest` the other time before it: of a thread its host code, of a stream the gap behind the
    operation before, and of its first one how long it still ran work from before the recording. `launch` is the node
    that launched an operation, the begin or the end of a call, -1 for none, and `latency` how long after it the
    operation can start. `operation_node` is the node of each operation by its row, `entry_node` the one that its launch
    leads to: another where a collective waits for the last rank to arrive. `unmatched` are waiting calls (rows)
    whose end no operation explains.
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
        """Which nodes are of threads of the host."""
        return np.array([one.is_host for one in self.chains], np.bool_)[self.chain]

    def launching_node(self, rows: Integers) -> Integers:
        """The node of the begin of the call that launched each operation, by rows; -1 for none."""
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
        """From the origin to the end of the recording, in ns."""
        return self.end - self.origin
