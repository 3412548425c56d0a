"""The table of what a session measured, at several widths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_tools.numbers.text_width import text_width
from ncu_tools.pytest_plugin.summary import BY, CALLS, CHANGE, COUNTS, MINIMUM, NOISE, TIME, Property, tables

ONE: list[Property] = [
    (BY, "by ncu on a GPU"), (TIME, "1.5 µs"), (NOISE, "0.3 %"), (MINIMUM, "1.4 µs"), (CALLS, "4"), (COUNTS, "launches 2"),
    (CHANGE, "+1.0 %"),
]  # fmt: skip
OTHER: list[Property] = [(BY, "by the CPU's clock"), (TIME, "20 ms"), ("of another plugin", 3)]
REPORTS: list[tuple[str, list[Property]]] = [("test_a.py::test_one", [*ONE, *ONE]), ("test_b.py::test_two", OTHER)]


def test_each_tool_has_a_table_and_each_measurement_a_line() -> None:
    assert dict(tables(REPORTS)) == {
        "by ncu on a GPU": [
            "test                   time      ±     min  calls  change  counts",
            "test_a.py::test_one  1.5 µs  0.3 %  1.4 µs      4  +1.0 %  launches 2",
            "test_a.py::test_one  1.5 µs  0.3 %  1.4 µs      4  +1.0 %  launches 2",
        ],
        "by the CPU's clock": ["test                  time", "test_b.py::test_two  20 ms"],
    }


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (66, "test_a.py::test_one  1.5 µs  0.3 %  1.4 µs  +1.0 %  launches 2"),
        (54, "test_a.py::test_one  1.5 µs  0.3 %  +1.0 %  launches 2"),
        (48, "test_a.py::test_one  1.5 µs  0.3 %  +1.0 %  lau…"),
    ],
)
def test_a_narrow_terminal_loses_calls_then_the_minimum_then_counts(width: int, line: str) -> None:
    (_, (_, first, _)), _ = tables(REPORTS, width)
    assert first == line


@given(
    st.lists(st.tuples(st.text(), st.lists(st.tuples(st.sampled_from([BY, TIME, COUNTS, "x"]), st.text())))),
    st.integers(10, 200),
)
def test_no_line_exceeds_the_terminal(reports: list[tuple[str, list[tuple[str, str]]]], width: int) -> None:
    assert all(text_width(line) <= width for _, lines in tables(reports, width) for line in lines)
