"""Reports without measure at their full size, and what reading them takes.

    python -m tests.support.limits [WORDS...]

writes each into a temporary folder, parses it in a process of its own, and prints seconds, peak memory and how it
ended: those whose name holds one of the words, or all. Some take minutes and 1 GB of disk.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import SAMPLES
from tests.support.timelines import CALLS, KERNELS, RANGES, call, database, kernel, pushed
from tests.tools.cli.test_cli import PROGRAM, PYTHONPATH

RAW = SAMPLES / "d01-wide-raw.csv"
DETAILS = SAMPLES / "d04-long-metrics.csv"
BLOCK = 1 << 20


SMALL_PARENT = """
import os, sys, time
began = time.monotonic()
_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
sys.stderr.write(f"\\n{status} {usage.ru_maxrss} {time.monotonic() - began}")
"""
"""Starts a command in a process of its own: Linux counts the memory of the parent into a child's peak."""


@dataclass(frozen=True)
class Measured:
    """How a process ended: exit code, seconds, peak memory in MB, and the end of its output."""

    code: int
    seconds: float
    megabytes: float
    said: str


def measured(*arguments: str, folder: Path, limit: str = "2GB") -> Measured:
    """Run the command line in a process of its own, below a memory limit."""
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, "-S", "-c", SMALL_PARENT, *PROGRAM, "--memory-limit", limit, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    *said, last = (done.stdout + done.stderr).decode("utf-8", "replace").splitlines()
    status, kilobytes, seconds = last.split()
    return Measured(os.waitstatus_to_exitcode(int(status)), float(seconds), int(kilobytes) / 1024, "\n".join(said))


# -------------------------------------------------------------------------------------------------------- the reports


def with_line(line: str, report: Path = RAW) -> str:
    """A sample with one more line in the middle of its rows."""
    lines = report.read_text("utf-8").splitlines(keepends=True)
    return "".join([*lines[:-3], line + "\n", *lines[-3:]])


def with_values(value: str) -> str:
    """The wide sample with every number of a metric replaced by one value."""
    lines = RAW.read_text("utf-8").splitlines(keepends=True)
    header, units, *rows = csv.reader(line for line in lines if line.startswith('"'))
    numbers = [at for at, name in enumerate(header) if "__" in name]
    for row in rows:
        for at in numbers:
            row[at] = value
    return _written([header, units, *rows])


def wide(columns: int, rows: int = 8) -> str:
    """A wide page with `count` metrics."""
    names = [f"unit__metric_{number:06}.sum" for number in range(columns)]
    header = ["ID", "Process ID", "Kernel Name", *names]
    units = ["", "", "", *["byte"] * columns]
    body = [[str(row), "1", f"k{row}", *map(str, range(columns))] for row in range(rows)]
    return _written([header, units, *body])


def named(name: str) -> str:
    """The wide sample with its first kernel renamed."""
    lines = RAW.read_text("utf-8").splitlines(keepends=True)
    header, units, first, *rows = csv.reader(line for line in lines if line.startswith('"'))
    first[header.index("Kernel Name")] = name
    return _written([header, units, first, *rows])


def _written(rows: Iterable[Iterable[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return out.getvalue()


def zeros(path: Path, size: int, head: bytes = b"") -> None:
    """A gzip file of zeros."""
    with gzip.open(path, "wb", compresslevel=6) as file:
        file.write(head)
        for _ in range(size // BLOCK):
            file.write(bytes(BLOCK))


def _text(name: str, make: Callable[[], str]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_text(make(), "utf-8")
        return folder / name

    return write


def _zeros(name: str, head: bytes = b"", *, twice: bool = False) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        zeros(folder / name, 10 << 30, head)
        if twice:
            (folder / name).write_bytes(gzip.compress((folder / name).read_bytes()))
        return folder / name

    return write


def _levels(folder: Path) -> Path:
    count = 1_000_000
    ranges = [pushed(f"level {at}", at, 4 * count - at) for at in range(count)]
    works = [kernel(2 * count + 10 * at, at) for at in range(1000)]
    calls = [call(2 * count + 10 * at - 5, at) for at in range(1000)]
    return database(folder / "levels.sqlite", {KERNELS: works, CALLS: calls, RANGES: ranges})


def _nested(folder: Path) -> Path:
    """A PyTorch trace whose kernels are all launched inside the same 2000 ranges."""
    levels, count = 2000, 20_000
    events = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"level {at}",
            "ts": at,
            "dur": 9 * count - 2 * at,
            "pid": 1,
            "tid": 1,
        }
        for at in range(levels)
    ]
    for at in range(count):
        shared = {"ph": "X", "ts": levels + at, "dur": 1, "pid": 1, "tid": 1, "args": {"correlation": at}}
        events += [{**shared, "cat": "cuda_runtime", "name": "launch"}, {**shared, "cat": "kernel", "name": "k"}]
    (folder / "nested.json").write_text(json.dumps({"traceEvents": events}), "utf-8")
    return folder / "nested.json"


def _paths(folder: Path) -> Path:
    count = 300_000
    ranges = [pushed(f"level {at}", 2 * at, 4 * count - at) for at in range(count)]
    works = [kernel(2 * at + 1, at) for at in range(count)]
    calls = [call(2 * at, at) for at in range(count)]
    return database(folder / "paths.sqlite", {KERNELS: works, CALLS: calls, RANGES: ranges})


def _texts(folder: Path) -> Path:
    path = database(folder / "texts.sqlite", {KERNELS: [kernel(5, 1)], CALLS: [call(4, 1)]})
    with sqlite3.connect(path) as connection:
        for at in range(100):
            connection.execute("INSERT INTO StringIds VALUES (?, CAST(zeroblob(?) AS TEXT))", [at + 2, 30_000_000])
    connection.close()
    return path


def _many(files: int) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        body = "".join(DETAILS.read_text("utf-8").splitlines(keepends=True)[:24])
        for at in range(files):
            place = folder / "many" / str(at // 1000)
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{at}.csv").write_text(body.replace('"4711"', f'"{at}"'), "utf-8")
        return folder / "many"

    return write


def _events(folder: Path) -> Path:
    """20 million events, 1 GB in 3 MB."""
    with gzip.open(folder / "trace.json.gz", "wb", compresslevel=6) as file:
        file.write(b'{"traceEvents": [')
        for _ in range(1000):
            file.write(b'{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1},\n' * 20_000)
    return folder / "trace.json.gz"


def _repeated(folder: Path) -> Path:
    """A report of 2 GB that repeats the rows of eight launches."""
    header, *rows = DETAILS.read_bytes().splitlines(keepends=True)
    with gzip.open(folder / "repeated.csv.gz", "wb", compresslevel=6) as file:
        file.write(header)
        for _ in range(22):
            file.write(b"".join(rows) * 2000)
    return folder / "repeated.csv.gz"


CASES: dict[str, Callable[[Path], Path]] = {
    "a line of 100 MB among rows": _text("line.csv", lambda: with_line("x" * 100_000_000)),
    "a line of 100 MB with 25 million cells": _text("cells.csv", lambda: with_line('"1"' + ',"a"' * 25_000_000)),
    "a header of 100 MB": _text("header.csv", lambda: '"ID","Kernel Name"' + ',"m"' * 25_000_000),
    "one line of 100 MB": _text("only.csv", lambda: "x" * 100_000_000),
    "200 k columns": _text("columns.csv", lambda: wide(200_000)),
    "a kernel name of 10 MB": _text("name.csv", lambda: named("k" * 10_000_000)),
    "values of 1e308": _text("great.csv", lambda: with_values("1" + "0" * 308)),
    "values of 5000 digits": _text("digits.csv", lambda: with_values("9" * 5000)),
    "counters of 2^64": _text("counters.csv", lambda: with_values(str(2**64))),
    "10 GB of zeros in 10 MB": _zeros("zeros.csv.gz"),
    "10 GB of zeros in gz of gz": _zeros("twice.csv.gz", twice=True),
    "10 GB of zeros as a database": _zeros("zeros.sqlite.gz", b"SQLite format 3\0"),
    "10 GB of zeros as a binary report": _zeros("zeros.ncu-rep.gz", b"NVR\0"),
    "a trace of 20 million events in 3 MB": _events,
    "a report of 2 GB that repeats itself": _repeated,
    "a million NVTX levels": _levels,
    "20 k kernels inside 2000 ranges of a trace": _nested,
    "300 k kernels, each below a level more": _paths,
    "a timeline with 3 GB of texts": _texts,
    "100 k files in a folder": _many(100_000),
}


def main(words: list[str]) -> int:
    """Measure the requested cases."""
    for name, make in CASES.items():
        if words and not any(word in name for word in words):
            continue
        with tempfile.TemporaryDirectory(prefix="ncu-bench-limits-") as at:
            folder = Path(at)
            result = measured(
                "parse", str(make(folder)), str(RAW), "-o", str(folder / "launches.parquet"), folder=folder
            )
        last = result.said.strip().splitlines()[-1:] or [""]
        sys.stdout.write(
            f"{name}: exit {result.code}, {result.seconds:.0f} s, {result.megabytes:.0f} MB\n  {last[0][:200]}\n"
        )
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
