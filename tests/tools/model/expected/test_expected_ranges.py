"""Ranges of a program beside the user's own formulas: per pass, with ranges inside them, unknown where anything is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ncu_launch.errors import NcuBenchError
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.cli.comparing.expected_ranges import BY_COUNTERS
from ncu_tools.model.expected.user_ranges import Pass, compare_ranges, passes_in
from tests.support.called_here import called_here
from tests.support.launches import launch, metric, sass, table

WHOLE = {**sass(ffma=50.0), "sm__inst_executed_pipe_tensor.sum": metric(0.0)}


def test_a_range_has_its_launches_and_those_of_ranges_inside_it_per_pass() -> None:
    launches = [launch("k", WHOLE, ns=10, dram=400, module=name) for name in ("step", "step.inner", "step2")]
    through = [Pass("step.inner", 5.0, 100, 200), Pass("step", 9.0, 150, None), Pass("step", 11.0, 250, None)]
    step, inner = compare_ranges(table(*launches), through)
    assert (step.range, step.passes, step.launches, step.wall_ns, step.time_ns) == ("step", 2, 2, 10, 10)
    assert (step.measured_flops, step.expected_flops, step.flops_ratio) == (100, 200, 0.5)
    assert (step.measured_bytes, step.expected_bytes, step.bytes_ratio) == (400, None, None)
    assert (inner.launches, inner.flops_ratio, inner.bytes_ratio) == (1, 1, 2)


def test_a_formula_that_only_some_passes_gave_is_no_expectation() -> None:
    (row,) = compare_ranges(table(launch("k", WHOLE, module="a")), [Pass("a", 1, 5, 5), Pass("a", 1, None, 5)])
    assert (row.expected_flops, row.flops_ratio, row.expected_bytes) == (None, None, 5)


def test_unknown_flops_of_one_launch_leave_those_of_the_range_unknown() -> None:
    launches = launch("k", WHOLE, module="a"), launch("other", module="a")
    (row,) = compare_ranges(table(*launches), [Pass("a", 1, 100, None)])
    assert (row.measured_flops, row.flops_ratio, row.launches) == (None, None, 2)


def test_a_range_without_launches_has_no_zeros() -> None:
    (row,) = compare_ranges(table(launch("k", WHOLE, module="b")), [Pass("a", 1, 100, 100)])
    assert (row.launches, row.time_ns, row.measured_flops, row.measured_bytes) == (0, None, None, None)


def test_a_damaged_line_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "ranges.jsonl").write_text('{"range": "a", "ns": 1, "flops": null, "bytes": 2}\n{"range": "a", "n')
    with pytest.raises(NcuBenchError, match=r"Line 2 of .*ranges\.jsonl is no range"):
        passes_in(str(tmp_path))


def test_the_command_shows_counters_beside_formulas_and_what_caught_nothing(tmp_path: Path) -> None:
    made = table(launch("k", WHOLE, ns=10, dram=400, module="step"))
    write_table(with_metadata(made, {"schema_version": SCHEMA_VERSION, "reports": []}), tmp_path / "launches.parquet")
    lines = [{"range": name, "ns": 1.0, "flops": 200, "bytes": None} for name in ("step", "nothing")]
    (tmp_path / "ranges.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = called_here("compare", "--with", "formulas", ".", "--format", "json", cwd=tmp_path).json()
    nothing, step = found["rows"]
    assert (step["range"], step["flops_ratio"]) == ("step", 0.5)
    assert nothing["flops_ratio"] is None
    assert "nothing was collected inside of nothing" in found["notes"]
    assert BY_COUNTERS in found["notes"]
