"""The content of the HTML report as plain values for JSON, independent of HTML.

Numbers have eight digits, which keeps the page small; the exact ones are in launches.parquet and `--format json`.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from ncu_launch.files.manifest import Manifest
from ncu_launch.notes import shown_notes
from ncu_launch.version import VERSION
from ncu_parsers.schema import tables

from ncu_tools.advice.advice_on_rows import lever_columns
from ncu_tools.ceilings.ceilings import BOARD_LIMIT, MEASURED_QUICKLY, Ceiling, device_title, unit_title
from ncu_tools.ceilings.launch_devices import devices_of
from ncu_tools.ceilings.levels import needed_metrics
from ncu_tools.ceilings.machine_files import DRAM, Machine
from ncu_tools.ceilings.work_by_unit import UNIT_COLUMNS
from ncu_tools.kernels.diagnosis.sums import diagnosis_columns
from ncu_tools.kernels.kernel_row import GROUPS, Hotspot, names_shown, row_key, run_total, used_units
from ncu_tools.kernels.names.kernel_ids import kernel_id
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.kernels.operator_times import time_title
from ncu_tools.kernels.source.inside_of_run import Inside, may_hold_instructions
from ncu_tools.kernels.source.source_text import SourceText
from ncu_tools.kernels.view.kernel_view import has_counters, is_viewed
from ncu_tools.kernels.view.launch_configuration import COLUMNS as CONFIGURATION
from ncu_tools.model.layers.layers import layers
from ncu_tools.numbers.number_format import more_kernels, percent, plural, scaled, shortened
from ncu_tools.report.first_sentences import BOUND_FROM, first_kernel
from ncu_tools.report.html.expected_content import PAGE_COLUMNS, expected_rows
from ncu_tools.report.html.fine_lanes import FineLanes
from ncu_tools.report.html.html_page import FINE_PARTS, PAGE_LETTERS, embedded, room_beside
from ncu_tools.report.html.page_columns import (
    CEILING_COLUMNS,
    KERNEL_COLUMNS,
    KERNEL_DETAILS,
    LAYER_COLUMNS,
    WIDEST_NAME,
    docs_of_columns,
    kernel_columns,
    meanings_in,
    meanings_of_rows,
    summary_columns,
    table_of,
    timed,
)
from ncu_tools.report.html.pairs_content import PAIRS_LETTERS, pairs_content
from ncu_tools.report.html.parts_content import PARTS_LETTERS, RunKernels, parts_content
from ncu_tools.report.table import printable
from ncu_tools.roofline.mark_area import PIXELS_PER_POINT, scale_of
from ncu_tools.roofline.roofline import Look, Point, Roofline, roofline
from ncu_tools.roofline.scene import LEVELS, short_names
from ncu_tools.roofline.scene_builder import MOST_ARROWS, longest_time, weight_of
from ncu_tools.runs.partition_sums import EXTREMES, decides_ceilings

if TYPE_CHECKING:
    from ncu_tools.timeline.timeline import Timeline

KERNELS_SHOWN, LETTERS_SHOWN, LETTERS_OF_ROWS = 2_000, 800_000, 1_400_000
"""Most kernels of all runs on a page, and most characters of their names and rows, to keep it small and fast."""
FINE_LETTERS = 600_000
"""Most characters of the parts of lanes that a page decodes when the user zooms in."""


NO_BOUND, FAR = "not known", "no roof (below 60 % of each)"
ALL_LEVELS = "all"

OF_PAGES = frozenset({*EXTREMES, "start_ns", "operation", "host", "dtype", "shapes"})
"""Columns beyond the contract on when, where and with which data types something ran."""
MOST_NAMED = 3
"""A page with at most this many runs is titled by their names."""


def is_reported(name: str) -> bool:
    """True if a page can depend on this column of launches."""
    known = name in tables.COLUMN_NAMES or decides_ceilings(name)
    of_page = name in OF_PAGES or name in CONFIGURATION or may_hold_instructions(name) or is_viewed(name)
    return known or of_page or name in needed_metrics() or name in diagnosis_columns() or name in lever_columns()


@dataclass
class ReportedRun:
    """A run of the report. `expected` are the operators of one iteration; `unexpected` the reason if there are none.

    `inside` are its instructions and counters over time, `source` the text of its source lines. `has_launches` is False
    for a run of source pages alone, in which no launch can have counters. `timeline` is the time analysis of a
    recording.
    """

    name: str
    table: pa.Table
    notes: list[str] = field(default_factory=list)
    manifest: Manifest | None = None
    expected: pa.Table | None = None
    unexpected: str = ""
    inside: Inside = field(default_factory=Inside)
    source: SourceText = field(default_factory=SourceText)
    has_launches: bool = True
    timeline: Timeline | None = None


def content(
    runs: Sequence[ReportedRun],
    machine: Machine | None = None,
    *,
    group: str = "name",
    top: int | None = None,
    title: str = "",
) -> dict[str, Any]:
    """The content of the page for runs with different names: the `top` hottest kernels of each, or as many as fit.

    `machine` gives ceilings that the runs lack; `group` is the grouping of kernels
    (`ncu_tools.kernels.kernel_row.GROUPS`).
    """
    levels = LEVELS if any(has_counters(run.table) for run in runs) else (DRAM,)  # only ncu counts bytes of the others
    look = Look(group=group, levels=levels, follow=len(runs) > 1)
    result = roofline({run.name: run.table for run in runs}, machine, look=look)
    labels = _labels([run.name for run in runs])
    points = {run.name: [point for point in result.points if point.run == run.name] for run in runs}
    kernels = {name: [point.hotspot for point in found] for name, found in points.items()}
    notes = [note for run in runs for note in run.notes] + _notes_of_launches(runs, machine, look, result)
    shown = {name: _hottest(found, top, len(runs)) for name, found in points.items()}
    known = {
        labels[run.name]: RunKernels(
            run.table, [point.hotspot for point in shown[run.name]], group, run.inside.table_of_instructions
        )
        for run in runs
    }
    room = (LETTERS_OF_ROWS - PAIRS_LETTERS * (len(runs) > 1)) / len(runs) if top is None else math.inf
    of_kernels = names_shown(_names_of_kernels(runs), width=WIDEST_NAME)
    titles = {row.kernel for rows in kernels.values() for row in rows}
    names = of_kernels if group == "name" else names_shown(titles, group, WIDEST_NAME)
    made = {name: _kernels(found, labels[name], known[labels[name]], names, room) for name, found in shown.items()}
    notes += _notes_on_the_rest(kernels, made, labels, GROUPS[group])
    rows = sorted((row for of_run in made.values() for row in of_run), key=lambda row: -(row["time_total_ns"] or 0.0))
    found = {
        "title": title or title_of(list(labels.values())),
        "made_by": f"ncu-bench {VERSION}",
        "docs": docs_of_columns(),
        "levels": _levels(result),
        "runs": [labels[run.name] for run in runs],
        "units": {unit: unit_title(unit) for unit in (*UNIT_COLUMNS, *LEVELS)},
        "summary": table_of(
            summary_columns(group, result.time_title),
            [_summary(run, labels[run.name], kernels[run.name]) for run in runs],
        ),
        "first": [_first_lever(known[labels[run.name]], kernels[run.name], rows, labels[run.name]) for run in runs],
        "paths": [shlex.quote(printable(run.name)) for run in runs],
        "ids": [kernel_id(row["kernel"]) for row in rows] if group == "name" else [],
        "bounds": [_time_by_bound(kernels[run.name]) for run in runs],
        "noun": GROUPS[group],
        "nouns": plural(GROUPS[group]),
        "kernels": table_of(kernel_columns(group, result.time_title), rows),
        "areas": _areas(rows, result),
        "time_title": result.time_title,
        "arrows": _arrows(rows, result, labels),
        "arrows_drawn": MOST_ARROWS,
        "in_table": _in_table(rows, several_runs=len(runs) > 1),
        "devices": [devices_with_ceilings(run.table, machine) for run in runs],
        "ceilings": [_ceiling(ceiling, drawn=True) for ceiling in (*result.ceilings, *_of_nearer_levels(result))]
        + [_ceiling(ceiling, drawn=False) for ceiling in result.others],
        "ceiling_table": table_of(CEILING_COLUMNS, _ceiling_rows(result)),
        "layers": [_layers(run) for run in runs],
        "expected": [_expected(run) for run in runs],
        "manifests": [_facts(run) for run in runs],
        "notes": shown_notes(notes),
    }
    plain: dict[str, Any] = _plain(found)
    if len(runs) > 1:
        of_runs = {run.name: (run.table, run.manifest) for run in runs}
        plain["groups"] = _plain(groups_of_runs(of_runs))
        room = room_beside(plain, PAIRS_LETTERS)
        plain["pairs"] = pairs_content(of_runs, group, result.time_title, of_kernels, room)
    fine = FineLanes()
    plain |= _plain(_timelines(runs, of_kernels, plain, fine))
    if parts := parts_content(known, rows, room_beside(plain, PARTS_LETTERS)):
        plain["parts"] = _plain(parts)
    plain |= _plain(_inside(runs, labels, rows, group, plain))
    plain["meanings"] = meanings_in(plain) | meanings_of_rows(plain.get("parts"))
    if "timeline" in plain:
        plain[FINE_PARTS] = fine.add_to(
            plain["timeline"], max(min(FINE_LETTERS, PAGE_LETTERS - len(embedded(plain))), 0)
        )
    return plain


def _labels(names: Sequence[str]) -> dict[str, str]:
    """Name of each run -> its short name."""
    return dict(zip(names, short_names(names), strict=True))


def _plain(value: Any) -> Any:
    """The value for JSON: numbers of eight digits, null for non-finite ones, texts without control characters."""
    if isinstance(value, float):
        return shortened(value)
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(str(key)): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


# -------------------------------------------------------------------------------------------------------- summary


def _summary(run: ReportedRun, label: str, kernels: list[Hotspot]) -> dict[str, Any]:
    return {
        **asdict(run_total(kernels)),
        "run": label,
        "kernels": len(kernels),
        "source": distinct(run.table, "source"),
        "device": distinct(run.table, "device_name"),
    }


def _first_lever(
    known: RunKernels, kernels: Sequence[Hotspot], rows: Sequence[Mapping[str, Any]], run: str
) -> dict[str, Any] | None:
    """What to do first in a run, and the row of the kernel concerned; without levers, the kernel with most time."""
    first = known.first
    if first is None:
        said = first_kernel(kernels)
        return None if said is None else {"kernel": None, "text": said}
    key, text, most_ns = first
    keys = [row_key(row["kernel"], row["device"]) if row["run"] == run else None for row in rows]
    place = keys.index(key) if key in keys else None
    name = next(one.kernel for one in kernels if one.key == key)
    return {"kernel": place, "text": text, "name": readable_name(name), "most_ns": most_ns}


def _time_by_bound(kernels: list[Hotspot]) -> list[dict[str, Any]]:
    """The share of time by bound, largest first and unknown last; empty if no time is known.

    A roof of which a kernel reaches less than `BOUND_FROM` does not bound it.
    """
    units = {unit_title(unit): unit for unit in (*UNIT_COLUMNS, "dram")} | {"SM": "sm", "memory": "memory"}
    shares: dict[str, float] = {}
    for kernel in kernels:
        is_far = kernel.bound_fraction is not None and kernel.bound_fraction < BOUND_FROM
        bound = FAR if is_far else kernel.bound or NO_BOUND
        shares[bound] = shares.get(bound, 0.0) + (kernel.time_share or 0.0)
    ordered = sorted(shares, key=lambda bound: (bound == NO_BOUND, -shares[bound]))
    return [
        {"title": bound, "unit": units.get(bound), "share": shares[bound]} for bound in ordered if shares[bound] > 0
    ]


def _hottest(points: list[Point], top: int | None, runs: int) -> list[Point]:
    """The `top` hottest kernels of a run, or as many as fit in its part of a small page."""
    if top is not None:
        return points[:top]
    room = LETTERS_SHOWN // runs
    for place, point in enumerate(points[: KERNELS_SHOWN // runs]):
        room -= len(point.hotspot.kernel)
        if room < 0:
            return points[:place]
    return points[: KERNELS_SHOWN // runs]


def _notes_of_launches(runs: Sequence[ReportedRun], machine: Machine | None, look: Look, result: Roofline) -> list[str]:
    """The notes of the roofline of runs with launches: ncu options cannot add what other runs lack there."""
    with_launches = {run.name: run.table for run in runs if run.has_launches}
    if len(with_launches) == len(runs):
        return result.notes
    return roofline(with_launches, machine, look=look).notes if with_launches else []


def _notes_on_the_rest(
    kernels: dict[str, list[Hotspot]], shown: dict[str, list[dict[str, Any]]], labels: dict[str, str], noun: str
) -> list[str]:
    notes = []
    for name, rows in kernels.items():
        rest = rows[len(shown[name]) :]
        if rest:
            notes.append(f"{labels[name]}: {more_kernels([row.time_share for row in rest], noun)}; --top shows more")
    return notes


# -------------------------------------------------------------------------------------------------------- kernels


def _names_of_kernels(runs: Sequence[ReportedRun]) -> set[str]:
    """Every name of a kernel in the launches and timelines of the runs."""
    of_launches = (name or "?" for run in runs for name in tables.codes(run.table, "kernel_name")[1])
    timelines = [run.timeline for run in runs if run.timeline is not None]
    return {*of_launches, *(name for one in timelines for name in one.activity.operations.names)}


def _kernels(
    points: list[Point], run: str, known: RunKernels, names: Mapping[str, str], room: float
) -> list[dict[str, Any]]:
    """A row for each of a run's kernels, called by its `names`, until their JSON exceeds `room` characters."""
    rows = []
    for point in points:
        kernel = point.hotspot
        nearer = {f"intensity_{place.level}": place.intensity for place in point.places if place.level != DRAM}
        short = {"kernel_shown": names[kernel.kernel] if names[kernel.kernel] != kernel.kernel else None}
        row = {**asdict(kernel), **short, "run": run, "work": _work(kernel), **known.row(kernel.key), **nearer}
        room -= len(embedded(_plain([row.get(column.name) for column in (*KERNEL_COLUMNS, *KERNEL_DETAILS)])))
        if room < 0:
            break
        rows.append(row)
    return rows


def _inside(
    runs: Sequence[ReportedRun], labels: dict[str, str], rows: list[dict[str, Any]], group: str, rest: dict[str, Any]
) -> dict[str, Any]:
    """The inside of the kernels, as "inside"; {} if nothing is known, so that the page has no such section.

    It gets the room that the `rest` of the page leaves.
    """
    known = [run for run in runs if run.inside.instructions is not None or run.inside.series]
    if not known:
        return {}
    from ncu_tools.report.html.inside_content import INSIDE_LETTERS, inside_content

    insides = [(labels[run.name], run.table, run.inside, run.source) for run in known]
    room = room_beside(rest, INSIDE_LETTERS)
    found = inside_content(insides, rows, group, room)
    return {"inside": found.as_values()} if found.kernels else {}


def _timelines(
    runs: Sequence[ReportedRun], names: Mapping[str, str], rest: dict[str, Any], fine: FineLanes
) -> dict[str, Any]:
    """The timelines of runs by run index, as "timeline", and "levers" on their steps; {} if no run has one.

    Kernels are called by `names`.
    """
    known = {place: run.timeline for place, run in enumerate(runs) if run.timeline is not None}
    if not known:
        return {}
    from ncu_tools.report.html.levers_content import advice_on, levers_content, pieces_of_path
    from ncu_tools.report.html.timeline_content import LANES_LETTERS, timeline_content

    advice = advice_on(known)
    levers = levers_content(advice, names)
    room = room_beside({**rest, **_plain(levers)}, LANES_LETTERS)
    paths = {place: pieces_of_path(one) for place, one in advice.items()}
    found: dict[str, Any] = {"timeline": timeline_content(known, room, names, fine, paths)}
    return {**found, **({"levers": levers} if levers else {})}


def _in_table(rows: Sequence[dict[str, Any]], *, several_runs: bool) -> list[str]:
    """The columns of the table of kernels: counted bytes and bytes by shapes only if any kernel has them.

    Levers replace the mean time, which is beside the plot.
    """
    estimated, counted = (any(row[f"{name}_bytes_per_s"] is not None for row in rows) for name in ("least", "dram"))
    shown = {
        "run": several_runs, "device": len({row["device"] for row in rows}) > 1,
        "least_bytes_per_s": estimated, "dram_bytes_per_s": counted or not estimated,
        "time_mean_ns": not any(row["first_lever"] or row["nvidia_rules"] for row in rows),
    }  # fmt: skip
    return [column.name for column in KERNEL_COLUMNS if shown.get(column.name, True)]


def _areas(rows: list[dict[str, Any]], result: Roofline) -> dict[str, list[float]]:
    """The area in square pixels of each kernel's marker, for each memory level shown alone and for `ALL_LEVELS`."""
    longest = longest_time(result.points, result.runs)
    weights = [weight_of(row["time_total_ns"], longest) for row in rows]
    columns = {level: "arithmetic_intensity" if level == DRAM else f"intensity_{level}" for level in result.levels}
    found = {}
    for view, names in ((ALL_LEVELS, list(columns.values())), *((level, [name]) for level, name in columns.items())):
        placed = [bool(row["flops_per_s"]) and any(row.get(name) for name in names) for row in rows]
        heaviest = (weight for weight, is_placed in zip(weights, placed, strict=True) if is_placed)
        scale = scale_of(heaviest, len(names))
        found[view] = [scale.area(weight) * PIXELS_PER_POINT**2 for weight in weights]
    return found


def _arrows(rows: list[dict[str, Any]], result: Roofline, labels: dict[str, str]) -> list[list[int]]:
    """[row in the previous run, row] of each kernel that the previous run has too, maybe under another name."""
    number = {(row["run"], row["kernel"]): place for place, row in enumerate(rows)}
    was = {(labels[run], kernel): before for (run, kernel), before in result.followed.items()}
    names = list(labels.values())
    before = dict(zip(names[1:], names, strict=False))
    found = []
    for place, row in enumerate(rows):
        run, kernel = row["run"], row["kernel"]
        start = number.get((before.get(run), was.get((run, kernel), kernel)))
        if start is not None:
            found.append([start, place])
    return found


def _work(kernel: Hotspot) -> str | None:
    """The share of FLOPs of each unit, as text."""
    shares = {unit: kernel.share_of_flops(unit) for unit in used_units([kernel])}
    return ", ".join(f"{unit_title(unit)} {percent(share)}" for unit, share in shares.items() if share) or None


# --------------------------------------------------------------------------------------------- levels and ceilings


def _levels(result: Roofline) -> list[dict[str, str]]:
    """The memory levels at which any kernel has bytes, or DRAM, with the meaning of their bytes."""
    found = {place.level for point in result.points for place in point.places} or {DRAM}
    return [
        {"name": level, "title": unit_title(level), "bytes": _bytes_title(result, level)}
        for level in result.levels
        if level in found
    ]


def _bytes_title(result: Roofline, level: str) -> str:
    if level == DRAM:
        return result.bytes_title
    return f"{unit_title(level)} byte: {result.bytes_by_level[level]}"


def _of_nearer_levels(result: Roofline) -> list[Ceiling]:
    """The bandwidths of the memory levels nearer than DRAM, which bound these levels' bytes."""
    return [ceiling for ceiling in result.known if ceiling.unit in LEVELS[1:] and ceiling not in result.others]


def _ceiling(ceiling: Ceiling, *, drawn: bool) -> dict[str, Any]:
    return {
        "device": ceiling.device,
        "unit": ceiling.unit,
        "title": _ceiling_title(ceiling),
        "kind": ceiling.kind if ceiling.kind == MEASURED_QUICKLY else "",
        "value": ceiling.value,
        "value_unit": "B/s" if ceiling.is_bandwidth else ceiling.value_unit,
        "is_bandwidth": ceiling.is_bandwidth,
        "drawn": drawn,
    }


def _ceiling_title(ceiling: Ceiling) -> str:
    clock = ceiling.kind if ceiling.kind == BOARD_LIMIT else ""
    return " ".join(filter(None, (unit_title(ceiling.unit), ceiling.instruction, "sparse" * ceiling.sparse, clock)))


def _ceiling_rows(result: Roofline) -> list[dict[str, Any]]:
    ridge_of = {(ridge.device, ridge.unit, ridge.value): ridge.intensity for ridge in result.ridges}
    return [
        {
            **asdict(ceiling),
            "title": _ceiling_title(ceiling),
            "rate": scaled(ceiling.value, "B/s" if ceiling.is_bandwidth else ceiling.value_unit),
            "ridge": ridge_of.get((ceiling.device, ceiling.unit, ceiling.value)),
        }
        for ceiling in (*result.ceilings, *_of_nearer_levels(result), *result.others)
    ]


# --------------------------------------------------------------------------------------- layers, expected, manifest


def _layers(run: ReportedRun) -> dict[str, Any]:
    result = layers(run.table)
    notes = list(result.notes)
    if result.iterations > 1:
        notes.append(f"means over {result.iterations} iterations")
    columns = timed(LAYER_COLUMNS, time_title(result.clocks))
    return {**table_of(columns, (asdict(row) for row in result.rows)), "notes": notes}


def _expected(run: ReportedRun) -> dict[str, Any]:
    rows, notes = expected_rows(run.table, run.expected, run.manifest) or ([], [run.unexpected])
    return {**table_of(PAGE_COLUMNS, rows), "notes": notes}


def _facts(run: ReportedRun) -> list[tuple[str, str]]:
    """Facts on the origin of a run: its manifest, then the metadata of its reports; without empty values."""
    manifest = list(_flat("", asdict(run.manifest))) if run.manifest else []
    reports = tables.table_metadata(run.table).get("reports", [])
    return [("run", run.name), *manifest, *(fact for report in reports for fact in _flat("", report))]


COMMANDS = ("asked", "command")


def _flat(path: str, value: Any) -> Iterable[tuple[str, str]]:
    """Every fact below `value` with its dotted path; lists of words as one text, commands as typed."""
    name = path.rpartition(".")[2]
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _flat(f"{path}.{key}" if path else str(key), one)
    elif isinstance(value, list) and any(isinstance(one, (dict, list)) for one in value):
        for number, one in enumerate(value, start=1):
            yield from _flat(f"{path} {number}" if len(value) > 1 else path, one)
    elif isinstance(value, list) and value:
        yield path, shlex.join(map(str, value)) if name in COMMANDS else ", ".join(map(str, value))
    elif value is not None and value is not False and value not in ("", []):
        yield path, "yes" if value is True else str(value)


def title_of(labels: Sequence[str]) -> str:
    """The title of a page: the names of its runs, or their number."""
    return ", ".join(labels) if len(labels) <= MOST_NAMED else f"{len(labels):,} runs"


def distinct(table: pa.Table, column: str) -> str | None:
    """The distinct texts of a column, None if there are none."""
    return ", ".join(dict.fromkeys(filter(None, tables.words(table, column)))) or None


def groups_of_runs(runs: Mapping[str, tuple[pa.Table, Manifest | None]]) -> list[dict[str, Any]]:
    """The ways to group the runs, by device, folder and model, each with the name of every run's group; None: unknown.

    Groupings that do not separate any two runs are left out.
    """
    ways: dict[str, list[str | None]] = {
        "device": [distinct(table, "device_name") for table, _ in runs.values()],
        "folder": [str(PurePath(name).parent) for name in runs],
        "model": [_model(manifest) for _, manifest in runs.values()],
    }
    return [{"title": title, "of": of_runs} for title, of_runs in ways.items() if len(set(of_runs)) > 1]


def _model(manifest: Manifest | None) -> str | None:
    target = manifest.workload.get("target") if manifest else None
    return target if isinstance(target, str) else None


def devices_with_ceilings(table: pa.Table, machine: Machine | None) -> list[str]:
    """The names under which the ceilings of a run's devices are shown."""
    devices = devices_of(table)
    return [device_title(device, devices, machine) for device in devices]
