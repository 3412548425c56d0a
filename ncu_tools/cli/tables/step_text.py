"""Advice on a step as text: what bounds it, then each lever with its saving, evidence and remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from ncu_parsers.timelines.activity.activity import KERNEL

from ncu_tools.cli.tables.part_text import hanging, paragraph
from ncu_tools.kernels.names.distinct_names import distinct_names
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.numbers.number_format import duration, percent
from ncu_tools.report.step_advice_table import path_rows, saving
from ncu_tools.timeline.communication import is_communication
from ncu_tools.timeline.graph.evidence import REFUSED
from ncu_tools.timeline.levers.step_advice import StepAdvice

Row = dict[str, Any]
COUNTERS = (
    "Counters say what bounds a kernel: profile the same program with ncu-bench profile, or give ncu-bench advise a "
    "report of ncu."
)
NOT_HERE = "By what the recording has, {} saves less than 1 % of it."
LEAST_NAMED = 0.02
"""Smallest share of the critical path for which a kernel of a step without levers is named."""


def step_lines(found: StepAdvice, rows: Sequence[Row], width: int, only: str | None = None) -> Iterator[str]:
    """The lines for a terminal; `rows` are the levers and what-ifs to show, `only` is the requested lever."""
    yield from path_lines(found, width)
    several = _added_up(found)
    if several and any(row["evidence"] for row in rows):
        yield from paragraph(f"counts and times below a lever are sums over {several}", width)
    for number, row in enumerate(rows, start=1):
        yield ""
        yield from _lever_lines(row, number, width)
    if not rows and found.evidence.level != REFUSED:
        yield from paragraph(_without_levers(found) if only is None else NOT_HERE.format(only), width)
    if rows and only is None and (above := _above_levers(found)):
        yield ""
        yield from paragraph(above, width)
    for pair in found.pairs[:2]:
        both = " and ".join(pair.titles)
        text = (
            f"Together, {both} save up to {duration(pair.saves.high_ns)}, "
            f"{percent(pair.saves.share(pair.saves.high_ns) or 0)} of the {found.step}: more than their sum, as each "
            "alone only moves the critical path."
        )
        yield ""
        yield from paragraph(text, width)


def _without_levers(found: StepAdvice) -> str:
    """A sentence on the composition of a step without levers, and on what would show more."""
    most = _longest_on_path(found)[:3]
    longest = ", ".join(f"{name} ({percent(share)})" for name, share, _ in most if share > LEAST_NAMED)
    of_path = f" Longest on its path: {longest}." if longest else ""
    return f"By times and shapes no lever saves 1 % or more.{of_path} {COUNTERS}"


def _above_levers(found: StepAdvice) -> str:
    """A sentence on the kernel that takes more of the path than any lever of the step saves; "" if none does."""
    if found.evidence.level == REFUSED:
        return ""
    saved = max((one.saves.share(one.saves.high_ns) or 0.0 for one in found.levers), default=0.0)
    name, share, kind = _longest_on_path(found)[0]
    if kind != KERNEL or is_communication(name) or share <= max(saved, LEAST_NAMED):
        return ""
    return f"{name} takes {percent(share)} of the path, more than any of these saves. {COUNTERS}"


def _longest_on_path(found: StepAdvice) -> list[tuple[str, float, int]]:
    """The operations by name: the name, told apart among the first three, share of the path and kind; longest first."""
    operations, work = found.situation.activity.operations, found.path.work
    by_name = np.bincount(operations.name, work, len(operations.names))
    most = [int(one) for one in np.argsort(-by_name)[:3]]
    told = distinct_names([readable_name(operations.names[one]) for one in most])
    kind = np.zeros(len(operations.names), np.int64)
    kind[operations.name] = operations.kind
    return [
        (told[readable_name(operations.names[one])], by_name[one] / found.path.length_ns, int(kind[one]))
        for one in most
    ]


def path_lines(found: StepAdvice, width: int) -> Iterator[str]:
    """The composition of the critical path, and the step's length if host or GPU took no time."""
    kinds = ", ".join(f"{row['kind']} {percent(row['share'])}" for row in path_rows(found) if row["share"] >= 0.005)
    of_steps = "" if found.steps == 1 else f", the mean of {found.steps}"
    yield from paragraph(f"critical path of the {found.step}, {duration(found.step_ns)}{of_steps}: {kinds}", width)
    gpu, host = duration(found.gpu_alone_ns), duration(found.host_alone_ns)
    yield from paragraph(f"if the host took no time: {gpu}; if the GPU took none: {host}", width)


def _added_up(found: StepAdvice) -> str:
    """The steps, threads and GPUs over which the evidence of levers is summed; "" for one of each."""
    chains = found.situation.graph.chains
    threads = {(one.process, one.thread) for one in chains if one.is_host}
    gpus = {one.device for one in chains if one.device is not None}
    counts = {"steps": found.steps, "threads": len(threads), "GPUs": len(gpus)}
    return " and ".join(f"{count} {name}" for name, count in counts.items() if count > 1)


def _lever_lines(row: Row, number: int, width: int) -> Iterator[str]:
    doubt = f"; {row['confidence']}" if row.get("confidence") else ""
    yield from hanging(f"{number}.", f"{row['title']}: {saving(row)}{doubt}", width)
    for sentence in row["evidence"]:
        yield from hanging("  -", sentence, width)
    if row.get("remedy"):
        yield from hanging("  -", str(row["remedy"]), width)
        words, is_command, command = str(row["check"]).partition("ncu-bench ")
        yield from hanging("  -", f"unknown: {row['unknown']}; check: {words}".rstrip(), width)
        if is_command:  # on a line of its own, so that it can be copied
            yield f"     {is_command}{command}"
