"""A sweep: its points, each measured by its own processes, so that no crash ends the others.

A point whose process runs out of memory, crashes or hangs becomes a row with that outcome. The process is
`ncu_launch.bench.point_process`; docs/bench.md lists the columns. Times differ more between processes than within one,
so a point may have several processes: their samples form one row, and the scatter of their means gives the interval
(Georges, Buytaert and Eeckhout, OOPSLA 2007, p. 57; Kalibera and Jones, ISMM 2013, p. 63).
"""

from __future__ import annotations

import json
import platform
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import partial
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ncu_launch.bench.latency_statistics import Effort, half_width, summed_up
from ncu_launch.bench.point_outcomes import CRASHED, FAILED, OK, OUT_OF_MEMORY, TIMED_OUT
from ncu_launch.bench.point_process import STAGE
from ncu_launch.errors import WrongUsage
from ncu_launch.profile.run_outcome import last_error_line
from ncu_launch.profilers.subprocesses import OWN_PYTHON, Finished, own_environment, run
from ncu_launch.targets.language.settings import causal_name, check
from ncu_launch.targets.model_name_check import misspelt
from ncu_launch.targets.models import HF_CONFIGURATIONS
from ncu_launch.targets.reference_kernels import is_known_work, own_dtype
from ncu_launch.targets.user_functions import ARGUMENTS, COLUMNS, accepted_sizes, is_function, lacks
from ncu_launch.targets.varied_arguments import SETTINGS, Variant, settings_in, varied
from ncu_launch.workload.kept_code import take_code
from ncu_launch.workload.meta_device_process import errors_written
from ncu_launch.workload_spec import Workload

ARGUMENT_VALUES = "argument_values"
"""Key of a row's arguments as a dict, which become columns of the table."""
IMAGE_CONFIGURATIONS = ("ViTConfig",)
Row = dict[str, Any]
StageCallback = Callable[[str], None]
Environment = Mapping[str, str | None]
"""Environment variables to set; None removes one."""


@dataclass(frozen=True)
class Sweep:
    """The values to vary. None as a size stands for the target's default size.

    `arguments` are names and values of a user's function, one group per variant; `languages` the same for causal
    language models (`ncu_launch.targets.language.settings`); `variants` come from --vary, which may also set sizes,
    type and mode.
    """

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
    arguments: tuple[tuple[tuple[str, str], ...], ...] = ((),)
    variants: tuple[Variant, ...] = ((),)
    languages: tuple[tuple[tuple[str, str], ...], ...] = ((),)


@dataclass(frozen=True)
class BenchPoint:
    """One measurement of a sweep. `name` lists every setting, and is the same in every sweep."""

    name: str
    workload: Workload


def points(sweep: Sweep) -> list[BenchPoint]:
    """Every combination once, batch size varying fastest. Sizes that a target does not have are not varied.

    Raises `WrongUsage` for a malformed gemm: or conv: target, for a user's function without an argument for a requested
    size, and for a value of --vary that the target does not take, or that another option sets too.
    """
    _check_functions(sweep)
    _check_variants(sweep)
    found: dict[str, BenchPoint] = {}
    for target in sweep.targets:
        axes = sizes_of(target)
        own, is_misspelt = own_dtype(target), misspelt(target) is not None
        for dtype, mode, device, phase, arguments, variant, length, size, batch in product(
            (own,) if own else sweep.dtypes,
            sweep.modes,
            sweep.devices,
            sweep.phases,
            sweep.arguments if is_function(target) else sweep.languages if causal_name(target) else ((),),
            sweep.variants,
            sweep.sequence_lengths if "sequence" in axes else (None,),
            sweep.input_sizes if "input" in axes else (None,),
            sweep.batch_sizes if "batch" in axes else (None,),
        ):
            workload = Workload(
                target, batch or 1, size, length, dtype, sweep.autocast, mode, sweep.channels_last, (phase,),
                device=device, arguments=arguments,
            )  # fmt: skip
            workload = varied(workload, variant, takes_arguments=takes_arguments(target))
            workload = _without_sizes(workload, axes) if variant else workload
            workload = _without_length(workload)
            workload = workload if is_misspelt else check(workload, sweep.phases)
            point = BenchPoint(_name(workload, workload.batch_size if batch else None), workload)
            found.setdefault(point.name, point)
    return list(found.values())


def takes_arguments(target: str) -> bool:
    """True for functions, and for causal language models, whose run and configuration are set by arguments."""
    return is_function(target) or causal_name(target) is not None


def _without_length(workload: Workload) -> Workload:
    """The workload of prefill or decode without a sequence length, which is meant for other phases."""
    return replace(workload, sequence_length=None) if workload.generates else workload


def argument_names(sweep: Sweep) -> list[str]:
    """The function arguments that a sweep sets by --arg and --vary."""
    given = [name for arguments in sweep.arguments for name, _ in arguments]
    return list(dict.fromkeys([*given, *(name for one in sweep.variants for name, _ in one if name not in SETTINGS)]))


def point_of(workload: Workload) -> BenchPoint:
    """The point of a workload, named as in a sweep."""
    return BenchPoint(_name(workload, workload.batch_size if "batch" in sizes_of(workload.target) else None), workload)


def sizes_of(target: str) -> frozenset[str]:
    """Which of batch, input and sequence a target accepts.

    Reference kernels have none. A user's function accepts sizes for which it has arguments; if its source does not show
    them, all are tried, and the process rejects missing ones.
    """
    if is_function(target):
        taken = accepted_sizes(target)
        return frozenset(ARGUMENTS) if taken is None else taken
    if target.startswith("hf:"):
        configuration = HF_CONFIGURATIONS.get(target.removeprefix("hf:"), ("",))[0]
        return frozenset(("batch", "input" if configuration in IMAGE_CONFIGURATIONS else "sequence"))
    if is_known_work(target):
        return frozenset()
    return frozenset(("batch", "input"))


def _check_functions(sweep: Sweep) -> None:
    """Raise `WrongUsage` if a function lacks a requested size, unless another target has that input size or length."""
    asked = {
        "batch": sweep.batch_sizes != (1,),
        "input": sweep.input_sizes != (None,),
        "sequence": sweep.sequence_lengths != (None,),
    }
    asked |= {size: True for size, column in COLUMNS.items() if column in settings_in(sweep.variants)}
    takes = {target: sizes_of(target) for target in sweep.targets}
    anywhere = frozenset().union(*takes.values()) - {"batch"}
    for target in filter(is_function, sweep.targets):
        for size in (size for size, wanted in asked.items() if wanted and size not in takes[target] | anywhere):
            raise lacks(target, size)


_SET_BY = {
    "batch_size": "batch_sizes", "input_size": "input_sizes", "sequence_length": "sequence_lengths", "dtype": "dtypes",
    "mode": "modes",
}  # fmt: skip
"""Field of a workload -> the field of a sweep with its values."""


def _check_variants(sweep: Sweep) -> None:
    """Raise `WrongUsage` if an option sets a value that --vary sets too."""
    usual = Sweep(())
    for name in settings_in(sweep.variants):
        if getattr(sweep, _SET_BY[name]) != getattr(usual, _SET_BY[name]):
            raise WrongUsage(f"{name} is varied, and its own option gives it values too.", advice="Leave one out.")


def _without_sizes(workload: Workload, axes: frozenset[str]) -> Workload:
    """The workload without sizes that its target does not have; reference kernels keep the type in their name."""
    return replace(
        workload,
        batch_size=workload.batch_size if "batch" in axes else 1,
        input_size=workload.input_size if "input" in axes else None,
        sequence_length=workload.sequence_length if "sequence" in axes else None,
        dtype=own_dtype(workload.target) or workload.dtype,
    )


def _name(workload: Workload, batch: int | None) -> str:
    parts = [
        workload.target,
        f"batch={batch}" if batch else "",
        f"input={workload.input_size}" if workload.input_size else "",
        f"seq={workload.sequence_length}" if workload.sequence_length else "",
        *(f"{name}={value}" for name, value in workload.arguments),
        workload.dtype,
        "autocast" if workload.autocast else "",
        "channels-last" if workload.channels_last else "",
        workload.mode,
        *workload.phases,
        workload.device,
    ]
    return " ".join(part for part in parts if part)


def measured(
    point: BenchPoint,
    effort: Effort,
    timeout: float,
    log: Path,
    *,
    on_stage: StageCallback = lambda stage: None,
    environment: Environment = MappingProxyType({}),
    should_end: Callable[[], str | None] | None = None,
) -> Row:
    """The row of a point, however its process ends; it is killed after `timeout` seconds.

    The process writes its output to `log`; `on_stage` is called with each stage. `environment` lists changes to the
    current environment. Raises `KeyboardInterrupt` on Ctrl-C, or if `should_end` returns a reason; both end the
    process.
    """
    process = partial(run, timeout=timeout, environment=_changed(environment), should_end=should_end)
    own = in_own_process("ncu_launch.bench.point_process", point.workload, asdict(effort), log, process, on_stage)
    found = own.found if own.found.get("outcome") == OUT_OF_MEMORY else {**own.found, **_ended(own, log)}
    if found["outcome"] == OK:
        found["process_means_ns"] = [found["latency_mean_ns"]]
    return {**settings_of(point), **found, **own.facts}


@dataclass(frozen=True)
class OwnProcess:
    """How a point's process ended, its last stage, the result that it wrote ({} if none), and facts for its rows."""

    finished: Finished
    stage: str
    found: Row
    facts: Row


def in_own_process(
    module: str, workload: Workload, asked: Row, log: Path, process: Callable[..., Finished], on_stage: StageCallback
) -> OwnProcess:
    """Have a module measure a workload in a separate process, which `process` runs like `run`.

    Raises `KeyboardInterrupt` on Ctrl-C.
    """
    stages = ["starting"]

    def listen(line: str) -> None:
        if line.startswith(STAGE):
            stages.append(line.removeprefix(STAGE))
            on_stage(stages[-1])

    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    with tempfile.TemporaryDirectory(prefix="ncu-bench-point-") as name:
        files = [Path(name) / part for part in ("workload.json", "asked.json", "result.json")]
        files[0].write_text(workload.to_json(), encoding="utf-8")
        files[1].write_text(json.dumps(asked), encoding="utf-8")
        finished = process([*OWN_PYTHON, "-m", module, *map(str, files)], log, on_line=listen)
        if finished.interrupted:
            raise KeyboardInterrupt
        found: Row = json.loads(files[2].read_text("utf-8")) if files[2].is_file() else {}
        take_code(Path(name), log)
    facts = {"started": started, "seconds": round(finished.seconds, 3), "log": log.name, "host": platform.node()}
    return OwnProcess(finished, stages[-1], found, facts)


def _changed(changes: Environment) -> dict[str, str]:
    found = {**own_environment(), **changes}
    return {name: value for name, value in found.items() if value is not None}


def unmeasured(point: BenchPoint, reason: str, log: Path) -> Row:
    """The row of a point that was lost together with its worker, with unknown start and duration."""
    return {**settings_of(point), "outcome": CRASHED, "reason": reason, "log": log.name}


def settings_of(point: BenchPoint) -> Row:
    """The columns of a row that are known before the point is measured."""
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
        "arguments": ", ".join(f"{name}={value}" for name, value in workload.arguments) or None,
        ARGUMENT_VALUES: dict(workload.arguments),
    }


def _ended(own: OwnProcess, log: Path) -> Row:
    """The outcome of a process and its reason. A measured point is ok even if its FLOPs and bytes were not counted."""
    outcome, reason = failure(own.finished, log, own.stage)
    if not own.found and outcome == OK:
        return {"outcome": FAILED, "reason": f"its process ended with exit code 0 while {own.stage}: the target exits"}
    if not own.found:
        return {"outcome": outcome, "reason": reason}
    if outcome == OK:
        return {"outcome": OK}
    unfinished = {} if {"expected_flops", "expected_why_not"} & own.found.keys() else {"expected_why_not": reason}
    return {"outcome": OK, "reason": None, **unfinished}


def failure(finished: Finished, log: Path, stage: str) -> tuple[str, str | None]:
    """The outcome of a process, and the reason if it is not ok, else None."""
    if finished.timed_out:
        return TIMED_OUT, f"no end after {finished.seconds:.0f} s, while {stage}"
    errors = errors_written(log)
    if errors:
        return FAILED, errors[-1].paragraph
    if finished.exit_code < 0:
        hint = ", as the system does when memory runs out" if finished.exit_code == -signal.SIGKILL else ""
        return CRASHED, f"ended by {_signal_name(-finished.exit_code)} while {stage}{hint}"
    if finished.exit_code:
        line = last_error_line(list(finished.lines))
        return OUT_OF_MEMORY if line.startswith("MemoryError") else FAILED, line[:300] or "it printed nothing"
    return OK, None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ------------------------------------------------------------------------------------------------- several processes


def rows_of(
    asked: list[BenchPoint],
    effort: Effort,
    timeout: float,
    logs: Path,
    *,
    on_stage: Callable[[BenchPoint, str], None],
    processes: int = 1,
    begun: Iterable[Row] = (),
    **process: Any,
) -> Iterator[Row]:
    """Yield a point's row after each of its processes; it replaces the point's earlier row.

    The points take turns, one process each per round, so that a machine that slows down affects all of them. `begun`
    are rows of points that had fewer processes before. A failed point is not repeated. `on_stage` is called with each
    point and stage; `process` is passed on to `measured`.

    Ctrl-C ends the process of the current point and is raised.
    """
    rows = {row["point"]: row for row in begun}
    given_up: set[str] = set()
    for _ in range(processes):
        for point in asked:
            row = rows.get(point.name)
            if point.name in given_up or (row is not None and has_all(row, processes)):
                continue
            on_stage(point, "starting")
            listen = partial(on_stage, point)
            least = effort if row is None else _as_long_as(row, effort)
            found = measured(point, least, timeout, _log(logs, row), on_stage=listen, **process)
            if found["outcome"] != OK:
                given_up.add(point.name)
            rows[point.name] = found if row is None else joined(row, found)
            yield rows[point.name]


def has_all(row: Row, processes: int) -> bool:
    """True if a point needs no further process: it had `processes`, or its process failed."""
    return row["outcome"] != OK or len(process_means(row)) >= processes


def process_means(row: Row) -> list[float]:
    """The mean latency in ns of each process of a measured point; rows of older files have a single process."""
    return list(row.get("process_means_ns") or [row["latency_mean_ns"]])


def joined(row: Row, further: Row) -> Row:
    """A measured point's row, combined with the row of a further process.

    The interval of the mean is by Student's t over the means of the processes. A failed further process adds only a
    note and its duration. If conditions changed, as after --resume on another machine, the further row replaces the
    first, with a note.
    """
    notes = list(dict.fromkeys([*(row["notes"] or []), *(further.get("notes") or [])]))
    if further["outcome"] != OK:
        failure = f"a further process {_ENDED[further['outcome']]} ({further['reason']}): see {further['log']}"
        return {**row, "notes": [*notes, failure], "seconds": row["seconds"] + further["seconds"]}
    for name, words in _CONDITIONS.items():
        if row.get(name) is not None and row[name] != further[name]:
            again = f"measured anew: {words} was {row[name]} before and is {further[name]}"
            return {**further, "notes": [*further["notes"], again]}
    combined = {name: _of_known(how, (row.get(name), further.get(name))) for name, how in _OVER_PROCESSES.items()}
    return {**row, **combined, **_latency(row, further), "notes": notes}


def _latency(row: Row, further: Row) -> Row:
    samples, means = [*row["samples_ns"], *further["samples_ns"]], [*process_means(row), *process_means(further)]
    found, reach = summed_up(samples), half_width(means)
    slower = found.median / row["latency_median_ns"]
    times = {name: row[name] * slower for name in ("first_token_ns", "output_token_ns") if row.get(name) is not None}
    names = ("throughput", "sequence_throughput")
    rates = {name: row[name] / slower for name in names if row.get(name) is not None}
    return {
        "samples_ns": samples,
        "process_means_ns": means,
        "iterations": len(samples),
        **found.columns,
        "latency_low_ns": None if reach is None else found.mean - reach,
        "latency_high_ns": None if reach is None else found.mean + reach,
        **times,
        **rates,
    }


_CONDITIONS = {
    "host": "the machine",
    "device_name": "the device",
    "torch": "PyTorch",
    "threads": "the number of threads",
}
_ENDED = {OUT_OF_MEMORY: "ran out of memory", FAILED: "failed", CRASHED: "crashed", TIMED_OUT: "timed out"}


def _throttling(found: Iterable[str]) -> str:
    """The throttling reasons of all processes together; "none" if there are none."""
    reasons = dict.fromkeys(reason for one in found for reason in one.split(", ") if reason != "none")
    return ", ".join(reasons) or "none"


_OVER_PROCESSES: dict[str, Callable[[Any], Any]] = {
    "warmup_iterations": sum, "seconds": sum, "memory_peak_bytes": max, "memory_allocated_bytes": max,
    "process_peak_bytes": max, "gpu_clock_hz": min, "gpu_memory_clock_hz": min, "gpu_temperature_c": max,
    "throttling": _throttling,
}  # fmt: skip
"""How values of several processes are combined. Other columns keep the first process's value: they are equal in all,
such as the number of parameters, or do not depend on timed iterations, such as self times."""


def _of_known(how: Callable[[Any], Any], values: Iterable[Any]) -> Any:
    known = [value for value in values if value is not None]
    return how(known) if known else None


def _as_long_as(row: Row, effort: Effort) -> Effort:
    """The effort of a further process: the same number of samples as before, so that every process has equal weight."""
    count = round(row["iterations"] / len(process_means(row)))
    return replace(effort, least=count, most=count)


def _log(logs: Path, row: Row | None) -> Path:
    """A new log file: point-0007.txt, or point-0007-2.txt for the second process of the same point."""
    if row is None:
        return logs / f"point-{len(list(logs.glob('point-*.txt'))) + 1:04}.txt"
    first = Path(row["log"]).stem
    return logs / f"{first}-{len(list(logs.glob(f'{first}*.txt'))) + 1}.txt"
