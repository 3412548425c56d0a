"""A machine that nobody measured gets ceilings after its first profile: quickly, once, and never half."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from ncu_launch.bench import machine_measurement, machine_process
from ncu_launch.bench.machine_measurement import QUICK_LIMIT_S, measured_quickly
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.manifest import Manifest
from ncu_launch.profilers.subprocesses import run
from ncu_launch.workload.cpu_load import CpuLoad

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.ceilings.machine_files import find_machine, own_folder
from ncu_tools.ceilings.measured_machine import keep_measured
from ncu_tools.cli import cli
from ncu_tools.profiling import quick_ceilings
from ncu_tools.profiling.collected_profile import CollectedProfile
from ncu_tools.profiling.listener import Listener
from ncu_tools.profiling.quick_ceilings import AGAIN, beaten_by_run, is_starved, measure_unknown_devices
from ncu_tools.report.html.html_content import ReportedRun, content
from ncu_tools.roofline.roofline import roofline
from ncu_tools.roofline.scene_builder import scene_of
from tests.support.called_here import called_here
from tests.support.installed import WITHOUT_TORCH
from tests.support.launches import launch, metric, sass, table
from tests.support.models.models_here import models_run_here, profiled_here
from tests.tools.cli.test_cli import PYTHONPATH
from tests.whole.test_profile_with_a_stand_in import MAIN

MIB = 1 << 20


def found(threads: int | None = 2, load: float | None = 0.0, fp32: float = 150e9) -> dict[str, Any]:
    """What a quick measurement of a made-up processor gives."""
    sample = {"amount": 1, "sustained": 14e9, "spread": 0.02, "seconds": 0.01}
    return {
        "device": "cpu", "device_name": "Processor X", "threads": threads, "caches": {"l3": 8 * MIB},
        "clocks": ["2000 MHz"], "versions": {"torch": "2.0"}, "notes": [], "other_load": load,
        "memory": [{**sample, "what": "copy", "size": 32 * MIB, "burst": 15e9, "by": ""}],
        "products": [{**sample, "what": "fp32", "size": 1024, "burst": fp32, "by": "F.conv2d(A, B)"}],
    }  # fmt: skip


class Heard(Listener):
    """Keeps the sentences that a profile says on the way."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def message(self, text: str) -> None:
        self.said.append(text)


def operators(device: str = "Processor X", threads: float | None = 2.0) -> pa.Table:
    """One operator of a run on a device, as the collector records it."""
    metrics = {} if threads is None else {"threads": metric(threads)}
    return table(launch("aten::mm", metrics, ns=1e6, dram=1e6, capability=None, attributes={"Device Name": device}))


def profile(launches: pa.Table | None = None, source: str = "operators", **changes: Any) -> CollectedProfile:
    manifest = Manifest([], source, "2026-11-25", workload={"dtype": "bf16"})
    collected = CollectedProfile(Path("run"), manifest, operators() if launches is None else launches)
    return replace(collected, notes=("the first note",), **changes)


@pytest.fixture(autouse=True)
def _nobody_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(quick_ceilings.SETTING)
    monkeypatch.setattr(quick_ceilings, "LOOKED_S", 0.0)
    monkeypatch.setattr(quick_ceilings, "cpu_count", lambda: 2)


class Measured:
    """Stands for the process that measures: keeps what it was asked for, and answers."""

    def __init__(self, answer: dict[str, Any] | BaseException) -> None:
        self.answer, self.asked = answer, list[tuple[str, int | None, tuple[str, ...]]]()

    def __call__(self, device: str, threads: int | None, types: Sequence[str], **_: Any) -> dict[str, Any]:
        self.asked.append((device, threads, tuple(types)))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def measuring(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any] | BaseException) -> Measured:
    stand_in = Measured(answer)
    monkeypatch.setattr(quick_ceilings, "measured_quickly", stand_in)
    return stand_in


class TestAnUnknownMachine:
    def test_is_measured_with_the_threads_of_the_run_and_its_type_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = measuring(monkeypatch, found()).asked
        heard = Heard()
        result = measure_unknown_devices(profile(), heard)
        assert asked == [("cpu", 2, ("bf16", "fp32", "tf32", "fp16", "fp64"))]
        (sentence,) = heard.said
        assert sentence.startswith(
            "No ceilings are known for Processor X with 2 threads: measuring them for at most 10 s, to keep them"
        )
        assert "--no-measure" in sentence
        note, first = result.notes
        assert first == "the first note"
        assert "DRAM 15 GB/s, FP32 150 GFLOP/s" in note
        assert str(own_folder() / "processor-x-2-threads-measured.toml") in note

    def test_has_ceilings_from_then_on_that_say_that_they_were_measured_quickly_and_where(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        measuring(monkeypatch, found())
        assert ceilings_of(operators()).drawn == []
        measure_unknown_devices(profile(), Heard())
        drawn = {ceiling.unit: ceiling for ceiling in ceilings_of(operators()).drawn}
        assert {unit: one.value for unit, one in drawn.items()} == {"fp32": 150e9, "dram": 15e9}
        assert {one.kind for one in drawn.values()} == {"measured quickly"}
        assert drawn["fp32"].source.startswith("machine file processor-x-2-threads-measured; measured quickly 20")
        roofs = scene_of(roofline({"run": operators()})).roofs
        assert [roof.label for roof in roofs] == [
            "DRAM measured quickly 15 GB/s", "FP32 measured quickly 150 GFLOP/s"
        ]  # fmt: skip
        on_page = content([ReportedRun("run", operators())])["ceilings"]
        assert [(one["title"], one["kind"]) for one in on_page] == [
            ("FP32", "measured quickly"), ("DRAM", "measured quickly")
        ]  # fmt: skip

    def test_is_measured_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = measuring(monkeypatch, found()).asked
        for _ in range(2):
            measure_unknown_devices(profile(), Heard())
        assert len(asked) == 1

    def test_is_measured_anew_with_another_number_of_threads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        keep_measured(found(threads=1), quickly=True)
        asked = measuring(monkeypatch, found()).asked
        measure_unknown_devices(profile(), Heard())
        assert len(asked) == 1

    def test_is_measured_better_by_machines_measure_which_replaces_the_file(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kept = keep_measured(found(), quickly=True)
        assert find_machine("processor-x-2-threads-measured").measured_quickly
        monkeypatch.setattr("ncu_tools.cli.collecting.machines.measured", lambda seconds, device: found(fp32=160e9))
        assert CliRunner().invoke(cli, ["machines", "measure"]).exit_code == 0
        assert list(own_folder().iterdir()) == [kept]
        machine = find_machine("processor-x-2-threads-measured")
        assert machine.measured
        assert not machine.measured_quickly
        assert {one.kind for one in ceilings_of(operators()).drawn} == {"measured"}

    def test_gives_way_to_a_longer_measurement_under_another_name(self) -> None:
        keep_measured(found(), quickly=True)
        keep_measured(found(fp32=160e9), own_folder() / "z.toml")
        assert {one.value for one in ceilings_of(operators()).drawn} == {15e9, 160e9}


class TestNothingIsMeasured:
    @pytest.fixture(autouse=True)
    def _fails(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        asked = measuring(monkeypatch, found()).asked
        yield
        assert asked == []
        assert not own_folder().is_dir()

    def unchanged(self, collected: CollectedProfile) -> None:
        heard = Heard()
        assert measure_unknown_devices(collected, heard).notes == collected.notes
        assert heard.said == []

    def test_of_a_run_under_ncu_whose_report_has_ceilings(self) -> None:
        self.unchanged(profile(source="ncu"))

    def test_of_a_device_with_a_data_sheet(self) -> None:
        self.unchanged(profile(operators("NVIDIA A100-PCIE-40GB", threads=None)))

    def test_of_a_run_that_failed_or_collected_nothing(self) -> None:
        self.unchanged(profile(failure=NcuBenchError("It failed.")))
        self.unchanged(replace(profile(), table=None))

    def test_where_the_environment_says_no(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NCU_BENCH_NO_MEASURE", "1")
        self.unchanged(profile())

    def test_while_other_programs_take_the_cpu_and_a_note_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(CpuLoad, "others", lambda self: 0.75)
        heard = Heard()
        (note, _) = measure_unknown_devices(profile(), heard).notes
        assert note.startswith(
            "other programs take 75.0 % of the CPU, so that its ceilings were not measured: ncu-bench mac"
        )
        assert heard.said == []


class TestNoFileIsLeft:
    @pytest.fixture(autouse=True)
    def _none(self) -> Any:
        yield
        assert not own_folder().is_dir() or not list(own_folder().iterdir())

    def test_by_a_measurement_that_other_programs_disturbed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        measuring(monkeypatch, found(load=0.3))
        (note, _) = measure_unknown_devices(profile(), Heard()).notes
        assert note.startswith(
            "other programs take 30.0 % of the CPU, so that the measured rates are no ceilings and were not"
        )

    def test_by_a_measurement_that_an_operator_of_the_run_itself_was_faster_than(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """FP32 products reached 150 GFLOP/s; the operators do 160 and 900 of them a nanosecond."""

        def run(ffma: float) -> pa.Table:
            here: dict[str, Any] = {"capability": None, "attributes": {"Device Name": "Processor X"}}
            metrics = {**sass(ffma=ffma), "threads": metric(2.0)}
            short = launch("aten::sum", {**sass(fadd=900e3), "threads": metric(2.0)}, ns=1e3, **here)
            return table(launch("aten::mm", metrics, ns=1e6, **here), short)

        measuring(monkeypatch, found())
        note, _ = measure_unknown_devices(profile(run(80e6)), Heard()).notes
        assert note.startswith(
            "aten::mm of this run reached 160 GFLOP/s, and FP32 products 150 GFLOP/s, so the measured"
        )
        assert beaten_by_run(found(), run(78e6)) == "", "156 of 150 GFLOP/s is within what times scatter"
        assert beaten_by_run(found(), run(80e6).slice(1)).startswith("aten::sum of this run reached 900 GFLOP/s")

    def test_by_one_that_is_interrupted_and_where_the_run_is_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        measuring(monkeypatch, KeyboardInterrupt())
        heard = Heard()
        with pytest.raises(KeyboardInterrupt):
            measure_unknown_devices(profile(), heard)
        assert heard.said[-1] == "The run is in run; its ceilings were not measured."

    def test_by_one_that_fails_and_the_profile_is_shown_all_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        measuring(monkeypatch, NcuBenchError("Measuring ended without a result."))
        (note, _) = measure_unknown_devices(profile(), Heard()).notes
        assert note == f"the ceilings of Processor X were not measured: Measuring ended without a result. {AGAIN}"
        assert "The next profile tries it again; --no-measure" in AGAIN

    def test_by_an_implausible_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        measuring(monkeypatch, {**found(), "memory": []})
        (note, _) = measure_unknown_devices(profile(), Heard()).notes
        assert "no plausible machine" in note


def test_a_folder_that_cannot_be_written_is_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    measuring(monkeypatch, found())
    (note, _) = measure_unknown_devices(profile(), Heard()).notes
    assert note.startswith("the ceilings of Processor X were not measured: ")


@pytest.mark.parametrize(
    ("others", "threads", "starved"),
    [
        (0.3, 2, True),
        (0.15, 2, False),
        (0.5, 1, False),
        (0.7, 1, True),
        (0.9, None, False),
        (None, 2, False),
        (0.3, 8, True),
    ],
)
def test_a_measurement_is_starved_where_less_than_its_threads_need_is_left_of_two_cpus(
    others: float | None, threads: int | None, starved: bool
) -> None:
    assert is_starved(others, threads) is starved


@pytest.mark.slow
class TestTheProcess:
    """What measures quickly, for real; nothing is said here about how fast this machine is."""

    @pytest.fixture(autouse=True)
    def _with_torch(self) -> None:
        pytest.importorskip("torch", reason=WITHOUT_TORCH)

    @pytest.mark.nightly
    def test_measures_memory_at_one_size_and_the_first_type(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(machine_measurement, "QUICK_LIMIT_S", 120.0)  # a busy machine takes long to start PyTorch
        result = measured_quickly("cpu", 1, ("fp32", "bf16"))
        assert result["threads"] == 1
        assert {one["what"] for one in result["memory"]} == {"copy", "triad", "read"}
        assert len({one["size"] for one in result["memory"]}) == 1
        assert result["products"][0]["what"] == "fp32"
        assert all(one["burst"] > 0 for one in result["products"])

    def test_begins_no_second_type_once_its_time_is_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(machine_process, "QUICK_S", 0.0)
        monkeypatch.setattr(machine_process, "LARGEST_BYTES", 32 * MIB)
        models_run_here(monkeypatch)
        products = measured_quickly("cpu", None, ("fp64", "fp32"))["products"]
        assert [(one["what"], one["size"]) for one in products] == [("fp64", 512)]

    def test_is_ended_after_ten_seconds_whatever_it_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        limits = []

        def never_ends(command: Sequence[str], log: Path, *, timeout: float, **_: Any) -> Any:
            limits.append(timeout)
            return run(["sleep", "30"], log, timeout=0.1)

        monkeypatch.setattr(machine_measurement, "run", never_ends)
        with pytest.raises(NcuBenchError, match="Measuring ended without a result"):
            measured_quickly("cpu", None, ("fp32",))
        assert limits == [QUICK_LIMIT_S] == [10.0]

    def test_keeps_what_it_measured_before_it_was_ended(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        def ended(command: Sequence[str], log: Path, **_: Any) -> Any:
            Path(command[-3]).write_text(json.dumps(found()))
            return run(["sleep", "30"], log, timeout=0.1)

        monkeypatch.setattr(machine_measurement, "run", ended)
        assert measured_quickly("cpu", None, ("fp32",)) == found()


@pytest.mark.slow
class TestTheCommand:
    """`ncu-bench profile` on this machine, which is measured for real."""

    @pytest.fixture
    def started(self, tmp_path: Path) -> Any:
        pytest.importorskip("torch", reason=WITHOUT_TORCH)
        (tmp_path / "empty").mkdir()
        environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1", "PATH": str(tmp_path / "empty")}
        environment.pop("NCU_BENCH_NO_MEASURE", None)  # the load is still ignored: a busy machine is measured too

        def start(*arguments: str) -> subprocess.Popen[str]:
            return subprocess.Popen(
                [*MAIN, *arguments], cwd=tmp_path, env=environment, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip

        return start

    def test_measures_once_and_its_roofline_has_the_ceilings(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("torch", reason=WITHOUT_TORCH)
        # Products far faster than that of the run, which else may beat them where something else takes the CPU.
        monkeypatch.setattr(machine_process, "SIDES", (384,))
        monkeypatch.setattr(machine_process, "LARGEST_BYTES", 32 * MIB)
        monkeypatch.setattr(machine_process, "QUICK_S", 300.0)
        for name, measures in (("first", True), ("second", False)):
            said = profiled_here("gemm:64,64,64,fp32", "-o", name, "--on", "cpu", cwd=tmp_path).err
            assert ("note: measured quickly in " in said) is measures, said
        (kept,) = own_folder().iterdir()
        ceilings = called_here("roofline", "second", "--format", "json", cwd=tmp_path).json()["ceilings"]
        assert {one["unit"]: one["kind"] for one in ceilings} == dict.fromkeys(("dram", "fp32"), "measured quickly")
        assert all(kept.stem in one["source"] for one in ceilings)
        told = called_here("roofline", "second", "--levels", "all", cwd=tmp_path)
        said = told.err
        assert re.search(r"^ ?DRAM ", told.out, re.MULTILINE)
        assert "has no roof" not in said
        assert "ask ncu" not in said  # which counts no bytes of caches of a CPU

    @pytest.mark.parametrize(
        ("answer", "says"),
        [
            (found(), "note: measured quickly in "),
            (NcuBenchError("It crashed."), "were not measured: It crashed. The next profile tries it again"),
        ],
    )
    def test_of_several_points_measures_once_after_them_and_says_what_came_of_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any] | BaseException, says: str
    ) -> None:
        pytest.importorskip("torch", reason=WITHOUT_TORCH)
        asked = measuring(monkeypatch, answer).asked
        (tmp_path / "k.py").write_text("import torch\ndef ones(n):\n    return torch.ones(n, n) @ torch.ones(n, n)\n")
        words = ("k.py:ones", "-o", "run", "--on", "cpu", "--vary", "n=8,16")
        said = profiled_here(*words, cwd=tmp_path).err
        assert (len(asked), says in said) == (1, True), said
        assert said.index("Point 2 of 2") < said.index("measuring them for")
        assert "measuring them for" not in profiled_here(*words, "--resume", cwd=tmp_path).err

    @pytest.mark.nightly
    def test_ends_by_ctrl_c_while_it_measures_with_the_run_kept_and_no_machine_file(
        self, started: Any, tmp_path: Path
    ) -> None:
        process = started("profile", "gemm:64,64,64,fp32", "-o", "run")
        said = ""
        while "measuring them for" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        process.send_signal(signal.SIGINT)
        said += process.communicate(timeout=60)[1]
        assert process.returncode == 130
        assert "The run is in run; its ceilings were not measured." in said
        assert not own_folder().is_dir() or not list(own_folder().iterdir())
        assert (tmp_path / "run" / "launches.parquet").is_file()

    def test_measures_nothing_with_no_measure_or_a_named_machine(self, tmp_path: Path) -> None:
        pytest.importorskip("torch", reason=WITHOUT_TORCH)
        for option in (["--no-measure"], ["--machine", "colab-cpu"]):
            done = profiled_here("gemm:64,64,64,fp32", "-o", f"run{option[-1]}", *option, cwd=tmp_path)
            assert done.code == 0, done.err
            assert "measuring them for" not in done.err
        assert not own_folder().is_dir()
