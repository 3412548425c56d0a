"""Every report of other people begins with the line that names it, at any width and in a pipe, and has a few notes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata
from rich.cells import cell_len

from tests.conftest import SAMPLES
from tests.support.launches import launch, metric, sass, table
from tests.support.nightly import by_day, one_in
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports, shared_reports

FOLDERS = ("ncu_csv", "ncu_rep", "ncu_rep_full", "nsys", "kineto", "other")
EVERY = [path for folder in FOLDERS for path in shared_reports(folder)]
RAW = str(SAMPLES / "d01-wide-raw.csv")
COMMANDS = ("hotspots", "timeline", "kernel")


def begins_with(line: str, name: str) -> bool:
    """Whether a line begins with a name, perhaps cut in its middle."""
    start, _, end = line.partition(":")[0].partition("…")
    return name == start or (name.startswith(start) and name.endswith(end) and len(end) > 3)


@needs_shared_reports
@pytest.mark.slow
@pytest.mark.parametrize("width", by_day(["80"], ["", "80", "100", "160"]))
@pytest.mark.parametrize("path", one_in(6, EVERY), ids=lambda path: path.name[-40:])
def test_the_first_line_names_the_report_and_notes_are_few(
    path: Path, width: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    answered = 0
    for command in COMMANDS:
        found = ran(command, str(path))
        if found.exit_code:  # refused, or another command's report
            continue
        answered += 1
        line, *more = found.stdout.splitlines()
        assert begins_with(line, path.name), line
        assert cell_len(line) <= int(width or 120)
        assert not any(one.startswith(path.name) for one in more)
        notes = [one for one in found.stderr.splitlines() if one.startswith("note: ")]
        assert len(notes) == len(set(notes)) <= 5
        assert not any("no room in" in one or "GPU was busy" in one for one in notes)
    assert answered or ran("hotspots", str(path)).exit_code


def test_json_has_the_same_head_and_csv_none() -> None:
    head = json.loads(ran("hotspots", RAW, "--format", "json").stdout)["head"]
    assert (head["runs"], head["launches"], head["devices"]) == ([RAW], 8, ["NVIDIA A100-PCIE-40GB"])
    assert head["first"] in " ".join(ran("hotspots", RAW).stdout.split())
    assert ran("hotspots", RAW, "--format", "csv").stdout.startswith("kernel,")


def test_markdown_has_the_line_above_the_table() -> None:
    line, empty, first, *_ = ran("hotspots", RAW, "--format", "markdown").stdout.splitlines()
    assert line.startswith("d01-wide-raw.csv: NVIDIA A100-PCIE-40GB, 8 launches")
    assert (empty, first[:7]) == ("", "first: ")


def test_compare_has_a_line_for_each_run(tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_bytes(Path(RAW).read_bytes())
    lines = ran("compare", RAW, str(other)).stdout.splitlines()
    assert [line.partition(":")[0] for line in lines[:2]] == ["d01-wide-raw.csv", "other.csv"]
    heads = json.loads(ran("compare", RAW, str(other), "--format", "json").stdout)["heads"]
    assert [head["launches"] for head in heads] == [8, 8]


def test_a_roofline_in_a_pipe_has_its_roofs_in_a_table_below_the_points() -> None:
    found = ran("roofline", RAW)
    head, points, roofs = found.stdout.split("\n\n")
    assert head.startswith("d01-wide-raw.csv: ")
    assert points.split()[0] == "kernel"
    assert roofs.split()[:2] == ["roof", "rate"]
    assert "TB/s" in roofs
    assert "ridge" not in found.stderr


def test_the_first_line_of_a_roofline_of_launches_names_the_longest_as_its_table_does() -> None:
    said = ran("roofline", RAW, "--points", "launches").stdout.splitlines()
    assert said[1].startswith("first: gemm bf16 128x256x32 tn #")
    assert said[1].removeprefix("first: ").split(" takes")[0] in "\n".join(said[3:])


def test_a_roofline_lists_the_roof_that_bounds_a_kernel_whose_flops_are_mostly_of_another_unit(tmp_path: Path) -> None:
    gpu = {
        "device__attribute_display_name": metric("NVIDIA GeForce RTX 4090"),
        "sm__inst_executed_pipe_tensor.sum": metric(0.0),
    }
    rows = table(launch("k", sass(ffma=1e10, dfma=5e8) | gpu, ns=1e6, dram=1e8, capability="8.9"))
    write_table(with_metadata(rows, {"schema_version": SCHEMA_VERSION}), tmp_path / "run.parquet")
    roofs = ran("roofline", str(tmp_path / "run.parquet")).stdout.split("\n\n")[-1]
    assert re.search(r"^ *FP64 +1\.29 TFLOP/s", roofs, re.MULTILINE)
    known = json.loads(ran("roofline", str(tmp_path / "run.parquet"), "--format", "json").stdout)["ceilings"]
    assert {one["unit"]: one["drawn"] for one in known} == {"dram": True, "fp32": True, "fp64": False}


def test_a_roofline_with_dozens_of_roofs_lists_those_that_bound_kernels_and_counts_the_others() -> None:
    runs = [str(SAMPLES / "h100" / name) for name in ("resnet18-raw-base.csv", "gemms.csv")]
    found = ran("roofline", *runs, "--notes")
    roofs = found.stdout.split("\n\n")[-1]
    assert "tensor BF16 wgmma" in roofs
    assert "sparse" not in roofs
    of_integers = roofs.count("tensor INT8")
    assert of_integers, "the roof of int8 products, which the picture does not draw, is listed"
    known = json.loads(ran("roofline", *runs, "--format", "json").stdout)["ceilings"]
    more = sum(not one["drawn"] for one in known) - of_integers
    assert more > 20
    assert f"{more} more roofs bound nothing here" in found.stderr


@pytest.mark.parametrize("view", [[], ["--mix"], ["--rules"]])
@pytest.mark.parametrize("again", ["-", "here", "./here", "linked"])
def test_a_run_that_is_named_twice_is_refused_as_its_launches_would_count_twice(
    view: list[str], again: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").write_bytes(Path(RAW).read_bytes())
    (tmp_path / "linked").symlink_to("here")
    monkeypatch.chdir(tmp_path)
    found = ran("hotspots", "-" if again == "-" else "here", again, *view)
    assert (found.exit_code, f"{again} is named twice" in found.stderr) == (2, True)
    assert ran("hotspots", "here", RAW, *view).exit_code == 0
