"""ncu-bench report: runs as one HTML file that opens anywhere; other file endings select other views."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.run_files import MANIFEST
from ncu_launch.notes import NoteKind, kind_of, subject_of

from ncu_tools.cli.option_kinds.rows_and_order import KERNEL_ROWS, rows_and_order
from ncu_tools.cli.option_kinds.selection_options import selection_options
from ncu_tools.cli.options import (
    FILE,
    echo_notes,
    inductor_option,
    machine_option,
    progress,
    settings_options,
    source_root_option,
)
from ncu_tools.cli.tables.hotspots.locations import LOCATION
from ncu_tools.cli.terminal_notes import WrittenFile
from ncu_tools.cli.views import Verb

if TYPE_CHECKING:
    import pyarrow as pa
    from ncu_launch.files.manifest import Manifest
    from ncu_parsers.sources.settings import Settings
    from ncu_parsers.sources.sources import Source

    from ncu_tools.ceilings.machine_files import Machine
    from ncu_tools.kernels.source.inside_of_run import Inside
    from ncu_tools.report.html.html_content import ReportedRun
    from ncu_tools.runs.run import Run
    from ncu_tools.runs.selection import Selection
    from ncu_tools.timeline.timeline import Timeline

SUFFIXES = (".html", ".htm")
OF_SOME = "this page shows some launches, and expected values are for the whole run"
LAUNCHES_WITH_LANES = 1_000_000
"""For longer recordings a page shows no timeline: it is analysed in memory, and its lanes would be too dense."""
FROM_FORMULAS = "nothing here was measured: FLOPs and bytes come from the operator formulas themselves"


@click.command(cls=Verb)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "-o", "--output", type=FILE, default="report.html", show_default=True,
    help="The .html file to write; for other endings see below.",
)  # fmt: skip
@click.option("--open", "opens", is_flag=True, help="Open it in the browser.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    help="How many kernels of each run the page holds, hottest first; a good many if not given.",
)
@click.option("--title", default="", help="A title for the page.")
@source_root_option()
@click.option("--step", "pattern", metavar="REGEX", help="Ranges whose names match are the steps of a timeline.")
@rows_and_order(KERNEL_ROWS)
@machine_option
@settings_options
@inductor_option
@selection_options
def command(
    runs: tuple[str, ...],
    output: Path,
    opens: bool,
    top: int | None,
    title: str,
    source_root: Path | None,
    pattern: str | None,
    group: str,
    machine: Machine | None,
    only: Selection | None,
    settings: Settings,
    inductor: str,
) -> None:
    """Write runs as one HTML file: summary, roofline, hotspots, layers, measured against expected, how they were made.

    The file needs no network and no other file. Kernels are chosen on the plot or in the table, which filters and
    sorts; it can be used by keyboard alone, printed, and read light or dark. With several runs, the reader chooses
    which ones share the roofline, and compares two. A kernel with counters is shown in the seven parts of ncu-bench
    kernel. Reports with counts per instruction (ncu --set full) and source pages show the source lines and instructions
    of their kernels. Recordings of nsys and PyTorch's profiler show where the time of their steps goes, as lanes.

    \b
    Example:
      ncu-bench report runs/resnet18-20260102T030405Z --open
      ncu-bench report before.csv after.csv --machine a100-sxm4-80gb -o both.html
      ncu-bench report recording.sqlite --step "^train_step"
    """
    from ncu_launch.files.atomic_files import write_bytes_atomically
    from ncu_parsers.derived.operators.inductor_sources import with_compiled_lines

    from ncu_tools.report.html.html_content import content
    from ncu_tools.report.html.html_page import page
    from ncu_tools.runs.selection import pattern_of

    if output.suffix.lower() not in SUFFIXES:
        raise WrongUsage(
            f"{output} has no ending that says what to write.",
            advice="End it in .html for a page, .md or .json for a digest, .csv, .speedscope.json or .perfetto.json.",
        )
    if len(set(runs)) < len(runs):
        raise WrongUsage("A run was named twice.", advice="Name each run once.")
    steps = None if pattern is None else pattern_of(pattern, "--step")
    with progress("Reading") as reading:
        load = partial(_with_inside, reading=reading, only=only, settings=settings)
        reported = [_reported(name, load(name), only, source_root, steps, machine) for name in runs]
    if inductor and group == LOCATION:
        reported = [replace(one, table=with_compiled_lines(one.table, inductor)) for one in reported]
    found = content(reported, machine, group=group, top=top, title=title or (only.title if only is not None else ""))
    write_bytes_atomically(output, page(found).encode())
    echo_notes([*found["notes"], WrittenFile(f"the report is {output}")])
    if opens:
        _open(output)


def _reported(
    name: str, loaded: tuple[Run, Inside, bool], only: Selection | None, source_root: Path | None,
    steps: re.Pattern[str] | None, machine: Machine | None,
) -> ReportedRun:  # fmt: skip
    """A run, or the launches selected by `only`, with its manifest, expected operators, kernel details and timeline."""
    from ncu_tools.report.html.html_content import ReportedRun
    from ncu_tools.runs.loading import points_summed

    run, inside, has_launches = loaded
    manifest, unreadable = _manifest(name)
    expected, unexpected = (None, OF_SOME) if only is not None else _expected(run)
    found, untimed = _timeline(name, run, only, steps, machine)
    notes = [*points_summed(name, only), *run.notes, *unreadable, *inside.notes, *untimed]
    source = inside.source_text(source_root)
    return ReportedRun(run.name, run.table, notes, manifest, expected, unexpected, inside, source, has_launches, found)


def _timeline(
    name: str, run: Run, only: Selection | None, steps: re.Pattern[str] | None, machine: Machine | None
) -> tuple[Timeline | None, list[str]]:
    """The time analysis of a recording; None for other runs, and with a note if it cannot be shown.

    If `steps` are requested, raises `NcuBenchError` if they cannot be shown.
    """
    from ncu_parsers.parse.file_kinds import TIMELINES
    from ncu_parsers.schema import tables
    from ncu_parsers.sources.sources import is_here

    sources = {source or "" for source in tables.words(run.table, "source")}
    if not any(one in TIMELINES or one.startswith("ncu+") for one in sources) or not is_here(name):
        return None, []
    if only is not None:
        return None, [f"{run.name}: no timeline, since this page shows some launches, and gaps need all of them"]
    if len(run.table) > LAUNCHES_WITH_LANES:
        return None, [
            f"{run.name}: no timeline, since it holds more than {LAUNCHES_WITH_LANES:,} launches; ncu-bench timeline "
            "--trim shows a part of it, ncu-bench report -o FILE.perfetto.json --lanes all of it"
        ]
    from ncu_tools.timeline.load_activity import load_activity
    from ncu_tools.timeline.timeline import timeline

    try:
        return timeline(load_activity(name), step=steps, machine=machine), []
    except NcuBenchError as error:
        if steps is not None:
            raise
        return None, [f"{run.name}: no timeline. {error.what} {error.advice}"]


def _with_inside(
    name: str, only: Selection | None, reading: Callable[[Source], None], settings: Settings
) -> tuple[Run, Inside, bool]:
    """A run, its kernel details, and whether it has more on launches than source pages have.

    Raises as `load_only`, unless it has source pages. If their instructions are shown, there is no note on missing
    launches.
    """
    from ncu_parsers.report_data.refusals import NotAReport

    from ncu_tools.kernels.source.inside_of_run import inside_of
    from ncu_tools.report.html.html_content import is_reported
    from ncu_tools.runs.loading import load_only
    from ncu_tools.runs.run import Run

    try:
        run = load_only(name, only, reading=reading, columns=is_reported, settings=settings)
    except NotAReport:
        from ncu_parsers.sources.sources import is_here

        from ncu_tools.kernels.source.source_pages_alone import run_of_source_pages

        found = run_of_source_pages(name, reading) if is_here(name) else None
        if found is None:
            raise
        run, inside = found
        return (run if only is None else only.of(run)), inside, False
    inside = inside_of(name, run.table.column_names, reading)
    read = [] if inside.instructions is None else inside.instructions.table["report"].unique().to_pylist()
    notes = [note for note in run.notes if kind_of(note) != NoteKind.LOST or subject_of(note) not in read]
    return Run.held(run.name, run.table, notes), inside, True


def _manifest(name: str) -> tuple[Manifest | None, list[str]]:
    """The manifest of a run folder, None without one; an unreadable one gives a note."""
    from ncu_launch.files.manifest import folder_of, read_manifest

    folder = folder_of(name)
    if not (folder / MANIFEST).is_file():
        return None, []
    try:
        return read_manifest(folder), []
    except (OSError, ValueError, TypeError) as error:
        return None, [f"{folder / MANIFEST} could not be read: {error}"]


def _expected(run: Run) -> tuple[pa.Table | None, str]:
    """The expected operators of a run, or the reason why there are none."""
    from ncu_parsers.schema import tables
    from ncu_parsers.schema.operator_columns import BY_OPERATOR

    from ncu_tools.model.expected.operators_of_layers import expected_of

    if set(tables.words(run.table, "source")) <= BY_OPERATOR:
        return None, FROM_FORMULAS
    try:
        return expected_of(run.name), ""
    except NcuBenchError as error:
        return None, error.paragraph


def _open(output: Path) -> None:
    """Open a file in the user's browser.

    Raises `NcuBenchError` if there is none.
    """
    import webbrowser

    if not webbrowser.open(output.resolve().as_uri()):
        raise NcuBenchError(
            f"{output} is written, but no browser could be started.",
            "This machine has none, or no display.",
            f"Copy {output} to a machine with a browser; it needs no other file.",
        )
