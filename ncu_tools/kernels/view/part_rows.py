"""The rows of a kernel's seven parts as people read them: what the terminal, Markdown and the HTML report show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ncu_tools.kernels.view.facts import Fact
from ncu_tools.kernels.view.kernel_view import KernelView
from ncu_tools.numbers.number_format import FORMATS, counted, percent

PARTS = {
    "identity": "1 identity", "limits": "2 limits", "occupancy": "3 occupancy", "scheduler": "4 scheduler",
    "memory": "5 memory", "pipes": "6 pipes and mix", "verdict": "7 verdict",
}  # fmt: skip
KINDS = {"percent": "fraction", "byte": "byte", "time": "time", "hz": "hz", "count": "count", "number": "number"}
STALLS_SHOWN, RULES_SHOWN, SHORTEST_SHARE = 5, 6, 0.005
COLLECT = "ncu --set full -o REPORT PROGRAM"

Row = dict[str, Any]


def rows_of_part(view: KernelView, part: str, most_rules: int = RULES_SHOWN) -> list[Row]:
    """The rows of one of `PARTS`: "title", "value", "against" and "spread" as texts or None.

    Rows of shares have "share" too, a fraction of 1; those of NVIDIA's rules "rest", what follows the first sentence.
    """
    return [*map(_fact_row, view.of_part(part)), *_more_rows(view, part, most_rules)]


def _fact_row(fact: Fact) -> Row:
    against = None
    if fact.of is not None:
        share = f" ({percent(fact.share)})" if fact.share is not None else ""
        against = f"of {_written(fact.kind, fact.of)}{share}"
    low, high = _written(fact.kind, fact.low), _written(fact.kind, fact.high)
    spread = None if low == high else f"{low} to {high}"
    row = {"title": fact.title, "value": _written(fact.kind, fact.value), "spread": spread, "against": against}
    return row if fact.share is None else {**row, "share": fact.share}


def _written(kind: str, value: float) -> str:
    if kind == "percent":
        return percent(value / 100)
    return FORMATS[KINDS[kind]](round(value) if kind == "count" else value)


def _more_rows(view: KernelView, part: str, most_rules: int) -> Iterator[Row]:
    if part == "identity" and view.hotspot.time_share is not None:
        yield _share_row("share of the run's time", view.hotspot.time_share)
    elif part == "limits":
        spot = view.hotspot
        saves = f"reaching it saves {FORMATS['time'](spot.headroom_ns)}" if spot.headroom_ns else None
        if spot.bound is not None:
            yield {"title": "bound", "value": spot.bound, "against": saves}
        if spot.bound_fraction is not None:
            yield _share_row("share of that bound reached", spot.bound_fraction)
    elif part == "occupancy":
        yield from _occupancy_rows(view)
    elif part == "scheduler":
        for stall in view.stalls[:STALLS_SHOWN]:
            cycles = f"{stall.per_issue:.2f} cycles per issue"
            yield {**_share_row(f"stalled: {stall.reason}", stall.share), "against": cycles}
    elif part == "pipes" and view.mix is not None:
        for kind, count in sorted(view.mix.by_kind.items(), key=lambda item: -item[1]):
            share = count / view.mix.total
            if share >= SHORTEST_SHARE:
                yield _share_row(f"instructions: {kind.replace('_', '/')}", share)
    elif part == "verdict":
        yield from _verdict_rows(view, most_rules)


def _share_row(title: str, share: float) -> Row:
    return {"title": title, "value": percent(share), "share": share}


def _occupancy_rows(view: KernelView) -> Iterator[Row]:
    found = view.occupancy
    theoretical = found.theoretical if found.calculated is None else 100 * found.calculated.fraction
    if theoretical is not None:
        yield _share_row("theoretical occupancy", theoretical / 100)
    if found.achieved is not None:
        yield _share_row("achieved occupancy", found.achieved / 100)
    if found.calculated is None:
        return
    for resource, blocks in found.calculated.blocks_by.items():
        limits = "limits" if resource in found.calculated.limiters else None
        yield {"title": f"blocks per SM by {resource}", "value": str(blocks), "against": limits}
    for step in found.steps:
        unit = "per thread" if step.resource == "registers" else "bytes per block"
        to = f"{step.now} to {step.to} {unit}"
        yield {**_share_row(f"with fewer {step.resource}", step.fraction), "against": to}


def _verdict_rows(view: KernelView, most_rules: int) -> Iterator[Row]:
    for cause in view.diagnosis.causes if view.diagnosis else ():
        cost = "" if cause.cost is None else f"up to {percent(cause.cost)} of its time"
        yield {"title": cause.says, "value": cost or None}
    for rule in view.rules[:most_rules]:
        speedup = None if rule.speedup is None else f"{rule.speedup:.1f} % faster ({rule.speedup_type or 'estimate'})"
        first, rest = _first_sentence(rule.text)
        yield {"title": f"NVIDIA, {rule.name}: {first}", "value": speedup, "rest": rest}


def _missing(view: KernelView, part: str) -> str:
    """What of a part was not collected: every metric, or those with these titles."""
    titles = view.missing[part]
    return f"{PARTS[part][2:]} ({', '.join(titles)})" if view.of_part(part) else f"every metric of {PARTS[part][2:]}"


def _first_sentence(text: str) -> tuple[str, str | None]:
    """A rule's message up to its first full stop before a space, and what follows; None where nothing does."""
    first, *rest = re.split(r"\.[ \n]", text, maxsplit=1)
    return first.replace("\n", " ").strip().removesuffix("."), "".join(rest).strip() or None


def view_notes(view: KernelView) -> list[str]:
    """The kernel with its launches and device, its diagnosis, and what was not collected of the parts."""
    said = [f"{view.kernel_name}: {launches_on_device(view)}"]
    if view.diagnosis is not None and view.diagnosis.text:
        said.append(view.diagnosis.text)
    return [*said, *filter(None, [not_collected(view)])]


def launches_on_device(view: KernelView) -> str:
    """How many launches of the kernel there are, and on which device."""
    device = f" on {view.device}" if view.device else ""
    return f"{counted(view.launches, 'launch', 'launches')}{device}"


def not_collected(view: KernelView) -> str:
    """What of the parts was not collected, and the command that collects it; "" where nothing is missing."""
    missing = [_missing(view, part) for part, titles in view.missing.items() if titles]
    return f"not collected: {'; '.join(missing)}. Most of it is collected by: {COLLECT}" if missing else ""
