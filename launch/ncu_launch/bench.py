"""A sweep: which points it has, and each of them measured by a process of its own, so that none can end the others.

A point whose process runs out of memory, crashes or hangs is a row that says so. The process is `ncu_launch.timing`;
docs/bench.md has the columns.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from itertools import product
from pathlib import Path
from typing import Any

from ncu_launch.execute import Finished, own_environment, run
from ncu_launch.expectation import said_errors
from ncu_launch.known_work import is_known_work, own_dtype
from ncu_launch.latency import Effort
from ncu_launch.models import HF_CONFIGURATIONS
from ncu_launch.outcome import last_words
from ncu_launch.request import Workload
from ncu_launch.timing import STAGE

OK, OUT_OF_MEMORY, FAILED, CRASHED, TIMED_OUT = OUTCOMES = ("ok", "out of memory", "failed", "crashed", "timed out")
"""How a point can end. Failed is an error that the program reports, crashed a signal that ended it."""

IMAGE_CONFIGURATIONS = ("ViTConfig",)
Row = dict[str, Any]
Heard = Callable[[str], None]


@dataclass(frozen=True)
class Sweep:
    """What to vary. None among sizes is the target's own size."""

    targets: tuple[str, ...]
    batch_sizes: tuple[int, ...] = (1,)
    input_sizes: tuple[int | None, ...] = (None,)
    sequence_lengths: tuple[int | None, ...] = (None,)
    dtypes: tuple[str, ...] = ("fp32",)
    modes: tuple[str, ...] = ("eager",)
    devices: tuple[str, ...] = ("auto",)
    phases: tuple[str, ...] = ("forward",)
    autocast: bool = False
    channels_last: bool = False


@dataclass(frozen=True)
class Point:
    """One measurement of a sweep. `name` says all that was asked, and stays the same from one sweep to the next."""

    name: str
    workload: Workload


def points(sweep: Sweep) -> list[Point]:
    """Every combination once, the batch size varying fastest. Sizes that a target does not have are not varied.

    Raises `WrongUsage` for a target that starts like known work and is not written as such.
    """
    found: dict[str, Point] = {}
    for target in sweep.targets:
        axes = sizes_of(target)
        own = own_dtype(target)
        for dtype, mode, device, phase, length, size, batch in product(
            (own,) if own else sweep.dtypes,
            sweep.modes,
            sweep.devices,
            sweep.phases,
            sweep.sequence_lengths if "sequence" in axes else (None,),
            sweep.input_sizes if "input" in axes else (None,),
            sweep.batch_sizes if "batch" in axes else (None,),
        ):
            workload = Workload(
                target, batch or 1, size, length, dtype, sweep.autocast, mode, sweep.channels_last, (phase,),
                device=device,
            )  # fmt: skip
            name = _name(workload, batch)
            found.setdefault(name, Point(name, workload))
    return list(found.values())


def sizes_of(target: str) -> frozenset[str]:
    """Which of batch, input and sequence change what a target does; known work and functions have their own inputs."""
    if target.startswith("hf:"):
        configuration = HF_CONFIGURATIONS.get(target.removeprefix("hf:"), ("",))[0]
        return frozenset(("batch", "input" if configuration in IMAGE_CONFIGURATIONS else "sequence"))
    if is_known_work(target) or (":" in target and not target.startswith("timm:")):
        return frozenset()
    return frozenset(("batch", "input"))


def _name(workload: Workload, batch: int | None) -> str:
    parts = [
        workload.target,
        f"batch={batch}" if batch else "",
        f"input={workload.input_size}" if workload.input_size else "",
        f"seq={workload.sequence_length}" if workload.sequence_length else "",
        workload.dtype,
        "autocast" if workload.autocast else "",
        "channels-last" if workload.channels_last else "",
        workload.mode,
        *workload.phases,
        workload.device,
    ]
    return " ".join(part for part in parts if part)


def measured(point: Point, effort: Effort, timeout: float, log: Path, *, heard: Heard = lambda stage: None) -> Row:
    """The row of a point, whatever becomes of its process, which is ended after `timeout` seconds.

    What it prints goes into `log`; `heard` is told how far it is. Ctrl-C ends it, and is raised again.
    """
    stages = ["starting"]

    def listen(line: str) -> None:
        if line.startswith(STAGE):
            stages.append(line.removeprefix(STAGE))
            heard(stages[-1])

    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    with tempfile.TemporaryDirectory(prefix="ncu-bench-point-") as name:
        workload, asked, result = (Path(name) / part for part in ("workload.json", "effort.json", "result.json"))
        workload.write_text(point.workload.to_json(), encoding="utf-8")
        asked.write_text(json.dumps(asdict(effort)), encoding="utf-8")
        command = [sys.executable, "-m", "ncu_launch.timing", *map(str, (workload, asked, result))]
        finished = run(command, log, timeout=timeout, environment=own_environment(), heard=listen)
        if finished.interrupted:
            raise KeyboardInterrupt
        found: Row = json.loads(result.read_text("utf-8")) if result.is_file() else {}
    ended = found if found.get("outcome") == OUT_OF_MEMORY else {**found, **_ended(finished, log, stages[-1], found)}
    facts = {"started": started, "seconds": round(finished.seconds, 3), "log": log.name}
    return {**_asked(point), **ended, **facts}


def _asked(point: Point) -> Row:
    workload = point.workload
    sizes = sizes_of(workload.target)
    return {
        "point": point.name,
        "target": workload.target,
        "device": workload.device if workload.device != "auto" else None,
        "dtype": workload.dtype,
        "autocast": workload.autocast,
        "mode": workload.mode,
        "channels_last": workload.channels_last,
        "phase": workload.phases[0],
        "batch_size": workload.batch_size if "batch" in sizes else None,
        "input_size": workload.input_size,
        "sequence_length": workload.sequence_length,
    }


def _ended(finished: Finished, log: Path, stage: str, found: Row) -> Row:
    """The outcome of a process and the reason for it. One that was measured may still fail at what comes after."""
    outcome, reason = _failure(finished, log, stage)
    if not found:
        return {"outcome": outcome, "reason": reason}
    if outcome == OK:
        return {"outcome": OK}
    unfinished = {} if "expected_flops" in found or "expected_why_not" in found else {"expected_why_not": reason}
    return {"outcome": OK, "reason": None, **unfinished}


def _failure(finished: Finished, log: Path, stage: str) -> tuple[str, str | None]:
    if finished.timed_out:
        return TIMED_OUT, f"no end after {finished.seconds:.0f} s, while {stage}"
    said = said_errors(log)
    if said:
        return FAILED, said[-1].paragraph
    if finished.exit_code < 0:
        hint = ", as the system does when memory runs out" if finished.exit_code == -signal.SIGKILL else ""
        return CRASHED, f"ended by {_signal_name(-finished.exit_code)} while {stage}{hint}"
    if finished.exit_code:
        words = last_words(list(finished.lines))
        return OUT_OF_MEMORY if words.startswith("MemoryError") else FAILED, words[:300] or "it said nothing"
    return OK, None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def rows_of(
    asked: list[Point], effort: Effort, timeout: float, logs: Path, *, heard: Callable[[Point, str], None]
) -> Iterator[Row]:
    """The row of each point, as soon as it is measured; `heard` is told which point is how far.

    Ctrl-C ends the process of the point it falls into, and is raised.
    """
    taken = len(list(logs.glob("point-*.txt")))
    for number, point in enumerate(asked, taken + 1):
        heard(point, "starting")
        log = logs / f"point-{number:04}.txt"
        yield measured(point, effort, timeout, log, heard=lambda stage, point=point: heard(point, stage))  # type: ignore[misc]
