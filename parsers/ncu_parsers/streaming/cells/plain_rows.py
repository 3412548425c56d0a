"""Turn rows that their page split and judged into the same columns as the compiled loop, whose oracle this is.

These are the lines that the compiled loop leaves: unusual ones, other delimiters, and all if the loop was not compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat, zip_longest
from typing import NamedTuple, cast

import numpy as np

from ncu_parsers.report_data.cell_text import triple, whole
from ncu_parsers.streaming.cells.rows import (
    MISSING,
    Codes,
    Integers,
    Kind,
    Layout,
    NotStreamed,
    Rows,
    Texts,
    numbers_of,
    repeated,
)

NO_SHAPE = (MISSING,) * 3
ABSENT_SHAPE = "n/a"


class JudgedRow(NamedTuple):
    """A row that its page judged: number of plain rows before it, position of its line in the block, its cells."""

    before: int
    begin: int
    cells: list[str]


def plain_rows(
    judged: Sequence[JudgedRow],
    block: bytes,
    layout: Layout,
    decimal: str,
    *,
    count_votes: bool = True,
) -> Rows:
    """The judged rows of a block. Raises `NotStreamed` for ids and shapes in a form that ncu does not print.

    Without `count_votes`, numbers cast no vote on the decimal mark, which saves half their time.
    """
    rows = Rows(len(judged), {}, {}, {}, {}, (block,), np.array([row.begin for row in judged], np.int64))
    missing = repeat((None,) * len(judged))  # columns that no row reaches
    columns = chain(zip_longest(*(row.cells for row in judged)), missing)
    for (title, kind), cells in zip(layout.columns, columns, strict=False):
        if kind is Kind.TEXTS:
            rows.texts[title] = coded(cells)
        elif kind is Kind.WHOLE:
            rows.whole[title] = _whole_of(cells)
        elif kind is Kind.SHAPES:
            rows.shapes[title] = _shapes_of(coded(cells))
        elif kind is Kind.NUMBERS:
            rows.numbers[title] = numbers_of(cast(Sequence[str], cells), decimal, count_votes=count_votes)
        else:
            texts = coded(cells)
            rows.numbers[title] = repeated(numbers_of(texts.words, decimal, count_votes=count_votes), texts.codes)
    return rows


def coded(cells: Sequence[str | None]) -> Texts:
    """Cells as codes of their distinct texts; None is `MISSING`."""
    places: dict[str | None, int] = {None: MISSING}
    codes = [places.setdefault(cell, len(places) - 1) for cell in cells]
    del places[None]
    return Texts(np.array(codes, np.int32), [word for word in places if word is not None])


def _whole_of(cells: Sequence[str | None]) -> Integers:
    numbers = [whole(cell) for cell in cells]
    if any(str(number) != cell for number, cell in zip(numbers, cells, strict=True)):
        raise NotStreamed("its ids are printed unusually")  # 07 and 7 are two launches to ncu
    return np.array(numbers, np.int64)


def _shapes_of(texts: Texts) -> Codes:
    """Shapes from their texts. Launches are distinguished by the texts, so two texts must not give one shape."""
    if any(word.strip().isdecimal() for word in texts.words):
        raise NotStreamed("its shapes are counts")
    shapes = [triple(word) for word in texts.words]
    if any(word not in (str(shape), ABSENT_SHAPE) for word, shape in zip(texts.words, shapes, strict=True)):
        raise NotStreamed("its shapes are printed unusually")
    return np.array([*(shape or NO_SHAPE for shape in shapes), NO_SHAPE], np.int32)[texts.codes]
