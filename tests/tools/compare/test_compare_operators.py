"""Runs compared by calls of operators."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.compare.per_launch import OF_OTHER_INPUTS
from tests.parsers.timelines.test_kineto import A100, call, gpu
from tests.parsers.timelines.test_work_of_traces import operator
from tests.support.launches import launch, table
from tests.support.ran import ran


def test_launches_without_operators_are_refused_and_pass_no_gate(tmp_path: Path) -> None:
    """All of them were one row, "(no operator)", whose kernels hid their growth in each other's scatter."""
    run = tmp_path / "run.parquet"
    launches = table(launch("gemm", ns=10_000.0), launch("relu", ns=1_000.0))
    write_table(with_metadata(launches, {"schema_version": SCHEMA_VERSION}), run)
    junit = tmp_path / "gates.xml"
    found = ran("compare", str(run), str(run), "--operators", "--fail-on", "time>5%", "--junit", str(junit))
    assert found.exit_code == 1
    assert "knows its operator" in found.stderr
    assert b'errors="1"' in junit.read_bytes()


def trace(path: Path, sizes: Sequence[int], *, slower: float = 1, shapes: bool = True) -> str:
    """Products of square matrices, each of a time that follows from its size, with a scatter of 1 %."""
    events = []
    for number, size in enumerate(sizes, 1):
        start, shape = 1000 * number, [[size, size], [size, size]] if shapes else []
        events += [
            operator("aten::mm", start, 40, shape, ["float", "float"], ["", ""]),
            call(number, start + 10),
            gpu("kernel", "sgemm", start + 50, size * slower * (1 + 0.01 * (number % 4)), number),
        ]
    path.write_text(json.dumps({"deviceProperties": [A100], "traceEvents": events}), "utf-8")
    return str(path)


def test_the_interval_is_that_of_calls_with_the_same_shapes(tmp_path: Path) -> None:
    """Three sizes in one scatter hid a growth of 7 % in an interval from -2 to +17 %."""
    sizes = [100, 400, 900] * 6
    base, new = trace(tmp_path / "base.json", sizes), trace(tmp_path / "new.json", sizes, slower=1.07)
    for gate in ("time>1%", "kernel:aten::mm:time>1%"):
        assert ran("compare", base, new, "--operators", "--fail-on", gate).exit_code == 3
        assert ran("compare", base, base, "--operators", "--fail-on", gate).exit_code == 0


def test_calls_with_inputs_of_other_shapes_are_other_work(tmp_path: Path) -> None:
    base, new = trace(tmp_path / "base.json", [400] * 6), trace(tmp_path / "new.json", [300] * 6)
    found = ran("compare", base, new, "--operators", "--fail-on", "time>1%")
    assert found.exit_code == 2
    assert "not the same work: inputs of other shapes of aten::mm" in found.stderr


def test_the_words_are_those_of_calls_and_not_of_launches(tmp_path: Path) -> None:
    base = trace(tmp_path / "base.json", [400] * 6)
    other, more = trace(tmp_path / "other.json", [300] * 6), trace(tmp_path / "more.json", [400] * 7 + [500])
    found = ran("compare", base, other, "--by", "operator")
    first = "first: aten::mm, time per call 406 µs -> 304.5 µs: -25.0 %"
    said = " ".join(found.stdout.split())
    assert first in said
    assert "(of other shapes or types than before)" in said
    assert "all operators: not the same work: inputs of other shapes of aten::mm" in said
    found = ran("compare", base, more, "--by", "operator")
    assert "all operators: not the same work: 6 -> 8 calls of aten::mm" in found.stdout
    assert [line.rpartition(", ")[2] for line in found.stdout.splitlines()[:2]] == ["6 calls", "8 calls"]
    assert "1 operator is compared per call, of the shapes and types in both runs" in found.stderr


def test_the_words_are_those_of_calls_where_one_trace_alone_knows_shapes(tmp_path: Path) -> None:
    known, unknown = (
        trace(tmp_path / "known.json", [400] * 6),
        trace(tmp_path / "unknown.json", [400] * 6, shapes=False),
    )
    for base, new in ((known, unknown), (unknown, known)):
        said = ran("compare", base, new, "--by", "operator", "--format", "json").stdout
        assert OF_OTHER_INPUTS in said
        assert "inputs of other shapes of aten::mm" in said
