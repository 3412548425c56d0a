"""The Python file, line and function that launched a kernel, from the stacks of PyTorch's profiler.

One trace is recorded here on the CPU; traces with GPU work are synthetic, or real ones of ../shared. `frame_locations`
makes the columns of what `python_frames` found.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.derived.operators.python_locations import NO_LOCATION, Location, location_in, location_titles
from ncu_parsers.launches.python_frames import PythonFrames
from ncu_parsers.report_data.report import Report
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import HostRanges, RangeLabel, columns_of

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.cli import cli
from ncu_tools.cli.tables.hotspots import locations
from ncu_tools.kernels.hotspots import WITHOUT_STACKS, hotspots
from ncu_tools.report.table import Column, Table
from tests.conftest import SHARED
from tests.parsers.derived.test_forward_operators import NODE, numbered
from tests.parsers.timelines.test_kineto import AUTOGRAD, GEMM, call, gpu, host, read, rows
from tests.support.installed import WITHOUT_TORCH
from tests.support.reports import needs_shared_reports
from tests.support.traces import read_report

NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        hidden = self.linear(x)

        return doubled(hidden)


def doubled(hidden):
    return hidden * 2


def step(net, x):
    net(x).sum().backward()
"""
PROGRAM = """
import net
import torch

model, x = net.Net(), torch.ones(4, 8)
cpu = [torch.profiler.ProfilerActivity.CPU]
with torch.profiler.profile(activities=cpu, record_shapes=True, with_stack=True) as profiler:
    net.step(model, x)
profiler.export_chrome_trace("trace.json")
"""
FORWARD, DOUBLED, STEP = (Location("net.py", NET.split("\n").index(text) + 1, name) for text, name in (
    ("    def forward(self, x):", "forward"), ("def doubled(hidden):", "doubled"), ("def step(net, x):", "step"),
))  # fmt: skip


def python(name: str, start: float, duration: float, thread: int = 100) -> dict[str, Any]:
    return host("python_function", name, start, duration, thread)


def location(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("python_file", "python_line", "python_function", "location_basis"))


def launched(correlation: int, start: float, thread: int = 100) -> list[dict[str, Any]]:
    return [call(correlation, start, thread), gpu("kernel", GEMM, start + 100, 10, correlation)]


# ------------------------------------------------------------------------------------------------- names of frames


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ("train.py(30): step", Location("train.py", 30, "step")),
        ("transformers/models/qwen2/modeling_qwen2.py(218): forward",
         Location("transformers/models/qwen2/modeling_qwen2.py", 218, "forward")),
        ("/opt/env/lib/python3.11/site-packages/timm/layers/mlp.py(12): forward",
         Location("timm/layers/mlp.py", 12, "forward")),
        ("C:\\models\\net (new).py(7): <lambda>", Location("C:/models/net (new).py", 7, "<lambda>")),
        ("torch/nn/modules/module.py(1782): _call_impl", None),
        ("/opt/env/lib/python3.11/site-packages/torch/nn/modules/linear.py(130): forward", None),
        ("/usr/lib/python3.11/threading.py(1045): _bootstrap_inner", None),
        ("threading.py(1045): _bootstrap_inner", None),
        ("/usr/lib/python3.11/statistics.py(5): mean", None),
        ("/var/cache/torchinductor_user/ab/cabc.py(60): call", None),
        (f"/data/compiled/ab/c{'abcdefghi' * 5}234567.py(60): call", None),
        ("vllm/model_executor/parameter.py(122): __torch_function__", None),
        ("<built-in method relu of type object at 0x7f0c8decea40>", None),
        ("<string>(1): <module>", None),
        ("nn.Module: Linear_0", None),
        ("", None),
    ],
)  # fmt: skip
def test_a_frame_is_a_location_unless_it_is_of_machinery(frame: str, expected: Location | None) -> None:
    assert location_in(frame) == expected


def test_a_location_reads_as_file_line_and_function() -> None:
    assert Location("net.py", 12, "forward").title == "net.py:12 (forward)"
    assert Location("net.py", None, "forward").title == "net.py (forward)"


# ------------------------------------------------------------------------------------------ a recording made here


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A forward and a backward pass of a small model, recorded with stacks by PyTorch's own profiler.

    Its process is its own: PyTorch looks once at the folders that it leaves out of paths.
    """
    pytest.importorskip("torch", reason=WITHOUT_TORCH)
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "net.py").write_text(NET)
    (folder / "program.py").write_text(PROGRAM)
    subprocess.run([sys.executable, "program.py"], cwd=folder, check=True, capture_output=True)
    return folder / "trace.json"


@pytest.mark.slow
def test_operators_have_the_function_of_the_model_that_called_them(recorded: Path) -> None:
    found = {row["kernel_name"]: location(row) for row in rows(read_report(Source(str(recorded))))
             if row["phase"] != "backward"}  # fmt: skip
    assert found["aten::addmm"] == (*FORWARD, "call stack")
    assert found["aten::mul"] == (*DOUBLED, "call stack")
    assert found["aten::sum"] == (*STEP, "call stack")


@pytest.mark.slow
def test_operators_of_the_backward_pass_have_the_location_of_their_forward_operator(recorded: Path) -> None:
    found = {row["kernel_name"]: location(row) for row in rows(read_report(Source(str(recorded))))
             if row["phase"] == "backward"}  # fmt: skip
    assert found["aten::mm"] == (*FORWARD, "forward operator")
    assert found["aten::mul"] == (*DOUBLED, "forward operator")
    assert found["MulBackward0"] == (*DOUBLED, "forward operator")


@pytest.mark.slow
def test_hotspots_by_location_has_a_row_per_place_with_its_kernels(recorded: Path) -> None:
    result = CliRunner().invoke(cli, ["hotspots", str(recorded), "--group", "location", "--format", "json"])
    table = json.loads(result.stdout)
    found = {row["kernel"]: row for row in table["rows"]}
    assert set(found) == {FORWARD.title, DOUBLED.title, STEP.title}
    assert sum(row["time_share"] for row in found.values()) == pytest.approx(1)
    operators = [row for row in rows(read_report(Source(str(recorded)))) if row["python_function"] == "doubled"]
    times: dict[str, float] = defaultdict(float)
    for row in operators:
        times[row["kernel_name"]] += row["duration_ns"]
    assert found[DOUBLED.title]["kernels"] == len(times)
    assert found[DOUBLED.title]["hottest_kernel"] == max(times, key=lambda name: times[name])
    assert found[DOUBLED.title]["time_total_ns"] == pytest.approx(sum(times.values()))
    assert any("of the time has a Python location" in note for note in table["notes"])


@pytest.mark.slow
def test_locations_are_kept_in_parquet(recorded: Path, tmp_path: Path) -> None:
    CliRunner().invoke(cli, ["parse", str(recorded), "-o", str(tmp_path / "launches.parquet")])
    arguments = ["--group", "location", "--format", "csv"]
    of_trace, of_parquet = (
        CliRunner().invoke(cli, ["hotspots", str(path), *arguments]).stdout
        for path in (recorded, tmp_path / "launches.parquet")
    )
    assert DOUBLED.title in of_parquet
    assert of_parquet == of_trace


# ----------------------------------------------------------------------------------------------------- nesting


def test_the_innermost_open_function_of_the_launching_thread_is_the_location(tmp_path: Path) -> None:
    events = [
        python("train.py(1): main", 0, 1000),
        python("net.py(5): forward", 100, 300),
        python("net.py(9): helper", 120, 20),  # has returned
        python("torch/nn/functional.py(7): relu", 150, 100),
        python("net.py(20): other", 150, 100, thread=200),
        *launched(1, 160),
        *launched(2, 130),
        *launched(3, 500),
        *launched(4, 5000),
        *launched(5, 160, thread=300),
    ]
    found = {row["launch_id"]: location(row)[:3] for row in rows(read(tmp_path, events))}
    assert found[1] == ("net.py", 5, "forward")
    assert found[2] == ("net.py", 9, "helper")
    assert found[3] == ("train.py", 1, "main")
    assert found[4] == (None, None, None)
    assert found[5] == (None, None, None)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12), st.lists(st.integers(0, 70)))
def test_the_innermost_frame_is_the_last_to_begin_of_those_that_are_open(
    spans: list[tuple[int, int]], moments: list[int]
) -> None:
    nested = [one for one in spans if one[0] <= one[1] and all(
        other[1] <= one[0] or one[1] <= other[0] or (other[0] <= one[0] and one[1] <= other[1])
        or (one[0] <= other[0] and other[1] <= one[1]) for other in spans if other[0] <= other[1])]  # fmt: skip
    distinct = sorted({one for one in nested if one[0] < one[1]})
    times = np.array(distinct, np.int64).reshape(-1, 2)
    labels = [RangeLabel(activity.PYTHON, f"net.py({start}): f{end}") for start, end in distinct]
    columns = {
        "label": np.arange(len(times)),
        "owner": np.zeros(len(times), np.int8),
        "start": 2 * times[:, 0],
        "end": 2 * times[:, 1],
    }
    frames = PythonFrames(columns_of(HostRanges, {**columns, "labels": labels, "owners": [(1, 1)]}).by_start())
    asked = [2 * moment + 1 for moment in moments]  # never the instant in which a frame begins or ends
    places = frames.innermost(np.zeros(len(asked), np.int64), np.array(asked, np.int64))
    for moment, found in zip(asked, places.tolist(), strict=True):
        around = [one for one in distinct if 2 * one[0] <= moment <= 2 * one[1]]
        innermost = max(around, key=lambda one: (one[0], -one[1])) if around else None
        expected = None if innermost is None else Location("net.py", innermost[0], f"f{innermost[1]}")
        assert frames.location(found) == expected


# --------------------------------------------------------------------------------------------------- backward pass


def backward_pass(*within: dict[str, Any]) -> list[dict[str, Any]]:
    """A product called in net.py, whose backward node runs on autograd's own thread."""
    return [
        python("train.py(1): main", 0, 1000),
        python("net.py(5): forward", 100, 100),
        numbered(host("cpu_op", "aten::mm", 110, 50), 7),
        *launched(1, 120),
        numbered(host("cpu_op", f"{NODE}: MmBackward0", 500, 100, AUTOGRAD), 7, 1),
        *within,
        *launched(2, 550, AUTOGRAD),
    ]


def test_a_kernel_of_the_backward_pass_has_the_line_of_its_forward_operator(tmp_path: Path) -> None:
    found = {row["launch_id"]: location(row) for row in rows(read(tmp_path, backward_pass()))}
    assert found == {1: ("net.py", 5, "forward", "call stack"), 2: ("net.py", 5, "forward", "forward operator")}


def test_python_that_runs_in_the_backward_pass_is_where_its_kernels_are(tmp_path: Path) -> None:
    events = backward_pass(python("custom.py(40): backward", 520, 60, AUTOGRAD))
    found = {row["launch_id"]: location(row) for row in rows(read(tmp_path, events))}
    assert found[2] == ("custom.py", 40, "backward", "call stack")


def test_a_backward_node_whose_number_two_threads_used_has_the_stack_of_its_own_thread_or_none(tmp_path: Path) -> None:
    other = [python("other.py(3): forward", 100, 100, 300), numbered(host("cpu_op", "aten::mm", 110, 50, 300), 7)]
    found = {row["launch_id"]: location(row) for row in rows(read(tmp_path, [*backward_pass(), *other]))}
    assert found[2] == (None, None, None, None)
    stack = [python("train.py(9): step", 400, 400, AUTOGRAD)]
    found = {row["launch_id"]: location(row) for row in rows(read(tmp_path, [*backward_pass(), *other, *stack]))}
    assert found[2] == ("train.py", 9, "step", "call stack")


# ------------------------------------------------------------------------------------------------- on a terminal


@pytest.mark.parametrize(
    ("titles", "shown"),
    [
        (["models/qwen2/net.py:5 (forward)", "train.py:9 (step)"], ["…/net.py:5 (forward)", "train.py:9 (step)"]),
        (["a/net.py:5 (forward)", "b/net.py:5 (forward)"], ["a/net.py:5 (forward)", "b/net.py:5 (forward)"]),
        (["m/net.py:5, 6 (forward), m/top.py:1 (f)"], ["…/net.py:5, 6 (forward), …/top.py:1 (f)"]),
        ([NO_LOCATION], [NO_LOCATION]),
    ],
)
def test_a_terminal_shows_files_without_folders_where_that_tells_rows_apart(
    titles: list[str], shown: list[str]
) -> None:
    table = Table("hotspots", [Column("kernel", "location")], [{"kernel": title} for title in titles])
    assert [row["kernel"] for row in locations.with_short_paths(table, 80).rows] == shown
    assert locations.with_short_paths(table, None) is table


# ------------------------------------------------------------------------------------------------- without stacks


def test_a_trace_without_stacks_has_no_location_and_a_note_says_how_to_record_them(tmp_path: Path) -> None:
    report = read(tmp_path, [host("cpu_op", "aten::mm", 100, 50), *launched(1, 120)])
    assert report.table is not None
    assert "python_file" not in report.table.column_names
    places, titles = location_titles(report.table)
    assert [titles[place] for place in places] == [NO_LOCATION]
    result = hotspots(report.table, ceilings_of(report.table), group="location")
    assert [row.kernel for row in result.rows] == [NO_LOCATION]
    assert WITHOUT_STACKS in result.notes
    assert "with_stack=True" in WITHOUT_STACKS


def test_another_grouping_says_nothing_of_locations(tmp_path: Path) -> None:
    report = read(tmp_path, backward_pass())
    assert report.table is not None
    result = hotspots(report.table, ceilings_of(report.table))
    assert not any("location" in note for note in result.notes)
    assert {row.kernels for row in result.rows} == {None}


# ---------------------------------------------------------------------------------------------------- real traces


def share_by_place(report: Report) -> dict[str, float]:
    table = report.table
    assert table is not None
    return {row.kernel: row.time_share or 0.0 for row in hotspots(table, ceilings_of(table), group="location").rows}


@needs_shared_reports
@pytest.mark.parametrize(
    ("name", "place", "share", "without"),
    [
        ("AMD-AGI__TraceLens__b200__eager_trace.json.gz", "vllm/v1/worker/gpu_model_runner.py:2907 (execute_model)",
         0.0005, 0.0),
        ("AMD-AGI__TraceLens__h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
         "transformers/models/qwen2/modeling_qwen2.py:56 (forward)", 0.176, 0.301),
        ("AMD-AGI__TraceLens__inference__vllm_decode_full__graph_execution.json.gz",
         "vllm/compilation/cuda_graph.py:208 (__call__)", 0.969, 0.0),
    ],
)  # fmt: skip
def test_real_traces_with_stacks_name_the_lines_of_the_model(
    name: str, place: str, share: float, without: float
) -> None:
    shares = share_by_place(read_report(Source(str(SHARED / "reports" / "kineto" / name))))
    assert shares[place] == pytest.approx(share, abs=1e-3)
    assert shares.get(NO_LOCATION, 0.0) == pytest.approx(without, abs=1e-3)
    assert not any(title.startswith(("torch/", "triton/", "<")) for title in shares)
