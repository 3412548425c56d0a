"""The kernel-level roofline: points, ceilings and ridge points. It is drawn by `ncu_tools.report.plot.roofline_plot`.

x is arithmetic intensity, FLOPs per DRAM byte; y is achieved FLOP/s over the kernel's own time. A slanted ceiling is a
bandwidth, a flat one a peak, and they meet at the ridge point: peak / bandwidth. Bytes are traffic between L2 and
device memory, counted with the caches in the state the profiler left them (docs/numbers.md). Source of the model:
Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import PurePath

import numpy as np
import pyarrow as pa
from ncu_launch.notes import Note, NoteKind
from ncu_parsers.schema import tables
from ncu_parsers.schema.operator_columns import BY_OPERATOR, TRACE

from ncu_tools.ceilings import device_attributes
from ncu_tools.ceilings.ceilings import (
    BOARD_LIMIT,
    MEASURED_QUICKLY,
    Ceiling,
    Ceilings,
    ceilings_of,
    kind_of,
    unit_title,
)
from ncu_tools.ceilings.levels import definition_titles
from ncu_tools.ceilings.machine_files import DRAM, TWO_THIRDS, Machine
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.kernel_row import KERNEL, Hotspot
from ncu_tools.kernels.matching.kernel_pairs import pair_kernels
from ncu_tools.kernels.matching.launch_signatures import LaunchSignature, signatures_in, signatures_of
from ncu_tools.kernels.names.categories import CATEGORIES
from ncu_tools.kernels.operator_times import time_title
from ncu_tools.numbers.number_format import percent, plural, scaled
from ncu_tools.roofline.density import DENSE_FROM, DenseLaunches, density_of
from ncu_tools.roofline.level_notes import on_missing_ceilings, on_missing_points
from ncu_tools.roofline.point_sums import Intensities, Points, where_known
from ncu_tools.roofline.scene import KERNELS, LAUNCHES, Density, LevelPlace, RidgePoint, SceneRun
from ncu_tools.roofline.views import Look as Look
from ncu_tools.roofline.views import is_of_several, missing_names_note, noun_of, seen_as, with_points
from ncu_tools.runs.run import Run

DRAM_BYTE = "DRAM byte"
LEAST_BYTE = "byte of least traffic by shapes"
OPERATOR_BYTE = "byte of inputs, weights and outputs"
BYTES_IN_WORDS = {
    DRAM_BYTE: "between L2 and device memory",
    OPERATOR_BYTE: "of inputs, weights and outputs",
    LEAST_BYTE: "least traffic by shapes: inputs and outputs of operators once",
}
MOST_NAMED = 6
AN_OPERATOR = re.compile(r"\w+::\w+")
"""Operators and categories are named; kernels, whose names may fill a page, are counted."""


@dataclass(frozen=True)
class Point:
    """One kernel of one run, or another unit of the view.

    `places` are its arithmetic intensities at the requested memory levels, where known.
    """

    run: str
    hotspot: Hotspot
    places: tuple[LevelPlace, ...] = ()

    @property
    def place(self) -> tuple[float, float]:
        """Arithmetic intensity by DRAM bytes, and FLOP/s; 0 if unknown."""
        return self.hotspot.arithmetic_intensity or 0.0, self.hotspot.flops_per_s or 0.0


@dataclass
class Roofline:
    """Everything that a roofline plot shows, and in `undrawn` and `others` the ceilings that only its tables show.

    Those in `undrawn` bound a point, by a unit that did less than most of its FLOPs or that counts integers.
    `known` are all ceilings, including those of unused units; `sparse_units` are units with sparse operations.
    `followed` maps (run, kernel) of a later run to the kernel's name in the previous run. `clocks` are the titles of
    the runs' times. `noun` is the name of a point, `group` the grouping of kernels. `sampled_bytes` are bytes of DRAM
    per second by kernel, as samples of the whole GPU show them.
    """

    points: list[Point]
    ceilings: list[Ceiling] = field(default_factory=list)
    others: list[Ceiling] = field(default_factory=list)
    undrawn: list[Ceiling] = field(default_factory=list)
    ridges: list[RidgePoint] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bytes_title: str = DRAM_BYTE
    view: str = KERNELS
    noun: str = KERNEL
    group: str = "name"
    levels: tuple[str, ...] = (DRAM,)
    bytes_by_level: dict[str, str] = field(default_factory=dict)
    runs: list[SceneRun] = field(default_factory=list)
    known: list[Ceiling] = field(default_factory=list)
    sparse_units: set[str] = field(default_factory=set)
    density: Density | None = None
    followed: dict[tuple[str, str], str] = field(default_factory=dict)
    sampled_bytes: dict[str, float] = field(default_factory=dict)
    clocks: set[str] = field(default_factory=set)

    @property
    def time_title(self) -> str:
        """The title of the points' times."""
        return time_title(self.clocks)

    @property
    def drawable(self) -> list[Point]:
        """The points with a position on logarithmic axes."""
        return [point for point in self.points if min(point.place) > 0 or (point.places and point.place[1] > 0)]


def roofline(
    runs: dict[str, pa.Table],
    machine: Machine | None = None,
    *,
    machines: Mapping[str, Machine | None] | None = None,
    look: Look | None = None,
    summed: Mapping[str, Points] | None = None,
) -> Roofline:
    """The roofline of runs by name, with a point per kernel, or per unit of the view `look`.

    `machine` gives the ceilings that reports lack, and `machines` those of single runs. `summed` are already known
    points of runs; the tables of those runs are used for ceilings only.
    """
    look, bytes_title = look or Look(), _bytes_title(runs)
    result = Roofline(
        [],
        bytes_title=bytes_title,
        view=look.view,
        noun=noun_of(look),
        group=look.kernels_by,
        levels=look.levels,
        bytes_by_level=definition_titles(look.levels, look.definition, BYTES_IN_WORDS.get(bytes_title, bytes_title)),
    )
    dense = look.view == LAUNCHES and sum(map(len, runs.values())) >= DENSE_FROM
    points: dict[str, Points] = {}
    capability_of: dict[str, str | None] = {}
    for name, table in runs.items():
        ceilings = ceilings_of(table, (machines or {}).get(name, machine))
        _add_ceilings(result, ceilings)
        capability_of |= ceilings.capability_of
        result.sparse_units |= {
            unit for unit, share in device_attributes.sparse_shares(table).items() if np.nansum(share) > 0
        }
        points[name] = (summed or {}).get(name) or _points_in(table, ceilings, look, name, dense=dense)
        _add_points(result, name, points[name], look)
        result.clocks.add(points[name].spots.time_title)
        result.runs.append(_run(name, table, points[name].spots.rows))
    units, bounds = ({getattr(point.hotspot, of) for point in result.points} for of in ("unit", "bound"))
    bounding = [one for one in result.ceilings if unit_title(one.unit) in bounds]
    result.ceilings, result.others = worth_drawing(result.ceilings, units), worth_drawing(result.others, units)
    result.others = [one for one in result.others if not any(_are_alike(one, other) for other in result.ceilings)]
    result.undrawn = [one for one in bounding if one not in result.ceilings]
    drawn = {(one.device, one.unit, one.value) for one in result.ceilings}
    result.ridges = [one for one in result.ridges if (one.device, one.unit, one.value) in drawn]
    if dense:
        _add_density(result, [one.launches for one in points.values() if one.launches is not None], look)
    if look.follow:
        result.followed = _followed({name: one.signatures for name, one in points.items()}, look)
    _leave_out_empty_levels(result, look, list(runs.values()))
    if look.levels != (DRAM,) and result.bytes_title not in (LEAST_BYTE, OPERATOR_BYTE):
        result.notes += on_missing_ceilings(result.levels, result.known, capability_of, list(runs.values()))
    _note_what_is_missing(result, plural(result.noun) if result.view == KERNELS else result.view)
    return result


def _leave_out_empty_levels(result: Roofline, look: Look, runs: Sequence[pa.Table]) -> None:
    """Remove levels at which no point has bytes, with a note; for operators no profiler counts the levels."""
    there = {place.level for point in result.points for place in point.places}
    for level in [level for level in result.levels if level not in there | {DRAM}]:
        if result.bytes_title not in (LEAST_BYTE, OPERATOR_BYTE):
            result.notes.append(on_missing_points(level, look.definition, runs))
        result.bytes_by_level.pop(level)
    result.levels = tuple(level for level in result.levels if level in result.bytes_by_level)
    if not result.levels:
        result.levels, result.bytes_by_level = (
            (DRAM,),
            {DRAM: BYTES_IN_WORDS.get(result.bytes_title, result.bytes_title)},
        )
        result.notes.append("no requested memory level has bytes: points are placed by DRAM bytes")


def _add_ceilings(result: Roofline, ceilings: Ceilings) -> None:
    """Add the ceilings of a run that are not known yet, and the ridge points of its peaks with its own bandwidth."""
    held = {(one.device, one.unit, one.value) for one in result.ridges}
    result.ridges += [one for one in ridges(ceilings.drawn) if (one.device, one.unit, one.value) not in held]
    for known, new in ((result.ceilings, ceilings.drawn), (result.others, ceilings.others)):
        known += [one for one in new if not any(_are_alike(one, other) for other in known)]
    found = (*ceilings.drawn, *ceilings.others)
    result.known += [ceiling for ceiling in found if ceiling not in result.known]


def _are_alike(one: Ceiling, other: Ceiling) -> bool:
    """True for ceilings of one device and kind that are drawn alike, such as at the clocks of two reports."""
    same = replace(one, value=other.value, source=other.source) == other
    return same and abs(one.value - other.value) <= ALIKE * other.value


def _points_in(table: pa.Table, ceilings: Ceilings, look: Look, run: str, *, dense: bool) -> Points:
    """The points of a whole table of launches; kernels if the launches are drawn as a density."""
    if dense:
        points = _points_in(table, ceilings, replace(look, view=KERNELS, group="name"), run, dense=False)
        points.launches = DenseLaunches(Run.held(run, table), look.levels, look.definition)
        return points
    seen = seen_as(table, look, run)
    if is_of_several(look):  # kernels need their own names, which `seen` no longer has
        launches, rows = with_points(table, look, run)
        spots = hotspots(launches, ceilings, group=look.kernels_by, rows=rows)
        places = where_known(_places(seen, look), spots.rows)
    else:
        spots, places = hotspots(seen, ceilings), _places(seen, look)
    return Points(spots, places, signatures_in(table)[1] if look.follow else [])


def _add_points(result: Roofline, name: str, points: Points, look: Look) -> None:
    rows = points.spots.rows
    result.points += [Point(name, row, points.places.get(row.key, ())) for row in rows]
    meaningless = missing_names_note({row.kernel for row in rows}, look.view)
    result.notes += [
        note for note in (*points.spots.notes, *([meaningless] if meaningless else [])) if note not in result.notes
    ]


def _places(seen: pa.Table, look: Look) -> dict[str, tuple[LevelPlace, ...]]:
    intensities = Intensities()
    intensities.add(seen, look)
    return intensities.places()


def _run(name: str, table: pa.Table, rows: list[Hotspot]) -> SceneRun:
    known = [row.time_total_ns for row in rows if row.launches]
    time = sum(value for value in known if value is not None) if known and None not in known else None
    devices = {tables.codes(table, "device_name")[1][code] for code in np.unique(tables.codes(table, "device_name")[0])}
    return SceneRun(name, PurePath(name).name or name, time, next(iter(devices)) if len(devices) == 1 else None)


def _add_density(result: Roofline, runs: Sequence[DenseLaunches], look: Look) -> None:
    """Add the launches as a density by the bytes of one memory level, the first of the requested ones that has any."""
    result.notes.append(f"from {DENSE_FROM:,} launches on they are drawn as a density, and numbers stand for kernels")
    for level in look.levels:
        result.density, missing = density_of(runs, level)
        if result.density is not None:
            break
    result.points = [
        replace(point, places=tuple(place for place in point.places if place.level == level)) for point in result.points
    ]
    if len(look.levels) > 1:
        result.notes.append(
            f"a density is drawn by the bytes of one memory level, here {unit_title(level)}; name another one alone"
        )
    result.levels, result.bytes_by_level = (level,), {level: result.bytes_by_level[level]}
    if missing:
        result.notes.append(f"{missing:,} launches have no place on the plot: FLOPs, bytes or time zero or unknown")


def _followed(of_runs: dict[str, list[LaunchSignature]], look: Look) -> dict[tuple[str, str], str]:
    """(run, kernel) -> the kernel's name in the previous run, if different."""
    if look.view != KERNELS or look.group != "name":
        return {}
    signatures = {name: signatures_of(of_run) for name, of_run in of_runs.items()}
    return {
        (new, pair.kernel): pair.was
        for base, new in pairwise(signatures)
        for pair in pair_kernels(signatures[base], signatures[new]).pairs
        if pair.was is not None
    }


def _bytes_title(runs: dict[str, pa.Table]) -> str:
    """The title of the bytes of the x axis: bytes of operators are not DRAM bytes."""
    sources: set[str | None] = set()
    for table in runs.values():
        codes, texts = tables.codes(table, "source")
        sources |= {texts[code] for code in np.unique(codes)}
    if TRACE in sources:
        return LEAST_BYTE if sources == {TRACE} else f"{DRAM_BYTE}; of traces, per {LEAST_BYTE}"
    if sources.isdisjoint(BY_OPERATOR):
        return DRAM_BYTE
    return OPERATOR_BYTE if sources <= BY_OPERATOR else f"{DRAM_BYTE}; of operators, per {OPERATOR_BYTE}"


def of_machine(machine: Machine) -> Roofline:
    """The bare roofline of a machine: every ceiling, no points."""
    return of_machines([machine])


def of_machines(machines: Sequence[Machine]) -> Roofline:
    """The bare rooflines of several machines in one."""
    result = Roofline([])
    add_machines(result, machines)
    bounding = [ceiling for machine in machines for ceiling in ceilings_of_machine(machine)[0]]
    result.ceilings = [ceiling for ceiling in result.known if ceiling in bounding]
    result.others = [ceiling for ceiling in result.known if ceiling not in bounding]
    result.ridges = ridges(result.ceilings)
    return result


def add_machines(result: Roofline, machines: Sequence[Machine]) -> None:
    """Add the ceilings of machines to a roofline; they bound none of its kernels."""
    for machine in machines:
        dense, others = ceilings_of_machine(machine)
        result.known += [ceiling for ceiling in (*dense, *others) if ceiling not in result.known]


def ceilings_of_machine(machine: Machine) -> tuple[list[Ceiling], list[Ceiling]]:
    """The ceilings of a machine file that bound kernels, and the others: sparse ones, and of slower instructions."""
    kind = kind_of(machine)
    dense, others = [], []
    for rate in (*machine.bandwidths, *machine.peaks):
        fastest, slower = rate.instructions
        dense.append(Ceiling(machine.name, rate.unit, rate.value, rate.source, kind, instruction=fastest))
        if rate.mma_sync is not None:
            others.append(Ceiling(machine.name, rate.unit, rate.mma_sync, TWO_THIRDS, kind, instruction=slower))
        if rate.sparse is not None:
            others.append(Ceiling(machine.name, rate.unit, rate.sparse, rate.source, kind, sparse=True))
    return dense, others


ALWAYS_DRAWN = ("dram", "fp32")
ALIKE = 0.01
"""Relative difference up to which two ceilings count as one."""


def worth_drawing(ceilings: list[Ceiling], units: set[str | None]) -> list[Ceiling]:
    """The ceilings that matter for these points: DRAM, FP32 and every unit that did most of a kernel's work.

    L2 and L1 ceilings bound other bytes than those of the x axis and are left out.
    """
    keep = {*ALWAYS_DRAWN, *units}
    return [ceiling for ceiling in ceilings if ceiling.unit in keep and not ceiling.unit.startswith("tensor_int")]


def ridges(ceilings: list[Ceiling]) -> list[RidgePoint]:
    """The ridge point of every peak with its device's DRAM bandwidth."""
    bandwidth = {ceiling.device: ceiling.value for ceiling in ceilings if ceiling.unit == "dram"}
    return [
        RidgePoint(ceiling.device, ceiling.unit, ceiling.value / bandwidth[ceiling.device], ceiling.value)
        for ceiling in ceilings
        if not ceiling.is_bandwidth and ceiling.device in bandwidth
    ]


def _note_what_is_missing(result: Roofline, what: str) -> None:
    """Add notes on points without a place, which `what` names, and on missing ceilings."""
    drawn = {id(point) for point in result.drawable}
    undrawn = [] if result.density else [point for point in result.points if id(point) not in drawn]
    if undrawn:
        every = [point.hotspot for point in result.points]
        result.notes.append(on_undrawn([point.hotspot for point in undrawn], every, what))
    if not result.ceilings:
        alone = "the plot shows the points alone" if result.density or result.drawable else "the plot is empty"
        unknown = f"no ceiling is known, so {alone}; name a machine with --machine NAME"
        result.notes.append(Note(unknown, NoteKind.NOT_KNOWN, "ceilings"))


def others_beside(
    ceiling: Ceiling, others: Sequence[Ceiling], drawn: Sequence[Ceiling] = ()
) -> list[tuple[str, Ceiling]]:
    """The undrawn ceilings of the same unit and device, each with its difference from `ceiling` in words.

    Ceilings from the source of another `drawn` one, such as a run at another clock, are listed there.
    """
    place = (ceiling.device, ceiling.unit)
    taken = {one.source for one in drawn if (one.device, one.unit) == place} - {ceiling.source}
    beside = [other for other in others if (other.device, other.unit) == place and other.source not in taken]
    return [(_difference(other, ceiling), other) for other in beside]


def _difference(other: Ceiling, ceiling: Ceiling) -> str:
    words = (other.instruction, "sparse" * other.sparse, other.kind if other.kind != ceiling.kind else "")
    return " ".join(word for word in words if word)


def ceiling_label(ceiling: Ceiling, devices: int, units: str = "") -> str:
    """The label of a ceiling of `units` (by default its own), with the device if there are several."""
    kind = ceiling.kind if ceiling.kind in (BOARD_LIMIT, MEASURED_QUICKLY) else ""
    apart = (ceiling.instruction, "sparse" * ceiling.sparse, kind)
    words = " ".join(word for word in (units or unit_title(ceiling.unit), *apart) if word)
    title = f"{words} {scaled(ceiling.value, 'B/s' if ceiling.is_bandwidth else ceiling.value_unit)}"
    return f"{ceiling.device}: {title}" if devices > 1 else title


def on_undrawn(undrawn: Sequence[Hotspot], every: Sequence[Hotspot], view: str) -> str:
    """The note on the points `undrawn` of `every` point. Their share of the time is left out if unknown.

    Points that compute nothing are separated from points with unknown FLOPs, each with its share if there are both.
    """
    spots = sorted(undrawn, key=lambda spot: -(spot.time_total_ns or 0.0))
    times = [spot.time_total_ns for spot in every]
    known = [time for time in times if time is not None]
    whole = sum(known) if len(known) == len(times) else 0.0
    empty = [spot for spot in spots if spot.flops == 0]
    unknown = [spot for spot in spots if spot.flops != 0]
    reasons = [("no FLOPs", empty), ("FLOPs, bytes or time unknown", unknown)]
    both = whole if empty and unknown else 0.0
    words = [f"{reason}{_share(found, both)}{_named_points(found, spots)}" for reason, found in reasons if found]
    share = _share(spots, whole, " of the time")
    have = "has" if len(spots) == 1 else "have"
    return f"{len(spots)} of {len(every)} {view} {have} no place on the plot{share}; {'; '.join(words)}"


def _share(spots: Sequence[Hotspot], whole: float, words: str = "") -> str:
    """The share of points in the whole time in ns, in brackets; "" if the whole is 0 or unknown."""
    return f" ({percent(sum(spot.time_total_ns or 0.0 for spot in spots) / whole)}{words})" if whole else ""


def _is_short(name: str) -> bool:
    return name in CATEGORIES or AN_OPERATOR.fullmatch(name) is not None


def _named_points(spots: Sequence[Hotspot], every: Sequence[Hotspot]) -> str:
    """The first names of some of the points without a place, or else how many they are, if others lack it too."""
    names = list(dict.fromkeys(spot.kernel for spot in spots if _is_short(spot.kernel)))[:MOST_NAMED]
    if not names:
        return f": {len(spots)}" if len(spots) < len(every) else ""
    rest = len(spots) - len(names)
    return f": {', '.join([*names, *([f'{rest} more'] if rest > 0 else [])])}"
