"""The launches of an `Activity`: one row per GPU operation, with the host ranges open at the call that launched it.

A trace format needs no more than a reader that returns an `Activity`; this module makes the report. Ranges of the main
thread do not enclose kernels of the backward pass, which runs on its own threads. FLOPs and least bytes are estimates
from operator shapes (`derived.operators.work_from_shapes`). Without GPU work the rows are the operators themselves,
each with its time outside the operators that it calls. Values shared by rows are stored once; rows hold their index.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.notes import Note, NoteKind
from ncu_launch.operators.user_formulas import formulas_in

from ncu_parsers.derived.operators import graph_captures
from ncu_parsers.launches.host_ranges import DEEPEST, OPERATOR
from ncu_parsers.launches.launch_work import work_of_launches, work_of_operators
from ncu_parsers.launches.nested_ranges import Captured, Context, NestedRanges
from ncu_parsers.launches.operation_columns import column, identity, table_of, wholes
from ncu_parsers.launches.places import places_of_calls, places_of_operators
from ncu_parsers.launches.python_frames import PythonFrames, location_columns_of, may_be_a_location
from ncu_parsers.launches.replayed_graphs import captured_launches, replayed, take_captured
from ncu_parsers.launches.sampled_columns import SampledColumns
from ncu_parsers.report_data import report
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Report, StreamedReport
from ncu_parsers.schema import arrays
from ncu_parsers.schema.vendors import VENDOR_COLUMN
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity.activity import (
    FACTS,
    FARTHEST,
    KERNEL,
    MISSING,
    OPERATION_KINDS,
    Activity,
    Codes,
    GpuOperations,
    Integers,
    LaunchFacts,
    columns_of,
)
from ncu_parsers.timelines.activity.operation_times import BusyAccount, exclusive_times, without_impossible_ends
from ncu_parsers.timelines.activity.recording import NOTHING_SAID, launching_call

CPU_OPERATION = "cpu_op"
OTHER_EVENT = "event of another kind"
ROWS_OF_A_PART = 128 * 1024

Extra = tuple[str, str, pa.Array]
"""Name, unit and values of a column that only some launch tables have."""


@lru_cache(maxsize=8)
def for_launches(read: Callable[..., Activity]) -> Callable[[Source], Activity]:
    """`read` without Python functions that cannot be a launch's location; cached, so equal readers are one object."""
    return partial(read, functions=may_be_a_location)


def report_of(source: Source, read: Callable[[Source], Activity], origin: str) -> Report:
    """Read one recording and make its launches. `origin` is the value of their column `source`.

    Raises `NotAReport` if nothing ran on a GPU and no operators are known, and whatever `read` raises.
    """
    result = Report(source.name)
    view = _view(source, read, origin, result)
    result.table = view.part(0, view.rows)
    return result


def stream_of(
    source: Source, write: Callable[[pa.Table], None], read: Callable[[Source], Activity], origin: str
) -> StreamedReport:
    """Read one recording and pass its launches to `write` in consecutive tables. Raises as `report_of`."""
    result = StreamedReport(source.name)
    view = _view(source, read, origin, result)
    result.streamed_rows = view.rows
    for begin in range(0, view.rows, ROWS_OF_A_PART):
        memory.require_memory(source.name)
        write(view.part(begin, min(begin + ROWS_OF_A_PART, view.rows)))
    return result


def _view(source: Source, read: Callable[[Source], Activity], origin: str, result: Report) -> _LaunchView:
    """The launches of a recording; fills `result` with session, line counts and notes."""
    found = read(source)
    view = _LaunchView(found, origin, source, read)
    if not view.rows:
        raise NotAReport(
            f"{source.name} was recorded by {found.tool}, and holds neither GPU work nor operators.",
            f"It holds API calls: {len(found.calls):,}; ranges of the host: {len(found.ranges):,}.",
            "Record around the work itself, with what runs on the GPU traced.",
        )
    result.dialects, result.origin, result.session = [origin], origin, dict(found.session)
    numbered = int((found.calls.correlation != MISSING).sum())
    result.lines.update(
        {
            report.METRICS: view.rows,
            report.HOST: numbered + len(found.ranges) - (0 if view.on_gpu else view.rows),
            report.BROKEN: found.broken,
            report.SAMPLE: found.sampled.events,
            OTHER_EVENT: found.others + len(found.calls) - numbered + len(found.overheads),
        }
    )
    result.lines = +result.lines  # drops kinds that did not occur
    result.notes = [*view.notes(), *found.notes]
    return view


class _LaunchView:
    """The columns of launches, from the operations of a recording and the host ranges around their calls."""

    def __init__(self, found: Activity, origin: str, source: Source, read: Callable[[Source], Activity]) -> None:
        self._found, self._origin = found, origin
        self._ranges, own = NestedRanges(found.ranges, found.name), formulas_in(source.settings.formulas)
        self.on_gpu, self._impossible = len(found.operations) > 0, list[str]()
        self._replayed, self._captured = np.zeros(0, np.bool_), Captured()
        self._capture = source.settings.capture
        self._facts: Sequence[LaunchFacts] = found.facts or (NOTHING_SAID,)
        if self.on_gpu:
            self._take_operations(read)
            self._done = work_of_launches(
                self._operations, self._replayed, self._ranges, self._places, self._captured, own
            )
        else:
            operators = self._take_operators()
            self._done = work_of_operators(self._ranges, operators, own)
        self.rows = len(self._operations)
        self._locations = location_columns_of(PythonFrames(found.ranges), self._places, self._ranges)
        gpus, code = np.unique(
            np.stack([self._operations.process, self._operations.device]), axis=1, return_inverse=True
        )
        self._gpu, self._gpus = code.reshape(-1), [(int(process), int(device)) for process, device in gpus.T.tolist()]
        self._samples = SampledColumns(found.sampled)
        numbers = np.array([found.sampled.number(*one) for one in self._gpus], np.int64)
        self._sampled = self._samples.columns(
            self._operations.start, self._operations.end, numbers[self._gpu]
        ) if self.on_gpu else []  # fmt: skip
        self._titles = {
            title for title, _, values in self._beyond(slice(0, self.rows)) if values.null_count < self.rows
        }

    def _take_operations(self, read: Callable[[Source], Activity]) -> None:
        """Make the rows GPU operations, in the order of the file."""
        found = self._found
        operations, self._impossible = without_impossible_ends(found.operations)
        fact: Codes = np.zeros(len(operations), np.int8) if found.fact is None else found.fact
        if found.as_written is not None:
            operations, fact = operations.at(found.as_written), fact[found.as_written]
        self._operations, self._fact = operations, fact
        self._durations = operations.durations
        self._exclusive = exclusive_times(operations)
        call = launching_call(operations, found.calls)
        self._thread = np.append(found.calls.thread, MISSING)[call]
        self._places = places_of_calls(found.calls, self._ranges, call)
        self._replayed = replayed(found, operations)
        if self._capture:
            self._captured = take_captured(
                operations, lambda row: self._facts[fact[row]].grid, self._replayed, self._ranges, self._places,
                partial(captured_launches, self._capture, read),
            )  # fmt: skip

    def _take_operators(self) -> Integers:
        """Make the rows host operators, each with its own time; return their indices."""
        ranges = self._ranges
        operators = np.flatnonzero(ranges.is_kind(OPERATOR))
        operators = operators[np.argsort(ranges.start[operators], kind="stable")]
        self._places = places_of_operators(ranges, operators)
        process, self._thread = np.array(ranges.owners or [(MISSING, MISSING)], np.int64)[self._places.thread].T
        columns = {
            "kind": np.full(len(operators), len(OPERATION_KINDS)), "name": ranges.call[operators], "process": process,
            "start": ranges.start[operators], "end": ranges.end[operators],
        }  # fmt: skip
        self._operations = columns_of(GpuOperations, columns, [call.name for call in ranges.calls])
        self._fact = np.zeros(len(operators), np.int8)
        self._durations = ranges.own_times()[operators].astype(np.float64)
        return operators

    def part(self, begin: int, end: int) -> pa.Table:
        """The table of rows `begin` to `end` (exclusive): columns of every launch table, then columns of timelines.

        Every part has the same columns.
        """
        rows = slice(begin, end)
        known = {**self._identity(rows), **self._position(rows), **self._done.part(rows).contract_columns()}
        beyond = [column(title, values, unit) for title, unit, values in self._beyond(rows) if title in self._titles]
        sampled = [(field, values.slice(begin, end - begin)) for field, values in self._sampled]
        return table_of(end - begin, known, [*beyond, *sampled])

    def notes(self) -> list[str]:
        """Notes on impossible values, overlapping operations and missing facts."""
        notes, places, found = list(self._impossible), self._places, self._found
        if self.on_gpu:
            notes += _overlap(self._operations, self._durations)
        else:
            readable = " that could be read" if found.broken else ""
            notes.append(
                f"the trace holds no GPU work{readable}: rows are operators on the CPU, each with its own time, "
                "without that of the operators it called; whole_duration_ns has both"
            )
        unlinked = int((places.context == -1).sum())
        if unlinked and (len(found.calls) or len(found.ranges)):
            notes.append(
                f"{unlinked} of {self.rows} rows have no launching call in the trace, so their operator and ranges are "
                "unknown"
            )
        if places.too_deep:
            notes.append(
                f"more than {DEEPEST} ranges are open at once around {places.too_deep} of {self.rows} rows; "
                "the innermost are kept"
            )
        operators = np.unique(places.call[places.call >= 0]).tolist()
        if operators and not any(self._ranges.calls[call].inputs.shapes for call in operators):
            without_shapes = "operators have no shapes; the profiler records them with record_shapes=True"
            notes.append(Note(without_shapes, NoteKind.NOT_KNOWN, "FLOPs"))
        kernels = self._operations.kind == KERNEL
        replays = int((kernels & self._replayed).sum()) if self.on_gpu else 0
        notes += self._samples.notes()
        return [*notes, *graph_captures.replay_notes(self.rows, replays, len(self._captured), self._capture)]

    def _identity(self, rows: slice) -> dict[str, pa.Array]:
        """The columns that identify the kernel and its device."""
        operations, fact, facts, found = self._operations.at(rows), self._fact[rows], self._facts, self._found
        count, gpu, gpus = len(operations), self._gpu[rows], self._gpus
        known = {
            **identity(operations, self._origin, found.name),
            "rank": arrays.wholes(np.full(count, -1 if found.rank is None else found.rank), pa.int32()),
            "device_name": arrays.recoded(gpu, [found.devices.get(one) for one in gpus]),
            "compute_capability": arrays.recoded(gpu, [found.capabilities.get(one) for one in gpus]),
            "grid": _triples(fact, [one.grid for one in facts]),
            "block": _triples(fact, [one.block for one in facts]),
            "duration_ns": arrays.floats(self._durations[rows]),
        }
        if not self.on_gpu:  # an operator loses its namespace
            shorts = [one.partition("::")[2] or one for one in operations.names]
            known["kernel_short"] = arrays.recoded(operations.name, shorts)
        return known

    def _position(self, rows: slice) -> dict[str, pa.Array]:
        """Program-position columns of each row: from its own scopes, else from host ranges."""
        contexts = self._ranges.contexts.known
        pairs, code = np.unique(
            self._places.context[rows].astype(np.int64) * len(self._facts) + self._fact[rows], return_inverse=True
        )
        split = (divmod(pair, len(self._facts)) for pair in pairs.tolist())
        known = [(contexts[at] if at >= 0 else None, self._facts[of]) for at, of in split]
        code = code.reshape(-1)
        steps = iterations_at(self._places.moment[rows], self._ranges.steps())
        own = self._operations.iteration[rows]
        return {
            "nvtx_path": arrays.take(
                arrays.text_lists([_path(*one) for one in known]), arrays.indices(code.astype(np.int32))
            ),
            "phase": arrays.recoded(code, [facts.phase or (at and at.phase()) for at, facts in known]),
            "module": arrays.recoded(code, [facts.module or _module(at) for at, facts in known]),
            "iteration": wholes(np.where(own == MISSING, steps, own), pa.int32()),
        }

    def _beyond(self, rows: slice) -> Iterator[Extra]:
        """Columns that only launches of timelines have. Shapes and types are JSON lists, one entry per argument."""
        operations, facts, fact = self._operations.at(rows), self._facts, self._fact[rows]
        calls, call = self._ranges.calls, self._places.call[rows]
        yield "start_ns", "ns", arrays.whole(operations.start)
        yield "end_ns", "ns", arrays.whole(operations.end)
        yield "operation", "", arrays.recoded(operations.kind, [*OPERATION_KINDS, CPU_OPERATION])
        yield VENDOR_COLUMN, "", arrays.recoded(self._gpu[rows], [self._vendor(one) for one in self._gpus])
        yield "operator", "", self._operators(call, fact)
        yield "shapes", "", arrays.recoded(call, [_as_text(one.inputs.shapes) for one in calls])
        yield "dtype", "", arrays.recoded(call, [_as_text(one.inputs.types) for one in calls])
        if self.on_gpu and (self._exclusive < self._durations).any():
            yield "exclusive_ns", "ns", arrays.whole(self._exclusive[rows])
            yield "overlapped_ns", "ns", arrays.whole(operations.end - operations.start - self._exclusive[rows])
        if not self.on_gpu:
            yield "whole_duration_ns", "ns", arrays.floats((operations.end - operations.start).astype(np.float64))
        yield "bytes", "byte", wholes(operations.bytes, pa.int64())
        yield "correlation_id", "", wholes(operations.correlation, pa.int64())
        yield "thread_id", "", wholes(self._thread[rows], pa.int64())
        for title, unit, said in (
            ("registers_per_thread", "register/thread", [one.registers for one in facts]),
            ("shared_memory_bytes", "byte", [one.shared_memory for one in facts]),
        ):
            numbers = np.array([MISSING if one is None or one >= FARTHEST else one for one in said], np.int64)
            yield title, unit, wholes(numbers[fact], pa.int64())
        occupancy = np.array([one.occupancy for one in facts], np.float64)
        yield "estimated_occupancy_percent", "%", arrays.floats(occupancy[fact])
        yield "graph_node_id", "", wholes(operations.graph_node, pa.int64())
        for title, unit in FACTS.items():
            numbers_of = [dict(one.numbers).get(title) for one in facts]
            if numbers_of.count(None) < len(numbers_of):
                yield title, unit, arrays.recoded_integers(fact, numbers_of)
        for title in dict.fromkeys(key for one in facts for key, _ in one.more):
            yield title, "", arrays.recoded(fact, [dict(one.more).get(title) for one in facts])
        yield from self._done.part(rows).operator_columns()
        for title, unit, values in self._locations:
            yield title, unit, values.slice(rows.start, rows.stop - rows.start)

    def _vendor(self, gpu: tuple[int, int]) -> str | None:
        vendor = self._found.vendors.get(gpu)
        return None if vendor is None else vendor.value

    def _operators(self, call: Codes, fact: Codes) -> pa.Array:
        """The operator that each operation names itself, else the innermost operator around its call."""
        names = [*(one.operator for one in self._facts), *(call.name for call in self._ranges.calls)]
        own = np.array([one.operator is not None for one in self._facts], np.bool_)[fact]
        return arrays.recoded(np.where(own, fact, np.where(call >= 0, call + len(self._facts), -1)), names)


def _overlap(operations: GpuOperations, durations: npt.NDArray[np.float64]) -> list[str]:
    """Notes on overlapping operations. Times count from the first: float64 holds ns exactly for a hundred days."""
    busy = BusyAccount()
    start = (operations.start - operations.start.min()).astype(np.float64)
    busy.add(operations.process, operations.device, start, durations)
    return busy.notes()


def iterations_at(moments: Integers, steps: list[tuple[int, int, int]]) -> Integers:
    """The number of the step that contains each moment, `MISSING` outside all steps."""
    if not steps:
        return np.full(len(moments), MISSING)
    starts, ends, numbers = (np.array(column) for column in zip(*steps, strict=True))
    at = np.searchsorted(starts, moments, side="right") - 1
    return np.where((at >= 0) & (moments <= ends[at]), numbers[at], MISSING)


def _path(context: Context | None, facts: LaunchFacts) -> tuple[str, ...] | None:
    """The host's ranges, then the scopes of the operation itself; None if neither is known."""
    return None if context is None and not facts.path else (*(context.annotations if context else ()), *facts.path)


def _module(context: Context | None) -> str | None:
    return (".".join(context.modules) or None) if context else None


def _as_text(value: object) -> str | None:
    """A list of shapes or types as JSON; None for any other value."""
    return json.dumps(value, separators=(",", ":")) if isinstance(value, list) else None


def _triples(codes: Codes, values: Sequence[tuple[int, int, int] | None]) -> pa.Array:
    """Grids or blocks by index into `values`; null for None."""
    return arrays.triples(np.array([one or (-1,) * 3 for one in values], np.int32)[codes])
