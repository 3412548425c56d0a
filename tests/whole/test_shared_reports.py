"""Real reports of other people's GPUs: each parses or is refused as expected, and known values come out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ncu_parsers.parse.parse import parse
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import LONG_ENOUGH_NS
from ncu_parsers.sources.sources import Source

from ncu_tools.ceilings.ceilings import ceilings_of, unit_title
from ncu_tools.ceilings.machine_files import machine_of_device
from ncu_tools.roofline.roofline import Look, roofline
from ncu_tools.roofline.scene import LEVELS
from ncu_tools.roofline.scene_builder import scene_of
from tests.conftest import ROOT, SHARED
from tests.support.reports import needs_shared_reports, shared_reports, summed_up, table_of

EXPECTED: dict[str, dict[str, Any]] = json.loads((ROOT / "tests/expectations/ncu_csv.json").read_text("utf-8"))
FOLDER = SHARED / "reports" / "ncu_csv"

pytestmark = [needs_shared_reports, pytest.mark.slow]


def one(fragment: str) -> Any:
    """The table of the one report whose file name holds `fragment`."""
    (path,) = [path for path in shared_reports("ncu_csv") if fragment in path.name]
    return parse([Source(str(path))]).table


def test_every_report_has_an_expectation_and_every_expectation_a_report() -> None:
    assert {path.name for path in shared_reports("ncu_csv")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_real_report_parses_or_is_refused_as_expected(name: str) -> None:
    found = summed_up(FOLDER / name)
    expected = EXPECTED[name]
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value), key


@pytest.mark.parametrize("folder", ["ncu_csv", "ncu_rep", "nsys"])
def test_every_report_of_every_kind_is_read_or_refused_with_advice(folder: str) -> None:
    sources = [Source(str(path)) for path in shared_reports(folder)]
    assert sources
    parsed = parse(sources, join=False)
    assert {report.source for report in parsed.reports} | parsed.refused.keys() == {source.name for source in sources}
    assert all(report.rows or report.session for report in parsed.reports)
    assert all(error.what and (error.cause or error.advice) for error in parsed.refused.values())


def test_a_folder_of_all_reports_is_one_table_with_a_row_per_launch() -> None:
    parsed = parse(find_sources([str(SHARED / "reports" / "nsys"), str(SHARED / "reports" / "ncu_rep")]))
    assert parsed.table is not None
    assert len(parsed.table) == sum(report.rows for report in parsed.reports)
    of_ncu = {"ncu"} if any("ncu_rep" in report.source for report in parsed.reports) else set()
    assert set(parsed.table.column("source").to_pylist()) == {"nsys"} | of_ncu


TRUE_GEMM_FLOPS = 2 * 40960 * 40960 * 20480


@pytest.mark.parametrize(
    ("file", "kernel"), [("output_gemm.csv", "gemm_v0"), ("output_sgemm.csv", "gemm_v1"), ("share_tile.csv", "gemm_v0")]
)
def test_the_flops_of_a_gemm_are_2mnk_to_the_digit_without_constant_moves(file: str, kernel: str) -> None:
    table = one(file)
    rows = [row for row in table.to_pylist() if row["kernel_short"] == kernel]
    assert [row["flops"] for row in rows] == [TRUE_GEMM_FLOPS]
    assert all(row["flops_fp16"] > 0 for row in rows)
    assert "constant moves" in rows[0]["flops_basis"]


def test_the_dram_bytes_of_two_gemms_differ_fivefold() -> None:
    v0, v1 = (tables.floats(one(file), "dram_bytes")[-1] for file in ("output_gemm.csv", "output_sgemm.csv"))
    assert v0 == pytest.approx(4.39e12, rel=2e-3)
    assert v1 == pytest.approx(8.08e11, rel=2e-3)


def test_dram_bandwidth_from_the_blackwell_names_equals_the_authors() -> None:
    (row,) = one("ncu_gemm_naive").to_pylist()
    assert row["dram_bytes"] / row["duration_ns"] == pytest.approx(8.43, abs=0.005)


def test_the_gpp_kernel_has_the_flops_time_and_intensity_of_its_authors() -> None:
    (row,) = one("custom-scripts_output.csv").to_pylist()
    assert row["flops_fp64"] == pytest.approx(1.9638e12, rel=1e-4)
    assert row["duration_ns"] == pytest.approx(22.765e9, rel=1e-4)
    assert row["flops_fp64"] / row["duration_ns"] == pytest.approx(86.3, abs=0.05)
    assert row["flops_fp64"] / row["dram_bytes"] == pytest.approx(14.55, abs=0.005)


def test_the_pages_of_one_report_agree_and_join_into_its_two_launches() -> None:
    pages = [path for path in shared_reports("ncu_csv") if "eschnett" in path.name and "summary" not in path.name]
    parsed = parse([Source(str(path)) for path in pages])
    assert parsed.table is not None
    assert len(parsed.table) == 2
    assert parsed.table.column("duration_ns").to_pylist() == [459456.0, 8974464.0]
    assert "were joined into one row each" in parsed.notes[0]


def test_a_session_page_gives_its_tool_version_to_the_report_beside_it() -> None:
    pages = [path for path in shared_reports("ncu_csv") if path.name.startswith("cfregly")]
    parsed = parse([Source(str(path)) for path in pages])
    (report,) = [report for report in parsed.reports if report.launches]
    assert report.tool_version == "2025.3.1"
    assert parsed.table is not None
    assert parsed.table.column("nvtx_path").to_pylist() == [["compute_kernel:profile"]]


EVERY_REPORT = [path for folder in ("ncu_csv", "ncu_rep", "ncu_rep_full") for path in shared_reports(folder)]


@pytest.mark.parametrize("path", EVERY_REPORT, ids=[path.name for path in EVERY_REPORT])
def test_every_report_has_one_dram_ceiling_per_device_equal_to_the_data_sheet(path: Path) -> None:
    table = table_of(path)
    if table is None:
        return
    known = ceilings_of(table).per_launch["dram"]
    names, texts = tables.codes(table, "device_name")
    for code in np.unique(names).tolist():
        of_device = known[(names == code) & ~np.isnan(known)]
        assert len(set(of_device.tolist())) <= 1
        machine = machine_of_device(texts[code])
        if machine is not None:
            assert of_device.size == (names == code).sum()
            assert of_device[0] == pytest.approx(machine.rates["dram"].value, rel=0.01)


@pytest.mark.parametrize("path", EVERY_REPORT, ids=[path.name for path in EVERY_REPORT])
def test_all_levels_of_every_report_have_a_ceiling_or_a_note_with_the_reason(path: Path) -> None:
    table = table_of(path)
    if table is None:
        return
    made = roofline({"run": table}, look=Look(levels=LEVELS))
    drawn = {roof.unit for roof in scene_of(made).roofs}
    for level in LEVELS:
        title = unit_title(level)
        said = [note for note in made.notes if f"{title} has no roof" in note or f"bytes of {title}, so" in note]
        assert len(said) == (level not in drawn), level


def test_launches_of_microseconds_take_their_dram_ceiling_from_the_attributes() -> None:
    """ncu printed memory clocks 11 to 30 % too low for them."""
    for fragment, ceiling in (("josiahls", 288.0e9), ("strrules105", 898.0e9)):
        (path,) = (path for path in shared_reports("ncu_rep") if fragment in path.name)
        table = parse([Source(str(path))]).table
        assert table is not None
        times = tables.floats(table, "duration_ns")
        assert np.nanmax(times) < LONG_ENOUGH_NS
        assert ceilings_of(table).per_launch["dram"] == pytest.approx(ceiling, rel=1e-3)


def test_a_failed_launch_is_kept_marked_and_empty() -> None:
    (row,) = one("custom-scripts_output8").to_pylist()
    assert row["failed"] is True
    assert row["flops"] is None
    assert row["duration_ns"] is None
