"""Sums over the launches of a run that lies in files, taken without ever holding all of its launches.

A file of launches is summed some row groups at a time. The files of a dataset are summed by its engine, some in a row
by one worker, and these sums are added up in the order of the dataset. Which files are in a row depends on their number
alone, so that every engine gives the same digits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from ncu_launch.counters import metrics as known
from ncu_launch.errors import NcuBenchError
from ncu_parsers.datasets.dataset_layout import Dataset, Partition
from ncu_parsers.datasets.remote_files import File
from ncu_parsers.derived.work_from_shapes import OPERATOR_BYTES, OPERATOR_CALL, OPERATOR_FLOPS, OPERATOR_UNIT
from ncu_parsers.parquet.reader import launch_stretches, left_out_note, nothing_in
from ncu_parsers.report_data.operator_records import OPERATOR_DEVICE, THREADS
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import LEAST_BYTES

from ncu_tools.ceilings import memory_clock
from ncu_tools.ceilings.work_by_unit import UNIT_COLUMNS
from ncu_tools.runs.loading import OnDisk, Run

OF_THE_BOARD = ("device__attribute_", known.TENSOR_PREFIX)
EXTREMES = ("gpu__time_duration.sum (minimum)", "gpu__time_duration.sum (maximum)")
OF_CEILINGS = frozenset({"sm_clock_hz", "flops", "dram_bytes", LEAST_BYTES, THREADS, *memory_clock.NEEDED})
OF_OPERATORS = ("operator", "operation", OPERATOR_CALL, OPERATOR_FLOPS, OPERATOR_BYTES, OPERATOR_UNIT)
"""What launches of a trace know of their operators."""
OF_SUMS = frozenset({
    "source", "kernel_name", "kernel_short", "invocations", "failed", "duration_ns", "flops", "flops_basis",
    "dram_bytes", LEAST_BYTES, *OF_OPERATORS, OPERATOR_DEVICE, *UNIT_COLUMNS.values(), *EXTREMES,
})  # fmt: skip
OF_GROUPS = {
    "name": (),
    "short": ("grid", "block"),
    "grid": ("grid", "block"),
    "nvtx": ("nvtx_path",),
    "operator": (),
    "work": ("grid", "block", "nvtx_path"),
}
"""The columns that launches are told apart by beside their names, by how they are grouped."""

TASKS, MOST_IN_A_ROW = 64, 32
"""A dataset is summed as so many tasks at least, where it has as many files, and of so many files each at most."""


class Sums(Protocol):
    """What launches add up to, and the notes of reading their reports."""

    reports: dict[str, None]

    def add(self, table: pa.Table, /) -> None:
        """Take the next launches."""

    def merge(self, other: Any, /) -> None:
        """Take what comes behind, of the same kind."""


AnySums = TypeVar("AnySums", bound=Sums)


def sums_of_run(run: OnDisk | Run, new: Callable[[], AnySums], read: Callable[[File], Iterator[pa.Table]]) -> AnySums:
    """What the launches of a run add up to. What is in Parquet comes as `read` gives it, a stretch at a time.

    `new` gives sums of nothing; both travel to workers. Raises `NcuBenchError` where a file is damaged or not ours,
    or no file of a dataset can be read.
    """
    if not isinstance(run, OnDisk):
        result = new()
        result.add(run.table)
    elif isinstance(run.file, Dataset):
        result = sums_of_dataset(run.file, partial(sums_of_file, new, read))
    else:
        result = sums_of_file(new, read, run.file)
    if run.notes:
        result.reports = dict.fromkeys(run.notes)
    return result


def sums_of_file(new: Callable[[], AnySums], read: Callable[[File], Iterator[pa.Table]], launches: File) -> AnySums:
    """What the launches of one file add up to; as `sums_of_run`."""
    result = new()
    for stretch in _one_ahead(read(launches)):
        result.add(stretch)
    return result


def _one_ahead(stretches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The stretches, each read while the one before it is used."""
    first = next(stretches, None)
    if first is None:
        return
    with ThreadPoolExecutor(1) as reader:
        coming: pa.Table | None = first
        while coming is not None:
            following = reader.submit(next, stretches, None)
            yield coming
            coming = following.result()


def sums_of_dataset(dataset: Dataset, sums_of: Callable[[File], AnySums]) -> AnySums:
    """What the launches of all files add up to; files that cannot be read are left out, and noted.

    `sums_of` gives that of one file, and travels to workers. Raises `NcuBenchError` where no file can be read.
    """
    rows = _in_rows(dataset.partitions)
    whole: AnySums | None = None
    lost: dict[str, None] = {}
    last_error: NcuBenchError | None = None
    for row, found in zip(rows, dataset.engine.map(partial(_sums_of_row, sums_of), rows), strict=True):
        if isinstance(found, NcuBenchError):
            lost |= dict.fromkeys(left_out_note(one, found) for one in row)
            last_error = found
        elif whole is None:
            whole = found
        else:
            whole.merge(found)
    if whole is None:
        raise last_error or nothing_in(dataset)
    whole.reports = dict.fromkeys([*dataset.notes, *whole.reports, *lost])
    return whole


def _in_rows(partitions: Sequence[Partition]) -> list[list[Partition]]:
    """The files of a dataset in its order, in rows of the same length, the last shorter."""
    length = max(1, min(MOST_IN_A_ROW, len(partitions) // TASKS))
    return [list(partitions[start : start + length]) for start in range(0, len(partitions), length)]


def _sums_of_row(sums_of: Callable[[File], AnySums], row: Sequence[Partition]) -> AnySums:
    """The sums of some files, one in memory at a time. Raises `NcuBenchError` where none of them can be read."""
    result: AnySums | None = None
    left_out: dict[str, None] = {}
    for partition in row:
        try:
            found = sums_of(partition.file)
        except NcuBenchError as error:
            left_out[left_out_note(partition, error)] = None
            last = error
            continue
        if result is None:
            result = found
        else:
            result.merge(found)
    if result is None:
        raise last
    result.reports |= left_out
    return result


def stretches(launches: File, others: Collection[str] = ()) -> Iterator[pa.Table]:
    """The launches of a file, some row groups at a time, with the columns that sums depend on, and `others`.

    Each stretch has the memory clock of the whole file (`memory_clock.RUN_CLOCK`), so that its ceilings are those of
    the run. Raises `NcuBenchError` where the file is damaged or not ours.
    """
    clocks = memory_clock.MemoryClocks()
    for stretch in launch_stretches(launches, partial(needed, others), (memory_clock.needed, clocks.add)):
        yield memory_clock.with_clock_of(clocks, stretch)


def needed(others: Collection[str], names: Sequence[str], filled: Sequence[str]) -> list[str]:
    """The columns that sums depend on and some launch has; of tensor counters, that there is one says much."""
    wanted, known_of_some = {*OF_SUMS, *others}, set(filled)
    return [
        name
        for name in names
        if (name in known_of_some or name.startswith(known.TENSOR_PREFIX))
        and (name in wanted or decides_ceilings(name))
    ]


def decides_ceilings(name: str) -> bool:
    """Whether the ceilings of launches depend on a column."""
    return name in _of_ceilings() or name.startswith(OF_THE_BOARD)


@lru_cache(maxsize=1)
def _of_ceilings() -> frozenset[str]:
    from ncu_tools.ceilings.ceilings import PEAK_COLUMNS

    metrics = (ceiling.metric for ceiling in known.ceilings())
    return OF_CEILINGS.union(PEAK_COLUMNS.values(), UNIT_COLUMNS.values(), metrics)


def notes_of_reports(stretch: pa.Table) -> dict[str, None]:
    """The notes of reading the reports that launches came from."""
    return dict.fromkeys(tables.table_metadata(stretch).get("notes", []))
