"""A column of `hotspots` is its sum, and in the registry its line and its name: made in a copy, every form shows it."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT, SAMPLES
from tests.whole.test_a_new_trace_format import printed

pytestmark = pytest.mark.slow

REPORT = str(SAMPLES / "d04-long-metrics.csv")
EDITS = {
    "ncu_tools/kernels/kernel_row.py": (
        ("    report: str | None = None\n", "    report: str | None = None\n    time_range_ns: float | None = None\n"),
        (
            "        result.append(replace(row, ",
            "        apart = None if row.time_max_ns is None else row.time_max_ns - row.time_min_ns\n"
            "        result.append(replace(row, time_range_ns=apart, ",
        ),
    ),
    "ncu_tools/report/columns/kernels.toml": (
        ("time_std_ns~10 ", "time_std_ns~10 time_range_ns~10 "),
        (
            "[columns]\n",
            "[columns]\n"
            'time_range_ns = { title = "range", kind = "time", unit = "ns", meaning = "longest less shortest launch" }\n',
        ),
    ),
}
"""File -> what is replaced in it; CONTRIBUTING.md names these files."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages with the column's lines."""
    folder = tmp_path_factory.mktemp("copy")
    for package in ("launch/ncu_launch", "parsers/ncu_parsers", "ncu_tools"):
        shutil.copytree(ROOT / package, folder / Path(package).name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, edits in EDITS.items():
        text = (folder / name).read_text("utf-8")
        for before, after in edits:
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        (folder / name).write_text(text, "utf-8")
    return folder


def test_contributing_names_exactly_its_files() -> None:
    rows = (ROOT / "CONTRIBUTING.md").read_text("utf-8").splitlines()
    (row,) = (row for row in rows if row.startswith("| a column of `hotspots` |"))
    assert all(f"`{name}`" in row for name in EDITS)


def test_text_and_markdown_have_its_title(copy: Path) -> None:
    text = printed(copy, "hotspots", REPORT, "--wide")
    markdown = printed(copy, "hotspots", REPORT, "--format", "markdown")
    assert [" range " in text, "| range |" in markdown] == [True, True]


def test_json_csv_and_the_schema_have_its_name_unit_and_meaning(copy: Path) -> None:
    answer = json.loads(printed(copy, "hotspots", REPORT, "--format", "json"))
    rows = list(csv.DictReader(io.StringIO(printed(copy, "hotspots", REPORT, "--format", "csv"))))
    assert answer["columns"]["time_range_ns"] == "ns"
    expected = [row["time_max_ns"] - row["time_min_ns"] for row in answer["rows"]]
    assert [row["time_range_ns"] for row in answer["rows"]] == [float(row["time_range_ns"]) for row in rows] == expected
    schema = json.loads(printed(copy, "schema", "hotspots"))["$defs"]["answer"]
    assert schema["properties"]["rows"]["items"]["properties"]["time_range_ns"] == {
        "type": ["null", "number"], "title": "range", "description": "longest less shortest launch", "unit": "ns",
    }  # fmt: skip


def test_a_page_shows_it_for_the_kernel_that_is_chosen(copy: Path) -> None:
    printed(copy, "report", REPORT, "-o", "page.html")
    page = (copy / "page.html").read_text("utf-8")
    assert '"name":"time_range_ns","title":"range","kind":"time"' in page
