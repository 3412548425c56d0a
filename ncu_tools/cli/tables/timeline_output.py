"""A timeline on standard output: parts one below the other, or one of them as CSV, or all of them as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from ncu_launch.errors import WrongUsage
from ncu_launch.notes import shown_notes

from ncu_tools.cli.options import echo_markdown, echo_notes, echo_text, page_width, rows_shown, show, terminal_width
from ncu_tools.cli.tables.part_text import WIDTH, hanging, paragraph
from ncu_tools.cli.terminal_notes import MoreToSee
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.head import Head, head_of
from ncu_tools.report.table import Table, markdown_text, printable
from ncu_tools.report.timeline_parts import PARTS_OF_TIMELINE, PartOfTimeline, by_cost
from ncu_tools.timeline.headline import first_sentence, headline, recorded_by
from ncu_tools.timeline.timeline import GpuTimeline, Timeline

ROWS = {
    "steps": 8,
    "verdicts": 8,
    "longest": 10,
    "waits": 6,
    "gaps": 16,
    "copies": 8,
    "collectives": 8,
    "streams": 8,
    "launches": 8,
}
"""The most rows of each part on a terminal or page, without --top."""


def show_timeline(found: Timeline, parts: Sequence[str], top: int | None, output_format: str) -> None:
    """Write the chosen parts, all if none are chosen; CSV has one."""
    chosen = parts or tuple(PARTS_OF_TIMELINE)
    if output_format == "json":
        others = [name for name in chosen if name not in ("steps", "verdicts")]
        tables = {name: _rows(PARTS_OF_TIMELINE[name].table(found, whole=True))[:top] for name in others}
        steps = PARTS_OF_TIMELINE["steps"].table(found, whole=True)
        steps.rows = steps.rows[:top]
        steps.extra = {"head": head_of_timeline(found).as_json(),
                       "run": found.name, "tool": found.tool, "origin_ns": found.origin_ns,
                       "first": first_sentence(found), "headlines": _headlines(found), **tables,
                       "verdicts": _verdicts(found, top)}  # fmt: skip
        steps.notes = found.notes
        show(steps, output_format)
    elif output_format == "csv":
        if len(parts) > 1:
            raise WrongUsage(
                "CSV is one table.", f"Parts are: {', '.join(parts)}.", "Name one with --part, or use --format json."
            )
        table = PARTS_OF_TIMELINE[parts[0] if parts else "steps"].table(found, whole=True)
        table.rows, table.notes = table.rows[:top], found.notes
        show(table, output_format)
    else:
        _show_parts(found, parts, chosen, top, output_format)


def _rows(table: Table) -> list[dict[str, Any]]:
    """The rows of a part for JSON, under the names of its columns."""
    names = [column.name for column in table.columns]
    return [{name: row.get(name) for name in names} for row in table.rows]


def _headlines(found: Timeline) -> list[dict[str, Any]]:
    """The headline of each GPU: the verdict on its typical step, else on its whole time."""
    return [
        {
            "gpu": one.gpu.device, "process": one.gpu.process, "name": one.step.name,
            "is_whole": one.step is one.gpu.whole, "steps": len(one.gpu.steps), "bound": one.step.verdict.bound,
            "heading": one.heading, "text": one.text, "evidence": list(one.evidence),
        }
        for one in map(headline, found.gpus)
    ]  # fmt: skip


def _verdicts(found: Timeline, top: int | None) -> list[dict[str, Any]]:
    """The verdict on each GPU's whole time, then on its steps, with parts, evidence and metrics."""
    return [
        {"gpu": gpu.device, "process": gpu.process, "name": step.name, "is_whole": step is gpu.whole,
         **asdict(step.verdict)}
        for gpu in found.gpus
        for step in (gpu.whole, *by_cost(gpu))
    ][:top]  # fmt: skip


def _show_parts(
    found: Timeline, parts: Sequence[str], chosen: Sequence[str], top: int | None, output_format: str
) -> None:
    width = page_width(WIDTH)
    is_text = output_format == "text"
    head = head_of_timeline(found)
    click.echo(head.text(terminal_width()) if is_text else markdown_text(head.text()))
    notes = list(found.notes)
    if "steps" in chosen:
        for gpu in found.gpus:
            lines = _verdict_lines(gpu, width)
            click.echo("\n" + ("\n".join(lines) if is_text else "* " + " ".join(line.strip() for line in lines)))
    for name in chosen:
        if name == "verdicts" and name not in parts and not any(gpu.steps for gpu in found.gpus):
            continue  # the verdicts on whole GPUs come first
        part = PARTS_OF_TIMELINE[name]
        table, hidden = _shown(part, found, rows_shown(top, output_format, ROWS[name]))
        notes += hidden
        if not table.rows:
            continue
        click.echo(f"\n{part.heading}" if is_text else f"\n## {part.heading}\n")
        if is_text:
            echo_text(table)
        else:
            echo_markdown(table)
    if is_text:
        echo_notes(notes)
    else:
        click.echo("\n" + "\n".join(f"* {printable(note)}" for note in shown_notes(notes)))


def _shown(part: PartOfTimeline, found: Timeline, most: int | None) -> tuple[Table, list[str]]:
    """A part with at most this many rows, and the note on the others."""
    table = part.table(found, whole=False)
    hidden = 0 if most is None else len(table.rows) - most
    table.rows = table.rows[:most]
    if hidden <= 0:
        return table, []
    heading = part.heading.partition(":")[0].lower()
    return table, [MoreToSee(f"{heading}: {counted(hidden, 'more row', 'more rows')}; --top shows more")]


def head_of_timeline(found: Timeline) -> Head:
    """The head of the table: what was recorded, and the largest possible saving."""
    count = len(found.activity.operations)
    if found.trimmed:
        count = sum(one.operations for gpu in found.gpus for one in gpu.streams)
    operations = counted(count, "GPU operation", "GPU operations") + (" in the time of --trim" if found.trimmed else "")
    gpus = [counted(len(found.gpus), "GPU", "GPUs")] if len(found.gpus) != 1 else []
    spans = [gpu.whole.span_ns for gpu in found.gpus]
    return head_of(
        [found.name],
        devices=tuple(sorted({gpu.name for gpu in found.gpus if gpu.name})),
        time_ns=max(spans, default=None),
        more=(*gpus, operations, recorded_by(found.tool)),
        first=first_sentence(found),
    )


def _verdict_lines(gpu: GpuTimeline, width: int) -> list[str]:
    """The verdict on a GPU's typical step, else on its whole time: the sentence, the evidence below it."""
    found = headline(gpu)
    lines = paragraph(f"{found.heading}: {found.text}", width)
    for one in found.evidence:
        lines += hanging("  -", one, width)
    return lines
