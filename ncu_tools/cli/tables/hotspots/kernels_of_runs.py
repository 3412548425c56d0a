"""The common part of all tables of kernels: the launches of the runs, the head line, notes on the runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ncu_launch.errors import WrongUsage

from ncu_tools.cli.options import progress
from ncu_tools.cli.terminal_notes import MoreToSee
from ncu_tools.numbers.number_format import more_kernels

if TYPE_CHECKING:
    from ncu_parsers.datasets.engine import Engine
    from ncu_parsers.sources.settings import Settings

    from ncu_tools.kernels.kernel_row import Hotspot, Hotspots
    from ncu_tools.report.head import Head
    from ncu_tools.runs.run import Run
    from ncu_tools.runs.selection import Selection


def load_runs(
    runs: Sequence[str], only: Selection | None, settings: Settings, *, ranges: bool, engine: Engine | None = None
) -> Run:
    """All `runs` as one, or the launches that `only` selects; without `ranges` a big timeline has no NVTX ranges.

    Raises `WrongUsage` where one is named twice, whose launches would count twice.
    """
    from ncu_tools.runs.loading import load, together
    from ncu_tools.runs.run import pooled

    _require_each_once(runs)
    if engine is not None:
        found = together(runs, engine)
    else:
        with progress("Reading") as reading:
            found = pooled([load(run, reading=reading, ranges=ranges, settings=settings) for run in runs])
    return found if only is None else only.of(found)


def _require_each_once(runs: Sequence[str]) -> None:
    named: dict[str, str] = {}
    for run in runs:
        file = str(Path(run).resolve()) if Path(run).exists() else run
        if file in named:
            also = f", also as {named[file]}" if named[file] != run else ""
            raise WrongUsage(
                f"{run} is named twice{also}.",
                "Launches of all runs are summed, and these would count twice.",
                "Name each run once; ncu-bench compare sets runs beside each other.",
            )
        named[file] = run


def head_of_kernels(runs: Sequence[str], result: Hotspots, only: Selection | None = None, group: str = "name") -> Head:
    """The head line, and the most expensive kernel."""
    from ncu_tools.kernels.kernel_row import NAMES_OF_KERNELS, run_total
    from ncu_tools.report.first_sentences import first_kernel
    from ncu_tools.report.head import head_of

    whole = run_total(result.rows)
    return head_of(
        runs, notes=result.notes, only=only, devices=tuple(result.devices),
        launches=whole.launches, time_ns=whole.time_total_ns, time_title=result.time_title,
        first=first_kernel(result.rows, by_name=group in NAMES_OF_KERNELS),
    )  # fmt: skip


def require_one_point(runs: Sequence[str], kernels: Hotspots) -> None:
    """Raise `WrongUsage` for kernels of several points of a profile --vary."""
    if len({tuple(row.point.items()) for row in kernels.rows}) > 1:
        raise WrongUsage(
            "--units, --mix, --diagnose and --columns work on one point.",
            f"{', '.join(runs)} holds launches of several.",
            "Choose one with --point, as n=64, or name its folder inside the run folder.",
        )


def notes_on_runs(runs: Sequence[str], only: Selection | None) -> list[str]:
    """Notes on several runs, and on several points of one, whose launches are summed."""
    from ncu_tools.runs.loading import points_summed

    return [*note_on_pooling(runs), *(note for run in runs for note in points_summed(run, only))]


def note_on_pooling(runs: Sequence[str]) -> list[str]:
    """The note that the launches of several runs are pooled; [] for one run."""
    if len(runs) == 1:
        return []
    return [f"the launches of all {len(runs)} runs are taken together; ncu-bench compare tells runs apart"]


def hidden_kernels(kernels: Sequence[Hotspot], shown: int | None, *, noun: str = "kernel") -> list[str]:
    """The note on kernels after the first `shown`, with their share of the time; [] if all are shown."""
    hidden = kernels[shown:] if shown is not None else []
    if not hidden:
        return []
    return [MoreToSee(f"{more_kernels([row.time_share for row in hidden], noun)}; --top shows more")]
