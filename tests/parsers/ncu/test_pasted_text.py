"""Text pages of ncu as they are pasted: without their lines of dashes, with ncu's warnings, or without a kernel line."""

from __future__ import annotations

from pathlib import Path

import pytest
from ncu_parsers.detect.text_reader import read_report
from ncu_parsers.parse.parse import parse
from ncu_parsers.report_data import report as kinds
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Report
from ncu_parsers.schema import tables
from ncu_parsers.sources.sources import Source

from ncu_tools.compare.run_conditions import conditions_of_run
from tests.support.ran import ran
from tests.support.reports import FAULTS, needs_faults

KERNEL = "  spmv_csr(const int *, float *) (2048, 1, 1)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 8.0\n"
ROWS = """\
    Section: GPU Speed Of Light Throughput
    DRAM Throughput                   %        81.40
    Duration                         us       122.78
    Section: Occupancy
    Theoretical Occupancy             %          100
"""
FENCED = """\
    Section: GPU Speed Of Light Throughput
    ----------------------- ------------- ------------
    DRAM Throughput                     %        81.40
    Duration                      usecond       122.78
    ----------------------- ------------- ------------
"""
RULE = "    OPT   Est. Speedup: 48.2%                                                                   17\n"
NOT_FIXED = "Data collection happened without fixed GPU frequencies. Profiling results may be inconsistent."


def read(text: str, folder: Path) -> Report:
    (folder / "page.txt").write_text(text, "utf-8")
    return read_report(Source(str(folder / "page.txt")))


def values(report: Report) -> dict[str, object]:
    return {name: metric.value for name, metric in report.launches[0].metrics.items()}


READ = {
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 81.4, "gpu__time_duration.sum": 122780.0,
    "sm__maximum_warps_per_active_cycle_pct": 100.0,
}  # fmt: skip


def test_rows_are_read_where_the_lines_of_dashes_are_gone(tmp_path: Path) -> None:
    assert values(read(KERNEL + ROWS, tmp_path)) == READ


def test_rows_are_read_where_all_spaces_but_one_are_gone_too_if_their_unit_is_known(tmp_path: Path) -> None:
    squeezed = "\n".join(" " * 4 + " ".join(line.split()) for line in ROWS.splitlines())
    assert values(read(KERNEL + squeezed + "\n", tmp_path)) == READ
    unknown = read(KERNEL + squeezed + "\n    Widgets of Gadgets 17\n", tmp_path)
    assert (values(unknown), unknown.skipped[kinds.BROKEN]) == (READ, 1)


@pytest.mark.parametrize(
    ("section", "row", "value"),
    [
        ("GPU Speed Of Light Throughput", "Duration ns 950", 950.0),
        ("Compute Workload Analysis", "Executed Ipc Active inst/cycle 1.25", 1.25),
        ("Launch Statistics", "Registers Per Thread register/thread 32", 32.0),
        ("Occupancy", "Block Limit Registers block 8", 8.0),
    ],
)
def test_a_row_with_single_spaces_is_read_in_base_units_too(
    section: str, row: str, value: float, tmp_path: Path
) -> None:
    assert list(values(read(f"{KERNEL}    Section: {section}\n    {row}\n", tmp_path)).values()) == [value]


def test_a_rule_and_lines_below_a_table_with_dashes_are_no_rows_of_that_kind(tmp_path: Path) -> None:
    found = values(read(KERNEL + FENCED + RULE + "    step 3          loss      0.25\n", tmp_path))
    assert list(found) == list(READ)[:2]


@needs_faults
def test_the_pasted_page_without_dashes_has_its_time_its_throughput_and_its_occupancies() -> None:
    table = parse([Source(str(FAULTS / "07_text_without_dashes.txt"))]).table
    assert table is not None
    assert tables.floats(table, "duration_ns").tolist() == [122780.0]
    for name, value in READ.items():
        assert tables.floats(table, name)[0] == value
    assert tables.floats(table, "sm__warps_active.avg.pct_of_peak_sustained_active").tolist() == [72.1]


@pytest.mark.parametrize(
    "text",
    [
        f"{KERNEL}    Warning: {NOT_FIXED}\n{FENCED}",
        f"==WARNING== {NOT_FIXED}\n{KERNEL}{FENCED}",
        f"==WARNING== {NOT_FIXED}\n==WARNING== {NOT_FIXED}\n{KERNEL}{FENCED}",
    ],
)
def test_warnings_of_ncu_are_repeated_once_and_tell_that_clocks_were_not_controlled(text: str, tmp_path: Path) -> None:
    (tmp_path / "page.txt").write_text(text, "utf-8")
    parsed = parse([Source(str(tmp_path / "page.txt"))])
    assert parsed.reports[0].notes == [f"ncu warns: {NOT_FIXED}"]
    assert parsed.table is not None
    assert conditions_of_run(parsed.table, None)["clock control"] == "none"


def test_clock_control_is_not_known_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "page.txt").write_text(KERNEL + FENCED, "utf-8")
    table = parse([Source(str(tmp_path / "page.txt"))]).table
    assert table is not None
    assert "clock control" not in conditions_of_run(table, None)


OUT_OF_RANGE = """\
    Section: Command line profiler metrics
    --------------------------------------- ----------- ------------
    gpu__time_duration.sum                           us         2.91
    lts__t_sector_hit_rate.pct                        %       179.27
    --------------------------------------- ----------- ------------
"""


@pytest.mark.parametrize("where", ["built here", pytest.param("in the file", marks=needs_faults)])
def test_a_hit_rate_of_179_per_cent_is_said_to_be_out_of_range_beside_the_warnings(where: str, tmp_path: Path) -> None:
    path = FAULTS / "14_warnings_and_179_percent.txt"
    if where == "built here":
        path = tmp_path / "page.txt"
        path.write_text(f"{KERNEL}    Warning: {NOT_FIXED}\n{OUT_OF_RANGE}", "utf-8")
    found = ran("kernel", str(path))
    assert "L2 hit rate  179.3 %  out of range" in found.stdout
    assert "out of range: L2 hit rate 179.3 %; counters of different passes, or a launch too short" in found.stderr
    assert f"ncu warns: {NOT_FIXED}" in found.stderr
    if where == "in the file":
        assert "ncu warns: The result was collected with the Work ID/Cluster Launch Control (CLC)" in found.stderr
    digest = ran("report", "--format", "digest", str(path)).stdout
    assert "clock control none" in digest
    assert "not known: cache control" in digest


@pytest.mark.parametrize("where", ["built here", pytest.param("in the file", marks=needs_faults)])
def test_sections_without_a_kernel_line_are_refused_as_such(where: str, tmp_path: Path) -> None:
    with pytest.raises(
        NotAReport, match="holds sections of a details page of ncu, and not the line that names"
    ) as said:
        if where == "built here":
            read(FENCED, tmp_path)
        read_report(Source(str(FAULTS / "refused" / "b_details_without_kernel_line.txt")))
    assert "Copy that line, too" in said.value.advice


def test_what_a_program_prints_is_no_section(tmp_path: Path) -> None:
    with pytest.raises(NotAReport, match="holds no table of Nsight Compute"):
        read("Section: results\nall went well\n", tmp_path)
