"""Parts of a kernel or a timeline as text: a heading, and below it right-aligned values with their references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from ncu_tools.report.table import printable

WIDTH = 80
"""Width if standard output is no terminal, and the most on a wide one: longer sentences are hard to read."""
TITLES, VALUES = 40, 14
"""The most columns of titles and of values; longer titles are wrapped, longer values shift the rest of the line."""

Row = Mapping[str, Any]


def of_values(rows: Sequence[Row], width: int) -> list[str]:
    """Rows of values: "title", "value", then "against" and "spread"."""
    titles = min(TITLES, max((len(str(row["title"])) for row in rows), default=0))
    values = min(VALUES, max((len(_text(row, "value")) for row in rows), default=0))
    lines = []
    for row in rows:
        value = _text(row, "value")
        room = titles + values - max(len(value), values)
        title = wrap(printable(str(row["title"])), max(room, 16)) or [""]
        behind = ", ".join(filter(None, (_text(row, "against"), _spread(row))))
        head = f"  {title[0]:<{titles}}  " if len(value) <= values else f"  {title[0]:<{room}}  "
        lines += hanging(f"{head}{value:>{values}}", behind, width)
        lines += [f"    {line}" for line in title[1:]]
    return lines


def of_sentences(rows: Sequence[Row], width: int) -> list[str]:
    """Rows of sentences: "value", then the sentence "title", with "against" below it."""
    values = max((len(_text(row, "value")) for row in rows), default=0)
    lines = []
    for row in rows:
        lines += hanging(f"  {_text(row, 'value'):<{values}}", str(row["title"]), width)
        if row.get("against"):
            lines += hanging(f"  {'':<{values}}", f"  {_text(row, 'against')}", width)
    return lines


def paragraph(text: str, width: int) -> list[str]:
    """A wrapped paragraph; per cent signs stay with their numbers."""
    lines = wrap(printable(text).replace(" %", "\u00a0%"), width, break_on_hyphens=False)
    return [line.replace("\u00a0%", " %") for line in lines]


def _text(row: Row, name: str) -> str:
    return printable(str(row.get(name) or ""))


def _spread(row: Row) -> str:
    return f"launches: {_text(row, 'spread')}" if row.get("spread") else ""


def hanging(head: str, text: str, width: int) -> list[str]:
    """A head followed by a text with a hanging indent; per cent signs stay with their numbers."""
    if not text:
        return [head.rstrip()]
    indent = len(head) + 2
    own = len(text) - len(text.lstrip())
    first, *more = paragraph(text.strip(), max(width - indent - own, 20))
    return [f"{head}  {' ' * own}{first}", *(" " * (indent + own) + line for line in more)]
