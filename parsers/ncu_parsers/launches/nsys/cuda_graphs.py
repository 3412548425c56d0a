"""Find where nodes of CUDA graphs were created. A node that runs is a copy of one added by a capture or an API call.

With `--cuda-graph-trace=node` nsys records each created node: when, on which thread and, for a copy, its original.
Instantiating a graph copies its nodes, and copies may be copied. The original was created by the call that would have
launched the kernel, inside the NVTX ranges of its layer. Table: "SQLite Export Schema Reference" in NVIDIA's Nsight
Systems documentation, since 2022.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncu_parsers.timelines.nsys.database import MISSING, Database, Integers
from ncu_parsers.timelines.nsys.nsys_ranges import process_of

TABLE = "CUDA_GRAPH_NODE_EVENTS"
COPIED_FROM = "originalGraphNodeId"

Node = tuple[int, int]
"""A process and the number of a node in it."""


@dataclass(frozen=True)
class Origins:
    """Time in ns and thread at which the node of each operation was first created; `MISSING` if unknown."""

    moment: Integers
    thread: Integers

    @property
    def is_known(self) -> npt.NDArray[np.bool_]:
        """Where the origin is known."""
        is_known: npt.NDArray[np.bool_] = self.moment != MISSING
        return is_known


class GraphNodes:
    """Copy relations of graph nodes, and time and thread at which each was created. Read on first use."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._made: dict[Node, tuple[int, int]] = {}
        self._sources: dict[Node, set[int]] = {}
        self._is_read = COPIED_FROM not in database.columns(TABLE)

    def origins(self, process: Integers, node: Integers) -> Origins:
        """The origin of each pair of process and graph node (int64, one per operation); `MISSING` if unknown."""
        result = Origins(np.full(len(node), MISSING), np.full(len(node), MISSING))
        rows = np.flatnonzero(node != MISSING)
        if not len(rows):
            return result
        self._read()
        pairs, code = np.unique(np.stack([process[rows], node[rows]]), axis=1, return_inverse=True)
        origins = [self._origin((one, number)) for one, number in pairs.T.tolist()]
        for values, place in ((result.moment, 0), (result.thread, 1)):
            known = np.array([MISSING if origin is None else origin[place] for origin in origins], np.int64)
            values[rows] = known[code.reshape(-1)]
        return result

    def _read(self) -> None:
        if self._is_read:
            return
        self._is_read = True
        event = self._database.integers(TABLE, "start", "globalTid", "graphNodeId", COPIED_FROM)
        known = (event["start"] != MISSING) & (event["globalTid"] != MISSING)
        rows = np.flatnonzero(known)[np.argsort(event["start"][known], kind="stable")]
        threads = event["globalTid"][rows]
        for start, thread, process, node, source in zip(
            event["start"][rows].tolist(), threads.tolist(), process_of(threads).tolist(),
            event["graphNodeId"][rows].tolist(), event[COPIED_FROM][rows].tolist(), strict=True,
        ):  # fmt: skip
            self._made.setdefault((process, node), (start, thread))
            if source not in (MISSING, 0):
                self._sources.setdefault((process, node), set()).add(source)

    def _origin(self, node: Node) -> tuple[int, int] | None:
        """Time and thread of a copy's original; None if the chain of copies breaks, branches or loops."""
        if node not in self._sources:
            return None
        visited: set[Node] = set()
        while node in self._sources:
            sources = self._sources[node]
            if len(sources) > 1 or node in visited:
                return None
            visited.add(node)
            node = node[0], next(iter(sources))
        return self._made.get(node)
