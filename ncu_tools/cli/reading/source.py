"""ncu-bench source: the hottest lines, instructions and functions of a kernel, with their stalls."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import WrongUsage

from ncu_tools.cli.options import MACHINE_FORMATS, format_option, hidden_rows, progress, rows_shown, show, top_option
from ncu_tools.numbers.number_format import counted, percent
from ncu_tools.report.table import Column, Table

if TYPE_CHECKING:
    from ncu_tools.kernels.source.hot_places import HotPlace
    from ncu_tools.kernels.source.kernel_code import KernelCode
    from ncu_tools.kernels.source.source_text import SourceText

VIEWS = ("lines", "sass", "ptx", "functions")
RANKED_BY = {
    "samples": "samples of warps",
    "executed": "executed instructions",
    "sectors": "sectors asked of L2",
    "conflicts": "wavefronts beyond the ideal, from bank conflicts",
}
REACH = 8
"""Instructions that --around shows on each side."""
WHOLE_KERNEL = 3
"""Stall reasons of the whole kernel that a note explains."""

COLUMNS = (
    Column("place", "place"),
    Column("share", "share", "fraction", spare=0),
    Column("samples", "samples", "count", spare=2),
    Column("stall", "stall", spare=0),
    Column("stall_share", "of stalls", "fraction", spare=1),
    Column("executed", "executed", "number", "inst", spare=3),
    Column("sectors", "L2 sectors", "number", "sector", spare=4),
    Column("sectors_over_ideal", "x ideal", "number", spare=4),
    Column("conflicts_over_ideal", "shared x ideal", "number", spare=4),
    Column("live_registers", "live", "count", "register", spare=5),
    Column("text", "text", wide=True),
    Column("waits_for", "waits for", wide=True),
)
MACHINE_READABLE = (
    Column("file", "file"),
    Column("line", "line", "count"),
    Column("function", "function"),
    Column("offset", "offset", "count", "byte"),
    Column("instructions", "instructions", "count"),
    Column("samples_not_issued", "not issued", "count"),
    Column("sectors_ideal", "ideal sectors", "number", "sector"),
    Column("shared_wavefronts", "shared wavefronts", "number"),
    Column("shared_wavefronts_ideal", "ideal wavefronts", "number"),
)


@click.command()
@click.argument("run")
@click.option("--kernel", "kernels", multiple=True, metavar="REGEX", help="A kernel in whose full name this is found.")
@click.option("--launch", type=click.IntRange(min=0), help="Only this launch; else all of the kernel, summed.")
@click.option("--by", type=click.Choice(tuple(RANKED_BY)), help="What places are ranked by.  [default: samples]")
@click.option("--view", type=click.Choice(VIEWS), help="What a row is.  [default: lines; sass where no line is known]")
@click.option("--around", metavar="OFFSET", help="Show the instructions around this one, in their order.")
@click.option(
    "--source-root", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
    help="Look for the text of source lines below this folder.",
)  # fmt: skip
@top_option("places")
@format_option
def command(
    run: str,
    kernels: tuple[str, ...],
    launch: int | None,
    by: str | None,
    view: str | None,
    around: str | None,
    source_root: Path | None,
    top: int | None,
    output_format: str,
) -> None:
    """Show the hottest source lines of a kernel, or its instructions, with the stall that dominates each.

    RUN is a binary report with counts per instruction (ncu --set full), its source page as CSV or text, or what parse
    --instructions wrote of it. Without --kernel it is the kernel with the most samples. Counts of several launches of
    it are summed. With --view sass each row also names the instruction whose result is waited for. The text of
    instructions is that of the page, or of NVIDIA's package where it is installed (the extra ncu-rep).

    \b
    Example:
      ncu-bench source report.ncu-rep
      ncu-bench source report.ncu-rep --kernel softmax --view sass --top 10
      ncu-bench source report.ncu-rep --around 0x1d20
      ncu-bench source source.csv --by sectors --source-root src
    """
    from ncu_tools.kernels.source import hot_places
    from ncu_tools.kernels.source.kernel_code import kernel_code
    from ncu_tools.kernels.source.load_instructions import load_instructions
    from ncu_tools.kernels.source.source_text import source_text
    from ncu_tools.runs.selection import pattern_of

    with progress("Reading") as reading:
        loaded = load_instructions(run, reading)
    code = kernel_code(loaded.table, tuple(map(pattern_of, kernels)), launch)
    by, ranked_note = _ranked(code, by)
    if around is not None:
        rows, notes = hot_places.around(code, _offset(around), by, REACH), []
    else:
        view, view_notes = _view(code, view)
        shown = rows_shown(top, output_format)
        rows, every = hot_places.hottest(code, view, by, shown)
        notes = [*view_notes, *hidden_rows(every, shown, "more place", "more places")]
    text = source_text((row.file for row in rows if row.file), loaded.files, source_root)
    columns = (*COLUMNS, *MACHINE_READABLE) if output_format in MACHINE_FORMATS else COLUMNS
    notes = [_about(code), *ranked_note, *_stall_notes(code), *notes, *text.notes, *loaded.notes]
    extra = {"kernel": code.kernel_name, "launches": code.launches, "ranked_by": by}
    show(Table("source", columns, [_row(row, text) for row in rows], notes, extra), output_format)


def _ranked(code: KernelCode, by: str | None) -> tuple[str, list[str]]:
    """What to rank by. Raises `WrongUsage` where what was asked for was not collected."""
    from ncu_tools.kernels.source.hot_places import MEASURE_OF

    there = [name for name in RANKED_BY if code.total(MEASURE_OF[name]) is not None]
    if by is None:
        chosen = there[0] if there else "samples"
        return chosen, [] if chosen == "samples" else [f"ranked by {RANKED_BY[chosen]}: no samples were collected"]
    if by not in there:
        raise WrongUsage(
            f"{RANKED_BY[by].capitalize()} were not collected for this kernel.",
            f"There are: {', '.join(there)}." if there else "It has no counts, only the text of instructions.",
            "Rank by one of these, or collect more: ncu --set full",
        )
    return by, []


def _view(code: KernelCode, view: str | None) -> tuple[str, list[str]]:
    """The view to show, with a note where it is another one than lines because no line is known."""
    known = {"lines": "line", "ptx": "ptx_line", "functions": "function", "sass": "offset"}
    there = [name for name, column in known.items() if code.table[column].null_count < len(code.table)]
    if view is None and "lines" in there:
        return "lines", []
    if view is None:
        return "sass", ["no instruction is known to come from a source line; compile with -lineinfo to see lines"]
    if view not in there:
        raise WrongUsage(
            f"The report has nothing for --view {view}.",
            "Lines and PTX need -lineinfo of the compiler, and for source pages the view: ncu --print-source cuda,sass",
            f"There are: {', '.join(there)}.",
        )
    return view, []


def _offset(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise WrongUsage(f"{text} is no offset.", advice="Write it as in the table: --around 0x1d20") from None


def _row(row: HotPlace, text: SourceText) -> dict[str, Any]:
    return {
        **asdict(row),
        "text": row.sass if row.sass is not None else text.of(row.file, row.line),
        "sectors_over_ideal": _ratio(row.sectors, row.sectors_ideal),
        "conflicts_over_ideal": _ratio(row.shared_wavefronts, row.shared_wavefronts_ideal),
    }


def _ratio(value: float | None, ideal: float | None) -> float | None:
    return value / ideal if value and ideal else None


def _about(code: KernelCode) -> str:
    samples = code.total("samples")
    parts = [counted(code.launches, "launch", "launches"), counted(len(code.table), "instruction", "instructions")]
    if samples is not None:
        parts.append(f"{samples:,.0f} samples")
    if code.share is not None and code.of_kernels > 1:
        parts.append(f"{percent(code.share)} of those of {code.of_kernels} kernels")
    return f"{code.kernel_name}: {', '.join(parts)}"


def _stall_notes(code: KernelCode) -> list[str]:
    """What the kernel's most frequent stalls mean, and what usually helps."""
    from ncu_tools.kernels.source.stalls import REASONS, stall_counts, stalls

    sums = stall_counts(code).sum(axis=0)
    whole = sums.sum()
    order = sorted(range(len(REASONS)), key=lambda place: -sums[place])[:WHOLE_KERNEL]
    notes = []
    for place in order:
        if sums[place] > 0:
            stall = stalls()[REASONS[place]]
            advice = f" ({stall.advice})" if stall.advice else ""
            notes.append(f"{percent(sums[place] / whole)} of stalls are {stall.title}: {stall.meaning}{advice}")
    return notes
