"""What changed between measured points: times with intervals; memory, FLOPs and parameters exactly.

Points match if they agree in everything that was requested, except in the compared dimensions: those that differ
between two runs and are constant within each, or those that the user names. Points of different versions of PyTorch or
numbers of threads are compared only with --anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from ncu_launch.bench.latency_statistics import BLOCKS, half_width
from ncu_launch.bench.point_outcomes import OK
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.targets.reference_kernels import own_dtype
from ncu_parsers.schema.own_columns import PREFIX

from ncu_tools.bench.bench_runs import BenchRun, Row
from ncu_tools.bench.expected_flops import notes_on_basis, unlike_basis
from ncu_tools.numbers.change import CLOCKS_ALIKE, Change, Difference, Subject, Subjects, clock_ratio
from ncu_tools.numbers.number_format import counted
from ncu_tools.numbers.statistics import CONFIDENCE, Estimate, mean_of, ratio_interval, student_quantile

MACHINE, DTYPE, MODE, LAYOUT, PHASE, TORCH, THREADS = DIMENSIONS = (
    "machine", "dtype", "mode", "channels-last", "phase", "torch", "threads",
)  # fmt: skip
"""The dimensions that can be compared, in addition to arguments. The last two are conditions if not compared."""
ASKED = (MACHINE, DTYPE, MODE, LAYOUT, PHASE)
SIZES = {"batch_size": "batch", "input_size": "image", "sequence_length": "tokens", "arguments": ""}
REDUCED = ("fp16", "bf16")
"""Data types that autocast affects."""
MODES_IN_WORDS = {"jit": "TorchScript", "compile": "torch.compile", "cudagraph": "CUDA graphs"}

COUNTS = {
    "memory": "memory_peak_bytes", "allocated": "memory_allocated_bytes", "flops": "expected_flops",
    "bytes": "expected_bytes", "parameters": "parameters",
}  # fmt: skip
NOT_OF_POINTS = {
    "launches": "measured points have no launches",
    "dram_bytes": "measured points have no DRAM bytes; bytes are those of formulas",
}
NOT_GIVEN = ""
"""The value of an argument left at its default."""
_CONDITIONS = {TORCH: "version of torch", THREADS: "threads"}
WITHIN_A_PROCESS = (
    "hold the scatter within a process; from one process to the next times differ by more: "
    "measure both sides with bench --processes 3"
)
OF_SAMPLES, OF_PROCESSES = "samples of one process", "means of processes"
"""The sources of a time's interval."""
LEAST_PROCESSES = 2
_VALUES: dict[str, Callable[[Row], Any]] = {
    MACHINE: lambda row: row["device_name"],
    DTYPE: lambda row: (row["dtype"], bool(row["autocast"]) and row["dtype"] in REDUCED),
    MODE: lambda row: row["mode"],
    LAYOUT: lambda row: bool(row["channels_last"]),
    PHASE: lambda row: row["phase"],
    TORCH: lambda row: row["torch"],
    THREADS: lambda row: row["threads"],
}
_WORDS: dict[str, Callable[[Any], str]] = {
    DTYPE: lambda value: value[0].upper() + (" autocast" if value[1] else ""),
    MODE: lambda value: MODES_IN_WORDS.get(value, value),
    LAYOUT: lambda value: "channels last" if value else "channels first",
    TORCH: lambda value: f"PyTorch {value}",
    THREADS: lambda value: counted(value, "thread", "threads"),
}

Key = tuple[Any, ...]
Dimensions = tuple[str, ...]


@dataclass(frozen=True)
class ComparedPoint:
    """A point of both sides, or of one of them (the other is None); `changes` is empty unless both were measured.

    `across` are the compared dimensions, `base_label` and `new_label` the names of the sides.
    """

    base: Row | None
    new: Row | None
    across: Dimensions
    base_label: str
    new_label: str
    changes: dict[str, Change] = field(default_factory=dict)

    @property
    def row(self) -> Row:
        """The row of the new side, or else of the base."""
        return self.new or self.base or {}

    @property
    def is_compared(self) -> bool:
        """True if both sides were measured."""
        return bool(self.changes)

    @property
    def subject(self) -> Subject:
        """The point as a subject of gates: missing if only the base was measured, not gated if the base was not."""
        names = tuple(str(side["point"]) for side in (self.new, self.base) if side is not None)
        before, after = (side and side["outcome"] for side in (self.base, self.new))
        if before == OK and after != OK:
            ended = "is not there" if after is None else f"ended as {after}"
            return Subject(names, {}, missing=f"it was measured in the base, and {ended} in the new run")
        if before != OK:
            return Subject(names, {}, not_gated="not in the base" if before is None else f"{before} in the base")
        return Subject(names, self.changes)


@dataclass
class PointComparison:
    """The points of one side compared with those of the base, differences of conditions, and notes."""

    name: str
    points: list[ComparedPoint]
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def subjects(self) -> Subjects:
        """The subjects of gates: the points, by their names."""
        return Subjects("point", [point.subject for point in self.points], lacks=NOT_OF_POINTS)


def valid_across(comparison: PointComparison) -> Dimensions:
    """The `--across` dimensions that would make this refused comparison valid."""
    compared = {name for point in comparison.points for name in point.across}
    refused = {each.condition for each in comparison.differences if each.refused}
    return tuple(name for name in DIMENSIONS if name in compared or _CONDITIONS.get(name) in refused)


def value_of(row: Row, dimension: str) -> Any:
    """The value of a row in one of `DIMENSIONS`, None if unknown; or of an argument, `NOT_GIVEN` if it has none."""
    if dimension in _VALUES:
        return _VALUES[dimension](row)
    value = row.get(dimension)
    return NOT_GIVEN if value is None else value


def in_words(row: Row, dimension: str) -> str:
    """The value of a row in one of `DIMENSIONS`, or of an argument, as text."""
    value = value_of(row, dimension)
    if dimension not in _VALUES:
        return f"without {dimension}" if value == NOT_GIVEN else f"{dimension}={value}"
    return "not known" if value is None else _WORDS.get(dimension, str)(value)


def size_words(row: Row, sizes: Iterable[str] = SIZES) -> str:
    """The sizes and arguments that a row has: "batch 8, image 224", "n=64"."""
    return ", ".join(f"{SIZES[size]} {row[size]}".strip() for size in sizes if row.get(size) is not None)


# ------------------------------------------------------------------------------------------------- which with which


def compare_runs(base: BenchRun, new: BenchRun, *, gated: bool = False) -> PointComparison:
    """Compare the points of one run with those of another.

    A dimension is compared if all points of a target have one value in each run, and the two values differ. Different
    machines are such a dimension if nothing else differs, and are refused if the result is to be `gated`: a gate is
    meant for changes of code. Raises `NcuBenchError` if the runs have no point in common.
    """
    across = {target: _differing(base.rows, new.rows, target) for target in _targets(base.rows, new.rows)}
    labels = {target: (base.name, new.name) for target, dimensions in across.items() if not dimensions}
    result = _compared(new.name, base.rows, new.rows, across, labels)
    if not any(point.base and point.new for point in result.points):
        raise NcuBenchError(
            f"No point of {new.name} is one of {base.name}.",
            f"The first was asked for as {_first_point(base.rows)}, the second as {_first_point(new.rows)}.",
            "Measure the same models at the same sizes, or name what is compared with --across.",
        )
    result.differences += _other_machines(result.points, gated)
    return result


def compare_across(runs: Sequence[BenchRun], dimensions: Sequence[str]) -> list[PointComparison]:
    """Compare the points of all runs together: each further value in these dimensions with the first one.

    A dimension may be an argument of the runs. Raises `WrongUsage` for any other name, and `NcuBenchError` if there is
    only one value, or a point was measured in two of the runs.
    """
    known = dict.fromkeys((*DIMENSIONS, *(name for run in runs for name in run.arguments)))
    across = tuple(name for name in known if name in dimensions)
    for name in dimensions:
        if name not in known:
            raise WrongUsage(f"{name} is none of {', '.join(known)}.", advice="Name one of them after --across.")
    rows = [row for run in runs for row in run.rows if not (DTYPE in across and own_dtype(row["target"]))]
    _require_single(rows)
    variants: dict[Key, list[Row]] = {}
    unplaced = 0
    for row in rows:
        values = tuple(value_of(row, name) for name in across)
        if None in values:
            unplaced += 1
        else:
            variants.setdefault(values, []).append(row)
    if len(variants) < 2:
        only = f": {_label(next(iter(variants.values()))[0], across)}" if variants else ""
        raise NcuBenchError(
            f"There is nothing to compare across {', '.join(across)}.",
            f"All points have one and the same{only}.",
            "Measure another, such as --dtype fp32,fp16, or name further runs.",
        )
    first, *others = variants.values()
    every = dict.fromkeys(_targets(rows), across)
    found = [
        _compared(_label(other[0], across), first, other, every, _labels(every, first[0], other[0])) for other in others
    ]
    if unplaced:
        found[0].notes.append(
            f"{counted(unplaced, 'point that failed is', 'points that failed are')} left out: "
            f"where nothing was measured, {' and '.join(across)} may not be known"
        )
    return found


def _labels(across: Mapping[str, Dimensions], base: Row, new: Row) -> dict[str, tuple[str, str]]:
    return {target: (_label(base, names), _label(new, names)) for target, names in across.items()}


def _targets(*sides: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row["target"] for side in sides for row in side))


def _differing(base: Sequence[Row], new: Sequence[Row], target: str) -> Dimensions:
    """The dimensions in which all rows of a target have one value in each run, and the two values differ."""
    found = []
    for name in ASKED:
        before, after = ({value_of(row, name) for row in side if row["target"] == target} for side in (base, new))
        if len(before) == len(after) == 1 and before != after and None not in before | after:
            found.append(name)
    return tuple(found)


def _label(row: Row, across: Iterable[str]) -> str:
    machine = [in_words(row, MACHINE)] if MACHINE in across else []
    others = " ".join(in_words(row, name) for name in across if name != MACHINE)
    return ", ".join([*machine, *([others] if others else [])])


def _first_point(rows: Sequence[Row]) -> str:
    return f'"{rows[0]["point"]}"' if rows else "nothing"


def _key(row: Row, across: Dimensions) -> Key:
    """The values that two comparable points must share."""
    sizes = {size: row.get(size) for size in SIZES} | {"arguments": _other_arguments(row, across)}
    return (row["target"], *sizes.values(), *(value_of(row, name) for name in ASKED if name not in across))


def _other_arguments(row: Row, across: Dimensions) -> str | None:
    """The arguments of a point, except compared ones; None without any."""
    compared = {text for name in across for text in (name, name.removeprefix(PREFIX))}
    given = (row.get("arguments") or "").split(", ")
    return ", ".join(one for one in given if one.partition("=")[0] not in compared) or None


def _require_single(rows: Iterable[Row]) -> None:
    """Raise `NcuBenchError` if two runs have the same point, so that the choice is ambiguous."""
    seen: dict[Key, Row] = {}
    for row in rows:
        other = seen.setdefault((_key(row, ()), row["torch"], row["threads"]), row)
        if other["run"] != row["run"]:
            raise NcuBenchError(
                f'Both {other["run"]} and {row["run"]} have the point "{row["point"]}" on {in_words(row, MACHINE)}.',
                "Across a dimension the points of all runs are put together.",
                "Leave --across out to compare the runs themselves, or name one of them.",
            )


def _compared(
    name: str,
    base: Sequence[Row],
    new: Sequence[Row],
    across: Mapping[str, Dimensions],
    labels: dict[str, tuple[str, str]],
) -> PointComparison:
    """Every point of both sides, those of the base first; of a repeated point the last row counts."""
    ours, theirs = ({_key(row, across[row["target"]]): row for row in side} for side in (base, new))
    repeated = len(base) + len(new) - len(ours) - len(theirs)
    ours, theirs = _placed(ours, theirs), _placed(theirs, ours)
    result = PointComparison(name, [])
    for key in dict.fromkeys((*ours, *theirs)):
        before, after = ours.get(key), theirs.get(key)
        target = key[0]
        if target not in labels:
            pair = [next(row for row in side if row["target"] == target) for side in (base, new)]
            labels[target] = (_label(pair[0], across[target]), _label(pair[1], across[target]))
        changes = _changes(before, after) if before and after and before["outcome"] == after["outcome"] == OK else {}
        if changes and before and after and MACHINE not in across[target]:
            clock = clock_ratio(before["gpu_clock_hz"], after["gpu_clock_hz"])
            changes["time"] = replace(changes["time"], clock=clock)
        result.points.append(ComparedPoint(before, after, across[target], *labels[target], changes))
    result.differences = _differences(result.points)
    result.notes = _notes(result.points, repeated)
    return result


def _placed(side: dict[Key, Row], other: dict[Key, Row]) -> dict[Key, Row]:
    """The rows of a side by key; failed ones get the only key of the other side that matches their known values."""
    free = [key for key in other if key not in side]
    found: dict[Key, Row] = {}
    for key, row in side.items():
        is_sure = row["outcome"] == OK or key in other
        alike = [] if is_sure else [one for one in free if _agrees(key, one)]
        if len(alike) == 1:
            free.remove(alike[0])
        found[alike[0] if len(alike) == 1 else key] = row
    return found


def _agrees(key: Key, other: Key) -> bool:
    return len(key) == len(other) and all(mine in (None, its) for mine, its in zip(key, other, strict=True))


# ----------------------------------------------------------------------------------------------- what changed, how sure


def estimates_of(base: Row, new: Row) -> tuple[Estimate, Estimate]:
    """The mean latencies of a point's two sides in ns, with their variances, for Welch's interval of the ratio.

    If both sides were measured by several processes, the variance is that of a mean of independent processes, s^2 / n
    of the n means of processes with n - 1 degrees of freedom (`statistics.mean_of`), as in Kalibera and Jones, Rigorous
    Benchmarking in Reasonable Time, ISMM 2013, p. 63: the highest repeated level includes the noise of lower levels.
    Processes take equally many samples unless their time is up, so the mean of their means is the mean of all samples.
    Otherwise the variance is that of samples within a process by batch means (`ncu_launch.bench.latency_statistics`).
    """
    if _are_of_processes(base, new):
        return _of_processes(base), _of_processes(new)
    return _of_samples(base), _of_samples(new)


def _are_of_processes(base: Row, new: Row) -> bool:
    return all(len(side["process_means_ns"] or []) >= LEAST_PROCESSES for side in (base, new))


def _of_processes(row: Row) -> Estimate:
    _, variance, freedom = mean_of(np.asarray(row["process_means_ns"], dtype=np.float64))
    return row["latency_mean_ns"], variance, freedom


def _of_samples(row: Row) -> Estimate:
    samples = row["samples_ns"] or []
    reach = half_width(samples)
    freedom = float(min(BLOCKS, len(samples)) - 1)
    if reach is None:
        return row["latency_mean_ns"], float("nan"), freedom
    return row["latency_mean_ns"], (reach / student_quantile(CONFIDENCE, freedom)) ** 2, freedom


def _changes(base: Row, new: Row) -> dict[str, Change]:
    low, high = ratio_interval(*estimates_of(base, new)) or (None, None)
    source = OF_PROCESSES if _are_of_processes(base, new) else OF_SAMPLES
    basis = source if low is not None else None
    found = {"time": Change("time", base["latency_mean_ns"], new["latency_mean_ns"], low, high, basis)}
    for measure, column in COUNTS.items():
        found[measure] = Change(measure, base[column], new[column], unlike=_unlike(measure, base, new))
    return found


def _unlike(measure: str, base: Row, new: Row) -> str:
    """The reason why two counts cannot be compared; "" if they can."""
    if measure in ("flops", "bytes"):
        why = str(base["expected_why_not"] or new["expected_why_not"] or "")
        return why or (unlike_basis(base, new) if measure == "flops" else "")
    if measure == "memory" and None not in (bases := (base["memory_basis"], new["memory_basis"])):
        return "" if bases[0] == bases[1] else f"peak memory was counted by {bases[0]} and by {bases[1]}"
    if measure == "allocated" and base["device"] != new["device"]:
        return f"allocated memory is of different devices: {base['device']} and {new['device']}"
    return ""


def _differences(points: Iterable[ComparedPoint]) -> list[Difference]:
    """The conditions in which compared points differ; numbers of threads are not refused if machines are compared."""
    found: dict[Difference, None] = {}
    for point in points:
        if point.base is None or point.new is None or not point.is_compared:
            continue
        for name in (TORCH, THREADS):
            before, after = value_of(point.base, name), value_of(point.new, name)
            if name in point.across or None in (before, after) or before == after:
                continue
            refused = not (name == THREADS and MACHINE in point.across)
            found[Difference(_CONDITIONS[name], str(before), str(after), refused)] = None
    return list(found)


def _other_machines(points: Iterable[ComparedPoint], gated: bool) -> list[Difference]:
    """Differences of machines that the user did not request, if other dimensions differ too or the result is gated."""
    found: dict[Difference, None] = {}
    for point in points:
        if MACHINE in point.across and point.base and point.new:
            names = in_words(point.base, MACHINE), in_words(point.new, MACHINE)
            found[Difference(MACHINE, *names, refused=gated or len(point.across) > 1)] = None
    return [difference for difference in found if difference.refused]


def _notes(points: Sequence[ComparedPoint], repeated: int) -> list[str]:
    notes = []
    if repeated:
        notes.append(f"{counted(repeated, 'point was', 'points were')} measured again: the last row counts")
    compared = [point for point in points if point.is_compared]
    within = sum(point.changes["time"].basis == OF_SAMPLES for point in compared)
    if within:
        some = f" of {within} of {counted(len(compared), 'point', 'points')}" if within < len(compared) else ""
        notes.append(f"intervals{some} {WITHIN_A_PROCESS}")
    silent = sum(not point.changes["time"].noise_is_known for point in compared)
    if silent:
        notes.append(f"{silent} of {counted(len(compared), 'point has', 'points have')} no interval: too few samples")
    unlike = {change.unlike for point in compared for change in point.changes.values() if change.unlike}
    notes += [f"not compared: {reason}" for reason in sorted(unlike)]
    notes += notes_on_basis([point.row for point in compared])
    clocks = [point for point in compared if point.changes["time"].clock != 1]
    if clocks:
        notes.append(
            f"the GPU's clock is apart by more than {100 * CLOCKS_ALIKE:g} % in "
            f"{counted(len(clocks), 'point', 'points')}: times scale with it"
        )
    return notes
