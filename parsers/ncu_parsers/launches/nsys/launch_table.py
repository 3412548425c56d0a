"""The table of launches from GPU operations of an nsys timeline, their API calls, ranges and graph nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from ncu_launch.operators.calls import Formula
from ncu_launch.operators.table import NONE_OWN

from ncu_parsers.derived.operators.work_from_shapes import WorkOfLaunches
from ncu_parsers.launches.launch_work import work_of_launches
from ncu_parsers.launches.nsys.call_sites import CallSites, Label, OpenPaths
from ncu_parsers.launches.nsys.operations import TracedOperations
from ncu_parsers.launches.operation_columns import Column, column, identity, table_of, wholes
from ncu_parsers.report_data.nvtx_path import place
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema import arrays
from ncu_parsers.timelines.activity.activity import MISSING, OPERATION_KINDS, Codes, Integers
from ncu_parsers.timelines.nsys.devices import Known

SOURCE = "nsys"
CAPTURED_IN = "capture_nvtx_path"


def launch_table(
    name: str, operations: TracedOperations, thread: Integers, sites: CallSites | None, gpu: Known,
    kept: Sequence[str] = (), formulas: Mapping[str, Formula] = NONE_OWN,
) -> pa.Table:  # fmt: skip
    """Build the launch table of operations: columns of every launch table, then columns of timelines.

    `thread` is the serialised id of the launching thread; `sites` are None without ranges. Operator columns without a
    value are left out, except the columns in `kept`. `formulas` are the user's own.
    """
    rows = len(operations)
    done = None if sites is None else _work_done(operations, sites, formulas)
    known = {
        **(done.contract_columns() if done else {}),
        **identity(operations, SOURCE, name),
        "device_name": arrays.recoded(gpu.code, gpu.names),
        "chip": arrays.recoded(gpu.code, gpu.chips),
        "compute_capability": arrays.recoded(gpu.code, gpu.compute_capabilities),
        "grid": _triples([operations.grid_x, operations.grid_y, operations.grid_z]),
        "block": _triples([operations.block_x, operations.block_y, operations.block_z]),
        **({} if sites is None else _attribution(sites.launched, sites.captured)),
    }
    of_operators = [
        column(title, values, unit)
        for title, unit, values in [*_operator_names(sites), *(done.operator_columns() if done else [])]
        if values.null_count < rows or title in kept
    ]
    return table_of(rows, known, [*_captures(sites), *_own_columns(operations, thread), *of_operators])


def _work_done(
    operations: TracedOperations, sites: CallSites, formulas: Mapping[str, Formula]
) -> WorkOfLaunches | None:
    """FLOPs of the operations, from the sizes in the names of enclosing ranges; None if no range has sizes.

    A graph's node calls its operator again at every launch of the graph.
    """
    ranges, operator = sites.ranges, sites.operator
    has_shapes = np.array([bool(call.inputs.shapes) for call in ranges.calls], np.bool_)
    if not has_shapes[ranges.call[operator[operator >= 0]]].any():
        return None
    captured = sites.captured_operators()
    return work_of_launches(operations, sites.is_node, ranges, sites.launched.places, captured, formulas)


def _operator_names(sites: CallSites | None) -> list[tuple[str, str, pa.Array]]:
    """Name, unit and values of the columns of the innermost operator and the shapes of its arguments as JSON."""
    if sites is None:
        return []
    calls, code = sites.ranges.calls, np.append(sites.ranges.call, -1)[sites.operator]
    names = [call.name for call in calls]
    shapes = [json.dumps(call.inputs.shapes, separators=(",", ":")) if call.inputs.shapes else None for call in calls]
    return [("operator", "", arrays.recoded(code, names)), ("shapes", "", arrays.recoded(code, shapes))]


def _captures(sites: CallSites | None) -> list[Column]:
    if sites is None or not sites.captures:
        return []
    meaning = "NVTX ranges in which a CUDA graph's node was captured, outermost first"
    return [column(CAPTURED_IN, _path_lists(sites.captured), "", meaning)]


def _own_columns(operations: TracedOperations, thread: Integers) -> list[Column]:
    def numbers(title: str, values: Integers, unit: str, meaning: str = "") -> Column:
        return column(title, wholes(values, pa.int64()), unit, meaning)

    kind, since = arrays.recoded(operations.kind, OPERATION_KINDS), "since the time zero of the timeline"
    end = arrays.whole(operations.end, operations.end != MISSING)
    own_thread = np.where(thread == MISSING, MISSING, thread & 0xFFFFFF)
    return [
        column("operation", kind, "", "kernel, memcpy, memset, or graph as a whole"),
        column("start_ns", arrays.whole(operations.start), "ns", since),
        column("end_ns", end, "ns", since),
        numbers("bytes", operations.bytes, "byte", "copied or set"),
        numbers("correlation_id", operations.correlation, "", "shared with the API call, within the process"),
        numbers("graph_node_id", operations.graph_node, "", "node of a CUDA graph"),
        numbers("thread_id", own_thread, "", "the thread whose API call launched it"),
        numbers("registers_per_thread", operations.registers, "register/thread"),
        numbers("static_shared_memory_bytes", operations.static_shared_memory, "byte", "per block"),
        numbers("dynamic_shared_memory_bytes", operations.dynamic_shared_memory, "byte", "per block"),
    ]


def _attribution(launched: OpenPaths, captured: OpenPaths) -> dict[str, pa.Array]:
    """The NVTX path of each operation, and the phase, module and iteration from ranges of our launcher."""
    here, there = ([_placed(path) for path in side.paths] for side in (launched, captured))
    iterations = np.array([*(MISSING if one.iteration is None else one.iteration for one in here), MISSING])
    codes = (launched.code, captured.code)
    return {
        "nvtx_path": _path_lists(launched),
        "phase": _first_named(codes, [one.phase for one in here], [one.phase for one in there]),
        "module": _first_named(codes, [one.module for one in here], [one.module for one in there]),
        "iteration": wholes(iterations[launched.code], pa.int32()),
    }


def _path_lists(open_at: OpenPaths) -> pa.Array:
    """The names of the ranges open at each operation; null if unknown."""
    listed = arrays.text_lists([tuple(name for _, name in path) for path in open_at.paths])
    return arrays.take(listed, arrays.indices(open_at.code.astype(np.int32)))


def _first_named(codes: tuple[Codes, Codes], names: list[str | None], others: list[str | None]) -> pa.Array:
    """Texts by the first index if that entry has a text, else by the second."""
    first, second = codes
    named = np.array([name is not None for name in names] or [False])
    has_first = (first >= 0) & named[np.maximum(first, 0)]
    return arrays.recoded(np.where(has_first, first, np.where(second >= 0, second + len(names), -1)), [*names, *others])


def _placed(path: tuple[Label, ...]) -> Launch:
    """A launch with this path; phase, module and iteration are set if the path has ranges of our launcher."""
    launch = Launch("")
    place(launch, list(path))
    return launch


def _triples(axes: list[Integers]) -> pa.Array:
    """Lists of x, y and z (int32); null unless all three are known."""
    known = np.logical_and.reduce([(axis >= 0) & (axis <= np.iinfo(np.int32).max) for axis in axes])
    shapes = np.empty((len(known), len(axes)), np.int32)
    for into, axis in zip(shapes.T, axes, strict=True):
        into[:] = np.where(known, axis, -1)
    return arrays.triples(shapes)
