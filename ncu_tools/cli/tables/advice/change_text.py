"""Levers pulled between two versions of kernels, with prediction and outcome: rows, text, rows of a history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ncu_tools.advice.history import LoggedChange
from ncu_tools.advice.lever_sentences import interval
from ncu_tools.advice.pulled_levers import KernelChangeAdvice, PulledLever
from ncu_tools.cli.tables.advice.advice_text import shown_name
from ncu_tools.cli.tables.part_text import hanging, paragraph
from ncu_tools.kernels.names.kernel_ids import kernel_id
from ncu_tools.numbers.number_format import digits, duration, percent
from ncu_tools.report.columns.registry import columns

COLUMNS = columns(
    "kernel advice.new_kernel lever advice.sign advice.before advice.after is_harm saves_share saves_low saves_high "
    "brought_share brought_ns as_said next_lever next_saves_share next_saves_low next_saves_high kernel_id"
)
NONE_SEEN = "no lever's sign changed much, as far as both reports tell"


def rows_of_changes(changes: Sequence[KernelChangeAdvice]) -> list[dict[str, Any]]:
    """A row for each pulled lever, or one for a kernel without any."""
    rows = []
    for one in changes:
        rows += [_row(one, pulled) for pulled in one.pulled] or [_row(one, None)]
        rows += [_row(one, harmed, is_harm=True) for harmed in one.harmed]
    return rows


def _row(one: KernelChangeAdvice, pulled: PulledLever | None, *, is_harm: bool = False) -> dict[str, Any]:
    said = pulled.said.saves if pulled is not None and pulled.said is not None else None
    following = one.next
    return {
        "kernel": one.old.kernel.name,
        "kernel_id": kernel_id(one.old.kernel.name),
        "new_kernel": one.new.kernel.name,
        "lever": pulled.lever if pulled else None,
        "sign": pulled.title if pulled else None,
        "before": pulled.before if pulled else None,
        "after": pulled.after if pulled else None,
        "is_harm": is_harm if pulled else None,
        "saves_share": said.middle if said else None,
        "saves_low": said.low if said else None,
        "saves_high": said.high if said else None,
        "brought_share": one.brought,
        "brought_ns": one.old.kernel.time_ns - one.new.kernel.time_ns,
        "as_said": one.is_inside_prediction(pulled) if pulled and not is_harm else None,
        "next_lever": following.lever if following else None,
        "next_saves_share": following.saves.middle if following else None,
        "next_saves_low": following.saves.low if following else None,
        "next_saves_high": following.saves.high if following else None,
    }


def change_lines(changes: Sequence[KernelChangeAdvice], width: int) -> Iterator[str]:
    """A paragraph for each kernel: the outcome, the pulled lever and its prediction, and what is next."""
    for one in changes:
        yield ""
        yield from paragraph(f"{title_of(one)}: {_times(one)} a launch, {brought(one)}", width)
        for pulled in one.pulled:
            yield from hanging("  pulled", f"{pulled.lever}: {values_of(pulled)}; {said(one, pulled)}", width)
        if not one.pulled:
            yield from hanging("  pulled", NONE_SEEN, width)
        for harmed in one.harmed:
            yield from hanging("  worse ", f"{harmed.lever}: {values_of(harmed)}", width)
        yield from hanging("  next  ", next_of(one), width)


def title_of(one: KernelChangeAdvice) -> str:
    """The short name of a kernel, or both names if it was renamed."""
    names = [shown_name(each.kernel.name) for each in (one.old, one.new)]
    return names[0] if names[0] == names[1] else " -> ".join(names)


def _times(one: KernelChangeAdvice) -> str:
    return f"{duration(one.old.kernel.time_ns)} -> {duration(one.new.kernel.time_ns)}"


def brought(one: KernelChangeAdvice) -> str:
    """The effect of a change, in words."""
    return f"{percent(one.brought)} saved" if one.brought >= 0 else f"{percent(-one.brought)} longer"


def values_of(pulled: PulledLever) -> str:
    """The sign of a lever with its values before and after."""
    before, after = (
        percent(one) if pulled.unit == "fraction" else digits(one) for one in (pulled.before, pulled.after)
    )
    unit = "" if pulled.unit == "fraction" else f" {pulled.unit}"
    return f"{pulled.title} {before} -> {after}{unit}".rstrip()


def said(one: KernelChangeAdvice, pulled: PulledLever) -> str:
    """The prediction for a lever, and whether it came true."""
    if pulled.said is None:
        return "not named before"
    outcome = "as said" if one.is_inside_prediction(pulled) else "not as said"
    return f"said to save {interval(pulled.said.saves)}: {outcome}"


def next_of(one: KernelChangeAdvice) -> str:
    """The next lever, or why there is none."""
    following = one.next
    if following is None:
        return one.new.says or "no lever counts"
    return f"{following.lever} ({following.title}) saves {interval(following.saves)}"


def logged(changes: Sequence[KernelChangeAdvice], base: str, new: str, time: str) -> list[LoggedChange]:
    """The changes as rows of a history."""
    return [
        LoggedChange(
            time,
            base,
            new,
            title_of(one),
            ", ".join(each.lever for each in one.pulled) or "none seen",
            "; ".join(f"{each.lever} {said(one, each)}" for each in one.pulled) or "-",
            f"{_times(one)}, {brought(one)}",
            next_of(one),
        )
        for one in changes
    ]
