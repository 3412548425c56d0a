"""Measuring a machine in a process of its own, so that what it loads and how it fails stays there."""

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


def measured(seconds: float, device: str, *, heard: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """What `ncu_launch.bench.machine_process` finds of a device (cpu, cuda or auto), each work for about `seconds`.

    Raises `NcuBenchError` when it fails, in its own words.
    """
    with tempfile.TemporaryDirectory(prefix="ncu-bench-measure-") as name:
        result, log = Path(name) / RESULT, Path(name) / "log"
        command = [*OWN_PYTHON, "-m", "ncu_launch.bench.machine_process", str(seconds), device, str(result)]
        finished = run(command, log, environment=own_environment(), heard=heard)
        if finished.interrupted:
            raise KeyboardInterrupt
        if finished.exit_code != 0 or not result.is_file():
            ended = f"It was exit code {finished.exit_code}."
            unsaid = NcuBenchError("Measuring ended without a result.", ended, "Try a shorter --seconds.")
            raise next(iter(said_errors(log)), unsaid)
        found: dict[str, Any] = json.loads(result.read_text("utf-8"))
        return found
