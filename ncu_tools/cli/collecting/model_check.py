"""ncu-bench advise MODEL --check: what levers bring that this machine can show, predicted and measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ncu_tools.cli.options import format_option, show, status_and_lines
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ncu_tools.timeline.levers.model_modes import PredictedMode

    Row = dict[str, Any]

COLUMNS = columns(
    "check.target check.mode check.lever check.eager_ns check.predicted_ns check.predicted_low_ns "
    "check.predicted_high_ns check.measured_ns check.off check.holds check.reason check.evidence"
)
SHOWN = columns(
    "check.target check.mode check.eager_ns check.predicted_ns check.predicted_low_ns check.predicted_high_ns "
    "check.measured_ns check.off check.holds check.reason"
)
NOT_PREDICTED = "on a GPU the prediction needs a recording: ncu-bench advise TRACE; what is here was measured alone"
STOPPED_EARLY = "stopped before every mode was measured; type the command again for the rest"


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--check", is_flag=True, required=True, expose_value=False,
    help="Measure the levers that this machine can show.",
)  # fmt: skip
@click.option("--batch-size", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Samples.")
@click.option("--on", "device", type=click.Choice(("auto", "cpu", "cuda")), default="auto", show_default=True,
    help="Where to run.",
)  # fmt: skip
@click.option("--max-time", type=click.FloatRange(min=0.01), default=5.0, show_default=True, metavar="SECONDS",
    help="How long to time a mode at most.",
)  # fmt: skip
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), metavar="DIRECTORY",
    help="Keep profiles and logs here; else they are deleted.",
)  # fmt: skip
@format_option
def command(
    models: tuple[str, ...], batch_size: int, device: str, max_time: float, output: Path | None,
    output_format: str,
) -> None:  # fmt: skip
    """Run a model eager, compiled, as a CUDA graph and channels-last, as this machine can, beside the prediction.

    MODEL is a model as for bench, or a run of one. On a CPU the prediction is by the operators of an eager profile with
    the formulas of the levers; its error is shown, good or bad. A mode that cannot run says what it lacks.

    \b
    Example:
      ncu-bench advise resnet18 --check
      ncu-bench advise resnet18 mobilenet_v2 --check --batch-size 2 --format markdown
    """
    from tempfile import TemporaryDirectory

    from ncu_launch.errors import NcuBenchError
    from ncu_launch.targets.model_name_check import misspelt

    from ncu_tools.timeline.levers.model_modes import model_of

    targets = [model_of(word) for word in models]
    if wrong := next(filter(None, map(misspelt, targets)), None):
        raise wrong
    rows: list[Row] = []
    notes: list[str] = []
    table = Table("check", SHOWN if output_format in ("text", "markdown") else COLUMNS, rows, notes)
    try:
        with TemporaryDirectory() as scratch, status_and_lines() as (status, _):
            for model in targets:
                status(f"{model}: profile")
                folder = (output or Path(scratch)) / model
                for row in _checked(model, batch_size, device, max_time, folder, status, notes):
                    rows.append(row)
    except (KeyboardInterrupt, NcuBenchError):  # measured modes are shown before the error
        if rows:
            notes.append(STOPPED_EARLY)
            show(table, output_format)
        raise
    show(table, output_format)


def _checked(
    model: str, batch_size: int, device: str, max_time: float, folder: Path, status: Any, notes: list[str]
) -> Iterator[Row]:
    """Yield the row of each mode of a model except eager, as it is measured; `notes` gets what is not predicted."""
    from ncu_launch.bench.latency_statistics import Effort
    from ncu_launch.bench.point_outcomes import OK
    from ncu_launch.bench.sweep import Sweep, points, rows_of

    from ncu_tools.timeline.levers.model_modes import CHANNELS_LAST, COMPILE

    (folder / "logs").mkdir(parents=True)
    effort = Effort(precision=0.02, max_s=max_time)

    def measured(sweep: Sweep) -> Row:
        heard = lambda point, stage: status(f"{point.name}: {stage}")  # noqa: E731
        (row,) = rows_of(points(sweep), effort, 600.0, folder / "logs", on_stage=heard)
        return row

    plain = Sweep((model,), (batch_size,), devices=(device,))
    eager = measured(plain)
    if eager["outcome"] != OK:
        yield row_of(model, "eager", eager, eager, None)
        return
    on_cpu = eager["device"] == "cpu"
    asked = {COMPILE: replace(plain, modes=("compile",)), CHANNELS_LAST: replace(plain, channels_last=True)}
    if not on_cpu:
        asked["CUDA graph"] = replace(plain, modes=("cudagraph",))
    predicted = _predicted(model, batch_size, folder, eager["latency_mean_ns"]) if on_cpu else {}
    if not on_cpu and NOT_PREDICTED not in notes:
        notes.append(NOT_PREDICTED)
    for mode, sweep in asked.items():
        yield row_of(model, mode, measured(sweep), eager, predicted.get(mode))


def _predicted(model: str, batch_size: int, folder: Path, eager_ns: float) -> dict[str, PredictedMode]:
    from ncu_tools.profiling.from_python import profile
    from ncu_tools.runs.loading import load
    from ncu_tools.timeline.levers.model_modes import predicted_modes

    profile(model, batch_size=batch_size, phases=("forward",), device="cpu", output=folder / "eager", machine=None)
    return {one.mode: one for one in predicted_modes(load(str(folder / "eager")).table, eager_ns)}


def row_of(model: str, mode: str, row: Row, eager: Row, one: PredictedMode | None) -> Row:
    """One mode of a model: measured and predicted time, and the error of the prediction."""
    from ncu_launch.bench.point_outcomes import OK

    known = row["outcome"] == OK
    measured = row["latency_mean_ns"] if known else None
    off = None if one is None or measured is None else one.likely_ns / measured - 1
    return {
        "target": model, "mode": mode, "lever": one.lever if one is not None else None,
        "eager_ns": eager.get("latency_mean_ns"), "predicted_ns": one.likely_ns if one is not None else None,
        "predicted_low_ns": one.low_ns if one is not None else None,
        "predicted_high_ns": one.high_ns if one is not None else None, "measured_ns": measured, "off": off,
        "holds": None if off is None or one is None or measured is None else one.low_ns <= measured <= one.high_ns,
        "reason": None if known else row["reason"], "evidence": one.evidence if one is not None else None,
    }  # fmt: skip
