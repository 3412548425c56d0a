"""ncu-bench advise BINARY: levers on kernels by their code alone."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import WrongUsage

from ncu_tools.cli.options import first_rows, format_option, show, top_option
from ncu_tools.cli.reading.binaries.code_arguments import Wanted, architecture_option, notes_on
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    from ncu_parsers.binaries.code_files import FoundKernel

COLUMNS = columns(
    "code.kernel architecture~4 code.title~0 code.count~1 count_unit~2 in_loops~1 code.place~1 code.says~5"
)
MORE = columns("code.lever code.remedy mangled")
BY_CODE = "by code alone: how often something stands there, not how long it takes"
MOST_KERNELS = 200
"""Most kernels that are disassembled without --kernel: those with most code."""


@click.command()
@click.argument("run", metavar="BINARY")
@click.option("--kernel", "name", metavar="REGEX", help="Kernels with this in their name.")
@architecture_option
@top_option("findings")
@format_option
def command(run: str, name: str | None, architecture: str | None, top: int | None, output_format: str) -> None:
    """Say what can be done about kernels by their code alone: how often, not how long.

    Looked for are spills, arrays in local memory, narrow accesses side by side, divisions, double constants in float
    code, index arithmetic in loops, and sums of products without tensor instructions; what is in loops comes first.
    All but spilled bytes needs nvdisasm (CUDA, or pip install triton). What a lever saves is said from a report of a
    run: advise REPORT.

    \b
    Example:
      ncu-bench advise build/extension.so --kernel softmax
      ncu-bench advise ~/.triton/cache --arch sm_90 --format json
    """
    from ncu_parsers.binaries.code_files import CodeReading

    from ncu_tools.binaries.kernel_listing import has_disassembler, needs_disassembler
    from ncu_tools.report.head import Head

    reading = CodeReading()
    wanted = Wanted(run, name, architecture, reading)
    closed = Counter[str]()
    kernels = heapq.nlargest(MOST_KERNELS, _open_ones(wanted, closed), key=_size)
    if not kernels and closed:
        raise WrongUsage(
            f"{run} holds only kernels of {' and '.join(closed)}, whose licence forbids disassembly.",
            advice=f"Their resources: ncu-bench kernel {run}",
        )
    rows = [row for one in sorted(kernels, key=lambda one: (one.path, one.image)) for row in _rows(one)]
    rows.sort(key=lambda row: not row["in_loops"])
    rows, hidden = first_rows(rows, top, output_format, "finding")
    notes = [BY_CODE, *_remedies(rows), *notes_on(reading)]
    if not has_disassembler():
        notes.insert(0, needs_disassembler("Advice on more than spilled bytes").paragraph)
    if closed:
        count = counted(closed.total(), "kernel was", "kernels were")
        notes.append(f"{count} left out: the licence of {' and '.join(closed)} forbids disassembly")
    if left := wanted.count - len(kernels) - closed.total():
        notes.append(f"{counted(left, 'smaller kernel was', 'smaller kernels were')} left out: --kernel names them")
    notes += hidden
    head = Head((run,), more=(counted(len(kernels), "kernel", "kernels"), "by code alone"))
    show(Table("code_advice", COLUMNS, rows, notes, {"basis": BY_CODE}, MORE), output_format, head=head)


def _open_ones(wanted: Iterable[FoundKernel], closed: Counter[str]) -> Iterator[FoundKernel]:
    """The kernels whose licence permits disassembly; the others are counted by library."""
    for one in wanted:
        if one.closed_library:
            closed[one.closed_library] += 1
        else:
            yield one


def _size(kernel: FoundKernel) -> int:
    return kernel.resources.code_bytes or 0


def _rows(kernel: FoundKernel) -> list[dict[str, Any]]:
    from ncu_tools.binaries.advice_by_code import advice_by_code, advice_without_instructions
    from ncu_tools.binaries.code_names import readable_code_name
    from ncu_tools.binaries.kernel_listing import listing_of
    from ncu_tools.binaries.static_facts import facts_of

    listing = listing_of(kernel)
    findings = (
        advice_without_instructions(kernel.resources) if listing is None else advice_by_code(listing, facts_of(listing))
    )
    return [
        {
            "kernel": readable_code_name(kernel.resources.name),
            "mangled": kernel.resources.name,
            "architecture": kernel.resources.architecture,
            "lever": one.lever,
            "title": one.title,
            "count": one.count,
            "count_unit": one.unit,
            "in_loops": one.in_loops,
            "place": one.place,
            "says": one.says,
            "remedy": one.remedy,
        }
        for one in findings
    ]


def _remedies(rows: list[dict[str, Any]]) -> list[str]:
    """The remedy of each lever shown, once each."""
    return [f"{title}: {remedy}" for title, remedy in dict.fromkeys((row["title"], row["remedy"]) for row in rows)]
