"""Time and peak memory of whole processes, and the ratio of two.

A child process inherits the peak memory of its parent, so this module imports nothing big.
"""

from __future__ import annotations

import compileall
import os
import shlex
import statistics
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGES = ("launch", "parsers", "ncu_tools")


@dataclass
class Run:
    """One process: wall-clock seconds, peak memory in MB, and seconds of processor time."""

    seconds: float
    megabytes: float
    processor: float = 0.0


@cache
def _compile_packages() -> None:
    """Compile our packages, as an installation does; in a checkout, Python may compile them at every start."""
    for folder in PACKAGES:
        compileall.compile_dir(Path(__file__).parents[1] / folder, quiet=2)


def measured(command: Sequence[str], piped: Path | None = None) -> Run:
    """Run a command, with `piped` as standard input, and drop its output. Raises `SystemExit` when it fails."""
    _compile_packages()
    begin = time.perf_counter()
    with ExitStack() as pipe:
        cat = ["cat", str(piped)]
        stdin = pipe.enter_context(subprocess.Popen(cat, stdout=subprocess.PIPE)).stdout if piped else None  # noqa: S603
        process = subprocess.Popen(  # noqa: S603
            command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"This failed; run it by itself to see why: {shlex.join(command)}")
    return Run(seconds, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime)


def ratio(ours: Sequence[Run], theirs: Sequence[Run]) -> str:
    """The median ratio of two lists of runs, round by round."""
    return f"{statistics.median(one.seconds / other.seconds for one, other in zip(ours, theirs, strict=True)):.2f}"


def peak(runs: Sequence[Run]) -> str:
    """The largest peak memory of some runs, in MB."""
    return f"{max(run.megabytes for run in runs):.0f}"
