"""Runs that no author had in mind: empty, of many launches, with names that are HTML, lines or options, in odd folders."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.advice.advise import advise
from ncu_tools.runs.loading import load
from tests.conftest import SAMPLES
from tests.support.called_here import called_here
from tests.support.launches import launch, metric, table

CONFLICTS = SAMPLES / "h100" / "conflicts.ncu-rep"
RULES, GEMMS = SAMPLES / "d02-long-rules.csv", SAMPLES / "h100" / "gemms.csv"
COUNTED = {
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": metric(45.0, "%"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": metric(45.0, "%"),
    "sm__maximum_warps_per_active_cycle_pct": metric(50.0, "%"),
    "launch__waves_per_multiprocessor": metric(50.0),
}
ODD = (
    "<script>alert(1)</script>",
    "a\nb\x1b[31mred",
    "x|y",
    "'; rm -rf /",
    "--help",
    "(((",
    "  ",
    "gemm",
    "gemm_2",
    "k" * 500,
)


def written(folder: Path, names: Sequence[str], launches: int = 1) -> str:
    """A run of kernels with these names, as `parse` would have written it."""
    made = table(*(launch(name, COUNTED, ns=1e5 + place) for place, name in enumerate([*names, "left out"])))
    folder.mkdir(parents=True)
    places = pa.array([place for place in range(len(names)) for _ in range(launches)], pa.int64())
    kept = made.take(places)
    write_table(with_metadata(kept, {"schema_version": SCHEMA_VERSION}), folder / "launches.parquet")
    return str(folder)


def rows(run: str, *options: str, here: Path) -> list[dict[str, Any]]:
    found = called_here("advise", run, *options, "--format", "json", cwd=here)
    assert found.code == 0, found.err
    result: list[dict[str, Any]] = json.loads(found.out)["rows"]
    return result


def test_every_command_for_a_kernel_of_an_odd_name_in_a_folder_with_a_blank_runs_and_is_of_that_kernel(
    tmp_path: Path,
) -> None:
    run = written(tmp_path / "a b", ODD)
    commands = {row["command"]: row["kernel"] for row in rows(run, here=tmp_path) if row["command"]}
    kernels = {command: name for command, name in commands.items() if command.startswith("ncu-bench kernel ")}
    assert set(kernels.values()) == set(ODD)
    for command, name in kernels.items():
        found = called_here(*shlex.split(command)[1:], "--format", "json", cwd=tmp_path)
        assert found.code == 0, f"{command}: {found.err}"
        assert json.loads(found.out)["kernel"] == name


def test_a_command_for_one_of_several_kernels_that_a_word_finds_names_it_by_its_key(tmp_path: Path) -> None:
    run = written(tmp_path / "run", ("gemm", "gemm_2"))
    commands = {row["command"] for row in rows(run, here=tmp_path) if row["kernel"] == "gemm" and row["command"]}
    assert all(re.search(r"--id k[0-9a-f]{10}|hotspots \S+$", command) for command in commands)
    chosen = rows(run, "--kernel", "gemm_2", here=tmp_path)
    assert all("--id k" in row["command"] for row in chosen if row["lever"] == "occupancy")


@pytest.mark.parametrize(
    "report",
    [pytest.param(CONFLICTS, marks=pytest.mark.slow), RULES, pytest.param(GEMMS, marks=pytest.mark.nightly)],
    ids=lambda path: path.name,
)
def test_every_command_of_a_report_runs_as_it_is_printed(report: Path, tmp_path: Path) -> None:
    run = tmp_path / "my reports" / report.name
    run.parent.mkdir()
    shutil.copy(report, run)
    commands = {row["command"] for row in rows(str(run), here=tmp_path) if row["command"] and not row["nothing"]}
    assert commands
    failed = [one for one in commands if called_here(*shlex.split(one)[1:], cwd=tmp_path).code != 0]
    assert failed == []


def test_evidence_names_only_metrics_and_columns_that_the_report_has() -> None:
    for report in (CONFLICTS, RULES, GEMMS):
        launches = load(str(report)).table
        there = set(launches.column_names)
        named = {
            metric_of
            for one in advise(launches).kernels
            for lever in one.levers
            for each in lever.evidence
            for metric_of in each.metrics
            if "*" not in metric_of and not metric_of.startswith("NVIDIA's rule")
        }
        assert named <= there, report.name


def test_a_run_whose_times_were_not_collected_says_what_collects_them(tmp_path: Path) -> None:
    page = (
        "  add(float *) (4, 1, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.9\n"
        "    Section: Command line profiler metrics\n"
        "    ------------------------------- ----------- ------------\n"
        "    Metric Name                     Metric Unit Metric Value\n"
        "    ------------------------------- ----------- ------------\n"
        "    launch__occupancy_limit_warps         block            6\n"
        "    ------------------------------- ----------- ------------\n"
    )
    (tmp_path / "page.txt").write_text(page)
    found = called_here("advise", "page.txt", cwd=tmp_path)
    assert found.code == 0
    assert "--metrics gpu__time_duration.sum" in found.out


def test_an_empty_run_says_so_and_has_no_rows_and_is_nothing_to_compare_with(tmp_path: Path) -> None:
    run = written(tmp_path / "empty", ())
    assert "No launch ran" in called_here("advise", run, cwd=tmp_path).out
    assert rows(run, here=tmp_path) == []
    found = called_here("advise", run, "--against", run, cwd=tmp_path)
    assert found.code == 1
    assert "no launch that ran" in found.err


def test_ten_thousand_launches_of_a_kernel_are_one_lever_each_with_the_time_of_all(tmp_path: Path) -> None:
    found = rows(written(tmp_path / "many", ("k",), 10_000), here=tmp_path)
    levers = [row["lever"] for row in found if row["lever"]]
    assert len(levers) == len(set(levers))
    assert {row["launches"] for row in found} == {10_000}
    first = found[0]
    assert first["saves_ns"] == pytest.approx(first["saves_share"] * 10_000 * first["kernel_time_ns"])


def test_names_bring_no_control_characters_html_or_lines_into_text_and_markdown(tmp_path: Path) -> None:
    run = written(tmp_path / "run", ODD)
    for words in (("advise", run, "--top", "99"), ("hotspots", run, "--diagnose"), ("advise", run, "--against", run)):
        out = called_here(*words, cwd=tmp_path).out
        assert "\x1b" not in out
        assert not any("k" * 101 in line for line in out.splitlines() if "ncu-bench" not in line)
    markdown = called_here("advise", run, "--top", "99", "--format", "markdown", cwd=tmp_path).out
    assert re.search(r"(?<!\\)<script", markdown) is None
