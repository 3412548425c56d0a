"""ncu-bench report -o FILE.perfetto.json and other endings: a run in the format of another tool."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

import click
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.run_files import BENCH_FILE, LAUNCHES, POINTS_FILE

from ncu_tools.cli.option_kinds.selection_options import selection_options
from ncu_tools.cli.options import FILE, format_option, machine_option, progress, require_other_output, show
from ncu_tools.cli.views import EXPORTED_ENDINGS
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from ncu_parsers.parquet.reader import Columns

    from ncu_tools.ceilings.machine_files import Machine
    from ncu_tools.runs.run import Run
    from ncu_tools.runs.selection import Selection

FORMS = ("speedscope", "perfetto", "csv", "sections")
TABLES = ("kernels", "launches", "layers", "points")
COLUMNS = columns("file form rows bytes")
OPEN_IN = {"speedscope": "https://www.speedscope.app", "perfetto": "https://ui.perfetto.dev"}
NOT_A_TIMELINE = (
    "spans are means over {} laid end to end in the order in which layers first ran: no gaps, no overlap, no timeline"
)


@click.command()
@click.argument("run")
@click.option("-o", "--output", type=FILE, required=True, help="The file to write.")
@click.option(
    "--as", "form", type=click.Choice(FORMS),
    help="speedscope or perfetto: a trace of phases and modules. csv: for spreadsheets. sections: ncu's details page.  "
    "[default: by the ending of -o: .csv, .speedscope.json, .perfetto.json]",
)  # fmt: skip
@click.option(
    "--table", "of", type=click.Choice(TABLES),
    help="Which table, with --as csv.  [default: kernels; of a sweep: points]"
)  # fmt: skip
@click.option(
    "--depth", type=click.IntRange(min=0),
    help="How many levels below the model go into a trace or a table of layers; all if not given.",
)  # fmt: skip
@click.option(
    "--lanes", is_flag=True,
    help="With --as perfetto, of a recording: GPU streams, gaps by cause, threads and steps as they were.",
)  # fmt: skip
@machine_option
@selection_options
@format_option
def command(
    run: str,
    output: Path,
    form: str | None,
    of: str | None,
    depth: int | None,
    lanes: bool,
    machine: Machine | None,
    output_format: str,
    only: Selection | None,
) -> None:
    """Write a run in the format of another tool.

    A trace shows one iteration: its phases, and in each the modules that ran, as long as their launches took; with
    --lanes, and where nothing marks modules, it is a recording of nsys or PyTorch's profiler itself, with what timeline
    finds of its gaps. In CSV for spreadsheets what is unknown is an empty cell, and a text that would run as a formula
    begins with an apostrophe. Sections are the long CSV of ncu's details page with the metrics that the report held,
    every digit and base units, and with NVTX ranges and results of NVIDIA's rules where the report had them.

    \b
    Example:
      ncu-bench report run -o trace.speedscope.json
      ncu-bench report run -o trace.perfetto.json --depth 2
      ncu-bench report recording.sqlite -o trace.json --as perfetto --lanes
      ncu-bench report report.ncu-rep -o kernels.csv
      ncu-bench report sweep -o points.csv
      ncu-bench report report.ncu-rep -o details.csv --as sections
    """
    from ncu_tools.bench.bench_runs import is_bench
    from ncu_tools.model.layers.layers import NEEDED
    from ncu_tools.report.export.spreadsheet_csv import to_spreadsheet
    from ncu_tools.runs.loading import load, points_summed

    form = form or next(named for ending, named in EXPORTED_ENDINGS.items() if output.name.lower().endswith(ending))
    _require_used(form, of, depth, machine)
    require_other_output(output, [run, *(str(Path(run) / name) for name in (LAUNCHES, BENCH_FILE, POINTS_FILE))])
    if lanes:
        _require_lanes(form, depth, only)
        text, rows, notes = _lanes(run)
        _written(output, form, text, rows, notes, output_format)
        return
    if of == "points" or is_bench(run):
        _require_points(run, form, of, only)
        table, notes = _points(run), list[str]()
        _written(output, form, to_spreadsheet(table), len(table), notes, output_format)
        return
    with progress("Reading") as reading:
        located = load(run, reading=reading)
        found = located if only is None else only.of(located)
        if form == "csv":
            if of == "launches":
                table, notes = _read(found)
            elif of == "layers":
                table, notes = _layers(run, *_read(found, NEEDED), depth)
            else:
                table, notes = _kernels(found, machine)
            text, rows = to_spreadsheet(table), len(table)
        elif form == "sections":
            text, rows, notes = _sections(run, *_read(found))
        elif form == "perfetto" and depth is None and only is None and _has_lanes_alone(run, found):
            text, rows, notes = _lanes(run)
        else:
            text, rows, notes = _trace(run, *_read(found, NEEDED), form, depth)
        if form != "csv" or of == "layers":
            notes = [*points_summed(run, only), *notes]
    _written(output, form, text, rows, notes, output_format)


def _require_used(form: str, of: str | None, depth: int | None, machine: Machine | None) -> None:
    """Raise `WrongUsage` for options that the output format does not use."""
    if of is not None and form != "csv":
        raise WrongUsage(f"--table {of} does not go with --as {form}.", advice="Leave it out, or use --as csv.")
    if depth is not None and (form == "sections" or (form == "csv" and of != "layers")):
        raise WrongUsage(
            f"--depth {depth} is for traces and tables of layers.",
            advice="Leave it out, or use --as speedscope, --as perfetto or --as csv --table layers.",
        )
    if machine is not None and (form != "csv" or of not in (None, "kernels")):
        raise WrongUsage(
            f"--machine {machine.name} is for tables of kernels: nothing else that is exported has a ceiling.",
            advice="Leave it out, or use --as csv --table kernels.",
        )


def _written(output: Path, form: str, text: str, rows: int, notes: list[str], output_format: str) -> None:
    """Write the file, and show a line on it."""
    from ncu_launch.files.atomic_files import write_bytes_atomically

    write_bytes_atomically(output, text.encode("utf-8", "replace"))
    row = {"file": str(output), "form": form, "rows": rows, "bytes": output.stat().st_size}
    show(Table("export", COLUMNS, [row], notes), output_format)


def _require_lanes(form: str, depth: int | None, only: Selection | None) -> None:
    """Raise `WrongUsage` for options that exclude lanes."""
    if form != "perfetto":
        raise WrongUsage(f"--lanes does not go with --as {form}.", advice="Use --as perfetto.")
    if depth is not None or only is not None:
        raise WrongUsage(
            "--lanes writes a whole recording.", "Levels of a model and selected launches need a table of launches.",
            "Leave them out.",
        )  # fmt: skip


def _lanes(run: str) -> tuple[str, int, list[str]]:
    """A recording as lanes, its number of slices, and notes."""
    from ncu_tools.report.export.timeline_lanes import to_lanes
    from ncu_tools.timeline.load_activity import load_activity
    from ncu_tools.timeline.timeline import timeline

    with progress("Reading") as reading:
        found = timeline(load_activity(run, reading, whole_names=True))
    text = to_lanes(found, _roofs(run))
    return text, text.count('"ph": "X"'), [*found.notes, f"open {OPEN_IN['perfetto']} and drop the file there"]


def _has_lanes_alone(run: str, found: Run) -> bool:
    """True if a run is a recording without layers, which can only be exported as lanes."""
    from ncu_tools.model.layers.layers import NEEDED
    from ncu_tools.model.layers.trace_spans import spans
    from ncu_tools.timeline.load_activity import is_recording

    return is_recording(run) and not spans(found.only(NEEDED).table).rows


def _roofs(run: str) -> dict[str, float]:
    """The share of its roof that each kernel reaches, by its name; kernels without known work or roof are absent."""
    from ncu_tools.kernels.kernel_cache import hotspots_of
    from ncu_tools.runs.loading import load

    rows = hotspots_of(load(run), None).rows
    return {row.kernel: row.bound_fraction for row in rows if row.bound_fraction is not None}


def _require_points(run: str, form: str, of: str | None, only: Selection | None) -> None:
    """Raise `WrongUsage` for formats into which a table of points cannot be exported."""
    if form != "csv" or of not in (None, "points") or only is not None:
        raise WrongUsage(
            f"{run} is written as a table of its points.",
            "Points are neither launches to choose from nor a trace.",
            "Write them with: --as csv --table points",
        )


def _points(run: str) -> pa.Table:
    """The points of a sweep, or of a profile of several points, without single samples."""
    from ncu_parsers.parquet.reader import read_bench

    from ncu_tools.bench.bench_runs import file_of_points

    return read_bench(file_of_points(run)).drop_columns(["samples_ns"])


def _read(run: Run, columns: Columns = None) -> tuple[pa.Table, list[str]]:
    """The launches with all or some of their columns, and notes on reading them."""
    whole = run.only(columns)
    return whole.table, whole.notes


def _trace(run: str, table: pa.Table, notes: list[str], form: str, depth: int | None) -> tuple[str, int, list[str]]:
    from ncu_tools.model.layers.trace_spans import spans
    from ncu_tools.report.export.perfetto import to_perfetto
    from ncu_tools.report.export.speedscope import to_speedscope
    from ncu_tools.timeline.load_activity import is_recording

    found = spans(table, depth=depth)
    if not found.rows:
        raise _no_layers(run, found.notes)
    write = to_speedscope if form == "speedscope" else to_perfetto
    iterations = counted(found.iterations, "iteration", "iterations")
    what = NOT_A_TIMELINE.format(iterations)
    lanes = ["--lanes writes the recording itself"] if form == "perfetto" and is_recording(run) else []
    notes = [*notes, *found.notes, what, *lanes, f"open {OPEN_IN[form]} and drop the file there"]
    return write(found.rows, f"{run}: mean of {iterations}", what), len(found.rows), notes


def _kernels(run: Run, machine: Machine | None) -> tuple[pa.Table, list[str]]:
    from ncu_tools.kernels.kernel_cache import hotspots_of
    from ncu_tools.kernels.kernel_row import kernels_table

    kernels = hotspots_of(run, machine)
    return kernels_table(kernels.rows), kernels.notes


def _layers(run: str, table: pa.Table, notes: list[str], depth: int | None) -> tuple[pa.Table, list[str]]:
    from ncu_tools.model.layers.layers import layers, layers_table

    tree = layers(table, depth=depth)
    if not tree.rows:
        raise _no_layers(run, tree.notes)
    return layers_table(tree.rows), [*notes, *tree.notes]


def _sections(run: str, table: pa.Table, notes: list[str]) -> tuple[str, int, list[str]]:
    from ncu_tools.report.export.ncu_details_csv import to_section_csv

    text = to_section_csv(table)
    if not text:
        raise NcuBenchError(
            f"{run} holds no metrics of ncu, so there is nothing to write as its sections.",
            "Timelines and runs of operators have none.",
            "Write the kernels as a table instead: --as csv",
        )
    rows = list(csv.DictReader(io.StringIO(text)))
    missing = len(table) - len({(row.get("Process ID"), row["ID"]) for row in rows})
    if missing:
        notes = [*notes, f"{missing:,} of {counted(len(table), 'launch', 'launches')} left out: no metrics of ncu"]
    return text, len(rows), notes


def _no_layers(run: str, notes: list[str]) -> NcuBenchError:
    from ncu_tools.model.layers.layers import why_no_layers

    return NcuBenchError(
        f"{run} has no layers to show.",
        why_no_layers(notes),
        "For its kernels as a table: --as csv --table kernels; a recording as it was: --as perfetto --lanes",
    )
