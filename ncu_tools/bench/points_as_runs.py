"""The measured points of a sweep, each as a run of one launch, so that a roofline shows them like runs.

Times are measured; FLOPs and bytes follow from formulas for each operator, so the bytes are inputs, weights and
outputs, not traffic between L2 and device memory. If ncu counted both in a profiled run of the point (`bench
--metrics`), the counts are used. The unit of the FLOPs follows from the data type, as in an estimate; with autocast,
where PyTorch chooses the type per operator, it is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from ncu_launch.bench.point_outcomes import OK
from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.report_data.report import Launch, Metric, Report
from ncu_parsers.schema.operator_columns import SWEEP, THREADS

from ncu_tools.bench.bench_runs import BenchRun, Row
from ncu_tools.bench.compare_points import ASKED, DTYPE, SIZES, in_words, size_words, value_of
from ncu_tools.bench.expected_flops import basis_of_flops, is_of_all_operators, notes_on_basis
from ncu_tools.ceilings.machine_files import machine_of_device, measured_machines, unit_of
from ncu_tools.ceilings.work_by_unit import UNIT_COLUMNS
from ncu_tools.numbers.number_format import counted

OF_FORMULAS = "the times of a sweep are measured; its FLOPs and bytes are those of formulas for each operator"

FORMULAS, COUNTS = ("expected_bytes", "expected_flops"), ("profiled_dram_bytes", "profiled_flops")
"""Columns of bytes and FLOPs."""
NCU = "ncu"
OF_COUNTERS = "times are those without a profiler; ncu counted FLOPs and DRAM bytes"


@dataclass(frozen=True)
class SweepPoint:
    """One measured point: its name, its model, and a table of one launch.

    Points of one `model` differ only in their sizes.
    """

    name: str
    model: str
    table: pa.Table


def points_of_sweep(run: BenchRun) -> tuple[list[SweepPoint], list[str]]:
    """The measured points of a sweep in order, and notes.

    The name of a point is its target with all settings that differ within the sweep.
    """
    measured = [row for row in run.rows if row["outcome"] == OK and row["latency_mean_ns"]]
    varied = [name for name in ASKED if len({value_of(row, name) for row in measured}) > 1]
    sizes = [size for size in SIZES if len({row.get(size) for row in measured}) > 1]
    labels = _unique_labels([_label(row, varied, sizes) for row in measured])
    points = [
        SweepPoint(f"{run.name}/{label}", _label(row, varied, ()), _launch_of(row))
        for label, row in zip(labels, measured, strict=True)
    ]
    by_ncu = sum(map(_is_counted, measured))
    notes = [OF_FORMULAS] if by_ncu < len(points) else []
    notes += notes_on_basis([row for row in measured if not _is_counted(row)])
    if by_ncu:
        notes.append(f"{OF_COUNTERS} of {counted(by_ncu, 'point', 'points')}, in a run of its own each")
    return points, [*run.notes, *notes, *_left_out(run)]


def _label(row: Row, varied: Sequence[str], sizes: Sequence[str]) -> str:
    words = (row["target"], *(in_words(row, name) for name in varied), size_words(row, sizes))
    return ", ".join(word for word in words if word)


def _unique_labels(labels: Sequence[str]) -> list[str]:
    """The labels, with a number appended to repeated ones."""
    met: Counter[str] = Counter()
    several = Counter(labels)
    result = []
    for label in labels:
        met[label] += 1
        result.append(f"{label} #{met[label]}" if several[label] > 1 else label)
    return result


def _left_out(run: BenchRun) -> list[str]:
    outcomes = Counter(row["outcome"] for row in run.rows if row["outcome"] != OK)
    if not outcomes:
        return []
    how = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items())
    return [f"{run.name}: {counted(outcomes.total(), 'point', 'points')} without a time left out ({how})"]


def _launch_of(row: Row) -> pa.Table:
    """The row as a table of one launch that stands for a whole iteration."""
    launch = Launch(str(row["point"]), kernel_short=row["target"], phase=row["phase"])
    launch.measures["duration_ns"] = row["latency_mean_ns"]
    if row["device_name"]:
        launch.attributes["Device Name"] = row["device_name"]
    if row["threads"] is not None:
        launch.metrics[THREADS] = Metric(float(row["threads"]), 0.0, "")
    is_counted = _is_counted(row)
    moved, flops = (row[name] for name in (COUNTS if is_counted else FORMULAS))
    if moved is not None:
        launch.measures["dram_bytes"] = moved
    if flops is not None:
        launch.measures["flops"] = flops
        launch.flops_basis = row["profiled_flops_basis"] if is_counted else basis_of_flops(row)
        unit = _unit_of(row)
        if unit is not None:
            launch.measures[UNIT_COLUMNS[unit]] = flops
    return launches_table(Report(str(row["point"]), launches=[launch], origin=NCU if is_counted else SWEEP))


def _is_counted(row: Row) -> bool:
    """True if ncu counted both FLOPs and DRAM bytes of the point."""
    return row.get("profiled_by") == NCU and all(row[name] is not None for name in COUNTS)


def _unit_of(row: Row) -> str | None:
    """The unit that computes a point's data type; None if unknown."""
    dtype, is_autocast = value_of(row, DTYPE)
    if is_autocast:
        return None
    if row["device"] == "cpu" and dtype in ("fp32", "fp64"):
        return str(dtype)
    if is_of_all_operators(row) and not _is_counted(row):  # other operators than contractions run on the CUDA cores
        return None if row["device"] == "cpu" else "fp64" if dtype == "fp64" else "fp32"
    name = row["device_name"]
    machine = machine_of_device(name) or next(iter(measured_machines(name)), None)
    return unit_of(machine, dtype) if machine is not None else None
