"""Some of the launches of a run: those of kernels, phases, devices or ranks that the user names.

What is left is a run by itself, so that every share and total is one of these launches; a note says which they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_parsers.datasets.dataset_layout import Dataset
from ncu_parsers.parquet.reader import Columns, launch_stretches
from ncu_parsers.schema import arrays, tables
from ncu_parsers.sources.sources import Source

from ncu_tools.numbers.number_format import counted, percent
from ncu_tools.runs.loading import OnDisk, Run, load, locate

Mask = npt.NDArray[np.bool_]
NAMED = 8
"""Of what there is, so many are named where nothing is left."""


@dataclass(frozen=True)
class Selection:
    """Which launches are wanted: those that fulfil everything that is given.

    `kernels` are searched in full kernel names; one that is found is enough.
    """

    kernels: tuple[re.Pattern[str], ...] = ()
    phases: tuple[str, ...] = ()
    devices: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """As in "kernels with gemm, phase forward, device 0"."""
        patterns = [one.pattern for one in self.kernels]
        asked = {"kernels with": patterns, "phase": self.phases, "device": self.devices, "rank": self.ranks}
        return ", ".join(f"{title} {' or '.join(map(str, values))}" for title, values in asked.items() if values)

    def of(self, run: OnDisk | Run) -> Run:
        """What is wanted of a run, in memory; a file is read some row groups at a time.

        Raises `NcuBenchError` where nothing is left, and where the run cannot be read.
        """
        parts, whole = [], _Amount()
        for stretch in _stretches(run):
            parts.append(arrays.kept(stretch, self._wanted(stretch)))
            whole.add(stretch)
        left = _with_what_is_left(pa.concat_tables(parts))
        if not len(left):
            raise self._nothing_left(run)
        return Run(run.name, left, [*_notes_of(run, left), self._note(left, whole)])

    def _wanted(self, table: pa.Table) -> Mask:
        wanted = np.ones(len(table), bool)
        if self.kernels:
            wanted &= _holds(table, "kernel_name", lambda name: any(one.search(name or "") for one in self.kernels))
        if self.phases:
            wanted &= _holds(table, "phase", lambda phase: phase in self.phases)
        for column, values in (("device_id", self.devices), ("rank", self.ranks)):
            if values:
                wanted &= np.isin(tables.floats(table, column), values)
        return wanted

    def _note(self, left: pa.Table, whole: _Amount) -> str:
        part = _Amount()
        part.add(left)
        share = f" with {percent(part.time / whole.time)} of the time" if whole.time else ""
        return (
            f"restricted to {self.words}: {part.launches:,} of {counted(whole.launches, 'launch', 'launches')}{share}; "
            "shares and sums are of these"
        )

    def _nothing_left(self, run: OnDisk | Run) -> NcuBenchError:
        asked = {
            "kernel_short": ("kernels", self.kernels), "phase": ("phases", self.phases),
            "device_id": ("devices", self.devices), "rank": ("ranks", self.ranks),
        }  # fmt: skip
        there: dict[str, dict[str, None]] = {column: {} for column, (_, wanted) in asked.items() if wanted}
        for stretch in _stretches(run):
            for column, values in there.items():
                values |= dict.fromkeys(_values(stretch, column))
        known = " ".join(f"Its {asked[column][0]} are {_listed(list(values))}." for column, values in there.items())
        advice = "Letters are large or small as written; (?i) in front of a pattern takes both." if self.kernels else ""
        return NcuBenchError(f"Nothing is left of {run.name} for {self.words}.", known, advice)


def load_only(
    path: str,
    only: Selection | None,
    *,
    reading: Callable[[Source], None] = lambda source: None,
    columns: Columns = None,
) -> Run:
    """The run that `path` names, those of `columns` of it, or `only` some of its launches with all columns.

    Raises `NcuBenchError` as `loading.load` and `Selection.of` do.
    """
    if only is None:
        return load(path, reading=reading, columns=columns)
    return only.of(locate(path, reading=reading))


class _Amount:
    """How many launches did not fail, and their time in ns; a row of averages counts as often as it stands for."""

    def __init__(self) -> None:
        self.launches = 0
        self.time = 0.0

    def add(self, table: pa.Table) -> None:
        """Count the next ones."""
        count = np.where(np.nan_to_num(tables.floats(table, "failed")) > 0, 0.0, tables.launch_counts(table))
        self.launches += round(float(count.sum()))
        self.time += float(np.nansum(tables.floats(table, "duration_ns") * count))


def of_phases(run: Run, phases: tuple[str, ...]) -> Run:
    """The launches of some phases, where any launch knows its own; else the run as it is."""
    return Selection(phases=phases).of(run) if _values(run.table, "phase") else run


def pattern_of(text: str) -> re.Pattern[str]:
    """A regular expression that a user wrote. Raises `WrongUsage` where it is none, or empty."""
    if not text:
        raise WrongUsage("--kernel was given no pattern.", "A variable of the shell may be empty.", "Name a kernel.")
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise WrongUsage(
            f"{text} is no regular expression: {error}.", advice="Put a backslash before ( ) [ ] * + ? that are meant."
        ) from error


def _stretches(run: OnDisk | Run) -> Iterator[pa.Table]:
    """The launches of a run with all their columns, of a file some row groups at a time."""
    if isinstance(run, OnDisk) and not isinstance(run.file, Dataset):
        return launch_stretches(run.file, lambda names, filled: list(names))
    return iter([run.read().table if isinstance(run, OnDisk) else run.table])


def _with_what_is_left(table: pa.Table) -> pa.Table:
    """The table with dictionaries of the texts that stand in it, without those of launches that were left out."""
    for at, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            texts = arrays.cast(table.column(at), column.type.value_type)
            table = table.set_column(at, column, arrays.cast(arrays.encoded(texts), column.type))
    return table


def _notes_of(run: OnDisk | Run, table: pa.Table) -> list[str]:
    return run.notes or (list(tables.table_metadata(table).get("notes", [])) if isinstance(run, OnDisk) else [])


def _holds(table: pa.Table, column: str, test: Callable[[str | None], bool]) -> Mask:
    """Where a text passes a test, which is asked once for each distinct one."""
    codes, texts = tables.codes(table, column)
    return np.array([test(text) for text in texts], bool)[codes]


def _values(table: pa.Table, column: str) -> list[str]:
    """What a column holds, each value once."""
    if column in ("kernel_short", "phase"):
        codes, texts = tables.codes(table, column)
        return [text for text in (texts[code] for code in np.unique(codes).tolist()) if text is not None]
    numbers = np.unique(tables.floats(table, column))
    return [f"{number:.0f}" for number in numbers[~np.isnan(numbers)].tolist()]


def _listed(values: list[str]) -> str:
    if not values:
        return "not known"
    more = f" and {len(values) - NAMED:,} more" if len(values) > NAMED else ""
    return ", ".join(values[:NAMED]) + more
