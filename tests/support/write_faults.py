"""A full disk, SIGKILL or Ctrl-C at each single write of a command: what is left, and whether the same command completes.

    python -m tests.support.write_faults [NAME] --every 1

counts the writes of each command below its folder by a library that is preloaded (`write_faults.c`), and runs it again with
the fault at each of them; of many writes in a row to one file, at the first two, one in the middle and the last two. Then
every visible file is whole: what was there before, or what the command writes; nothing of a file that is appended to is
lost; a full disk ends in one paragraph; and the same command completes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path

import pyarrow.parquet as pq
from ncu_launch.files.toml_tables import tomllib

from tests.conftest import ROOT, SAMPLES
from tests.support.faults import MODEL
from tests.support.timelines import KERNELS, database, kernel
from tests.tools.cli.test_cli import PROGRAM, PYTHONPATH

FULL, KILL, INTERRUPT = "full", "kill", "interrupt"
FAULTS = (FULL, KILL, INTERRUPT)
RAW = str(SAMPLES / "d01-wide-raw.csv")
BEFORE = str(SAMPLES / "d02-long-rules.csv")
CONFLICTS = str(SAMPLES / "h100" / "conflicts.ncu-rep")
PATIENCE_S = 120


@dataclass(frozen=True)
class Writer:
    """A command that writes `outputs` below its folder. `appends` are files that keep what they held.

    `prepare` makes the folder as it is before. `is_folder` for a run folder, whose files are only checked to be whole.
    """

    name: str
    command: tuple[str, ...]
    outputs: tuple[str, ...]
    prepare: Callable[[Path], None] = lambda folder: None
    appends: bool = False
    is_folder: bool = False


def _old_output(name: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        (folder / name).write_bytes(b"what was there\n")

    return prepare


def _runs(folder: Path) -> None:
    """Three runs of one program, for a history."""
    for number in (1, 2, 3):
        run = folder / "runs" / f"run-{number}"
        run.mkdir(parents=True)
        subprocess.run([*PROGRAM, "parse", RAW, "-o", str(run / "launches.parquet")], check=True, capture_output=True,
                       env={**os.environ, "PYTHONPATH": PYTHONPATH})  # fmt: skip


def _timeline(folder: Path) -> None:
    """A timeline of one kernel, and an old output."""
    database(folder / "t.sqlite", {KERNELS: [kernel(10, 1)]}, ["gemm"])
    (folder / "j.parquet").write_bytes(b"what was there\n")


def _log(folder: Path) -> None:
    """A log with a change."""
    subprocess.run([*PROGRAM, "advise", CONFLICTS, "--against", CONFLICTS, "--log", "changes.md"], check=True, cwd=folder,
                   capture_output=True, env={**os.environ, "PYTHONPATH": PYTHONPATH})  # fmt: skip


def _products(folder: Path) -> None:
    """Times of matrix products, and an old file of learnt times."""
    sizes = [2**power for power in range(5, 14)]
    lines = [f"gemm,bf16,{size},4096,4096,{20 + size / 20}" for size in sizes]
    (folder / "points.csv").write_text("\n".join(["op,dtype,m,n,k,measured_us", *lines]) + "\n", "utf-8")
    (folder / "l.toml").write_text("# what was there\n", "utf-8")


def _model(folder: Path) -> None:
    (folder / "model.py").write_text(MODEL, "utf-8")
    (folder / "out").mkdir()


WRITERS = (
    Writer("parse", ("parse", RAW, "-o", "l.parquet"), ("l.parquet",), _old_output("l.parquet")),
    Writer("dataset", ("parse", RAW, BEFORE, "-o", "set/"), ("set",), is_folder=True),
    Writer("page", ("report", RAW, "-o", "r.html"), ("r.html",), _old_output("r.html")),
    Writer("digest", ("report", RAW, "-o", "r.md"), ("r.md",), _old_output("r.md")),
    Writer("csv", ("report", RAW, "--as", "csv", "-o", "e.csv"), ("e.csv",), _old_output("e.csv")),
    Writer("roofline", ("roofline", RAW, "-o", "r.svg"), ("r.svg",), _old_output("r.svg")),
    Writer("history", ("history", "runs", "-o", "h.html"), ("h.html",), _runs),
    Writer("log", ("advise", CONFLICTS, "--against", CONFLICTS, "--log", "changes.md"), ("changes.md",), _log, appends=True),
    Writer(
        "learn", ("estimate", "points.csv", "--learn", "--measured-on", "b200", "-o", "l.toml"), ("l.toml",), _products
    ),
    Writer("join", ("parse", RAW, "--times", "t.sqlite", "-o", "j.parquet", "--anyway"), ("j.parquet",), _timeline),
    Writer(
        "profile", ("profile", "model.py:make", "--tool", "operators", "--phase", "forward", "-o", "out"), ("out",), _model,
        is_folder=True,
    ),
    Writer(
        "bench",
        ("bench", "model.py:make", "--max-time", "0.05", "--processes", "1", "--on", "cpu", "-o", "out", "--resume"),
        ("out",), _model, is_folder=True,
    ),
)  # fmt: skip


@cache
def library() -> Path:
    """The library to preload, compiled once."""
    folder = Path(tempfile.mkdtemp(prefix="ncu-bench-write-faults-"))
    compiler = shutil.which("gcc")
    assert compiler, "gcc is not installed: apt-get install gcc"
    source, made = ROOT / "tests" / "support" / "write_faults.c", folder / "write_faults.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(made), "-ldl"], check=True)
    return made


def run(writer: Writer, folder: Path, kind: str, at: int) -> tuple[int, str, list[str]]:
    """Exit code, what was said on stderr, and the file of each write, with a fault at write `at`; 0 for none."""
    counter, log = (folder.with_name(f"{folder.name}.{name}") for name in ("counter", "log"))
    counter.write_bytes(bytes(8))
    log.write_bytes(b"")
    environment = {
        **os.environ, "PYTHONPATH": PYTHONPATH, "LD_PRELOAD": str(library()), "FAULT_COUNTER": str(counter),
        "FAULT_LOG": str(log), "FAULT_FOLDER": f"{folder}/", "FAULT_KIND": kind, "FAULT_AT": str(at),
        "PYTHONDONTWRITEBYTECODE": "1", "XDG_CACHE_HOME": str(folder / ".cache"), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [*PROGRAM, *(f"{folder}/{word}" if _is_output(word, writer) else word for word in writer.command)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=PATIENCE_S, check=False)
    return done.returncode, done.stderr.decode("utf-8", "replace"), log.read_text("utf-8").splitlines()


def of_each_row(files: list[str]) -> list[int]:
    """The numbers, from 1, of the first two, the middle and the last two of the writes in a row to one file."""
    found, first = list[int](), 1
    for _, row in groupby(files):
        last = first + len(list(row)) - 1
        found += sorted({first, min(first + 1, last), (first + last) // 2, max(last - 1, first), last})
        first = last + 1
    return found


def _is_output(word: str, writer: Writer) -> bool:
    return word.rstrip("/") in writer.outputs


def visible(folder: Path, writer: Writer) -> dict[str, bytes]:
    """The files of the outputs that are not hidden, by name."""
    files = [path for name in writer.outputs for path in [folder / name, *(folder / name).rglob("*")] if path.is_file()]
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in files
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }


def lost(writer: Writer, before: dict[str, bytes], after: dict[str, bytes]) -> Iterator[str]:
    """What is not as it was, and not whole."""
    for name, data in before.items():
        if name not in after:
            yield f"{name} is gone"
        elif writer.appends and not after[name].startswith(data):
            yield f"{name} lost what it held"
    for name, data in after.items():
        if before.get(name) != data and (why := _broken(name, data)):
            yield f"{name} is not whole: {why}"


def _broken(name: str, data: bytes) -> str:
    """Why a file is not whole; "" if it is."""
    try:
        if name.endswith(".parquet"):
            with tempfile.NamedTemporaryFile() as file:
                file.write(data)
                file.flush()
                pq.read_table(file.name)
        elif name.endswith(".json"):
            json.loads(data)
        elif name.endswith(".toml"):
            tomllib.loads(data.decode())
    except Exception as error:
        return str(error)
    endings = {".html": b"</html>", ".svg": b"</svg>"}
    ending = endings.get(Path(name).suffix)
    return "" if ending is None or data.rstrip().endswith(ending) else f"it does not end in {ending.decode()}"


@dataclass
class Account:
    """What happened with the faults of one command."""

    writes: int = 0
    places: int = 0
    faults: int = 0
    lost: list[str] = field(default_factory=list)


def inject(writer: Writer, folder: Path, first: int = 1, every: int = 1, kinds: tuple[str, ...] = FAULTS) -> Account:
    """Run a command with each fault at each `every`th place from `first` on, in a folder of its own each time."""
    account = Account()
    whole = _fresh(writer, folder / "whole")
    code, said, files = run(writer, whole, "count", 0)
    assert code == 0, said
    places = of_each_row(files)
    account.writes, account.places = len(files), len(places)
    for kind in kinds:
        for at in places[first - 1 :: every]:
            place = _fresh(writer, folder / f"{kind}-{at}")
            before = visible(place, writer)
            code, said, _ = run(writer, place, kind, at)
            account.faults += 1
            after = visible(place, writer)
            problems = [*lost(writer, before, after), *_said(kind, code, said), *_left_over(kind, place)]
            problems += _completes(writer, place, after)
            account.lost += [f"{writer.name}, {kind} at write {at} of {account.writes}: {one}" for one in problems]
            shutil.rmtree(place)
    return account


def _fresh(writer: Writer, folder: Path) -> Path:
    folder.mkdir(parents=True)
    writer.prepare(folder)
    return folder


def _said(kind: str, code: int, said: str) -> Iterator[str]:
    """What is wrong with how a command ended."""
    if "Traceback" in said:
        yield f"a traceback: {said.strip().splitlines()[-1]}"
    if kind == FULL and code not in (0, 1):
        yield f"exit code {code}: {said[-200:]}"
    if kind == FULL and code == 1 and not re.search(r"^Error: .*", said, re.MULTILINE):
        yield f"no paragraph: {said[-200:]}"


def _left_over(kind: str, folder: Path) -> Iterator[str]:
    """Temporary files that only SIGKILL may leave."""
    if kind != KILL:
        yield from (f"{path.name} is left over" for path in folder.rglob(".*.part*"))


def _completes(writer: Writer, folder: Path, after: dict[str, bytes]) -> Iterator[str]:
    code, said, _ = run(writer, folder, "count", 0)
    if code != 0 and not (writer.is_folder and "already holds a run" in said):
        yield f"the same command ends with {code} afterwards: {said.strip()[-200:]}"
    yield from lost(writer, after if writer.appends else {}, visible(folder, writer))


def main(arguments: list[str]) -> int:
    """Inject faults into the named command, or all, and print what was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=[writer.name for writer in WRITERS])
    parser.add_argument("--first", type=int, default=1, help="the first place to inject at")
    parser.add_argument("--every", type=int, default=1, help="inject at each so many places")
    asked = parser.parse_args(arguments)
    found = 0
    for writer in WRITERS:
        if asked.name not in (None, writer.name):
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="ncu-bench-write-faults-") as folder:
            account = inject(writer, Path(folder).resolve(), asked.first, asked.every)
        found += len(account.lost)
        print(f"{writer.name}: {account.faults} faults in {account.places} places of {account.writes} writes, "
              f"{len(account.lost)} losses, {time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
        for one in account.lost:
            print(f"  {one}", flush=True)
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
