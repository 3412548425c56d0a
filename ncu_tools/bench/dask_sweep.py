"""A sweep whose points are measured by dask's workers: each on a machine where it has a GPU, or the CPU, for itself.

All processes of a point run on one machine. A worker that dies while it measures is replaced by another, which measures
the point anew.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ncu_launch.bench.device_locks import CPU, environment_of, turn, visible_gpus
from ncu_launch.bench.latency_statistics import Effort
from ncu_launch.bench.sweep import BenchPoint, Environment, Row, rows_of, unmeasured
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.atomic_files import write_whole
from ncu_launch.targets.user_functions import in_any_folder

from ncu_tools.runs.dask_engine import LOCAL, Placement, dask_engine

GPU_RESOURCE = "GPU"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""dask sets these to 1 for its workers; a sweep by dask is to use as many threads as one without."""
LONGEST_LOG = 1 << 20
FIRST_LOG = "point-0001"
"""What `rows_of` calls the logs of the only point in a folder, without the end."""


@dataclass(frozen=True)
class Job:
    """A point, and how a worker is to measure it.

    `turns` is the folder where those on its machine take turns, None for that of its temporary files.
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
class Seen:
    """What a worker has: the GPUs that it sees, and whether it was started with a resource GPU."""

    gpus: list[str]
    declares_gpu: bool


Measured = tuple[Row, dict[str, bytes]]
"""The row of a point, and what its processes printed, by the name of the log."""


def rows_by_dask(
    where: str, asked: Sequence[BenchPoint], effort: Effort, timeout: float, processes: int, logs: Path
) -> Iterator[Row]:
    """The row of each point as soon as it is measured by the workers that `where` names, logs written into `logs`.

    A point on which several workers died has the outcome crashed. When the iteration is left early, the processes of
    points that are being measured are ended.

    Raises `NcuBenchError` without dask, without its scheduler, and when a GPU is asked for and no worker sees one.
    """
    threads = {name: os.environ.get(name) for name in THREADS}
    first = 1 + len(list(logs.glob("point-*.txt")))
    expected = {point.name: (point, f"point-{number:04}") for number, point in enumerate(asked, first)}
    turns = tempfile.gettempdir() if where == LOCAL else None
    jobs = [Job(_in_any_folder(point), effort, timeout, processes, threads, turns) for point in asked]
    with dask_engine(where) as engine:
        workers = engine.on_each_worker(_seen)
        placed = [(job, placement(job.point.workload.device, workers)) for job in jobs]
        for job, found in engine.as_finished(_measured, placed):
            yield _kept(*expected[job.point.name], found, logs)


def placement(device: str, workers: Mapping[str, Seen]) -> Placement:
    """Which of these workers may measure on a device: cpu, cuda, or auto, which is a GPU where any worker has one.

    Where workers declare a resource GPU, as `dask worker --resources GPU=1` does, dask gives each as many points at a
    time as it says, also to workers that join later. Raises `NcuBenchError` when a GPU is asked for and none is seen.
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
    if not workers:  # a cluster that grows when there is work
        return {"resources": {GPU_RESOURCE: 1}}
    raise NcuBenchError(
        f"None of the {len(workers)} dask workers sees an NVIDIA GPU, which --device cuda asks for.",
        "They run on machines without one, or without a driver.",
        "Start workers where the GPUs are: dask worker ADDRESS --resources GPU=1, or measure with --device cpu.",
    )


def _in_any_folder(point: BenchPoint) -> BenchPoint:
    """The same point for a process that runs in another folder."""
    return replace(point, workload=replace(point.workload, target=in_any_folder(point.workload.target)))


# ---------------------------------------------------------------------------------------------------- on the worker


def _seen(worker: Any) -> Seen:
    return Seen(visible_gpus(), GPU_RESOURCE in worker.state.total_resources)


def _measured(job: Job) -> Measured | None:
    """What a worker finds; None when nobody waits for it any longer."""
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
    """What says, in this worker's task, whether the sweep was stopped: dask has forgotten the task then."""
    from distributed import get_worker

    worker = get_worker()
    return partial(_reason_to_end, worker.state, worker.get_current_task())


def _reason_to_end(state: Any, key: str) -> str | None:
    task = state.tasks.get(key)
    return "the sweep was stopped" if task is None or task.state == "cancelled" else None


def _ends_of(log: Path) -> bytes:
    """What a process printed; of more than a megabyte, the beginning and the end."""
    size, half = log.stat().st_size, LONGEST_LOG // 2
    with log.open("rb") as stream:
        if size <= LONGEST_LOG:
            return stream.read()
        beginning = stream.read(half)
        stream.seek(size - half)
        return beginning + f"\n[{size - LONGEST_LOG} bytes are left out here]\n".encode() + stream.read()


# ------------------------------------------------------------------------------------------------------------- here


def _kept(point: BenchPoint, stem: str, found: Measured | NcuBenchError | None, logs: Path) -> Row:
    """The row of a point as it was asked for, with its logs under a name of their own in the run folder."""
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
