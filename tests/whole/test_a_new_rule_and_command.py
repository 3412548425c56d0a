"""A cause of `--diagnose` is two files and a row of the docs, a command its file and its line: each is made in a copy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import SAMPLES
from tests.support.changed_copy import ChangedCopy, assert_names_exactly

pytestmark = pytest.mark.slow

REPORT = str(SAMPLES / "h100" / "conflicts.ncu-rep")
DIAGNOSIS = "ncu_tools/kernels/diagnosis"
COUNTED = '\n    "toy": (("lts__t_sector_hit_rate.pct", PER_CENT),),'
DERIVED = '\n        "toy": known.get("registers", math.nan) / 255,'
QUANTITY = """
[quantity.toy]
title = "the toy's share"
unit = "fraction"
metrics = ["lts__t_sector_hit_rate.pct", "launch__registers_per_thread"]
"""
RULE = """
[[rule]]
id = "toy"
label = "toy"
when = { toy = { above = 0 } }
costs = "toy"
evidence = ["toy"]
says = "toy: a share of {toy:.0%}"
source = "this test"
"""
COMMAND = '''"""ncu-bench toy: how many launches a run has."""

from __future__ import annotations

import click

from ncu_tools.cli.options import format_option, show
from ncu_tools.report.table import Column, Table


@click.command()
@click.argument("run")
@format_option
def command(run: str, output_format: str) -> None:
    """Count the launches of a run."""
    from ncu_tools.runs.loading import load

    show(Table("toy", [Column("launches", "launches", "count")], [{"launches": len(load(run).table)}], []), output_format)
'''


@pytest.mark.parametrize(
    ("file", "behind", "line"),
    [("sums.py", "MEANS: dict[str, tuple[tuple[str, float], ...]] = {", COUNTED),
     pytest.param("derived.py", "    return {\n        \"unused_load_bytes\": loads,", DERIVED, marks=pytest.mark.nightly)],
    ids=["of a metric", "of other quantities"],
)  # fmt: skip
def test_a_rule_with_its_quantity_is_two_files_and_names_a_cause_with_its_cost(
    tmp_path: Path, file: str, behind: str, line: str
) -> None:
    copy = ChangedCopy(tmp_path)
    copy.add(f"{DIAGNOSIS}/rules.toml", QUANTITY + RULE)
    copy.insert(f"{DIAGNOSIS}/{file}", behind, line)
    found = json.loads(copy.printed("hotspots", REPORT, "--diagnose", "--format", "json"))["diagnoses"]
    toys = [cause for one in found for cause in one["causes"] if cause["rule"] == "toy"]
    assert toys
    assert all(0 < toy["cost"] <= 1 for toy in toys)
    assert all(toy["evidence"][0]["quantity"] == "toy" for toy in toys)
    assert "toy: a share of" in copy.printed("kernel", REPORT)
    assert "toy" in copy.printed("kernel", REPORT, "--explain", "toy")
    assert_names_exactly("a cause that `--diagnose` names", copy, instead={"sums.py", "derived.py"} - {file})


def test_a_command_is_its_file_and_its_line(tmp_path: Path) -> None:
    copy = ChangedCopy(tmp_path)
    copy.add("ncu_tools/cli/reading/toy.py", COMMAND)
    copy.insert("ncu_tools/cli/__init__.py", "COMMANDS = {", '\n    "toy": "How many launches a run has.",')
    assert json.loads(copy.printed("toy", REPORT, "--format", "json"))["rows"] == [{"launches": 1}]
    assert "How many launches a run has." in copy.printed("--help")
    assert "--memory-limit" in copy.printed("toy", "--help")
    assert_names_exactly("a command", copy)
