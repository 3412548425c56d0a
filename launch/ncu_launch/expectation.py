"""What a model should do, counted by a process of its own before it is profiled: FLOPs, bytes, memory, launches."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_launch.execute import own_environment, run
from ncu_launch.request import Workload
from ncu_launch.runs import Program

TIMEOUT_S = 120
EXPECTED = "expected.jsonl"


@dataclass(frozen=True)
class Expectation:
    """The operators of one iteration, as the collector's file has them, and their summary.

    Where a model cannot be counted (its shapes depend on its data, say), `records` is empty and `why_not` says why.
    """

    records: bytes = b""
    summary: dict[str, Any] = field(default_factory=dict)
    why_not: str = ""

    @property
    def program(self) -> Program | None:
        """What decides between plans; None where it is not known."""
        alive, operators, start = (self.summary.get(name) for name in ("alive_bytes", "operators", "seconds"))
        if alive is None or operators is None or start is None:
            return None
        return Program(int(alive), int(operators), float(start))


def expectation_of(workload: Workload, *, heard: Callable[[str], None] = lambda line: None) -> Expectation:
    """Count a workload on the meta device: nothing is computed, no GPU is touched."""
    with tempfile.TemporaryDirectory(prefix="ncu-bench-expected-") as name:
        folder = Path(name)
        asked, records, summary, log = (folder / part for part in ("workload", EXPECTED, "summary", "log"))
        asked.write_text(workload.to_json(), encoding="utf-8")
        command = [sys.executable, "-m", "ncu_launch.expected", str(asked), str(records), str(summary)]
        finished = run(command, log, timeout=TIMEOUT_S, environment=own_environment(), heard=heard)
        if finished.interrupted:
            raise KeyboardInterrupt
        if finished.exit_code != 0 or not records.is_file():
            return Expectation(why_not=_why_not(log, finished.timed_out))
        return Expectation(records.read_bytes(), json.loads(summary.read_text("utf-8")))


def _why_not(log: Path, timed_out: bool) -> str:
    """The reason that the process gave, in its own words."""
    if timed_out:
        return f"counting it took more than {TIMEOUT_S} s"
    error = said_error(log)
    if error is not None:
        return error.what
    said = log.read_text("utf-8").strip().splitlines()
    return said[-1][:200] if said else "the process that counts it said nothing"


def said_error(log: Path) -> NcuBenchError | None:
    """The error that a process of ours ended with, from the line it wrote; None where it wrote none."""
    for line in reversed(log.read_text("utf-8", errors="replace").splitlines()):
        if line.startswith('{"ncu_bench_error": '):
            parts = json.loads(line)["ncu_bench_error"]
            error = NcuBenchError(parts["what"], parts["cause"], parts["advice"])
            error.exit_code = parts["exit_code"]
            return error
    return None
