"""Load run folders of ncu-bench bench as rows of measured points that can be matched.

A failed point has no device, and no default sizes. Both are filled in from the measured points of its run, where these
agree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from ncu_launch.bench.point_outcomes import OK
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.manifest import manifest_in
from ncu_launch.files.run_files import POINTS_FILE
from ncu_parsers.parquet.footer import is_parquet
from ncu_parsers.parquet.reader import contents, read_bench
from ncu_parsers.schema.bench_table import BENCH_FILE
from ncu_parsers.schema.own_columns import arguments_apart, own_names

OWN_COLUMNS = {"point", "outcome", "samples_ns"}
"""Columns that distinguish a table of measured points from one of launches."""
RUN = "run"
"""Key of a row that names its run."""
OWN_SIZES = ("batch_size", "input_size", "sequence_length")

Row = dict[str, Any]


@dataclass
class BenchRun:
    """One run by name: a row per point, with its samples and its run, and notes.

    `arguments` are the columns with arguments of functions.
    """

    name: str
    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    arguments: tuple[str, ...] = ()


def is_bench(path: str) -> bool:
    """True if `path` is a run folder of ncu-bench bench, or its Parquet file."""
    file = Path(path)
    if file.is_dir():
        return (file / BENCH_FILE).is_file()
    if not (file.is_file() and is_parquet(file)):
        return False
    try:
        return set(contents(file).names) >= OWN_COLUMNS
    except NcuBenchError:
        return False


def load_bench(path: str, taken: Collection[str] = ()) -> BenchRun:
    """Load the run that `path` names. Raises `NcuBenchError` if its table cannot be read.

    Arguments whose name is `taken` by another column of the rows are renamed (`arguments_apart`).
    """
    table = arguments_apart(points_of(path), {RUN, *taken})
    rows: list[Row] = table.to_pylist()
    named = [{**row, RUN: path} for row in completed(rows)]
    return BenchRun(path, named, _notes(path, _file(path), rows), tuple(own_names(table)))


def points_of(path: str) -> pa.Table:
    """The points of the run that `path` names as a table, as measured; raises as `load_bench`."""
    return read_bench(_file(path))


def _file(path: str) -> Path:
    return Path(path) / BENCH_FILE if Path(path).is_dir() else Path(path)


def file_of_points(path: str) -> Path:
    """The table of points of a sweep or of a profile of several points. Raises `NcuBenchError` if there is none."""
    place = Path(path)
    if not place.is_dir():
        return place
    found = next((place / name for name in (BENCH_FILE, POINTS_FILE) if (place / name).is_file()), None)
    if found is None:
        raise NcuBenchError(
            f"{path} holds no points.",
            "It is neither a run of bench nor one of profile --vary.",
            "Make one with: ncu-bench bench TARGET --vary n=64..4096*2 -o RUN",
        )
    return found


def completed(rows: list[Row]) -> list[Row]:
    """The rows of one run, with device and sizes of failed points filled in where all measured ones agree."""
    measured = [row for row in rows if row["outcome"] == OK]
    return [row if row["outcome"] == OK else {**row, **_known_of_others(row, measured)} for row in rows]


def _known_of_others(row: Row, measured: list[Row]) -> Row:
    same_target = [one for one in measured if one["target"] == row["target"]]
    of_device = [one for one in measured if row["device"] in (None, one["device"])]
    sources = {"device": of_device, "device_name": of_device, **dict.fromkeys(OWN_SIZES, same_target)}
    found = {name: _only(one[name] for one in ones) for name, ones in sources.items() if row[name] is None}
    return {name: value for name, value in found.items() if value is not None}


def _only(values: Iterable[Any]) -> Any:
    """The common value; None if they differ, or there is none."""
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _notes(path: str, file: Path, rows: list[Row]) -> list[str]:
    manifest = manifest_in(file.parent)
    notes = [f"{path}: the sweep was stopped before its end"] if manifest is not None and manifest.partial else []
    throttled = sum(row["throttling"] not in (None, "none") for row in rows)
    if throttled:
        notes.append(f"{path}: clocks were held down in {throttled} of {len(rows)} points")
    return notes
