"""Lines of cells in quotes -> columns: by the compiled loop, or by pyarrow where there is none or a line is unusual."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pc_csv

from ncu_parsers.schema import arrays
from ncu_parsers.streaming.cells import compiled_loops
from ncu_parsers.streaming.cells.number_cells import (
    OTHER_DECIMAL,
    Cells,
    Integers,
    all_simple,
    are_rows,
    grouped,
    line_ends,
    plainly_ended,
    read_cells,
    text_buffers,
    whole_numbers,
    without_returns,
)
from ncu_parsers.streaming.launch_columns import Shapes, shapes_of

OWN_VOTE, AMBIGUOUS = 1, 2
"""Votes of cells as the compiled loop counts them."""
ENDINGS_WITH_COMMA = {b",\n", b",\r\n"}
BEHIND = "behind the comma"
"""The name of the empty last column where every row ends in a comma: reading it is faster than cutting commas off."""


class Kind(Enum):
    """What the cells of a column are: `MIXED` ones are numbers among much else."""

    TEXTS = "t"
    NUMBERS = "n"
    MIXED = "m"
    WHOLE = "i"
    SHAPES = "s"


_KINDS = {"ID": Kind.WHOLE, "Process ID": Kind.WHOLE, "Grid Size": Kind.SHAPES, "Block Size": Kind.SHAPES}


def kind_of(title: str) -> Kind:
    """What the cells of an identity column are."""
    return _KINDS.get(title, Kind.TEXTS)


@dataclass
class Rows:
    """The rows of a block, column by column as their kinds say; numbers are read, mixed ones too."""

    block: bytes
    count: int
    texts: dict[str, pa.DictionaryArray] = field(default_factory=dict)
    numbers: dict[str, Cells] = field(default_factory=dict)
    whole: dict[str, Integers] = field(default_factory=dict)
    shapes: dict[str, Shapes] = field(default_factory=dict)

    def lines(self, rows: Collection[int]) -> list[str]:
        """Some of the lines as they are printed."""
        lines = self.block.split(b"\n")
        return [lines[row].decode() for row in rows]

    def words(self) -> Iterator[bytes]:
        """All distinct texts of the block, many of them behind each other; not those that are simple numbers."""
        for column in self.texts.values():
            yield text_buffers(column.dictionary)[0]
        for cells in self.numbers.values():
            yield from (text.encode() for text in cells.odd)


Columns = Sequence[tuple[str, Kind]]


def read_rows(
    block: bytes,
    columns: Columns,
    decimal: str,
    *,
    endings: Collection[bytes] = (b"\n", b"\r\n"),
    judged: bool = False,
    count_votes: bool = True,
) -> Rows | None:
    """The rows of a block with columns of these titles and kinds; None where one of its lines is no such row.

    `endings` may stand behind the last quote of a row. `judged` says that each line was found to be a row already.
    Numbers are read with this decimal mark; how they vote on it is left open without `count_votes`.
    """  # fmt: skip
    rows = _compiled(block, columns, decimal, bool(ENDINGS_WITH_COMMA & set(endings)), count_votes)
    return rows or _by_arrow(block, columns, decimal, set(endings), judged, count_votes)


# -------------------------------------------------------------------------------------------------------- compiled


def _compiled(block: bytes, columns: Columns, decimal: str, commas_behind: bool, count_votes: bool) -> Rows | None:
    if compiled_loops.loops is None:
        return None
    kinds = "".join("t" if kind is Kind.MIXED else kind.value for _, kind in columns)
    try:
        found = compiled_loops.loops.read_rows(block, kinds, decimal, commas_behind)
    except UnicodeDecodeError:
        return None
    if found is None:
        return None
    rows = Rows(block, found[0])
    odd: defaultdict[int, list[tuple[int, str, bool]]] = defaultdict(list)
    for at, row, text, is_number in found[2]:
        odd[at].append((row, text, is_number))
    for at, ((title, kind), (cells, votes, words)) in enumerate(zip(columns, found[1], strict=True)):
        if kind is Kind.TEXTS:
            rows.texts[title] = arrays.coded(np.frombuffer(cells, np.int32), words)
        elif kind is Kind.NUMBERS:
            numbers = rows.numbers[title] = Cells(np.frombuffer(cells, np.float64))
            _put_odd(numbers, odd[at], decimal)
            if count_votes:
                marks = np.frombuffer(votes, np.int8)
                numbers.own_votes, numbers.ambiguous = marks == OWN_VOTE, marks == AMBIGUOUS
        elif kind is Kind.MIXED:
            distinct = read_cells(arrays.texts(words), decimal, count_votes)
            rows.numbers[title] = _repeated(distinct, np.frombuffer(cells, np.int32))
        elif kind is Kind.WHOLE:
            rows.whole[title] = np.frombuffer(cells, np.int64)
        else:
            rows.shapes[title] = np.frombuffer(cells, np.int32).reshape(-1, 3)
    return rows


def _put_odd(numbers: Cells, odd: Sequence[tuple[int, str, bool]], decimal: str) -> None:
    """Put what is no simple number, or one of more digits than can be divided exactly, to the numbers of a column."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for row, text, is_number in odd:
        if is_number:
            numbers.values[row] = float(text.replace(OTHER_DECIMAL[decimal], "").replace(decimal, "."))
        else:
            places[text].append(row)
    numbers.odd = {text: np.array(rows, np.intp) for text, rows in places.items()}


def _repeated(distinct: Cells, codes: npt.NDArray[np.int32]) -> Cells:
    """Distinct cells at all places where they stand."""
    places = grouped(codes, len(distinct.values))
    return Cells(
        distinct.values[codes],
        {text: places[int(code)] for text, (code,) in distinct.odd.items()},
        None if distinct.own_votes is None else distinct.own_votes[codes],
        None if distinct.ambiguous is None else distinct.ambiguous[codes],
    )


# ---------------------------------------------------------------------------------------------------------- pyarrow


def _by_arrow(
    block: bytes, columns: Columns, decimal: str, endings: set[bytes], judged: bool, count_votes: bool
) -> Rows | None:
    block, has_commas_behind = _plainly_ended(block, endings)
    titles = [title for title, _ in columns] + [BEHIND] * has_commas_behind
    kinds = {Kind.WHOLE: pa.string(), Kind.SHAPES: pa.string(), Kind.TEXTS: pa.dictionary(pa.int32(), pa.binary())}
    try:
        table = pc_csv.read_csv(
            pa.BufferReader(block),
            pc_csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=titles),
            pc_csv.ParseOptions(ignore_empty_lines=False),
            pc_csv.ConvertOptions(
                column_types={title: kinds.get(kind, pa.binary()) for title, kind in columns} | {BEHIND: pa.string()},
                strings_can_be_null=False,
            ),
        )
        cells = {title: arrays.decoded(arrays.one(table.column(title))) for title in titles}
        numbers = _Numbers({title: cells.pop(title) for title, kind in columns if kind is Kind.NUMBERS})
        if len(table) != line_ends(block):
            return None
        if has_commas_behind and text_buffers(cells.pop(BEHIND))[0]:
            return None
        commas = len(table) if has_commas_behind else 0
        if not judged and not are_rows(block, len(table), [*cells.values(), *numbers.together], commas):
            return None
        return _rows_of(cells, numbers, columns, Rows(block, len(table)), decimal, count_votes)
    except pa.ArrowInvalid:
        return None


def _plainly_ended(block: bytes, endings: set[bytes]) -> tuple[bytes, bool]:
    """The block with a line feed alone behind each row, or with a comma before each: True then."""
    if endings == {b",\n"}:
        return block, True
    if endings & ENDINGS_WITH_COMMA:
        return plainly_ended(block), False
    return (without_returns(block) if b"\r\n" in endings and b"\r" in block else block), False


class _Numbers:
    """The columns of numbers of a block: all cells as one column, since each step of Arrow has its cost."""

    def __init__(self, columns: dict[str, pa.Array]) -> None:
        self.columns = columns
        self.together = [pa.concat_arrays(list(columns.values()))] if columns else []

    def read(self, decimal: str, count_votes: bool) -> dict[str, Cells]:
        """The cells by column: at once where all are simple numbers, else column by column."""
        simple = all_simple(self.together[0], decimal, count_votes) if self.together else None
        if simple is None:
            return {title: _mixed(column, decimal, count_votes) for title, column in self.columns.items()}
        result = {}
        for at, title in enumerate(self.columns):
            rows = slice(at * len(self.columns[title]), (at + 1) * len(self.columns[title]))
            result[title] = Cells(
                simple.values[rows],
                {},
                None if simple.own_votes is None else simple.own_votes[rows],
                None if simple.ambiguous is None else simple.ambiguous[rows],
            )
        return result


def _mixed(column: pa.Array, decimal: str, count_votes: bool) -> Cells:
    return read_cells(arrays.cast(column, pa.string()), decimal, count_votes)


def _rows_of(
    cells: dict[str, pa.Array], numbers: _Numbers, columns: Columns, rows: Rows, decimal: str, count_votes: bool
) -> Rows | None:
    rows.numbers = numbers.read(decimal, count_votes)
    for title, kind in columns:
        if kind is Kind.TEXTS:
            rows.texts[title] = cells[title]
        elif kind is Kind.MIXED:
            rows.numbers[title] = _mixed(cells[title], decimal, count_votes)
        elif kind is Kind.SHAPES:
            rows.shapes[title] = shapes_of(cells[title])
        elif kind is Kind.WHOLE:
            whole = whole_numbers(cells[title])
            if whole is None:
                return None
            rows.whole[title] = whole
    return rows
