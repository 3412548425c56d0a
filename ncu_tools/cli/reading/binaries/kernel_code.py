"""ncu-bench kernel BINARY: the kernels of compiled code, or one of them whole, without a run."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import WrongUsage

from ncu_tools.cli.options import (
    MACHINE_FORMATS,
    echo_page,
    format_option,
    hidden_rows,
    page_width,
    rows_shown,
    show,
    show_if_any,
    top_option,
)
from ncu_tools.cli.reading.binaries.code_arguments import Wanted, architecture_option, notes_on
from ncu_tools.cli.tables.part_text import WIDTH, of_values, paragraph
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    from ncu_parsers.binaries.code_files import CodeReading, FoundKernel
    from ncu_parsers.binaries.kernel_resources import PtxKernel

    from ncu_tools.binaries.static_facts import StaticFacts

COLUMNS = columns(
    "code.kernel architecture~2 code.registers~0 spill_bytes~0 stack_bytes~5 static_shared_bytes~3 barriers~7 "
    "block_threads~2 theoretical_occupancy~1 limited_by~4 code_bytes~6"
)
MORE = columns(
    "mangled spill_store_bytes spill_load_bytes threads_known blocks_per_sm max_threads register_limit parameter_bytes "
    "toolkit code.file image library"
)
OF_ONE = (*columns("part title"), column("value", kind="text"), *columns("against"))
MACHINE_READABLE = columns("part key title value value.unit against code.measured")
FOLDER_SHOWN = 8
"""Letters shown of a folder's name, since those of caches are hashes."""
ORDERS = ("spills", "registers", "shared", "occupancy", "code", "name")
UNMARKED = "spills are not known of kernels compiled before CUDA 12.6 that have a stack: ptxas marked none"
ASSUMED = "occupancy is of blocks of 256 threads where neither launch bounds nor metadata say how many"

Row = dict[str, Any]


@click.command()
@click.argument("run", metavar="BINARY")
@click.argument("name", required=False)
@architecture_option
@click.option("--sort", "order", type=click.Choice(ORDERS), default="spills", help="[default: spills, then registers]")
@click.option("--with", "report", metavar="REPORT", help="Show a measured launch of the kernel beside its code.")
@top_option("kernels")
@format_option
def command(
    run: str,
    name: str | None,
    architecture: str | None,
    order: str,
    report: str | None,
    top: int | None,
    output_format: str,
) -> None:
    """Show what kernels take of an SM by their code alone: registers, spills, shared memory, theoretical occupancy.

    BINARY is a cubin, a fat binary, a library or program with kernels inside, PTX, what ptxas -v or cuobjdump
    -res-usage printed, or a folder of these, such as the cache of Triton or torch.compile. If one kernel is left by
    NAME and --arch, it is shown whole, with its instructions if nvdisasm is there (CUDA, or pip install triton).

    \b
    Example:
      ncu-bench kernel build/extension.so --sort registers --top 10
      ncu-bench kernel ~/.triton/cache softmax --arch sm_90
      ncu-bench kernel kernels.cubin gemm --with report.ncu-rep
    """
    from ncu_parsers.binaries.code_files import CodeReading

    reading = CodeReading()
    wanted = Wanted(run, name, architecture, reading)
    shown = rows_shown(top, output_format)
    kept = _first_kernels(wanted, order, shown)
    alone = kept if wanted.count == 1 else [one for one in kept if name in _names(one)]
    if len(alone) == 1:
        _show_one(alone[0], _ptx_of(alone[0], reading), report, notes_on(reading), output_format)
        return
    if report is not None:
        raise WrongUsage("--with goes with one kernel.", f"{wanted.count:,} are left.", "Name one, and --arch sm_90.")
    rows = _rows(kept) if output_format in MACHINE_FORMATS else _with_files(_rows(kept))
    notes = [
        *_notes(rows, wanted),
        *notes_on(reading),
        *hidden_rows(wanted.count, shown, "kernel"),
    ]
    architectures = sorted(filter(None, wanted.architectures))
    head = _head(run, (counted(wanted.count, "kernel", "kernels"), *architectures))
    show_if_any(Table("binary", COLUMNS, rows, notes, _extra(reading), MORE), output_format, head)


def _head(run: str, facts: Iterable[str]) -> Any:
    from ncu_tools.report.head import Head

    return Head((run,), more=tuple(facts))


def _names(kernel: FoundKernel) -> tuple[str, ...]:
    from ncu_tools.binaries.code_names import code_path, full_code_name, readable_code_name

    name = kernel.resources.name
    return name, code_path(name), full_code_name(name), readable_code_name(name)


def _first_kernels(wanted: Iterable[FoundKernel], order: str, shown: int | None) -> list[FoundKernel]:
    """The first kernels in an order; those beyond `shown` are not kept in memory."""
    key = _key(order)
    return sorted(wanted, key=key) if shown is None else heapq.nsmallest(shown, wanted, key=key)


def _key(order: str) -> Callable[[FoundKernel], Any]:
    from ncu_tools.binaries.code_rows import table_row

    columns_of = {
        "spills": ("spill_bytes", "registers"), "registers": ("registers", "spill_bytes"),
        "shared": ("static_shared_bytes", "registers"), "code": ("code_bytes", "registers"),
    }  # fmt: skip

    def key(one: FoundKernel) -> Any:
        if order == "name":
            return one.resources.name, one.resources.architecture
        row = table_row(one.resources)
        if order == "occupancy":
            fraction = row["theoretical_occupancy"]
            return 2.0 if fraction is None else fraction, one.resources.name
        return (*(-(row[name] or 0) for name in columns_of[order]), one.resources.name)

    return key


def _rows(kept: list[FoundKernel]) -> list[Row]:
    from ncu_tools.binaries.code_names import names_apart
    from ncu_tools.binaries.code_rows import table_row

    names = names_apart({one.resources.name for one in kept})
    return [
        {
            **table_row(one.resources),
            "kernel": names[one.resources.name],
            "file": one.path,
            "image": one.image,
            "library": one.closed_library or None,
        }
        for one in kept
    ]


def _with_files(rows: list[Row]) -> list[Row]:
    """The rows, with the folder or file added to names that several rows of one architecture share."""
    files = defaultdict[Any, set[Path]](set)
    for row in rows:
        files[row["kernel"], row["architecture"]].add(Path(row["file"]))
    shown = []
    for row in rows:
        file, others = Path(row["file"]), files[row["kernel"], row["architecture"]]
        place = file.parent.name[:FOLDER_SHOWN] if len({one.parent for one in others}) > 1 else file.name
        shown.append({**row, "kernel": f"{row['kernel']} in {place}"} if len(others) > 1 else row)
    return shown


def _notes(rows: list[Row], wanted: Wanted) -> Iterator[str]:
    from ncu_tools.binaries.code_names import readable_code_name

    if any(row["spill_bytes"] is None for row in rows):
        yield UNMARKED
    if not all(row["threads_known"] for row in rows):
        yield ASSUMED
    libraries = sorted({row["library"] for row in rows if row["library"]})
    if libraries:
        yield f"{', '.join(libraries)}: the licence forbids disassembly, so only resources are shown"
    alone = sorted(
        {readable_code_name(one.name) for _, one in wanted.reading.ptx if hash(one.name) not in wanted.names}
    )
    if alone and wanted.name is None and wanted.architecture is None:
        some = ", ".join(alone[:3]) + (f" and {len(alone) - 3:,} more" if len(alone) > 3 else "")
        path, first = wanted.reading.ptx[0]
        how = f"; compile it to see registers and spills: ptxas --gpu-name {first.target} {path} -o FILE.cubin"
        yield (f"as PTX alone, which a driver compiles when it is loaded: {some}{how if path.endswith('.ptx') else ''}")


def _extra(reading: CodeReading) -> Row:
    return {
        "ptx": [
            {"mangled": one.name, "target": one.target, "file": path, "min_blocks": one.min_blocks}
            for path, one in reading.ptx
        ]
    }


# ------------------------------------------------------------------------------------------------------ one kernel


def _ptx_of(kernel: FoundKernel, reading: CodeReading) -> PtxKernel | None:
    return next((one for _, one in reading.ptx if one.name == kernel.resources.name), None)


def _show_one(
    kernel: FoundKernel, ptx: PtxKernel | None, report: str | None, notes: list[str], output_format: str
) -> None:
    from ncu_tools.binaries.code_names import readable_code_name
    from ncu_tools.binaries.code_rows import PARTS

    rows, missing = _rows_of_one(kernel, ptx, report)
    resources = kernel.resources
    compiled = f"compiled by CUDA {resources.toolkit}" if resources.toolkit else ""
    name = readable_code_name(resources.name)
    head = _head(kernel.path, filter(None, (name, resources.architecture, compiled)))
    notes = [*missing, *notes]
    extra = {"kernel": resources.name, "architecture": resources.architecture, "toolkit": resources.toolkit or None}
    if output_format in MACHINE_FORMATS:
        show(Table("binary", MACHINE_READABLE, rows, notes, extra), output_format, head=head)
        return
    if output_format == "markdown":
        named = [{**row, "part": PARTS[row["part"]], "value": row["text"]} for row in rows]
        show(Table("binary", OF_ONE, named, notes), output_format, head=head)
        return
    width = page_width(WIDTH)
    lines = paragraph("By code alone: how often an instruction stands there, not how long it takes.", width)
    for part, title in PARTS.items():
        of_part = [{**row, "value": row["text"]} for row in rows if row["part"] == part]
        lines += ["", title, *of_values(of_part, width)] if of_part else []
    echo_page(lines, notes, head, widest=WIDTH)


def _rows_of_one(kernel: FoundKernel, ptx: PtxKernel | None, report: str | None) -> tuple[list[Row], list[str]]:
    """The rows of one kernel, with the measured launch in `report`; and reasons for missing parts."""
    from ncu_tools.binaries.joined_with_report import joined

    rows, notes, facts = _rows_of_code(kernel, ptx)
    if report is None:
        return rows, notes
    found = joined(kernel.resources, report, facts)
    return rows + found.rows, [found.code, *notes]


def _rows_of_code(kernel: FoundKernel, ptx: PtxKernel | None) -> tuple[list[Row], list[str], StaticFacts | None]:
    """The rows of one kernel by its code, reasons for missing parts, and the facts of its instructions if known."""
    from ncu_tools.binaries import code_rows
    from ncu_tools.binaries.kernel_listing import listing_of
    from ncu_tools.binaries.static_facts import facts_of

    rows = [*code_rows.resource_rows(kernel.resources, ptx), *code_rows.occupancy_rows(kernel.resources)]
    listing = None if kernel.closed_library else listing_of(kernel)
    if listing is None:
        return rows, [_why_no_instructions(kernel)], None
    facts = facts_of(listing)
    rows += code_rows.spill_rows(listing)
    rows += [*code_rows.instruction_rows(facts), *code_rows.loop_rows(listing, facts), *code_rows.live_rows(listing)]
    unknown = "live registers are not known: it jumps to computed addresses, or is too long"
    return rows, [] if listing.live is not None else [unknown], facts


def _why_no_instructions(kernel: FoundKernel) -> str:
    from ncu_tools.binaries.kernel_listing import has_disassembler, needs_disassembler

    if kernel.closed_library:
        return f"instructions are not shown: the licence of {kernel.closed_library} forbids disassembly"
    if kernel.resources.code_bytes is None:
        return "what ptxas or cuobjdump printed holds no instructions: name the binary itself"
    if not has_disassembler():
        return needs_disassembler("The rest").paragraph
    return "nvdisasm could not read this kernel: it may be older than the code"
