"""bench --power: energy of an iteration, sampled after its timing. NVML is a stand-in with made-up numbers."""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ncu_launch.bench import point_process
from ncu_launch.bench.gpu import iteration_energy
from ncu_launch.bench.gpu.iteration_energy import (
    ENERGY,
    FLOPS_PER_J,
    NOT_ALONE,
    UNIT_OF,
    UNITS,
    VALUES,
    sampled_row,
    with_flops_per_joule,
)
from ncu_launch.bench.latency_statistics import Effort
from ncu_launch.bench.timed_iteration import Iteration
from ncu_launch.files.run_files import BENCH_FILE
from ncu_launch.workload_spec import Workload
from ncu_parsers.parquet.reader import read_bench
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.bench_table import bench_table, rows_of
from ncu_parsers.schema.tables import field_entries

from ncu_tools.cli.collecting.sampled_power import power_notes
from tests.support import stand_in_nvml
from tests.support.installed import needs_torch
from tests.support.models.models_here import models_run_here
from tests.support.ran import ran

WORK_S = 0.02


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", stand_in_nvml)
    monkeypatch.setattr(iteration_energy, "REPEATED_S", 0.8)


def work() -> None:
    time.sleep(WORK_S)


def sampled(**options: Any) -> dict[str, Any]:
    return sampled_row(work, stand_in_nvml.UUID, **options)


@pytest.mark.slow
def test_energy_is_mean_power_times_the_time_of_an_iteration() -> None:
    found = sampled()[VALUES]
    each = found["sampled_s"] / found["sampled_iterations"]
    assert each >= WORK_S
    assert found[ENERGY] == pytest.approx(found["power_w"] * each, rel=0.25)
    assert found["power_w"] == pytest.approx(stand_in_nvml.POWER_W, rel=0.25)


@pytest.mark.slow
def test_every_value_has_a_unit_and_rate_and_time_stand_beside_it() -> None:
    row = sampled()
    assert row[UNITS] == {name: UNIT_OF[name] for name in row[VALUES]}
    assert {"sampled_s", "sampling_hz", "sampled_iterations", "power_basis"} <= row[VALUES].keys()
    assert row[VALUES]["sampled_throttling"] == "power cap"
    assert row["notes"] == []


@pytest.mark.slow
def test_a_backward_pass_has_power_and_no_energy_of_its_own() -> None:
    row = sampled(is_backward=True)
    assert ENERGY not in row[VALUES]
    assert "power_w" in row[VALUES]
    assert row["notes"] == [NOT_ALONE]


def test_without_a_driver_a_note_says_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_NVML", "no-driver")
    row = sampled()
    assert VALUES not in row
    assert row["notes"] == [
        "power was not sampled: NVML could not be started: NVML Shared Library Not Found."
    ]  # fmt: skip


def test_flops_per_joule_need_all_flops_and_the_energy() -> None:
    row = {VALUES: {ENERGY: 2.0}, UNITS: {ENERGY: "J"}, "expected_flops": 3e12, "expected_why_not": None}
    assert with_flops_per_joule(row)[VALUES][FLOPS_PER_J] == 1.5e12
    for lacking in ({**row, "expected_why_not": "no formula"}, {**row, "expected_flops": None}, {**row, VALUES: {}}):
        assert FLOPS_PER_J not in with_flops_per_joule(lacking)[VALUES]


class TestAPoint:
    """Sampled as on a GPU, with an iteration that sleeps instead."""

    @staticmethod
    def row(device: str, monkeypatch: pytest.MonkeyPatch, phase: str = "forward") -> dict[str, Any]:
        monkeypatch.setattr(point_process, "wait_for", lambda device: None)
        monkeypatch.setattr(point_process, "_gpu_uuid", lambda: stand_in_nvml.UUID)
        nothing: Callable[[], None] = lambda: None  # noqa: E731
        iteration = Iteration(nothing, lambda _: work(), nothing)
        workload = replace(Workload("resnet18"), phases=(phase,))
        point: Any = SimpleNamespace(step=SimpleNamespace(device=device), iteration=iteration, workload=workload)
        return point_process._with_power(point, {"notes": ["an earlier note"]})

    @pytest.mark.slow
    def test_on_a_gpu_is_sampled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        row = self.row("cuda", monkeypatch)
        assert row[VALUES][ENERGY] > 0
        assert row["notes"] == ["an earlier note"]
        assert self.row("cuda", monkeypatch, "backward")["notes"] == ["an earlier note", NOT_ALONE]

    def test_on_a_cpu_is_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        row = self.row("cpu", monkeypatch)
        assert VALUES not in row
        assert row["notes"] == ["an earlier note", point_process.NO_POWER_OF_CPUS]


class TestTheTable:
    @staticmethod
    def rows() -> list[dict[str, Any]]:
        values = {ENERGY: 2.5, "power_w": 500.0, "power_basis": "power readings", "sampled_s": 3.0, "sampling_hz": 20.0}
        point = {"point": "a", "target": "a", "notes": []}
        return [{**point, VALUES: values, UNITS: {name: UNIT_OF[name] for name in values}}, {**point, "point": "b"}]

    def test_has_sampled_columns_only_where_something_was_sampled(self) -> None:
        table = bench_table(self.rows())
        assert table.column(ENERGY).to_pylist() == [2.5, None]
        entries = field_entries(table.schema.field(ENERGY))
        assert entries["unit"] == "J"
        assert "sampled through NVML" in entries["meaning"]
        assert ENERGY not in bench_table(self.rows()[1:]).column_names

    def test_gives_back_what_it_was_made_of(self, tmp_path: Path) -> None:
        write_table(bench_table(self.rows()), tmp_path / BENCH_FILE)
        first, second = rows_of(read_bench(tmp_path / BENCH_FILE))
        assert first[VALUES] == self.rows()[0][VALUES]
        assert first[UNITS][ENERGY] == "J"
        assert second[VALUES] == {}

    def test_notes_say_how_often_and_for_how_long(self) -> None:
        flat = [{**row, **row.get(VALUES, {})} for row in self.rows()]
        (note,) = power_notes(flat)
        assert "sampled through NVML, 20 times a second for 3 s after timing" in note
        assert "mean power is by power readings" in note
        assert power_notes(flat[1:]) == []


@pytest.mark.slow
class TestTheCommand:
    @needs_torch
    def test_shows_energy_and_power_of_points_that_have_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        models_run_here(monkeypatch)
        run = tmp_path / "sweep"
        arguments = ("bench", "gemm:8,8,8,fp32", "--on", "cpu", "--max-time", "0.1", "-o", str(run))
        done = ran(*arguments, "--power")
        assert done.exit_code == 0, done.stderr
        assert point_process.NO_POWER_OF_CPUS in done.stderr
        (row,) = rows_of(read_bench(run / BENCH_FILE))
        made_up = TestTheTable.rows()[0]
        write_table(bench_table([{**row, VALUES: made_up[VALUES], UNITS: made_up[UNITS]}]), run / BENCH_FILE)
        shown = ran(*arguments, "--power", "--resume", "--wide", "--notes")
        assert shown.exit_code == 0, shown.stderr
        assert "~energy" in shown.stdout
        assert " 2.5 J " in shown.stdout
        assert "~ is sampled through NVML" in shown.stderr
        as_csv = ran(*arguments, "--resume", "--format", "csv")
        (first,) = csv.DictReader(io.StringIO(as_csv.stdout))
        assert first[ENERGY] == "2.5"

    def test_without_the_package_ends_before_anything_is_measured(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", None)
        done = ran("bench", "resnet18", "--power", "-o", str(tmp_path / "sweep"))
        assert done.exit_code == 1
        assert "pip install '.[nvml]'" in done.stderr
        assert not (tmp_path / "sweep").exists()

    def test_does_not_set_pairs_beside_each_other(self, tmp_path: Path) -> None:
        done = ran("bench", "a.py:f", "--against", "b.py:g", "--power", "-o", str(tmp_path / "sweep"))
        assert done.exit_code == 2
        assert "--against does not go with --power" in done.stderr

    def test_measures_power_only_if_asked(self) -> None:
        assert not Effort().power
