"""The digest of the changes between two runs, or of one kernel in both."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from ncu_tools.compare.compare_kernels import ComparedKernel, Comparison
from ncu_tools.kernels.names.kernel_ids import kernel_id
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.kernels.view.against import KernelChange
from ncu_tools.numbers.change import LESS, MORE, SAME, UNKNOWN, sentence, verdict
from ncu_tools.numbers.number_format import counted, duration, percent
from ncu_tools.report.digest.run_digest import noted
from ncu_tools.report.digest.statements import SECTIONS, Digest, Statement, fitted, quoted, quoted_names
from ncu_tools.report.table import printable

KERNELS_TOLD = 20
TIME = "time"
TITLES = {**SECTIONS, "kernels": "Kernels, by the change of their time"}


def change_digest(
    comparison: Comparison,
    names: tuple[str, str],
    budget: int,
    notes: Sequence[str] = (),
    *,
    counted_by_ncu: bool = True,
) -> Digest:
    """Changes from the first of the runs called `names` to the second, kernels by their part in the change.

    For runs `counted_by_ncu`, it names a command that explains the change of one kernel.
    """
    pairs = [kernel.pair for kernel in comparison.kernels]
    called = quoted_names(name for pair in pairs for name in (pair.kernel, pair.was) if name)
    kernels = enumerate(comparison.kernels[:KERNELS_TOLD])
    statements = [
        *_statements_on_run(comparison),
        *(one for rank, kernel in kernels for one in _kernel(kernel, rank, called)),
        *noted([*notes, *comparison.notes]),
        *_next(comparison, names, counted_by_ncu=counted_by_ncu),
    ]
    return fitted(
        f"Digest of the change from {printable(names[0])} to {printable(names[1])}", statements, budget, TITLES
    )


def _statements_on_run(comparison: Comparison) -> Iterator[Statement]:
    for place, difference in enumerate(comparison.differences):
        refused = " (times cannot be compared across it)" if difference.refused else ""
        yield Statement("run", f"differs: {printable(str(difference))}{refused}", 99.0 - place)
    if comparison.other_work:
        yield Statement("run", printable(str(comparison.other_work)), 98.5)
    changes = comparison.total.changes
    sentences = [sentence(change) for change in changes.values() if change.outcome != UNKNOWN]
    values = {name: {"base": one.base, "new": one.new, "low": one.low, "high": one.high, "outcome": one.outcome}
              for name, one in changes.items()}  # fmt: skip
    yield Statement("change", f"all kernels: {'; '.join(sentences) or 'no sum is known of both'}", 100.0, values=values)


def _kernel(kernel: ComparedKernel, rank: int, called: Mapping[str, str]) -> Iterator[Statement]:
    name = kernel.pair.kernel
    of_time = kernel.changes.get(TIME)
    word = verdict(of_time, is_new=kernel.is_new, is_gone=kernel.is_gone) if of_time else None
    if word == SAME and all(one.outcome in (SAME, UNKNOWN) for one in kernel.changes.values()):
        return
    sentences = [sentence(one) for one in kernel.changes.values() if one.outcome not in (SAME, UNKNOWN)]
    was = "" if kernel.pair.was in (None, name) else f", was {called[kernel.pair.was or '']}"
    key = kernel_id(name)
    text = f"{called[name]} ({key}{was}): {word or 'time not known'}"
    side = (kernel.new if kernel.is_new else kernel.base) if kernel.is_new or kernel.is_gone else None
    if side is not None:
        time = "time not known" if side.time_total_ns is None else duration(side.time_total_ns)
        sentences = [f"{time} in {counted(side.launches, 'launch', 'launches')}"]
    text += f"; {'; '.join(sentences)}" if sentences else ""
    values = {"kernel": name, "verdict": word, **{name: {"base": one.base, "new": one.new, "low": one.low,
              "high": one.high, "outcome": one.outcome} for name, one in kernel.changes.items()}}  # fmt: skip
    yield Statement("kernels", text, 92.0 - rank, key=key, kernel_id=key, values=values)


def _next(comparison: Comparison, names: tuple[str, str], *, counted_by_ncu: bool) -> Iterator[Statement]:
    base, new = map(shlex.quote, names)
    both = next((one for one in comparison.kernels if one.base and one.new), None)
    if both is not None and counted_by_ncu:
        now = kernel_id(both.pair.kernel)
        was = kernel_id(both.pair.was or both.pair.kernel)
        command = f"ncu-bench report {new} --format digest --against {base} --id {now}"
        if was != now:  # a digest finds a kernel by one name
            command = f"ncu-bench kernel {base} --against {new} --pair {was}={now}"
        is_shown = both.changes[TIME].outcome in (MORE, LESS)
        answers = "why this kernel's time changed" if is_shown else "what changed of this kernel, if anything"
        yield Statement("next", f"`{command}`: {answers}", 88.0, values={"command": command})
    command = f"ncu-bench compare {base} {new} --format json"
    yield Statement("next", f"`{command}`: every kernel with its interval", 86.0, values={"command": command})


def kernel_change_digest(
    change: KernelChange,
    names: tuple[str, str],
    budget: int,
    notes: Sequence[str] = (),
    *,
    with_instructions: bool = True,
) -> Digest:
    """Why one kernel is faster or slower in the second of two runs, and which values changed beyond their spread.

    For runs `with_instructions` (counts per instruction), it names a command that compares the kernel's lines.
    """
    key = kernel_id(change.new.kernel_name)
    statements = [Statement("change", change.why, 100.0, key=key, kernel_id=key)]
    for place, value in enumerate(one for one in change.values if one.changed):
        text = f"{value.part}: {value.title}: {value.words}"
        values = {"key": value.key, "base": value.base, "new": value.new, "unit": value.unit}
        statements.append(Statement("change", text, 90.0 - 0.5 * place, about=key, kernel_id=key, values=values))
    for place, cause in enumerate(one for one in change.causes if one.changed):
        sides = (cause.base, cause.new)
        before, after = ("no cause" if one is None else f"about {percent(one)} of the time" for one in sides)
        text = f"{cause.rule}: {before} -> {after}"
        values = {"rule": cause.rule, "base": cause.base, "new": cause.new}
        statements.append(
            Statement("change", text, 89.9 - place, about=key, kernel_id=key, values=values, kind="cause")
        )
    base, new = map(shlex.quote, names)
    command, answers = f"ncu-bench compare {base} {new} --format json", "every kernel with its interval"
    if with_instructions:
        command, answers = f"ncu-bench compare {base} {new} --by line --id {key}", "which lines changed"
    statements += [*noted(notes), Statement("next", f"`{command}`: {answers}", 86.0, values={"command": command})]
    title = (
        f"Digest of {quoted(readable_name(change.new.kernel_name))} from {printable(names[0])} to {printable(names[1])}"
    )
    return fitted(title, statements, budget)
