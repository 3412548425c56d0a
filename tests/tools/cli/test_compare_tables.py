"""The tables of `compare`: measured points, kernels and layers, for people and for machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.bench.point_outcomes import CRASHED
from ncu_launch.errors import WrongUsage
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.bench_table import bench_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.cli import run
from ncu_tools.cli.tables.compare.bench_points import are_bench_runs, compared_points
from ncu_tools.cli.tables.compare.kernels_and_layers import compared_kernels, compared_layers
from ncu_tools.cli.tables.compare.shared import CompareOptions, CompareRequest
from tests.conftest import SAMPLES
from tests.support.launches import launch, sass, table
from tests.tools.bench.test_compare_bench import failed, fp16, point

Row = dict[str, Any]


def bench_run(folder: Path, *rows: Row) -> str:
    folder.mkdir()
    write_table(bench_table(rows), folder / "bench.parquet")
    return str(folder)


def launches_run(folder: Path, ns: float, *, layers: tuple[str, ...] = ("model.a", "model.b")) -> str:
    """A run of two launches of `gemm` in each layer, and one of a kernel that only a run of that name has."""
    found = [
        launch("gemm", sass(ffma=8), ns=ns + at, dram=100.0, module=layer, phase="forward", grid=(1, 1, 1))
        for layer in layers
        for at in range(2)
    ]
    own, width = {"base": ("softmax", 3), "new": ("transpose", 64)}.get(folder.name, ("copy", 1))
    found.append(launch(own, ns=10.0, grid=(width, 1, 1), block=(width * 2, 1, 1)))
    folder.mkdir()
    write_table(with_metadata(table(*found), {"schema_version": SCHEMA_VERSION}), folder / "launches.parquet")
    return str(folder)


class TestPoints:
    def test_of_another_run_stand_below_those_of_the_base_with_their_speedup(self, tmp_path: Path) -> None:
        runs = bench_run(tmp_path / "base", point(ms=10.0)), bench_run(tmp_path / "new", point(ms=5.0))
        rows = compared_points(CompareRequest(runs)).table.rows
        assert [(row["is_base"], row["verdict"]) for row in rows] == [(True, "base"), (False, "faster")]
        assert rows[1]["speedup"] == pytest.approx(2.0, rel=0.01)
        assert rows[1]["speedup_low"] < rows[1]["speedup"] < rows[1]["speedup_high"]

    def test_that_one_run_lacks_are_new_or_gone(self, tmp_path: Path) -> None:
        runs = (
            bench_run(tmp_path / "base", point(batch=1), point(batch=2)),
            bench_run(tmp_path / "new", point(batch=1), point(batch=4)),
        )
        verdicts = {(row["batch_size"], row.get("verdict")) for row in compared_points(CompareRequest(runs)).table.rows}
        assert {(2, "gone"), (4, "new")} < verdicts

    def test_that_failed_have_an_outcome_and_no_change(self, tmp_path: Path) -> None:
        runs = bench_run(tmp_path / "base", point()), bench_run(tmp_path / "new", failed(CRASHED))
        new = compared_points(CompareRequest(runs)).table.rows[-1]
        assert (new["failure"], new["reason"], new.get("speedup")) == (CRASHED, "it was too much", None)

    def test_across_types_are_compared_within_one_run(self, tmp_path: Path) -> None:
        run = bench_run(tmp_path / "run", point(ms=10.0), fp16(ms=5.0))
        found = compared_points(CompareRequest((run,), CompareOptions(across=("dtype",)), machine_readable=True)).table
        assert [row["dtype"] for row in found.rows] == ["fp32", "fp16"]
        assert found.extra["across"] == ["dtype"]

    def test_are_told_from_launches_before_anything_is_compared(self, tmp_path: Path) -> None:
        points, launches = bench_run(tmp_path / "points", point()), launches_run(tmp_path / "run", 100.0)
        assert are_bench_runs((points, points), ())
        assert not are_bench_runs((launches, launches), ())
        with pytest.raises(WrongUsage, match="holds measured points"):
            are_bench_runs((points, launches), ())
        with pytest.raises(WrongUsage, match="nothing to compare"):
            are_bench_runs((points,), ())
        with pytest.raises(WrongUsage, match="--across is for runs of ncu-bench bench"):
            are_bench_runs((launches, launches), ("dtype",))


class TestKernels:
    def test_have_a_row_each_and_their_total_last(self, tmp_path: Path) -> None:
        runs = launches_run(tmp_path / "base", 100.0), launches_run(tmp_path / "new", 200.0)
        rows = compared_kernels(CompareRequest(runs, machine_readable=True)).table.rows
        assert {row["kernel"]: row["verdict"] for row in rows[:-1]} == {
            "gemm": "slower", "transpose": "new", "softmax": "gone",
        }  # fmt: skip
        gemm = next(row for row in rows if row["kernel"] == "gemm")
        assert (gemm["base_time_mean_ns"], gemm["new_time_mean_ns"]) == pytest.approx((100.5, 200.5))
        assert (gemm["base_flops_mean"], gemm["flops_ratio"], gemm["is_total"]) == (16.0, 1.0, False)
        assert rows[-1]["is_total"]

    def test_of_other_work_have_a_total_that_judges_nothing(self, tmp_path: Path) -> None:
        runs = launches_run(tmp_path / "base", 100.0), launches_run(tmp_path / "new", 200.0)
        found = compared_kernels(CompareRequest(runs))
        assert found.table.rows[-1]["verdict"] == "not the same work"
        assert found.sentences[0].startswith("all kernels: not the same work")

    def test_that_are_hidden_are_counted_in_a_note(self, tmp_path: Path) -> None:
        runs = launches_run(tmp_path / "base", 100.0), launches_run(tmp_path / "new", 200.0)
        found = compared_kernels(CompareRequest(runs, CompareOptions(top=1))).table
        assert len(found.rows) == 2
        assert any("2 more kernels" in note for note in found.notes)


class TestLayers:
    def test_have_a_row_for_each_phase_and_sum_their_launches(self, tmp_path: Path) -> None:
        runs = launches_run(tmp_path / "base", 100.0), launches_run(tmp_path / "new", 200.0, layers=("model.a",))
        rows = compared_layers(CompareRequest(runs, CompareOptions("layer"), machine_readable=True)).table.rows
        found = {row["layer"]: row for row in rows}
        assert (found["model.a"]["base_time_ns"], found["model.a"]["new_time_ns"]) == pytest.approx((201.0, 401.0))
        assert (found["model.a"]["verdict"], found["model.b"]["verdict"]) == ("slower, noise not known", "gone")


@pytest.mark.parametrize(("name", "title"), [("t4", "t4 time"), ("a-report-of-a-long-name", "base time")])
def test_of_several_runs_the_times_of_the_base_have_a_title_that_leaves_them_room(
    name: str, title: str, tmp_path: Path
) -> None:
    runs = tuple(launches_run(tmp_path / one, 100.0) for one in (name, "one", "two"))
    columns = [one.title for one in compared_kernels(CompareRequest(runs)).table.columns]
    assert [title in columns, "time" in columns] == [True, True]


def test_categories_are_compared_by_their_times_and_held_to_gates(capsys: pytest.CaptureFixture[str]) -> None:
    report = str(SAMPLES / "d01-wide-raw.csv")
    gates = ["--fail-on", "category:GEMM:time>5%"]
    assert run(["compare", report, report, "--by", "category", "--format", "json", *gates]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["category"] for row in found["rows"]} == {"GEMM", "element-wise", "softmax", "(all launches)"}
    whole, parts = found["rows"][-1], found["rows"][:-1]
    assert whole["is_total"]
    assert sum(row["base_time_ns"] for row in parts) == pytest.approx(whole["base_time_ns"])
    assert [gate["outcome"] for gate in found["gates"]] == ["passed"]
