"""Advice on a step as text: what bounds it, then each lever with its saving, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ncu_tools.cli.tables.part_text import hanging, paragraph
from ncu_tools.numbers.number_format import duration, percent
from ncu_tools.report.step_advice_table import path_rows
from ncu_tools.timeline.levers.step_advice import StepAdvice

Row = dict[str, Any]


def step_lines(found: StepAdvice, rows: Sequence[Row], width: int) -> Iterator[str]:
    """The lines of a terminal; `rows` are the levers and what-ifs to show."""
    yield from path_lines(found, width)
    for number, row in enumerate(rows, start=1):
        yield ""
        yield from _lever_lines(row, number, width)
    for pair in found.pairs[:2]:
        both = " and ".join(pair.titles)
        text = (
            f"Together, {both} save up to {duration(pair.saves.high_ns)}, "
            f"{percent(pair.saves.share(pair.saves.high_ns) or 0)} of the {found.step}: more than their sum, as each "
            "alone only moves the critical path."
        )
        yield ""
        yield from paragraph(text, width)


def path_lines(found: StepAdvice, width: int) -> Iterator[str]:
    """The contents of the critical path, and the step's length on one side alone."""
    kinds = ", ".join(f"{row['kind']} {percent(row['share'])}" for row in path_rows(found) if row["share"] >= 0.005)
    of_steps = "" if found.steps == 1 else f", the mean of {found.steps}"
    yield from paragraph(f"critical path of the {found.step}, {duration(found.step_ns)}{of_steps}: {kinds}", width)
    gpu, host = duration(found.gpu_alone_ns), duration(found.host_alone_ns)
    yield from paragraph(f"if the host took no time: {gpu}; if the GPU took none: {host}", width)


def _lever_lines(row: Row, number: int, width: int) -> Iterator[str]:
    low, high = (duration(row[name]) for name in ("saves_low_ns", "saves_high_ns"))
    between = high if low == high else f"up to {high}" if not row["saves_low_ns"] else f"{low} to {high}"
    if row["saves_low_ns"] < 0 < row["saves_high_ns"]:
        between = f"up to {high}, or loses up to {low.removeprefix('-')}"
    likely = f", likely {duration(row['saves_ns']) if row['saves_ns'] else 'nothing'}"
    likely = likely if row["saves_ns"] is not None and low != high else ""
    doubt = f"; {row['confidence']}" if row.get("confidence") else ""
    yield from hanging(
        f"{number}.", f"{row['title']}: saves {between} ({percent(row['saves_high'])} at most){likely}{doubt}", width
    )
    for sentence in row["evidence"]:
        yield from hanging("  -", sentence, width)
    if row.get("remedy"):
        yield from hanging("  -", str(row["remedy"]), width)
        words, is_command, command = str(row["check"]).partition("ncu-bench ")
        yield from hanging("  -", f"unknown: {row['unknown']}; check: {words}".rstrip(), width)
        if is_command:  # on a line of its own, so that it can be copied
            yield f"     {is_command}{command}"
