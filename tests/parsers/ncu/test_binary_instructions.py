"""Instructions of binary reports, against the source page of the real ncu; their text by package (sass_by_package)."""

from __future__ import annotations

import csv
import importlib
import json
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.ncu.instructions.read import read_instructions, source_files
from ncu_parsers.ncu_rep.blocks import Content, blocks_of, messages_of, opened
from ncu_parsers.ncu_rep.fields import decoded
from ncu_parsers.ncu_rep.instructions.debug_lines import kernel_debug, ptx_text
from ncu_parsers.schema import tables
from ncu_parsers.schema.instructions_table import MEASURES, measure_of
from ncu_parsers.sources.sources import Source

from ncu_tools.kernels.source.dependencies import flow_of, live_registers
from ncu_tools.kernels.source.kernel_code import kernel_code
from tests.conftest import SHARED
from tests.support.hottest_places import EXPECTATIONS, hottest_places
from tests.support.installed import needs_ncu
from tests.support.nightly import by_day
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, table_of

REPORTS = SHARED / "reports"
JULIA = REPORTS / "ncu_rep" / "eschnett__IndexSpaces.jl__317662_profile.ncu-rep"
CUDA = REPORTS / "ncu_rep_full" / "AlpriElse__cs599k__silu_CUDA_ncu-reports_2025-04-21-vector-based.ncu-rep"
TRITON = REPORTS / "ncu_rep_full" / "AlpriElse__cs599k__silu_triton_silu-2025-04-18-v7.ncu-rep"
WITH_INSTRUCTIONS = (JULIA, CUDA, TRITON)
EXAMPLES = sorted(Path("/usr/share/doc/nsight-compute/examples").rglob("*.ncu-rep"))
"""Reports that Debian's package of ncu brings, with lines and source text."""
EVERY_REPORT = sorted({*REPORTS.rglob("*.ncu-rep"), *REPORTS.rglob("*.nsight-cuprof-report")}) + EXAMPLES
TOO_NEW_FOR_NCU_2022 = {
    path for path in EVERY_REPORT if path in (CUDA, TRITON) or path.name.startswith(("bobschreiner", "rashwanth"))
}
ROUNDED = ("avg_threads", "avg_threads_true")
"""Columns that the page prints as whole numbers."""
NOT_ON_PAGES = {
    "report",
    "function",
    "ptx_line",
    "stall_branch_resolving",
    "stall_branch_resolving_not_issued",
    "sass",
    "opcode",
    "modifiers",
}
"""Columns that the source page of ncu 2022.3 lacks, and texts, which need NVIDIA's package."""

pytestmark = [needs_shared_reports, pytest.mark.slow]
needs_package = pytest.mark.skipif(
    find_spec("ncu_report") is None, reason="ncu-report is not installed (the extra ncu-rep)"
)


@cache
def instructions(path: Path) -> pa.Table:
    table = read_instructions(Source(str(path)))
    assert table is not None
    return table


def by_place(table: pa.Table) -> dict[tuple[int, int], dict[str, Any]]:
    return {(row["launch_id"], row["offset"]): row for row in table.to_pylist()}


def printed_by_ncu(path: Path, folder: Path) -> pa.Table | None:
    """The instructions on the source page that the installed ncu prints; None if the report is too new for it."""
    page = folder / "source.csv"
    for view in ("cuda,sass", "sass"):  # the first prints nothing of kernels without lines
        command = ["ncu", "--import", str(path), "--page", "source", "--csv", "--print-source", view]
        with page.open("wb") as out:
            subprocess.run(command, stdout=out, stderr=subprocess.DEVNULL, check=False)
        table = read_instructions(Source(str(page)))
        if table is not None:
            return table
    assert "Failed to load report file" in page.read_text("utf-8", "replace")
    return None


@needs_ncu
@pytest.mark.parametrize("path", by_day([JULIA, *EXAMPLES[:1]], EVERY_REPORT), ids=lambda path: path.name[:40])
def test_every_column_equals_the_source_page_of_ncu(path: Path, tmp_path: Path) -> None:
    printed, read = printed_by_ncu(path, tmp_path), read_instructions(Source(str(path)))
    if printed is None:
        assert path in TOO_NEW_FOR_NCU_2022  # NVIDIA's package is the reference for these, below
        return
    if read is None:  # the page has the text of instructions alone
        assert all(printed[measure.name].null_count == len(printed) for measure in MEASURES)
        return
    ours, theirs = by_place(read), by_place(printed)
    assert ours.keys() <= theirs.keys()
    several_lines = 0
    for place, row in ours.items():
        other = theirs[place]
        for name in row.keys() - NOT_ON_PAGES - {"file", "line"}:
            assert row[name] == pytest.approx(other[name], abs=0.51 if name in ROUNDED else 0), (place, name)
        several_lines += (row["file"], row["line"]) != (other["file"], other["line"])
    assert several_lines <= 12  # instructions that the page lists under two lines
    for place in theirs.keys() - ours.keys():
        assert not theirs[place]["samples"]
        assert not theirs[place]["inst_executed"]


@needs_ncu
@pytest.mark.parametrize("path", by_day(EXAMPLES[:1], [JULIA, *EXAMPLES]), ids=lambda path: path.name[:40])
def test_every_column_that_ncu_prints_is_one_of_the_table(path: Path) -> None:
    command = ["ncu", "--import", str(path), "--page", "source", "--csv", "--print-source", "cuda,sass"]
    page = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    headers = [row for row in csv.reader(page.splitlines()) if "Source" in row]
    known = {title for measure in MEASURES for title in measure.titles} | {"Address", "Line No", "Source"}
    assert headers
    assert {title for row in headers for title in row} <= known


@pytest.mark.parametrize("path", WITH_INSTRUCTIONS, ids=lambda path: path.name[:30])
@pytest.mark.parametrize(
    ("column", "metric"),
    [
        ("inst_executed", "inst_executed"),
        ("thread_inst_executed", "thread_inst_executed"),
        ("thread_inst_executed_true", "thread_inst_executed_true"),
        ("samples", "smsp__pcsamp_sample_count"),
        ("l2_sectors", "memory_l2_theoretical_sectors_global"),
        ("stall_long_scoreboard", "smsp__pcsamp_warps_issue_stalled_long_scoreboard"),
    ],
)
def test_the_sum_over_instructions_is_the_launchs_own_counter(path: Path, column: str, metric: str) -> None:
    launches = table_of(path)
    assert launches is not None
    whole = dict(zip(launches["launch_id"].to_pylist(), tables.floats(launches, metric).tolist(), strict=True))
    sums = instructions(path).group_by("launch_id").aggregate([(column, "sum")])
    found = dict(zip(sums["launch_id"].to_pylist(), sums[f"{column}_sum"].to_pylist(), strict=True))
    assert found == whole


def test_samples_are_the_sum_of_their_reasons() -> None:
    table = instructions(CUDA)
    reasons = [name for name in table.column_names if name.startswith("stall_") and not name.endswith("_not_issued")]
    assert pc.sum(table["samples"]).as_py() == sum(pc.sum(table[name]).as_py() or 0 for name in reasons)


def test_a_triton_kernel_names_its_python_file_and_lines() -> None:
    rows = [row for row in instructions(TRITON).to_pylist() if row["kernel_short"] == "silu_kernel_non_strided"]
    lines = {(row["file"].rsplit("/", 1)[-1], row["line"]) for row in rows if row["file"]}
    assert ("silu-triton.py", 157) in lines
    assert all(row["ptx_line"] for row in rows)


def test_the_bytes_of_source_files_when_compiled_are_those_that_the_compiler_noted() -> None:
    held = source_files(Source(str(TRITON)))
    assert held is not None
    assert {path.rsplit("/", 1)[-1]: size for path, size in held.sizes.items()} == {
        "silu-triton.py": 11_513, "standard.py": 13_747,
    }  # fmt: skip


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_imported_file_has_the_bytes_that_it_had_when_compiled(path: Path) -> None:
    held = source_files(Source(str(path)))
    assert held is not None
    assert held.sizes
    assert {file: len(held.texts[file].encode()) for file in held.sizes} == held.sizes


def test_what_a_kernel_calls_is_a_function_of_its_own_beside_the_kernel() -> None:
    functions = instructions(CUDA)["function"].unique().to_pylist()
    assert functions == ["_Z18silu_kernel_vectorPfS_i", "$__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath"]


def test_a_kernel_compiled_without_lines_has_none() -> None:
    assert instructions(CUDA)["line"].null_count == len(instructions(CUDA))


@needs_package
@pytest.mark.parametrize("path", WITH_INSTRUCTIONS, ids=lambda path: path.name[:30])
def test_no_kernel_has_more_live_registers_than_it_was_given(path: Path) -> None:
    launches = table_of(path)
    assert launches is not None
    given = tables.floats(launches, "launch__registers_per_thread")
    for launch, registers in zip(launches["launch_id"].to_pylist(), given.tolist(), strict=True):
        flow = flow_of(kernel_code(instructions(path), (), launch))
        live = None if flow is None else live_registers(flow)
        assert live is not None
        assert 0 < max(live) <= registers


@cache
def cubin() -> bytes:
    with opened(Source(str(TRITON))) as stream:
        for block in blocks_of(stream, "report").blocks:
            for message in messages_of(stream, block, Content.SOURCE):
                code = decoded("Source", message.data or b"").cubin
                if b"silu_kernel_non_strided" in code:
                    return bytes(code)
    raise AssertionError("the report holds no cubin of the kernel")


def test_the_ptx_of_a_cubin_is_numbered_as_its_instructions_name_it() -> None:
    lines = ptx_text(cubin())
    assert any("silu_kernel_non_strided" in line for line in lines)
    debug = kernel_debug(cubin(), "silu_kernel_non_strided")
    assert debug is not None
    assert max(place.line for place in debug.ptx_lines.values()) <= len(lines)


def test_a_kernel_that_the_cubin_does_not_hold_has_no_lines() -> None:
    assert kernel_debug(cubin(), "another") is None


@given(st.integers(0, 17_000), st.binary(min_size=1, max_size=8))
def test_a_damaged_cubin_ends_in_no_traceback(place: int, damage: bytes) -> None:
    whole = cubin()
    kernel_debug(whole[:place] + damage + whole[place + len(damage) :], "silu_kernel_non_strided")
    kernel_debug(whole[:place], "silu_kernel_non_strided")


def test_the_hottest_lines_of_ptx_are_shown_with_their_text() -> None:
    result = ran("source", str(TRITON), "--view", "ptx", "--kernel", "silu", "--format", "json")
    rows = json.loads(result.stdout)["rows"]
    assert all(row["text"] for row in rows[:10])
    assert any("ld.global" in row["text"] or "sub.f32" in row["text"] for row in rows[:10])


@needs_package
@pytest.mark.parametrize("path", WITH_INSTRUCTIONS, ids=lambda path: path.name[:30])
def test_every_column_equals_the_values_of_nvidias_package(path: Path) -> None:
    ncu_report = importlib.import_module("ncu_report")
    ours = by_place(instructions(path))
    starts = {launch: row["address"] - row["offset"] for (launch, _), row in ours.items()}
    part = ncu_report.load_report(str(path)).range_by_idx(0)
    compared = 0
    for launch in range(part.num_actions()):
        action = part.action_by_idx(launch)
        for name in action.metric_names():
            measure = measure_of(name)
            if measure is None:
                continue
            metric = action.metric_by_name(name)
            addresses = metric.correlation_ids()
            for place in range(metric.num_instances() if addresses is not None else 0):
                row, value = ours[launch, addresses.as_uint64(place) - starts[launch]], metric.as_double(place)
                expected = value if measure.words is None else measure.words.get(round(value))
                assert (row[measure.name] or 0) == (expected or 0), (measure.name, row["offset"])
                compared += 1
    assert compared > 1000


@pytest.mark.parametrize("path", [CUDA, TRITON], ids=lambda path: path.name[:30])
def test_the_hottest_places_of_the_full_reports_are_as_recorded(path: Path) -> None:
    assert hottest_places(path) == json.loads(EXPECTATIONS.read_text("utf-8"))[path.name]
