"""Statements on a run, and as many of them as fit a budget: the most important first, none of them cut."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncu_tools.kernels.kernel_row import names_shown
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.table import printable

CHARACTERS_PER_TOKEN = 4
"""An estimate for English text and names; tokenisers differ."""
LEAST_BUDGET = 150
SECTIONS = {
    "run": "Run",
    "change": "Change",
    "kernels": "Kernels, by time",
    "kernel": "Kernel",
    "notes": "Notes on reading it",
    "missing": "Not collected",
    "next": "Next",
}
"""Sections in output order, with their titles."""
NOUNS = {
    "run": ("statement on the run", "statements on the run"),
    "change": ("change", "changes"),
    "kernels": ("kernel", "kernels"),
    "kernel": ("statement on the kernel", "statements on the kernel"),
    "cause": ("cause", "causes"),
    "levers": ("sentence on levers", "sentences on levers"),
    "rule": ("result of NVIDIA's rules", "results of NVIDIA's rules"),
    "notes": ("note", "notes"),
    "missing": ("statement on what was not collected", "statements on what was not collected"),
    "next": ("command", "commands"),
}
"""Kind of statement -> its name if left out, singular and plural."""
LEFT_OUT_SIZE = 60
"""Tokens reserved for the line on omissions."""
LONGEST_NAME = 60


@dataclass(frozen=True)
class Statement:
    """One fact, which is shown whole or left out.

    The statement with the largest `importance` comes first if there is little room. `about` is the key of the statement
    without which this one means nothing, "" for none. `values` are its numbers under stable keys, in the unit that the
    key ends in; None is unknown. `kind` is one of `NOUNS`, the section by default.
    """

    section: str
    text: str
    importance: float
    key: str = ""
    about: str = ""
    kernel_id: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    kind: str = ""

    @property
    def line(self) -> str:
        """The statement as one line of Markdown; indented if it is about another statement."""
        return f"{'  ' if self.about else ''}- {self.text}"

    @property
    def tokens(self) -> int:
        """An estimate of its tokens, with the end of the line."""
        return tokens_in(self.line + "\n")


@dataclass
class Digest:
    """The statements that fit, in output order, and the number left out by kind."""

    title: str
    budget: int
    statements: list[Statement]
    left_out: dict[str, int]
    titles: Mapping[str, str] = field(default_factory=lambda: SECTIONS)

    @property
    def markdown(self) -> str:
        """The digest as Markdown."""
        lines = [f"# {self.title}"]
        for section, title in self.titles.items():
            shown = [one.line for one in self.statements if one.section == section]
            lines += ["", f"## {title}", *shown] if shown else []
        return "\n".join([*lines, *(["", self.left_out_line] if self.left_out else [])])

    @property
    def left_out_line(self) -> str:
        """The statements that the budget had no room for; "" if none."""
        if not self.left_out:
            return ""
        named = ", ".join(counted(count, *NOUNS[kind]) for kind, count in self.left_out.items())
        return f"Left out for a budget of {self.budget:,} tokens: {named}. --budget N tells more."

    @property
    def tokens(self) -> int:
        """An estimate of the tokens of the whole digest as Markdown."""
        return tokens_in(self.markdown)


def tokens_in(text: str) -> int:
    """An estimate of the tokens of a text: its characters by `CHARACTERS_PER_TOKEN`, rounded up."""
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)


def fitted(title: str, statements: Sequence[Statement], budget: int, titles: Mapping[str, str] = SECTIONS) -> Digest:
    """As many of the statements as `budget` tokens hold, by importance; a statement needs the one it is about.

    `titles` are the titles of sections.
    """
    room = budget - tokens_in(f"# {title}\n")
    whole = sum(one.tokens for one in statements) + _headings(statements, titles)
    if whole > room:
        room -= LEFT_OUT_SIZE
    shown: set[int] = set()
    keys, sections = {""}, set()
    for place in sorted(range(len(statements)), key=lambda place: -statements[place].importance):
        one = statements[place]
        heading = 0 if one.section in sections else _heading(titles[one.section])
        if one.about in keys and one.tokens + heading <= room:
            room -= one.tokens + heading
            shown.add(place)
            keys.add(one.key)
            sections.add(one.section)
    left = Counter(one.kind or one.section for place, one in enumerate(statements) if place not in shown)
    return Digest(title, budget, [one for place, one in enumerate(statements) if place in shown], dict(left), titles)


def _headings(statements: Iterable[Statement], titles: Mapping[str, str]) -> int:
    return sum(_heading(titles[section]) for section in {one.section for one in statements})


def _heading(title: str) -> int:
    return tokens_in(f"\n## {title}\n")


def quoted_names(kernels: Iterable[str]) -> dict[str, str]:
    """Full names of kernels -> unique short ones as code."""
    return {kernel: quoted(name) for kernel, name in names_shown(kernels, width=LONGEST_NAME).items()}


def quoted(name: str) -> str:
    """A name from a report as code, so that its words read as a name; cut in the middle if long."""
    plain = printable(" ".join(name.replace("`", "'").split()))
    if len(plain) > LONGEST_NAME:
        half = (LONGEST_NAME - 1) // 2
        plain = f"{plain[:half]}…{plain[-half:]}"
    return f"`{plain}`"
