"""Rows of a long page become launches: the metrics of each, its rules, and what is odd about them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from ncu_parsers.report_data.report import Report
from ncu_parsers.streaming.cells.rows import NotStreamed
from ncu_parsers.streaming.launch_columns import LaunchColumns
from ncu_parsers.streaming.page_launches import long_launches
from ncu_parsers.streaming.page_rows import LineAccount, PageRows
from ncu_parsers.streaming.streaming_reader import InThisThread

from tests.parsers.streaming.test_page_rows import line

RULES = ["Rule Name", "Rule Type", "Rule Description"]
HEADER = ["ID", "Process ID", "Kernel Name", "Stream", "Section Name", "Metric Name", "Metric Unit", "Metric Value"]


def metric(number: int, name: str, value: str, unit: str = "byte", *, stream: int = 7, process: int = 1) -> str:
    return line(number, process, "k", stream, "Section", f"dram__{name}.sum", unit, value)


def rule(number: int, text: str, *, stream: int = 7) -> str:
    return line(number, 1, "k", stream, "Section", "", "", "", "Bottleneck", "WRN", text)


def launches(blocks: Iterable[str], *, rules: bool = False) -> tuple[PageRows, list[LaunchColumns]]:
    report = Report("report.csv")
    rows = PageRows(LineAccount(report), InThisThread(1))
    header = line(*HEADER, *(RULES if rules else []))
    batches = rows.batches(block.encode() for block in [header, *blocks])
    return rows, [columns for _, columns in long_launches(batches, report)]


def values(columns: LaunchColumns, name: str) -> list[float | None]:
    return [None if np.isnan(value) else value for value in columns.metrics[f"dram__{name}.sum"].values.tolist()]


def test_a_launch_that_goes_on_in_the_next_block_is_one_launch() -> None:
    blocks = [metric(0, "a", "1.5") + metric(1, "a", "2.5"), metric(1, "b", "3.5"), metric(2, "a", "4.5")]
    _, found = launches(blocks)
    assert [columns.ids.tolist() for columns in found] == [[0], [1], [2]]
    assert (values(found[1], "a"), values(found[1], "b")) == ([2.5], [3.5])


def test_launches_that_print_their_rows_in_turns_are_told_apart_by_process() -> None:
    rows = [metric(0, name, "1.5", process=process) for name in ("a", "b") for process in (1, 2)]
    _, (columns,) = launches(["".join(rows) + line(*HEADER)])
    assert columns.processes is not None
    assert (columns.ids.tolist(), columns.processes.tolist()) == ([0, 0], [1, 2])
    assert columns.readings.tolist() == [2, 2]


def test_a_metric_that_a_launch_lacks_has_no_value_there() -> None:
    _, (columns,) = launches([metric(0, "a", "1.5") + metric(1, "b", "2.5") + line(*HEADER)])
    assert (values(columns, "a"), values(columns, "b")) == ([1.5, None], [None, 2.5])


def test_values_are_in_base_units_whatever_unit_each_row_has() -> None:
    _, (columns,) = launches([metric(0, "a", "1.5", "Kbyte") + metric(1, "a", "2.5", "Mbyte") + line(*HEADER)])
    assert (values(columns, "a"), columns.metrics["dram__a.sum"].unit) == ([1500.0, 2_500_000.0], "byte")


def test_a_rule_is_of_the_latest_launch_with_its_ids_whatever_stream_it_prints() -> None:
    text = metric(0, "a", "1.5") + rule(0, "It waits", stream=13) + rule(0, "It waits") + metric(1, "a", "2.5")
    _, (columns,) = launches([text + rule(1, "It computes") + line(*HEADER, *RULES)], rules=True)
    assert columns.rules is not None
    assert columns.rules.counts.tolist() == [2, 1]
    said = columns.rules.array().to_pylist()
    assert [[one["description"] for one in each] for each in said] == [["It waits", "It waits"], ["It computes"]]
    assert said[0][0] == {
        "section": "Section", "name": "Bottleneck", "kind": "WRN", "description": "It waits", "speedup_type": "",
        "speedup": "",
    }  # fmt: skip


def test_a_metric_printed_twice_keeps_the_reading_with_more_digits() -> None:
    rows, (columns,) = launches(
        [metric(0, "first", "1.5") + metric(0, "a", "1.5") + metric(0, "a", "1.52") + line(*HEADER)]
    )
    assert values(columns, "a") == [1.52]
    assert not rows.pages[0].problems.conflicts


def test_readings_of_a_metric_that_contradict_keep_the_first_and_are_noted() -> None:
    rows, (columns,) = launches(
        [metric(0, "first", "1.5") + metric(0, "a", "1.5") + metric(0, "a", "9.75") + line(*HEADER)]
    )
    assert values(columns, "a") == [1.5]
    assert rows.pages[0].problems.conflicts == {"dram__a.sum": "1.5 byte and 9.75 byte"}


def test_a_metric_that_no_launch_has_is_counted_as_absent() -> None:
    rows, (columns,) = launches([metric(0, "a", "n/a") + metric(0, "b", "1.5") + line(*HEADER)])
    assert values(columns, "a") == [None]
    assert rows.pages[0].problems.absent["dram__a.sum"] == 1


def test_a_launch_of_nothing_but_nan_has_failed() -> None:
    _, (columns,) = launches([metric(0, "a", "nan") + metric(1, "a", "1.5") + line(*HEADER)])
    assert columns.failed.tolist() == [True, False]


def test_ids_that_begin_anew_under_one_header_are_not_streamed() -> None:
    with pytest.raises(NotStreamed, match="begin anew"):
        launches([metric(0, "a", "1.5") * 2])


@pytest.mark.filterwarnings("error")
def test_a_number_beyond_all_that_a_double_holds_is_not_streamed() -> None:
    with pytest.raises(NotStreamed, match="beyond"):
        launches([metric(0, "a", "9" * 305 + ".5", "Gbyte")])
