"""Binary reports without NVIDIA's package, ncu and nvdisasm: every command that takes a report works."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ncu_tools.cli import COMMANDS
from tests.parsers.ncu_rep.test_instances import REAL
from tests.support.binary_reports import Kernel, field, nvtx_state, report_of
from tests.support.launches import SASS
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports
from tests.support.timelines import KERNELS, database, kernel

pytestmark = pytest.mark.slow

CODE, BEGIN = 2**40, 2**60
METRICS: dict[str, Any] = {
    "gpu__time_duration.sum": 5000, "dram__bytes.sum": 10**6, "lts__t_bytes.sum": 2 * 10**6, "sm__warps_active.avg": 3,
    "smsp__inst_executed.sum": 30, "launch__grid_size": 8, "launch__block_size": 128, "device__attribute_chip": 384,
    "device__attribute_compute_capability_major": 9, "device__attribute_compute_capability_minor": 0,
    "device__attribute_display_name": "NVIDIA H100 80GB HBM3", "launch__function_pcs": (1, {0: CODE}),
    "inst_executed": (30, {CODE: 20, CODE + 16: 10}), "thread_inst_executed_true": (960, {CODE: 640, CODE + 16: 320}),
    "smsp__pcsamp_sample_count": (9, {CODE: 4, CODE + 16: 5}),
    "smsp__pcsamp_warps_issue_stalled_wait": (9, {CODE: 4, CODE + 16: 5}),
    "sass__inst_executed_per_opcode_with_modifier_all": (30, {"FFMA": 20, "EXIT": 10}),
    "pmsampling:sm__cycles_active.avg": (None, {BEGIN + 1000 * step: step for step in range(1, 5)}),
    "profiler__timestamp_workload_start_0": (None, {BEGIN: 0}),
    "profiler__timestamp_workload_end_0": (None, {BEGIN + 5000: 0}),
    **{SASS.format(f"{kind}{operation}"): 64 for kind in "dfh" for operation in ("add", "mul", "fma")},
}  # fmt: skip
RANGES = field(21, nvtx_state([], {"ncu_bench": ["iteration 0", "forward", "layer1"]}))

TAKE_REPORTS: dict[str, Callable[[Path, Path], list[list[str]]]] = {
    "parse": lambda report, folder: [
        [str(report), "-o", f"{folder}/launches.parquet", "--instances", "--instructions"],
        [str(report), "-o", f"{folder}/set/"],
        [str(report), "--contents"],
    ],
    "hotspots": lambda report, folder: [[str(report), *more] for more in ([], ["--units"], ["--mix"], ["--diagnose"])],
    "roofline": lambda report, folder: [
        [str(report), "-o", f"{folder}/roofline.svg"], [str(report), "--instructions"]
    ],
    "layers": lambda report, folder: [[str(report)]],
    "kernel": lambda report, folder: [[str(report)], [str(report), "--format", "json"]],
    "source": lambda report, folder: [[str(report)], [str(report), "--view", "sass"]],
    "samples": lambda report, folder: [[str(report)]],
    "skew": lambda report, folder: [[str(report)]],
    "query": lambda report, folder: [[str(report), "SELECT count(*) FROM launches"]],
    "export": lambda report, folder: [
        [str(report), "-o", f"{folder}/{kind}", "--as", kind] for kind in ("csv", "sections")
    ],
    "report": lambda report, folder: [[str(report), "-o", f"{folder}/page.html"]],
    "join": lambda report, folder: [[str(report), str(timeline(folder)), "-o", f"{folder}/joined.parquet", "--anyway"]],
    "compare": lambda report, folder: [[str(report), str(report)], [str(report), str(report), "--layers"]],
    "expected": lambda report, folder: [[str(report), "--target", "gemm:64,64,64,fp32"]],
}  # fmt: skip
"""What each command that takes a report is called with, of a report and a folder to write to."""
TAKE_NONE = {"profile", "bench", "scaling", "estimate", "metrics", "machines", "doctor"}


def timeline(folder: Path) -> Path:
    path = folder / "timeline.sqlite"
    path.unlink(missing_ok=True)
    return database(path, {KERNELS: [kernel(10, 1)]}, ["gemm"])


@pytest.fixture(autouse=True)
def nothing_of_nvidia(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the package, and without any program on PATH."""
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    (tmp_path / "no programs").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "no programs"))


def test_each_command_takes_a_report_or_is_known_to_take_none() -> None:
    assert TAKE_REPORTS.keys() | TAKE_NONE == COMMANDS.keys()
    assert not TAKE_REPORTS.keys() & TAKE_NONE


@pytest.mark.parametrize("command", TAKE_REPORTS)
def test_a_command_that_takes_a_report_works(command: str, tmp_path: Path) -> None:
    report = tmp_path / "made.ncu-rep"
    report.write_bytes(report_of([Kernel(metrics=METRICS, more=RANGES)]))
    for arguments in TAKE_REPORTS[command](report, tmp_path):
        done = ran(command, *arguments)
        assert done.exit_code == 0, (arguments, done.stderr)


@needs_shared_reports
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_every_real_binary_report_is_read(path: Path, tmp_path: Path) -> None:
    output = tmp_path / "launches.parquet"
    for arguments in (
        ["parse", str(path), "-o", str(output)],
        ["hotspots", str(path)],
        ["parse", str(path), "--contents"],
    ):
        done = ran(*arguments)
        assert done.exit_code == 0, done.stderr


def test_only_the_comparison_with_the_package_needs_it_and_says_so(tmp_path: Path) -> None:
    report = tmp_path / "made.ncu-rep"
    report.write_bytes(report_of([Kernel(metrics=METRICS)]))
    done = ran("parse", str(report), "--check")
    assert done.exit_code == 1
    assert "NVIDIA's package ncu_report is not installed. Only --check needs it" in done.stderr
