"""Patterns by which commands find a kernel."""

from __future__ import annotations

import re

from ncu_parsers.schema.tables import short_name

_WORD = re.compile(r"[A-Za-z_]\w+")


def word_of(kernel: str) -> str:
    """A regular expression that finds a kernel by the first word of its short name; its whole name if it has none."""
    word = _WORD.search(short_name(kernel))
    return word[0] if word else re.escape(kernel)
