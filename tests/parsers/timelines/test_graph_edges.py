"""Edges of CUDA graphs in traces. The traces are made up, in the form of PyTorch's own tests: an edge is a flow with an
id from 2^40 on, from the end of a node to the start of another on their lanes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity.activity import Activity
from ncu_parsers.timelines.kineto.kineto import read_activity

from ncu_tools.timeline.graph.build import step_graph
from ncu_tools.timeline.graph.step_graph import EVENT
from tests.support.traces import read_report

Event = dict[str, Any]
FIRST_EDGE = 1 << 40


def kernel(name: str, start: float, lasts: float, stream: int, **args: Any) -> Event:
    args = {"device": 0, "context": 1, "stream": stream, "correlation": 1, **args}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": abs(stream), "ts": start, "dur": lasts,
            "args": args}  # fmt: skip


def node(name: str, start: float, lasts: float, stream: int, **args: Any) -> Event:
    return kernel(name, start, lasts, stream, **{"graph node id": len(name), **args})


def edge(number: int, end: tuple[int, float], start: tuple[int, float]) -> list[Event]:
    """A flow between two moments (lane, µs)."""
    flow = {"id": FIRST_EDGE + number, "cat": "ac2g", "name": "ac2g", "pid": 0}
    return [{**flow, "ph": "s", "tid": end[0], "ts": end[1]}, {**flow, "ph": "f", "tid": start[0], "ts": start[1]}]


def read(folder: Path, *events: Event) -> Activity:
    (folder / "trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}))
    return read_activity(Source(str(folder / "trace.json")))


def pairs(found: Activity) -> list[tuple[str, str]]:
    names = [found.operations.names[one] for one in found.operations.name.tolist()]
    return [(names[before], names[after]) for before, after in zip(*found.dependencies, strict=True)]


class TestEdgesOfGraphs:
    """Nodes that record events or call the host are no launches, and an edge through one joins what it stands between."""

    NODES = (node("a", 10, 5, 7), node("bb", 15.25, 5, 8), node("ccc", 30, 5, 7))

    def test_join_the_end_of_a_node_and_the_start_of_another(self, tmp_path: Path) -> None:
        found = read(tmp_path, *self.NODES, *edge(0, (7, 15.0), (8, 15.25)), *edge(1, (8, 20.25), (7, 30)))
        assert pairs(found) == [("a", "bb"), ("bb", "ccc")]
        edges = step_graph(found).edges
        assert (edges.kind == EVENT).sum() == 2

    @pytest.mark.parametrize("category", ["graph_event_node", "graph_host_node"])
    def test_pass_through_what_is_no_work_of_the_gpu(self, tmp_path: Path, category: str) -> None:
        between = {**node("HostNode", 22, 3, 9, correlation=0), "cat": category}
        events = (*self.NODES, between, *edge(0, (8, 20.25), (9, 22)), *edge(1, (9, 25), (7, 30)))
        assert pairs(read(tmp_path, *events)) == [("bb", "ccc")]
        table = read_report(Source(str(tmp_path / "trace.json"))).table
        assert table is not None
        assert table["kernel_name"].to_pylist() == ["a", "bb", "ccc"]

    def test_are_found_on_logical_lanes_too(self, tmp_path: Path) -> None:
        moved = node("bb", 15, 5, 3000, original_stream=8)
        assert pairs(read(tmp_path, self.NODES[0], moved, *edge(0, (7, 15.0), (3000, 15)))) == [("a", "bb")]

    def test_of_flows_by_correlation_are_none(self, tmp_path: Path) -> None:
        flows = [{**one, "id": 41} for one in edge(0, (7, 15.0), (8, 15.25))]
        assert pairs(read(tmp_path, *self.NODES, *flows)) == []

    def test_that_run_in_a_circle_end(self, tmp_path: Path) -> None:
        one, other = ({**node(name, at, 1, 9), "cat": "graph_host_node"} for name, at in (("x", 40), ("yy", 50)))
        circle = [*edge(0, (9, 41), (9, 50)), *edge(1, (9, 51), (9, 40)), *edge(2, (9, 51), (7, 30))]
        assert pairs(read(tmp_path, *self.NODES, one, other, *circle)) == []


def test_copies_of_the_newer_profiler_are_named_as_those_of_kineto(tmp_path: Path) -> None:
    copy = {**kernel("Memcpy", 1, 2, 7, **{"copy kind": "HtoD", "src kind": "pinned", "dst kind": "device_static"}),
            "cat": "gpu_memcpy"}  # fmt: skip
    operations = read(tmp_path, copy).operations
    assert operations.names == ["Memcpy HtoD (Pinned -> Device Static)"]
    assert (operations.direction[0], operations.source_memory[0], operations.destination_memory[0]) == (0, 1, 2)
