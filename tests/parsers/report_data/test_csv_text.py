"""Cells of CSV lines: quoted rows, whole numbers, grids, and empty cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.report_data.cell_text import DELIMITERS, capability, present, split_row, triple, whole

from sample_reports.dialects import quoted


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n\0", codec="utf-8")), min_size=1),
    st.sampled_from(DELIMITERS),
)
def test_a_row_as_ncu_quotes_it_is_split_into_its_cells(cells: list[str], delimiter: str) -> None:
    assert split_row(quoted(cells, delimiter), delimiter) == cells


@pytest.mark.parametrize("line", ['"a","b', 'a"', '"a","b","'])
def test_a_line_whose_quotes_do_not_close_is_no_row(line: str) -> None:
    assert split_row(line, ",") is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), (" 42 ", 42), ("007", 7), (str(2**63 - 1), 2**63 - 1), ("0" * 39 + "1", 1)],
)
def test_whole_numbers_are_read(text: str, number: int) -> None:
    assert whole(text) == number


@pytest.mark.parametrize("text", [None, "", "n/a", "-1", "1.0", "1,000", "0x1", str(2**63), "0" * 40 + "1", "1 2", "²"])
def test_any_text_but_a_whole_number_of_63_bits_is_none(text: str | None) -> None:
    assert whole(text) is None


def test_the_number_of_bits_is_the_limit() -> None:
    assert (whole(str(2**31 - 1), bits=31), whole(str(2**31), bits=31)) == (2**31 - 1, None)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("(16, 16, 1)", (16, 16, 1)), ("  512,  1,  1", (512, 1, 1)), ("(1,2,3)", (1, 2, 3)), ("(1, 2)", None),
        ("(1, 2, 3, 4)", None), ("(1, -2, 3)", None), (f"({2**31}, 1, 1)", None), ("", None), (None, None),
        ("(a, b, c)", None),
    ],
)  # fmt: skip
def test_a_grid_or_block_is_three_numbers_of_31_bits(text: str | None, shape: tuple[int, int, int] | None) -> None:
    assert triple(text) == shape


@pytest.mark.parametrize(("text", "cell"), [(" a b ", "a b"), ("0", "0"), ("", None), (" n/a ", None), (None, None)])
def test_an_empty_cell_is_none(text: str | None, cell: str | None) -> None:
    assert present(text) == cell


@pytest.mark.parametrize(
    ("text", "found"),
    [("8.0", "8.0"), ("12.1", "12.1"), ("8,6", "8.6"), ("8", "8.0"), ("n/a", "n/a"), ("", None), (None, None)],
)
def test_a_compute_capability_that_a_spreadsheet_rewrote_is_still_one(text: str | None, found: str | None) -> None:
    assert capability(text) == found
