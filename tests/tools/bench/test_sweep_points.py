"""Points of a sweep as the launches of a run, and what `bench_notes` says below their table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.errors import NcuBenchError
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema import tables
from ncu_parsers.schema.bench_table import bench_table
from ncu_parsers.schema.operator_columns import THREADS

from ncu_tools.bench.bench_runs import BenchRun
from ncu_tools.bench.points_as_runs import OF_FORMULAS, points_of_sweep
from ncu_tools.cli import run
from ncu_tools.cli.reading.runs_of_roofline import load_runs, look_at
from ncu_tools.roofline.load_for_roofline import load_for
from ncu_tools.roofline.scene import RUNS
from ncu_tools.roofline.views import Look

A100 = "NVIDIA A100-SXM4-40GB"


def row(target: str = "one", batch: int = 1, **changes: Any) -> dict[str, Any]:
    """A point of 8 GFLOP and 2 GB in 4 ms: 4 FLOP/B and 2 TFLOP/s."""
    return {
        "point": f"{target} {batch} {changes}", "target": target, "device": "cpu", "device_name": "a processor",
        "dtype": "fp32", "autocast": False, "mode": "eager", "channels_last": False, "phase": "forward",
        "batch_size": batch, "input_size": 64, "sequence_length": None, "outcome": "ok", "latency_mean_ns": 4e6,
        "expected_flops": 8e9, "expected_bytes": 2e9, "threads": None, **changes,
    }  # fmt: skip


def sweep(folder: Path, *rows: dict[str, Any]) -> str:
    folder.mkdir(exist_ok=True)
    write_table(bench_table(rows), folder / "bench.parquet")
    return str(folder)


def names(*rows: dict[str, Any]) -> list[str]:
    return [point.name for point in points_of_sweep(BenchRun("s", list(rows)))[0]]


def units(**changes: Any) -> set[str]:
    """The columns of units with FLOPs of a point."""
    (point,), _ = points_of_sweep(BenchRun("s", [row(**changes)]))
    columns = [name for name in point.table.column_names if name.startswith(("flops_", "tensor_flops"))]
    return {name for name in columns if name != "flops_basis" and tables.floats(point.table, name)[0] > 0}


def roofline_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["roofline", *arguments, "--format", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_flops_of_a_point_without_contractions_count_on_cuda_cores_with_a_note_that_all_operators_are_covered() -> None:
    softmax = row(expected_flops_basis="all operators")
    (one, other), notes = points_of_sweep(BenchRun("s", [softmax, row("two", expected_flops_basis="contractions")]))
    assert [point.table["flops_basis"][0].as_py() for point in (one, other)] == [
        "expected: operator formulas", "expected: operator formulas, contractions only",
    ]  # fmt: skip
    assert any("FLOPs of 1 of 2 points cover all operators" in note for note in notes)
    gpu = {"device": "cuda", "device_name": A100, "dtype": "fp16"}
    assert units(**gpu, expected_flops_basis="all operators") == {"flops_fp32"}
    assert units(**gpu, expected_flops_basis="contractions") == {"tensor_flops_fp16"}


def test_a_point_is_placed_at_its_flops_per_byte_and_flops_per_second(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sweep(tmp_path / "s", row())
    (found,) = roofline_of(capsys, path)["rows"]
    assert (found["arithmetic_intensity"], found["flops_per_s"]) == (4.0, 2e12)
    assert found["time_total_ns"] == 4e6


def test_names_of_points_are_the_settings_in_which_they_differ() -> None:
    assert names(row("a"), row("b")) == ["s/a", "s/b"]
    assert names(row("a", 1), row("a", 8)) == ["s/a, batch 1", "s/a, batch 8"]
    assert names(row(dtype="fp32"), row(dtype="bf16", autocast=True)) == ["s/one, FP32", "s/one, BF16 autocast"]
    assert names(row(), row()) == ["s/one #1", "s/one #2"]


def test_arrows_join_the_sizes_of_one_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sweep(tmp_path / "s", *(row(target, batch) for target in ("a", "b") for batch in (1, 8, 64)))
    scene = roofline_of(capsys, path, "--arrows")["scene"]
    labels = [mark["label"] for mark in scene["marks"]]
    joined = {(labels[arrow["start"]], labels[arrow["end"]]) for arrow in scene["arrows"]}
    assert joined == {
        (f"{one}, batch {low}", f"{one}, batch {high}") for one in "ab" for low, high in ((1, 8), (8, 64))
    }


def test_arrows_join_neither_types_nor_sweeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row("a", batch, dtype=dtype) for dtype in ("fp32", "bf16") for batch in (1, 8)]
    paths = [sweep(tmp_path / name, *rows) for name in ("before", "after")]
    scene = roofline_of(capsys, *paths, "--arrows")["scene"]
    labels = [mark["label"] for mark in scene["marks"]]
    joined = {(labels[arrow["start"]], labels[arrow["end"]]) for arrow in scene["arrows"]}
    assert joined == {
        (f"{name}/a, {dtype}, batch 1", f"{name}/a, {dtype}, batch 8")
        for name in ("before", "after") for dtype in ("FP32", "BF16")
    }  # fmt: skip
    assert {one["model"] for one in scene["runs"]} == {
        f"{name}: a, {dtype}" for name in ("before", "after") for dtype in ("FP32", "BF16")
    }


def test_a_point_above_its_ceiling_is_explained_by_bytes_of_operators(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sweep(tmp_path / "s", row(latency_mean_ns=1e3))
    notes = " ".join(roofline_of(capsys, path, "--machine", "t4")["notes"])
    assert "different passes" not in notes
    assert "per cent" in notes or "%" in notes


def test_a_view_other_than_runs_is_ignored_with_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sweep(tmp_path / "s", row())
    assert any("--points phases is ignored" in one for one in roofline_of(capsys, path, "--points", "phases")["notes"])
    assert not any("--points" in one for one in roofline_of(capsys, path)["notes"])


def test_sweeps_of_several_machines_share_one_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [sweep(tmp_path / name, row(device="cuda", device_name=A100)) for name in ("here", "there")]
    scene = roofline_of(capsys, *paths)["scene"]
    assert [one["label"] for one in scene["runs"]] == ["here/one", "there/one"]
    assert any(roof["unit"] == "dram" and roof["device"] == A100 for roof in scene["roofs"])


def test_a_cpu_point_names_its_number_of_threads_if_ceilings_depend_on_it() -> None:
    (point,), _ = points_of_sweep(BenchRun("s", [row(threads=2)]))
    assert tables.floats(point.table, THREADS).tolist() == [2.0]


def test_a_run_beside_a_sweep_is_one_point(tmp_path: Path) -> None:
    path = sweep(tmp_path / "s", row())
    assert look_at([path, "report.csv"], Look()).view == RUNS
    assert look_at(["report.csv"], Look()) == Look()


class TestUnitOfAPoint:
    def test_follows_from_the_type_on_a_known_machine(self) -> None:
        assert units(device="cuda", device_name=A100, dtype="bf16") == {"tensor_flops_bf16"}
        assert units(device="cuda", device_name=A100, dtype="tf32") == {"tensor_flops_tf32"}
        assert units(device="cuda", device_name=A100) == {"flops_fp32"}
        assert units() == {"flops_fp32"}

    def test_is_unknown_with_autocast(self) -> None:
        assert units(device="cuda", device_name=A100, dtype="bf16", autocast=True) == set()

    def test_is_unknown_for_a_16_bit_type_on_a_machine_without_a_file(self) -> None:
        assert units(dtype="bf16") == set()


class TestIncompletePoints:
    def test_a_failed_point_is_counted(self) -> None:
        failed = row(batch=64, outcome="out of memory", latency_mean_ns=None)
        points, notes = points_of_sweep(BenchRun("s", [row(), failed]))
        assert len(points) == 1
        assert notes == [OF_FORMULAS, "s: 1 point without a time left out (1 out of memory)"]

    def test_a_point_without_flops_is_not_drawn(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = sweep(tmp_path / "s", row("a"), row("b", expected_flops=None, expected_bytes=None))
        found = roofline_of(capsys, path)
        assert [one["flops_per_s"] for one in found["rows"]] == [2e12, None]
        assert any(note.startswith("1 of 2 runs has no place on the plot") for note in found["notes"])

    def test_a_sweep_without_a_measured_point_is_refused(self, tmp_path: Path) -> None:
        path = sweep(tmp_path / "s", row(outcome="crashed", latency_mean_ns=None))
        with pytest.raises(NcuBenchError, match="a sweep without measured points"):
            load_runs([path], lambda name: load_for(name, Look(), None))
