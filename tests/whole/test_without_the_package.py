"""Binary reports without NVIDIA's package, ncu and nvdisasm: every command that takes a report works."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ncu_tools.cli import COMMANDS
from tests.parsers.ncu_rep.test_instances import REAL
from tests.support.binary_expectations import made
from tests.support.models.models_here import models_run_here
from tests.support.nightly import one_in
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports
from tests.support.timelines import KERNELS, database, kernel

pytestmark = pytest.mark.slow

TAKE_REPORTS: dict[str, Callable[[Path, Path], list[list[str]]]] = {
    "parse": lambda report, folder: [
        [str(report), "-o", f"{folder}/launches.parquet", "--instances", "--instructions"],
        [str(report), "-o", f"{folder}/set/"],
        [str(report), "--contents"],
        [str(report), "--times", str(timeline(folder)), "-o", f"{folder}/joined.parquet", "--anyway"],
    ],
    "hotspots": lambda report, folder: [
        [str(report), *more] for more in ([], ["--units"], ["--mix"], ["--diagnose"], ["--by", "layer"])
    ],
    "roofline": lambda report, folder: [
        [str(report), "-o", f"{folder}/roofline.svg"], [str(report), "--instructions"]
    ],
    "kernel": lambda report, folder: [
        [str(report), *more] for more in ([], ["--format", "json"], ["--part", "samples"])
    ],
    "advise": lambda report, folder: [[str(report)], [str(report), "--format", "json"]],
    "source": lambda report, folder: [[str(report)], [str(report), "--view", "sass"]],
    "history": lambda report, folder: [[str(report), str(report)], [str(report), "--series"]],
    "timeline": lambda report, folder: [[str(report), "--by", "kernel"]],
    "query": lambda report, folder: [[str(report), "SELECT count(*) FROM launches"]],
    "report": lambda report, folder: [
        [str(report), "-o", f"{folder}/page.html"],
        [str(report), "-o", f"{folder}/kernels.csv"],
        [str(report), "-o", f"{folder}/details.csv", "--as", "sections"],
        [str(report), "--format", "digest"],
        [str(report), "--format", "digest", "--against", str(report)],
    ],
    "compare": lambda report, folder: [
        [str(report), str(report)],
        [str(report), str(report), "--layers"],
        [str(report), "--with", "formulas", "--target", "gemm:64,64,64,fp32"],
    ],
}  # fmt: skip
"""What each command that takes a report is called with, of a report and a folder to write to."""
TAKE_NONE = {"profile", "bench", "estimate", "machines", "doctor", "mcp"}


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
def test_a_command_that_takes_a_report_works(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = made(tmp_path)
    if command == "compare":
        models_run_here(monkeypatch)
    for arguments in TAKE_REPORTS[command](report, tmp_path):
        done = ran(command, *arguments)
        assert done.exit_code == 0, (arguments, done.stderr)


@needs_shared_reports
@pytest.mark.parametrize("path", one_in(3, REAL), ids=lambda path: path.name)
def test_every_real_binary_report_is_read(path: Path, tmp_path: Path) -> None:
    output = tmp_path / "launches.parquet"
    for arguments in (
        ["parse", str(path), "-o", str(output)],
        ["hotspots", str(path)],
        ["parse", str(path), "--contents"],
    ):
        done = ran(*arguments)
        assert done.exit_code == 0, done.stderr
