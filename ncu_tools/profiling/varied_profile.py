"""Points profiled one after the other, each into its own run folder: `profile --vary` and `bench --metrics`.

`profile --vary` writes points.parquet, a row per point in the columns of a table of measured points (docs/bench.md)
without times, and launches.parquet, the launches of all points with a column for each varied value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
from ncu_launch.bench.point_outcomes import FAILED, OK, OUT_OF_MEMORY, TIMED_OUT
from ncu_launch.bench.sweep import BenchPoint, point_of, settings_of, takes_arguments
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.manifest import Manifest, manifest_in, write_manifest
from ncu_launch.files.run_files import BENCH_FILE, LAUNCHES, LOGS, POINTS_FILE
from ncu_launch.files.run_folder import put_aside, writing
from ncu_launch.nvtx_ranges import RUN_PHASES
from ncu_launch.profile.plan import Request, default_folder
from ncu_launch.targets.varied_arguments import SETTINGS, Variant, varied
from ncu_launch.workload_spec import Workload
from ncu_parsers.parquet.reader import read_bench, read_launches
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema import tables
from ncu_parsers.schema.bench_table import bench_table, rows_of, with_row
from ncu_parsers.schema.own_columns import ARGUMENTS, VALUES, own_fields

from ncu_tools.numbers.number_format import counted as with_noun
from ncu_tools.profiling.collected_profile import CollectedProfile
from ncu_tools.profiling.listener import Listener
from ncu_tools.profiling.pipeline import plan_profile, run_profile
from ncu_tools.profiling.profile_request import DryRun, ProfileRequest, checked_workload
from ncu_tools.profiling.profiled_point import Row, counted
from ncu_tools.profiling.quick_ceilings import measure_unknown_devices

PROFILES = "profiles"
"""Folder in the run folder of a sweep, with a run folder for each point that was profiled."""
LONGEST_NAME = 100


@dataclass(frozen=True)
class VariedPoint:
    """A point to profile: its name and workload, its values as text, and the name of its run folder."""

    point: BenchPoint
    values: dict[str, str]
    folder: str


@dataclass(frozen=True)
class ProfiledPoints:
    """The points of a profile in `folder`, a row each in the columns of points.parquet."""

    folder: Path
    table: pa.Table
    notes: tuple[str, ...] = ()


def varied_points(workload: Workload, variants: Sequence[Variant]) -> list[VariedPoint]:
    """A point for each variant of a workload; variants that a reference kernel does not distinguish are one.

    Raises `WrongUsage` for a value that the target does not accept.
    """
    found: list[VariedPoint] = []
    for variant in variants:
        one = checked_workload(varied(workload, variant, takes_arguments=takes_arguments(workload.target)))
        point = point_of(one)
        if any(other.point.name == point.name for other in found):
            continue
        values = {**{SETTINGS.get(name, name): text for name, text in variant}, **dict(one.arguments)}
        words = ",".join(f"{name}={text}" for name, text in variant)
        folder = "".join(letter if letter.isalnum() or letter in "-_.,=" else "-" for letter in words)[:LONGEST_NAME]
        taken = {other.folder for other in found}
        folder = f"{folder}-{len(found) + 1}" if folder in taken or folder == PROFILES else folder
        found.append(VariedPoint(point, values, folder))
    return found


def plan_points(request: ProfileRequest, points: Sequence[VariedPoint], listener: Listener) -> DryRun:
    """The first commands of each point, without running anything. Raises `WrongUsage` as `plan_profile` does."""
    folder = _folder(request)
    plans = [plan_profile(_request_of(request, one.point.workload, folder / one.folder), listener) for one in points]
    notes = dict.fromkeys(note for plan in plans for note in plan.notes)
    return DryRun([command for plan in plans for command in plan.commands], list(notes))


def points_to_keep(request: ProfileRequest, points: Sequence[VariedPoint], *, retry_failed: bool) -> pa.Table:
    """The rows of the run folder that need no new profile: all except those ended by Ctrl-C.

    With `retry_failed`, only the ok ones. Raises `WrongUsage` if the folder holds no points, or others than these.
    """
    folder = _folder(request)
    if not (folder / POINTS_FILE).is_file():
        raise WrongUsage(f"There are no points in {folder}.", advice="Name the run folder of profile --vary with -o.")
    table = read_bench(folder / POINTS_FILE)
    rows = table.select(["point", "outcome", "profile"]).to_pylist()
    others = [row["point"] for row in rows if row["point"] not in {one.point.name for one in points}]
    if others:
        raise WrongUsage(
            f"{folder} holds a point that this command does not ask for: {others[0]}.",
            advice="Go on with the same command, with more values of --vary where more points are wanted.",
        )
    ended = [not _was_stopped(manifest_in(folder / row["profile"])) for row in rows]
    return table.filter([row["outcome"] == OK for row in rows] if retry_failed else ended)


def profile_points(
    request: ProfileRequest, points: Sequence[VariedPoint], listener: Listener, kept: pa.Table | None = None
) -> ProfiledPoints:
    """Profile every point without a row in `kept`; a failed point becomes a row that says so.

    A device without ceilings is measured once, after all points. Ctrl-C ends the running point and is raised; earlier
    points stay. Raises `WrongUsage` if the folder is in use: without `kept` it may not hold points.
    """
    folder = _folder(request)
    if kept is None and ((folder / LAUNCHES).exists() or (folder / POINTS_FILE).exists()):
        raise WrongUsage(
            f"{folder} already holds a run.",
            advice="Go on with its points by --resume, name another folder with -o, or remove this one.",
        )
    table, stopped = bench_table([], asked=request.run.asked) if kept is None else kept, False
    there = set(table.column("point").to_pylist())
    unmeasured = replace(request, measure=False)
    with writing(folder):
        for number, one in enumerate(points, 1):
            if one.point.name in there:
                continue
            if kept is not None and (folder / one.folder).is_dir():
                put_aside(folder / one.folder)  # left by an earlier attempt
            listener.message(f"Point {number} of {len(points)}: {one.point.name}")
            row, manifest = profiled(_request_of(unmeasured, one.point.workload, folder / one.folder), listener)
            table = with_row(table, {**_identity(one, manifest), **row, "profile": one.folder}, asked=request.run.asked)
            write_table(table, folder / POINTS_FILE)
            stopped = _was_stopped(manifest)
            if stopped:
                break
        table = _in_order(table, points)
        write_table(table, folder / POINTS_FILE)
        notes = _write_launches(folder, points, table)
        _write_manifest(folder, request, points, partial=stopped)
    if stopped:
        raise KeyboardInterrupt
    if request.measure and len(table) > len(there):
        notes += measure_devices_without_ceilings(folder, listener)
    return ProfiledPoints(folder, table, tuple(notes))


def measure_devices_without_ceilings(folder: Path, listener: Listener) -> Sequence[str]:
    """Measure the devices of all points that have no ceilings; returns the notes on them."""
    manifest = manifest_in(folder)
    if manifest is None or not (folder / LAUNCHES).is_file():
        return ()
    whole = CollectedProfile(folder, manifest, read_launches(folder / LAUNCHES))
    return measure_unknown_devices(whole, listener).notes


def _in_order(table: pa.Table, points: Sequence[VariedPoint]) -> pa.Table:
    """The rows in the order of the points: rows profiled later are last in the file."""
    places = {name: place for place, name in enumerate(table.column("point").to_pylist())}
    return table.take([places[one.point.name] for one in points if one.point.name in places])


def profiled(request: ProfileRequest, listener: Listener) -> tuple[Row, Manifest | None]:
    """Profile one point: its counters with the outcome, or the reason why there are none; and its manifest, if any."""
    folder = request.output or Path()
    try:
        collected = run_profile(request, listener)
        failure = collected.failure if collected is not None else None
        table = collected.table if collected is not None else None
        idle = collected.idle if collected is not None else "another rank joins the parts"
    except WrongUsage as error:
        failure, table, idle = NcuBenchError(error.paragraph), None, ""
    except NcuBenchError as error:
        failure, table, idle = error, None, ""
    manifest = manifest_in(folder)
    if failure is not None or table is None:
        reason = failure.paragraph if failure is not None else idle
        return {"outcome": _outcome(manifest, reason), "reason": reason, "profiled_why_not": reason}, manifest
    ran = [phase for phase in RUN_PHASES if phase in set(table.column("phase").to_pylist())]
    iterations = request.run.workload.iterations if request.run.workload is not None else 1
    phases = {"phase": "+".join(ran)} if ran else {}
    return {"outcome": OK, **phases, **counted(table, request.run.metrics, iterations)}, manifest


def count_measured(
    folder: Path, points: Sequence[BenchPoint], metrics: Sequence[str], run: Request, listener: Listener
) -> None:
    """Add the counters of a profiled run to each measured point of a sweep without counters, in its bench.parquet.

    A point is profiled on the device on which it was timed. Raises `KeyboardInterrupt` on Ctrl-C.
    """
    table = read_bench(folder / BENCH_FILE)
    rows = {row["point"]: row for row in rows_of(table)}
    for point, row in _uncounted(points, rows):
        place = Path(PROFILES) / Path(row["log"]).stem
        listener.message(f"Counting {', '.join(metrics)} of {point.name}")
        workload = replace(point.workload, device=row["device"])
        request = ProfileRequest(replace(run, workload=workload, metrics=tuple(metrics)), output=folder / place)
        found, manifest = profiled(request, listener)
        if _was_stopped(manifest):
            raise KeyboardInterrupt
        measured = {
            "outcome": row["outcome"],
            "reason": row["reason"],
            "phase": row["phase"],
            "profile": place.as_posix(),
        }
        table = with_row(table, {**row, **found, **measured}, asked=list(run.asked))
        write_table(table, folder / BENCH_FILE)


def _uncounted(points: Sequence[BenchPoint], rows: dict[str, Row]) -> Iterator[tuple[BenchPoint, Row]]:
    for point in points:
        row = rows.get(point.name)
        if row is not None and row["outcome"] == OK and not (row["profiled_by"] or row["profiled_why_not"]):
            yield point, row


def _folder(request: ProfileRequest) -> Path:
    return request.output or default_folder(request.run, datetime.now(timezone.utc))


def _request_of(request: ProfileRequest, workload: Workload, folder: Path) -> ProfileRequest:
    return replace(request, run=replace(request.run, workload=workload), output=folder)


def _was_stopped(manifest: Manifest | None) -> bool:
    return manifest is not None and any(ran.interrupted for ran in manifest.tool_runs)


def _outcome(manifest: Manifest | None, reason: str) -> str:
    if manifest is not None and any(ran.timed_out for ran in manifest.tool_runs):
        return TIMED_OUT
    lacks_memory = any(words in reason.lower() for words in ("out of memory", "outofmemory", "memoryerror"))
    return OUT_OF_MEMORY if lacks_memory else FAILED


def _identity(one: VariedPoint, manifest: Manifest | None) -> Row:
    """The columns that identify a point, and its device."""
    facts = manifest.facts if manifest is not None else {}
    runs = manifest.tool_runs if manifest is not None else []
    return {
        **settings_of(one.point),
        "phase": "+".join(one.point.workload.phases),
        "device": facts.get("device") or settings_of(one.point)["device"],
        "device_name": facts.get("device_name") or None,
        "threads": facts.get("threads"),
        "torch": (manifest.versions if manifest is not None else {}).get("torch"),
        "started": manifest.started if manifest is not None else None,
        "seconds": sum(ran.seconds for ran in runs) if runs else None,
        "log": f"{one.folder}/{LOGS}/{runs[-1].log}" if runs else "",
        "notes": list(manifest.notes) if manifest is not None else None,
    }


def _write_launches(folder: Path, points: Sequence[VariedPoint], table: pa.Table) -> list[str]:
    """Write the launches of all points that have some as one table; returns its notes."""
    names = {row["profile"] for row in table.select(["profile", "outcome"]).to_pylist() if row["outcome"] == OK}
    kept = [one for one in points if one.folder in names]
    if not kept:
        return []
    launches = [read_launches(folder / one.folder / LAUNCHES) for one in kept]
    own = own_fields(
        [{VALUES[ARGUMENTS]: one.values} for one in kept], {name for each in launches for name in each.column_names}
    )
    for place, each in enumerate(launches):
        for field, values in own.columns:
            column = pa.array([values[place]] * len(each), type=field.type)
            launches[place] = launches[place].append_column(field, column)
    metadatas = [tables.table_metadata(each) for each in launches]
    notes = list(dict.fromkeys(note for one in metadatas for note in one.get("notes", [])))
    reports = [report for one in metadatas for report in one.get("reports", [])]
    number = with_noun(len(kept), "point", "points")
    notes.insert(0, f"launches of {number} are in one table; each is also a run of its own in {folder}")
    metadata = {**metadatas[0], "reports": reports, "notes": notes, **own.names}
    write_table(tables.with_metadata(tables.concatenated(launches), metadata), folder / LAUNCHES)
    return notes


def _write_manifest(folder: Path, request: ProfileRequest, points: Sequence[VariedPoint], *, partial: bool) -> None:
    """The manifest of the whole: the first point's, without point-specific entries."""
    found = (manifest_in(folder / one.folder) for one in points)
    first = next((one for one in found if one is not None), None)
    if first is not None:
        workload = asdict(request.run.workload) if request.run.workload is not None else {}
        whole = replace(first, workload=workload, facts={}, tool_runs=[], expected={}, notes=[], partial=partial)
        write_manifest(whole, folder)
