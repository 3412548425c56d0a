"""What commands print for people, kept at several widths, so that whoever changes a line of it sees that."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import ROOT
from tests.support.called_here import called_here

FOLDER = ROOT / "tests" / "expectations" / "texts"
WIDTHS: Mapping[str, str | None] = {"80": "80", "100": "100", "160": "160", "pipe": None}
"""The name of a file of texts -> the COLUMNS that its commands have; a pipe without them has 120."""
COMMANDS = (
    "hotspots sample_reports/d01-wide-raw.csv",
    "hotspots sample_reports/d02-long-rules.csv --diagnose",
    "hotspots sample_reports/d02-long-rules.csv --rules",
    "hotspots sample_reports/d07-nv-nsight-cu-cli-2019.csv --sort headroom",
    "hotspots sample_reports/d14-kernel-failed.csv",
    "hotspots sample_reports/d18-text.txt",
    "hotspots sample_reports/h100/resnet18-raw-base.csv --units",
    "hotspots sample_reports/h100/resnet18-details.csv",
    "hotspots sample_reports/h100/gemms.csv --columns registers,occupancy,l1_hit --top 8",
    "hotspots sample_reports/h100 --top 8",
    "hotspots sample_reports/h100 --by report",
    "kernel sample_reports/h100/conflicts.ncu-rep",
    "kernel sample_reports/h100/conflicts.ncu-rep --explain bank-conflicts",
    "source sample_reports/h100/conflicts.ncu-rep --top 4",
    "kernel sample_reports/h100/starved-full.ncu-rep.gz --part balance",
    "roofline sample_reports/d01-wide-raw.csv",
    "compare sample_reports/d02-long-rules.csv sample_reports/d10-details-all.csv --fail-on time>5%",
    "compare sample_reports/d01-wide-raw.csv sample_reports/d02-long-rules.csv",
    "hotspots sample_reports/d01-wide-raw.csv --format markdown",
    "machines h100-sxm",
    "machines --metrics flops,dram --chip gh100",
)


def printed(columns: str | None) -> str:
    """All commands with what they print at a width, notes and errors behind the table."""
    blocks = []
    for command in COMMANDS:
        setting = {} if columns is None else {"COLUMNS": columns}
        found = called_here(*shlex.split(command), cwd=ROOT, environment={"PATH": "", "HOME": "/none", **setting})
        ending = "" if found.code == 0 else f"exit code {found.code}\n"
        blocks.append(f"$ ncu-bench {command}\n{found.out}{found.err}{ending}")
    return "\n".join(blocks)


def write() -> None:
    """Write the files anew."""
    FOLDER.mkdir(exist_ok=True)
    for name, columns in WIDTHS.items():
        (FOLDER / f"{name}.txt").write_text(printed(columns), "utf-8")


def file_of(name: str) -> Path:
    """The file of texts of a width."""
    return FOLDER / f"{name}.txt"
