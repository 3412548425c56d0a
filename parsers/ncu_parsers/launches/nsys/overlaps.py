"""How long each operation of a timeline ran alone on its GPU, and beside others, as on several streams."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ncu_parsers.launches.nsys.nvtx import process_of
from ncu_parsers.launches.nsys.operations import ACTIVITIES, GRAPH, Operations
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import field_metadata
from ncu_parsers.timelines.activity.operation_times import impossible_ends, share_a_number
from ncu_parsers.timelines.nsys.database import MISSING, Database, Integers

FIELDS = ("start", "end", "deviceId", "globalPid", "contextId", "streamId", "correlationId", "graphNodeId")


class Overlaps:
    """The moments in which two operations or more ran on a GPU, by its process and device."""

    def __init__(self, database: Database) -> None:
        self._gpus: dict[tuple[int, int], tuple[Integers, Integers]] = {}
        parts = [
            (kind, part) for kind, table in ACTIVITIES.items() for _, part in database.integer_blocks(table, *FIELDS)
        ]
        if not parts:
            return
        is_graph = np.concatenate([np.full(len(part["start"]), kind == GRAPH) for kind, part in parts])
        columns = {name: np.concatenate([part[name] for _, part in parts]) for name in FIELDS}
        timed = (columns["start"] != MISSING) & (columns["end"] >= columns["start"]) & (columns["end"] != 0)
        columns = {name: values[timed] for name, values in columns.items()}
        start, end = columns["start"], columns["end"]
        one_by_one = ~is_graph[timed] & np.isin(columns["graphNodeId"], (0, MISSING))
        one_by_one &= (columns["streamId"] != MISSING) & ~share_a_number(columns["correlationId"], MISSING)
        streams = tuple(columns[name] for name in ("globalPid", "deviceId", "contextId", "streamId"))
        for one in impossible_ends(streams, start, end, one_by_one):
            end[one.row] = one.cut_to
        process = _processes(columns["globalPid"])
        order = np.lexsort((start, columns["deviceId"], process))
        new = (np.diff(columns["deviceId"][order]) != 0) | (np.diff(process[order]) != 0)
        for mine in np.split(order, np.flatnonzero(new) + 1) if len(order) else ():
            found = _moments_of_two(start[mine], end[mine])
            if len(found[0]):
                self._gpus[int(process[mine[0]]), int(columns["deviceId"][mine[0]])] = found

    def beside(self, table: pa.Table, operations: Operations) -> pa.Table:
        """Append to a batch of launches how long each ran alone and beside others; unchanged if none ever did."""
        if not self._gpus:
            return table
        start, end = operations.columns["start"], operations.columns["end"]
        process, device = operations.processes, operations.columns["deviceId"]
        overlapped = np.zeros(len(operations), np.int64)
        for (one, number), (begins, ends) in self._gpus.items():
            mine = (process == one) & (device == number)
            overlapped[mine] = _before(begins, ends, end[mine]) - _before(begins, ends, start[mine])
        unknown = np.isnan(operations.durations)
        for name, values in (("exclusive_ns", end - start - overlapped), ("overlapped_ns", overlapped)):
            column = arrays.whole(np.where(unknown, MISSING, values))
            table = table.append_column(pa.field(name, column.type, metadata=field_metadata(unit="ns")), column)
        return table


def _processes(serialised: Integers) -> Integers:
    return np.where(serialised == MISSING, MISSING, process_of(serialised) & 0xFFFFFF)


def _moments_of_two(start: Integers, end: Integers) -> tuple[Integers, Integers]:
    """The moments in which two or more of some operations run, in order of their starts: apart from each other."""
    reached = np.maximum.accumulate(end)
    begins, ends = start[1:], np.minimum(end[1:], reached[:-1])
    some = ends > begins
    begins, ends = begins[some], np.maximum.accumulate(ends[some])
    new = np.concatenate([[True], begins[1:] > ends[:-1]])[: len(begins)]
    return begins[new], ends[np.append(new[1:], True)[: len(ends)]]


def _before(begins: Integers, ends: Integers, moment: Integers) -> Integers:
    """How many ns of these intervals lie before each moment."""
    passed = np.concatenate([[0], np.cumsum(ends - begins)])
    place = np.searchsorted(begins, moment, side="right")
    return passed[place] - np.where(place > 0, np.maximum(ends[np.maximum(place, 1) - 1] - moment, 0), 0)
