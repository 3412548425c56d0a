"""ncu-bench profile from end to end, with a stand-in for ncu: no GPU, every way a run can go.

The stand-in is a process always; ncu-bench is one where it has to start, print and be ended as such.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.profile.plan import Request, make_plan
from ncu_launch.profilers.installed_tools import Gpu, Tool
from ncu_launch.workload_spec import Workload
from ncu_parsers.parquet.reader import read_launches
from pyarrow.parquet import read_table

from tests.conftest import ROOT, SAMPLES
from tests.launch.targets.test_examples import EXAMPLES, ON_A_GPU, commands
from tests.support.called_here import called_here
from tests.support.models.models_here import models_run_here
from tests.support.nightly import by_day
from tests.support.stand_in_ncu import half
from tests.support.timelines import KERNELS, database, kernel
from tests.tools.cli.test_cli import PYTHONPATH, Result

pytestmark = pytest.mark.slow

# A shell may start the tests with Ctrl-C ignored, which would be inherited.
MAIN = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from ncu_tools.cli import main; main()",
]
LIMIT_S = 60


class Bench:
    """ncu-bench on a machine with an empty PATH, with the stand-in at `ncu`, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ncu = folder / "ncu"
        self.run = folder / "run"
        (folder / "empty").mkdir()
        self.ncu.write_text(
            f"#!{sys.executable}\nimport runpy\n"
            f"runpy.run_path({str(ROOT / 'tests' / 'support' / 'stand_in_ncu.py')!r}, run_name='__main__')\n"
        )
        self.ncu.chmod(0o755)

    def environment(self, behaviour: str, version: str = "2024.1.1.0") -> dict[str, str]:
        return {
            **os.environ, "PYTHONPATH": PYTHONPATH, "COLUMNS": "120", "PATH": str(self.folder / "empty"),
            "STAND_IN_NCU": behaviour, "STAND_IN_NCU_VERSION": version,
        }  # fmt: skip

    def arguments(self, *options: str) -> list[str]:
        chosen = ["profile", "--tool", "ncu", "--ncu", str(self.ncu), "-o", str(self.run), *options]
        return [*MAIN, *chosen, "--", "python", "-c", "pass"]

    def profile(self, behaviour: str, *options: str, version: str = "2024.1.1.0") -> Result:
        return self.call(self.arguments(*options), self.environment(behaviour, version))

    def call(self, arguments: list[str], environment: dict[str, str]) -> Result:
        """What a command gives that begins with `MAIN`, called in this process."""
        return called_here(*arguments[len(MAIN) :], cwd=self.folder, environment=environment)

    def process(self, behaviour: str, *options: str) -> Result:
        """The same as `profile`, as a process."""
        arguments, environment = self.arguments(*options), self.environment(behaviour)
        done = subprocess.run(
            arguments, capture_output=True, check=False, timeout=LIMIT_S, cwd=self.folder, env=environment
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run / "manifest.json").read_text("utf-8"))
        return found

    def launches(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = read_launches(self.run / "launches.parquet").to_pylist()
        return rows

    def still_running(self) -> list[str]:
        """The commands of stand-ins that still run: their command lines contain the path of ours."""
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = file.read_bytes().split(b"\0")
            except OSError:
                continue
            if bytes(self.ncu) in words and b"profile" not in words:
                found.append(" ".join(map(os.fsdecode, words)))
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def only_the_first_two_launches(bench: Bench) -> bool:
    """True if the kept launches are the first two of the whole report, without anything of the third."""
    folder = bench.folder / "whole"
    folder.mkdir()
    called_here("parse", str(SAMPLES / "d01-wide-raw.csv"), "-o", str(folder / "launches.parquet"), cwd=folder)
    whole = read_launches(folder / "launches.parquet").to_pylist()
    kept = bench.launches()
    columns = [name for name in whole[0] if name in kept[0] and name not in ("source_file", "report", "source")]
    return [[row[name] for name in columns] for row in kept] == [[row[name] for name in columns] for row in whole[:2]]


class TestAGoodRun:
    def test_shows_a_table_and_keeps_everything(self, bench: Bench) -> None:
        result = bench.process("good")
        assert result.code == 0, result.err
        assert "gemm bf16 128x256x32 tn" in result.out
        assert "77.0 %" in result.out
        assert f"note: the run is in {bench.run}" in result.err
        assert len(bench.launches()) == 8
        assert (bench.run / "reports" / "ncu.csv").read_bytes() == (SAMPLES / "d01-wide-raw.csv").read_bytes()
        assert (bench.run / "logs" / "output.txt").read_text() == ""
        assert {path.name for path in bench.run.iterdir()} == {
            "manifest.json", "launches.parquet", "kernels.parquet", "logs", "reports",
        }  # fmt: skip

    def test_writes_its_kernels_with_nulls_for_values_that_the_report_lacks(self, bench: Bench) -> None:
        bench.profile("good")
        rows = bench.call([*MAIN, "hotspots", str(bench.run), "--format", "json"], bench.environment("good")).json()[
            "rows"
        ]
        kept = read_table(bench.run / "kernels.parquet").to_pylist()
        assert [row["kernel"] for row in kept] == [row["kernel"] for row in rows]
        for name in ("launches", "time_total_ns", "time_std_ns", "flops", "bound", "flops_lower_bound"):
            assert [row[name] for row in kept] == pytest.approx([row[name] for row in rows]), name

    def test_records_in_its_manifest_what_was_run(self, bench: Bench) -> None:
        bench.profile("good", "--metrics", "lts__t_bytes.sum", "--cache-control", "none", "--clock-control", "none",
                      "--kernel", "a b|c", "--launch-count", "9", "--ncu-args", "--print-fp --devices '0'")  # fmt: skip
        manifest = bench.manifest()
        metrics = ["gpu__time_duration.sum", "sm__cycles_elapsed.avg", "sm__cycles_elapsed.avg.per_second"]
        metrics += ["lts__t_bytes.sum"]
        (ran,) = manifest["tool_runs"]
        assert ran["command"] == [
            str(bench.ncu), "--csv", "--page", "raw", "--target-processes", "all", "--print-units", "base",
            "--replay-mode", "kernel", "--log-file", str(bench.run / "reports" / "ncu.csv"), "--config-file", "off",
            "--clock-control", "none", "--cache-control", "none", "--metrics", ",".join(metrics),
            "--kernel-name", "regex:a b|c", "--launch-count", "9", "--print-fp", "--devices", "0",
            "python", "-c", "pass",
        ]  # fmt: skip
        assert (ran["exit_code"], ran["timed_out"], ran["interrupted"]) == (0, False, False)
        assert ran["seconds"] > 0
        assert (manifest["schema_version"], manifest["source"], manifest["partial"]) == (1, "ncu", False)
        assert (manifest["clock_control"], manifest["cache_control"]) == ("none", "none")
        assert manifest["replay_mode"] == "kernel"
        assert manifest["metrics"] == metrics
        assert manifest["workload"] == {"program": ["python", "-c", "pass"]}
        assert manifest["versions"]["ncu"].startswith("2024.1.1")
        assert manifest["asked"][1:3] == ["profile", "--tool"]
        assert manifest["gpus"] == []

    def test_locks_clocks_and_flushes_caches_by_default(self, bench: Bench) -> None:
        bench.profile("good")
        assert (bench.manifest()["clock_control"], bench.manifest()["cache_control"]) == ("base", "all")

    def test_is_read_by_the_other_commands(self, bench: Bench) -> None:
        bench.profile("good")
        result = bench.call([*MAIN, "hotspots", str(bench.run), "--format", "json"], bench.environment("good"))
        assert result.code == 0
        assert len(result.json()["rows"]) == 6

    def test_does_not_overwrite_another(self, bench: Bench) -> None:
        bench.profile("good")
        before = (bench.run / "manifest.json").read_bytes()
        result = bench.profile("permission")
        assert result.code == 2
        assert "already holds a run" in result.err
        assert (bench.run / "manifest.json").read_bytes() == before

    @pytest.mark.nightly
    def test_of_fifty_megabytes_of_output_shows_only_its_table(self, bench: Bench) -> None:
        result = bench.profile("huge")
        assert result.code == 0, result.err
        assert len(result.out.splitlines()) == 8
        assert "step 1, loss" not in result.out + result.err
        assert (bench.run / "logs" / "output.txt").stat().st_size == 50_000_000

    def test_prints_json_alone_whatever_the_program_prints(self, bench: Bench) -> None:
        result = bench.process("chatter", "--format", "json")
        assert result.code == 0
        assert result.json()["command"] == "profile"
        assert len(result.json()["rows"]) == 6

    def test_of_a_program_that_prints_text_like_a_failure_of_ncu_succeeds(self, bench: Bench) -> None:
        result = bench.profile("chatter")
        assert len(bench.launches()) == 8
        assert "Error: " not in result.err
        assert result.code == 0

    def test_with_an_ncu_without_log_files_reads_its_standard_output(self, bench: Bench) -> None:
        result = bench.profile("good", version="2020.1.2.0")
        assert "--log-file" not in bench.manifest()["tool_runs"][0]["command"]
        assert result.code == 0, result.err
        assert len(bench.launches()) == 8


class TestTwoRuns:
    """--plan two-runs: hardware counters in one run of the program, counters of its code in another."""

    OPTIONS = ("--plan", "two-runs", "--metrics", "flops,dram")

    def test_give_the_same_launches_as_one(self, bench: Bench) -> None:
        one = bench.profile("asked", "--plan", "one-run", "--metrics", "flops,dram")
        together = bench.launches()
        bench.run = bench.folder / "again"
        two = bench.profile("asked", *self.OPTIONS)
        assert (one.code, two.code) == (0, 0), two.err
        assert one.out.partition(":")[2] == two.out.partition(":")[2]  # behind the names of the runs
        assert [launch["flops"] for launch in bench.launches()] == [launch["flops"] for launch in together]
        assert any(launch["flops_fp32"] for launch in together)
        assert "8 of 8 launches were collected in two runs" in two.err

    def test_are_both_in_the_manifest_with_what_each_collected(self, bench: Bench) -> None:
        result = bench.profile("asked", *self.OPTIONS)
        manifest = bench.manifest()
        first, second = manifest["tool_runs"]
        assert [run["report"] for run in (first, second)] == ["ncu.csv", "ncu-instructions.csv"]
        assert [run["kind"] for run in (first, second)] == ["hardware counters", "instruction counters"]
        assert [run["log"] for run in (first, second)] == ["output.txt", "output-2.txt"]
        asked = [run["command"][run["command"].index("--metrics") + 1].split(",") for run in (first, second)]
        assert not set(asked[0]) & set(asked[1])
        assert manifest["plan"].startswith("as asked: two runs of the program")
        assert f"plan: {manifest['plan']}" in result.err

    def test_of_a_program_that_launches_different_kernels_each_time_become_one_replayed_run(self, bench: Bench) -> None:
        result = bench.profile("unsteady", *self.OPTIONS)
        assert result.code == 0, result.err
        assert "did not launch the same kernels" in result.err
        assert "Running it once more, each kernel replayed." in result.err
        runs = bench.manifest()["tool_runs"]
        assert [run["report"] for run in runs] == ["ncu.csv", "ncu-instructions.csv", "ncu-replayed.csv"]
        assert len(bench.launches()) == 8
        assert {Path(launch["report"]).name for launch in bench.launches()} == {"ncu-replayed.csv"}
        assert any(launch["flops_fp32"] for launch in bench.launches())

    def test_end_after_the_first_if_that_fails(self, bench: Bench) -> None:
        result = bench.profile("permission", *self.OPTIONS)
        assert result.code == 1
        assert "ERR_NVGPUCTRPERM" in result.err
        assert len(bench.manifest()["tool_runs"]) == 1

    def test_are_both_printed_by_a_dry_run_with_the_reason(self, bench: Bench) -> None:
        printed = bench.profile("asked", *self.OPTIONS, "--dry-run")
        commands = [shlex.split(line) for line in printed.out.splitlines()]
        assert len(commands) == 2
        assert "note: plan: as asked: two runs of the program" in printed.err
        bench.profile("asked", *self.OPTIONS)
        assert [run["command"] for run in bench.manifest()["tool_runs"]] == commands


class TestTheExamplesForAGpu:
    """docs/examples: their commands reach ncu with the function and its arguments, and its report is read."""

    PROFILES = tuple(one for one in commands(ON_A_GPU) if one.startswith("profile"))

    @pytest.mark.parametrize("command", by_day(PROFILES[:1], PROFILES))
    @pytest.mark.nightly
    def test_run_their_function_under_ncu(self, command: str, bench: Bench) -> None:
        for file in EXAMPLES.glob("*.py"):
            shutil.copy(file, bench.folder)
        words = shlex.split(command.removeprefix("profile"))
        arguments = [*MAIN, "profile", "--tool", "ncu", "--ncu", str(bench.ncu), "-o", str(bench.run), *words]
        result = bench.call(arguments, bench.environment("asked"))
        assert result.code == 0, result.err
        (ran,) = bench.manifest()["tool_runs"]
        at = ran["command"].index("-m")
        assert ran["command"][at:] == [
            "-m", "ncu_launch.workload.workload", str(bench.run / "workload.json"), str(bench.run / "facts.json"),
        ]  # fmt: skip
        assert "--profile-from-start" in ran["command"][:at]
        workload = json.loads((bench.run / "workload.json").read_text("utf-8"))
        assert workload["target"] == words[0]
        given = [words[place + 1] for place, word in enumerate(words) if word == "--arg"]
        assert [f"{name}={value}" for name, value in workload["arguments"]] == given
        assert len(bench.launches()) == 8


class TestOnAKnownGpu:
    """The driver is queried for the chip first; here a stand-in for nvidia-smi names one."""

    @pytest.fixture
    def with_gpu(self, bench: Bench) -> Bench:
        smi = bench.folder / "empty" / "nvidia-smi"
        smi.write_text("#!/bin/sh\necho '0, NVIDIA H200, 9.0, 570.00, 143771'\n")
        smi.chmod(0o755)
        return bench

    def test_collects_what_the_chip_has_and_notes_how_often_kernels_run(self, with_gpu: Bench) -> None:
        printed = with_gpu.profile("asked", "--dry-run", "--metrics", "flops,dram", version="2025.1.0.0")
        (command,) = [shlex.split(line) for line in printed.out.splitlines()]
        asked = command[command.index("--metrics") + 1].split(",")
        assert "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum" in asked
        assert "one run, each kernel in 3 passes" in printed.err
        assert "the program's memory and start-up time are unknown" in printed.err

    def test_keeps_chip_passes_and_memory_in_the_manifest(self, with_gpu: Bench) -> None:
        with_gpu.profile("asked", "--metrics", "dram")
        manifest = with_gpu.manifest()
        assert manifest["chip"] == "GH100"
        assert manifest["tool_runs"][0]["passes"] == 1
        assert manifest["gpus"][0]["memory_bytes"] == 143771 * 2**20
        assert "every counter fits one pass" in manifest["plan"]

    def test_compares_a_model_with_its_expected_flops(self, with_gpu: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        models_run_here(monkeypatch)
        arguments = [*MAIN, "profile", "--tool", "ncu", "--ncu", str(with_gpu.ncu), "-o", str(with_gpu.run), "resnet18"]
        result = with_gpu.call(arguments, with_gpu.environment("asked", "2025.1.0.0"))
        assert result.code == 0, result.err
        manifest = with_gpu.manifest()
        assert manifest["expected"]["flops"] == pytest.approx(3.628e9 * 2.935, rel=0.01)
        assert "to start again and replay nothing (estimated)" in manifest["plan"]
        assert (with_gpu.run / "expected.jsonl").is_file()
        assert "FLOP measured" in result.err
        shown = with_gpu.call(
            [*MAIN, "compare", "--with", "formulas", str(with_gpu.run), "--format", "json"],
            with_gpu.environment("good"),
        )
        assert shown.json()["rows"][0]["expected_flops"] == manifest["expected"]["flops"]


class TestARunThatEndedEarly:
    def test_by_its_timeout_keeps_its_launches_and_leaves_no_process(self, bench: Bench) -> None:
        result = bench.process("slow", "--timeout", "2")
        assert result.code == 1
        assert "That was its --timeout." in result.err
        assert "the run ended early" in result.err
        assert "Traceback" not in result.err
        assert "%" in result.out
        manifest = bench.manifest()
        assert manifest["partial"] is True
        assert manifest["tool_runs"][0]["timed_out"] is True
        assert manifest["tool_runs"][0]["interrupted"] is False
        assert only_the_first_two_launches(bench)
        assert (bench.run / "reports" / "ncu.csv").read_text("utf-8") == half()
        assert bench.still_running() == []

    def test_by_a_crash_keeps_its_launches(self, bench: Bench) -> None:
        result = bench.process("crash")
        assert result.code == 1
        assert "signal 11" in result.err
        assert "Traceback" not in result.err
        manifest = bench.manifest()
        assert manifest["partial"] is True
        assert manifest["tool_runs"][0]["exit_code"] == -11
        assert manifest["tool_runs"][0]["timed_out"] is False
        assert only_the_first_two_launches(bench)

    @pytest.mark.parametrize("number", by_day([signal.SIGINT], [signal.SIGINT, signal.SIGTERM]))
    def test_by_ctrl_c_keeps_its_launches_and_leaves_no_process(self, bench: Bench, number: signal.Signals) -> None:
        report = bench.run / "reports" / "ncu.csv"
        with subprocess.Popen(
            bench.arguments(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=bench.folder,
            env=bench.environment("slow"),
        ) as running:  # fmt: skip
            deadline = time.monotonic() + LIMIT_S
            while not (report.is_file() and report.read_text("utf-8") == half()) and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(0.5)  # on a busy machine the tool may be this far before the profile begins to wait for it
            running.send_signal(number)
            out, err = (stream.decode() for stream in running.communicate(timeout=LIMIT_S))
        assert running.returncode in (1, 130, 143)
        assert "The run was stopped." in err
        assert "Traceback" not in err
        assert "%" in out
        manifest = bench.manifest()
        assert manifest["partial"] is True
        assert manifest["tool_runs"][0]["interrupted"] is True
        assert manifest["tool_runs"][0]["timed_out"] is False
        assert only_the_first_two_launches(bench)
        assert bench.still_running() == []

    def test_is_marked_in_its_json(self, bench: Bench) -> None:
        result = bench.profile("crash", "--format", "json")
        assert result.code == 1
        assert result.json()["notes"][0] == "the run ended early; this is what it had collected until then"
        assert sum(row["launches"] for row in result.json()["rows"]) == 2


class TestARunWithoutResults:
    @pytest.mark.parametrize(
        ("behaviour", "says", "code"),
        [
            ("permission", ["ERR_NVGPUCTRPERM", "NVreg_RestrictProfilingToAdminUsers=0", "--cap-add=SYS_ADMIN"], 1),
            ("no-kernels", ["no kernel was profiled", "==WARNING== No kernels were profiled."], 0),
            ("application-error", ["exit code 3", "The application returned an error code (3)."], 3),
            ("exception", ["exit code 1", 'KeyError: "no such data set"'], 1),
        ],
    )
    def test_gives_the_reason_in_one_paragraph(self, behaviour: str, says: list[str], code: int, bench: Bench) -> None:
        result = bench.profile(behaviour)
        assert result.code == 1
        assert result.out == ""
        (paragraph,) = [line for line in result.err.splitlines() if line.startswith("Error: ")]
        assert [part for part in says if part not in paragraph] == []
        assert "Traceback" not in result.err
        assert not (bench.run / "launches.parquet").exists()
        assert bench.manifest()["tool_runs"][0]["exit_code"] == code
        assert bench.manifest()["partial"] is (code != 0)

    def test_prints_the_error_alone_on_standard_output_as_json(self, bench: Bench) -> None:
        result = bench.profile("permission", "--format", "json")
        error = json.loads(result.out)["error"]
        assert (result.code, error["code"], error["kind"]) == (1, 1, "failed")
        assert "ERR_NVGPUCTRPERM" in error["message"]
        assert "--cap-add=SYS_ADMIN" in error["to_type"]

    def test_without_the_named_ncu_names_it_and_writes_nothing(self, bench: Bench) -> None:
        bench.ncu.unlink()
        result = bench.profile("good")
        assert result.code == 1
        assert str(bench.ncu) in result.err
        assert "Traceback" not in result.err
        assert not bench.run.exists()

    def test_in_a_folder_that_cannot_be_created_is_an_error(self, bench: Bench) -> None:
        bench.run.write_text("a file")
        bench.run = bench.run / "below"
        result = bench.profile("good")
        assert result.code in (1, 2)
        assert "Traceback" not in result.err
        assert "Error: " in result.err


class TestADryRun:
    METRICS = "gpu__time_duration.sum,sm__cycles_elapsed.avg,sm__cycles_elapsed.avg.per_second,dram__bytes_read.sum.per_second"

    def test_prints_the_exact_command_and_creates_nothing(self, bench: Bench) -> None:
        before = sorted(bench.folder.iterdir())
        result = bench.profile(
            "good", "--dry-run", "--metrics", "dram__bytes_read.sum.per_second", "--kernel", "it's a"
        )
        assert result.code == 0, result.err
        command = [
            str(bench.ncu), "--csv", "--page", "raw", "--target-processes", "all", "--print-units", "base",
            "--replay-mode", "kernel", "--log-file", str(bench.run / "reports" / "ncu.csv"), "--config-file", "off",
            "--clock-control", "base", "--cache-control", "all", "--metrics", self.METRICS,
            "--kernel-name", "regex:it's a", "python", "-c", "pass",
        ]  # fmt: skip
        assert result.out == shlex.join(command) + "\n"
        assert "'regex:it'\"'\"'s a'" in result.out
        assert sorted(bench.folder.iterdir()) == before

    @pytest.mark.parametrize("tool", [["--tool", "ncu"], []], ids=["asked for", "chosen"])
    def test_needs_neither_tool_nor_gpu(self, tool: list[str], bench: Bench) -> None:
        before = sorted(bench.folder.iterdir())
        result = bench.call(
            [*MAIN, "profile", *tool, "-o", "run", "--dry-run", "--metrics", "dram__bytes_read.sum.per_second",
             "--", "python", "my train.py", "--lr", "0.1"],
            bench.environment("good"),
        )  # fmt: skip
        assert result.code == 0, result.err
        assert result.out == (
            "ncu --csv --page raw --target-processes all --print-units base --replay-mode kernel"
            " --log-file run/reports/ncu.csv --config-file off --clock-control base --cache-control all"
            f" --metrics {self.METRICS} python 'my train.py' --lr 0.1\n"
        )
        assert sorted(bench.folder.iterdir()) == before

    def test_names_the_requested_ncu_although_it_is_missing(self, bench: Bench) -> None:
        bench.ncu.unlink()
        result = bench.profile("good", "--dry-run")
        assert result.code == 0, result.err
        assert shlex.split(result.out)[0] == str(bench.ncu)

    def test_shows_what_the_real_run_does(self, bench: Bench) -> None:
        printed = bench.profile("good", "--dry-run", "--nvtx-include", "forward pass/").out
        bench.profile("good", "--nvtx-include", "forward pass/")
        assert bench.manifest()["tool_runs"][0]["command"] == shlex.split(printed)


class TestTheToolThatAutoChooses:
    @pytest.mark.parametrize(
        ("device", "gpu", "installed", "tool", "why"),
        [
            ("auto", True, True, "ncu", ""),
            ("auto", False, True, "operators", "nvidia-smi lists no NVIDIA GPU"),
            ("auto", True, False, "operators", "ncu is not on PATH"),
            ("cpu", True, True, "operators", "the model runs on the CPU, as asked"),
        ],
    )
    def test_is_ncu_where_it_can_count_something(
        self, device: str, gpu: bool, installed: bool, tool: str, why: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ncu_launch.profile.plan.gpus", lambda: [Gpu(0, "GPU", "9.0", "1")] if gpu else [])
        found = Tool("ncu", "/usr/bin/ncu", (2024, 1), "2024.1") if installed else None
        monkeypatch.setattr("ncu_launch.profile.plan.find_tool", lambda name, path=None: found)
        request = Request((), ("flops", "dram"), Workload("resnet18", device=device))
        plan = make_plan(request, Path("run"))
        assert (plan.tool, plan.why) == (tool, why)
        if tool == "ncu":
            assert plan.command[plan.command.index("--profile-from-start") + 1] == "off"
            assert "--nvtx" in plan.command


class TestATimelineOfNsys:
    def plan(self, request: Request, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
        monkeypatch.setattr("ncu_launch.profile.plan.gpus", list)
        return make_plan(replace(request, tool="nsys"), Path("run"), dry=True).notes

    def test_refuses_options_that_apply_to_ncu_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = Request((), ("flops", "dram"), program=("./app",), kernel="gemm", extra=("--stats=true",))
        assert self.plan(asked, monkeypatch) == ("without effect, since ncu does not run: --kernel",)

    def test_before_ncu_counts_allows_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = Request((), ("occupancy",), program=("./app",), kernel="gemm", cache_control="none", ncu="/opt/ncu")
        assert self.plan(asked.to_trace(), monkeypatch) == ()


class TestAnNsysThatLeavesNoReport:
    """nsys ends with exit code 0 then: where it lost its agent, and where it has no importer."""

    @staticmethod
    def profile(bench: Bench, does: str, *options: str) -> Result:
        """A run under a stand-in for nsys that prints its version, exports one kernel, and otherwise follows `script`."""
        timeline = database(bench.folder / "timeline.sqlite", {KERNELS: [kernel(5, 1)]}, ["triad"])
        nsys = bench.folder / "empty" / "nsys"
        nsys.write_text(
            "#!/bin/sh\n[ $1 = --version ] && echo NVIDIA Nsight Systems version 2022.4.2 && exit 0\n"
            f'if [ $1 = export ]; then /bin/cp "{timeline}" "$7"; exit; fi\n'
            'while [ $# -gt 0 ]; do [ "$1" = --output ] && out=$2; shift; done\n'
            f"echo began >> '{bench.folder / 'began'}'\n{does}\n"
        )
        nsys.chmod(0o755)
        command = [*MAIN, "profile", "--tool", "nsys", *options, "-o", str(bench.run), "--", "python", "-c", "pass"]
        return bench.call(command, bench.environment("asked"))

    @staticmethod
    def beginnings(bench: Bench) -> int:
        return len((bench.folder / "began").read_text().splitlines())

    def test_once_is_started_again(self, bench: Bench) -> None:
        does = (
            f"[ $(/usr/bin/wc -l < '{bench.folder / 'began'}') = 1 ] && echo Connection to the Agent lost. && exit 0\n"
            "printf 'NVIDIA Tegra Profiler Report 1.\\n' > \"$out.nsys-rep\"\n"
        )
        result = self.profile(bench, does)
        assert result.code == 0, result.err
        assert [launch["kernel_short"] for launch in bench.launches()] == ["triad"]
        assert [run["log"] for run in bench.manifest()["tool_runs"]] == ["output.txt", "output-2.txt"]

    def test_twice_is_an_error_with_the_reason(self, bench: Bench) -> None:
        result = self.profile(bench, "echo Connection to the Agent lost.")
        assert result.code == 1
        assert "or lost it, as happens where several begin at once" in result.err
        assert "Profile again" in result.err
        assert self.beginnings(bench) == 2

    def test_but_a_recording_says_how_to_give_it_its_importer(self, bench: Bench) -> None:
        result = self.profile(bench, ': > "$out.qdstrm"')
        assert result.code == 1
        assert "only the raw recording (.qdstrm)" in result.err
        assert "ln -sfn" in result.err

    def test_and_no_output_points_to_its_log(self, bench: Bench) -> None:
        result = self.profile(bench, "echo the program is done")
        assert result.code == 1
        assert "left no report, though it ended with exit code 0" in result.err
        assert "ln -sfn" not in result.err
        assert "output-2.txt" in result.err

    def test_because_it_was_stopped_is_not_started_again(self, bench: Bench) -> None:
        result = self.profile(bench, "trap 'exit 0' TERM INT\n/bin/sleep 30 & wait", "--timeout", "1")
        assert result.code == 1
        assert self.beginnings(bench) == 1
        assert len(bench.manifest()["tool_runs"]) == 1


def test_unbalanced_quotes_in_arguments_for_ncu_are_refused(bench: Bench) -> None:
    result = bench.profile("asked", "--ncu-args", "--set 'full")
    assert (result.code, "Traceback" in result.err) == (2, False)
    assert "--ncu-args --set 'full could not be split into words" in result.err


def test_a_log_that_cannot_be_written_is_not_blamed_on_the_tool(bench: Bench) -> None:
    bench.run.mkdir()
    (bench.run / "logs").symlink_to(bench.folder / "nowhere")
    result = bench.profile("asked")
    assert result.code == 1
    assert "could not be started" not in result.err
