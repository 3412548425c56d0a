"""A column of `hotspots` is its sum, and in the registry its line and its name: made in a copy, every form shows it."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tests.conftest import SAMPLES
from tests.support.changed_copy import ChangedCopy, files_to_touch

pytestmark = pytest.mark.slow

REPORT = str(SAMPLES / "d04-long-metrics.csv")
ROW, COLUMNS = "ncu_tools/kernels/kernel_row.py", "ncu_tools/report/columns/kernels.toml"
RANGE = 'time_range_ns = { title = "range", kind = "time", unit = "ns", meaning = "longest less shortest launch" }\n'


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> ChangedCopy:
    """The packages with the column's lines."""
    made = ChangedCopy(tmp_path_factory.mktemp("copy"))
    made.insert(ROW, "    report: str | None = None\n", "    time_range_ns: float | None = None\n")
    row = made.folder / ROW
    apart = "row.time_max_ns - row.time_min_ns if row.time_max_ns is not None else None"
    text = row.read_text("utf-8")
    assert text.count("        result.append(replace(row, ") == 1
    row.write_text(text.replace("result.append(replace(row, ", f"result.append(replace(row, time_range_ns={apart}, "))
    made.insert(COLUMNS, "\ntime_std_ns~12 ", "time_range_ns~12 ")
    made.insert(COLUMNS, "[columns]\n", RANGE)
    return made


def test_contributing_names_exactly_its_files(copy: ChangedCopy) -> None:
    cell = files_to_touch("a column of `hotspots`")
    assert set(copy.changed) == {ROW, COLUMNS}
    assert all(f"`{name}`" in cell for name in copy.changed)


def test_text_and_markdown_have_its_title(copy: ChangedCopy) -> None:
    text = copy.printed("hotspots", REPORT, "--wide")
    markdown = copy.printed("hotspots", REPORT, "--format", "markdown")
    assert [" range " in text, "| range |" in markdown] == [True, True]


def test_json_csv_and_the_schema_have_its_name_unit_and_meaning(copy: ChangedCopy) -> None:
    answer = json.loads(copy.printed("hotspots", REPORT, "--format", "json"))
    rows = list(csv.DictReader(io.StringIO(copy.printed("hotspots", REPORT, "--format", "csv"))))
    assert answer["columns"]["time_range_ns"] == "ns"
    expected = [row["time_max_ns"] - row["time_min_ns"] for row in answer["rows"]]
    assert [row["time_range_ns"] for row in answer["rows"]] == [float(row["time_range_ns"]) for row in rows] == expected
    schema = json.loads(copy.printed("mcp", "--schema", "hotspots"))["$defs"]["answer"]
    assert schema["properties"]["rows"]["items"]["properties"]["time_range_ns"] == {
        "type": ["null", "number"], "title": "range", "description": "longest less shortest launch", "unit": "ns",
    }  # fmt: skip


def test_a_page_shows_it_for_the_kernel_that_is_chosen(copy: ChangedCopy) -> None:
    copy.printed("report", REPORT, "-o", "page.html")
    page = (copy.folder / "page.html").read_text("utf-8")
    assert '"name":"time_range_ns","title":"range","kind":"time"' in page
