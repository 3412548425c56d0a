"""A run of `ncu-bench profile --vary`: the launches of all points in one table, with columns for what was varied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ncu_launch.files.manifest import folder_of
from ncu_launch.files.run_files import POINTS_FILE
from ncu_parsers.schema.own_columns import PREFIX, own_names

from ncu_tools.runs.loading import LAUNCHES, load
from ncu_tools.runs.run import Run
from ncu_tools.runs.selection import Selection

Values = dict[str, Any]
"""Column of what was varied -> its value at a point."""


def is_varied(path: str) -> bool:
    """True if `path` is the run folder of a profile of several points, or its file of launches."""
    return (folder_of(path) / POINTS_FILE).is_file() and (Path(path).is_dir() or Path(path).name == LAUNCHES)


def by_point(run: Run) -> list[tuple[Values, Run]]:
    """The points of a run, each as a run of its own with its values; [] for a run in which nothing was varied.

    Raises `NcuBenchError` if its file is damaged.
    """
    if len(run.parts) != 1 or not run.parts[0].is_varied:
        return []
    names = own_names(run.table)
    places: dict[tuple[Any, ...], list[int]] = {}
    columns = [run.table.column(name).to_pylist() for name in names]
    for place, key in enumerate(zip(*columns, strict=True)):
        places.setdefault(key, []).append(place)
    found = []
    for key, rows in places.items():
        values = {name: value for name, value in zip(names, key, strict=True) if value is not None}
        found.append((values, Run.held(f"{run.name}/{in_words(values)}", run.table.take(rows), run.notes)))
    return found


def points_summed(path: str, only: Selection | None) -> list[str]:
    """The note of a view that sums the launches of several points of the run that `path` names; [] for one point.

    Raises `NcuBenchError` if its file is damaged.
    """
    if not is_varied(path):
        return []
    run = load(path)
    points = [in_words(values) for values, _ in by_point(run if only is None else only.of(run))]
    if len(points) < 2:
        return []
    typed = points[0].replace(", ", ",")
    return [f"{len(points)} points of the profile are taken together here; --point {typed} shows one alone"]


def in_words(values: Values) -> str:
    """The values of a point as text: "n=64, kind=a"."""
    return ", ".join(f"{name.removeprefix(PREFIX)}={value}" for name, value in values.items())
