"""ncu-bench source: the hottest lines, instructions and functions of a kernel, with their stalls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from ncu_launch.errors import WrongUsage
from ncu_launch.notes import Note, NoteKind

from ncu_tools.cli.option_kinds.rows_and_order import Words, rows_and_order
from ncu_tools.cli.option_kinds.selection_options import selection_options
from ncu_tools.cli.options import format_option, hidden_rows, progress, rows_shown, show, source_root_option, top_option
from ncu_tools.cli.views import Verb
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    from ncu_tools.runs.selection import Selection

VIEWS = ("lines", "sass", "ptx", "functions")
ORDER = Words(("samples", "executed", "sectors", "conflicts"), "What places are ordered by.  [default: samples]")
REACH = 8
"""Instructions that --around shows on each side without --top."""


@click.command(cls=Verb)
@click.argument("run")
@selection_options
@click.option("--launch", type=click.IntRange(min=0), help="Only this launch; else all of the kernel, summed.")
@rows_and_order(orders=ORDER)
@click.option("--view", type=click.Choice(VIEWS), help="What a row is.  [default: lines; sass where no line is known]")
@click.option("--around", metavar="OFFSET", help="Show the instructions around this one, in their order.")
@source_root_option()
@top_option("places")
@format_option
def command(
    run: str,
    launch: int | None,
    order: str | None,
    view: str | None,
    around: str | None,
    source_root: Path | None,
    top: int | None,
    output_format: str,
    only: Selection | None,
) -> None:
    """Show the hottest source lines of a kernel, or its instructions, with the stall that dominates each.

    RUN is a binary report with counts per instruction (ncu --set full), its source page as CSV or text, or the output
    of parse --instructions. The default kernel is the one with the most samples. Counts of several launches are summed.
    With --view sass each row also names the instruction whose result is waited for. Instruction texts come from the
    page, or else from NVIDIA's package (the extra ncu-rep) or nvdisasm if installed.

    \b
    Example:
      ncu-bench source report.ncu-rep
      ncu-bench source report.ncu-rep --kernel softmax --view sass --top 10
      ncu-bench source report.ncu-rep --around 0x1d20
      ncu-bench source source.csv --sort sectors --source-root src
    """
    from ncu_tools.kernels.names.kernel_ids import kernel_id
    from ncu_tools.kernels.source import hot_places
    from ncu_tools.kernels.source.kernel_code import kernel_code
    from ncu_tools.kernels.source.load_instructions import load_instructions
    from ncu_tools.kernels.source.source_text import source_text
    from ncu_tools.report.source_table import (
        COLUMNS,
        MACHINE_READABLE,
        about,
        head_of_code,
        row_of,
        stall_notes,
        text_notes,
        view_to_show,
        what_to_rank_by,
    )

    if around is not None and view not in (None, "sass"):
        raise WrongUsage(f"--around shows instructions, and --view asks for {view}.", advice="Leave one of them out.")
    patterns: Sequence[re.Pattern[str]] = ()
    with progress("Reading") as reading:
        loaded = load_instructions(run, reading, hot_places.MEASURES_SHOWN)
        if only is not None and only.needs_launches:
            from ncu_tools.kernels.source.launches_named import instructions_named

            loaded = instructions_named(loaded, run, only, reading)
        if only is not None:
            from ncu_tools.runs.selection import kernel_patterns  # imports Arrow's Parquet

            patterns = kernel_patterns(loaded.table, only)
    code = kernel_code(loaded.table, patterns, launch)
    by, ranked_note = what_to_rank_by(code, order)
    if around is not None:
        offset = offset_in(around)
        nearest = hot_places.nearest_offset(code, offset)
        rows, notes = hot_places.around(code, offset, by, top or 2 * REACH + 1), []
        if nearest not in (offset, None):
            notes = [f"there is no instruction at {around}: these are around the nearest one, at 0x{nearest:04x}"]
    else:
        view, view_notes = view_to_show(code, view)
        shown = rows_shown(top, output_format)
        rows, every = hot_places.hottest(code, view, by, shown)
        notes = [*view_notes, *hidden_rows(every, shown, "place")]
    text = source_text((row.file for row in rows if row.file), loaded.files, source_root, loaded.sizes)
    stalls = [Note(note, NoteKind.PLAIN if place else NoteKind.IN_HEAD) for place, note in enumerate(stall_notes(code))]
    notes = [about(code), *ranked_note, *stalls, *text_notes(rows), *notes, *text.notes, *loaded.notes]
    of = {"kernel": code.kernel_name, "kernel_id": kernel_id(code.kernel_name), "launches": code.launches}
    shown_rows = [row_of(row, text) for row in rows]
    table = Table("source", COLUMNS, shown_rows, notes, {**of, "ranked_by": by}, MACHINE_READABLE)
    show(table, output_format, head=head_of_code(run, code, only))


def offset_in(text: str) -> int:
    """The offset that --around names. Raises `WrongUsage` for a text that is none."""
    try:
        return int(text, 0)
    except ValueError:
        raise WrongUsage(f"{text} is no offset.", advice="Write it as in the table: --around 0x1d20") from None
