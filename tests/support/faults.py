"""What is left when a command is killed at any moment: every file whole, and the same command again completes.

    python -m tests.support.faults --kills 200

ends so many processes with SIGKILL, shared among a parse, a sweep of bench and a profile, each at a random moment of
its life, and prints what was lost. `tests/whole/test_faults.py` does a few of them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
from ncu_launch.files.run_files import REPORTS

from tests.conftest import SAMPLES
from tests.tools.cli.test_cli import PROGRAM, PYTHONPATH

MODEL = """
import torch

def make(batch_size=1):
    return torch.nn.Linear(8, 8), torch.randn(batch_size, 8)
"""
POINTS = (1, 2, 3)


@dataclass(frozen=True)
class Scenario:
    """A command that writes into `out` of a folder: what the folder has before, the command, and its number of rows."""

    name: str
    prepare: Callable[[Path], None]
    command: tuple[str, ...]
    result: str
    rows: int

    def start(self, folder: Path) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "PYTHONPATH": PYTHONPATH,
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return subprocess.Popen(
            [*PROGRAM, *self.command], cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def complete(self, folder: Path) -> float:
        """Run to the end and return the seconds it took; it must succeed and write all of its rows."""
        began = time.monotonic()
        running = self.start(folder)
        _, said = running.communicate()
        if b"already holds a run" not in said:  # killed as it ended
            assert running.returncode == 0, said.decode()
        assert rows_in(folder / self.result) == self.rows
        return time.monotonic() - began


def rows_in(file: Path) -> int:
    """The number of rows of a Parquet file, reading all of them."""
    return len(pq.read_table(file)) if file.is_file() else 0


def _parse(folder: Path) -> None:
    """A report that is streamed, over an older result."""
    header, units, *rows = (SAMPLES / "d01-wide-raw.csv").read_text("utf-8").splitlines(keepends=True)[2:]
    many = "".join(row.replace('"', f'"{number}', 1) for number in range(1, 400) for row in rows)
    (folder / "report.csv").write_text(header + units + many, "utf-8")
    (folder / "out").mkdir()
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    older = [*PROGRAM, "parse", str(SAMPLES / "d01-wide-raw.csv"), "-o", str(folder / "out" / "launches.parquet")]
    subprocess.run(older, env=environment, check=True, capture_output=True)


def _model(folder: Path) -> None:
    (folder / "model.py").write_text(MODEL, "utf-8")
    (folder / "out").mkdir()


SCENARIOS = (
    Scenario("parse", _parse, ("parse", "report.csv", "-o", "out/launches.parquet"), "out/launches.parquet", 8 * 399),
    Scenario(
        "sweep",
        _model,
        (
            "bench", "model.py:make", "--batch-size", ",".join(map(str, POINTS)), "--max-time", "0.05", "--processes",
            "1", "--on", "cpu", "-o", "out", "--resume",
        ),
        "out/bench.parquet",
        len(POINTS),
    ),
    Scenario(
        "profile",
        _model,
        ("profile", "model.py:make", "--tool", "operators", "--phase", "forward", "--iterations", "3", "-o", "out"),
        "out/launches.parquet",
        3,
    ),
)  # fmt: skip


def damaged(folder: Path) -> list[str]:
    """The files below a folder that are not whole. Hidden ones are unfinished; the last line of a report may be cut."""
    found = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        if any(part.startswith(".") for part in file.relative_to(folder).parts):
            continue
        try:
            if file.suffix == ".parquet":
                pq.read_table(file)
            elif file.suffix == ".json":
                json.loads(file.read_text("utf-8"))
            elif file.suffix == ".jsonl":
                lines = file.read_text("utf-8").split("\n")
                for line in lines if file.parent.name != REPORTS else lines[:-1]:
                    json.loads(line or "{}")
        except Exception as error:
            found.append(f"{file}: {type(error).__name__}: {error}")
    return found


def still_running(folder: Path) -> list[str]:
    """The processes whose working folder is this one."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if link.readlink().is_relative_to(folder):
                found.append(
                    (link.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")[:200]
                )
        except OSError:
            continue
    return found


@dataclass
class Account:
    """The results of the kills of one scenario."""

    kills: int = 0
    ended_before: int = 0
    lost: list[str] = field(default_factory=list)
    seconds: float = 0.0


def kill(scenario: Scenario, folder: Path, kills: int, chance: random.Random, *, completions: int = 2) -> Account:
    """Kill a command `kills` times at varying moments, and let it complete `completions` times in between."""
    account = Account()
    began = time.monotonic()
    scenario.prepare(folder)
    longest = 0.0
    complete_at = {round((number + 1) * kills / completions) for number in range(completions)}
    longest = _whole_life(scenario, folder)
    while account.kills < kills:
        before = rows_in(folder / scenario.result)
        running = scenario.start(folder)
        time.sleep(chance.uniform(0, longest))
        if running.poll() is not None:
            account.ended_before += 1
            _afresh(scenario, folder)
            continue
        running.send_signal(signal.SIGKILL)
        running.communicate()
        account.kills += 1
        account.lost += damaged(folder / "out")
        if rows_in(folder / scenario.result) < before and scenario.name != "profile":
            account.lost.append(f"{scenario.result} had {before} rows")
        if account.kills in complete_at:
            scenario.complete(folder)
            account.lost += damaged(folder / "out")
            _afresh(scenario, folder)
    account.lost += [f"still running: {one}" for one in _after_a_while(folder)]
    account.seconds = time.monotonic() - began
    return account


def _whole_life(scenario: Scenario, folder: Path) -> float:
    seconds = scenario.complete(folder)
    _afresh(scenario, folder)
    return seconds


def _afresh(scenario: Scenario, folder: Path) -> None:
    """Restore the folder to its state before anything ran."""
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    scenario.prepare(folder)


def _after_a_while(folder: Path) -> list[str]:
    deadline = time.monotonic() + 20
    while (left := still_running(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def main(arguments: list[str]) -> int:
    """Kill as often as requested and print the results; returns 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=[scenario.name for scenario in SCENARIOS])
    asked = parser.parse_args(arguments)
    chosen = [scenario for scenario in SCENARIOS if asked.only in (None, scenario.name)]
    chance = random.Random(asked.seed)  # noqa: S311
    lost = 0
    for number, scenario in enumerate(chosen):
        share = asked.kills // len(chosen) + (number < asked.kills % len(chosen))
        with tempfile.TemporaryDirectory(prefix="ncu-bench-faults-") as folder:
            account = kill(scenario, Path(folder).resolve(), share, chance, completions=max(2, share // 10))
        lost += len(account.lost)
        sys.stdout.write(
            f"{scenario.name}: {account.kills} kills in {account.seconds:.0f} s, {account.ended_before} ended before, "
            f"{len(account.lost)} losses\n"
        )
        sys.stdout.writelines(f"  {one}\n" for one in account.lost)
        sys.stdout.flush()
    return int(lost > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
