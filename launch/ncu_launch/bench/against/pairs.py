"""Points of a sweep, each measured together with a reference in its own processes, however these end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ncu_launch.bench.against.paired_rounds import times_ratio
from ncu_launch.bench.latency_statistics import Effort
from ncu_launch.bench.point_outcomes import DISAGREES, FAILED, NOT_COMPARED, OK, OUT_OF_MEMORY
from ncu_launch.bench.sweep import BenchPoint, OwnProcess, Row, failure, in_own_process, joined, settings_of
from ncu_launch.errors import WrongUsage
from ncu_launch.profilers.subprocesses import own_environment, run
from ncu_launch.targets.user_functions import is_function


@dataclass(frozen=True)
class Reference:
    """The reference function, and the tolerance for its results; None: the tolerances by type."""

    target: str
    tolerance: float | None = None


@dataclass
class MeasuredPair:
    """A point and its reference, as measured so far.

    `outcome` is one of `point_outcomes`: of the processes, or of the comparison of results. `rows` are the rows of both
    as in a sweep, without times if they could not be measured. `logs` holds, per process and round, the natural
    logarithms of both median times in ns.
    """

    point: BenchPoint
    reference: BenchPoint
    outcome: str
    reason: str | None = None
    rows: list[Row] = field(default_factory=list)
    agreement: dict[str, Any] = field(default_factory=dict)
    logs: list[list[list[float]]] = field(default_factory=list)

    @property
    def row(self) -> Row:
        """The settings, both times in ns, their ratio with its 95 % interval, and the difference of results."""
        asked = {name: value for name, value in self.rows[0].items() if name in _ASKED}
        ratio = asdict(times_ratio(self.logs)) if self.logs else {}
        return {
            **asked,
            "reference": self.reference.workload.target,
            "outcome": self.outcome,
            "reason": self.reason,
            **{name: ratio.get(name) for name in ("mine_ns", "reference_ns", "ratio", "low", "high")},
            "rounds": sum(map(len, self.logs)) or None,
            "processes": len(self.logs) or None,
            **{name: self.agreement.get(name) for name in ("agrees", "max_abs", "max_rel")},
            "tolerance": max((self.agreement.get("tolerances") or {}).values(), default=None),
            "notes": [
                f"{row['target']}: {note}" for row in self.rows for note in row.get("notes") or []
            ],
        }  # fmt: skip


_ASKED = (
    "point", "target", "device", "device_name", "dtype", "mode", "phase", "batch_size", "input_size",
    "sequence_length", "arguments", "threads", "throttling", "torch",
)  # fmt: skip


def check_functions(points: list[BenchPoint], reference: Reference) -> None:
    """Raise `WrongUsage` for targets other than user functions: a model has its own weights."""
    for target in dict.fromkeys((*(point.workload.target for point in points), reference.target)):
        if not is_function(target):
            raise WrongUsage(
                f"{target} is not a function, so it has no results to compare.",
                "--against compares what two functions give for the same inputs.",
                "Write both as FILE.py:FUNCTION or package.module:FUNCTION.",
            )


def pairs_of(
    points: list[BenchPoint],
    reference: Reference,
    effort: Effort,
    timeout: float,
    logs: Path,
    *,
    processes: int = 1,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> Iterator[MeasuredPair]:
    """Yield a pair after each of its processes; it replaces the earlier one of the same point.

    The points take turns, one process each per round. A pair without times is not repeated. Raises `KeyboardInterrupt`
    on Ctrl-C.
    """
    found: dict[str, MeasuredPair] = {}
    for number in range(processes):
        for point in points:
            before = found.get(point.name)
            if before is not None and not before.logs:
                continue
            log = logs / f"pair-{points.index(point) + 1}-{number + 1}.txt"
            again = _measured(point, reference, effort, timeout, log, on_stage)
            found[point.name] = again if before is None else _with_further(before, again)
            yield found[point.name]


def _measured(
    point: BenchPoint,
    reference: Reference,
    effort: Effort,
    timeout: float,
    log: Path,
    on_stage: Callable[[str], None],
) -> MeasuredPair:
    """A pair after one process, which is killed after `timeout` seconds."""
    asked = {"reference": reference.target, "tolerance": reference.tolerance, "effort": asdict(effort)}
    process = partial(run, timeout=timeout, environment=own_environment())
    own = in_own_process(
        "ncu_launch.bench.against.pair_process", point.workload, asked, log, process,
        lambda stage: on_stage(f"{point.name}: {stage}"),
    )  # fmt: skip
    found = own.found
    other = replace(point.workload, target=reference.target, inputs_of=point.workload.target)
    beside = BenchPoint(f"{point.name.replace(point.workload.target, other.target, 1)} {_WITH} {point.name}", other)
    outcome, reason = (OK, None) if "rows" in found else _why_not(own, log)
    measured = found.get("rows") or [{"outcome": outcome, "reason": reason}] * 2
    rows = [
        {**_settings_of_point(each, point), "outcome": outcome, **row, **own.facts}
        for each, row in zip((point, beside), measured, strict=True)
    ]
    pair = MeasuredPair(point, beside, outcome, reason, rows, found.get("agreement") or {})
    if "rows" in found:
        pair.logs.append(found["logs"])
        pair.outcome, pair.reason = _of_results(pair.agreement)
    return pair


_WITH = "with the inputs of"


def _settings_of_point(point: BenchPoint, first: BenchPoint) -> Row:
    """The settings of a point; a reference gets the sizes and arguments of the function compared with it."""
    return {**settings_of(first), "point": point.name, "target": point.workload.target}


def _why_not(own: OwnProcess, log: Path) -> tuple[str, str | None]:
    """Outcome and reason of a process without times. Its stage shows which of the two functions failed."""
    stage = own.stage
    if own.found.get("outcome") == OUT_OF_MEMORY:
        return OUT_OF_MEMORY, f"while {stage}: {own.found['reason']}"
    outcome, reason = failure(own.finished, log, stage)
    if outcome == OK:
        return FAILED, f"its process ended with exit code 0 while {stage}: a function exits"
    return outcome, reason if outcome != FAILED or stage in (reason or "") else f"while {stage}: {reason}"


def _of_results(agreement: dict[str, Any]) -> tuple[str, str | None]:
    outcome = {True: OK, False: DISAGREES, None: NOT_COMPARED}[agreement.get("agrees")]
    return outcome, agreement.get("reason")


def _with_further(before: MeasuredPair, further: MeasuredPair) -> MeasuredPair:
    """A pair combined with a further process. A failed process adds only a note; results must agree in all others."""
    rows = [joined(row, again) for row, again in zip(before.rows, further.rows, strict=True)]
    if not further.logs:
        return replace(before, rows=rows)
    worst = further if before.outcome == OK else before
    return replace(
        before, outcome=worst.outcome, reason=worst.reason, rows=rows, agreement=worst.agreement,
        logs=[*before.logs, *further.logs],
    )  # fmt: skip
