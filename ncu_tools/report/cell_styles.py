"""Colours of cells on a terminal: tripped gates, slower and faster values, values near the roof or unknown."""

from __future__ import annotations

from typing import Any

from ncu_tools.compare.gate import NOT_EVALUATED, PASSED, REFUSED, TRIPPED
from ncu_tools.numbers.change import LESS, MORE, UNKNOWN, VERDICTS

BAD, GOOD, DOUBTFUL, NEAR_ROOF, DIM = "red", "green", "yellow", "cyan", "dim"
CODES = {BAD: 31, GOOD: 32, DOUBTFUL: 33, NEAR_ROOF: 36, DIM: 2}
"""Style -> its number in an escape sequence."""
OF_GATES = {PASSED: GOOD, TRIPPED: BAD, NOT_EVALUATED: DOUBTFUL, REFUSED: DOUBTFUL}
OF_CHANGES = {VERDICTS[MORE]: BAD, VERDICTS[LESS]: GOOD}
NEAR = 0.8
"""The share of its roof above which a kernel is near it."""
NOT_KNOWN = frozenset({UNKNOWN, "unknown", "no verdict"})


def style_of(name: str, value: Any) -> str:
    """The style of a value in the column `name`; "" for most."""
    if name == "outcome":
        return OF_GATES.get(value, "")
    if name == "bound_fraction":
        return NEAR_ROOF if value is not None and value >= NEAR else ""
    if name == "verdict" and value:
        return next((style for words, style in OF_CHANGES.items() if value.startswith(words)), "")
    return DIM if isinstance(value, str) and value in NOT_KNOWN else ""


def painted(text: str, style: str) -> str:
    """A text in a style for a terminal; unchanged without one."""
    return f"\x1b[{CODES[style]}m{text}\x1b[0m" if style else text
