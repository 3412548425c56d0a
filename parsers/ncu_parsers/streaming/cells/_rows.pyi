"""The compiled loop over every byte of a CSV page; `rows.py` calls it."""

def read_rows(
    block: bytes, start: int, kinds: str, required: int, leading: int, label: int, point: str
) -> tuple[
    int, int, bytearray, list[tuple[bytearray, bytearray, list[str]]], list[tuple[int, int, str, bool]],
    list[tuple[int, int, int]],
]:  # fmt: skip
    """Read the plain rows among the lines of a block from `start` on: quoted cells, as columns of these kinds.

    A row may end after `required` cells, and with a comma. Its first `leading` cells are compared with those of the
    previous row as one text. A row without text in the column `label` (-1: no such column) must have more than
    `required` cells.

    Returns the position where reading stopped (the end of the block, or after a line that may be a header); the number
    of rows; the position of each row relative to `start` (int64); per column its cells, votes and distinct texts, with
    quotes still doubled; column, row and text of each cell of an `n` column that is not a simple number, and whether it
    is a number with too many digits to be read exactly here; and for each other line the number of rows before it, its
    begin and its end. Arrays may be longer than the rows need.

    Cells by kind: `t` index into the distinct texts (int32, -1 where the row ends before the column); `n` numbers with
    the decimal mark `point` (float64, NaN if non-numeric), each with a vote on the locale (int8, see `rows.py`); `i`
    whole numbers (int64); `s` shapes such as "(16, 16, 1)" (three int32).

    Raises `UnicodeDecodeError` if a text is not UTF-8, `ValueError` for other kinds, and for optional columns that are
    not texts.
    """
