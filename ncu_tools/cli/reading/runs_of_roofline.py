"""The runs of a roofline: every named run, and each point of sweeps and varied profiles as a run of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ncu_launch.errors import NcuBenchError, WrongUsage

from ncu_tools.bench.bench_runs import is_bench, load_bench
from ncu_tools.roofline.load_for_roofline import Loaded, model_of
from ncu_tools.roofline.roofline import Look
from ncu_tools.roofline.scene import RUNS, short_names
from ncu_tools.runs import loading
from ncu_tools.runs.selection import Selection
from ncu_tools.runs.varied_run import by_point, in_words, is_varied


def look_at(paths: Sequence[str], look: Look) -> Look:
    """The view of runs: with a sweep or several profiled points, every point and every other run is a whole run."""
    return replace(look, view=RUNS) if any(is_bench(path) or is_varied(path) for path in paths) else look


def load_runs(paths: Sequence[str], load: Callable[[str], Loaded], *, only: Selection | None = None) -> list[Loaded]:
    """Load the runs that `paths` name by `load`, and every measured point of the sweeps among them.

    Models of a sweep are its own if there are other runs. Raises `NcuBenchError` as `load` does, and for a sweep
    without a measured point; `WrongUsage` for a sweep if `only` selects launches.
    """
    found = []
    for path, title in zip(paths, short_names(paths), strict=True):
        if is_varied(path):
            found += _profiled_points(path, title, only)
            continue
        if not is_bench(path):
            found.append(replace(load(path), model=model_of(path)))
            continue
        own = f"{title}: " if len(paths) > 1 else ""
        found += [replace(point, model=f"{own}{point.model}") for point in _points_of(path, only)]
    return found


def _profiled_points(path: str, title: str, only: Selection | None) -> list[Loaded]:
    """Each point of a varied profile as a run of its own."""
    run = loading.load(path)
    model = model_of(path)
    points = by_point(run if only is None else only.of(run))
    return [Loaded(f"{title}/{in_words(values)}", one.table, one.notes, model=model) for values, one in points]


def _points_of(path: str, only: Selection | None) -> list[Loaded]:
    """Each measured point of a sweep as a run of its own."""
    if only is not None:
        raise WrongUsage(
            f"{path} is a sweep, whose points have no launches to choose from.",
            advice="Leave out --kernel, --phase, --layer, --device, --rank and --point.",
        )
    from ncu_tools.bench.points_as_runs import points_of_sweep

    points, notes = points_of_sweep(load_bench(path))
    if not points:
        raise NcuBenchError(
            f"{path} is a sweep without measured points, so there is nothing to draw.",
            advice=f"See how each point ended: ncu-bench bench {path}",
        )
    return [Loaded(point.name, point.table, notes, model=point.model) for point in points]
