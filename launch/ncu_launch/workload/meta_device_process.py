"""Expected work of a model, counted in a separate process before profiling: FLOPs, bytes, memory, launches."""

from __future__ import annotations

import json
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ncu_launch.counters.replay_plan import Program
from ncu_launch.errors import NcuBenchError, error_in_line
from ncu_launch.profilers.installed_tools import gpus
from ncu_launch.profilers.subprocesses import OWN_PYTHON, lines_of, own_environment, run
from ncu_launch.targets.reference_kernels import is_known_work
from ncu_launch.workload_spec import Workload

TIMEOUT_S = 120


@dataclass(frozen=True)
class Expectation:
    """The operators of one iteration, as in the collector's file, and their summary.

    If a model cannot be counted (for example because its shapes depend on its data), `records` is empty, `why_not`
    explains it, and `advice` says what to do, if known.
    """

    records: bytes = b""
    summary: dict[str, Any] = field(default_factory=dict)
    why_not: str = ""
    advice: str = ""

    @property
    def program(self) -> Program | None:
        """The estimates that the choice of ncu's runs needs; None if unknown."""
        alive, operators, start = (self.summary.get(name) for name in ("alive_bytes", "operators", "seconds"))
        if alive is None or operators is None or start is None:
            return None
        return Program(int(alive), int(operators), float(start))


def expectation_of(workload: Workload) -> Expectation:
    """Count a workload on the meta device, in a process that computes nothing and sees no GPU.

    For a reference kernel on a GPU it sees the GPUs. Raises `KeyboardInterrupt` on Ctrl-C.
    """
    return expectations_of([workload])[0]


def expectations_of(workloads: Sequence[Workload]) -> list[Expectation]:
    """As `expectation_of`, for several workloads one after the other in one process, which loads PyTorch only once."""
    environment = own_environment()
    if not any(map(_needs_gpus, workloads)):
        workloads = list(map(_with_device, workloads))
        environment["CUDA_VISIBLE_DEVICES"] = ""
    with tempfile.TemporaryDirectory(prefix="ncu-bench-expected-") as name:
        folder = Path(name)
        asked = [
            [folder / f"{part}-{at}" for part in ("workload", "records", "summary")] for at in range(len(workloads))
        ]
        for workload, (path, _, _) in zip(workloads, asked, strict=True):
            path.write_text(workload.to_json(), encoding="utf-8")
        command = [
            *OWN_PYTHON,
            "-m",
            "ncu_launch.workload.meta_device_count",
            *(str(path) for paths in asked for path in paths),
        ]
        timeout = TIMEOUT_S * len(workloads)
        finished = run(command, folder / "log", timeout=timeout, environment=environment)
        if finished.interrupted:
            raise KeyboardInterrupt
        errors = iter(errors_written(folder / "log"))
        found = []
        for _, records, summary in asked:
            if records.is_file() and summary.is_file():
                found.append(Expectation(records.read_bytes(), json.loads(summary.read_text("utf-8"))))
            else:
                error = next(errors, None)
                why = why_not(error, folder / "log", timeout if finished.timed_out else None)
                found.append(Expectation(why_not=why, advice=error.advice if error is not None else ""))
        return found


def _needs_gpus(workload: Workload) -> bool:
    """True for reference kernels on a GPU, which is queried for supported types. They run no code of the user."""
    return is_known_work(workload.target) and workload.device != "cpu"


def _with_device(workload: Workload) -> Workload:
    """The workload with its resolved device, for a process that sees no GPU."""
    return replace(workload, device="cuda" if gpus() else "cpu") if workload.device == "auto" else workload


def why_not(error: NcuBenchError | None, log: Path, timeout_s: float | None) -> str:
    """Why a process counted nothing: its own error, its time limit, or its last line."""
    if error is not None:
        return error.what
    if timeout_s is not None:
        return f"counting it took more than {timeout_s:g} s"
    said = deque((line for line in lines_of(log) if line), maxlen=1)
    return said[-1][:200] if said else "The process that counts its operators gave no reason."


def errors_written(log: Path) -> list[NcuBenchError]:
    """The errors that a child process wrote to its log in serialized form, each on its own line."""
    return [error for error in map(error_in_line, lines_of(log)) if error is not None]
