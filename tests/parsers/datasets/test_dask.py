"""Work distributed by real dask: on a local cluster, and on a scheduler and two workers, one of which is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.errors import NcuBenchError
from ncu_parsers.datasets.dataset_layout import find_dataset
from ncu_parsers.datasets.engine import Engine, InOrder
from ncu_parsers.parse.parse_dataset import parse_into_dataset
from ncu_parsers.sources.sources import Source

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.kernel_cache import hotspots_of
from ncu_tools.runs.loading import load, on_disk, together
from tests.conftest import ROOT, SAMPLES
from tests.parsers.datasets.test_datasets import bench, shown, sweeps

dask = pytest.importorskip("dask", reason="dask is not installed (pip install '.[dask]')")
distributed = pytest.importorskip("distributed", reason="dask's schedulers are not installed (pip install '.[dask]')")

from ncu_parsers.datasets import dask_engine as dask_engines  # noqa: E402 - only where dask is
from ncu_parsers.datasets.dask_engine import DaskEngine, dask_engine  # noqa: E402 - only where dask is

pytestmark = pytest.mark.slow

REPORTS = 12
TWO_DEATHS = {"distributed.scheduler.allowed-failures": 1}
"""Items are given up sooner than by default: starting a worker takes a second or two."""
PATHS = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(map(str, (ROOT, Path(__file__).parent, ROOT / "launch", ROOT / "parsers"))),
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[Source]:
    """Small reports of several dialects, one invalid file, and one for which ncu had no permission."""
    folder = tmp_path_factory.mktemp("reports") / "node"
    folder.mkdir()
    samples = ("d01-wide-raw.csv", "d02-long-rules.csv", "d18-text.txt")
    for number in range(REPORTS):
        sample = SAMPLES / samples[number % len(samples)]
        (folder / f"{number:02d}{sample.suffix}").write_bytes(sample.read_bytes())
    (folder / "bad.csv").write_text("no report\n", encoding="utf-8")
    (folder / "denied.csv").write_text("==ERROR== ERR_NVGPUCTRPERM\n", encoding="utf-8")
    return [Source(str(file)) for file in sorted(folder.iterdir())]


@pytest.fixture(scope="module")
def alone(reports: list[Source], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset that one process makes."""
    root = tmp_path_factory.mktemp("alone") / "fleet"
    parse_into_dataset(str(root), reports, engine=InOrder())
    return root


def files_of(root: Path) -> dict[str, bytes]:
    return {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}


def assert_same(root: Path, alone: Path) -> None:
    """Every file of a dataset equals that of one process byte for byte; none is missing, none is extra."""
    assert files_of(root) == files_of(alone)


@pytest.fixture(scope="module")
def local() -> Iterator[Engine]:
    """Two processes, as --dask local starts them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PATHS.items():
            patch.setenv(name, value)
        patch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
        with dask.config.set(TWO_DEATHS), dask_engine("local") as engine:
            yield engine


class TestALocalCluster:
    def test_makes_the_same_dataset_as_one_process(
        self, local: Engine, reports: list[Source], alone: Path, tmp_path: Path
    ) -> None:
        heard: list[Source] = []
        result = parse_into_dataset(str(tmp_path / "fleet"), reports, engine=local, reading=heard.append)
        assert heard == reports
        assert [report.source for report in result.reports] == [source.path for source in reports[:-2]]
        assert list(result.refused) == [source.path for source in reports[-2:]]
        assert_same(tmp_path / "fleet", alone)

    @pytest.mark.parametrize("group", ["name", "grid"])
    def test_sums_to_the_same_digits(self, local: Engine, alone: Path, group: str) -> None:
        shared, one = on_disk(str(alone), local), on_disk(str(alone))
        assert shared is not None
        assert one is not None
        assert hotspots_of(shared, group=group) == hotspots_of(one, group=group)

    def test_reads_the_same_table(self, local: Engine, alone: Path) -> None:
        shared, one = load(str(alone), engine=local), load(str(alone))
        assert shared.table.equals(one.table)
        assert shared.notes == one.notes

    def test_takes_several_runs_as_one(self, local: Engine, alone: Path) -> None:
        twice = hotspots_of(together([str(alone), str(alone)], local)).rows
        whole = load(str(alone)).table
        once = {row.kernel: row.launches for row in hotspots(whole, ceilings_of(whole)).rows}
        assert {row.kernel: row.launches for row in twice} == {name: 2 * count for name, count in once.items()}

    def test_returns_an_error_raised_by_the_function_in_place_of_its_result(self, local: Engine) -> None:
        found = list(local.map(_odd_only, [1, 2, 3]))
        assert found[::2] == [1, 3]
        assert isinstance(found[1], NcuBenchError)
        assert (found[1].what, found[1].advice) == ("2 is even.", "Say an odd one.")

    def test_returns_results_in_order_also_if_a_task_takes_several_items(self, local: Engine) -> None:
        items = range(64 * dask_engines.MANY_ITEMS + 3)
        found = list(local.map(_odd_only, items))
        assert found[1::2] == list(items[1::2])
        assert [one.what for one in found[::2] if isinstance(one, NcuBenchError)] == [
            f"{n} is even." for n in items[::2]
        ]

    @pytest.mark.nightly
    def test_an_item_that_kills_every_worker_becomes_an_error(self, local: Engine) -> None:
        found = list(local.map(_die_of_seven, [5, 6, 7]))
        assert found[:2] == [5, 6]
        assert isinstance(found[2], NcuBenchError)
        assert "dask workers died" in found[2].paragraph


@pytest.mark.nightly
@pytest.mark.parametrize(
    "tasks_of_a_worker",
    [pytest.param(32, id="a task each"), pytest.param(2, id="two in a task")],
)
def test_items_beside_one_that_kills_their_only_worker_are_still_done(
    monkeypatch: pytest.MonkeyPatch, tasks_of_a_worker: int
) -> None:
    """dask assigns items to a worker ahead, and blames each one that was there when the worker died."""
    monkeypatch.setattr(dask_engines, "TASKS_OF_A_WORKER", tasks_of_a_worker)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    with dask.config.set(TWO_DEATHS), dask_engine("local") as engine:
        found = list(engine.map(_die_of_seven, [6, 7, 8, 9]))
        assert found[0] == 6
        assert found[2:] == [8, 9]
        assert isinstance(found[1], NcuBenchError)
        assert "2 dask workers died" in found[1].paragraph
        finished = dict(engine.as_finished(_die_of_seven, [(6, {}), (7, {}), (8, {})]))
        assert {6: 6, 8: 8}.items() <= finished.items()
        assert isinstance(finished[7], NcuBenchError)


@pytest.mark.nightly
def test_the_environment_is_restored_also_after_a_worker_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nannies are part of this process, and set its variables for each worker that they start."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    before = dict(os.environ)
    with dask.config.set(TWO_DEATHS), dask_engine("local") as engine:
        assert isinstance(next(iter(engine.map(_die_of_seven, [7]))), NcuBenchError)
    assert dict(os.environ) == before


def _odd_only(number: int) -> int:
    if number % 2 == 0:
        raise NcuBenchError(f"{number} is even.", advice="Say an odd one.")
    return number


def _die_of_seven(number: int) -> int:
    if number == 7:
        os._exit(9)
    return number


# ------------------------------------------------------------------------------------------ a cluster of processes


class Cluster:
    """A scheduler and workers over loopback, each a process started as dask's users start them."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self._environment = {**PATHS, **environment}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._log = (folder / "cluster.log").open("wb")
        self.file = folder / "scheduler.json"
        self.workers: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        address = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        self._start("dask_scheduler", *address, "--scheduler-file", str(self.file))
        self.wait_for(lambda: self.file.is_file() and self.file.read_text("utf-8").endswith("}"))
        self.workers += [self._worker() for _ in range(2)]
        with distributed.Client(self.address, set_as_default=False, timeout=30) as client:
            client.wait_for_workers(2, timeout=30)

    @property
    def address(self) -> str:
        return str(json.loads(self.file.read_text("utf-8"))["address"])

    def _worker(self) -> subprocess.Popen[bytes]:
        return self._start("dask_worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard")

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{program}", *arguments]
        process = subprocess.Popen(command, env=self._environment, stdout=self._log, stderr=subprocess.STDOUT)
        self._processes.append(process)
        return process

    @staticmethod
    def wait_for(true: Any, seconds: float = 90) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, "the cluster does not come up"
            time.sleep(0.02)

    def end(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._log.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        started.begin()
        yield started
    finally:
        started.end()


@pytest.fixture
def scheduler(local: Engine) -> str:
    """The address of the local cluster, as users give that of their own."""
    assert isinstance(local, DaskEngine)
    return str(local._client.scheduler.address)


@pytest.mark.nightly
def test_commands_print_the_same_as_with_one_process(scheduler: str, alone: Path, tmp_path: Path) -> None:
    fleet = str(alone)
    sweeps(tmp_path)
    for command in (
        ["hotspots", fleet],
        ["hotspots", fleet, "--diagnose"],
        ["roofline", fleet],
        ["roofline", fleet, "--points", "phases", "--levels", "all"],
        ["roofline", fleet, f"{fleet}/", "--arrows"],
        ["compare", fleet, f"{fleet}/"],
        ["bench", str(tmp_path)],
    ):
        assert shown(*command, "--dask", scheduler) == shown(*command)


def test_a_report_is_refused_as_a_dataset(scheduler: str) -> None:
    result = bench("hotspots", str(SAMPLES / "d01-wide-raw.csv"), "--dask", scheduler)
    assert result.exit_code == 2
    assert "shares out the work on datasets" in result.stderr


@pytest.mark.parametrize(
    "command", [["hotspots", "nowhere"], ["roofline", "nowhere/"], ["compare", "nowhere", "there"]]
)
def test_a_missing_path_is_not_called_a_report(scheduler: str, command: list[str]) -> None:
    result = bench(*command, "--dask", scheduler)
    assert result.exit_code == 1
    assert f"{command[1]} does not exist" in result.stderr


def _slowly(item: Any) -> Any:
    from ncu_parsers.parse.parse_dataset import write_report

    time.sleep(0.1)
    return write_report(item)


@pytest.mark.nightly
def test_after_a_worker_is_killed_nothing_is_lost_or_doubled(
    cluster: Cluster, reports: list[Source], alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ncu_parsers.parse import parse_dataset

    killed: list[int] = []

    def kill_one(source: Source) -> None:
        if source == reports[1] and not killed:
            killed.append(cluster.workers[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(parse_dataset, "write_report", _slowly)
    root = tmp_path / "fleet"
    with dask_engine(cluster.address) as engine:
        result = parse_into_dataset(str(root), reports, engine=engine, reading=kill_one)
    assert cluster.workers[0].wait() == -signal.SIGKILL
    assert len(result.reports) == REPORTS
    assert list(result.refused) == [source.path for source in reports[-2:]]
    assert_same(root, alone)
    dataset = find_dataset(str(root))
    assert dataset is not None
    assert len(dataset.partitions) == REPORTS


# ------------------------------------------------------------------------------------------------------------ errors


def test_a_scheduler_that_does_not_answer_is_an_error(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncu_parsers.datasets.dask_engine.SECONDS_TO_ANSWER", 1)
    result = bench("hotspots", str(alone), "--dask", "tcp://127.0.0.1:9")
    assert result.exit_code == 1
    assert "No dask scheduler answers at tcp://127.0.0.1:9" in result.stderr


def test_without_dask_the_error_names_the_extra(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = bench("hotspots", str(alone), "--dask", "local")
    assert result.exit_code == 1
    assert "pip install '.[dask]'" in result.stderr
