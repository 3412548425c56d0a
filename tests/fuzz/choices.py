"""Bytes as a row of choices, so that mutated bytes build inputs that are whole and wrong in single places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")

ODD_TEXTS = ("", "n/a", "nan", "iteration 99999999999", "a\x00b", "\ufffd", "<b>&'\"", "=1+1", "k" * 300, "\u6838", "0")
ODD_NUMBERS = (
    0, -1, 1, 255, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63), -(2**63) + 1, 1 << 48, 7 << 24,
)  # fmt: skip
ODD_REALS = (0.0, -0.0, 0.5, -1.5, 1e308, -1e308, 5e-324, float("inf"), float("-inf"), float("nan"))


class Choices:
    """The choices that some bytes stand for; when they are used up, every choice is the first."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> bool:
        """Whether there are choices left."""
        return self._at < len(self._data)

    def number(self, below: int) -> int:
        """A number from 0 to `below` - 1."""
        width = 1 if below <= 256 else 8
        chunk = self._data[self._at : self._at + width]
        self._at += width
        return int.from_bytes(chunk, "little") % below if below else 0

    def one_of(self, items: Sequence[Item]) -> Item:
        """One of the items."""
        return items[self.number(len(items))]

    def value(self) -> object:
        """Any value that a cell may have."""
        kind = self.number(6)
        if kind == 0:
            return None
        if kind == 1:
            return self.one_of(ODD_NUMBERS)
        if kind == 2:
            return self.number(2**64) - 2**63
        if kind == 3:
            return self.one_of(ODD_REALS)
        if kind == 4:
            return self.one_of(ODD_TEXTS)
        return bytes([self.number(256), self.number(256)])
