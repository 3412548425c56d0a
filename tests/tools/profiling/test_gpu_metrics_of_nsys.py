"""profile --tool nsys --gpu-metrics: the option, what is refused, and what nsys says where it may not sample.

A script stands in for nsys and nvidia-smi. Its timeline is made up; the messages are those that users of nsys report.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.errors import WrongUsage
from ncu_launch.profile.plan import NO_GPU_TO_SAMPLE, Request, make_plan
from ncu_launch.profilers.command_line import NEWEST, NsysOptions, nsys_command
from ncu_launch.profilers.installed_tools import Gpu, Tool, ask, find_tool
from ncu_launch.profilers.rank_environment import Place
from ncu_launch.profilers.sampling.power_readings import read_readings
from ncu_launch.profilers.tool_failures import recognise

from tests.support import stand_in_nvml
from tests.support.called_here import called_here
from tests.support.installed import needs_nsys
from tests.support.ran import ran
from tests.support.stand_in_nsys import REPORT, write_nsys, write_nvidia_smi
from tests.support.timelines import KERNELS, database, gpu_metric_names, gpu_metric_samples, kernel
from tests.tools.cli.test_cli import Result
from tests.whole.test_profile_with_a_stand_in import MAIN, Bench

US = 1000
PERMISSION = (
    "echo 'Illegal --gpu-metrics-devices argument: all.'\n"
    "echo 'Insufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM.'\nexit 1\n"
)
IN_USE = (
    "echo 'Illegal --gpu-metrics-devices usage.'\necho 'None of the installed GPUs are supported:'\n"
    "echo '  NVIDIA L40S - Already under profiling'\nexit 1\n"
)
UNSUPPORTED = "echo 'GPU Metrics: None of the installed GPUs are supported:'\necho '  Tesla P4'\nexit 1\n"
ONE_GPU = (Gpu(0, "NVIDIA H100", "9.0", "570.86"),)


class Traced(Bench):
    """A machine with a stand-in for nsys, which follows a script, and one for nvidia-smi, which lists an H100."""

    def trace(self, does: str, *options: str, samples: bool = True, gpu: bool = True, work: bool = True) -> Result:
        times = list(range(0, 2_000 * US, 100 * US))
        tables: dict[str, Any] = {KERNELS: [kernel(0, 1, end=1_000 * US)] if work else []}
        tables["TARGET_INFO_GPU"] = [{"id": 0, "cuDevice": 0, "name": "NVIDIA H100"}]
        if samples:
            tables["TARGET_INFO_GPU_METRICS"] = gpu_metric_names("DRAM Read Bandwidth [Throughput %]")
            tables["GPU_METRICS"] = gpu_metric_samples(times, [60] * 20)
        timeline = database(self.folder / "timeline.sqlite", tables, ["triad"])
        write_nsys(self.folder / "empty", timeline, does)
        if gpu:
            write_nvidia_smi(self.folder / "empty")
        command = [*MAIN, "profile", "--tool", "nsys", *options, "-o", str(self.run), "--", "python", "-c", "pass"]
        return self.call(command, self.environment("asked"))


@pytest.fixture
def bench(tmp_path: Path) -> Traced:
    return Traced(tmp_path)


class TestARun:
    def test_asks_nsys_for_samples_and_keeps_them_beside_the_kernels(self, bench: Traced) -> None:
        result = bench.trace(REPORT, "--gpu-metrics")
        assert result.code == 0, result.err
        (run,) = bench.manifest()["tool_runs"]
        at = run["command"].index("--gpu-metrics-devices")
        assert run["command"][at : at + 4] == ["--gpu-metrics-devices", "all", "--gpu-metrics-frequency", "10000"]
        (launch,) = bench.launches()
        assert (launch["sampled_dram_read_pct"], launch["sampled_samples"]) == (60, 10)
        shown = called_here("hotspots", str(bench.run), "--columns", "sampled", cwd=bench.folder)
        assert "60.0 %" in shown.out

    def test_that_gives_no_sample_says_so(self, bench: Traced) -> None:
        result = bench.trace(REPORT, "--gpu-metrics", "200", samples=False)
        assert result.code == 0, result.err
        assert "GPU metrics were asked for, and the timeline has none; ncu-bench doctor says what" in result.err

    def test_that_asks_for_no_samples_misses_none(self, bench: Traced) -> None:
        result = bench.trace(REPORT, samples=False)
        assert result.code == 0, result.err
        assert "GPU metrics" not in result.err

    def test_without_a_gpu_asks_for_none(self, bench: Traced) -> None:
        result = bench.trace(REPORT, "--gpu-metrics", gpu=False, samples=False)
        assert f"note: {NO_GPU_TO_SAMPLE}" in result.err
        assert not any("gpu-metrics" in word for run in bench.manifest()["tool_runs"] for word in run["command"])

    @pytest.mark.parametrize(
        ("does", "means", "advice"),
        [
            (PERMISSION, "may not read the GPU's performance counters", "nsys traces without it, if --gpu-metrics is"),
            (IN_USE, "another profiler holds the performance counters", "dcgmi profile --pause"),
            (UNSUPPORTED, "nsys cannot sample GPU metrics here", "nsys profile --gpu-metrics-devices=help"),
        ],
        ids=["permission", "in use", "not supported"],
    )
    def test_that_nsys_refuses_says_what_to_do(self, bench: Traced, does: str, means: str, advice: str) -> None:
        result = bench.trace(does, "--gpu-metrics")
        assert result.code == 1
        assert means in result.err
        assert advice in result.err


class TestAPlan:
    ASKED = Request((), ("flops", "dram"), program=("./app",), tool="nsys", gpu_metrics=10_000)

    def test_of_another_tool_is_refused(self) -> None:
        with pytest.raises(WrongUsage, match="GPU metrics are sampled by nsys"):
            make_plan(replace(self.ASKED, tool="operators"), Path("run"), dry=True)
        with pytest.raises(WrongUsage, match="Here ncu runs"):
            make_plan(replace(self.ASKED, tool="ncu"), Path("run"), dry=True)

    def test_of_an_nsys_in_each_rank_is_refused(self) -> None:
        ranks = replace(self.ASKED, ranks=4, place=Place(1, 4, 1, 4, "torchrun", "host"))
        with pytest.raises(WrongUsage, match="by one nsys of a machine only"):
            make_plan(ranks, Path("run"), dry=True)
        around = make_plan(replace(ranks, tool_per="node", place=None), Path("run"), dry=True)
        assert "--gpu-metrics-frequency" in around.command

    def test_takes_the_option_of_the_nsys_that_is_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        old = Tool("nsys", "/opt/nsys", (2022, 4), "2022.4")
        monkeypatch.setattr("ncu_launch.profile.plan.find_tool", lambda name, path=None: old)
        monkeypatch.setattr("ncu_launch.profile.plan.gpus", lambda: list(ONE_GPU))
        assert make_plan(self.ASKED, Path("run")).command == (
            "/opt/nsys", "profile", "--trace", "cuda,nvtx", "--sample", "none", "--cpuctxsw", "none",
            "--force-overwrite", "true", "--output", "run/reports/timeline", "--cuda-graph-trace", "node",
            "--gpu-metrics-device", "all", "--gpu-metrics-frequency", "10000", "./app",
        )  # fmt: skip


class TestTheOption:
    def test_takes_a_rate_or_none(self) -> None:
        for words, rate in ((["--gpu-metrics"], "10000"), (["--gpu-metrics", "200000"], "200000")):
            done = ran("profile", "resnet18", "--tool", "nsys", "--dry-run", *words)
            assert done.exit_code == 0, done.stderr
            command = shlex.split(done.stdout)
            assert command[command.index("--gpu-metrics-frequency") + 1] == rate

    @pytest.mark.parametrize("rate", ["9", "200001"])
    def test_refuses_a_rate_that_nsys_does_not_take(self, rate: str) -> None:
        done = ran("profile", "resnet18", "--tool", "nsys", "--gpu-metrics", rate, "--dry-run")
        assert done.exit_code == 2
        assert "10<=x<=200000" in done.stderr


@needs_nsys
def test_real_nsys_refuses_only_the_spelling_of_another_version() -> None:
    nsys = find_tool("nsys")
    assert nsys is not None
    right = NsysOptions("unused", nsys.version or NEWEST, nsys.path, gpu_metrics_hz=10_000)
    spelled = [word for word in nsys_command(right, []) if word.startswith("--gpu-metrics-device")]
    answer = ask([nsys.path, "profile", f"{spelled[0]}=help"])
    assert answer is not None
    assert "unrecognised option" not in answer[1]
    if nsys.version is not None and nsys.version < (2024, 1):
        refused = ask([nsys.path, "profile", "--gpu-metrics-devices=all", "true"])
        assert refused is not None
        failure = recognise(refused[1].splitlines())
        assert failure is not None
        assert failure[0].slug == "bad-command-line"


class TestPower:
    """profile --power, with a stand-in for NVML whose numbers are made up."""

    @pytest.fixture(autouse=True)
    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", stand_in_nvml)

    def test_is_sampled_while_the_program_runs(self, bench: Traced) -> None:
        result = bench.trace("/bin/sleep 1.2\n" + REPORT, "--power")
        assert result.code == 0, result.err
        found = bench.manifest()["sampled"]["0"]
        assert found["power_w"] == pytest.approx(stand_in_nvml.POWER_W, rel=0.25)
        assert found["seconds"] == pytest.approx(found["energy_j"] / found["power_w"])
        assert found["gpm"]["gpm_tensor_active_pct"] == 61.25
        words = "note: GPU 0 sampled through NVML while the whole program ran, start and warm-up too, whoever used it: "
        assert words + f"{found['readings']} readings over " in result.err
        assert "clocks held down by: power cap, SMs 97.5 %, tensor 61.2 %, DRAM 33 %" in result.err
        kept = read_readings(bench.run)["0"]
        assert len(kept) == found["readings"]
        assert kept[-1].utc_ns - kept[0].utc_ns == pytest.approx(found["seconds"] * 1e9, rel=0.01)

    @pytest.mark.parametrize(
        ("behaviour", "says"),
        [("good", " W by the GPU's energy counter, "), ("old", "no power: its energy counter did not move")],
    )
    def test_is_told_where_no_gpu_work_was_traced(
        self, bench: Traced, monkeypatch: pytest.MonkeyPatch, behaviour: str, says: str
    ) -> None:
        monkeypatch.setenv("STAND_IN_NVML", behaviour)
        result = bench.trace("/bin/sleep 0.3\n" + REPORT, "--power", work=False)
        assert result.code == 0, result.err
        assert "timeline without GPU work" in result.err
        assert "note: GPU 0 sampled through NVML while the whole program ran" in result.err
        assert says in result.err

    def test_is_none_if_not_asked_for(self, bench: Traced) -> None:
        bench.trace(REPORT)
        assert bench.manifest()["sampled"] == {}
        assert read_readings(bench.run) == {}

    def test_is_refused_where_it_says_nothing_of_the_program(self) -> None:
        asked = Request((), ("flops",), program=("./app",), tool="ncu", power=True)
        with pytest.raises(WrongUsage, match="ncu replays"):
            make_plan(asked, Path("run"), dry=True)
        with pytest.raises(WrongUsage, match="not for ranks"):
            make_plan(replace(asked, tool="nsys", ranks=2), Path("run"), dry=True)

    def test_without_the_package_is_an_error_before_the_run(
        self, bench: Traced, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", None)
        result = bench.trace(REPORT, "--power")
        assert result.code == 1
        assert "pip install '.[nvml]'" in result.err
        assert not bench.run.exists()


def test_a_budget_samples_in_its_timeline_alone() -> None:
    asked = Request((), ("dram",), program=("./app",), gpu_metrics=10_000, power=True)
    traced = asked.to_trace()
    assert (traced.tool, traced.gpu_metrics, traced.power) == ("nsys", 10_000, True)
