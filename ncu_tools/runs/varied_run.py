"""A run of `ncu-bench profile --vary`: the launches of all points in one table, with columns for varied values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ncu_launch.files.manifest import folder_of
from ncu_launch.files.run_files import POINTS_FILE
from ncu_parsers.datasets.dataset_layout import LAUNCHES
from ncu_parsers.schema.own_columns import PREFIX, own_names

from ncu_tools.runs.run import Run

Values = dict[str, Any]
"""Column of a varied setting -> its value at a point."""


def is_varied(path: str) -> bool:
    """True if `path` is the run folder of a profile of several points, or its file of launches."""
    return (folder_of(path) / POINTS_FILE).is_file() and (Path(path).is_dir() or Path(path).name == LAUNCHES)


def by_point(run: Run) -> list[tuple[Values, Run]]:
    """The points of a run, each as a separate run with its values; [] for a run without varied values.

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


def in_words(values: Values) -> str:
    """The values of a point as text: "n=64, kind=a"."""
    return ", ".join(f"{name.removeprefix(PREFIX)}={value}" for name, value in values.items())
