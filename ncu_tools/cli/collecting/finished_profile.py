"""What a profile collected -> the Parquet files of its run folder, and the table with its notes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.manifest import Manifest
from ncu_launch.files.run_files import EXPECTED, LOGS, REPORTS
from ncu_launch.profile.run_outcome import timelines
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.parse.parse import Parsed, parse, parse_two_runs
from ncu_parsers.sources.sources import find_sources

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.cli.options import rows_shown, show
from ncu_tools.cli.reading.hotspots import COLUMNS, hidden_kernels
from ncu_tools.cli.time_titles import with_time_title
from ncu_tools.expected.both_sides import collection_of
from ncu_tools.expected.measured_vs_expected import compare, summary
from ncu_tools.expected.operators_of_layers import expected_of
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.kernel_cache import keep_kernels
from ncu_tools.report.table import Table
from ncu_tools.runs.loading import ENDED_EARLY, LAUNCHES


def show_collected(
    table: pa.Table,
    read_notes: list[str],
    manifest: Manifest,
    folder: Path,
    top: int | None,
    machine_name: str | None,
    output_format: str,
) -> None:
    """Keep the launches and their kernels as Parquet, and show the kernels with everything worth knowing of the run."""
    write_table(table, folder / LAUNCHES)
    keep_kernels(folder / LAUNCHES)
    machine = find_machine(machine_name) if machine_name else None
    result = hotspots(table, ceilings_of(table, machine))
    top = rows_shown(top, output_format)
    notes = [
        *hidden_kernels(result.rows, top),
        *manifest.notes,
        *_unknown(manifest),
        *_unattributed(table),
        *read_notes,
        *result.notes,
        *_against_expected(manifest, table, folder),
        f"the run is in {folder}",
    ]
    if manifest.partial:
        notes.insert(0, ENDED_EARLY)
    shown = Table("profile", COLUMNS, [asdict(row) for row in result.rows[:top]], notes)
    show(with_time_title(shown, result.time_title), output_format)


def parsed_reports(manifest: Manifest, folder: Path) -> Parsed | None:
    """The launches of the run: of its last report or timeline, or of the two reports that hold the same launches."""
    if manifest.source == "nsys":
        traced = find_sources([str(path) for path in timelines(folder)])
        return parse(traced) if traced else None
    written = [folder / REPORTS / ran.report for ran in manifest.tool_runs if ran.report]
    wanted = written if len(written) == 2 else written[-1:]
    reports = find_sources([str(path) for path in wanted if path.is_file() and path.stat().st_size])
    if len(reports) == 2:
        return parse_two_runs(*reports, ended_early=manifest.partial)
    return parse(reports) if reports else None


def without_gpu_work(parsed: Parsed | None) -> str | None:
    """Why a timeline has no launch to show, where it was recorded well and read; None for everything else."""
    from ncu_parsers.timelines.nsys_sqlite import NoGpuWork

    if parsed is None or parsed.table is not None:
        return None
    return next((error.paragraph for error in parsed.refused.values() if isinstance(error, NoGpuWork)), None)


def nothing(parsed: Parsed | None, failure: NcuBenchError | None, folder: Path) -> NcuBenchError:
    """Why there are no launches to show."""
    refused = next(iter(parsed.refused.values()), None) if parsed is not None else None
    return (
        failure
        or refused
        or NcuBenchError(
            "The run collected nothing.",
            f"What it printed is in {folder / LOGS}.",
            "Check that the program uses the GPU.",
        )
    )


def _against_expected(manifest: Manifest, table: pa.Table, folder: Path) -> list[str]:
    """Measured against expected FLOPs, a sentence for the model and each phase, where there is something to compare."""
    if manifest.source != "ncu" or not (folder / EXPECTED).is_file():
        return []
    return summary(compare(table, expected_of(str(folder)), collection=collection_of(manifest)))


def _unattributed(table: pa.Table) -> list[str]:
    """How many launches no module could be found for, where any has one."""
    modules = table.column("module")
    if modules.null_count == len(modules) or not modules.null_count:
        return []
    return [f"{modules.null_count} of {len(modules)} launches belong to no module (sums of gradients, the optimizer)"]


def _unknown(manifest: Manifest) -> list[str]:
    unknown = manifest.facts.get("unknown_operators") or {}
    if not unknown:
        return []
    listed = ", ".join(f"{name} ({count} calls)" for name, count in sorted(unknown.items()))
    return [f"FLOPs of these operators are not known, and are left empty: {listed}"]
