"""Blocks of a page -> their plain rows and the other lines, by the loop of `native/` if it was compiled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import NamedTuple

import numpy as np

from ncu_parsers.report_data.report import Report
from ncu_parsers.streaming.cells.plain_rows import numbers_of, repeated, vote_of
from ncu_parsers.streaming.cells.rows import NO_ROWS, Kind, Layout, Numbers, Rows, Texts

loops: ModuleType | None
"""The compiled loop; None where a compiler was missing at installation."""
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
    """The plain rows of a block, and every other line: how many rows are before it, where it begins and ends.

    The scan ends at `end`: behind the block, or behind a line that may be a header, which is the last of the others.
    """

    rows: Rows
    others: Iterable[tuple[int, int, int]]
    end: int


def scan(block: bytes, start: int, layout: Layout, decimal: str) -> ScannedBlock:
    """Find the plain rows of a block from `start` on; without the compiled loop every line is another one."""
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
    """Every line of a block from `begin` on, as `ScannedBlock.others` has them."""
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
    """Put the columns of the compiled loop into `rows`; `cells` are those it read as no simple number."""
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
    """Complete a column: numbers of more digits than the loop divides exactly, and texts that are no numbers."""
    rows_of: defaultdict[str, list[int]] = defaultdict(list)
    for row, text, is_number in cells:
        if is_number:
            numbers.values[row] = float(text.replace(OTHER_MARK[decimal], "").replace(decimal, "."))
        else:
            rows_of[text.replace('""', '"')].append(row)
    for text, rows in rows_of.items():
        places = numbers.non_numeric[text] = np.array(rows, np.intp)
        numbers.votes[places] = vote_of(text, decimal)
