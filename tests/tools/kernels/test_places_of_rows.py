"""Rows of a run with several reports and devices: apart by device, with the report and device that each is of."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.schema.tables import concatenated

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.cli import run
from ncu_tools.cli.tables.hotspots.places import WIDTHS, short_reports
from ncu_tools.kernels.diagnosis.diagnose import diagnoses
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.kernel_row import row_key, title_and_device
from tests.conftest import SAMPLES
from tests.support.launches import launch, metric, sass, table
from tests.support.ran import below_head

METRICS = (SAMPLES / "d04-long-metrics.csv").read_text("utf-8")
A100, H100 = "compute capability 8.0", "compute capability 9.0"


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """A folder with a report of one device, and two of another that ran the same kernels."""
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "a100.csv").write_text(METRICS, "utf-8")
    assert '"8.0"' in METRICS
    assert '"4711"' in METRICS
    for number in (1, 2):
        text = METRICS.replace('"8.0"', '"9.0"').replace('"4711"', f'"{number}"')
        (folder / f"h100-{number}.csv").write_text(text, "utf-8")
    return folder


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(list(words)) == 0
    return capsys.readouterr().out


def rows_of(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(said(capsys, "hotspots", *words, "--format", "json"))["rows"]
    return found


def places(rows: list[dict[str, Any]]) -> set[tuple[str, str | None]]:
    return {(row["device"], None if row["report"] is None else Path(row["report"]).name) for row in rows}


def test_a_kernel_of_two_devices_is_two_rows_each_under_the_ceiling_of_its_device() -> None:
    names = ("NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3")
    each = [table(launch("gemm", sass(ffma=1e9), ns=1e6, dram=1e6, attributes={"Device Name": name})) for name in names]
    made = concatenated(each)
    rows = {row.device: row for row in hotspots(made, ceilings_of(made)).rows}
    assert {row.device: (row.kernel, row.launches) for row in rows.values()} == dict.fromkeys(names, ("gemm", 1))
    alone = [hotspots(one, ceilings_of(one)).rows[0] for one in each]
    assert [rows[name].bound_fraction for name in names] == [one.bound_fraction for one in alone]
    assert alone[0].bound_fraction != alone[1].bound_fraction


def test_a_kernel_of_two_devices_has_a_diagnosis_for_each() -> None:
    busy = {"dram__throughput.avg.pct_of_peak_sustained_elapsed": metric(95.0, "%")}
    made = concatenated([table(launch("copy", busy, ns=1e6, capability="8.0")),
                         table(launch("copy", ns=1e6, capability="9.0"))])  # fmt: skip
    rows = {row.device: row for row in hotspots(made, ceilings_of(made)).rows}
    found = diagnoses(made, list(rows.values()), "name")
    assert "DRAM" in found[rows[A100].key].text
    assert rows[H100].key not in found or "DRAM bound" not in found[rows[H100].key].text


@pytest.mark.parametrize("form", ["folder", "parquet", "dataset"])
def test_rows_say_their_device_and_their_report_where_that_is_one(
    form: str, reports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = {"folder": reports, "parquet": tmp_path / "all.parquet", "dataset": tmp_path / "dataset"}[form]
    if form != "folder":
        said(capsys, "parse", str(reports), "-o", f"{named}{'/' * (form == 'dataset')}", "--separate")
    rows = rows_of(capsys, str(named))
    kernels = {row["kernel"] for row in rows}
    assert len(rows) == 2 * len(kernels)
    assert places(rows) == {(A100, "a100.csv"), (H100, None)}
    by_report = rows_of(capsys, str(named), "--by", "report")
    assert places(by_report) == {(A100, "a100.csv"), (H100, "h100-1.csv"), (H100, "h100-2.csv")}
    assert [Path(row["kernel"]).name for row in by_report if row["device"] == A100] == ["a100.csv"]
    assert {row["kernel"] for row in rows_of(capsys, str(named), "--by", "device")} == {A100, H100}


def test_a_table_names_devices_and_reports_only_where_they_differ(
    reports: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    head, _, *lines = below_head(said(capsys, "hotspots", str(reports))).splitlines()
    assert head.split()[:4] == ["kernel", "device", "report", "launches"]
    assert any(re.search("CC 8.0 +a100.csv", line) for line in lines)
    assert any(re.search("CC 9.0 +several", line) for line in lines)
    assert below_head(said(capsys, "hotspots", str(reports / "a100.csv"))).split()[:2] == ["kernel", "launches"]


@pytest.mark.parametrize("option", [["--units"], ["--diagnose"], ["--columns", "occupancy"], ["--mix"]])
def test_every_table_of_kernels_keeps_devices_apart(
    option: list[str], reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row for row in rows_of(capsys, str(reports), *option) if row["kernel"] != "all kernels"]
    assert {row["device"] for row in rows} == {A100, H100}


def test_points_of_one_kernel_on_two_devices_have_names_of_their_own(
    reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(said(capsys, "roofline", str(reports), "--format", "json"))
    marks = [mark["name"] for mark in document["scene"]["marks"]]
    assert len(marks) == len(set(marks)) > 0
    assert {name.rpartition(" on ")[2] for name in marks} == {A100, H100}


def test_names_of_reports_are_the_ends_that_differ_cut_in_the_middle() -> None:
    assert short_reports(["runs/a/x.csv", "runs/a/y.csv"]) == {"runs/a/x.csv": "x.csv", "runs/a/y.csv": "y.csv"}
    assert list(short_reports(["runs/a/x.csv", "runs/b/x.csv"]).values()) == ["a/x.csv", "b/x.csv"]
    long = [f"{'owner' * 9}-{middle}-{'report' * 9}.ncu-rep" for middle in ("one", "two")]
    one, two = short_reports(long).values()
    assert one != two
    (cut,) = short_reports([long[0]]).values()
    assert len(cut) == WIDTHS[0]
    assert cut.startswith("owner")
    assert cut.endswith(".ncu-rep")


def test_the_key_of_a_row_is_its_title_where_no_device_is_known() -> None:
    assert row_key("gemm", None) == "gemm"
    assert title_and_device(row_key("gemm<1>(int)", H100)) == ("gemm<1>(int)", H100)
    assert title_and_device("gemm") == ("gemm", None)
    damaged = "ge\0mm\0"
    assert title_and_device(damaged) == (damaged, None)
    assert title_and_device(row_key(damaged, H100)) == (damaged, H100)
