"""Kernels of CUDA graphs: ranges around the launch, and ranges in which the graph was captured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ncu_parsers.launches.nsys.cuda_graphs import GraphNodes
from ncu_parsers.launches.nsys.launch_table import CAPTURED_IN
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.nsys.database import MISSING, opened

from tests.support.installed import WITHOUT_TORCH
from tests.support.timelines import (
    CALLS,
    KERNELS,
    NODES,
    PROCESS,
    RANGES,
    Row,
    call,
    database,
    domain,
    global_id,
    kernel,
    node_made,
    pushed,
    read,
)  # fmt: skip

LAUNCHED_AT = 1000


def replayed(tmp_path: Path, nodes: list[Row], *, ranges: list[Row], kernels: list[Row] | None = None) -> Any:
    """The report and table rows of a timeline in which a call launches a graph whose node 21 is a kernel."""
    tables = {
        KERNELS: kernels or [kernel(LAUNCHED_AT + 5, 1, graphNodeId=21)],
        CALLS: [call(LAUNCHED_AT, 1), call(LAUNCHED_AT, 1, process=8, thread=8)],
        NODES: nodes, RANGES: [pushed("replay", LAUNCHED_AT - 1, LAUNCHED_AT + 1), *ranges],
    }  # fmt: skip
    report = read(database(tmp_path / "t.sqlite", tables))
    assert report.table is not None
    return report, report.table.to_pylist()


CAPTURE = [pushed("capture", 0, 100), pushed("layer 1", 10, 20), pushed("instantiate", 200, 300)]


def test_a_kernel_of_a_graph_has_the_ranges_of_its_launch_and_of_its_capture(tmp_path: Path) -> None:
    nodes = [node_made(11, 15), node_made(21, 250, copy_of=11)]
    report, (row,) = replayed(tmp_path, nodes, ranges=CAPTURE)
    assert (row["nvtx_path"], row[CAPTURED_IN]) == (["replay"], ["capture", "layer 1"])
    assert any("of 1 the ranges of the capture are known too" in note for note in report.notes)


def test_copies_of_copies_lead_back_to_the_capture(tmp_path: Path) -> None:
    nodes = [node_made(11, 15), node_made(12, 50, copy_of=11), node_made(21, 250), node_made(21, 251, copy_of=12)]
    _, (row,) = replayed(tmp_path, nodes, ranges=CAPTURE)
    assert row[CAPTURED_IN] == ["capture", "layer 1"]


def test_phase_and_module_come_from_the_capture_and_the_iteration_from_the_launch(tmp_path: Path) -> None:
    inside = [(LAUNCHED_AT - 1, LAUNCHED_AT + 1, "iteration 3")]
    inside += [(0, 100, "iteration 0"), (5, 30, "forward"), (10, 20, "resnet18.layer1")]
    ranges = [domain("ncu_bench", 2), *(pushed(name, start, end, domain=2) for start, end, name in inside)]
    eager = kernel(LAUNCHED_AT + 90, 1)
    kernels = [kernel(LAUNCHED_AT + 5, 1, graphNodeId=21), eager]
    nodes = [node_made(11, 15), node_made(21, 250, copy_of=11)]
    _, (row, other) = replayed(tmp_path, nodes, ranges=ranges, kernels=kernels)
    assert (row["phase"], row["module"], row["iteration"]) == ("forward", "resnet18.layer1", 3)
    assert (other["phase"], other["module"], other["iteration"], other[CAPTURED_IN]) == (None, None, 3, None)


def test_equal_numbers_of_two_processes_are_two_nodes(tmp_path: Path) -> None:
    nodes = [
        node_made(11, 15), node_made(21, 30, copy_of=11),
        node_made(11, 15, process=8, thread=8), node_made(21, 30, copy_of=11, process=8, thread=8),
    ]  # fmt: skip
    ranges = [pushed("seven", 0, 20), pushed("eight", 0, 20, process=8, thread=8)]
    kernels = [kernel(LAUNCHED_AT + at, 1, graphNodeId=21, process=process) for at, process in ((5, PROCESS), (9, 8))]
    _, rows = replayed(tmp_path, nodes, ranges=ranges, kernels=kernels)
    assert [row[CAPTURED_IN] for row in rows] == [["seven"], ["eight"]]


def without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


MADE, COPIED = node_made(11, 15), node_made(21, 250, copy_of=11)
UNKNOWN = {
    "the making was not recorded": [COPIED],
    "it is no copy": [node_made(21, 15)],
    "two nodes were its model": [MADE, node_made(12, 16), COPIED, node_made(21, 251, copy_of=12)],
    "the line turns in a circle": [node_made(11, 15, copy_of=21), COPIED],
    "the thread is not known": [{**MADE, "globalTid": None}, COPIED],
    "an older schema has no models": [without(one, "originalGraphNodeId") for one in (MADE, COPIED)],
    "an older schema writes 0 for none": [MADE, {**COPIED, "originalGraphNodeId": 0}],
    "it is of another process": [MADE, {**COPIED, "globalTid": global_id(8, 8)}],
}


@pytest.mark.parametrize("nodes", UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_capture_gives_a_note_and_no_column(tmp_path: Path, nodes: list[Row]) -> None:
    report, (row,) = replayed(tmp_path, nodes, ranges=CAPTURE)
    assert (row["nvtx_path"], CAPTURED_IN in row, row["module"]) == (["replay"], False, None)
    assert any("where they were captured is not known" in note for note in report.notes)


@pytest.mark.slow
def test_a_graph_is_captured_under_the_ranges_of_its_phases_and_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capturing needs a GPU: a fake of PyTorch's capture runs the step instead."""
    torch = pytest.importorskip("torch", reason=WITHOUT_TORCH)
    from ncu_launch.nvtx_ranges import Ranges
    from ncu_launch.workload import workload
    from ncu_launch.workload_spec import Workload

    said: list[str] = []

    class Said(Ranges):
        def __init__(self) -> None:
            super().__init__()
            self._nvtx = self.missing = ""

        def entered(self, name: str) -> None:
            said.append(f"{name} begins")

        def left(self, name: str) -> None:
            said.append(f"{name} ends")

        @contextmanager
        def during(self, name: str) -> Iterator[None]:
            self.entered(name)
            yield
            self.left(name)

    class Graph:
        def replay(self) -> None:
            said.append("replayed")

    monkeypatch.setattr(workload, "Ranges", Said)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    step = workload.prepared(Workload("alexnet", batch_size=1, device="cpu", input_size=64))
    notes = workload._profile_graph(step)
    replayed = said.index("replayed")
    assert (
        said.index("forward begins") < said.index("alexnet.features.0 begins") < said.index("forward ends") < replayed
    )
    assert said[replayed - 1 :] == ["iteration 0 begins", "replayed", "iteration 0 ends"]
    assert "only a timeline of nsys knows" in notes[0]


def test_a_copied_graph_node_was_made_where_the_first_of_its_line_was(tmp_path: Path) -> None:
    """Node 11 is captured, 21 a copy of it and 31 a copy of that; 41 and 42 are copies of each other."""
    nodes = [
        node_made(11, 15, thread=9), node_made(21, 250, copy_of=11), node_made(31, 300, copy_of=21),
        node_made(41, 1, copy_of=42), node_made(42, 2, copy_of=41), node_made(51, 3, copy_of=99),
    ]  # fmt: skip
    asked = np.array([31, 11, 41, 51, MISSING], np.int64)
    with opened(
        Source(str(database(tmp_path / "t.sqlite", {"ANALYSIS_DETAILS": [{"duration": 1}], NODES: nodes}))), "t.sqlite"
    ) as found:
        origins = GraphNodes(found).origins(np.full(len(asked), PROCESS), asked)
    assert origins.moment.tolist() == [15, MISSING, MISSING, MISSING, MISSING]
    assert origins.thread.tolist() == [global_id(PROCESS, 9), MISSING, MISSING, MISSING, MISSING]
