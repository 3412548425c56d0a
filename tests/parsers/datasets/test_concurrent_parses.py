"""Concurrent parses into the same place leave complete files, each from one of the parses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ncu_parsers.datasets.dataset_layout import read_log
from ncu_parsers.parquet.reader import read_launches

from tests.conftest import SAMPLES
from tests.support.nightly import by_day
from tests.tools.cli.test_cli import PROGRAM, PYTHONPATH, process

pytestmark = pytest.mark.slow

REPORTS = ("d01-wide-raw.csv", "d04-long-metrics.csv")


def parsed_at_once(*pairs: tuple[str, Path]) -> None:
    """Parse each sample into its file, all concurrently; every one must succeed."""
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    running = [
        subprocess.Popen(
            [*PROGRAM, "parse", str(SAMPLES / report), "-o", str(output)],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )
        for report, output in pairs
    ]  # fmt: skip
    for one in running:
        _, said = one.communicate(timeout=120)
        assert one.returncode == 0, said.decode()


@pytest.mark.parametrize("same_report", by_day([False], [True, False]), ids=["of one report", "of two reports"])
def test_leave_one_complete_file_and_nothing_else(tmp_path: Path, *, same_report: bool) -> None:
    output = tmp_path / "launches.parquet"
    reports = [REPORTS[0] if same_report else REPORTS[number % 2] for number in range(6)]
    parsed_at_once(*((report, output) for report in reports))
    table = read_launches(output)
    (report,) = set(table.column("report").to_pylist())
    assert Path(report).name in reports
    assert len(table) == 8
    leftovers = {path.name for path in tmp_path.iterdir()} - {"launches.parquet", "kernels.parquet"}
    assert leftovers == set()


@pytest.mark.nightly
@pytest.mark.nightly
def test_into_two_files_of_one_folder_do_not_mix_their_kernels(tmp_path: Path) -> None:
    parsed_at_once(*((report, tmp_path / f"{report}.parquet") for report in REPORTS))
    for report in REPORTS:
        found = process("hotspots", str(tmp_path / f"{report}.parquet"), "--format", "json")
        alone = process("hotspots", str(SAMPLES / report), "--format", "json")
        assert json.loads(found.out)["rows"] == json.loads(alone.out)["rows"]


def test_into_one_dataset_all_are_recorded_in_the_log(tmp_path: Path) -> None:
    script = (
        "import sys; from ncu_parsers.parse.parse_dataset import parse_into_dataset; from ncu_parsers.sources.sources import Source\n"
        "for at in range(12): parse_into_dataset(sys.argv[1], [Source(f'/missing/{sys.argv[2]}-{at}.csv')], run='r')"
    )
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    running = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "fleet"), str(number)], env=environment)
        for number in range(4)
    ]
    assert [one.wait(timeout=120) for one in running] == [0] * 4
    log = read_log(tmp_path / "fleet" / "run=r" / "_log.jsonl")
    assert {Path(report).stem for report in log} == {f"{number}-{at}" for number in range(4) for at in range(12)}
    assert [one.name for one in (tmp_path / "fleet" / "run=r").iterdir()] == ["_log.jsonl"]
