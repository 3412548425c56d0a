"""Two runs compared inside one kernel: by line, opcode or function, as a table."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ncu_launch.errors import WrongUsage

from ncu_tools.cli.options import ROWS_SHOWN, hidden_rows, progress
from ncu_tools.cli.tables.compare.shared import PLACES, Compared, CompareRequest
from ncu_tools.kernels.names.distinct_names import distinct_names
from ncu_tools.kernels.source.compare_places import ComparedPlace, compare_places
from ncu_tools.kernels.source.kernel_code import KernelCode, kernel_code
from ncu_tools.kernels.source.load_instructions import load_instructions
from ncu_tools.kernels.source.source_text import SourceText, source_text
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.head import Head, told_apart
from ncu_tools.report.table import Table
from ncu_tools.runs.selection import kernel_patterns

COLUMNS = (
    column("place", wide=True),
    *columns(
        "base_share~1 new_share~1 change~0 base_executed~2 new_executed~2 executed_ratio~0 base_stall~3 "
        "new_stall~3 verdict~0"
    ),
)
MACHINE_READABLE = columns("share_change")


def compared_places(request: CompareRequest) -> Compared:
    """Compare the hottest kernel of two runs, or the one that --kernel names in both, place by place.

    Raises `WrongUsage` for more than two runs or options for kernels, and `NcuBenchError` without instructions.
    """
    by = request.how.group
    others = request.how.across or request.how.pairs or request.gated
    if len(request.runs) != len(("base", "new")) or others or request.dask:
        raise WrongUsage(
            f"--by {by} compares one kernel of two runs.",
            advice="Name two runs, and leave out --across, --pair, --fail-on and --dask.",
        )
    (base, base_text, base_notes), (new, new_text, new_notes) = (_code(run, request) for run in request.runs)

    rows = compare_places(base, new, by, (base_text, new_text))
    if not rows:
        raise WrongUsage(
            f"Neither run knows the {by}s of its instructions.",
            "Lines need -lineinfo of the compiler, opcodes the text of instructions (the extra ncu-rep).",
            f"Compare by another: {', '.join(one for one in PLACES if one != by)}.",
        )
    top = request.how.top if request.how.top or request.machine_readable else ROWS_SHOWN
    kernels = distinct_names((base.kernel_name, new.kernel_name))
    heads = [
        Head((run,), launches=code.launches, more=(kernels[code.kernel_name],))
        for run, code in zip(request.runs, (base, new), strict=True)
    ]
    notes = [*hidden_rows(len(rows), top, "place"), *base_notes, *new_notes]
    table = Table("compare", COLUMNS, [_row(row) for row in rows[:top]], notes, more=MACHINE_READABLE)
    return Compared(table, {}, heads=told_apart(heads))


def _code(run: str, request: CompareRequest) -> tuple[KernelCode, SourceText, list[str]]:
    with progress("Reading") as reading:
        loaded = load_instructions(run, reading)
    code = kernel_code(loaded.table, kernel_patterns(loaded.table, request.only))
    files = {file for file in code.table["file"].to_pylist() if file}
    return code, source_text(files, loaded.files, None), loaded.notes


def _row(row: ComparedPlace) -> dict[str, Any]:
    change = None if row.share_change is None else f"{row.share_change * 100:+.1f} points"
    verdict = None if row.is_in_base and row.is_in_new else "new" if row.is_in_new else "gone"
    return {**asdict(row), "change": change, "verdict": verdict}
