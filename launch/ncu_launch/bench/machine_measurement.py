"""Measure a machine in a child process, so that its imports and crashes do not affect this process."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_launch.profilers.subprocesses import OWN_PYTHON, own_environment, run
from ncu_launch.workload.meta_device_process import said_errors

RESULT = "measured.json"


def measured(seconds: float, device: str, *, on_line: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Results of `ncu_launch.bench.machine_process` for a device (cpu, cuda or auto), about `seconds` per measurement.

    Raises the child's `NcuBenchError` if it fails.
    """
    with tempfile.TemporaryDirectory(prefix="ncu-bench-measure-") as name:
        result, log = Path(name) / RESULT, Path(name) / "log"
        command = [*OWN_PYTHON, "-m", "ncu_launch.bench.machine_process", str(seconds), device, str(result)]
        finished = run(command, log, environment=own_environment(), on_line=on_line)
        if finished.interrupted:
            raise KeyboardInterrupt
        if finished.exit_code != 0 or not result.is_file():
            ended = f"It was exit code {finished.exit_code}."
            no_reason = NcuBenchError("Measuring ended without a result.", ended, "Try a shorter --seconds.")
            raise next(iter(said_errors(log)), no_reason)
        found: dict[str, Any] = json.loads(result.read_text("utf-8"))
        return found
