"""Two parses at the same time into the same place: what is there afterwards is whole, and is one of the two."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ncu_parsers.parquet import read_launches

from tests.conftest import SAMPLES
from tests.test_cli import PROGRAM, PYTHONPATH

REPORTS = ("d01-wide-raw.csv", "d04-long-metrics.csv")


@pytest.mark.parametrize("same_report", [True, False], ids=["of one report", "of two reports"])
def test_leave_one_whole_file_and_nothing_else(tmp_path: Path, *, same_report: bool) -> None:
    output = tmp_path / "launches.parquet"
    reports = [REPORTS[0] if same_report else REPORTS[number % 2] for number in range(6)]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    running = [
        subprocess.Popen(
            [*PROGRAM, "parse", str(SAMPLES / report), "-o", str(output)],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )
        for report in reports
    ]  # fmt: skip
    for process in running:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said.decode()
    table = read_launches(output)
    (report,) = set(table.column("report").to_pylist())
    assert Path(report).name in reports
    assert len(table) == 8
    leftovers = {path.name for path in tmp_path.iterdir()} - {"launches.parquet", "kernels.parquet"}
    assert leftovers == set()
