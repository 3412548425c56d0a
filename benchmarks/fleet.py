"""Time and memory of one process, and of dask with several workers, for one report to a thousand.

    python -m benchmarks.fleet --mb 10
    python -m benchmarks.fleet --mb 0.2 --counts 1 10 20

Every figure is for a whole process, including imports and the start of the cluster. The tasks: reports -> a dataset,
and a dataset -> the kernels of all reports. In each round both engines run on the same reports; ratios are computed
within a round. Memory is the peak of each process by itself. A few different reports stand under many names (hard
links), so that they fit on the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import generate
from benchmarks.processes import measured

PROGRAM = """
import json, resource, sys
from contextlib import contextmanager

@contextmanager
def engine(workers):
    if not workers:
        from ncu_parsers.datasets.engine import InOrder
        yield InOrder(), lambda: []
        return
    from distributed import Client
    from ncu_parsers.datasets.dask_engine import DaskEngine, local_cluster
    with local_cluster(workers) as cluster, Client(cluster) as client:
        yield DaskEngine(client), lambda: list(client.run(peak).values())

def peak():
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def parse(folder, root, by):
    from ncu_parsers.parse.parse_dataset import parse_into_dataset
    from ncu_parsers.parse.report_files import find_sources
    return len(parse_into_dataset(root, find_sources([folder]), engine=by).reports)

def hotspots(folder, root, by):
    from ncu_tools.kernels.kernel_cache import hotspots_of
    from ncu_tools.runs.loading import on_disk
    return len(hotspots_of(on_disk(root, by)).rows)

if __name__ == "__main__":
    task, folder, root, workers, output = sys.argv[1:]
    with engine(int(workers)) as (by, peaks):
        count = {"parse": parse, "hotspots": hotspots}[task](folder, root, by)
        memory = {"workers": peaks(), "client": peak(), "count": count}
    with open(output, "w") as file:
        json.dump(memory, file)
"""


@dataclass
class Measurement:
    """One process: seconds, and peak memory in MB of the client and of the largest worker."""

    seconds: float
    client: float
    worker: float
    count: int


def measure(task: str, folder: Path, root: Path, workers: int) -> Measurement:
    """Run one task with this many dask workers (0: in one process). Raises `SystemExit` when the task fails."""
    with tempfile.TemporaryDirectory() as scratch:
        program, output = Path(scratch) / "fleet_program.py", Path(scratch) / "memory.json"
        program.write_text(PROGRAM, "utf-8")
        command = [sys.executable, str(program), task, str(folder), str(root), str(workers), str(output)]
        whole = measured(command)
        memory = json.loads(output.read_text("utf-8"))
    return Measurement(
        whole.seconds, memory["client"], max(memory["workers"], default=memory["client"]), memory["count"]
    )


def write_reports(folder: Path, shape: str, megabytes: float, distinct: int) -> list[Path]:
    """Write reports that differ in their numbers and kernels; returns their paths."""
    paths = []
    plain = random.Random
    for number in range(distinct):
        path = folder / f"{number}.csv"
        with patch.object(generate.random, "Random", lambda seed, number=number: plain(seed + number)):
            generate.write(shape, path, megabytes)
        paths.append(path)
    return paths


def make_fleet(reports: Sequence[Path], count: int, folder: Path) -> None:
    """Make a folder of `count` nodes, each with one report (a hard link)."""
    for number in range(count):
        node = folder / f"node{number:05d}"
        node.mkdir(parents=True)
        os.link(reports[number % len(reports)], node / "report.csv")


def lines(asked: argparse.Namespace) -> Iterator[str]:
    """The lines of the Markdown table, each as soon as it is measured."""
    yield (
        "| task | reports | one process s | s per report | MB | "
        f"dask, {asked.workers} workers s | ratio | MB of a worker | MB of the client |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        place = Path(name)
        reports = write_reports(place, asked.shape, asked.mb, asked.distinct)
        for count in asked.counts:
            fleet = place / "fleet"
            make_fleet(reports, count, fleet)
            found: dict[tuple[str, int], list[Measurement]] = {}
            for _ in range(asked.rounds):
                for workers in (0, asked.workers):
                    root = place / f"dataset{workers}"
                    shutil.rmtree(root, ignore_errors=True)
                    for task in ("parse", "hotspots"):
                        found.setdefault((task, workers), []).append(measure(task, fleet, root, workers))
            for task in ("parse", "hotspots"):
                yield line(task, count, found[task, 0], found[task, asked.workers])
            size = sum(file.stat().st_size for file in (place / "dataset0").rglob("launches.parquet"))
            yield f"| bytes of the dataset per report | {count} | {size / count:.0f} | | | | | | |"
            shutil.rmtree(fleet)


def line(task: str, count: int, alone: Sequence[Measurement], shared: Sequence[Measurement]) -> str:
    """The line of one task and number of reports."""
    if {one.count for one in alone} != {one.count for one in shared}:
        raise SystemExit(f"{task} of {count} reports gives another result with dask.")
    seconds, with_dask = (statistics.median(one.seconds for one in runs) for runs in (alone, shared))
    ratio = statistics.median(one.seconds / other.seconds for one, other in zip(shared, alone, strict=True))
    memory = [max(one.client for one in alone), max(one.worker for one in shared), max(one.client for one in shared)]
    texts = [f"{megabytes:.0f}" for megabytes in memory]
    return (
        f"| {task} | {count} | {seconds:.2f} | {seconds / count:.4f} | {texts[0]} | {with_dask:.2f} | {ratio:.2f} | "
        f"{texts[1]} | {texts[2]} |"
    )


def main() -> None:
    """Print the results as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=10, help="size of each report")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--shape", choices=generate.SHAPES, default="wide30")
    parser.add_argument("--distinct", type=int, default=4, help="how many of the reports differ")
    parser.add_argument("--folder", type=Path, help="where to write; the system's temporary folder if not given")
    asked = parser.parse_args()
    print(
        f"{asked.shape} reports of {asked.mb:g} MB, median of {asked.rounds} rounds, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}\n"
    )
    for text in lines(asked):
        print(text, flush=True)


if __name__ == "__main__":
    main()
