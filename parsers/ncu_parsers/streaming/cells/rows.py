"""Rows of a CSV page, column by column: texts, numbers, whole numbers and shapes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from ncu_parsers.schema.tables import Floats

Codes = npt.NDArray[np.int32]
Integers = npt.NDArray[np.int64]
Places = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

NO_VOTE, OWN_VOTE, AMBIGUOUS, CONTRARY = range(4)
"""What a number says about the decimal mark it was read with: nothing, that it is right, that the other one would read
a different number, that the other one is right. The compiled loop gives the first three.
"""
MISSING = -1
"""The code of a text whose cell the row does not reach, and each side of a shape that is not printed."""


class NotStreamed(Exception):
    """What a report says is not certain before its end, so it is to be read launch by launch; the message says why."""

    @property
    def note(self) -> str:
        """The note on a report that was read launch by launch, which takes several times as long as streaming."""
        return f"read launch by launch, several times slower than as a stream: {self}"


class Kind(Enum):
    """What the cells of a column are. `MIXED` ones are numbers among many words: each distinct text is read once."""

    TEXTS = "t"
    NUMBERS = "n"
    MIXED = "m"
    WHOLE = "i"
    SHAPES = "s"


IDENTITY_KINDS = {"ID": Kind.WHOLE, "Process ID": Kind.WHOLE, "Grid Size": Kind.SHAPES, "Block Size": Kind.SHAPES}
"""The kinds of identity columns that are not texts, by title."""


@dataclass(frozen=True)
class Layout:
    """The columns of a page that are read: title and kind of each, in their order.

    A row may end behind the first `required` cells. The first `leading` cells are often those of the row before. A row
    of no more than `required` cells needs a text in the column `label` (-1: no such column). `is_compiled` is whether
    the compiled loop knows the page's delimiter and quotes.
    """

    columns: tuple[tuple[str, Kind], ...]
    required: int
    leading: int = 0
    label: int = -1
    is_compiled: bool = True


@dataclass
class Texts:
    """Texts: for each row the place of its text among the distinct `words`, or `MISSING`."""

    codes: Codes
    words: list[str]


@dataclass
class Numbers:
    """Numbers as printed, without their unit: float64, one per row, NaN where the cell is no simple number.

    `votes` are int8, one per row. `non_numeric` has the rows of each text that is no simple number.
    """

    values: Floats
    votes: npt.NDArray[np.int8]
    non_numeric: dict[str, Places]


@dataclass
class Rows:
    """Rows of one page, with their columns by title, and the lines they were printed as.

    `whole` are int64, one per row; `shapes` are int32 of shape (rows, 3). Row i is printed at `begins[i]` (int64)
    of the `blocks`, counted as if they were one.
    """

    count: int
    texts: dict[str, Texts]
    numbers: dict[str, Numbers]
    whole: dict[str, Integers]
    shapes: dict[str, Codes]
    blocks: tuple[bytes, ...]
    begins: Integers

    def line(self, row: int) -> bytes:
        """The line that a row is printed in."""
        begin = int(self.begins[row])
        for block in self.blocks:
            if begin < len(block):
                return block[begin : block.find(b"\n", begin) + 1 or len(block)]
            begin -= len(block)
        raise IndexError(row)

    def part(self, begin: int, end: int) -> Rows:
        """The rows from `begin` up to `end`, without a copy."""
        return self._at(slice(begin, end), end - begin, np.arange(begin, end))

    def last(self, begin: int) -> Rows:
        """The rows from `begin` on, with a copy of their lines alone: they do not keep the block of the others."""
        lines = [self.line(row) for row in range(begin, self.count)]
        rows = self.part(begin, self.count)
        rows.texts = {title: _used(texts) for title, texts in rows.texts.items()}
        rows.blocks = (b"".join(lines),)
        rows.begins = np.array([0, *accumulate(map(len, lines))][:-1], np.int64)
        return rows

    def taken(self, places: Places) -> Rows:
        """The rows at these places, in their order."""
        return self._at(places, len(places), places)

    def _at(self, chosen: slice | Places, count: int, places: Places) -> Rows:
        return Rows(
            count,
            {title: Texts(texts.codes[chosen], texts.words) for title, texts in self.texts.items()},
            {title: self._numbers_at(numbers, chosen, places) for title, numbers in self.numbers.items()},
            {title: whole[chosen] for title, whole in self.whole.items()},
            {title: shapes[chosen] for title, shapes in self.shapes.items()},
            self.blocks,
            self.begins[chosen],
        )

    def _numbers_at(self, numbers: Numbers, chosen: slice | Places, places: Places) -> Numbers:
        non_numeric: dict[str, Places] = {}
        if numbers.non_numeric:
            place_of = np.full(self.count, -1, np.intp)
            place_of[places] = np.arange(len(places))
            for text, rows in numbers.non_numeric.items():
                kept = place_of[rows]
                kept = kept[kept >= 0]
                if len(kept):
                    non_numeric[text] = kept
        return Numbers(numbers.values[chosen], numbers.votes[chosen], non_numeric)


NO_ROWS = Rows(0, {}, {}, {}, {}, (), np.empty(0, np.int64))


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of several parts of one layout, one part behind the other."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    before = [0, *accumulate(part.count for part in parts)]
    bytes_before = accumulate((sum(map(len, part.blocks)) for part in parts[:-1]), initial=0)
    return Rows(
        before[-1],
        {title: joined_texts([part.texts[title] for part in parts]) for title in first.texts},
        {title: _joined_numbers([part.numbers[title] for part in parts], before) for title in first.numbers},
        {title: np.concatenate([part.whole[title] for part in parts]) for title in first.whole},
        {title: np.concatenate([part.shapes[title] for part in parts]) for title in first.shapes},
        tuple(block for part in parts for block in part.blocks),
        np.concatenate([part.begins + begun for part, begun in zip(parts, bytes_before, strict=True)]),
    )


def joined_texts(parts: Sequence[Texts]) -> Texts:
    """The texts of several parts, each distinct one once: those of the part with most of them first."""
    most = max(parts, key=lambda part: len(part.words))
    places = dict(zip(most.words, range(len(most.words)), strict=True))
    codes = []
    for part in parts:
        if part is most:
            codes.append(part.codes)
            continue
        new = np.array([*(places.setdefault(word, len(places)) for word in part.words), MISSING], np.int32)
        codes.append(new[part.codes])  # MISSING, which is -1, is the last
    return Texts(np.concatenate(codes), list(places))


def _used(texts: Texts) -> Texts:
    """The texts of a few rows, without words that none of them has."""
    codes = texts.codes.tolist()
    places = {code: place for place, code in enumerate(code for code in dict.fromkeys(codes) if code != MISSING)}
    return Texts(
        np.array([places.get(code, MISSING) for code in codes], np.int32), [texts.words[code] for code in places]
    )


def _joined_numbers(parts: Sequence[Numbers], before: Sequence[int]) -> Numbers:
    non_numeric: dict[str, list[Places]] = {}
    for part, begun in zip(parts, before, strict=False):
        for text, rows in part.non_numeric.items():
            non_numeric.setdefault(text, []).append(rows + begun)
    return Numbers(
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.votes for part in parts]),
        {text: np.concatenate(rows) for text, rows in non_numeric.items()},
    )


def grouped(codes: Codes, groups: Collection[int]) -> dict[int, Places]:
    """For each of some codes the places where it stands."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    begins, ends = (np.searchsorted(ordered, list(groups), side=side) for side in ("left", "right"))
    return {code: order[begin:end] for code, begin, end in zip(groups, begins.tolist(), ends.tolist(), strict=True)}
