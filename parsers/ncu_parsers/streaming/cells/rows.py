"""Rows of a CSV page, column by column: texts, numbers, whole numbers and shapes.

The loop of `native/` finds the plain rows in a block, if it was compiled; `plain_rows.py` reads the other lines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from types import ModuleType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ncu_parsers.report_data.cell_text import NumberFormat, simple_form, vote
from ncu_parsers.report_data.report import Report
from ncu_parsers.schema.tables import Floats

Codes = npt.NDArray[np.int32]
Integers = npt.NDArray[np.int64]
Places = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

NOT_A_NUMBER = float("nan")

NO_VOTE, OWN_VOTE, AMBIGUOUS, CONTRARY = range(4)
"""A number's vote on the decimal mark it was read with: none, correct, the other mark gives another number, the other
mark is correct. The compiled loop returns the first three."""
MISSING = -1
"""The code of a text whose cell is beyond the row's end, and each side of a shape that is not printed."""


class NotStreamed(Exception):
    """A report must be read launch by launch, since some fact is uncertain until its end; the message is the reason."""

    @property
    def note(self) -> str:
        """The note on a report read launch by launch, which takes several times as long as streaming."""
        return f"read launch by launch, several times slower than as a stream: {self}"


class Kind(Enum):
    """The type of a column's cells. `MIXED` cells are numbers among many words: each distinct text is parsed once."""

    TEXTS = "t"
    NUMBERS = "n"
    MIXED = "m"
    WHOLE = "i"
    SHAPES = "s"


IDENTITY_KINDS = {"ID": Kind.WHOLE, "Process ID": Kind.WHOLE, "Grid Size": Kind.SHAPES, "Block Size": Kind.SHAPES}
"""Title -> type of identity columns that are not texts."""


@dataclass(frozen=True)
class Layout:
    """The columns of a page that are read: title and type of each, in order.

    A row may end after the first `required` cells. The first `leading` cells often equal the previous row's. A row of
    no more than `required` cells needs a text in the column `label` (-1: no such column). `is_compiled`: the compiled
    loop supports the page's delimiter and quotes.
    """

    columns: tuple[tuple[str, Kind], ...]
    required: int
    leading: int = 0
    label: int = -1
    is_compiled: bool = True


@dataclass
class Texts:
    """A column of texts: `codes` are each row's index into the distinct `words`, or `MISSING`."""

    codes: Codes
    words: list[str]


@dataclass
class Numbers:
    """Numbers as printed, without their unit: float64, one per row, NaN for other cells.

    `votes` are int8, one per row. `non_numeric` maps each text that is not a simple number to its rows.
    """

    values: Floats
    votes: npt.NDArray[np.int8]
    non_numeric: dict[str, Places]


@dataclass
class Rows:
    """Rows of one page, with their columns by title, and the lines they were printed as.

    `whole` are int64, one per row; `shapes` are int32 of shape (rows, 3). Row i is printed at `begins[i]` (int64) in
    the concatenated `blocks`.
    """

    count: int
    texts: dict[str, Texts]
    numbers: dict[str, Numbers]
    whole: dict[str, Integers]
    shapes: dict[str, Codes]
    blocks: tuple[bytes, ...]
    begins: Integers

    def line(self, row: int) -> bytes:
        """The printed line of a row."""
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
        """The rows from `begin` on, with a copy of only their lines, so that the other lines can be freed."""
        lines = [self.line(row) for row in range(begin, self.count)]
        rows = self.part(begin, self.count)
        rows.texts = {title: _used(texts) for title, texts in rows.texts.items()}
        rows.blocks = (b"".join(lines),)
        rows.begins = np.array([0, *accumulate(map(len, lines))][:-1], np.int64)
        return rows

    def take(self, places: Places) -> Rows:
        """The rows at these indices, in this order."""
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
    """Concatenate the rows of several parts of one layout."""
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
    """Concatenate texts with each distinct word once: words of the part with the most come first."""
    most = max(parts, key=lambda part: len(part.words))
    places = dict(zip(most.words, range(len(most.words)), strict=True))
    codes = []
    for part in parts:
        if part is most:
            codes.append(part.codes)
            continue
        new = np.array([*(places.setdefault(word, len(places)) for word in part.words), MISSING], np.int32)
        codes.append(new[part.codes])  # MISSING, which is -1, is the last entry
    return Texts(np.concatenate(codes), list(places))


def _used(texts: Texts) -> Texts:
    """The texts without unused words."""
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
    """The indices of each code of `groups`."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    begins, ends = (np.searchsorted(ordered, list(groups), side=side) for side in ("left", "right"))
    return {code: order[begin:end] for code, begin, end in zip(groups, begins.tolist(), ends.tolist(), strict=True)}


def numbers_of(cells: Sequence[str], decimal: str, *, count_votes: bool = True) -> Numbers:
    """Cells as numbers in the simple form of `cell_text`; any other cell is non-numeric here."""
    number_format, simple = NumberFormat(decimal), simple_form(decimal).fullmatch
    values = [number_format.value_of(cell) if simple(cell) else NOT_A_NUMBER for cell in cells]
    non_numeric: dict[str, list[int]] = {}
    for at, value in enumerate(values):
        if value != value:
            non_numeric.setdefault(cells[at], []).append(at)
    votes = [vote_of(cell, decimal) for cell in cells] if count_votes else [NO_VOTE] * len(cells)
    return Numbers(
        np.array(values, np.float64),
        np.array(votes, np.int8),
        {cell: np.array(places) for cell, places in non_numeric.items()},
    )


def vote_of(text: str, decimal: str) -> int:
    """A cell's vote on the decimal mark that it was read with."""
    mark = vote(text)
    if not mark:
        return NO_VOTE
    return OWN_VOTE if mark == decimal else AMBIGUOUS if mark == "?" else CONTRARY


def repeated(distinct: Numbers, codes: Codes) -> Numbers:
    """Expand the numbers of distinct texts to all rows."""
    rows_of = grouped(codes, [int(place) for (place,) in distinct.non_numeric.values()])
    return Numbers(
        distinct.values[codes],
        distinct.votes[codes],
        {text: rows_of[int(place)] for text, (place,) in distinct.non_numeric.items()},
    )


# --------------------------------------------------------------------------------------------------- the compiled loop

loops: ModuleType | None
"""The compiled loop; None if it was not compiled at installation."""
try:
    from ncu_parsers.streaming.cells import _rows as loops
except ImportError:
    loops = None

OTHER_MARK = {".": ",", ",": "."}

NOT_COMPILED = (
    "read by the pure-Python loops, several times slower than the compiled ones: most likely no C compiler was there "
    "at installation; install a wheel, or a C compiler and then ncu-bench again"
)


def note_loops(report: Report) -> None:
    """Add a note to a streamed report of lines if this installation has no compiled loops."""
    if loops is None and report.lines and report.origin == Report.origin:
        report.notes.append(NOT_COMPILED)


class ScannedBlock(NamedTuple):
    """The plain rows of a block, and every other line: number of rows before it, begin and end.

    The scan ends at `end`: after the block, or after a line that may be a header, which is then the last other line.
    """

    rows: Rows
    others: Iterable[tuple[int, int, int]]
    end: int


def scan(block: bytes, start: int, layout: Layout, decimal: str) -> ScannedBlock:
    """Find the plain rows of a block from `start` on: none without the compiled loop, or if a text is not UTF-8."""
    if loops is not None and layout.is_compiled:
        kinds = "".join("t" if kind is Kind.MIXED else kind.value for _, kind in layout.columns)
        try:
            end, count, begins, columns, cells, others = loops.read_rows(
                block, start, kinds, layout.required, layout.leading, layout.label, decimal
            )
        except UnicodeDecodeError:
            return ScannedBlock(NO_ROWS, lines_of(block, start), len(block))
        rows = Rows(count, {}, {}, {}, {}, (block,), np.frombuffer(begins, np.int64)[:count] + start)
        _fill(rows, layout, columns, cells, decimal)
        return ScannedBlock(rows, others, end)
    return ScannedBlock(NO_ROWS, lines_of(block, start), len(block))


def lines_of(block: bytes, begin: int) -> Iterator[tuple[int, int, int]]:
    """Every line of a block from `begin` on, in the form of `ScannedBlock.others`."""
    while begin < len(block):
        end = block.find(b"\n", begin) + 1 or len(block)
        yield 0, begin, end
        begin = end


def _fill(
    rows: Rows,
    layout: Layout,
    columns: Sequence[tuple[bytearray, bytearray, list[str]]],
    cells: Sequence[tuple[int, int, str, bool]],
    decimal: str,
) -> None:
    """Put the columns of the compiled loop into `rows`; `cells` are the cells that are not simple numbers to it."""
    non_numeric: defaultdict[int, list[tuple[int, str, bool]]] = defaultdict(list)
    for at, row, text, is_number in cells:
        non_numeric[at].append((row, text, is_number))
    for at, ((title, kind), (values, votes, words)) in enumerate(zip(layout.columns, columns, strict=True)):
        if kind is Kind.WHOLE:
            rows.whole[title] = np.frombuffer(values, np.int64)[: rows.count]
        elif kind is Kind.SHAPES:
            rows.shapes[title] = np.frombuffer(values, np.int32)[: 3 * rows.count].reshape(-1, 3)
        elif kind is Kind.NUMBERS:
            numbers = Numbers(np.frombuffer(values)[: rows.count], np.frombuffer(votes, np.int8)[: rows.count], {})
            rows.numbers[title] = numbers
            _put_non_numeric(numbers, non_numeric[at], decimal)
        else:
            codes = np.frombuffer(values, np.int32)[: rows.count]
            texts = Texts(codes, [word.replace('""', '"') for word in words])
            if kind is Kind.TEXTS:
                rows.texts[title] = texts
            else:
                rows.numbers[title] = repeated(numbers_of(texts.words, decimal), codes)


def _put_non_numeric(numbers: Numbers, cells: Sequence[tuple[int, str, bool]], decimal: str) -> None:
    """Complete a column: numbers with more digits than the loop divides exactly, and non-numeric texts."""
    rows_of: defaultdict[str, list[int]] = defaultdict(list)
    for row, text, is_number in cells:
        if is_number:
            numbers.values[row] = float(text.replace(OTHER_MARK[decimal], "").replace(decimal, "."))
        else:
            rows_of[text.replace('""', '"')].append(row)
    for text, rows in rows_of.items():
        places = numbers.non_numeric[text] = np.array(rows, np.intp)
        numbers.votes[places] = vote_of(text, decimal)
