"""Cells of CSV files, and what is printed in them: rows, whole numbers, grids and blocks."""

from __future__ import annotations

import csv
import re

csv.field_size_limit(2**31 - 1)  # kernel names and instance lists have no length limit

MOST_DIGITS = 40
"""More are no number of anything: Python refuses thousands, and few with zeros before them are as good."""

DELIMITERS = (",", ";", "\t")

_TRIPLE = re.compile(r"\(?\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)?$")


def split_row(line: str, delimiter: str) -> list[str] | None:
    """The cells of a line, or None when its quotes do not close."""
    if line.count('"') % 2:
        return None
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return None


def whole(text: str | None, bits: int = 63) -> int | None:
    """A whole number of so many bits, or None for anything else ("n/a")."""
    digits = text.strip() if text else ""
    number = int(digits) if digits.isdecimal() and len(digits) <= MOST_DIGITS else None
    return number if number is not None and number < 1 << bits else None


def triple(text: str | None) -> tuple[int, int, int] | None:
    """A grid or block such as "(16, 16, 1)" or "  512,  1,  1"; None for anything else."""
    match = _TRIPLE.match(text.strip()) if text else None
    x, y, z = (whole(part, bits=31) for part in match.groups()) if match else (None, None, None)
    return None if x is None or y is None or z is None else (x, y, z)


def present(text: str | None) -> str | None:
    """A cell without the space around it; None where it is empty or "n/a"."""
    return None if text is None or text.strip() in ("", "n/a") else text.strip()
