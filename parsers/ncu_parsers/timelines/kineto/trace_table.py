"""The table of a trace's rows, as a whole or part by part.

What rows have in common (names, shapes, ranges around them) is made once; a part of the rows takes it by its codes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ncu_parsers.derived.operators.work_from_shapes import WorkOfLaunches
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import COLUMNS, contract_fields, field_metadata, short_name
from ncu_parsers.schema.vendors import VENDOR_COLUMN
from ncu_parsers.timelines.kineto.chrome_trace import (
    UNKNOWN_DEVICE,
    event_mapping,
    event_whole,
    traced_devices,
    vendor_of_runtime,
    whole_nanoseconds,
)
from ncu_parsers.timelines.kineto.host_threads import Floats, Integers, NestedRanges
from ncu_parsers.timelines.kineto.places import Places
from ncu_parsers.timelines.kineto.traced_events import KERNEL, MISSING, Columns, Launched

DIALECT = "kineto"
CPU_OPERATION = "cpu_op"
ROWS_OF_A_PART = 128 * 1024

Extra = tuple[str, str, pa.Array]
"""Name, unit and values of a column beyond the contract."""


@dataclass
class TraceRows:
    """The rows to be: columns of numbers with `MISSING`, the distinct `launched`, and where each comes from.

    `columns` has `launched` (places in `launched`), `start` and `duration` (microseconds), and as far as there are any
    `whole` (durations of operators with what they called) and the columns of GPU work.
    """

    columns: Columns
    launched: Sequence[Launched]
    places: Places

    def __len__(self) -> int:
        return self.places.rows


class TraceTable:
    """TraceRows as a table of launches. `header` is what stands beside the events of the trace `name`."""

    def __init__(
        self,
        name: str,
        rows: TraceRows,
        ranges: NestedRanges,
        header: dict[str, Any],
        done: WorkOfLaunches,
        others: Sequence[Extra] = (),
    ) -> None:
        places, contexts, calls = rows.places, ranges.contexts.known, ranges.calls
        self.rows = len(rows)
        self._name, self._done, self._others = name, done, others
        processes = [event_whole(process) for process, _ in ranges.threads]
        process_of = np.array([MISSING if one is None else one for one in (*processes, None)], np.int64)
        self._columns = {
            **rows.columns, "process": process_of[places.thread], "context_code": places.context, "call": places.call,
            "iteration": iterations_at(places.moment, ranges.steps()),
        }  # fmt: skip
        self._launched = rows.launched
        self._kernels = [one.name for one in rows.launched], [_short(one) for one in rows.launched]
        self._paths = arrays.text_lists([one.annotations for one in contexts])
        self._phases = [one.phase() for one in contexts]
        self._modules = [".".join(one.modules) or None for one in contexts]
        self._operators = [one.name for one in calls]
        self._inputs = [_as_text(one.inputs.shapes) for one in calls], [_as_text(one.inputs.types) for one in calls]
        rank = event_whole(event_mapping(header.get("distributedInfo")).get("rank"), bits=31)
        self._rank = MISSING if rank is None else rank
        self._devices, self._vendor = traced_devices(header), vendor_of_runtime(header)
        everything = slice(0, self.rows)
        self._extras = {title for title, _, values in self._beyond(everything) if values.null_count < self.rows}

    def parts(self) -> Iterator[pa.Table]:
        """The table in parts that follow each other."""
        for begin in range(0, self.rows, ROWS_OF_A_PART):
            yield self.part(begin, min(begin + ROWS_OF_A_PART, self.rows))

    def part(self, begin: int, end: int) -> pa.Table:
        """The table of the rows from `begin` to before `end`. Every part has the same columns."""
        count, rows = end - begin, slice(begin, end)
        known = {**self._identity(rows), **self._position(rows), **self._done.part(rows).contract_columns()}
        known["source"], known["report"] = arrays.repeated(DIALECT, count), arrays.repeated(self._name, count)
        known["duration_ns"] = arrays.floats(whole_nanoseconds(self._columns["duration"][rows]).astype(np.float64))
        nothing = {kind: pa.nulls(count, kind) for kind in {column.type for column in COLUMNS}}  # one for all of a type
        columns = [known.get(column.name, nothing[column.type]) for column in COLUMNS]
        fields = list(contract_fields())
        for title, unit, values in self._beyond(rows):
            if title in self._extras:
                columns.append(values)
                fields.append(pa.field(title, values.type, metadata=field_metadata(unit=unit)))
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def _identity(self, rows: slice) -> dict[str, pa.Array]:
        """The columns that say what ran, and on which device."""
        columns = {name: column[rows] for name, column in self._columns.items()}
        launched = columns["launched"]
        names, short_names = self._kernels
        found = {
            "rank": arrays.wholes(np.full(len(launched), self._rank), pa.int32()),
            "kernel_name": arrays.recoded(launched, names),
            "kernel_short": arrays.recoded(launched, short_names),
            "grid": _triples(launched, [one.grid for one in self._launched]),
            "block": _triples(launched, [one.block for one in self._launched]),
            "failed": arrays.booleans(np.zeros(len(launched), np.bool_)),
        }
        if "device" not in columns:
            return found
        number, of_row = np.unique(columns["device"], return_inverse=True)
        known = [self._devices.get(one, UNKNOWN_DEVICE) for one in number.tolist()]
        stream, of_stream = np.unique(columns["stream"], return_inverse=True)
        return {
            **found,
            "launch_id": arrays.wholes(columns["correlation"], pa.int64()),
            "device_id": arrays.wholes(columns["device"], pa.int32()),
            "device_name": arrays.recoded(of_row, [device.name for device in known]),
            "compute_capability": arrays.recoded(of_row, [device.compute_capability for device in known]),
            "context": arrays.wholes(columns["context"], pa.int64()),
            "stream": arrays.recoded(of_stream, [None if one == MISSING else str(one) for one in stream.tolist()]),
        }

    def _position(self, rows: slice) -> dict[str, pa.Array]:
        """The columns that say which part of the program a row belongs to."""
        context = self._columns["context_code"][rows]
        return {
            "process_id": arrays.wholes(self._columns["process"][rows], pa.int64()),
            "nvtx_path": arrays.taken(self._paths, arrays.indices(context)),
            "phase": arrays.recoded(context, self._phases),
            "module": arrays.recoded(context, self._modules),
            "iteration": arrays.wholes(self._columns["iteration"][rows], pa.int32()),
        }

    def _beyond(self, rows: slice) -> Iterator[Extra]:
        """Columns beyond the contract. Shapes and types are JSON lists, one entry per argument."""
        columns = {name: column[rows] for name, column in self._columns.items()}
        launched, call = columns["launched"], columns["call"]
        shapes, types = self._inputs
        yield "start_ns", "ns", arrays.whole(whole_nanoseconds(columns["start"]))
        yield "operation", "", arrays.recoded(launched, [one.operation for one in self._launched])
        yield "operator", "", arrays.recoded(call, self._operators)
        yield "shapes", "", arrays.recoded(call, shapes)
        yield "dtype", "", arrays.recoded(call, types)
        if "whole" in columns:
            yield "whole_duration_ns", "ns", arrays.floats(whole_nanoseconds(columns["whole"]).astype(np.float64))
        if "device" in columns:
            yield VENDOR_COLUMN, "", self._vendors(columns["device"])
        if "bytes" in columns:
            yield "bytes", "byte", arrays.wholes(columns["bytes"], pa.int64())
        registers = _numbers([one.registers for one in self._launched])
        yield "registers_per_thread", "register/thread", arrays.wholes(registers[launched], pa.int64())
        shared_memory = _numbers([one.shared_memory for one in self._launched])
        yield "shared_memory_bytes", "byte", arrays.wholes(shared_memory[launched], pa.int64())
        occupancy = np.array([one.occupancy for one in self._launched], np.float64)
        yield "estimated_occupancy_percent", "%", arrays.floats(occupancy[launched])
        if "graph_node" in columns:
            yield "graph_node_id", "", arrays.wholes(columns["graph_node"], pa.int64())
        yield from self._done.part(rows).operator_columns()
        for title, unit, values in self._others:
            yield title, unit, values.slice(rows.start, rows.stop - rows.start)

    def _vendors(self, device: Integers) -> pa.Array:
        """The vendor of each row's GPU; of one that the header does not list, that of the runtime."""
        number, of_row = np.unique(device, return_inverse=True)
        vendors = [self._devices[one].vendor if one in self._devices else self._vendor for one in number.tolist()]
        return arrays.recoded(of_row, [None if one is None else one.value for one in vendors])


def iterations_at(moments: Floats, steps: list[tuple[float, float, int]]) -> Integers:
    """The step in which each moment lies, `MISSING` outside of all."""
    if not steps:
        return np.full(len(moments), MISSING)
    starts, ends, numbers = (np.array(column) for column in zip(*steps, strict=True))
    at = np.searchsorted(starts, moments, side="right") - 1
    return np.where((at >= 0) & (moments <= ends[at]), numbers[at], MISSING)  # False where a moment is not known


def _numbers(values: Sequence[int | None]) -> npt.NDArray[np.int64]:
    return np.array([MISSING if one is None else one for one in values], np.int64)


def _triples(codes: Integers, values: Sequence[tuple[int, ...] | None]) -> pa.Array:
    """Grids or blocks from the places of each."""
    return arrays.triples(np.array([one or (MISSING,) * 3 for one in values], np.int32)[codes])


def _as_text(value: object) -> str | None:
    """A list of shapes or types as JSON; None for anything that is no list."""
    return json.dumps(value, separators=(",", ":")) if isinstance(value, list) else None


def _short(one: Launched) -> str:
    """The function's name; a copy's name is whole as it is, and an operator's goes without its namespace."""
    if one.operation == KERNEL:
        return short_name(one.name)
    return one.name.partition("::")[2] or one.name if one.operation == CPU_OPERATION else one.name
