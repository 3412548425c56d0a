"""The compiled loops over every byte of a big report; `rows.py` and `long_blocks.py` stand before them."""

Event = tuple[int, bytes, int, int, int]

class Recogniser:
    """Recognises the lines of long pages, among them those whose tails it was told."""

    def keep(self, tail: bytes) -> int:
        """Know a tail that no row has: its number, counted up from 0, or -1 where there is no room for it.

        Raises `RuntimeError` while another thread recognises lines.
        """

    def keep_header(self, line: bytes) -> None:
        """Know this line for the header of a page, in place of another. Raises as `keep` does."""

    def recognise(
        self,
        block: bytes | memoryview,
        start: int,
        prefix: bytes,
        ending: bytes,
        other_ending: bytes,
        others: int,
        most: int,
        tails: bytearray,
    ) -> tuple[int, int, int, list[Event], bytes]:
        """Recognise the complete lines of a block from `start` on, and write the tails of rows into `tails`.

        A row begins like its launch (`prefix`, at first) and has one of two endings. A line that does not begin so, but
        with two cells of digits and so many others, and ends so, is the first row of the next launch.

        Gives where the first line begins that was not looked at, how many lines and bytes of tails there were, events,
        and the lines that begin like the launch and have a known tail: of each the number of that and how many events
        were before it (two int32). With `most` of both together it stops.

        An event is 0, a launch, and what its rows begin with, or 1, any other line, and all of it, or 2, the known
        header, behind which no row is of the launch before it; where these bytes end in the block; and how many lines
        and bytes of tails were before it.

        Raises `ValueError` where `tails` has less room than the block, `RuntimeError` while another thread does this.
        """

def read_rows(
    block: bytes, kinds: str, point: str, commas_behind: bool
) -> tuple[int, list[list[object]], list[tuple[int, int, str, bool]]] | None:
    """Read lines of cells in quotes, which may end in a comma if `commas_behind`, as columns of these kinds.

    Gives how many rows there are; for each column its cells, its votes and its distinct texts; and what is no number in
    columns of them: column, row, text, and whether it is one after all, of too many digits to be read exactly here.
    Cells are, by kind: `t` the place among the distinct texts (int32); `n` numbers with this decimal point (float64,
    NaN where odd), each with a vote on the locale (int8: 0 none, 1 for this one, 2 reads differently in either); `i`
    whole numbers (int64); `s` shapes such as "(16, 16, 1)" (three int32).

    None where a line is no such row, or a cell of the last two kinds something else. Raises `UnicodeDecodeError` where
    one is no UTF-8, `ValueError` for another kind.
    """
