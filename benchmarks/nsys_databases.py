"""Time `ncu-bench parse`, `hotspots` and `timeline` on big SQLite exports of nsys against bare scans of the same data.

    python -m benchmarks.nsys_databases REAL.sqlite [--mb N] [--turns N] [--peer COMMAND]

`nsys_generate.py` repeats the real export up to the requested size. A bare scan is a process that reads the same
columns with Python's `sqlite3` and discards them. COMMAND, such as "nsys-ai summary", gets the file as its last
argument. All programs run in turns, each in its own process, with our caches removed. Ratios are by wall time and by
processor time; other programs disturb the latter less.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.nsys_generate import KERNELS, RANGES, repeat
from benchmarks.processes import Run, measured, peak, ratio

NEEDED = {
    KERNELS: "start end deviceId contextId streamId correlationId globalPid graphNodeId graphId demangledName "
    "mangledName shortName gridX gridY gridZ blockX blockY blockZ registersPerThread staticSharedMemory "
    "dynamicSharedMemory",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start end deviceId contextId streamId correlationId globalPid graphNodeId bytes "
    "copyKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start end deviceId contextId streamId correlationId globalPid graphNodeId bytes",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start globalTid correlationId",
    RANGES: "start end eventType globalTid textId domainId text",
}
"""Columns that `parse` reads from each table, in recent schemas."""
OF_OPERATIONS = "start end deviceId contextId streamId correlationId globalPid graphNodeId"
NEEDED_BY_TIMELINE = {
    KERNELS: f"{OF_OPERATIONS} demangledName shortName mangledName",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{OF_OPERATIONS} bytes copyKind srcKind dstKind srcDeviceId dstDeviceId",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{OF_OPERATIONS} bytes",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end globalTid correlationId nameId",
    RANGES: "start end eventType globalTid textId text",
}

SCAN = """
import sqlite3, sys
database = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro&immutable=1", uri=True)
for table in sys.argv[2:]:
    name, *columns = table.split()
    cursor = database.execute(f'SELECT {", ".join(columns)} FROM "{name}" NOT INDEXED')
    while cursor.fetchmany(10000):
        pass
"""
NCU_BENCH = "import sys; from ncu_tools.cli import run; sys.exit(run(sys.argv[1:]))"


def scan(path: Path, needed: Mapping[str, str]) -> list[str]:
    """The command that scans these columns."""
    return [sys.executable, "-c", SCAN, str(path), *(f"{table} {columns}" for table, columns in needed.items())]


def compare(title: str, ours: Sequence[Run], theirs: Sequence[Run]) -> None:
    """Print the medians of two commands that ran in turns, and their ratio."""
    wall, other = (statistics.median(run.seconds for run in runs) for runs in (ours, theirs))
    processor = statistics.median(
        one.processor / two.processor for one, two in zip(ours, theirs, strict=True) if two.processor
    )
    print(
        f"{title}: {wall:.2f} s / {other:.2f} s, {ratio(ours, theirs)} x by wall time, {processor:.2f} x by processor "
        f"time; {peak(ours)} MB"
    )


def main() -> None:
    """Make the database, run everything in turns, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("real", type=Path)
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--peer", default="")
    asked = parser.parse_args()
    with TemporaryDirectory() as folder:
        path, cache = Path(folder) / "timeline.sqlite", Path(folder) / "cache"
        count = repeat(asked.real, path, asked.mb)
        print(f"{path.stat().st_size / 1e6:,.0f} MB, {count} times {asked.real.name}")
        os.environ["XDG_CACHE_HOME"] = str(cache)
        parse = [sys.executable, "-c", NCU_BENCH, "parse", str(path), "-o", str(Path(folder) / "launches.parquet")]
        commands = {
            "all": scan(path, NEEDED),
            "parse": parse,
            "kernels": scan(path, {KERNELS: NEEDED[KERNELS]}),
            "hotspots": [sys.executable, "-c", NCU_BENCH, "hotspots", str(path)],
            "times": scan(path, NEEDED_BY_TIMELINE),
            "timeline": [sys.executable, "-c", NCU_BENCH, "timeline", str(path)],
            "timeline of 0.5 s": [sys.executable, "-c", NCU_BENCH, "timeline", str(path), "--trim", "10s,10.5s"],
            **({"peer": [*shlex.split(asked.peer), str(path)]} if asked.peer else {}),
        }
        runs: dict[str, list[Run]] = {name: [] for name in commands}
        for _ in range(asked.turns):
            for name, command in commands.items():
                shutil.rmtree(cache, ignore_errors=True)
                runs[name].append(measured(command))
                print(f"{name}: {runs[name][-1]}, load {os.getloadavg()[0]:.1f}", flush=True)
    compare("parse / a scan of all that it needs", runs["parse"], runs["all"])
    compare("hotspots / a scan of the kernels", runs["hotspots"], runs["kernels"])
    compare("timeline / a scan of all that it needs", runs["timeline"], runs["times"])
    compare("timeline --trim 10s,10.5s / the same scan", runs["timeline of 0.5 s"], runs["times"])
    if asked.peer:
        compare(f"hotspots / {asked.peer}", runs["hotspots"], runs["peer"])


if __name__ == "__main__":
    main()
