"""A mutated file that is read gives the values of a slow, independent reader, or says that something was left out.

A few inputs of each format; at night `python -m tests.fuzz.oracle` tries a hundred thousand.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ncu_launch.errors import NcuBenchError

from tests.fuzz.oracle.compared import OneOf, Reading, compare_many, compared, differs
from tests.fuzz.oracle.formats import FORMATS
from tests.support.perfetto_traces import STAGES, interned, message, packet

pytestmark = pytest.mark.slow

ROWS = [{"name": "a", "ns": 1.0}, {"name": "b", "ns": 2.0}]


@pytest.mark.parametrize("name", FORMATS)
def test_mutated_files_give_the_values_of_a_slow_reader(name: str, tmp_path: Path) -> None:
    tally = compare_many(FORMATS[name], range(8), tmp_path)
    assert tally.findings == []
    assert tally.read > 0.3 * tally.inputs, tally


@pytest.mark.parametrize("name", FORMATS)
def test_a_reader_that_doubles_a_number_is_found_out(name: str, tmp_path: Path) -> None:
    honest = FORMATS[name]

    def doubling(path: Path) -> Reading:
        reading = honest.fast(path)
        for row in reading.rows:
            number = next(
                (key for key, value in row.items() if isinstance(value, float) and value not in (0, None)), None
            )
            if number is not None:
                row[number] *= 2
        return replace(reading, has_losses=False)

    assert compare_many(replace(honest, fast=doubling), range(8), tmp_path).findings


def test_a_block_that_comes_in_two_pieces_is_joined_by_both_readers(tmp_path: Path) -> None:
    block = (2, message((1, 64), (2, 1), (3, 1))), (2, message((1, 128)))
    stage = packet(5, (13, 2), (53, message((2, 9), (14, STAGES["Memset"]), (21, message(*block)))))
    assert compared(FORMATS["pftrace"], interned() + stage, tmp_path) == ("same", "")


class TestDifferences:
    def test_are_none_where_all_rows_have_the_slow_readers_values(self) -> None:
        assert differs(Reading(ROWS), ROWS) == ""

    @pytest.mark.parametrize("rows", [ROWS[:1], ROWS[::-1], [{"name": "a", "ns": 1.0}, {"name": "b", "ns": 2.5}]])
    def test_are_named_where_rows_are_missing_in_another_order_or_changed(self, rows: list[dict[str, object]]) -> None:
        assert differs(Reading(rows), ROWS)

    def test_allow_missing_rows_where_the_report_says_that_lines_were_left_out(self) -> None:
        assert differs(Reading(ROWS[1:], has_losses=True), ROWS) == ""

    def test_do_not_allow_changed_rows_where_lines_were_left_out(self) -> None:
        assert "none of the slow reader's" in differs(Reading([{"name": "b", "ns": 9.0}], has_losses=True), ROWS)

    def test_allow_any_printed_value_of_a_metric_with_several(self) -> None:
        assert differs(Reading([{"ns": 2.0}]), [{"ns": OneOf((1.0, 2.0))}]) == ""

    def test_allow_a_value_that_a_note_names(self) -> None:
        assert differs(Reading([{"ns": None}], notes=["ns is a word in some launches"]), [{"ns": 1.0}]) == ""


def test_a_crash_of_a_reader_is_a_finding_and_a_refusal_is_none(tmp_path: Path) -> None:
    def crashes(path: Path) -> Reading:
        raise KeyError(path.name)

    def refuses(path: Path) -> Reading:
        raise NcuBenchError("It is damaged.", "It was cut.")

    points = FORMATS["points"]
    assert "KeyError" in compare_many(replace(points, fast=crashes), range(1), tmp_path).findings[0][1]
    assert compare_many(replace(points, fast=refuses), range(1), tmp_path).outcomes == {"refused": 1}
