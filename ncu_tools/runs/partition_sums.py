"""Sums over the launches of a run, file by file, without holding all launches in memory.

A file of launches is summed a few row groups at a time. The files of a dataset are summed by its engine, several
consecutive ones per task, and these sums are merged in the order of the dataset. Tasks depend only on the number of
files, so every engine gives the same digits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from operator import methodcaller
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from ncu_launch.counters import metrics as known
from ncu_launch.errors import NcuBenchError
from ncu_parsers.datasets.engine import attempted
from ncu_parsers.derived.operators.python_locations import LOCATION_COLUMNS
from ncu_parsers.parquet.reader import Choice
from ncu_parsers.schema import tables
from ncu_parsers.schema.operator_columns import (
    OPERATOR_BYTES,
    OPERATOR_CALL,
    OPERATOR_DEVICE,
    OPERATOR_FLOPS,
    OPERATOR_UNIT,
    THREADS,
)
from ncu_parsers.schema.tables import LEAST_BYTES
from ncu_parsers.sources.reading_ahead import one_ahead, reads_beside_others

from ncu_tools.ceilings import memory_clock
from ncu_tools.ceilings.launch_devices import LAUNCHED_SM_COUNT
from ncu_tools.ceilings.work_by_unit import UNIT_COLUMNS
from ncu_tools.runs.run import LaunchPart, PartInMemory, Run, left_out_note

DEVICE_PREFIXES = ("device__attribute_", known.TENSOR_PREFIX)
EXTREMES = ("gpu__time_duration.sum (minimum)", "gpu__time_duration.sum (maximum)")
OF_CEILINGS = frozenset({
    "sm_clock_hz", "flops", "dram_bytes", LEAST_BYTES, THREADS, LAUNCHED_SM_COUNT, *memory_clock.NEEDED,
})  # fmt: skip
OF_OPERATORS = ("operator", "operation", OPERATOR_CALL, OPERATOR_FLOPS, OPERATOR_BYTES, OPERATOR_UNIT)
"""Columns of a trace's launches on their operators."""
BUSY = {
    "sm": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "memory": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
}
"""Utilization of the busiest part of the SMs, and of the memory system: ncu's GPU Speed Of Light."""
OF_SUMS = frozenset({
    "source", "kernel_name", "kernel_short", "grid", "invocations", "failed", "duration_ns", "flops", "flops_basis",
    "dram_bytes", LEAST_BYTES, "exclusive_ns", *BUSY.values(),
    *OF_OPERATORS, OPERATOR_DEVICE, *UNIT_COLUMNS.values(), *EXTREMES,
})  # fmt: skip
"""Columns for sums. Launches without a grid may be ranges or graphs profiled as one: a note counts them."""
OF_DEVICES = ("device_name", "compute_capability")
OF_GROUPS: dict[str, tuple[str, ...]] = {
    "name": OF_DEVICES,
    "short": ("grid", "block", *OF_DEVICES),
    "grid": ("grid", "block", *OF_DEVICES),
    "nvtx": ("nvtx_path", *OF_DEVICES),
    "signature": ("grid", "block", "nvtx_path", "iteration"),
    "operator": OF_DEVICES,
    "category": ("operator", *OF_DEVICES),
    "location": (*LOCATION_COLUMNS, *OF_DEVICES),
    "report": ("report", *OF_DEVICES),
    "device": OF_DEVICES,
}
"""Grouping of launches -> its columns besides kernel names; rows are per device."""

TASKS, MOST_IN_A_ROW = 64, 32
"""The least number of tasks in which a dataset is summed, if it has as many files, and the most files per task."""


class Sums(Protocol):
    """A sum over launches, with the notes on reading their reports."""

    reports: dict[str, None]

    def add(self, table: pa.Table, /) -> None:
        """Add launches."""

    def merge(self, other: Any, /) -> None:
        """Merge later sums of the same kind into these."""


AnySums = TypeVar("AnySums", bound=Sums)


def sums_of_run(run: Run, new: Callable[[], AnySums], read: Callable[[LaunchPart], Iterator[pa.Table]]) -> AnySums:
    """Sum the launches of a run; `read` yields those of a part in batches.

    Parts that cannot be read are left out, with a note. `new` makes empty sums; it and `read` are sent to workers.
    Raises `NcuBenchError` if no part can be read.
    """
    if not run.parts:
        raise run.nothing_in_it()
    sums_of = partial(_sums_of, new, read)
    whole = sums_of(run.parts[0]) if len(run.parts) == 1 else _sums_of_several(run, sums_of)
    whole.reports = dict.fromkeys(run.told or [*run.notes_on_refused, *whole.reports])
    return whole


def _sums_of_several(run: Run, sums_of: Callable[[LaunchPart], AnySums]) -> AnySums:
    rows = _in_rows(run.parts)
    return _merged(zip(rows, run.engine.map(partial(_sums_of_row, sums_of), rows), strict=True))


def _merged(found: Iterable[tuple[Sequence[LaunchPart], AnySums | NcuBenchError]]) -> AnySums:
    """Merge the sums of several parts, with a note on each that cannot be read. Raises the last error if none can."""
    whole: AnySums | None = None
    lost: dict[str, None] = {}
    for parts, one in found:
        if isinstance(one, NcuBenchError):
            lost |= dict.fromkeys(left_out_note(part, one) for part in parts)
            error = one
        elif whole is None:
            whole = one
        else:
            whole.merge(one)
    if whole is None:
        raise error
    whole.reports |= lost
    return whole


def _in_rows(parts: Sequence[LaunchPart]) -> list[list[LaunchPart]]:
    """The parts of a run in order, in chunks of the same length, the last one shorter."""
    length = max(1, min(MOST_IN_A_ROW, len(parts) // TASKS))
    return [list(parts[start : start + length]) for start in range(0, len(parts), length)]


def _sums_of_row(sums_of: Callable[[LaunchPart], AnySums], row: Sequence[LaunchPart]) -> AnySums:
    """Sum some parts, one in memory at a time. Raises `NcuBenchError` if none of them can be read."""
    return _merged(([part], attempted(sums_of, part)) for part in row)


def _sums_of(new: Callable[[], AnySums], read: Callable[[LaunchPart], Iterator[pa.Table]], part: LaunchPart) -> AnySums:
    result = new()
    batches = read(part)
    for batch in batches if isinstance(part, PartInMemory) or reads_beside_others() else one_ahead(batches):
        result.add(batch)
    return result


def in_batches(columns: Iterable[str] | Choice) -> Callable[[LaunchPart], Iterator[pa.Table]]:
    """A function that yields the launches of a part, a few row groups at a time, with `columns` that exist."""
    return methodcaller("batches", columns)


def batches_for_sums(launches: LaunchPart, others: Collection[str] = ()) -> Iterator[pa.Table]:
    """Yield the launches of a part, a few row groups at a time, with the columns that sums need, and `others`.

    Each batch has the memory clock of the whole file (`memory_clock.RUN_CLOCK`), so that its ceilings equal the run's.
    Raises `NcuBenchError` if the file is damaged or not ours.
    """
    clocks = memory_clock.MemoryClocks()
    for batch in launches.batches(partial(needed, others), (memory_clock.needed, clocks.add)):
        yield memory_clock.with_clock_of(clocks, batch)


def needed(others: Collection[str], names: Sequence[str], filled: Sequence[str]) -> list[str]:
    """The columns that sums need and some launch has; empty tensor counters too, as their presence matters."""
    wanted, known_of_some = {*OF_SUMS, *others}, set(filled)
    return [
        name
        for name in names
        if (name in known_of_some or name.startswith(known.TENSOR_PREFIX))
        and (name in wanted or decides_ceilings(name))
    ]


def decides_ceilings(name: str) -> bool:
    """True if the ceilings of launches depend on this column."""
    return name in _of_ceilings() or name.startswith(DEVICE_PREFIXES)


@lru_cache(maxsize=1)
def _of_ceilings() -> frozenset[str]:
    from ncu_tools.ceilings.ceilings import PEAK_COLUMNS

    metrics = (ceiling.metric for ceiling in known.ceilings())
    return OF_CEILINGS.union(PEAK_COLUMNS.values(), UNIT_COLUMNS.values(), metrics)


def notes_of_reports(batch: pa.Table) -> dict[str, None]:
    """The notes on reading the reports that launches came from."""
    return dict.fromkeys(tables.table_metadata(batch).get("notes", []))
