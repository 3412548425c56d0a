"""Much at once, at a tenth of the size of `python -m benchmarks.load`: every command ends within its memory limit."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT

MOST_MEGABYTES = 2048
"""The default memory limit of reading."""


@pytest.mark.nightly
@pytest.mark.parametrize("case", ["metrics", "launches", "reports"])
def test_each_command_takes_much_at_once_within_its_memory(case: str) -> None:
    command = [sys.executable, "-m", "benchmarks.load", "--only", case, "--scale", "0.1"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    rows = [line.strip("| ").split(" | ") for line in run.stdout.splitlines()[2:]]
    assert [row[2] for row in rows] == ["parse", "hotspots", "roofline", "report"]
    assert {row[2]: row[4] for row in rows if float(row[4]) > MOST_MEGABYTES} == {}
