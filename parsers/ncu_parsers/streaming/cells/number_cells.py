"""Many printed cells -> numbers at once, where it is certain that they mean what `units` reads in them one by one.

A cell of digits, with or without groups of three and decimals, is converted together with all others. Every other cell
(`n/a`, words, instances, other ways to write a number) is read by the plain rules, each distinct text once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ncu_parsers.report_data.units import vote
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import Floats

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

DIGITS = b"0123456789"
COMMA, POINT, ZERO, NINE, QUOTE, LINE_END, RETURN = b',.09"\n\r'
OPENING, SPACE, CLOSING = b"( )"

OTHER_DECIMAL = {".": ",", ",": "."}
_SWAPPED = bytes.maketrans(b".,", b",.")


@dataclass
class Votes:
    """How many cells can be read in one locale only: in that of the format they were read with, or in the other one.

    `own` may be too small, never too great. `open` says that some cell reads differently in either.
    """

    own: int = 0
    contrary: int = 0
    open: bool = False

    def add(self, other: Votes) -> None:
        """Count the votes of other cells of the same format in."""
        self.own += other.own
        self.contrary += other.contrary
        self.open |= other.open


@dataclass
class Cells:
    """Printed cells: the number where there is one, and by its place each text that is not a simple number."""

    values: Floats
    odd: dict[str, npt.NDArray[np.intp]] = field(default_factory=dict)
    own_votes: Mask | None = None
    ambiguous: Mask | None = None


def line_ends(block: bytes) -> int:
    """How many lines end in a block: as `bytes.count`, several times faster."""
    return int(np.count_nonzero(np.frombuffer(block, np.uint8) == LINE_END))


def without_returns(block: bytes) -> bytes:
    """Lines without carriage returns before their ends: as `bytes.replace`, in half the time where there are few."""
    letters = np.frombuffer(block, np.uint8)
    returns = np.flatnonzero(letters[:-1] == RETURN)
    return np.delete(letters, returns[letters[returns + 1] == LINE_END]).tobytes()


def plainly_ended(block: bytes) -> bytes:
    """The lines of a block without a carriage return before their ends, and without a comma between quote and end."""
    letters = np.frombuffer(block, np.uint8)
    last = np.flatnonzero(letters == LINE_END) - 1
    returned = letters[last] == RETURN
    before = last - returned
    ended = (letters[before] == COMMA) & (letters[np.maximum(before - 1, 0)] == QUOTE)
    kept = np.ones(len(letters), bool)
    kept[last[returned]] = kept[before[ended]] = False
    return letters[kept].tobytes()


def are_rows(block: bytes, rows: int, columns: Iterable[pa.Array], commas: int = 0) -> bool:
    """Whether each line of a block is one of so many rows, its quotes close, and no character of it is odd.

    `columns` are all cells of the block as pyarrow read them, texts or dictionaries; several columns may be one. So
    many `commas` stand behind them.
    """
    if b"\r" in block or b"\0" in block or not (block.isascii() or b"\xef\xbf\xbd" not in block):
        return False
    return _plainly_quoted(block, columns, commas) or _closed_rows(block, rows)


def _plainly_quoted(block: bytes, columns: Iterable[pa.Array], commas: int) -> bool:
    """Whether every cell stands in quotes, with no quote and no line end inside.

    With a pair of quotes around each cell, and a comma or line end behind it, the texts are all bytes there are; since
    no text holds a quote, there are no other ones.
    """
    size = commas
    for column in columns:
        data, offsets = text_buffers(arrays.distinct(column))
        if b'"' in data or b"\n" in data:
            return False
        if isinstance(column, pa.DictionaryArray):
            uses = np.bincount(arrays.values_of(column.indices, np.int32), minlength=len(column.dictionary))
            size += int(uses @ np.diff(offsets))
        else:
            size += len(data)
        size += 3 * len(column)
    return size == len(block)


def _closed_rows(block: bytes, rows: int) -> bool:
    """Whether there are so many lines, and each begins with a quote and has an even number of them."""
    letters = np.frombuffer(block, np.uint8)
    quotes, ends = np.flatnonzero(letters == QUOTE), np.flatnonzero(letters == LINE_END)
    begins = np.concatenate([[0], ends[:-1] + 1])
    if len(ends) != rows or (letters[begins] != QUOTE).any():
        return False
    return not (np.searchsorted(quotes, ends) % 2).any()


def text_buffers(texts: pa.StringArray) -> tuple[bytes, npt.NDArray[np.int64]]:
    """The characters of all texts, and where each begins."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = texts.buffers()[2]
    if data is None or not len(texts):
        return b"", np.zeros(len(texts) + 1, np.int64)
    return data.slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes(), offsets.astype(np.int64) - offsets[
        0
    ]


def whole_numbers(texts: pa.StringArray) -> Integers | None:
    """Cells of nothing but digits as integers; None when one is anything else."""
    data, offsets = text_buffers(texts)
    lengths = np.diff(offsets)
    if data.translate(None, DIGITS) or (len(lengths) and not 1 <= lengths.min() <= lengths.max() <= 18):
        return None
    return arrays.values_of(arrays.cast(texts, pa.int64()), np.int64)


def triples(texts: pa.StringArray) -> npt.NDArray[np.int32] | None:
    """Cells such as "(16, 16, 1)", shape (rows, 3); None when one is anything else."""
    data, offsets = text_buffers(texts)
    letters = np.frombuffer(data, np.uint8)
    commas = np.flatnonzero(letters == COMMA)
    if data.translate(None, b"0123456789(, )") or len(commas) != 2 * len(texts) or not len(texts):
        return None
    first, second = commas[0::2], commas[1::2]
    begins, ends = offsets[:-1], offsets[1:] - 1
    if (letters[begins] != OPENING).any() or (letters[ends] != CLOSING).any() or (letters[commas + 1] != SPACE).any():
        return None
    for mark, times in ((SPACE, 2), (OPENING, 1), (CLOSING, 1)):
        if np.count_nonzero(letters == mark) != times * len(texts):
            return None
    lengths = np.stack([first - begins - 1, second - first - 2, ends - second - 2], axis=1).reshape(-1)
    if lengths.min() < 1:
        return None
    edges = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    digits = pa.py_buffer(data.translate(None, b"(, )"))
    numbers = pa.Array.from_buffers(pa.string(), len(lengths), [None, pa.py_buffer(edges.tobytes()), digits])
    try:
        return arrays.values_of(arrays.cast(numbers, pa.int32()), np.int32).reshape(-1, 3)
    except pa.ArrowInvalid:
        return None


def read_cells(texts: pa.StringArray, decimal: str, count_votes: bool = True) -> Cells:
    """The cells read with this decimal mark. Values of cells in `odd` are NaN."""
    simple = all_simple(texts, decimal, count_votes)
    if simple is not None:
        return simple
    looks_simple = _look_simple(texts)
    simple = all_simple(arrays.kept(texts, looks_simple), decimal, count_votes) if looks_simple.any() else None
    result = Cells(np.full(len(texts), np.nan))
    if simple is None:
        looks_simple[:] = False
    else:
        result.values[looks_simple] = simple.values
        result.own_votes, result.ambiguous = (
            _spread(marks, looks_simple) for marks in (simple.own_votes, simple.ambiguous)
        )
    places = np.flatnonzero(~looks_simple)
    encoded = arrays.encoded(arrays.taken(texts, arrays.whole(places)))
    order, codes = encoded.dictionary.to_pylist(), arrays.values_of(encoded.indices, np.int32)
    result.odd = {text: places[rows] for text, rows in zip(order, grouped(codes, len(order)), strict=True)}
    return result


def grouped(codes: npt.NDArray[np.int32], groups: int) -> list[npt.NDArray[np.intp]]:
    """For each group the places of its code, ascending."""
    if not groups:
        return []
    edges = np.cumsum(np.bincount(codes, minlength=groups))[:-1]
    return np.split(np.argsort(codes, kind="stable"), edges)


def _look_simple(texts: pa.StringArray | pa.BinaryArray) -> Mask:
    """Which cells begin with a digit, and hold nothing but digits, points and commas."""
    data, offsets = text_buffers(texts)
    letters = np.frombuffer(data, np.uint8)
    digit = (letters >= ZERO) & (letters <= NINE)
    other = np.flatnonzero(~digit & (letters != POINT) & (letters != COMMA))
    result = np.diff(offsets) > 0
    result[np.searchsorted(offsets, other, side="right") - 1] = False
    filled = np.flatnonzero(result)
    result[filled] = digit[offsets[filled]]
    return result


def _spread(marks: Mask | None, places: Mask) -> Mask | None:
    """Marks of some places at these places among all."""
    if marks is None:
        return None
    result = np.zeros(len(places), dtype=bool)
    result[places] = marks
    return result


def all_simple(texts: pa.StringArray | pa.BinaryArray, decimal: str, count_votes: bool = True) -> Cells | None:
    """The cells, when every one is a simple number of the format: no cell votes for the other format then.

    Without `count_votes` it is left open how they vote for their own.
    """
    data, offsets = text_buffers(texts)
    if decimal == ",":
        data = data.translate(_SWAPPED)
    letters = np.frombuffer(data, np.uint8)
    if len(letters) and (letters.min() < COMMA or letters.max() > NINE or b"-" in data or b"/" in data):
        return None
    own = ambiguous = None
    if count_votes:
        own, ambiguous = _decimals(np.flatnonzero(letters == POINT), offsets)
    commas = letters == COMMA
    if commas.any():
        if not _group_thousands(letters, commas, offsets):
            return None
        before = _counts_before(commas, offsets)
        data = data.translate(None, b",")
        offsets = offsets - before
        if own is not None and ambiguous is not None:
            counts = np.diff(before)
            alone = (counts == 1) & ~(own | ambiguous)
            own |= (counts > 1) | ((counts == 1) & ambiguous)
            ambiguous = (ambiguous & (counts == 0)) | alone
    try:
        stripped = pa.Array.from_buffers(
            pa.string(), len(texts), [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
        )
        values = arrays.values_of(arrays.cast(stripped, pa.float64()), np.float64)
    except pa.ArrowInvalid:
        return None
    return Cells(values, {}, own, ambiguous) if np.isfinite(values).all() else None


def _decimals(points: Integers, offsets: Integers) -> tuple[Mask, Mask]:
    """Where a cell has a point that can only be a decimal one, and where it may group thousands as well."""
    own, ambiguous = np.zeros(len(offsets) - 1, bool), np.zeros(len(offsets) - 1, bool)
    cell = np.searchsorted(offsets, points, side="right") - 1
    three = offsets[cell + 1] - points == 4
    ambiguous[cell[three]] = True
    own[cell[~three]] = True
    return own, ambiguous


def _group_thousands(letters: npt.NDArray[np.uint8], commas: Mask, offsets: Integers) -> bool:
    """Whether every comma stands before three digits of the whole part, and every group is there.

    `letters` are those of all cells behind each other, digits, points and commas; a cell begins at each offset. Marks
    of all letters are one number of as many bits, so that `marks >> 1` has at each letter the mark of the next one:
    that takes a third of the time that arrays of marks take.
    """
    begins = np.zeros(len(letters) + 1, bool)
    begins[offsets] = True
    begin, comma, digit, leading = map(_bits, (begins, commas, letters >= ZERO, letters > ZERO))
    inside = digit & ~begin
    group = (inside >> 1) & (inside >> 2) & (inside >> 3) & ((begin >> 4) | ~(digit >> 4))
    one = begin & leading
    two = (one << 1) & inside
    three = (two << 1) & inside
    before = (one << 1) | (two << 1) | (three << 1) | (comma << 4)
    return not comma & ~(group & before & ~begin)


def _bits(marks: Mask) -> int:
    """Marks as the bits of a number; the lowest one is that of the first letter."""
    return int.from_bytes(np.packbits(marks, bitorder="little").tobytes(), "little")


def _counts_before(marks: Mask, places: Integers) -> Integers:
    """How many marks there are before each place."""
    before = np.zeros(len(marks) + 1, np.int64)
    np.cumsum(marks, out=before[1:])
    counts: Integers = before[places]
    return counts


def votes_of(cells: Cells, decimal: str) -> Votes:
    """What the cells say about the format they were read in."""
    votes = Votes()
    if cells.own_votes is not None and cells.ambiguous is not None:
        votes = Votes(int(cells.own_votes.sum()), 0, bool(cells.ambiguous.any()))
    for text, places in cells.odd.items():
        found = vote(text)
        votes.own += len(places) * (found == decimal)
        votes.contrary += len(places) * (found == OTHER_DECIMAL[decimal])
        votes.open |= found == "?"
    return votes
