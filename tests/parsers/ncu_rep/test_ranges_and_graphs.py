"""Ranges and CUDA graphs that ncu profiled as one: each is one result, of several kernels and of none of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.ncu_rep.contents import contents_of
from ncu_parsers.parse.parse import Parsed, parse
from ncu_parsers.report_data.report import Launch, Metric, Report
from ncu_parsers.schema.tables import are_of_several_kernels
from ncu_parsers.sources.sources import Source

from tests.support.binary_reports import (
    BEGINNING,
    Block,
    Kernel,
    block_of,
    field,
    nvtx_state,
    put_together,
    sized,
    value,
)

TIME, THROUGHPUT = "gpu__time_duration.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed"
KERNELS = ("strided(float*)", "conflicts(float*)")
OF_KERNELS = {
    "launch__grid_dim_x": (65536, 256), "launch__grid_dim_y": (1, 256), "launch__grid_dim_z": (1, 1),
    "launch__block_dim_x": (1024, 32), "launch__block_dim_y": (1, 32), "launch__block_dim_z": (1, 1),
    "launch__registers_per_thread": (16, 20), "launch__stream_id": (7, 13), "launch__device_id": (0, 0),
    "launch__context_id": (1, 1), "sm__maximum_warps_per_active_cycle_pct": (100.0, 50.0),
}  # fmt: skip
"""What ncu collects of each kernel in a range or a graph; as value of both it writes the larger."""
METRICS: Mapping[str, Any] = {
    TIME: 744_096, THROUGHPUT: 25.5, "launch__kernel_name": ("", {}),
    **{name: (max(values), dict(enumerate(values))) for name, values in OF_KERNELS.items()},
}  # fmt: skip
FOCUS = field(8, field(1, 0) + field(2, THROUGHPUT.encode()))
ITEM = field(1, field(1, b"This workload exhibits low throughput.") + field(2, 2)) + FOCUS
RULE = field(1, b"SOLBottleneck") + field(2, b"Bottleneck") + field(3, field(1, ITEM)) + field(4, b"SpeedOfLight")
SECTION = field(1, b"SpeedOfLight") + field(8, field(1, b"basic"))
RANGES, GRAPHS = 7, 9
"""How many of them a block holds, in its header."""


def result(*, is_graph: bool, metrics: Mapping[str, Any] = METRICS, rules: int = 1, nvtx: bytes | None = None) -> bytes:
    """A range or a graph, with the numbers that fields had in reports of ncu 2025.3."""
    names = list(METRICS)
    encoded = b""
    for name, metric in metrics.items():
        content, instances = metric if isinstance(metric, tuple) else (metric, {})
        each = b"".join(field(3, field(1, value(key)) + field(2, value(one))) for key, one in instances.items())
        encoded += field(4, field(1, names.index(name)) + field(2, value(content)) + each)
    pairs = field(1, 0) + field(2, 0)
    own = field(12, 13) + field(13, pairs) + field(17, 99) if is_graph else field(12, pairs) + field(15, 99)
    known = field(1, 2094) + field(2, 574) + encoded + field(5, 1_760_000_000) + field(6, 0) + field(7, SECTION)
    around = b"" if nvtx is None else field(10, nvtx)
    return known + around + field(11, 1) + own + field(22 if is_graph else 20, RULE) * rules


def report_of(*results: tuple[int, bytes], names: tuple[str, ...] = tuple(METRICS)) -> bytes:
    """A report with a launch in front, and each result in a block of its own."""
    blocks = [block_of([Kernel(metrics={TIME: 5})], names)]
    for number, encoded in results:
        empty, payload = block_of([], []), sized(encoded)
        header = empty.header.replace(field(5, 0), field(5, len(payload))) + field(number, 1)
        blocks.append(Block(header, payload))
    return put_together(BEGINNING, blocks)


def read(folder: Path, data: bytes) -> Parsed:
    (folder / "made.ncu-rep").write_bytes(data)
    return parse([Source(str(folder / "made.ncu-rep"))])


def rows_of(parsed: Parsed) -> list[dict[str, Any]]:
    assert parsed.table is not None
    return list(parsed.table.to_pylist())


@pytest.mark.parametrize(("name", "count", "stream"), [("range", RANGES, None), ("graph", GRAPHS, "13")])
def test_a_range_and_a_graph_are_read_as_one_result_each(
    name: str, count: int, stream: str | None, tmp_path: Path
) -> None:
    kernel, row = rows_of(read(tmp_path, report_of((count, result(is_graph=name == "graph")))))
    assert (kernel["kernel_name"], kernel["launch_id"], kernel["grid"]) == ("gemm", 0, [16, 2, 1])
    assert (row["kernel_name"], row["launch_id"], row["duration_ns"], row[THROUGHPUT]) == (name, 1, 744_096, 25.5)
    assert (row["grid"], row["block"], row["stream"], row["device_id"], row["context"]) == (None, None, stream, 0, 1)
    (rule,) = row["rules"]
    assert (rule["name"], rule["kind"], rule["section"]) == ("SOLBottleneck", "WRN", "SpeedOfLight")
    assert rule["description"] == "This workload exhibits low throughput."


def test_what_is_of_one_kernel_is_null_where_there_are_several(tmp_path: Path) -> None:
    both = report_of((RANGES, result(is_graph=False)), (GRAPHS, result(is_graph=True)))
    parsed = read(tmp_path, both)
    rows = rows_of(parsed)
    assert [row[THROUGHPUT] for row in rows] == [None, 25.5, 25.5]
    assert not {name for name in OF_KERNELS if any(row.get(name) is not None for row in rows)}
    assert are_of_several_kernels(parsed.table).tolist() == [False, True, True]


def test_a_kernel_that_is_named_as_a_range_keeps_its_metrics() -> None:
    kernel, of_several = Launch("graph", grid=(4, 1, 1)), Launch("graph")
    for launch in (kernel, of_several):
        launch.metrics = {"launch__registers_per_thread": Metric(32.0, 0.0, ""), TIME: Metric(5.0, 0.0, "ns")}
    report = Report("r.csv")
    report.launches = [kernel, of_several]
    table = launches_table(report)
    assert table.column("launch__registers_per_thread").to_pylist() == [32.0, None]
    assert table.column(TIME).to_pylist() == [5.0, 5.0]
    assert are_of_several_kernels(table).tolist() == [False, True]


@pytest.mark.parametrize(("is_graph", "count"), [(False, RANGES), (True, GRAPHS)])
def test_nvtx_ranges_around_a_range_or_a_graph_are_read(is_graph: bool, count: int, tmp_path: Path) -> None:
    state = nvtx_state(["step"], {"<default domain>": ["forward"]})
    _, row = rows_of(read(tmp_path, report_of((count, result(is_graph=is_graph, nvtx=state)))))
    assert row["nvtx_path"] == ["step", "forward"]


@pytest.mark.parametrize(("is_graph", "count"), [(False, RANGES), (True, GRAPHS)])
def test_one_with_more_rules_than_any_has_is_left_out_as_damaged(is_graph: bool, count: int, tmp_path: Path) -> None:
    parsed = read(tmp_path, report_of((count, result(is_graph=is_graph, rules=20_000))))
    assert [row["kernel_name"] for row in rows_of(parsed)] == ["gemm"]
    assert parsed.reports[0].notes == ["1 damaged launch was left out; later ones keep their launch ids"]


def test_contents_count_ranges_and_graphs_with_their_rules(tmp_path: Path) -> None:
    (tmp_path / "r.ncu-rep").write_bytes(report_of((RANGES, result(is_graph=False)), (GRAPHS, result(is_graph=True))))
    found = contents_of(Source(str(tmp_path / "r.ncu-rep")))
    assert (found.launches, found.kernels, found.ranges, found.graphs) == (3, {"gemm"}, 1, 1)
    assert (found.rules.launches, set(found.rules.names), found.focus) == (
        2, {"SOLBottleneck"}, {"SOLBottleneck": {THROUGHPUT}},
    )  # fmt: skip
