"""The table of launches from GPU operations of an nsys timeline, their API calls, ranges and graph nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from ncu_launch.nvtx_ranges import DOMAIN
from ncu_launch.operators.calls import Formula
from ncu_launch.operators.table import NONE_OWN

from ncu_parsers.derived.operators.work_from_shapes import LaunchingOperator, WorkOfLaunches, work_of_kernels
from ncu_parsers.launches.nsys.nvtx import Codes, Label
from ncu_parsers.launches.nsys.open_ranges import OpenOperators
from ncu_parsers.launches.nsys.operations import KERNEL, SHAPES, Operations
from ncu_parsers.report_data.nvtx_path import place
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.tables import COLUMNS, contract_fields, field_metadata
from ncu_parsers.timelines.nsys.database import MISSING, Integers
from ncu_parsers.timelines.nsys.devices import Devices

SOURCE = "nsys"
CAPTURED_IN = "capture_nvtx_path"


@dataclass
class CallSites:
    """Where operations come from, one entry per operation.

    `thread`: serialised id of the launching thread (`MISSING`: unknown). `path` and `capture` index the two lists of
    `paths` (int64; -1: unknown): the ranges open around the call, and the ranges in which the graph node was captured.
    `operators`: operators around the call, or around a node's capture; None without ranges.
    """

    thread: Integers
    path: Codes
    capture: Codes
    paths: tuple[list[tuple[Label, ...]], list[tuple[Label, ...]]] = ([], [])
    operators: OpenOperators | None = None

    @property
    def labels(self) -> list[Label]:
        """Domain and name of every range, the ranges in the paths included."""
        return [] if self.operators is None else self.operators.ranges.labels

    @property
    def captured(self) -> int:
        """Number of operations whose capture has ranges."""
        return int((self.capture >= 0).sum())


def launch_table(
    name: str, operations: Operations, origins: CallSites, devices: Devices, kept: Sequence[str] = (),
    formulas: Mapping[str, Formula] = NONE_OWN,
) -> pa.Table:  # fmt: skip
    """Build the table of operations: the contract's columns, then the columns of timelines.

    Operator columns without a value are left out, except the columns in `kept`. `formulas` are the user's own.
    """
    rows, columns = len(operations), operations.columns
    device = _numbers(columns["deviceId"], pa.int32())
    process = operations.processes
    known = devices.of(process, columns["deviceId"])
    shorts = [_short(one) for one in operations.names]
    launch_id = _numbers(columns["correlationId"], pa.int64())
    done = _work_done(operations, origins.operators, formulas)
    filled = {
        **(done.contract_columns() if done else {}),
        "source": arrays.repeated(SOURCE, rows),
        "report": arrays.repeated(name, rows),
        "launch_id": launch_id,
        "process_id": _numbers(process, pa.int64()),
        "device_id": device,
        "device_name": arrays.recoded(known.code, known.names),
        "chip": arrays.recoded(known.code, known.chips),
        "compute_capability": arrays.recoded(known.code, known.compute_capabilities),
        "context": _numbers(columns["contextId"], pa.int64()),
        "stream": _printed(columns["streamId"]),
        "kernel_name": arrays.recoded(operations.name, operations.names),
        "kernel_short": arrays.recoded(operations.name, shorts),
        "grid": _triples([columns[axis] for axis in SHAPES[:3]]),
        "block": _triples([columns[axis] for axis in SHAPES[3:]]),
        "failed": arrays.booleans([False] * rows),
        "duration_ns": arrays.floats(operations.durations),
        **_attribution(origins),
    }
    fields = list(contract_fields())
    data = [filled.get(column.name) for column in COLUMNS]
    data = [pa.nulls(rows, column.type) if one is None else one for one, column in zip(data, COLUMNS, strict=True)]
    for own, values, unit, meaning in _own_columns(operations, origins):
        fields.append(pa.field(own, values.type, metadata=field_metadata(unit=unit, meaning=meaning)))
        data.append(values)
    for own, unit, values in [*_operator_names(origins.operators), *(done.operator_columns() if done else [])]:
        if values.null_count < rows or own in kept:
            fields.append(pa.field(own, values.type, metadata=field_metadata(unit=unit)))
            data.append(values)
    return pa.Table.from_arrays(data, schema=pa.schema(fields))


@lru_cache(maxsize=65536)
def _short(name: str) -> str:
    return name if name.startswith("[") else tables.short_name(name)


def _work_done(
    operations: Operations, operators: OpenOperators | None, formulas: Mapping[str, Formula]
) -> WorkOfLaunches | None:
    """FLOPs of the operations, from the sizes in the names of enclosing ranges; None if no range has sizes.

    A graph's node calls its operator again at every launch of the graph.
    """
    if operators is None or not any(call.inputs.shapes for call in operators.ranges.calls):
        return None
    calls = operators.calls
    if not any(call.inputs.shapes for call in calls if call):
        return None
    kernels = (operations.kind == operations.kinds.index(KERNEL)).tolist()
    correlations = np.where(operations.columns["graphNodeId"] == MISSING, MISSING, operations.columns["correlationId"])
    numbers: dict[tuple[int, int], int] = {}
    found: list[LaunchingOperator | None] = []
    for row, (call, replay) in enumerate(zip(calls, correlations.tolist(), strict=True)):
        if call is None:
            found.append(None)
            continue
        around = operators.path_to(int(operators.innermost[row]))
        *above, number = [numbers.setdefault((replay, one), len(numbers)) for one in around]
        kernel = operations.names[operations.name[row]] if kernels[row] else ""
        found.append(LaunchingOperator(number, call.name, call.inputs, tuple(above), kernel))
    return work_of_kernels(found, formulas)


def _operator_names(operators: OpenOperators | None) -> list[tuple[str, str, pa.Array]]:
    """Name, unit and values of the columns of the innermost operator and the shapes of its arguments as JSON."""
    if operators is None:
        return []
    calls, code = operators.ranges.calls, operators.innermost_call
    names = [call.name for call in calls]
    shapes = [json.dumps(call.inputs.shapes, separators=(",", ":")) if call.inputs.shapes else None for call in calls]
    return [("operator", "", arrays.recoded(code, names)), ("shapes", "", arrays.recoded(code, shapes))]


def _own_columns(operations: Operations, origins: CallSites) -> list[tuple[str, pa.Array, str, str]]:
    columns = operations.columns
    thread = np.where(origins.thread == MISSING, MISSING, origins.thread & 0xFFFFFF)
    whole = pa.int64()
    meaning = "NVTX ranges in which a CUDA graph's node was captured, outermost first"
    lists = _path_lists(origins.capture, origins.paths[1]) if origins.captured else None
    captured = [(CAPTURED_IN, lists, "", meaning)] if lists is not None else []
    return [
        *captured,
        (
            "operation",
            arrays.recoded(operations.kind, list(operations.kinds)),
            "",
            "kernel, memcpy, memset, or graph as a whole",
        ),
        ("start_ns", _numbers(columns["start"], whole), "ns", "since the time zero of the timeline"),
        ("end_ns", _numbers(columns["end"], whole), "ns", "since the time zero of the timeline"),
        ("bytes", _numbers(columns["bytes"], whole), "byte", "copied or set"),
        (
            "correlation_id",
            _numbers(columns["correlationId"], whole),
            "",
            "shared with the API call, within the process",
        ),
        ("graph_node_id", _numbers(columns["graphNodeId"], whole), "", "node of a CUDA graph"),
        ("thread_id", _numbers(thread, whole), "", "the thread whose API call launched it"),
        ("registers_per_thread", _numbers(columns["registersPerThread"], whole), "register/thread", ""),
        ("static_shared_memory_bytes", _numbers(columns["staticSharedMemory"], whole), "byte", "per block"),
        ("dynamic_shared_memory_bytes", _numbers(columns["dynamicSharedMemory"], whole), "byte", "per block"),
    ]


def _attribution(origins: CallSites) -> dict[str, pa.Array]:
    """The NVTX path of each operation, and the phase, module and iteration from ranges of our launcher."""
    paths, captures = origins.paths
    if not (paths or captures):
        return {}
    has_ours = any(domain == DOMAIN for domain, _ in origins.labels)
    launched = [_placed(path, is_ours=has_ours) for path in paths]
    captured = [_placed(path, is_ours=has_ours) for path in captures]
    iterations = np.array([MISSING if one.iteration is None else one.iteration for one in launched] or [MISSING])
    iteration = np.where(origins.path >= 0, iterations[np.maximum(origins.path, 0)], MISSING)
    sides = (origins.path, origins.capture)
    return {
        "nvtx_path": _path_lists(origins.path, paths),
        "phase": _first_named(sides, [one.phase for one in launched], [one.phase for one in captured]),
        "module": _first_named(sides, [one.module for one in launched], [one.module for one in captured]),
        "iteration": _numbers(iteration, pa.int32()),
    }


def _path_lists(code: Codes, paths: list[tuple[Label, ...]]) -> pa.Array:
    """The range names of each operation's path; null without a path."""
    listed = arrays.text_lists([tuple(name for _, name in path) for path in paths])
    return arrays.take(listed, _numbers(np.where(code >= 0, code, MISSING), pa.int64()))


def _first_named(codes: tuple[Codes, Codes], names: list[str | None], others: list[str | None]) -> pa.Array:
    """Texts by the first index if that entry has a text, else by the second."""
    first, second = codes
    named = np.array([name is not None for name in names] or [False])
    has_first = (first >= 0) & named[np.maximum(first, 0)]
    return arrays.recoded(np.where(has_first, first, np.where(second >= 0, second + len(names), -1)), [*names, *others])


def _placed(path: tuple[Label, ...], *, is_ours: bool) -> Launch:
    """A launch with this path; phase, module and iteration are set if the path has ranges of our launcher."""
    launch = Launch("", nvtx_path=tuple(name for _, name in path))
    if is_ours and any(domain == DOMAIN for domain, _ in path):
        place(launch, list(path))
    return launch


def _numbers(values: Integers, kind: pa.DataType) -> pa.Array:
    """Convert integers to Arrow; null if `MISSING`, or if they do not fit into 32 bits for int32."""
    width = np.int32 if kind == pa.int32() else np.int64
    limits = np.iinfo(width)
    present = (values != MISSING) & (values >= limits.min) & (values <= limits.max)
    bitmap = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little").tobytes())
    data = np.where(present, values, 0).astype(width)
    return pa.Array.from_buffers(kind, len(values), [bitmap, pa.py_buffer(data.tobytes())])


def _printed(values: Integers) -> pa.Array:
    """Integers as texts; null if `MISSING`."""
    numbers, code = np.unique(values, return_inverse=True)
    return arrays.recoded(code, [None if number == MISSING else str(number) for number in numbers.tolist()])


def _triples(axes: list[Integers]) -> pa.Array:
    """Lists of x, y and z; null unless all three are known."""
    shapes = np.stack(axes, axis=1)
    known = ((shapes >= 0) & (shapes <= np.iinfo(np.int32).max)).all(axis=1, keepdims=True)
    return arrays.triples(np.where(known, shapes, -1).astype(np.int32))
