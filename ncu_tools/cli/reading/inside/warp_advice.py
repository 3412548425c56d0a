"""ncu-bench advise WARP_TRACE: levers on a kernel's time, from the timeline of its warps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from ncu_launch.notes import Note, NoteKind

from ncu_tools.cli.option_kinds.warp_trace_options import warp_trace_options
from ncu_tools.cli.options import (
    echo_page,
    first_rows,
    format_option,
    page_width,
    progress,
    show,
    top_option,
)
from ncu_tools.cli.reading.inside.in_time import (
    WIDEST,
    beside_option,
    counters_beside,
    head_of_inside,
    inside_of_trace,
    other_launches,
)
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    from ncu_tools.cli.option_kinds.warp_trace_options import WarpTraceOptions
    from ncu_tools.kernels.warp_ranges.warp_levers import WarpLever

COLUMNS = columns(
    "warps.lever warps.title warps.saves_share warps.saves_low warps.saves_high warps.evidence warps.remedy "
    "warps.check warps.unknown"
)
SHOWN = columns("warps.title warps.saves_share warps.saves_low warps.saves_high warps.remedy")
NO_LEVER = "no lever applies: no ring is too shallow, no role too busy, no tail, barrier or late start stands out"
NOT_CONFIRMED = Note(
    "savings are replays of recorded waits, held to simulated pipelines; no GPU has confirmed them", NoteKind.ESTIMATE
)


@click.command()
@beside_option
@top_option("levers")
@warp_trace_options
@format_option
def command(trace: str, beside: str | None, top: int | None, output_format: str, options: WarpTraceOptions) -> None:
    """Say what can be done about a kernel, from what its warps did: its pipeline, roles, tiles, barriers and starts.

    WARP_TRACE and options are as for kernel --part inside. A saving is an interval of the launch's time: a replay of
    all waits with what the lever changes.

    \b
    Example:
      ncu-bench advise iket.trace.json
      ncu-bench advise iket.trace.json --beside gemm.ncu-rep
      ncu-bench advise ranges.parquet --format json
    """
    from ncu_tools.kernels.warp_ranges.warp_levers import warp_levers

    with progress("Reading"):
        read, _ = options.read(trace)
        found = inside_of_trace(read, options)
        levers = warp_levers(found)
        counted = counters_beside(beside, found)
    shown, hidden = first_rows(levers, top, output_format, "lever")
    rows = [row_of(one) for one in shown]
    notes = [
        *hidden,
        *counted,
        *([NOT_CONFIRMED] if levers else []),
        *other_launches(read, found),
        *found.notes,
    ]
    head = head_of_inside(trace, found)
    if output_format != "text":
        columns_shown = SHOWN if output_format == "markdown" else COLUMNS
        extra = {"kernel": found.ranges.launch.kernel, "launch": found.ranges.number}
        show(Table("warp_levers", columns_shown, rows, notes, extra), output_format, head=head)
        return
    lines = [line for number, row in enumerate(rows, 1) for line in _lines(row, number, page_width(WIDEST))]
    echo_page(lines or ["", NO_LEVER], notes, head, widest=WIDEST)


def row_of(one: WarpLever) -> dict[str, Any]:
    """A lever as a row."""
    said = {key: one.said(key) for key in ("title", "remedy", "check", "unknown")}
    return {
        "lever": one.lever, **said, "saves_share": one.saving.likely, "saves_low": one.saving.low,
        "saves_high": one.saving.high, "evidence": list(one.evidence),
    }  # fmt: skip


def _lines(row: dict[str, Any], number: int, width: int) -> list[str]:
    from ncu_tools.cli.tables.part_text import hanging
    from ncu_tools.numbers.number_format import percent

    likely, low, high = (percent(row[name]) for name in ("saves_share", "saves_low", "saves_high"))
    found = [f"{number}. {row['title']}: saves {likely}, {low} to {high}"]
    for key, text in (
        ("because", "; ".join(row["evidence"])), ("do", row["remedy"]), ("not known", row["unknown"]),
        ("check", row["check"]),
    ):  # fmt: skip
        found += hanging(f"   {key}:", text, width)
    return [*found, ""]
