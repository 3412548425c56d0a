"""ncu-bench bench --against: functions beside a reference, with the same inputs."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from ncu_launch.bench.against.agreement import RULE
from ncu_launch.bench.against.pairs import MeasuredPair, Reference, check_functions, pairs_of
from ncu_launch.bench.latency_statistics import Effort
from ncu_launch.bench.point_outcomes import DISAGREES, OK
from ncu_launch.bench.sweep import BenchPoint
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.atomic_files import write_whole
from ncu_launch.files.run_files import AGAINST, BENCH_FILE, LOGS
from ncu_launch.files.run_folder import begin_sweep, end_sweep
from ncu_launch.profilers.commits import commit_here

from ncu_tools.cli.collecting.bench_notes import notes_on_cpu
from ncu_tools.cli.options import MACHINE_FORMATS, options_in, show, status_and_lines
from ncu_tools.numbers.number_format import counted, duration
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

COLUMNS = columns(
    "against.target arguments~0 batch_size input_size sequence_length dtype phase mine_ns~0 reference_ns~0 "
    "ratio~0 low~0 high~0 verdict~0 max_abs max_rel reason"
)
VARIED = ("dtype", "phase")
"""Text columns that are shown if their values differ."""
FURTHER = columns("reference point device device_name mode outcome agrees tolerance rounds processes torch")
WITHIN = "intervals hold the scatter within a process; --processes 3 measures that between processes too"
SPEEDUP = (
    "speedup is the reference's time / the function's, the geometric mean of rounds: above 1 the function is faster"
)


@dataclass(frozen=True)
class AgainstOptions:
    """The options on the reference of a sweep."""

    against: str | None
    tolerance: float | None

    def check(self, *, resume: bool, dask: str | None, metrics: tuple[str, ...], power: bool) -> None:
        """Raise `WrongUsage` for options that exclude each other."""
        if self.tolerance is not None and self.against is None:
            raise WrongUsage("--agree-within goes with --against.", advice="Name a reference with --against.")
        others = {"--resume": resume, "--dask": dask, "--metrics": metrics, "--power": power}
        if self.against is not None and any(others.values()):
            other = next(name for name, given in others.items() if given)
            raise WrongUsage(
                f"--against does not go with {other}.",
                "Both functions are measured by one process here, in one go.",
                f"Leave {other} out, or use a new folder.",
            )


against_options = options_in(
    AgainstOptions, "pairing",
    click.option("--against", metavar="TARGET",
        help="Measure functions against this one: the same inputs, results compared, the ratio of times.",
    ),
    click.option("--agree-within", "tolerance", type=click.FloatRange(min=0), metavar="X",
        help="With --against: how far results may be apart, relative; without it by type.",
    ),
)  # fmt: skip


def measure_against(
    options: AgainstOptions,
    points: list[BenchPoint],
    folder: Path,
    *,
    effort: Effort,
    timeout: float,
    processes: int,
    output_format: str,
) -> None:
    """Measure all points against the reference, show the table, and end with exit code 1 if results disagree."""
    reference = Reference(options.against or "", options.tolerance)
    check_functions(points, reference)
    pairs = _measured(reference, points, folder, effort, timeout, processes)
    rows = [pair.row for pair in pairs]
    notes = [f"the reference is {reference.target}", *_notes(rows, processes, folder)]
    if output_format in MACHINE_FORMATS:
        columns = [*(column for column in COLUMNS if column.name != "verdict"), *FURTHER]
        show(Table("bench", columns, rows, notes), output_format)
    else:
        constant = {name for name in VARIED if len({row[name] for row in rows}) == 1}
        columns = [column for column in COLUMNS if column.name not in constant]
        show(Table("bench", columns, [{**row, "verdict": _verdict(row)} for row in rows], notes), output_format)
    disagreeing = [row for row in rows if row["outcome"] == DISAGREES]
    if disagreeing:
        first = disagreeing[0]
        raise NcuBenchError(
            f"{counted(len(disagreeing), 'point disagrees', 'points disagree')} with {reference.target}.",
            f"The first, {first['point']}: {first['reason']}.",
            "Correct the function, or say how far results may be apart with --agree-within.",
        )
    if not any(pair.logs for pair in pairs):
        reason = (rows[0]["reason"] or "").rstrip(".")
        raise NcuBenchError("No point could be measured.", f"The first: {reason}.", "See its row and log.")


def _measured(
    reference: Reference, points: list[BenchPoint], folder: Path, effort: Effort, timeout: float, processes: int
) -> list[MeasuredPair]:
    """The pairs, in the order of the points; files are rewritten after each process."""
    from ncu_parsers.parquet.writer import write_table
    from ncu_parsers.schema.bench_table import with_row

    logs, manifest = folder / LOGS, begin_sweep(folder, sys.argv, commit_here())
    found: dict[str, MeasuredPair] = {}
    table = None
    with status_and_lines() as (heard, finished):
        for pair in pairs_of(points, reference, effort, timeout, logs, processes=processes, on_stage=heard):
            found[pair.point.name] = pair
            for row in pair.rows:
                table = with_row(table, row, asked=sys.argv)
            if table is not None:
                write_table(table, folder / BENCH_FILE)
            lines = "".join(json.dumps(each.row) + "\n" for each in found.values())
            write_whole(folder / AGAINST, lines.encode())
            finished(f"{pair.row['point']}: {_in_words(pair.row)}")
    end_sweep(manifest, folder, {row["torch"] for pair in found.values() for row in pair.rows if row.get("torch")})
    return list(found.values())


def _in_words(row: dict[str, Any]) -> str:
    if row["ratio"] is None:
        return f"{row['outcome']} ({row['reason']})"
    within = f" ({row['low']:.3g} to {row['high']:.3g})" if row["low"] is not None else ""
    times = f"{duration(row['mine_ns'])}, {row['reference']} {duration(row['reference_ns'])}"
    ending = "" if row["outcome"] == OK else f"; {_verdict(row)}: {row['reason']}"
    return f"{times}: {row['ratio']:.3g}x{within}{ending}"


def _verdict(row: dict[str, Any]) -> str:
    return "agree" if row["outcome"] == OK else str(row["outcome"])


def _notes(rows: list[dict[str, Any]], processes: int, folder: Path) -> list[str]:
    notes = list(dict.fromkeys(note for row in rows for note in row["notes"]))
    tolerances = sorted({(row["dtype"], row["tolerance"]) for row in rows if row["tolerance"] is not None})
    notes.append(SPEEDUP)
    if tolerances:
        every = ", ".join(f"{value:g}" for value in dict.fromkeys(value for _, value in tolerances))
        notes.append(f"results agree where every value differs by at most {RULE}, with tolerance {every}")
    if processes == 1:
        notes.append(WITHIN)
    return [
        *notes,
        *notes_on_cpu(rows),
        f"the rows of both functions are in {folder / BENCH_FILE}, those of this table in {folder / AGAINST}",
    ]
