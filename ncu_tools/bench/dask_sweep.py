"""A sweep measured by dask's workers: each point alone on a GPU or the CPU of a worker's machine.

All processes of a point run on one machine. A worker that dies while measuring is replaced by another, which measures
the point again.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ncu_launch.bench.gpu.device_locks import CPU, environment_of, turn, visible_gpus
from ncu_launch.bench.latency_statistics import Effort
from ncu_launch.bench.sweep import BenchPoint, Environment, Row, rows_of, unmeasured
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.atomic_files import write_whole
from ncu_launch.targets.user_functions import in_any_folder
from ncu_parsers.datasets.dask_engine import LOCAL, Placement, dask_engine

GPU_RESOURCE = "GPU"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables that dask sets to 1 for its workers; a sweep by dask uses as many threads as one without dask."""
LONGEST_LOG = 1 << 20
FIRST_LOG = "point-0001"
"""Stem of the logs that `rows_of` writes for the only point in a folder."""


@dataclass(frozen=True)
class Job:
    """A point, and how a worker measures it.

    `turns` is the folder of the device locks; None is the worker's folder of temporary files.
    """

    point: BenchPoint
    effort: Effort
    timeout: float
    processes: int
    environment: Environment
    turns: str | None

    def __str__(self) -> str:
        return self.point.name


@dataclass(frozen=True)
class WorkerDevices:
    """The devices of a worker: the GPUs that it sees, and whether it declares the resource GPU."""

    gpus: list[str]
    declares_gpu: bool


Measured = tuple[Row, dict[str, bytes]]
"""The row of a point, and log name -> output of its processes."""


def rows_by_dask(
    where: str, requested: Sequence[BenchPoint], effort: Effort, timeout: float, processes: int, logs: Path
) -> Iterator[Row]:
    """Yield the row of each point as soon as one of the workers named by `where` has measured it; logs go into `logs`.

    A point on which several workers died has the outcome crashed. If the iteration is left early, the processes of
    points in progress are ended.

    Raises `NcuBenchError` without dask, without its scheduler, and if a GPU is requested and no worker sees one.
    """
    threads = {name: os.environ.get(name) for name in THREADS}
    first = 1 + len(list(logs.glob("point-*.txt")))
    expected = {point.name: (point, f"point-{number:04}") for number, point in enumerate(requested, first)}
    turns = tempfile.gettempdir() if where == LOCAL else None
    jobs = [Job(_in_any_folder(point), effort, timeout, processes, threads, turns) for point in requested]
    with dask_engine(where) as engine:
        workers = engine.on_each_worker(_seen)
        placed = [(job, placement(job.point.workload.device, workers)) for job in jobs]
        for job, found in engine.as_finished(_measured, placed):
            yield _kept(*expected[job.point.name], found, logs)


def placement(device: str, workers: Mapping[str, WorkerDevices]) -> Placement:
    """Which workers may measure on a device: cpu, cuda, or auto, which is a GPU if any worker has one.

    If workers declare a resource GPU, as `dask worker --resources GPU=1` does, dask gives each of them as many points
    at a time as it declares, including workers that join later. Raises `NcuBenchError` if a GPU is requested and none
    is seen.
    """
    if device == CPU:
        return {}
    if any(worker.declares_gpu for worker in workers.values()):
        return {"resources": {GPU_RESOURCE: 1}}
    with_gpus = [address for address, worker in workers.items() if worker.gpus]
    if with_gpus:
        return {"workers": with_gpus}
    if device != "cuda":
        return {}
    if not workers:  # a cluster that grows on demand
        return {"resources": {GPU_RESOURCE: 1}}
    raise NcuBenchError(
        f"None of the {len(workers)} dask workers sees an NVIDIA GPU, which --on cuda asks for.",
        "They run on machines without one, or without a driver.",
        "Start workers where the GPUs are: dask worker ADDRESS --resources GPU=1, or measure with --on cpu.",
    )


def _in_any_folder(point: BenchPoint) -> BenchPoint:
    """The point with a target path that is valid in another working directory."""
    return replace(point, workload=replace(point.workload, target=in_any_folder(point.workload.target)))


# ---------------------------------------------------------------------------------------------------- on the worker


def _seen(worker: Any) -> WorkerDevices:
    return WorkerDevices(visible_gpus(), GPU_RESOURCE in worker.state.total_resources)


def _measured(job: Job) -> Measured | None:
    """Measure a job on a worker; None if it was cancelled."""
    stopped = _stopped()
    devices = [] if job.point.workload.device == CPU else visible_gpus()
    try:
        with tempfile.TemporaryDirectory(prefix="ncu-bench-logs-") as name, turn(devices, stopped, job.turns) as device:
            environment = {**job.environment, **environment_of(device)}
            rows = rows_of(
                [job.point], job.effort, job.timeout, Path(name), on_stage=lambda point, stage: None,
                processes=job.processes, environment=environment, should_end=stopped,
            )  # fmt: skip
            *_, row = rows
            return row, {file.name: _ends_of(file) for file in sorted(Path(name).iterdir())}
    except KeyboardInterrupt:
        return None


def _stopped() -> Callable[[], str | None]:
    """Return a function that gives the reason to end this worker's task, or None: dask drops tasks of stopped
    sweeps."""
    from distributed import get_worker

    worker = get_worker()
    return partial(_reason_to_end, worker.state, worker.get_current_task())


def _reason_to_end(state: Any, key: str) -> str | None:
    task = state.tasks.get(key)
    return "the sweep was stopped" if task is None or task.state == "cancelled" else None


def _ends_of(log: Path) -> bytes:
    """The output of a process; only its beginning and end if it exceeds a megabyte."""
    size, half = log.stat().st_size, LONGEST_LOG // 2
    with log.open("rb") as stream:
        if size <= LONGEST_LOG:
            return stream.read()
        beginning = stream.read(half)
        stream.seek(size - half)
        return beginning + f"\n[{size - LONGEST_LOG} bytes are left out here]\n".encode() + stream.read()


# ------------------------------------------------------------------------------------------------------------- here


def _kept(point: BenchPoint, stem: str, found: Measured | NcuBenchError | None, logs: Path) -> Row:
    """The row of a point with its requested target, and its logs stored under their own names in the run folder."""
    if found is None or isinstance(found, NcuBenchError):
        error = found or NcuBenchError(f"{point.name} was given up by its dask worker.")
        write_whole(logs / f"{stem}.txt", f"{error.paragraph}\n".encode())
        return unmeasured(point, error.paragraph, logs / f"{stem}.txt")
    row, texts = found
    for name, text in texts.items():
        write_whole(logs / name.replace(FIRST_LOG, stem), text)
    notes = [note.replace(FIRST_LOG, stem) for note in row.get("notes") or []]
    log = row["log"].replace(FIRST_LOG, stem)
    return {**row, "target": point.workload.target, "log": log, "notes": notes}
