"""Where the nodes of CUDA graphs were made. A node that runs is a copy of one that a capture, or a call, added.

With `--cuda-graph-trace=node` nsys notes each node that is made: when, on which thread and, of a copy, the node it was
copied from. Instantiating a graph copies its nodes, and copies may be copied; the first of the line was made by the
call that would have launched the kernel, inside the ranges of its layer.
Table: "SQLite Export Schema Reference" in NVIDIA's Nsight Systems documentation, since 2022.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ncu_parsers.timelines.nsys_database import MISSING, Database, Integers
from ncu_parsers.timelines.nsys_nvtx import process_of

TABLE = "CUDA_GRAPH_NODE_EVENTS"
COPIED_FROM = "originalGraphNodeId"

Node = tuple[int, int]
"""A process and a node's number in it."""


@dataclass(frozen=True)
class Origins:
    """When and on which thread the node behind each operation was first made; `MISSING` where that is not known."""

    moment: Integers
    thread: Integers


def read_origins(database: Database, process: Integers, node: Integers) -> Origins:
    """The origin of each pair of process and graph node. A node that is no copy never ran, so it has none."""
    lines = _Lines(database) if (node != MISSING).any() and COPIED_FROM in database.columns(TABLE) else None
    result = Origins(np.full(len(node), MISSING), np.full(len(node), MISSING))
    if lines is None:
        return result
    pairs, code = np.unique(np.stack([process, node]), axis=1, return_inverse=True)
    origins = [lines.origin((one, number)) for one, number in pairs.T.tolist()]
    for values, place in ((result.moment, 0), (result.thread, 1)):
        known = np.array([MISSING if origin is None else origin[place] for origin in origins], np.int64)
        values[:] = known[code.reshape(-1)]
    return result


class _Lines:
    """Which node was copied from which, and where each was made."""

    def __init__(self, database: Database) -> None:
        event = database.integers(TABLE, "start", "globalTid", "graphNodeId", COPIED_FROM)
        known = (event["start"] != MISSING) & (event["globalTid"] != MISSING)
        rows = np.flatnonzero(known)[np.argsort(event["start"][known], kind="stable")]
        threads = event["globalTid"][rows]
        self._made: dict[Node, tuple[int, int]] = {}
        self._sources: dict[Node, set[int]] = {}
        for start, thread, process, node, source in zip(
            event["start"][rows].tolist(), threads.tolist(), process_of(threads).tolist(),
            event["graphNodeId"][rows].tolist(), event[COPIED_FROM][rows].tolist(), strict=True,
        ):  # fmt: skip
            self._made.setdefault((process, node), (start, thread))
            if source not in (MISSING, 0):
                self._sources.setdefault((process, node), set()).add(source)

    def origin(self, node: Node) -> tuple[int, int] | None:
        """Moment and thread of the first node in the line of a copy; None where the line breaks, forks or turns."""
        if node not in self._sources:
            return None
        passed: set[Node] = set()
        while node in self._sources:
            sources = self._sources[node]
            if len(sources) > 1 or node in passed:
                return None
            passed.add(node)
            node = node[0], next(iter(sources))
        return self._made.get(node)
