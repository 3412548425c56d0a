"""Measure a machine in a child process, so that its imports and crashes do not affect this process."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ncu_launch.bench.machine_process import QUICKLY
from ncu_launch.errors import NcuBenchError
from ncu_launch.profilers.subprocesses import OWN_PYTHON, own_environment, run
from ncu_launch.workload.meta_device_process import errors_written

RESULT = "measured.json"
QUICK_LIMIT_S = 10.0
"""Time limit of a quick measurement; results measured before it are kept."""

Heard = Callable[[str], None]


def measured(seconds: float, device: str, *, on_line: Heard = lambda line: None) -> dict[str, Any]:
    """Results of `ncu_launch.bench.machine_process` for a device (cpu, cuda or auto), about `seconds` per measurement.

    Raises the child's `NcuBenchError` if it fails, `KeyboardInterrupt` on Ctrl-C.
    """
    return _of_child(str(seconds), device, advice="Try a shorter --seconds.", on_line=on_line)


def measured_quickly(
    device: str, threads: int | None, types: Sequence[str], *, on_line: Heard = lambda line: None
) -> dict[str, Any]:
    """As `measured`, in 10 s at most, start included: DRAM, and products of as many `types`, in order, as time allows.

    A CPU is measured with `threads` threads, None for PyTorch's default.
    """
    further = (str(threads or 0), ",".join(types))
    advice = "ncu-bench machines measure takes the time it needs."
    return _of_child(QUICKLY, device, *further, advice=advice, timeout=QUICK_LIMIT_S, on_line=on_line)


def _of_child(
    how: str, device: str, *further: str, advice: str, timeout: float | None = None, on_line: Heard
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="ncu-bench-measure-") as name:
        result, log = Path(name) / RESULT, Path(name) / "log"
        command = [*OWN_PYTHON, "-m", "ncu_launch.bench.machine_process", how, device, str(result), *further]
        finished = run(command, log, timeout=timeout, environment=own_environment(), on_line=on_line)
        if finished.interrupted:
            raise KeyboardInterrupt
        if not result.is_file() or (finished.exit_code != 0 and not finished.timed_out):
            ended = f"It was ended after {timeout:g} s." if finished.timed_out else ""
            ended = ended or f"It was exit code {finished.exit_code}."
            no_reason = NcuBenchError("Measuring ended without a result.", ended, advice)
            raise next(iter(errors_written(log)), no_reason)
        found: dict[str, Any] = json.loads(result.read_text("utf-8"))
        return found
