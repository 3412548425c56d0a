"""The digest of one kernel: identity, limits, occupancy, stalls and hottest lines, causes and rules."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from ncu_tools.advice.advise import KernelAdvice
from ncu_tools.advice.nvidia_levers import AnsweredRule
from ncu_tools.kernels.names.kernel_ids import kernel_id
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.kernels.source.source_text import COLLECT
from ncu_tools.kernels.view.kernel_view import KernelView
from ncu_tools.kernels.view.part_rows import FULL_NAME, PARTS, rows_of_part
from ncu_tools.numbers.number_format import counted, duration, percent
from ncu_tools.report.digest.run_digest import cause_statements, lever_statements, noted, rule_statements
from ncu_tools.report.digest.statements import Digest, Statement, fitted, quoted
from ncu_tools.report.table import printable

WEIGHTS = {"limits": 85.0, "occupancy": 78.0, "scheduler": 80.0, "memory": 72.0, "identity": 70.0, "pipes": 60.0}
"""Part of the kernel -> importance of its numbers."""


def kernel_digest(
    view: KernelView,
    run: str,
    budget: int,
    notes: Sequence[str] = (),
    advice: KernelAdvice | None = None,
    answered: Sequence[AnsweredRule] = (),
) -> Digest:
    """The most important facts on one kernel of the run at path `run`, in at most `budget` tokens.

    `advice` are the levers on its time, `answered` those findings of NVIDIA's rules to which levers have an answer.
    """
    levers = lever_statements(advice, kernel_id(view.kernel_name), 97.0, "kernel")
    statements = [*_kernel(view, answered), *levers, *_parts(view), *noted(notes), *_missing(view), *_next(view, run)]
    return fitted(f"Digest of {quoted(readable_name(view.kernel_name))} in {printable(run)}", statements, budget)


def _kernel(view: KernelView, answered: Sequence[AnsweredRule]) -> Iterator[Statement]:
    row, key = view.hotspot, kernel_id(view.kernel_name)
    share = "" if row.time_share is None else f", {percent(row.time_share)} of the run's time"
    time = "time not known" if row.time_mean_ns is None else f"{duration(row.time_mean_ns)} on average"
    device = printable(view.device or "a device that the report does not name")
    text = f"{quoted(readable_name(view.kernel_name))} ({key}) on {device}: "
    text += f"{counted(view.launched, 'launch', 'launches')}, {time}{share}"
    values = {"kernel": view.kernel_name, "launches": view.launched, "time_mean_ns": row.time_mean_ns,
              "time_share": row.time_share, "bound": row.bound, "bound_fraction": row.bound_fraction,
              "headroom_ns": row.headroom_ns}  # fmt: skip
    yield Statement("kernel", text, 100.0, key=key, kernel_id=key, values=values)
    yield from cause_statements(view.diagnosis, key, 95.0, "kernel")
    yield from rule_statements(view.rules, answered, key, 90.0, "kernel")


def _parts(view: KernelView) -> Iterator[Statement]:
    """The numbers of each part as one statement, as `ncu-bench kernel` prints them."""
    key = kernel_id(view.kernel_name)
    for part, weight in WEIGHTS.items():
        sentences = [
            " ".join([f"{row['title']}", *(str(row[side]) for side in ("value", "against") if row.get(side))])
            for row in rows_of_part(view, part)
            if row["title"] != FULL_NAME  # already in the values
        ]
        if sentences:
            text = f"{title_of_part(part)}: {printable('; '.join(sentences))}"
            yield Statement("kernel", text, weight, about=key, kernel_id=key)


def title_of_part(part: str) -> str:
    """The title of a part without its number."""
    return PARTS[part].partition(" ")[2]


def _missing(view: KernelView) -> Iterator[Statement]:
    for part, titles in view.missing.items():
        if titles:
            text = f"{title_of_part(part)}: {', '.join(titles)}; most of it by `{COLLECT}`"
            yield Statement("missing", text, 75.0 - len(titles), values={"part": part, "titles": titles})


def _next(view: KernelView, run: str) -> Iterator[Statement]:
    key, name = kernel_id(view.kernel_name), shlex.quote(run)
    if view.places:
        command = f"ncu-bench source {name} --id {key} --top 5"
        yield Statement("next", f"`{command}`: its hottest lines", 88.0, values={"command": command})
    command = f"ncu-bench kernel {name} --id {key} --format json"
    yield Statement("next", f"`{command}`: every number of it, with its metric", 86.0, values={"command": command})
