"""Answers of bounded length: as many rows as fit, and a cursor for the rest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ncu_tools.kernels.kernel_row import names_shown

MOST_CHARACTERS = 24_000
"""Characters of one answer: about 6,000 tokens."""
LONGEST_TEXT = 2_000
"""Characters of one text in an answer; kernel names of templates have up to 20,000, and an id beside them."""


def bounded(answer: dict[str, Any], cursor: int = 0, most: int = MOST_CHARACTERS) -> dict[str, Any]:
    """The rows of an answer from number `cursor` on; the first page also has everything beside the rows.

    `next_cursor` is None on the last page. Texts are cut to `LONGEST_TEXT` with an ellipsis. A part that is too long by
    itself is replaced by a sentence with its length: a row from half an answer on, other parts if the answer would
    exceed it. Rows of kernels, which have an id, begin with a unique short name.
    """
    rows = [_fitted(_with_short_texts(row), most // 2) for row in _with_short_names(answer.get("rows", ()))]
    found: dict[str, Any] = {}
    room = most // 2
    for key, value in _all_but_rows(answer).items() if cursor == 0 else ():
        found[key] = _fitted(_with_short_texts(value), room)
        room -= min(room, _size(found[key]))
    room = most - _size(found)
    taken: list[Any] = []
    for row in rows[cursor:]:
        room -= _size(row)
        if taken and room < 0:
            break
        taken.append(row)
    after = cursor + len(taken)
    return {**found, "rows": taken, "all_rows": len(rows), "next_cursor": after if after < len(rows) else None}


def _with_short_names(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    kernels = {row["kernel_id"]: row["kernel"] for row in rows if row.get("kernel_id") and row.get("kernel")}
    names = names_shown(kernels.values())
    return [{"short_name": names[row["kernel"]], **row} if row.get("kernel_id") in kernels else row for row in rows]


def _all_but_rows(answer: dict[str, Any]) -> dict[str, Any]:
    """Everything except the rows; for columns, only units."""
    found = {key: value for key, value in answer.items() if key not in ("rows", "columns")}
    units = {name: unit for name, unit in answer.get("columns", {}).items() if unit}
    return {**found, "units": units} if units else found


def _fitted(value: Any, most: int) -> Any:
    size = _size(value)
    return value if size <= most else f"left out: {size:,} characters"


def _size(value: Any) -> int:
    return len(json.dumps(value)) + 2


def _with_short_texts(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else value[:LONGEST_TEXT] + "…"
    if isinstance(value, dict):
        return {key: _with_short_texts(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_short_texts(one) for one in value]
    return value


def bounded_text(text: str, cursor: int = 0, most: int = MOST_CHARACTERS) -> dict[str, Any]:
    """A text from character `cursor` on, up to a nearby line end if there is one."""
    part = text[cursor : cursor + most]
    if cursor + most < len(text) and "\n" in part[most // 2 :]:
        part = part[: part.rindex("\n") + 1]
    after = cursor + len(part)
    return {"text": part, "next_cursor": after if after < len(text) else None}
