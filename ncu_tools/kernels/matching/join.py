"""Join counts of ncu to times of a timeline: FLOPs and bytes per launch signature, undisturbed durations.

ncu runs kernels one after the other, flushes caches and locks clocks, so its times are not the program's own; a
timeline (nsys, PyTorch's profiler) disturbs little and counts nothing. Counted launches of one signature must agree. If
they do not, launches are matched one to one by order if both sides have equally many; otherwise the differing counts
stay empty. Ceilings and clocks are those under ncu.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_parsers.parse.file_kinds import TIMELINES
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.flops_basis import BETWEEN_BASES
from ncu_parsers.schema.tables import (
    COLUMN_NAMES,
    MEASURE_COLUMNS,
    SCHEMA_VERSION,
    Floats,
    field_entries,
    field_metadata,
    table_metadata,
    with_metadata,
)

from ncu_tools.kernels.matching.launch_signatures import (
    KEYS,
    LaunchSignatures,
    Mask,
    Matching,
    is_one_of,
    launches_of,
    match,
)
from ncu_tools.kernels.operator_work import BYTES_BY_SHAPES, FLOPS_BY_SHAPES, OF_OPERATOR_WORK

TOLERANCE = 0.01
"""Largest relative difference of counted launches of one signature that still agree."""

MATCHED, BY_ORDER, AMBIGUOUS, UNMATCHED = "matched", "matched by order", "ambiguous", "unmatched"
COPY = "copies and memsets"
OUTCOMES = (MATCHED, BY_ORDER, AMBIGUOUS, UNMATCHED, COPY)

CEILING_COLUMNS = frozenset(
    column.name for column in MEASURE_COLUMNS if column.name.startswith("peak_") or column.name.endswith("_clock_hz")
)
"""Columns that hold under ncu for any launch: the mean of a signature, without a check of agreement."""
COUNT_COLUMNS = tuple(
    column.name
    for column in MEASURE_COLUMNS
    if column.type == pa.float64() and column.name not in {*CEILING_COLUMNS, "duration_ns"}
)
"""Columns in which launches of one signature must agree."""
FILLED_COLUMNS = ("chip", "compute_capability", "device_name")
"""Columns of the counts that fill gaps of the timeline."""
TIMES_UNDER_NCU = "gpu__time"
RATE = ".sum.per_second"

ABOUT_CEILINGS = (
    "counts, clocks and ceilings are from ncu, times from the timeline: a GPU that ran at higher clocks, or "
    "found in a cache what ncu flushes, can be above a ceiling"
)


@dataclass(frozen=True)
class Share:
    """Time of the timeline with one outcome, of one kernel or of all (`kernel` is None); `share` is of all time."""

    outcome: str
    kernel: str | None
    launches: int
    time_ns: float
    share: float | None


@dataclass
class Joined:
    """The joined launches, the time of each outcome, and of each kernel without counts.

    `lacking` is sorted by time.
    """

    table: pa.Table
    outcomes: list[Share]
    lacking: list[Share]
    notes: list[str] = field(default_factory=list)


def join(counts: pa.Table, timeline: pa.Table, *, tolerance: float = TOLERANCE, other_gpus: bool = False) -> Joined:
    """Return one row per launch of `timeline`, with the counts of its signature in `counts`.

    Raises `NcuBenchError` if `counts` has no counters of ncu, `timeline` has no kernels of a timeline, or both name
    their GPU and differ, unless `other_gpus` is set.
    """
    _require_joinable(counts, timeline)
    counted = launches_of(_with_sums(_rows_that(counts, _is_counted(counts))))
    timed = launches_of(_rows_that(timeline, _is_of(timeline, TIMELINES)))
    apart = _differences_of_gpus(counted.table, timed.table)
    if apart and not other_gpus:
        raise NcuBenchError(
            f"COUNTS and TIMELINE come from different GPUs: {'; '.join(apart)}.",
            "FLOPs per launch, bytes and ceilings of one GPU do not hold on another.",
            "To join them all the same, add --anyway",
        )
    matching = match(counted, timed)
    values = _Values(counted, matching, tolerance)
    outcome = _outcomes(timed, matching, values)
    outcomes, lacking = _shares(timed, outcome)
    notes = [f"{one}: bytes and ceilings are from the former GPU" for one in apart]
    notes += [*_notes(counted, timed, matching, values, outcomes), ABOUT_CEILINGS]
    table = with_metadata(_table(timed, matching, values, outcome), _metadata(counts, timeline, notes))
    return Joined(table, outcomes, lacking, notes)


def _require_joinable(counts: pa.Table, timeline: pa.Table) -> None:
    has_counts, has_times = _is_counted(counts).any(), _is_of(timeline, TIMELINES).any()
    if not has_counts and not has_times and _is_counted(timeline).any() and _is_of(counts, TIMELINES).any():
        raise NcuBenchError(
            "COUNTS is a timeline, and TIMELINE a report of ncu.",
            advice="Swap them: ncu-bench parse COUNTS --times TIMELINE",
        )
    if not has_counts:
        raise NcuBenchError(
            "COUNTS holds no counters of ncu.",
            "Only launches that ncu profiled have counts to give.",
            "Name a report of ncu and the timeline: ncu-bench parse COUNTS --times TIMELINE -o joined.parquet",
        )
    if not has_times:
        raise NcuBenchError(
            "TIMELINE holds no times of an undisturbed run.",
            "They are taken from nsys or from PyTorch's profiler; ncu times one kernel at a time.",
            "Record one with: nsys profile -t cuda,nvtx -o timeline PROGRAM",
        )
    if _distinct(timeline, "operation") == {"cpu_op"}:
        raise NcuBenchError(
            "TIMELINE holds operators of the CPU, and no kernel.",
            "PyTorch's profiler recorded without a GPU.",
            "Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
        )


def _differences_of_gpus(counts: pa.Table, timeline: pa.Table) -> list[str]:
    """Differences in device name and compute capability, where both sides have them."""
    found = []
    for name, title in (("device_name", ""), ("compute_capability", "compute capability ")):
        ours, theirs = ({word for word in _distinct(table, name) if word} for table in (counts, timeline))
        if ours and theirs and ours != theirs:
            listed = (title + ", ".join(sorted(words)) for words in (ours, theirs))
            found.append("counts come from {} and times from {}".format(*listed))
    return found


def _is_of(table: pa.Table, sources: Collection[str]) -> Mask:
    return is_one_of(table, "source", sources)


def _distinct(table: pa.Table, name: str) -> set[str | None]:
    """The distinct texts of a column, including None if it has nulls."""
    codes, values = tables.codes(table, name)
    return {values[code] for code in np.unique(codes).tolist()}


def _is_counted(table: pa.Table) -> Mask:
    """Mask of launches under ncu that did not fail."""
    succeeded: Mask = np.array([not failed for failed in table.column("failed").to_pylist()], dtype=bool)
    return _is_of(table, ("ncu",)) & succeeded


def _rows_that(table: pa.Table, wanted: Mask) -> pa.Table:
    if wanted.all():
        return table
    return arrays.take(table, arrays.whole(np.flatnonzero(wanted)))


def _with_sums(table: pa.Table) -> pa.Table:
    """Replace rates per second of counted launches by sums, since rates only hold under ncu."""
    seconds = tables.floats(table, "duration_ns") / 1e9
    for rate in [name for name in table.column_names if name.endswith(RATE)]:
        total = rate.removesuffix(RATE) + ".sum"
        counted, multiplied = tables.floats(table, total), tables.floats(table, rate) * seconds
        column = arrays.floats(np.where(np.isnan(counted), multiplied, counted))
        unit = field_entries(table.schema.field(rate)).get("unit", "").removesuffix("/s")
        table = table.remove_column(table.schema.get_field_index(rate))
        if total in table.column_names:
            table = _replaced(table, total, column)
            continue
        metadata = field_metadata(unit=unit, meaning="the rate under ncu times the time under ncu")
        table = table.append_column(pa.field(total, column.type, metadata=metadata), column)
    return table


def _metadata(counts: pa.Table, timeline: pa.Table, notes: list[str]) -> dict[str, object]:
    reports = [report for table in (counts, timeline) for report in table_metadata(table).get("reports", [])]
    return {"schema_version": SCHEMA_VERSION, "reports": reports, "notes": notes}


# ---------------------------------------------------------------------------------------------- counts of a signature


class _Values:
    """The columns of the counted launches, as one value per launch of the timeline."""

    def __init__(self, counted: LaunchSignatures, matching: Matching, tolerance: float) -> None:
        self.tolerance = tolerance
        self.spreads: dict[str, float] = {}
        self._counted = counted
        self._matching = matching
        groups = matching.groups
        self.disagree: Mask = np.zeros(groups, dtype=bool)
        self.columns: dict[str, Floats] = {}
        for name in (*COUNT_COLUMNS, *sorted(CEILING_COLUMNS)):
            values, disagree = self._of_launches(name)
            self.columns[name] = values
            if name in COUNT_COLUMNS:
                self.disagree |= disagree

    def numbers(self) -> Iterator[tuple[pa.Field, Floats]]:
        """Every other numeric metric, with its field."""
        for field_ in self._counted.table.schema:
            number = pa.types.is_floating(field_.type) or pa.types.is_integer(field_.type)
            if number and field_.name not in COLUMN_NAMES and not field_.name.startswith(TIMES_UNDER_NCU):
                yield field_, self._of_launches(field_.name)[0]

    def words(self) -> Iterator[tuple[pa.Field, list[str | None]]]:
        """Every text metric, with its field."""
        for field_ in self._counted.table.schema:
            text = pa.types.is_string(field_.type) or pa.types.is_dictionary(field_.type)
            if text and "__" in field_.name and not field_.name.endswith("(instances)"):
                yield field_, self.word(field_.name)

    def word(self, name: str) -> list[str | None]:
        """A text column of the counts for each launch of the timeline; None where launches of a group differ."""
        texts = [next(iter(found)) if len(found) == 1 else None for found in self._texts(name)]
        return self._spread(texts)

    def bases(self) -> list[str | None]:
        """`flops_basis` for each launch of the timeline: all bases in its group."""
        return self._spread([BETWEEN_BASES.join(sorted(found)) or None for found in self._texts("flops_basis")])

    def _texts(self, name: str) -> list[set[str]]:
        words = tables.words(self._counted.table, name)
        found: list[set[str]] = [set() for _ in range(self._matching.groups)]
        for row, group in zip(self._matching.members.tolist(), self._matching.member_group.tolist(), strict=True):
            word = words[row]
            if word is not None:
                found[group].add(word)
        return found

    def _spread(self, texts: list[str | None]) -> list[str | None]:
        return [texts[group] if group >= 0 else None for group in self._matching.group.tolist()]

    def _of_launches(self, name: str) -> tuple[Floats, Mask]:
        """A column for each launch of the timeline (float64, NaN if unknown), and the groups that disagree in it."""
        values = tables.floats(self._counted.table, name)
        mean, disagree = self._means(name, values)
        group, partner = self._matching.group, self._matching.partner
        if not len(mean):
            return np.full(len(group), np.nan), disagree
        own = np.where(partner >= 0, values[np.maximum(partner, 0)], np.nan)
        found = np.where(disagree[group], own, mean[group])
        return np.where(group >= 0, found, np.nan), disagree

    def _means(self, name: str, values: Floats) -> tuple[Floats, Mask]:
        """The mean of a column in each group (NaN if no launch has it), and the groups whose launches disagree."""
        members, group, groups = self._matching.members, self._matching.member_group, self._matching.groups
        known = ~np.isnan(values[members])
        member, group = values[members][known], group[known]
        weight = self._counted.weight[members][known]
        least, most = np.full(groups, np.inf), np.full(groups, -np.inf)
        np.minimum.at(least, group, member)
        np.maximum.at(most, group, member)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.bincount(group, member * weight, groups) / np.bincount(group, weight, groups)
            largest = np.maximum(np.abs(least), np.abs(most))
            apart = np.where(most > least, (most - least) / largest, 0.0)
        if name in CEILING_COLUMNS:
            return mean, np.zeros(groups, dtype=bool)
        disagree = apart > self.tolerance
        if name in COUNT_COLUMNS and disagree.any():
            self.spreads[name] = float(apart[disagree].max())
        return mean, disagree


def _estimates_apart(timeline: pa.Table) -> pa.Table:
    """The timeline with the work of its operators under other names: counts replace it, and are not added to it."""
    flops, least_bytes, unit = OF_OPERATOR_WORK
    names = {flops: FLOPS_BY_SHAPES, least_bytes: BYTES_BY_SHAPES}
    table = timeline.drop_columns([unit] if unit in timeline.column_names else [])
    return table.rename_columns([names.get(name, name) for name in table.column_names])


def _outcomes(timed: LaunchSignatures, matching: Matching, values: _Values) -> npt.NDArray[np.int64]:
    """For each launch of the timeline the index of its outcome in `OUTCOMES`."""
    outcome = np.full(len(timed.table), OUTCOMES.index(UNMATCHED))
    found = matching.group >= 0
    differs = found.copy()
    differs[found] = values.disagree[matching.group[found]]
    outcome[found] = OUTCOMES.index(MATCHED)
    outcome[differs & (matching.partner >= 0)] = OUTCOMES.index(BY_ORDER)
    outcome[differs & (matching.partner < 0)] = OUTCOMES.index(AMBIGUOUS)
    outcome[~timed.is_kernel] = OUTCOMES.index(COPY)
    return outcome


# --------------------------------------------------------------------------------------------------------- the table


def _table(timed: LaunchSignatures, matching: Matching, values: _Values, outcome: npt.NDArray[np.int64]) -> pa.Table:
    """The launches of the timeline, with the columns of the counts filled in or appended."""
    table = _estimates_apart(timed.table)
    found = matching.group >= 0
    for name, column in values.columns.items():
        table = _replaced(table, name, arrays.floats(column))
    table = _replaced(table, "flops_basis", arrays.dictionary(values.bases()))
    codes, sources = tables.codes(table, "source")
    both = [*sources, *(f"ncu+{source}" for source in sources)]
    joined = [both[code] for code in (codes + found * len(sources)).tolist()]
    table = _replaced(table, "source", arrays.dictionary(joined))
    for name in FILLED_COLUMNS:
        pairs = zip(tables.words(table, name), values.word(name), strict=True)
        table = _replaced(table, name, arrays.dictionary([own or other for own, other in pairs]))
    keys = [KEYS[key].title if key >= 0 else None for key in matching.key.tolist()]
    added = [
        _text_field("counts_match", "how the counts of the row were found", [OUTCOMES[one] for one in outcome]),
        _text_field("counts_key", "what the row and its counted launches share", keys),
        *((field_, arrays.floats(column)) for field_, column in values.numbers()),
        *((field_, arrays.dictionary(column)) for field_, column in values.words()),
    ]
    for field_, column in added:
        if field_.name not in table.column_names:
            table = table.append_column(field_.with_type(column.type), column)
    return table


def _text_field(name: str, meaning: str, values: list[str | None] | list[str]) -> tuple[pa.Field, pa.Array]:
    column = arrays.dictionary(values)
    return pa.field(name, column.type, metadata=field_metadata(meaning=meaning)), column


def _replaced(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), column)


# ------------------------------------------------------------------------------------------------------------ account


def _shares(timed: LaunchSignatures, outcome: npt.NDArray[np.int64]) -> tuple[list[Share], list[Share]]:
    """Time and launches of every outcome that occurs, and of each kernel that is ambiguous or unmatched."""
    launches = timed.weight
    time = np.nan_to_num(tables.floats(timed.table, "duration_ns")) * launches
    whole = float(time.sum())

    def share(place: int, kernel: str | None, count: float, spent: float) -> Share:
        return Share(OUTCOMES[place], kernel, round(count), spent, spent / whole if whole else None)

    totals, lacking = [], []
    for place, title in enumerate(OUTCOMES):
        here = outcome == place
        totals.append(share(place, None, float(launches[here].sum()), float(time[here].sum())))
        if title in (UNMATCHED, AMBIGUOUS):
            codes, names = timed.name_codes[here], timed.names
            counts, times = (np.bincount(codes, one[here], len(names)) for one in (launches, time))
            lacking += [
                share(place, names[code], float(counts[code]), float(times[code])) for code in np.unique(codes).tolist()
            ]
    return [one for one in totals if one.launches], sorted(lacking, key=lambda one: (-one.time_ns, one.kernel or ""))


def _notes(
    counted: LaunchSignatures, timed: LaunchSignatures, matching: Matching, values: _Values, outcomes: list[Share]
) -> list[str]:
    notes = []
    kinds = {one.outcome: one for one in outcomes}
    if BY_ORDER in kinds:
        notes.append(
            f"{_launches(kinds[BY_ORDER].launches)} matched one to one by order: the counted launches of their "
            "signatures differ, and both sides have equally many"
        )
    if AMBIGUOUS in kinds:
        worst = max(values.spreads, key=lambda name: values.spreads[name])
        notes.append(
            f"{_launches(kinds[AMBIGUOUS].launches)} ambiguous: counted launches of one signature differ by more "
            f"than {100 * values.tolerance:.3g} %, {worst} by up to {100 * values.spreads[worst]:.3g} %; differing "
            "values are left empty; a larger --tolerance takes their mean"
        )
    notes += _key_notes(timed, matching)
    timeless = int((timed.weight * np.isnan(tables.floats(timed.table, "duration_ns")))[timed.is_kernel].sum())
    if timeless:
        notes.append(f"{_launches(timeless)} of the timeline without a time: they are in no share")
    unused = np.setdiff1d(np.flatnonzero(counted.is_kernel), matching.members)
    if len(unused):
        kernels = len(np.unique(counted.name_codes[unused]))
        notes.append(
            f"{_launches(len(unused))} under ncu, of {kernels} kernel{'s' * (kernels > 1)}, not in the timeline"
        )
    return notes


def _key_notes(timed: LaunchSignatures, matching: Matching) -> list[str]:
    """The number of launches that found their counts by a key looser than name, grid and block."""
    notes = []
    for place, key in enumerate(KEYS):
        here = matching.key == place
        if here.any() and key.parts not in (("name", "shape", "range"), ("name", "shape")):
            notes.append(f"{_launches(int(timed.weight[here].sum()))} joined by {key.title} only")
    return notes


def _launches(count: int) -> str:
    return f"{count} launch{'es' * (count != 1)}"
