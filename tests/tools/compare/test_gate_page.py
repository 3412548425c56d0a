"""The example of docs/gate.md is what the commands print for two reports written here."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.ran import ran

PAGE = (ROOT / "docs" / "gate.md").read_text("utf-8")
COLUMNS = (
    "ID",
    "Process ID",
    "Kernel Name",
    "Block Size",
    "Grid Size",
    "CC",
    "gpu__time_duration.sum",
    "dram__bytes.sum",
)
UNITS = ("", "", "", "", "", "", "us", "Mbyte")
NORM, SILU = "(float const*, float*, int)", "silu_kernel(float*, int)"
BEFORE = [
    *((f"rms_norm_v1{NORM}", 256, 8192, us, 134.3) for us in (98.2, 98.6, 98.4)),
    *((SILU, 256, 65536, us, 517.1) for us in (284.7, 284.3, 284.6)),
]
AFTER = [
    *((f"rms_norm_float4{NORM}", 128, 2048, us, 134.2) for us in (61.3, 61.5, 61.4)),
    *((SILU, 256, 65536, us, 517.1) for us in (283.9, 284.8, 284.2, 284.4)),
]


@pytest.fixture(autouse=True)
def _reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, launches in (("before.csv", BEFORE), ("after.csv", AFTER)):
        with Path(name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, quoting=csv.QUOTE_ALL)
            writer.writerows([COLUMNS, UNITS])
            for number, (kernel, block, grid, us, megabytes) in enumerate(launches):
                writer.writerow([number, 1, kernel, f"({block}, 1, 1)", f"({grid}, 1, 1)", "9.0", us, megabytes])


def indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def test_the_tables_are_those_of_a_terminal_of_114_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("options", "comparing.compare"):
        monkeypatch.setattr(f"ncu_tools.cli.{module}.terminal_width", lambda: 114)
    found = ran(
        "compare", "before.csv", "after.csv", "--fail-on", "kernel:rms_norm:time>5%", "--fail-on", "launches>0%"
    )
    assert found.exit_code == 3
    assert indented(found.stdout) in PAGE


def test_the_notes_and_the_refusal_are_those_of_the_command() -> None:
    found = ran("compare", "before.csv", "after.csv", "--fail-on", "time>5%", "--wide")
    assert found.exit_code == 2
    for line in found.stderr.splitlines():
        assert line.replace(" ", "") in PAGE.replace("\n", "").replace(" ", ""), line
