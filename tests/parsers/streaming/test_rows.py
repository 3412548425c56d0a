"""The compiled loop gives the columns that the plain reader gives, or leaves a line to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ncu_parsers.report_data.cell_text import split_row
from ncu_parsers.streaming.cells import rows
from ncu_parsers.streaming.cells.plain_rows import JudgedRow, plain_rows
from ncu_parsers.streaming.cells.rows import NO_ROWS, Kind, Layout, Rows, ScannedBlock, joined, lines_of, scan

if rows.loops is None:
    pytest.skip(
        "no C compiler was there at installation: apt-get install gcc, then pip install --editable .",
        allow_module_level=True,
    )
loops = rows.loops

COLUMNS = (
    ("ID", Kind.WHOLE), ("Kernel Name", Kind.TEXTS), ("Grid Size", Kind.SHAPES), ("Metric Name", Kind.TEXTS),
    ("Metric Value", Kind.NUMBERS), ("Rule Name", Kind.TEXTS),
)  # fmt: skip
LAYOUT = Layout(COLUMNS, required=5, leading=3, label=3)
NAMES = Layout((("Kernel Name", Kind.TEXTS),), required=1)

digits = st.text("0123456789", min_size=1, max_size=22)
printed_numbers = st.one_of(
    digits,
    st.builds("{}.{}".format, digits, digits),
    st.floats(0, 1e12, allow_nan=False).map("{:,.6f}".format),
    st.integers(0, 10**20).map("{:,}".format),
    st.text("0123456789.,", max_size=9),
    st.sampled_from(["n/a", "", "nan", "1e5", "-3", "Kernel Name", "ä", "0.000", "1,234.500", "1;2;3", 'a "b"']),
)
names = st.one_of(
    st.sampled_from(["void k<int, 4>(float *)", "gemm", 'k<"x">', "a,b", "ä", '"']), st.text('ab,("', max_size=20)
)
rows_of_cells = st.lists(
    st.tuples(
        st.integers(0, 3).map(str), names, st.integers(1, 3).map("({}, 1, 64)".format),
        st.sampled_from(["dram__bytes.sum", "x", ""]), printed_numbers,
        st.sampled_from([(), ("Bottleneck",), ("",)]),
    ).map(lambda row: [*row[:-1], *row[-1]]),
    min_size=1,
)  # fmt: skip
ends = st.sampled_from(["\n", ",\n", "\r\n", ",\r\n"])


def block_of(lines: Sequence[Sequence[str]], end: str = "\n") -> bytes:
    return "".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) + end for row in lines).encode()


def told(rows: Rows) -> Any:
    """What rows say, comparable; a comma behind a row is an empty cell."""
    return (
        rows.count,
        {title: [texts.words[code] if code >= 0 else "" for code in texts.codes] for title, texts in rows.texts.items()},
        {title: column.tolist() for title, column in rows.whole.items()},
        {title: column.tolist() for title, column in rows.shapes.items()},
        {
            title: (repr(numbers.values.tolist()), numbers.votes.tolist(),
                    {text: places.tolist() for text, places in numbers.non_numeric.items()})
            for title, numbers in rows.numbers.items()
        },
    )  # fmt: skip


def plainly(block: bytes, lines: Sequence[tuple[int, int]], layout: Layout, decimal: str) -> Rows:
    """Some lines of a block, each cut into cells by the csv module."""
    judged = []
    for begin, end in lines:
        cells = split_row(block[begin:end].decode().rstrip("\r\n"), ",")
        assert cells is not None
        judged.append(JudgedRow(0, begin, cells))
    return plain_rows(judged, block, layout, decimal)


def others_in(block: bytes, layout: Layout = LAYOUT) -> list[bytes]:
    """The lines of a block that the compiled loop leaves to the plain reader."""
    return [block[begin:end] for _, begin, end in scan(block, 0, layout, ".").others]


def hold_to_the_oracle(block: bytes, layout: Layout, decimal: str) -> ScannedBlock:
    """Every line is a row or another one, in order; the rows are those of the plain reader."""
    found = scan(block, 0, layout, decimal)
    lines = [(begin, end) for _, begin, end in lines_of(block, 0) if end <= found.end]
    others = [(begin, end) for _, begin, end in found.others]
    begins = found.rows.begins.tolist()
    assert sorted([*begins, *(begin for begin, _ in others)]) == [begin for begin, _ in lines]
    assert [before for before, _, _ in found.others] == [sum(one < begin for one in begins) for begin, _ in others]
    rows = [line for line in lines if line[0] in set(begins)]
    if rows:
        assert told(found.rows) == told(plainly(block, rows, layout, decimal))
    return found


class TestPlainRows:
    @given(lines=rows_of_cells, decimal=st.sampled_from(".,"), end=ends)
    @example([["1", "k", "(1, 1, 1)", "x", "9007199254740993"], ["2", "k", "(1, 1, 1)", "x", "0.1234567890123456789"]],
             ".", "\n")  # fmt: skip
    @example([["1", "k", "(1, 1, 1)", "x", value] for value in ("0,", "0.000", "1.000", "1234.000")], ".", "\n")
    def test_have_the_columns_of_the_plain_reader(self, lines: list[list[str]], decimal: str, end: str) -> None:
        block = block_of(lines, end)
        found = hold_to_the_oracle(block, LAYOUT, decimal)
        unlabelled = [row for row in lines if not row[3] and len(row) == 5]
        assert len(list(found.others)) == len(unlabelled)

    @given(st.floats(0, 1e300, allow_nan=False, allow_infinity=False), st.integers(0, 25))
    @example(8.5e17, 3)
    @example(2.0**53, 0)
    @example(2.0**53 + 2, 1)
    def test_numbers_are_the_nearest_doubles(self, number: float, decimals: int) -> None:
        text = f"{number:,.{decimals}f}"
        rows = scan(block_of([[text]]), 0, Layout((("Value", Kind.NUMBERS),), 1), ".").rows
        assert rows.numbers["Value"].values.tolist() == [float(text.replace(",", ""))]
        assert rows.numbers["Value"].non_numeric == {}

    @given(st.lists(st.one_of(st.sampled_from(["n/a", "train", "1;2;3"]), printed_numbers), min_size=1))
    def test_columns_of_words_and_numbers_read_as_columns_of_numbers(self, cells: list[str]) -> None:
        block = block_of([[cell] for cell in cells])
        as_numbers, as_mixed = (
            told(scan(block, 0, Layout((("Value", kind),), 1), ".").rows) for kind in (Kind.NUMBERS, Kind.MIXED)
        )
        assert as_mixed == as_numbers

    def test_many_texts_keep_their_order(self) -> None:
        texts = [f"kernel {number % 5000}" for number in range(20_000)]
        found = scan(block_of([[text] for text in texts]), 0, NAMES, ".").rows.texts["Kernel Name"]
        assert [found.words[code] for code in found.codes] == texts
        assert found.words == texts[:5000]

    def test_the_scan_stops_behind_a_line_that_may_be_a_header(self) -> None:
        row = block_of([["1", "k", "(1, 1, 1)", "x", "1"]])
        header = b'"ID","Kernel Name"\n'
        found = scan(row + b"output\n" + header + row, 0, LAYOUT, ".")
        assert found.rows.count == 1
        assert found.end == len(row + b"output\n" + header)
        assert scan(row + header + row, len(row + header), LAYOUT, ".").rows.count == 1

    def test_a_row_with_the_title_of_a_header_in_a_cell_is_judged_by_its_page(self) -> None:
        for name in ("Metric Name", "ID"):
            assert len(others_in(block_of([["1", name, "(1, 1, 1)", "x", "2"]]))) == 1


class TestOtherLines:
    @pytest.mark.parametrize(
        "line",
        [
            b'"1","k","(1, 1, 1)","x"\n',
            b'"1","k","(1, 1, 1)","x","2","r","3","4"\n',
            b'"1","k","(1, 1, 1)","x","2"',
            b'"1","k","(1, 1, 1)","x","2" \n',
            b'"1","k\0","(1, 1, 1)","x","2"\n',
            b'"1","k\r","(1, 1, 1)","x","2"\n',
            b'"1","k\xef\xbf\xbd","(1, 1, 1)","x","2"\n',
            b'"1","k","(1,1,1)","x","2"\n',
            b'"1","k","(1, 1, 99999999999)","x","2"\n',
            b'"-1","k","(1, 1, 1)","x","2"\n',
            b'"1","k","(1, 1, 1)","x",2\n',
            b'1,"k","(1, 1, 1)","x","2"\n',
            b'"1","k","(1, 1, 1)","","2"\n',
            b'"1","k","(1, 1, 1)","","2",\n',
            b'"1","k","(1, 1, 1)","x","2",,\n',
            b'"1","k"","(1, 1, 1)","x","2"\n',
            b"\n",
            b'"',
        ],
    )
    def test_are_left_to_the_plain_reader(self, line: bytes) -> None:
        row = block_of([["1", "k", "(1, 1, 1)", "x", "1"]])
        assert others_in(line) == [line]
        assert others_in(row + line) == [line]

    def test_a_row_cut_anywhere_is_one(self) -> None:
        whole = block_of([["1", "k", "(1, 1, 1)", "x", "1,234.5"]])
        for cut in range(1, len(whole)):
            assert others_in(whole[:cut]) == [whole[:cut]]

    @pytest.mark.parametrize("cell", [b"k\xff", b"n/\xff"])
    def test_a_block_with_bytes_that_are_no_text_is_left_whole(self, cell: bytes) -> None:
        block = b'"1","%b","(1, 1, 1)","x","2"\n' % cell
        assert others_in(block * 2) == [block] * 2

    @given(st.binary(max_size=200), st.sampled_from([LAYOUT, NAMES]))
    def test_no_bytes_harm_the_loop(self, block: bytes, layout: Layout) -> None:
        scan(block, 0, layout, ".")

    @given(st.lists(st.sampled_from(
        [b'"1","k","(1, 1, 1)"', b',"x","2"', b',"","n/a","rule"', b',"x","n/a",', b"\n", b"\n", b"\r\n", b"text", b'"']
    ), max_size=40).map(b"".join))  # fmt: skip
    def test_any_lines_are_rows_or_others(self, block: bytes) -> None:
        hold_to_the_oracle(block, LAYOUT, ".")

    def test_texts_made_to_collide_are_left_to_the_plain_reader(self) -> None:
        """With 200 of them in a few slots, each would be compared with all before it: a million would take hours."""
        texts = [text for number in range(10**5) if hash_of(text := f"{number:08}") % 1024 < 4][:300]
        assert len(texts) == 300
        found = hold_to_the_oracle(block_of([[text] for text in texts]), NAMES, ".")
        assert 0 < len(list(found.others)) < 300

    @pytest.mark.parametrize(
        ("kinds", "required", "leading", "label"),
        [("", 0, 0, -1), ("x", 1, 0, -1), ("tz", 1, 0, -1), ("tn", 1, 0, -1), ("tt", 3, 0, -1), ("tt", 1, 2, -1),
         ("it", 1, 0, 0), ("tt", 1, 0, 1)],
    )  # fmt: skip
    def test_layouts_that_cannot_be_read_are_refused(self, kinds: str, required: int, leading: int, label: int) -> None:
        with pytest.raises(ValueError, match="kinds"):
            loops.read_rows(b"", 0, kinds, required, leading, label, ".")

    def test_a_start_outside_of_the_block_is_refused(self) -> None:
        for start in (-1, 6):
            with pytest.raises(ValueError, match="kinds"):
                loops.read_rows(b"line\n", start, "t", 1, 0, -1, ".")


def hash_of(text: str) -> int:
    """As `native/texts.h` hashes eight letters."""
    mask, factor = 2**64 - 1, 0xFF51AFD7ED558CCD
    value = 0x9E3779B97F4A7C15 ^ len(text)
    value = ((value ^ int.from_bytes(text.encode(), "little")) * factor) & mask
    value ^= value >> 32
    value = (value * factor) & mask
    return value ^ value >> 32


class TestPartsOfRows:
    @given(lines=rows_of_cells, data=st.data())
    def test_joined_again_are_the_rows(self, lines: list[list[str]], data: st.DataObject) -> None:
        lines = [row for row in lines if row[3]] or [["1", "k", "(1, 1, 1)", "x", "1"]]
        rows = scan(block_of(lines), 0, LAYOUT, ".").rows
        cut = data.draw(st.integers(0, rows.count))
        parts = [part for part in (rows.part(0, cut), rows.last(cut)) if part.count]
        again = joined(parts)
        assert told(again) == told(rows)
        assert [again.line(row) for row in range(again.count)] == [rows.line(row) for row in range(rows.count)]

    @given(lines=rows_of_cells, data=st.data())
    def test_take_gives_the_rows_in_that_order(self, lines: list[list[str]], data: st.DataObject) -> None:
        rows = scan(block_of([row for row in lines if row[3]]), 0, LAYOUT, ".").rows
        places = data.draw(st.permutations(range(rows.count)))
        found = rows.take(np.array(places, np.intp))
        assert [found.line(row) for row in range(found.count)] == [rows.line(place) for place in places]
        for row in range(found.count):
            line = found.line(row)
            assert told(found.part(row, row + 1)) == told(plainly(line, [(0, len(line))], LAYOUT, "."))

    def test_a_line_beyond_the_rows_is_an_error(self) -> None:
        rows = scan(block_of([["k"]]), 0, NAMES, ".").rows
        assert rows.line(0) == b'"k"\n'
        with pytest.raises(IndexError):
            NO_ROWS.line(0)
