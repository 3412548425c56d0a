"""ncu-bench source BINARY: the lines and instructions of one kernel by its code alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import WrongUsage

from ncu_tools.cli.options import first_rows, format_option, show, source_root_option, top_option
from ncu_tools.cli.reading.binaries.code_arguments import Wanted, architecture_option, notes_on
from ncu_tools.cli.reading.inside.source import REACH, offset_in
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    from ncu_parsers.binaries.code_files import FoundKernel

    from ncu_tools.binaries.kernel_listing import CodeListing

COLUMNS = columns("code.place instruction_count~1 local_bytes~0 live_registers~0 source.text kinds~3")
MACHINE_READABLE = columns("file line offset")
ORDERS = ("spills", "live", "instructions")
BY = {"spills": "local_bytes", "live": "live_registers", "instructions": "instruction_count"}
VIEWS = ("lines", "sass")

Row = dict[str, Any]


@click.command()
@click.argument("run", metavar="BINARY")
@click.option("--kernel", "name", metavar="REGEX", help="A kernel by a part of its name.  [default: the largest]")
@architecture_option
@click.option("--view", type=click.Choice(VIEWS), help="What a row is.  [default: lines; sass where none is known]")
@click.option("--sort", "order", type=click.Choice(ORDERS), help="What rows are ordered by.  [default: the code]")
@click.option("--around", metavar="OFFSET", help="Show the instructions around this one, in their order.")
@source_root_option()
@top_option("places")
@format_option
def command(
    run: str,
    name: str | None,
    architecture: str | None,
    view: str | None,
    order: str | None,
    around: str | None,
    source_root: Path | None,
    top: int | None,
    output_format: str,
) -> None:
    """Show the source lines of a kernel, or its instructions, with spills and live registers, by its code alone.

    BINARY is a cubin, a fat binary, a library, or a folder of these. Lines need a build with -lineinfo (Triton has
    them), and instructions need nvdisasm (CUDA, or pip install triton). Numbers say how often an instruction stands in
    the code, not how often it runs.

    \b
    Example:
      ncu-bench source kernels.cubin --kernel gemm --sort spills
      ncu-bench source build/extension.so --kernel softmax --arch sm_90 --view sass --format json
      ncu-bench source kernels.cubin --around 0x1d0
    """
    from ncu_parsers.binaries.code_files import CodeReading

    from ncu_tools.binaries.code_names import readable_code_name
    from ncu_tools.binaries.kernel_listing import has_disassembler, listing_of, needs_disassembler
    from ncu_tools.kernels.source.source_text import source_text
    from ncu_tools.report.head import Head

    if around is not None and order is not None:
        raise WrongUsage("--around shows instructions in their order.", advice="Leave --sort out.")
    reading = CodeReading()
    if not has_disassembler():
        raise needs_disassembler(f"What is inside the kernels of {run}")
    kernel, others = _largest(Wanted(run, name, architecture, reading), run)
    listing = listing_of(kernel)
    if listing is None:
        raise WrongUsage(f"{kernel.path} holds no instructions that nvdisasm can read.", advice="Name a newer one.")
    rows, notes = _rows(listing, view, order, around)
    if around is None:
        rows, hidden = first_rows(rows, top, output_format, "place")
        notes += hidden
    text = source_text((row["file"] for row in rows if row["file"]), {}, source_root)
    rows = [row if row.get("text") else {**row, "text": text.of(row["file"], row["line"])} for row in rows]
    if others:
        notes.append(f"{counted(others, 'more kernel', 'more kernels')}: --kernel and --arch choose")
    resources = kernel.resources
    head = Head((kernel.path,), more=(readable_code_name(resources.name), resources.architecture, "by code alone"))
    of = {"kernel": resources.name, "architecture": resources.architecture}
    table = Table("code_places", COLUMNS, rows, [*notes, *text.notes, *notes_on(reading)], of, MACHINE_READABLE)
    show(table, output_format, head=head)


def _largest(wanted: Wanted, run: str) -> tuple[FoundKernel, int]:
    """The kernel with most code among the requested ones, and the number of others."""
    with_code = [one for one in wanted if not one.closed_library] if wanted.name else _only_largest(wanted)
    if not with_code:
        raise WrongUsage(
            f"{run} holds no kernel whose instructions can be shown.",
            "It holds only PTX, or its licence forbids disassembly.",
            f"Its resources: ncu-bench kernel {run}",
        )
    return max(with_code, key=lambda one: one.resources.code_bytes or 0), wanted.count - 1


def _only_largest(wanted: Wanted) -> list[FoundKernel]:
    largest = max(
        (one for one in wanted if not one.closed_library), key=lambda one: one.resources.code_bytes or 0, default=None
    )
    return [] if largest is None else [largest]


def _rows(listing: CodeListing, view: str | None, order: str | None, around: str | None) -> tuple[list[Row], list[str]]:
    from ncu_tools.binaries.code_places import rows_of_instructions, rows_of_lines

    if around is not None:
        return _rows_around(rows_of_instructions(listing), around), []
    lines = [] if view == "sass" else rows_of_lines(listing)
    if view == "lines" and not lines:
        raise WrongUsage("No line is known.", "It was compiled without -lineinfo.", "See --view sass.")
    rows = lines or rows_of_instructions(listing)
    if order is not None:
        rows.sort(key=lambda row: -(row.get(BY[order]) or 0))
    return rows, [] if lines or view else ["instructions in place of lines: compiled without -lineinfo"]


def _rows_around(rows: list[Row], text: str) -> list[Row]:
    offset = offset_in(text)
    nearest = min(range(len(rows)), key=lambda place: abs(rows[place]["offset"] - offset))
    return rows[max(nearest - REACH, 0) : nearest + REACH + 1]
