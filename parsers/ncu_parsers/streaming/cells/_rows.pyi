"""The compiled loop over every byte of a CSV page; `rows.py` calls it."""

def read_rows(
    block: bytes, start: int, kinds: str, required: int, leading: int, label: int, point: str
) -> tuple[
    int, int, bytearray, list[tuple[bytearray, bytearray, list[str]]], list[tuple[int, int, str, bool]],
    list[tuple[int, int, int]],
]:  # fmt: skip
    """Read the plain rows among the lines of a block from `start` on: cells in quotes, as columns of these kinds.

    A row may end behind `required` cells, and in a comma. Its first `leading` cells are compared with those of the row
    before as one text. One with nothing in the column `label` (-1 for none) must have more than `required` cells.

    Gives where it stopped: at the end of the block, or behind a line that may be a header. Then how many rows there
    are; where each begins, from `start` on (int64); for each column its cells, its votes and its distinct texts, in
    which a quote is written twice; what is no number in columns of numbers: column, row, text, and whether it is one
    after all, of too many digits to be read exactly here; and the other lines: how many rows are before each, where it
    begins and ends. Arrays may have room for more rows than there are.

    Cells are, by kind: `t` the place among the distinct texts (int32, -1 where the row ends before); `n` numbers with
    the decimal mark `point` (float64, NaN where non-numeric), each with a vote on the locale (int8, see `rows.py`);
    `i` whole numbers (int64); `s` shapes such as "(16, 16, 1)" (three int32).

    Raises `UnicodeDecodeError` where a text is no UTF-8, `ValueError` for other kinds and for columns that a row may
    lack and that are no texts.
    """
