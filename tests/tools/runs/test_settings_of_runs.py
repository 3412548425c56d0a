"""Settings go down with the data: what is read in one thread or process does not depend on what another one asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from ncu_launch.errors import WrongUsage
from ncu_parsers.datasets.process_engine import child_processes
from ncu_parsers.parquet.reader import read_launches
from ncu_parsers.parse.parse_dataset import parse_into_dataset
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.sources.memory import SETTING, limit, limited_to
from ncu_parsers.sources.reading_ahead import one_ahead
from ncu_parsers.sources.settings import Settings

import ncu_tools
from ncu_tools.runs import loading
from ncu_tools.runs.run import Run
from tests.parsers.derived.test_inductor_sources import KERNEL, graph_folder, trace_with
from tests.parsers.timelines.test_graph_captures import capture_of_two_products, replay
from tests.parsers.timelines.test_kineto import A100, call, gpu
from tests.parsers.timelines.test_work_of_traces import operator


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace of one kernel, which an operator of the user's own launched."""
    own = operator("mylib::op", 0, 50, [[4]], ["float"], [""])
    path = tmp_path / "trace.json"
    path.write_text(
        json.dumps({"deviceProperties": [A100], "traceEvents": [own, call(1, 10), gpu("kernel", "k", 100, 5, 1)]})
    )
    return path


def formulas(folder: Path, flops: int) -> Path:
    path = folder / f"{flops}.toml"
    path.write_text(f'["mylib::op"]\narguments = ["x"]\nflops = "{flops} * prod(x)"\n')
    return path


def together(one: Callable[[], Any], other: Callable[[], Any]) -> list[Any]:
    """What two functions return that run in two threads at once."""
    begin = Barrier(2)

    def run(function: Callable[[], Any]) -> Any:
        begin.wait()
        return function()

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(run, (one, other)))


def flops_of(run: Run) -> list[float | None]:
    found: list[float | None] = run.table["flops"].to_pylist()
    return found


def test_two_threads_read_one_trace_with_formulas_of_their_own(trace: Path) -> None:
    files = [formulas(trace.parent, flops) for flops in (2, 3)]
    runs = together(*(lambda file=file: loading.load(str(trace), settings=Settings(str(file))) for file in files))
    assert [flops_of(run) for run in runs] == [[8], [12]]
    assert flops_of(loading.load(str(trace))) == [None]


def test_two_threads_of_a_notebook_differ_in_what_they_name_beside_a_run(tmp_path: Path) -> None:
    capture, trace = tmp_path / "capture.json", tmp_path / "trace.json"
    capture.write_text(json.dumps({"traceEvents": capture_of_two_products()}))
    trace.write_text(json.dumps({"deviceProperties": [A100], "traceEvents": replay("gemm", "gemm", "copy")}))
    with_capture, without = together(lambda: ncu_tools.load(trace, capture=capture), lambda: ncu_tools.load(trace))
    assert [any("have the operators of" in note for note in run.notes) for run in (with_capture, without)] == [
        True,
        False,
    ]


def test_a_loaded_run_has_the_lines_of_generated_kernels(tmp_path: Path) -> None:
    trace, debug = trace_with(tmp_path, KERNEL), graph_folder(tmp_path / "debug")
    rows = ncu_tools.load(trace, inductor=debug).hotspots(group="location").table
    assert list(rows["kernel"]) == ["models/net.py:10 (forward), train.py:21 (step)"]


def test_what_is_asked_of_a_loaded_run_is_checked(trace: Path) -> None:
    with pytest.raises(WrongUsage, match="no limit for memory"):
        ncu_tools.load(trace, memory_limit="3")
    with pytest.raises(WrongUsage, match="cannot be read as a file of formulas"):
        ncu_tools.load(trace, formulas=trace.with_name("none"))


class TestTheMemoryLimit:
    def test_differs_between_threads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(SETTING, raising=False)

        def limited(size: str) -> int:
            with limited_to(size):
                return limit()

        assert together(lambda: limited("1GB"), lambda: limited("3GB")) == [1e9, 3e9]
        assert limit() == 2e9

    def test_holds_where_the_next_part_is_read_ahead(self) -> None:
        with limited_to("1GB"):
            assert set(one_ahead(limit() for _ in range(3))) == {1e9}


def test_a_big_trace_is_not_taken_from_the_cache_of_other_formulas(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(trace.parent / "cache"))
    monkeypatch.setattr(loading, "CACHED_FROM_BYTES", 0)
    monkeypatch.setattr("ncu_parsers.parse.parse.STREAMED_FROM_BYTES", 0)
    two, three = (formulas(trace.parent, flops) for flops in (2, 3))
    asked = (Settings(), Settings(str(two)), Settings(str(three)), Settings(str(two)), Settings())
    found = [flops_of(loading.load(str(trace), settings=one)) for one in asked]
    assert found == [[None], [8], [12], [8], [None]]
    assert len(list((trace.parent / "cache").rglob("*.parquet"))) == 3


@pytest.mark.slow
def test_processes_that_share_the_work_read_with_the_same_formulas(trace: Path) -> None:
    other = trace.with_name("other.json")
    other.write_bytes(trace.read_bytes())
    sources = find_sources([str(trace), str(other)], Settings(str(formulas(trace.parent, 2))))
    with child_processes(2) as engine:
        parse_into_dataset(str(trace.parent / "dataset"), sources, engine=engine)
    files = (trace.parent / "dataset").rglob("launches.parquet")
    assert [read_launches(file)["flops"].to_pylist() for file in files] == [[8], [8]]
