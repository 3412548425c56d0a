"""Sweeps measured by dask's workers, for real: a scheduler and two workers over loopback, here without a GPU.

What workers with GPUs do is tested with a stand-in for nvidia-smi, which lists two.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.bench.gpu.device_locks import environment_of, turn, visible_gpus
from ncu_launch.bench.sweep import Sweep, points
from ncu_launch.errors import NcuBenchError
from ncu_launch.profilers.installed_tools import Gpu
from ncu_parsers.parquet.reader import read_bench
from ncu_parsers.schema.bench_table import bench_table

from ncu_tools.bench.dask_sweep import WorkerDevices, _kept, placement
from tests.parsers.datasets.test_datasets import bench

pytest.importorskip("distributed", reason="dask's schedulers are not installed (pip install '.[dask]')")

import itertools

from tests.parsers.datasets.test_dask import Cluster
from tests.support.installed import needs_torch

pytestmark = [pytest.mark.slow, needs_torch]

QUICK = ("--max-time", "0.05", "--warmup", "1", "--on", "cpu")

TARGETS = """
import atexit, os, time
from pathlib import Path
from torch import nn, randn
here = Path(__file__).parent

def taking_turns(batch_size):
    file = here / f"turn-{os.getpid()}"
    began = time.time()
    atexit.register(lambda: file.write_text(f"{began} {time.time()}"))
    return nn.Linear(16, 8), randn(batch_size, 16)
def aborts():
    os.abort()
def says_its_gpu():
    print("may use", os.environ.get("CUDA_VISIBLE_DEVICES"))
    return nn.Linear(16, 8), randn(1, 16)
def hangs_once():
    (here / "pids").open("a").write(f"{os.getpid()}\\n")
    while len((here / "pids").read_text().split()) == 1:
        time.sleep(0.05)
    return nn.Linear(16, 8), randn(1, 16)
"""

TWO_GPUS = """#!/bin/sh
echo "0, Stand-in GPU, 9.0, 550.54, 81559"
echo "1, Stand-in GPU, 9.0, 550.54, 81559"
"""


@pytest.fixture(scope="module")
def stand_in_nvidia_smi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stand-in")
    (folder / "nvidia-smi").write_text(TWO_GPUS, encoding="utf-8")
    (folder / "nvidia-smi").chmod(0o755)
    return folder


def clusters(folder: Path, **environment: str) -> Iterator[Cluster]:
    started = Cluster(folder, **environment)
    try:
        started.begin()
        yield started
    finally:
        started.end()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    yield from clusters(tmp_path_factory.mktemp("cluster"))


@pytest.fixture
def targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "targets.py").write_text(TARGETS, encoding="utf-8")
    return tmp_path


def begun(target: str, cluster: Cluster) -> subprocess.Popen[str]:
    """A sweep as a process of its own."""
    command = [sys.executable, "-c", "from ncu_tools.cli import main; main()", "bench", target, "-o", "sweep"]
    return subprocess.Popen([*command, *QUICK, "--dask", cluster.address], stderr=subprocess.PIPE, text=True)


def rows(folder: Path) -> list[dict[str, Any]]:
    return sorted(read_bench(folder / "bench.parquet").to_pylist(), key=lambda row: str(row["point"]))


@pytest.mark.nightly
class TestACluster:
    @pytest.mark.parametrize("processes", [1, 2])
    def test_measures_every_point_once_and_one_at_a_time_on_a_cpu(
        self, cluster: Cluster, targets: Path, processes: int
    ) -> None:
        result = bench(
            "bench", "targets.py:taking_turns", "--batch-size", "1,2", *QUICK, "--processes", str(processes), "-o", "sweep",
            "--dask", str(cluster.file),
        )  # fmt: skip
        assert result.exit_code == 0, result.stderr
        found = rows(targets / "sweep")
        assert [(row["target"], row["batch_size"], row["outcome"]) for row in found] == [
            ("targets.py:taking_turns", batch, "ok") for batch in (1, 2)
        ]
        assert {len(row["process_means_ns"]) for row in found} == {processes}
        assert {row["host"] for row in found} == {platform.node()}
        logs = {file.name for file in (targets / "sweep" / "logs").iterdir()}
        assert logs == {f"point-000{number}{end}.txt" for number in (1, 2) for end in ("", "-2")[:processes]}
        turns = sorted(tuple(map(float, file.read_text("utf-8").split())) for file in targets.glob("turn-*"))
        assert len(turns) == 2 * processes
        assert all(ended <= began for (_, ended), (began, _) in itertools.pairwise(turns))

    def test_a_point_that_crashes_is_a_row_and_resume_measures_what_is_left(
        self, cluster: Cluster, targets: Path
    ) -> None:
        sweep = ("-o", "sweep", "--dask", cluster.address, *QUICK)
        assert bench("bench", "targets.py:aborts", *sweep).exit_code == 1
        result = bench("bench", "targets.py:aborts", "targets.py:says_its_gpu", *sweep, "--resume")
        assert "1 of 2 points is measured" in result.stderr
        crashed, measured = rows(targets / "sweep")
        assert (crashed["outcome"], crashed["log"]) == ("crashed", "point-0001.txt")
        assert "SIGABRT" in crashed["reason"]
        assert (measured["outcome"], measured["log"]) == ("ok", "point-0002.txt")
        assert "may use None" in (targets / "sweep" / "logs" / "point-0002.txt").read_text("utf-8")

    def test_without_a_gpu_refuses_to_measure_on_one(self, cluster: Cluster, targets: Path) -> None:
        result = bench("bench", "resnet18", "--on", "cuda", "-o", "sweep", "--dask", cluster.address)
        assert result.exit_code == 1
        assert "None of the 2 dask workers sees an NVIDIA GPU" in result.stderr
        assert list((targets / "sweep").iterdir()) == []

    def test_ends_running_points_when_the_sweep_is_stopped(self, cluster: Cluster, targets: Path) -> None:
        sweep = begun("targets.py:hangs_once", cluster)
        Cluster.wait_for(lambda: (targets / "pids").exists() and (targets / "pids").read_text("utf-8"))
        sweep.send_signal(signal.SIGINT)
        _, said = sweep.communicate(timeout=30)
        assert "1 of 1 point is left" in said
        assert sweep.returncode != 0
        (process,) = (targets / "pids").read_text("utf-8").split()
        Cluster.wait_for(lambda: not Path("/proc", process).exists())


@pytest.mark.nightly
def test_ctrl_c_ends_local_workers_without_output_and_leaves_no_temporary_folder(targets: Path, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    command = [sys.executable, "-c", "from ncu_tools.cli import main; main()", "bench", "targets.py:hangs_once"]
    sweep = subprocess.Popen(
        [*command, *QUICK, "-o", "sweep", "--dask", "local"], stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
    )  # fmt: skip
    Cluster.wait_for(lambda: (targets / "pids").exists() and (targets / "pids").read_text("utf-8"))
    os.killpg(sweep.pid, signal.SIGINT)  # a terminal sends it to the workers too
    _, said = sweep.communicate(timeout=60)
    assert sweep.returncode == 130
    assert said.splitlines() == ["1 of 1 point is left; the same command with -o sweep --resume goes on.", "Stopped."]
    assert [left.name for left in (tmp_path / "temporary").iterdir() if left.is_dir()] == []
    (process,) = (targets / "pids").read_text("utf-8").split()
    Cluster.wait_for(lambda: not Path("/proc", process).exists())


@pytest.mark.nightly
def test_a_point_whose_worker_is_killed_is_measured_by_another(targets: Path, tmp_path: Path) -> None:
    for cluster in clusters(tmp_path):
        sweep = begun("targets.py:hangs_once", cluster)
        Cluster.wait_for(lambda: (targets / "pids").exists() and (targets / "pids").read_text("utf-8"))
        (process,) = (targets / "pids").read_text("utf-8").split()
        os.kill(parent_of(int(process)), signal.SIGKILL)
        _, said = sweep.communicate(timeout=60)
        assert sweep.returncode == 0, said
    (row,) = rows(targets / "sweep")
    assert row["outcome"] == "ok"
    assert len(set((targets / "pids").read_text("utf-8").split())) == 2
    assert not Path("/proc", process).exists()


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[1])


@pytest.mark.nightly
def test_each_point_gets_a_gpu_of_its_own(targets: Path, tmp_path: Path, stand_in_nvidia_smi: Path) -> None:
    path = f"{stand_in_nvidia_smi}{os.pathsep}{os.environ['PATH']}"
    for cluster in clusters(tmp_path, PATH=path):
        result = bench(
            "bench", "targets.py:says_its_gpu", *QUICK[:-1], "auto", "-o", "sweep", "--dask", cluster.address
        )
        assert result.exit_code == 0, result.stderr
    assert "may use 0" in (targets / "sweep" / "logs" / "point-0001.txt").read_text("utf-8")


def test_a_lost_point_has_an_outcome_and_no_measured_values(tmp_path: Path) -> None:
    (point,) = points(Sweep(("gemm:64,64,64,fp32",)))
    lost = NcuBenchError("It was given up: 4 dask workers died of it in a row.", "Memory may have run out.")
    row = _kept(point, "point-0007", lost, tmp_path)
    assert (row["outcome"], row["reason"], row["log"]) == ("crashed", lost.paragraph, "point-0007.txt")
    assert (tmp_path / "point-0007.txt").read_text("utf-8") == f"{lost.paragraph}\n"
    (shown,) = bench_table([row]).to_pylist()
    assert [shown[name] for name in ("started", "seconds", "host", "latency_mean_ns")] == [None] * 4


class TestPlacement:
    """Which workers may measure a point, as keyword arguments for dask."""

    WITH, WITHOUT, DECLARED = WorkerDevices(["0"], False), WorkerDevices([], False), WorkerDevices(["0"], True)

    def test_a_cpu_point_can_run_on_every_worker(self) -> None:
        assert placement("cpu", {"a": self.WITH, "b": self.WITHOUT}) == {}

    @pytest.mark.parametrize("device", ["auto", "cuda"])
    def test_a_gpu_point_runs_on_workers_that_see_one(self, device: str) -> None:
        assert placement(device, {"a": self.WITH, "b": self.WITHOUT}) == {"workers": ["a"]}

    @pytest.mark.parametrize("device", ["auto", "cuda"])
    def test_a_gpu_point_runs_on_workers_that_declare_one_including_later_ones(self, device: str) -> None:
        assert placement(device, {"a": self.DECLARED, "b": self.WITH}) == {"resources": {"GPU": 1}}
        assert placement("cuda", {}) == {"resources": {"GPU": 1}}

    def test_auto_uses_the_cpu_if_no_worker_has_a_gpu(self) -> None:
        assert placement("auto", {"b": self.WITHOUT}) == {}

    def test_a_gpu_that_no_worker_has_is_refused(self) -> None:
        with pytest.raises(NcuBenchError, match="sees an NVIDIA GPU"):
            placement("cuda", {"b": self.WITHOUT})


class TestTurns:
    def test_each_gpu_is_locked_by_one_point_at_a_time(self, tmp_path: Path) -> None:
        gpus, folder = ["0", "1"], str(tmp_path)
        with ExitStack() as held:
            assert [held.enter_context(turn(gpus, lambda: False, folder)) for _ in gpus] == gpus
            with pytest.raises(KeyboardInterrupt):
                held.enter_context(turn(gpus, lambda: "nobody waits", folder))
        with turn(gpus, lambda: False, folder) as free:
            assert free == gpus[0]

    def test_an_error_while_holding_a_lock_is_raised_unchanged(self, tmp_path: Path) -> None:
        with pytest.raises(BlockingIOError, match="fork"), turn(["0"], lambda: False, str(tmp_path)):
            raise BlockingIOError("fork: try again")

    @pytest.mark.parametrize(
        ("named", "visible"),
        [("1,0", ["1", "0"]), ("0,-1,1", ["0"]), ("", []), ("NoDevFiles", []), (" 2 ,3", ["2", "3"])],
    )
    def test_use_the_gpus_visible_to_cuda(
        self, named: str, visible: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            "ncu_launch.bench.gpu.device_locks.gpus", lambda: [Gpu(at, "H200", "9.0", None) for at in range(4)]
        )
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
        assert visible_gpus() == visible

    def test_ends_with_the_process_that_holds_the_lock(self, tmp_path: Path) -> None:
        folder = str(tmp_path)
        program = (
            "import sys, time; from ncu_launch.bench.gpu.device_locks import turn\n"
            "with turn(['0'], lambda: False, sys.argv[1]): print(flush=True); time.sleep(60)"
        )
        other = subprocess.Popen([sys.executable, "-c", program, folder], stdout=subprocess.PIPE)
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(KeyboardInterrupt), turn(["0"], lambda: "at once", folder):
            pass
        other.kill()
        other.communicate()
        with turn(["0"], lambda: False, folder) as free:
            assert free == "0"

    @pytest.mark.parametrize(
        ("visible", "gpus"), [(None, ["0", "1"]), ("1", ["1"]), ("GPU-5a, GPU-5b", ["GPU-5a", "GPU-5b"]), ("-1", [])]
    )
    def test_use_the_gpus_in_cuda_visible_devices(
        self, visible: str | None, gpus: list[str], stand_in_nvidia_smi: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(stand_in_nvidia_smi), prepend=os.pathsep)
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert visible_gpus() == gpus

    def test_name_the_gpu_in_the_numbering_that_nvidia_smi_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        assert environment_of("1") == {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
        assert environment_of("1") == {"CUDA_VISIBLE_DEVICES": "1"}
        assert environment_of("cpu") == {}
