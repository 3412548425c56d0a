"""ncu-bench kernel: one kernel seen whole, in seven parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ncu_tools.cli.options import MACHINE_FORMATS, format_option, machine_option, progress, show
from ncu_tools.numbers.number_format import FORMATS, counted, percent
from ncu_tools.report.table import Column, Table

if TYPE_CHECKING:
    from ncu_tools.kernels.view.facts import Fact
    from ncu_tools.kernels.view.kernel_view import KernelView

PARTS = {
    "identity": "1 identity", "limits": "2 limits", "occupancy": "3 occupancy", "scheduler": "4 scheduler",
    "memory": "5 memory", "pipes": "6 pipes and mix", "verdict": "7 verdict",
}  # fmt: skip
KINDS = {"percent": "fraction", "byte": "byte", "time": "time", "hz": "hz", "count": "count", "number": "number"}
STALLS_SHOWN, RULES_SHOWN, SHORTEST_SHARE = 5, 6, 0.005
COLLECT = "ncu --set full -o REPORT PROGRAM"

COLUMNS = (
    Column("part", "part", spare=0),
    Column("value", "value", spare=0),
    Column("against", "against", spare=1),
    Column("spread", "least to most", spare=3),
    Column("title", "what", prose=True),
)
MACHINE_READABLE = (
    Column("part", "part"),
    Column("key", "key"),
    Column("title", "what"),
    Column("value", "value", "number"),
    Column("unit", "unit"),
    Column("low", "least", "number"),
    Column("high", "most", "number"),
    Column("of", "against", "number"),
    Column("share", "share", "fraction"),
    Column("metric", "metric"),
)

Row = dict[str, Any]


@click.command()
@click.argument("run")
@click.argument("name", required=False)
@click.option("--launch", type=click.IntRange(min=0), help="Only this launch; else the median of all of the kernel.")
@machine_option
@format_option
def command(run: str, name: str | None, launch: int | None, machine_name: str | None, output_format: str) -> None:
    """Show one kernel whole: what it is, what limits it, its occupancy, stalls, memory, pipes, and what to try first.

    RUN is a report, or what parse or profile made of one. NAME is searched in full kernel names; without it, the kernel
    is the hottest one. Values of several launches are medians. A part that the report lacks is named with what collects
    it. JSON has every value under its key with unit and metric, causes with their evidence, and NVIDIA's rules.

    \b
    Example:
      ncu-bench kernel report.ncu-rep
      ncu-bench kernel report.ncu-rep softmax --format markdown
    """
    from ncu_tools.ceilings.machine_files import find_machine
    from ncu_tools.kernels.view.kernel_view import kernel_view
    from ncu_tools.runs.loading import load
    from ncu_tools.runs.selection import pattern_of

    machine = find_machine(machine_name) if machine_name else None
    with progress("Reading") as reading:
        loaded = load(run, reading=reading)
    view = kernel_view(loaded.table, () if name is None else (pattern_of(name),), launch, machine)
    if output_format in MACHINE_FORMATS:
        table = Table("kernel", MACHINE_READABLE, list(_values(view)), [*_notes(view), *loaded.notes], _extra(view))
    else:
        table = Table("kernel", COLUMNS, list(_rows(view)), [*_notes(view), *loaded.notes])
    show(table, output_format)


# --------------------------------------------------------------------------------------------------- for people


def _rows(view: KernelView) -> Iterator[Row]:
    """The rows of all parts; the name of a part stands in its first row."""
    for part, title in PARTS.items():
        rows = [*map(_fact_row, view.of_part(part)), *_more_rows(view, part)]
        for place, row in enumerate(rows):
            yield {**row, "part": title if place == 0 else None}


def _fact_row(fact: Fact) -> Row:
    against = None
    if fact.of is not None:
        share = f" ({percent(fact.share)})" if fact.share is not None else ""
        against = f"of {_written(fact.kind, fact.of)}{share}"
    spread = None if fact.low == fact.high else f"{_written(fact.kind, fact.low)} to {_written(fact.kind, fact.high)}"
    return {"title": fact.title, "value": _written(fact.kind, fact.value), "spread": spread, "against": against}


def _written(kind: str, value: float) -> str:
    if kind == "percent":
        return percent(value / 100)
    return FORMATS[KINDS[kind]](round(value) if kind == "count" else value)


def _more_rows(view: KernelView, part: str) -> Iterator[Row]:
    if part == "identity":
        yield {"title": "share of the run's time", "value": _percent(view.hotspot.time_share)}
    elif part == "limits":
        spot = view.hotspot
        saves = f"reaching it saves {FORMATS['time'](spot.headroom_ns)}" if spot.headroom_ns else None
        if spot.bound is not None:
            yield {"title": "bound", "value": spot.bound, "against": saves}
            yield {"title": "share of that bound reached", "value": _percent(spot.bound_fraction)}
    elif part == "occupancy":
        yield from _occupancy_rows(view)
    elif part == "scheduler":
        for stall in view.stalls[:STALLS_SHOWN]:
            cycles = f"{stall.per_issue:.2f} cycles per issue"
            yield {"title": f"stalled: {stall.reason}", "value": percent(stall.share), "against": cycles}
    elif part == "pipes" and view.mix is not None:
        for kind, count in sorted(view.mix.by_kind.items(), key=lambda item: -item[1]):
            share = count / view.mix.total
            if share >= SHORTEST_SHARE:
                yield {"title": f"instructions: {kind.replace('_', '/')}", "value": percent(share)}
    elif part == "verdict":
        yield from _verdict_rows(view)


def _percent(share: float | None) -> str | None:
    return None if share is None else percent(share)


def _occupancy_rows(view: KernelView) -> Iterator[Row]:
    found = view.occupancy
    theoretical = found.theoretical if found.calculated is None else 100 * found.calculated.fraction
    if theoretical is not None:
        yield {"title": "theoretical occupancy", "value": percent(theoretical / 100)}
    if found.achieved is not None:
        yield {"title": "achieved occupancy", "value": percent(found.achieved / 100)}
    if found.calculated is None:
        return
    for resource, blocks in found.calculated.blocks_by.items():
        limits = "limits" if resource in found.calculated.limiters else None
        yield {"title": f"blocks per SM by {resource}", "value": str(blocks), "against": limits}
    for step in found.steps:
        unit = "per thread" if step.resource == "registers" else "bytes per block"
        to = f"{step.now} to {step.to} {unit}"
        yield {"title": f"with fewer {step.resource}", "value": percent(step.fraction), "against": to}


def _verdict_rows(view: KernelView) -> Iterator[Row]:
    for cause in view.diagnosis.causes if view.diagnosis else ():
        cost = "" if cause.cost is None else f"up to {percent(cause.cost)} of its time"
        yield {"title": cause.says, "value": cost or None}
    for rule in view.rules[:RULES_SHOWN]:
        speedup = None if rule.speedup is None else f"{rule.speedup:.1f} % faster ({rule.speedup_type or 'estimate'})"
        yield {"title": f"NVIDIA, {rule.name}: {_first_sentence(rule.text)}", "value": speedup}


def _missing(view: KernelView, part: str) -> str:
    """What of a part was not collected: every metric, or those with these titles."""
    titles = view.missing[part]
    return f"{PARTS[part][2:]} ({', '.join(titles)})" if view.of_part(part) else f"every metric of {PARTS[part][2:]}"


def _first_sentence(text: str) -> str:
    """The beginning of a rule's message, up to its first full stop before a space."""
    return text.replace("\n", " ").split(". ")[0].strip().removesuffix(".")


def _notes(view: KernelView) -> list[str]:
    from ncu_tools.kernels.estimated_flops import estimate_notes

    device = f" on {view.device}" if view.device else ""
    notes = [f"{view.kernel_name}: {counted(view.launches, 'launch', 'launches')}{device}"]
    if view.diagnosis is not None and view.diagnosis.text:
        notes.append(view.diagnosis.text)
    missing = [_missing(view, part) for part, titles in view.missing.items() if titles]
    if missing:
        notes.append(f"not collected: {'; '.join(missing)}. Most of it is collected by: {COLLECT}")
    return [*notes, *estimate_notes(view.estimates)]


# ------------------------------------------------------------------------------------------------- for programs


def _values(view: KernelView) -> Iterator[Row]:
    for fact in view.facts:
        yield {column.name: getattr(fact, column.name) for column in MACHINE_READABLE}
    for stall in view.stalls:
        key = f"stall_{stall.reason.replace(' ', '_')}"
        yield {
            "part": "scheduler", "key": key, "title": f"stalled: {stall.reason}", "value": stall.per_issue,
            "unit": "cycle/issue", "share": stall.share,
        }  # fmt: skip
    for kind, count in view.mix.by_kind.items() if view.mix else ():
        share = count / view.mix.total if view.mix else None
        yield {"part": "pipes", "key": f"mix_{kind}", "title": kind, "value": count, "unit": "inst", "share": share}


def _extra(view: KernelView) -> Row:
    from dataclasses import asdict

    calculated = view.occupancy.calculated
    return {
        "kernel": view.kernel_name,
        "launches": view.launches,
        "device": view.device,
        "hotspot": asdict(view.hotspot),
        "occupancy": {**asdict(view.occupancy), "limiters": calculated.limiters if calculated else None},
        "causes": view.diagnosis.as_json() if view.diagnosis else None,
        "rules": [asdict(rule) for rule in view.rules],
        "missing": view.missing,
    }
