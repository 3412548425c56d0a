"""The launches of an `Activity`: one row per GPU operation, with the host ranges open at the call that launched it.

This is the whole way from a trace format to a table: a reader returns an `Activity`, and this makes its report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from ncu_parsers.report_data import report
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Report
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import COLUMNS, contract_fields, field_metadata, short_name
from ncu_parsers.schema.vendors import VENDOR_COLUMN
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import MISSING, OPERATION_KINDS, Activity, Integers, LaunchFacts
from ncu_parsers.timelines.activity.recording import NOTHING_SAID, launching_call
from ncu_parsers.timelines.host_ranges import ANNOTATION, DEEPEST, MODULE, OPERATOR
from ncu_parsers.timelines.kineto.host_threads import Context, HostCall, HostThreads, NestedRanges
from ncu_parsers.timelines.kineto.places import Places, places_of_calls
from ncu_parsers.timelines.kineto.trace_table import iterations_at
from ncu_parsers.timelines.kineto.traced_events import MODULE_PREFIX
from ncu_parsers.timelines.operation_times import BusyAccount

Extra = tuple[str, str, pa.Array]
"""Name, unit and values of a column beyond the contract."""

KINDS_OF_RANGES = {activity.NVTX: ANNOTATION, activity.ANNOTATION: ANNOTATION, activity.OPERATOR: OPERATOR}
"""Ranges that say where in the program a launch belongs; of Python's functions those of modules do too."""


def report_of(source: Source, read: Callable[[Source], Activity], origin: str) -> Report:
    """Read one recording, and make its launches. `origin` is their `source`.

    Raises `NotAReport` where nothing ran on a GPU, and what `read` raises.
    """
    found = read(source)
    if not len(found.operations):
        raise NotAReport(
            f"{source.name} was recorded by {found.tool}, and nothing in it ran on a GPU.",
            f"It holds API calls: {len(found.calls):,}; ranges of the host: {len(found.ranges):,}.",
            "Record around work on a GPU, with what runs there traced.",
        )
    result = Report(source.name, dialects=[origin], origin=origin, session=dict(found.session))
    result.lines.update(
        {
            report.METRICS: len(found.operations),
            report.HOST: len(found.calls) + len(found.ranges),
            report.BROKEN: found.broken,
        }
    )
    result.lines = +result.lines  # drops kinds that did not occur
    view = _LaunchView(found, origin)
    result.table = view.table()
    result.notes = [*view.notes(), *found.notes]
    return result


class _LaunchView:
    """The columns of launches, from the operations of a recording and the ranges of the host around their calls."""

    def __init__(self, found: Activity, origin: str) -> None:
        self._found, self._origin = found, origin
        self._rows = len(found.operations)
        self._call = launching_call(found.operations, found.calls)
        self._zero = min(int(one.start.min()) for one in (found.operations, found.calls, found.ranges) if len(one))
        self._ranges, self._places = self._nested()
        self._facts: Sequence[LaunchFacts] = found.facts or (NOTHING_SAID,)
        self._fact = np.zeros(self._rows, np.int64) if found.fact is None else found.fact
        gpus, self._gpu = np.unique(
            np.stack([found.operations.process, found.operations.device]), axis=1, return_inverse=True
        )
        self._gpu = self._gpu.reshape(-1)
        self._gpus = [(int(process), int(device)) for process, device in gpus.T.tolist()]

    def table(self) -> pa.Table:
        """The table: the contract's columns, then those that timelines have."""
        known = {**self._identity(), **self._position()}
        columns = [known.get(one.name, pa.nulls(self._rows, one.type)) for one in COLUMNS]
        fields = list(contract_fields())
        for title, unit, values in self._beyond():
            if values.null_count < self._rows:
                columns.append(values)
                fields.append(pa.field(title, values.type, metadata=field_metadata(unit=unit)))
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def notes(self) -> list[str]:
        """Which operations overlap, and what is not known of the rows."""
        operations, busy = self._found.operations, BusyAccount()
        start = (operations.start - self._zero).astype(np.float64)
        busy.add(operations.process, operations.device, start, self._durations())
        notes = busy.notes()
        if len(self._found.calls) and (unlinked := int((self._call < 0).sum())):
            notes.append(
                f"{unlinked} of {self._rows} rows have no launching call in the recording, so the ranges of the host "
                "around it are unknown"
            )
        if self._places.too_deep:
            notes.append(
                f"more than {DEEPEST} ranges are open at once around {self._places.too_deep} of {self._rows} rows; the "
                "innermost are kept"
            )
        return notes

    def _durations(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return (self._found.operations.end - self._found.operations.start).astype(np.float64)

    def _nested(self) -> tuple[NestedRanges, Places]:
        """The ranges of the host within each other, and where among them each operation was launched.

        Times are ns since the first event, which doubles hold exactly for a hundred days.
        """
        host, ranges, calls = HostThreads(), self._found.ranges, self._found.calls
        codes: dict[tuple[int, int], int | None] = {}
        columns = (ranges.kind, ranges.name, ranges.process, ranges.thread, ranges.start - self._zero, ranges.end)
        for kind, name, process, thread, start, end in zip(*(one.tolist() for one in columns), strict=True):
            if (kind, name) not in codes:
                call = _host_call(kind, ranges.names[name])
                codes[kind, name] = None if call is None else len(host.calls)
                host.calls += [] if call is None else [call]
            code = codes[kind, name]
            if code is not None:
                host.take(host.thread((process, thread)), start, end - self._zero - start, code)
        threads = [host.thread(pair) for pair in zip(calls.process.tolist(), calls.thread.tolist(), strict=True)]
        nested = host.nested(self._found.name)
        of_calls = {"thread": np.array(threads, np.int64), "start": (calls.start - self._zero).astype(np.float64)}
        return nested, places_of_calls(of_calls, nested, self._call, self._call)

    def _identity(self) -> dict[str, pa.Array]:
        """The columns that say what ran, and on which device."""
        operations, facts = self._found.operations, self._facts
        stream, of_stream = np.unique(operations.stream, return_inverse=True)
        return {
            "source": arrays.repeated(self._origin, self._rows),
            "report": arrays.repeated(self._found.name, self._rows),
            "launch_id": _wholes(operations.correlation, pa.int64()),
            "process_id": _wholes(operations.process, pa.int64()),
            "device_id": _wholes(operations.device, pa.int32()),
            "device_name": arrays.recoded(self._gpu, [self._found.devices.get(one) for one in self._gpus]),
            "context": _wholes(operations.context, pa.int64()),
            "stream": arrays.recoded(of_stream, [None if one == MISSING else str(one) for one in stream.tolist()]),
            "kernel_name": arrays.recoded(operations.name, operations.names),
            "kernel_short": arrays.recoded(operations.name, [short_name(one) for one in operations.names]),
            "grid": _triples(self._fact, [one.grid for one in facts]),
            "block": _triples(self._fact, [one.block for one in facts]),
            "failed": arrays.booleans(np.zeros(self._rows, np.bool_)),
            "duration_ns": arrays.floats(self._durations()),
        }

    def _position(self) -> dict[str, pa.Array]:
        """The columns that say which part of the program a row belongs to: by its own scopes, else by host ranges."""
        contexts = self._ranges.contexts.known
        pairs, code = np.unique(
            np.stack([self._places.context.astype(np.int64), self._fact]), axis=1, return_inverse=True
        )
        known = [(contexts[at] if at >= 0 else None, self._facts[of]) for at, of in pairs.T.tolist()]
        code = code.reshape(-1)
        steps = iterations_at(self._places.moment, self._ranges.steps())
        own = self._found.operations.iteration
        return {
            "nvtx_path": arrays.taken(
                arrays.text_lists([_path(*one) for one in known]), arrays.indices(code.astype(np.int32))
            ),
            "phase": arrays.recoded(code, [facts.phase or (at and at.phase()) for at, facts in known]),
            "module": arrays.recoded(code, [facts.module or _module(at) for at, facts in known]),
            "iteration": _wholes(np.where(own == MISSING, steps, own), pa.int32()),
        }

    def _beyond(self) -> Iterator[Extra]:
        """Columns beyond the contract."""
        operations, facts = self._found.operations, self._facts
        yield "start_ns", "ns", arrays.whole(operations.start)
        yield "end_ns", "ns", arrays.whole(operations.end)
        yield "operation", "", arrays.recoded(operations.kind, OPERATION_KINDS)
        yield VENDOR_COLUMN, "", arrays.recoded(self._gpu, [self._vendor(one) for one in self._gpus])
        yield "operator", "", self._operators()
        yield "bytes", "byte", _wholes(operations.bytes, pa.int64())
        yield "correlation_id", "", _wholes(operations.correlation, pa.int64())
        thread = np.append(self._found.calls.thread, MISSING)[self._call]
        yield "thread_id", "", _wholes(thread, pa.int64())
        for title, unit, said in (
            ("registers_per_thread", "register/thread", [one.registers for one in facts]),
            ("shared_memory_bytes", "byte", [one.shared_memory for one in facts]),
        ):
            numbers = np.array([MISSING if one is None else one for one in said], np.int64)
            yield title, unit, _wholes(numbers[self._fact], pa.int64())
        for title in dict.fromkeys(key for one in facts for key, _ in one.more):
            yield title, "", arrays.recoded(self._fact, [dict(one.more).get(title) for one in facts])

    def _vendor(self, gpu: tuple[int, int]) -> str | None:
        vendor = self._found.vendors.get(gpu)
        return None if vendor is None else vendor.value

    def _operators(self) -> pa.Array:
        """The operator that each operation names itself, else the innermost one around its call."""
        names = [*(one.operator for one in self._facts), *(call.name for call in self._ranges.calls)]
        own = np.array([one.operator is not None for one in self._facts], np.bool_)[self._fact]
        around = np.where(self._places.call >= 0, self._places.call + len(self._facts), -1)
        return arrays.recoded(np.where(own, self._fact, around), names)


def _host_call(kind: int, name: str) -> HostCall | None:
    """What a range says of the launches in it; None for one that says nothing, as most of Python's functions."""
    if kind == activity.PYTHON and name.startswith(MODULE_PREFIX):
        return HostCall(MODULE, name.removeprefix(MODULE_PREFIX))
    return HostCall(KINDS_OF_RANGES[kind], name) if kind in KINDS_OF_RANGES else None


def _path(context: Context | None, facts: LaunchFacts) -> tuple[str, ...] | None:
    """The host's ranges, then the scopes that the operation names; None where neither is known."""
    return None if context is None and not facts.path else (*(context.annotations if context else ()), *facts.path)


def _module(context: Context | None) -> str | None:
    return (".".join(context.modules) or None) if context else None


def _wholes(values: Integers, kind: pa.DataType) -> pa.Array:
    """int32 or int64; null for negative numbers and those that do not fit."""
    most = np.iinfo(np.int32 if kind == pa.int32() else np.int64).max
    return arrays.wholes(np.where((values >= 0) & (values <= most), values, -1), kind)


def _triples(codes: Integers, values: Sequence[tuple[int, int, int] | None]) -> pa.Array:
    """Grids or blocks from the place of each."""
    return arrays.triples(np.array([one or (-1,) * 3 for one in values], np.int32)[codes])
