"""Parse rows of CSV files and common cells: whole numbers, grids and blocks."""

from __future__ import annotations

import csv
import re

csv.field_size_limit(2**31 - 1)  # kernel names and instance lists have no length limit

MOST_DIGITS = 40
"""Longer digit strings are no number of any report; Python refuses to convert thousands of digits."""

DELIMITERS = (",", ";", "\t")

_TRIPLE = re.compile(r"\(?\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)?$")


def split_row(line: str, delimiter: str) -> list[str] | None:
    """The cells of a line; None if a quote is not closed."""
    if line.count('"') % 2:
        return None
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return None


def whole(text: str | None, bits: int = 63) -> int | None:
    """A non-negative integer below 2**bits; None for any other text ("n/a")."""
    digits = text.strip() if text else ""
    number = int(digits) if digits.isdecimal() and len(digits) <= MOST_DIGITS else None
    return number if number is not None and number < 1 << bits else None


def triple(text: str | None) -> tuple[int, int, int] | None:
    """A grid or block such as "(16, 16, 1)" or "  512,  1,  1"; None for any other text."""
    match = _TRIPLE.match(text.strip()) if text else None
    x, y, z = (whole(part, bits=31) for part in match.groups()) if match else (None, None, None)
    return None if x is None or y is None or z is None else (x, y, z)


def present(text: str | None) -> str | None:
    """The stripped cell; None if it is empty or "n/a"."""
    return None if text is None or text.strip() in ("", "n/a") else text.strip()
