"""ncu-bench kernel WARP_TRACE --part inside: the timeline of warp roles inside a kernel, and their waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import NcuBenchError
from ncu_launch.notes import Note, NoteKind

from ncu_tools.cli.option_kinds.warp_trace_options import warp_trace_options
from ncu_tools.cli.options import (
    MACHINE_FORMATS,
    echo_head,
    echo_markdown,
    echo_notes,
    echo_text,
    format_option,
    page_width,
    progress,
    show,
)
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table, printable

if TYPE_CHECKING:
    from ncu_parsers.warp_ranges.warp_trace import WarpTrace

    from ncu_tools.cli.option_kinds.warp_trace_options import WarpTraceOptions
    from ncu_tools.kernels.warp_ranges.inside_kernel import InsideKernel
    from ncu_tools.report.head import Head

WIDEST = 120
SUMS = columns("warps.kernel warps.range warps.total warps.sum_share")
beside_option = click.option(
    "--beside", metavar="REPORT", help="Say what ncu counted of the same kernel in this report."
)


@click.command()
@click.option("--part", type=click.Choice(["inside"]), expose_value=False, hidden=True)
@click.option(
    "--what-if", "asked", metavar="RANGE=FACTOR", multiple=True,
    help="What the kernel saves then: mma_issue=0.5x, tma_*=0.8x, epi_barrier=0. May be repeated.",
)  # fmt: skip
@click.option("--block", type=click.IntRange(min=0), help="Draw this block.  [default: the slowest and the median one]")
@beside_option
@warp_trace_options
@format_option
def command(
    trace: str, asked: tuple[str, ...], block: int | None, beside: str | None, output_format: str,
    options: WarpTraceOptions,
) -> None:  # fmt: skip
    """Show what each role of warps does inside a kernel, in time, who waits for whom, and what a shorter range brings.

    WARP_TRACE is a file of run-iket, Proton or flashinfer's profiler as parse takes, or the Parquet file that it wrote.
    NAME is searched in the names of kernels. Roles are warps whose ranges have the same names. Who ends a wait is
    inferred: the range whose ends come closest before the ends of the waits, in turn. The longest chain runs over
    these; what-ifs are a replay of all waits, blocks behind one another on their SMs. In lanes, work has letters and
    waits have dots.

    \b
    Example:
      ncu-bench kernel iket.trace.json --part inside
      ncu-bench kernel iket.trace.json --part inside --what-if "mma_issue=0.5x"
      ncu-bench kernel trace.chrome_trace --part inside --roles 0=load,1-8=mma
      ncu-bench kernel buffer.npy --part inside --event-names load,mma,store --kind load=copy
    """
    from ncu_tools.cli.tables.part_text import paragraph
    from ncu_tools.cli.tables.warp_lanes import lane_lines
    from ncu_tools.report.warp_tables import (
        RANGES,
        SHOWN_CHAIN,
        SHOWN_RANGES,
        phase_sentences,
        readable,
        sections,
    )

    with progress("Reading"):
        read, _ = options.read(trace)
        if read.sums:
            _show_sums(read, output_format)
            return
        found = inside_of_trace(read, options, asked)
        counted = counters_beside(beside, found)
    head = head_of_inside(trace, found)
    notes = [*counted, *other_launches(read, found), *found.notes]
    parts = sections(found)
    if output_format in MACHINE_FORMATS:
        rows = next(one.rows for one in parts if one.key == "ranges")
        show(Table("inside", RANGES, rows, notes, extra_of(found)), output_format, head=head)
        return
    echo_head(head, output_format, widest=WIDEST)
    width = page_width(WIDEST)
    for one in parts:
        most = {"ranges": SHOWN_RANGES, "chain": SHOWN_CHAIN}.get(one.key)
        shown = readable(one, found.ranges.clock, most)
        table = Table("inside", shown.columns, shown.rows, [])
        if output_format == "markdown":
            click.echo(f"**{one.title}**\n")
            echo_markdown(table)
        else:
            click.echo(f"{one.title}")
            echo_text(table)
        if one.key == "ranges":
            for sentence in map(printable, phase_sentences(found)):
                click.echo("\n".join(paragraph(sentence, width)) if output_format == "text" else f"* {sentence}")
        click.echo()
    lanes = "\n".join(lane_lines(found, width, block))
    click.echo(lanes if output_format == "text" else f"```text\n{lanes}\n```")
    if output_format == "markdown":
        click.echo("".join(f"\n* {printable(note)}" for note in notes))
    else:
        echo_notes(notes)


def inside_of_trace(read: WarpTrace, options: WarpTraceOptions, asked: tuple[str, ...] = ()) -> InsideKernel:
    """The analysis of the launch that the options choose. Raises `NcuBenchError` for a trace without times."""
    from ncu_tools.kernels.warp_ranges.inside_kernel import inside_kernel
    from ncu_tools.kernels.warp_ranges.launch_ranges import chosen_launch

    if read.sums:
        raise NcuBenchError(
            "This tree of Proton has total cycles of ranges, and no times.", "It tells shares alone.",
            'Record times with: proton.start(backend="instrumentation", data="trace")',
        )  # fmt: skip
    number = chosen_launch(read, options.launch, options.pattern)
    return inside_kernel(read, number, options.roles, options.kinds, asked)


def head_of_inside(trace: str, found: InsideKernel) -> Head:
    """The line above the tables: the kernel, its launch and blocks; below it the most important sentence."""
    from ncu_tools.kernels.names.readable_names import readable_name
    from ncu_tools.report.head import head_of
    from ncu_tools.report.warp_tables import facts, first_sentence

    more = (readable_name(found.ranges.launch.kernel), *facts(found))
    return head_of([trace], more=more, first=first_sentence(found))


def other_launches(read: WarpTrace, found: InsideKernel) -> list[str]:
    """A note on the launches that are not shown."""
    others = len(set(read.warps.launch.tolist())) - 1
    if not others:
        return []
    shown = (
        f"this is launch {found.ranges.number}, the median of its kernel; --launch or a kernel's name chooses another"
    )
    return [Note(f"the trace has {others} more {'launches' if others > 1 else 'launch'}; {shown}", NoteKind.MORE)]


def extra_of(found: InsideKernel) -> dict[str, Any]:
    """Further JSON keys besides the ranges."""
    from dataclasses import asdict

    from ncu_tools.report.warp_tables import sections

    ranges = found.ranges
    parts = {one.key: one.rows for one in sections(found)}
    tiles = found.tiles
    return {
        "kernel": ranges.launch.kernel, "launch": ranges.number, "tool": found.trace.tool, "clock": ranges.clock.value,
        "duration": ranges.duration if ranges.is_aligned else None, "blocks": len(ranges.first_block),
        "explained_share": found.graph.explained_share, "phases": asdict(found.phases),
        "tiles": None if tiles is None else asdict(tiles),
        **{key: parts.get(key, []) for key in ("roles", "waits", "units", "chain", "what_ifs")},
    }  # fmt: skip


COUNTED = ("duration", "tensor", "dram", "l2", "shared_static", "shared_dynamic", "registers", "achieved")
"""Keys of facts from ncu on whether a ring can be deeper, or what else the kernel waits for."""
LONGEST_COST = 2.0
"""Ratio of a trace's time to that under ncu above which it is another launch, not one slowed down by recording."""


def counters_beside(report: str | None, found: InsideKernel) -> list[str]:
    """Notes on ncu's counters of the same kernel in a report. Raises `NcuBenchError` if the report lacks it."""
    import re

    from ncu_parsers.schema.tables import short_name, words

    from ncu_tools.kernels.view.kernel_view import kernel_view
    from ncu_tools.numbers.number_format import duration, percent, scaled
    from ncu_tools.runs.loading import load

    if report is None:
        return []
    table = load(report).table
    kernels = dict.fromkeys(one for one in words(table, "kernel_name") if one)
    traced = found.ranges.launch.kernel
    same = [one for one in kernels if one == traced or short_name(one) == short_name(traced)]
    if not same:
        raise NcuBenchError(
            f"{report} has no kernel called {short_name(traced)}.",
            f"It has: {', '.join(map(short_name, list(kernels)[:5]))}.",
            "Profile the same kernel with ncu, in a run of its own: run-iket and ncu do not run together.",
        )
    view = kernel_view(table, (re.compile(f"^{re.escape(same[0])}$"),), None, None)
    facts = {one.key: one for one in view.facts if one.key in COUNTED and one.value is not None}
    said = [
        f"{facts[key].title} {duration(value) if facts[key].unit == 'ns' else scaled(value, facts[key].unit)}"
        for key in COUNTED if key in facts for value in (float(facts[key].value),)
    ]  # fmt: skip
    notes = [f"counts of this kernel by ncu, from {report}: {', '.join(said) or 'none that is shown here'}"]
    if "duration" in facts and found.ranges.clock.value == "ns" and found.ranges.is_aligned:
        cost = found.ranges.duration / float(facts["duration"].value)
        also = (
            f"records cost {percent(max(cost - 1, 0))} of time"
            if 0.95 < cost < LONGEST_COST
            else "another size or input"
        )
        notes.append(f"the trace lasts {duration(found.ranges.duration)}: {also}")
    return [Note(one, NoteKind.PLAIN) for one in notes]


def _show_sums(read: WarpTrace, output_format: str) -> None:
    """Show the shares of ranges for a trace that has sums, but no times."""
    whole: dict[int, float] = {}
    for one in read.sums:
        if len(one.path) == 1:
            whole[one.launch] = whole.get(one.launch, 0.0) + one.cycles
    rows = [
        {"kernel": read.launches[one.launch].kernel, "range": " / ".join(one.path), "total": one.cycles,
         "sum_share": one.cycles / whole[one.launch] if whole.get(one.launch) else None}
        for one in sorted(read.sums, key=lambda one: (one.launch, -one.cycles))
    ]  # fmt: skip
    said = 'the tree has total cycles of ranges and no times: who waits for whom needs data="trace"'
    extra = {"tool": read.tool, "clock": read.clock.value}
    show(Table("inside", SUMS, rows, [Note(said, NoteKind.NOT_KNOWN), *read.notes], extra), output_format)
