"""Ranges that a program marked with `ncu_tools.range`: measurements inside, beside the user's own formulas.

A range includes its launches, and those of ranges inside it, per pass. The formulas are in `ranges.jsonl` of the run
folder, one line per pass; passes of one range may differ, so means are compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.run_files import USER_RANGES
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import Floats

from ncu_tools.model.expected.both_sides import MeasuredLaunches, ratio, total


@dataclass(frozen=True)
class UserRange:
    """A range, per pass: None if unknown, or without a formula in every pass.

    `time_ns` is the sum of its launches or operators, `wall_ns` the elapsed time on the host's clock (under ncu, with
    all its replays). `flops_lower_bound` is True if some FLOPs were not collected.
    """

    range: str
    passes: int
    launches: int
    wall_ns: float
    time_ns: float | None
    measured_flops: float | None
    flops_lower_bound: bool
    expected_flops: float | None
    flops_ratio: float | None
    measured_bytes: float | None
    expected_bytes: float | None
    bytes_ratio: float | None


@dataclass(frozen=True)
class Pass:
    """One pass through a range, as recorded by its program."""

    range: str
    ns: float
    flops: float | None
    bytes: float | None


def passes_in(run: str) -> list[Pass]:
    """The passes of a run folder; [] if its program marked none. Raises `NcuBenchError` for a damaged file."""
    file = Path(run) / USER_RANGES
    if not file.is_file():
        return []
    found = []
    for number, line in enumerate(file.read_text("utf-8", errors="replace").splitlines(), 1):
        try:
            record = json.loads(line)
            amounts = [None if record[name] is None else float(record[name]) for name in ("flops", "bytes")]
            found.append(Pass(str(record["range"]), float(record["ns"]), *amounts))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise NcuBenchError(
                f"Line {number} of {file} is no range.",
                "The program may have been killed as it wrote.",
                "Profile again.",
            ) from error
    return found


def compare_ranges(table: pa.Table, passes: Iterable[Pass]) -> list[UserRange]:
    """Every range with its launches, in the order in which the ranges first ended."""
    by_range: dict[str, list[Pass]] = {}
    for one in passes:
        by_range.setdefault(one.range, []).append(one)
    measured = MeasuredLaunches(table)
    modules = tables.words(measured.table, "module")
    times = tables.floats(measured.table, "duration_ns")
    found = []
    for path, through in sorted(by_range.items(), key=lambda item: item[0]):
        inside = np.array([name == path or (name or "").startswith(f"{path}.") for name in modules], dtype=bool)
        found.append(_row(path, through, measured, times, inside))
    return found


def _row(
    path: str, passes: list[Pass], measured: MeasuredLaunches, times: Floats, inside: np.typing.NDArray[np.bool_]
) -> UserRange:
    count = len(passes)
    flops, is_lower_bound = measured.flops_of(inside, count)
    expected_flops = _mean([one.flops for one in passes])
    moved = total(measured.dram_bytes[inside], count)
    expected_bytes = _mean([one.bytes for one in passes])
    return UserRange(
        path, count, int(inside.sum()), sum(one.ns for one in passes) / count, total(times[inside], count),
        flops, is_lower_bound, expected_flops, ratio(flops, expected_flops),
        moved, expected_bytes, ratio(moved, expected_bytes),
    )  # fmt: skip


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
