"""Select the launches of kernels, phases, layers, devices or ranks that the user names.

The result is a separate run: every share and total refers to the selected launches, and a note describes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.errors import NcuBenchError, WrongUsage, near_names
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.own_columns import PREFIX, own_names
from ncu_parsers.schema.tables import Floats

from ncu_tools.kernels.names.kernel_ids import kernel_id, of_ids
from ncu_tools.kernels.names.readable_names import is_called
from ncu_tools.numbers.number_format import counted, percent
from ncu_tools.runs.run import Run, notes_in

Mask = npt.NDArray[np.bool_]
Point = tuple[tuple[str, str], ...]
"""Names and values of all varied settings, or of some, as typed."""
POINT = "point"
MOST_LISTED = 8
"""Most values listed when no launch matches."""


@dataclass(frozen=True)
class Selection:
    """A filter of launches; all given criteria must hold.

    `kernels` are searched in full kernel names and in readable ones; one match is enough. `layers` are paths of
    modules, and include everything below them; `*` in a path is any text. `points` belong to a profile --vary, each as
    names and values, all of which must hold. `ids` are keys of kernels (`kernels.names.kernel_ids`).
    """

    kernels: tuple[re.Pattern[str], ...] = ()
    phases: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    devices: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    points: tuple[Point, ...] = ()
    ids: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The criteria in words, as in "kernels with gemm, phase forward, device 0"."""
        patterns = [one.pattern for one in self.kernels]
        criteria = {
            "kernels with": patterns, "phase": self.phases, "layer": self.layers, "device": self.devices,
            "rank": self.ranks, "point": [",".join(map("=".join, point)) for point in self.points],
            "kernels of id": self.ids,
        }  # fmt: skip
        return ", ".join(f"{title} {' or '.join(map(str, values))}" for title, values in criteria.items() if values)

    @property
    def needs_launches(self) -> bool:
        """True if a criterion other than a kernel's name is used, which needs the table of launches."""
        return bool(self.phases or self.layers or self.devices or self.ranks or self.points)

    def names_kernel(self, name: str) -> bool:
        """True if a kernel of this full name matches the requested names and keys."""
        by_name = not self.kernels or is_called(name, self.kernels)
        return by_name and (not self.ids or kernel_id(name) in self.ids)

    def of(self, run: Run) -> Run:
        """The selected launches of a run, in memory; a file is read a few row groups at a time.

        Raises `NcuBenchError` if none match, or the run cannot be read.
        """
        parts, whole = [], np.zeros(2)
        for batch in run.batches():
            parts.append(arrays.kept(batch, self._wanted(batch)))
            whole += _amount(batch)
        left = _with_used_texts(pa.concat_tables(parts))
        if not len(left):
            raise self._nothing_left(run)
        notes = [*(run.told or notes_in(left)), self._note(left, whole), *self._notes_on_unmet(left)]
        return Run.held(run.name, left, notes)

    def _wanted(self, table: pa.Table) -> Mask:
        wanted = np.ones(len(table), bool)
        if self.kernels or self.ids:
            wanted &= _holds(table, "kernel_name", lambda name: self.names_kernel(name or ""))
        if self.phases:
            wanted &= _holds(table, "phase", lambda phase: phase in self.phases)
        if self.layers:
            wanted &= _holds(table, "module", lambda module: any(_is_in(module or "", one) for one in self.layers))
        for column, values in (("device_id", self.devices), ("rank", self.ranks)):
            if values:
                wanted &= np.isin(tables.floats(table, column), values)
        if self.points:
            wanted &= np.any([_is_at(table, point) for point in self.points], axis=0)
        return wanted

    def _notes_on_unmet(self, left: pa.Table) -> list[str]:
        """The note on values of which others were enough, and which no launch that is left has; [] if all have some."""
        values = [(one.name, value) for one in fields(self) for value in getattr(self, one.name)]
        alone = [Selection(**{name: (value,)}) for name, value in values if len(getattr(self, name)) > 1]
        unmet = [one.title for one in alone if not one._wanted(left).any()]
        return [f"no launch is left for {', for '.join(unmet)}"] if unmet else []

    def _note(self, left: pa.Table, whole: Floats) -> str:
        (launches, time), (of_launches, of_time) = _amount(left).tolist(), whole.tolist()
        share = f" with {percent(time / of_time)} of the time" if of_time else ""
        every = counted(round(of_launches), "launch", "launches")
        return f"restricted to {self.title}: {round(launches):,} of {every}{share}; shares and sums are of these"

    def _nothing_left(self, run: Run) -> NcuBenchError:
        criteria = {
            "kernel_short": ("kernels", self.kernels), "phase": ("phases", self.phases),
            "module": ("layers", self.layers), "device_id": ("devices", self.devices), "rank": ("ranks", self.ranks),
            POINT: ("points", self.points),
        }  # fmt: skip
        there: dict[str, dict[str, None]] = {column: {} for column, (_, wanted) in criteria.items() if wanted}
        for batch in run.batches():
            for column, values in there.items():
                values |= dict.fromkeys(_values(batch, column))
        for pattern in self.kernels:
            near = near_names(pattern.pattern, there["kernel_short"])
            there["kernel_short"] = {**dict.fromkeys(near), **there["kernel_short"]}  # similar ones first
        known = " ".join(f"Its {criteria[column][0]} are {_listed(list(values))}." for column, values in there.items())
        advice = "Letters are large or small as written; (?i) in front of a pattern takes both." if self.kernels else ""
        return NcuBenchError(f"Nothing is left of {run.name} for {self.title}.", known, advice)


def _amount(table: pa.Table) -> Floats:
    """The number of launches that did not fail, and their time in ns; a row of averages counts all its launches."""
    count = np.where(np.nan_to_num(tables.floats(table, "failed")) > 0, 0.0, tables.launch_counts(table))
    return np.array([count.sum(), np.nansum(tables.floats(table, "duration_ns") * count)])


def of_phases(run: Run, phases: tuple[str, ...]) -> Run:
    """The launches of some phases, if any launch has a known phase; else the run unchanged."""
    return Selection(phases=phases).of(run) if _values(run.table, "phase") else run


def pattern_of(text: str, option: str = "--kernel") -> re.Pattern[str]:
    """Compile a regular expression given to an option. Raises `WrongUsage` if it is invalid or empty."""
    if not text:
        raise WrongUsage(
            f"{option} was given no pattern.",
            "A variable of the shell may be empty.",
            f"Name a {'kernel' if option == '--kernel' else 'part of a name'}.",
        )
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise WrongUsage(
            f"{text} is no regular expression: {error}.", advice="Put a backslash before ( ) [ ] * + ? that are meant."
        ) from error


def point_of(text: str) -> Point:
    """Parse a point as typed, "m=64,n=128". Raises `WrongUsage` for another form."""
    pairs = [tuple(part.strip() for part in one.partition("=")) for one in text.split(",")]
    if not all(name and sign and value for name, sign, value in pairs):
        raise WrongUsage(f"--point {text} names no point.", advice="Write what was varied: --point n=64, or m=64,n=128")
    return tuple((name, value) for name, _, value in pairs)


def _with_used_texts(table: pa.Table) -> pa.Table:
    """The table with dictionaries re-encoded, so that they contain no texts of removed launches."""
    for at, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            texts = arrays.cast(table.column(at), column.type.value_type)
            table = table.set_column(at, column, arrays.cast(arrays.encoded(texts), column.type))
    return table


def _holds(table: pa.Table, column: str, test: Callable[[str | None], bool]) -> Mask:
    """Mask of the rows whose text passes `test`, which is called once per distinct text."""
    codes, texts = tables.codes(table, column)
    return np.array([test(text) for text in texts], bool)[codes]


def _is_in(module: str, layer: str) -> bool:
    """True if a module is the layer or below it; `*` in the layer is any text."""
    pattern = layer.replace("[", "[[]")  # brackets are literal
    return fnmatchcase(module, pattern) or fnmatchcase(module, f"{pattern}.*")


def _is_at(table: pa.Table, point: Point) -> Mask:
    """Mask of the launches of a point; all False if it names something that was not varied."""
    held, columns = np.ones(len(table), bool), {name.removeprefix(PREFIX): name for name in own_names(table)}
    for name, wanted in point:
        values = table.column(columns[name]).to_pylist() if name in columns else [None] * len(table)
        same = {value: value is not None and _equals(value, wanted) for value in set(values)}
        held &= np.array([same[value] for value in values], bool)
    return held


def _equals(value: str | float, wanted: str) -> bool:
    """True if a value equals the typed one, numbers by value: 64 is 64.0."""
    if isinstance(value, str):
        return value == wanted
    try:
        return value == float(wanted)
    except ValueError:
        return False


def _points(table: pa.Table) -> list[str]:
    """The points of the launches, in typed form."""
    names = own_names(table)
    columns = [[f"{name.removeprefix(PREFIX)}={value}" for value in table.column(name).to_pylist()] for name in names]
    return list(dict.fromkeys(map(",".join, zip(*columns, strict=True))))


def _values(table: pa.Table, column: str) -> list[str]:
    """The distinct values of a column, or the points."""
    if column == POINT:
        return _points(table)
    if column in ("kernel_short", "phase", "module"):
        codes, texts = tables.codes(table, column)
        return [text for text in (texts[code] for code in np.unique(codes).tolist()) if text is not None]
    numbers = np.unique(tables.floats(table, column))
    return [f"{number:.0f}" for number in numbers[~np.isnan(numbers)].tolist()]


def _listed(values: list[str]) -> str:
    if not values:
        return "not known"
    more = f" and {len(values) - MOST_LISTED:,} more" if len(values) > MOST_LISTED else ""
    return ", ".join(values[:MOST_LISTED]) + more


def ids_apart(only: Selection | None) -> tuple[tuple[str, ...], Selection | None]:
    """The kernel keys in a selection, and the selection without them; None if it is then empty."""
    if only is None or not only.ids:
        return (), only
    rest = replace(only, ids=())
    return only.ids, rest if rest != Selection() else None


def pattern_of_ids(table: pa.Table, ids: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """A pattern for the full names of the kernels with these keys; () without keys.

    Raises `NcuBenchError` if no kernel of the table has one.
    """
    if not ids:
        return ()
    names = {name for name in tables.words(table, "kernel_name") if name}
    found = of_ids(names, ids)
    if not found:
        raise NcuBenchError(
            f"No kernel of the run has the id {', '.join(ids)}.",
            "An id follows from the full name of a kernel, so the kernel may be called otherwise in this run.",
            "ncu-bench hotspots RUN --format json lists the ids of its kernels.",
        )
    return (re.compile(rf"^(?:{'|'.join(map(re.escape, sorted(found)))})$"),)


def kernel_patterns(table: pa.Table, only: Selection | None) -> tuple[re.Pattern[str], ...]:
    """Patterns for the names of the kernels that a selection requests by name or key; () for all.

    Raises `NcuBenchError` for a key that no kernel of the table has.
    """
    if only is None:
        return ()
    return pattern_of_ids(table, only.ids) or only.kernels
