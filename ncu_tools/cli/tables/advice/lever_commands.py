"""The command that shows more on a lever: one that can run as printed, since the run has its numbers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ncu_tools.advice.advise import Advice
from ncu_tools.advice.levers.all_levers import lever_texts
from ncu_tools.advice.situation.code_facts import CodeFacts
from ncu_tools.kernels.names.kernel_ids import kernel_id
from ncu_tools.kernels.names.name_patterns import word_of

OF_EVERY_RUN = "kernel {run} {kernel}"
"""The command for a kernel if the run lacks what its lever's own command needs."""
BALANCE, SOURCE = "--part balance", "source"

Row = Mapping[str, Any]


def with_commands(
    rows: Sequence[Row], advice: Advice, run: str, columns: Collection[str], *, is_whole: bool = True
) -> list[dict[str, Any]]:
    """Rows of levers with the command that shows more on each; `columns` are those of the run's launches.

    `is_whole` is False for advice on some kernels of the run: a word of a name may then match others, too.
    """
    code = {one.kernel.name: one.situation.code if one.situation is not None else None for one in advice.kernels}
    has_units = any(name.endswith(".min") and f"{name[:-4]}.max" in columns for name in columns)
    found = []
    for row in rows:
        template = lever_texts()[row["lever"]]["next"] if row["lever"] else None
        if template is not None and not _can_run(template, code[row["kernel"]], has_units=has_units):
            template = OF_EVERY_RUN
        command = (
            None if template is None else f"ncu-bench {_filled(template, row['kernel'], run, code if is_whole else ())}"
        )
        found.append({**row, "command": command})
    return found


def _can_run(template: str, code: CodeFacts | None, *, has_units: bool) -> bool:
    """True if a run with this code, and with or without counters by unit, has the numbers that a command needs."""
    if BALANCE in template:
        return has_units
    if not template.startswith(SOURCE):
        return True
    order = re.search(r"--sort (\w+)", template)
    return code is not None and code.has_text and (order is None or order[1] in code.measures)


def _filled(template: str, kernel: str, run: str, among: Collection[str]) -> str:
    """A command for a kernel: by a word of its name if that matches no other kernel in `among`, else by its key."""
    word = word_of(kernel)
    is_alone = sum(re.search(word, one) is not None for one in among) == 1
    option = "" if template.startswith("kernel ") else "--kernel "
    chosen = f"{option}{shlex.quote(word)}" if is_alone else f"--id {kernel_id(kernel)}"
    return template.format(run=shlex.quote(run), kernel=chosen)
