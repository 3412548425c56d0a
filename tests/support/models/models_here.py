"""Commands whose model runs in this process, which has imported PyTorch already: that takes a process two seconds.

What is tested with it is what comes out. That a model's process starts, says what it is doing, dies and is ended is
tested with real ones, in tests/launch/workload/test_operators.py and tests/launch/bench/test_bench.py.
"""

from __future__ import annotations

import importlib
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ncu_launch.profilers import subprocesses
from ncu_launch.profilers.subprocesses import OWN_PYTHON, Finished

from tests.support.called_here import called_here
from tests.support.installed import WITHOUT_TORCH
from tests.tools.cli.test_cli import Result

START = (*OWN_PYTHON, "-m")
STARTERS = (
    "ncu_launch.bench.against.pairs", "ncu_launch.bench.machine_measurement", "ncu_launch.bench.sweep", "ncu_launch.profile.collect",
    "ncu_launch.workload.meta_device_process",
)  # fmt: skip
"""Who starts a process of ours for a model."""
MODULES = (
    "ncu_launch.bench.against.pair_process", "ncu_launch.bench.machine_process", "ncu_launch.bench.point_process", "ncu_launch.workload.meta_device_count",
    "ncu_launch.workload.workload",
)  # fmt: skip
"""What runs in it."""
MODULES_ENDED_WITH_THEIR_PARENT = (
    "ncu_launch.workload.workload", "ncu_launch.bench.point_process", "ncu_launch.bench.against.pair_process",
)  # fmt: skip


def models_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the test ends, have commands run their models in this process."""
    pytest.importorskip("torch", reason=WITHOUT_TORCH)
    for name in STARTERS:
        monkeypatch.setattr(importlib.import_module(name), "run", finished_here)
    for name in MODULES_ENDED_WITH_THEIR_PARENT:
        monkeypatch.setattr(importlib.import_module(name), "end_with_the_parent", lambda: None)
    garbage = SimpleNamespace(collect=int, freeze=int, unfreeze=int, disable=int, enable=int)
    monkeypatch.setattr("ncu_launch.bench.point_process.gc", garbage)  # that of all tests takes long to collect


def finished_here(
    command: Sequence[str], log: Path, *, on_line: Callable[[str], None] = lambda line: None, **others: Any
) -> Finished:
    """As `subprocesses.run`, but the main function of one of `MODULES` is called here."""
    module, *arguments = command[len(START) :] or [""]
    if tuple(command[: len(START)]) != START or module not in MODULES:
        return subprocesses.run(command, log, on_line=on_line, **others)
    began = time.monotonic()
    with log.open("w", encoding="utf-8") as stream, redirect_stdout(stream), redirect_stderr(stream), _as_before():
        code = _exit_code(importlib.import_module(module).main, arguments)
    lines = tuple(log.read_text("utf-8").splitlines())
    for line in lines:
        on_line(line)
    return Finished(code, time.monotonic() - began, timed_out=False, interrupted=False, lines=lines)


def _exit_code(main: Callable[[list[str]], int], arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as error:
        return int(error.code or 0)
    except Exception:
        traceback.print_exc()
        return 1


@contextmanager
def _as_before() -> Iterator[None]:
    """Where modules are looked for, and what comes next of random numbers, are afterwards as they were."""
    import torch

    paths, ours, theirs = list(sys.path), random.getstate(), torch.random.get_rng_state()
    try:
        yield
    finally:
        sys.path[:] = paths
        random.setstate(ours)
        torch.random.set_rng_state(theirs)


def called_with_models(*words: str, cwd: Path) -> Result:
    """What `ncu-bench WORDS...` gives in a folder, its models run in this process."""
    with pytest.MonkeyPatch.context() as patch:
        models_run_here(patch)
        return called_here(*words, cwd=cwd)


def profiled_here(*arguments: str, cwd: Path) -> Result:
    """What `ncu-bench profile` gives in a folder, its model run in this process."""
    return called_with_models("profile", *arguments, cwd=cwd)
