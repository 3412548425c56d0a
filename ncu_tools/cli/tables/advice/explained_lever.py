"""The output of `advise --explain`: what a lever does, to kernels or steps, and what it brings the kernels of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ncu_launch.errors import WrongUsage, near_names

from ncu_tools.advice.advise import Advice, is_calibrated, roles
from ncu_tools.advice.intervals import KINDS, confidence
from ncu_tools.advice.levers.all_levers import LEVERS, lever_texts
from ncu_tools.cli.tables.advice.advice_text import advice_lines, saves, shown_names
from ncu_tools.cli.tables.part_text import hanging, paragraph
from ncu_tools.numbers.number_format import counted, percent
from ncu_tools.timeline.levers.situation import step_lever_texts

Row = Mapping[str, Any]
UNDECIDED = "No kernel of the run has counters that decide this lever."


def lever_names() -> list[str]:
    """The names of all levers, on kernels and on steps."""
    return list(dict.fromkeys([*LEVERS, *step_lever_texts()]))


def explained(name: str, width: int) -> Iterator[str]:
    """The lines on a lever: what to do, its model and source, and how often its intervals were right.

    A name of both a lever on kernels and one on steps explains both. Raises `WrongUsage` for an unknown name.
    """
    if name not in lever_names():
        near = near_names(name, lever_names())
        raise WrongUsage(
            f"There is no lever {name!r}.",
            f"Levers of kernels are: {', '.join(LEVERS)}. Levers of steps are: {', '.join(step_lever_texts())}.",
            f"Near: {', '.join(near)}" if near else "",
        )
    of_both = name in LEVERS and name in step_lever_texts()
    if name in LEVERS:
        yield from _texts(f"{name}{', of kernels' if of_both else ''}", lever_texts()[name], width)
        yield from _how_right(name, width)
    if of_both:
        yield ""
    if name in step_lever_texts():
        told = step_lever_texts()[name]
        yield from _texts(f"{name}, of steps", told, width)
        yield from hanging("  not known", told["unknown"], width)


def _texts(title: str, told: Mapping[str, Any], width: int) -> Iterator[str]:
    yield from paragraph(f"{title}: {told['title']}", width)
    for part, text in (("what to do", told["remedy"]), ("model", told["model"]), ("source", told["source"])):
        yield ""
        yield from hanging(f"  {part}", text, width)
    yield ""


def _how_right(name: str, width: int) -> Iterator[str]:
    sure = [(kind, confidence(kind)) for kind in KINDS] if is_calibrated(name) else []
    if not sure:
        yield from hanging("  how right", "no known history pulled it alone: its interval is the model's own", width)
    for known, one in sure:
        held = (
            f"the real saving lay inside in {percent(one.held)} of {one.histories} changes, of all levers, by "
            f"{counted(one.authors, 'author', 'authors')}"
        )
        yield from hanging(f"  with {known}", held, width)


def lever_here(advice: Advice, rows: Sequence[Row], most: int, width: int) -> Iterator[str]:
    """What a lever brings the kernels of a run (`rows`): those that it helps in full, the others in one line."""
    helped = [row for row in rows if row["is_worth_it"]][:most]
    if helped:
        yield from advice_lines(helped, [], [], width)
    others = [(row["kernel"], _why(row)) for row in rows if not row["is_worth_it"]]
    without = [(one.kernel.name, f"no lever counts, as {one.says}") for one in advice.kernels if one.reason in roles()]
    names = shown_names([{"kernel": name} for name, _ in (*others, *without)])
    if names:
        yield from ["", "Not worth it for:"]
    for name, why in (*others, *without)[:most]:
        yield from hanging(f"  {names[name]}:", why, width)
    if not rows and len(without) < len(advice.kernels):
        yield from ["", UNDECIDED if not without else UNDECIDED.replace("No", "No other", 1)]


def _why(row: Row) -> str:
    return f"it brings nothing, as {row['nothing']}" if row["nothing"] else saves(row)
