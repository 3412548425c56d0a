"""Learn from the matrix products of one's own runs: parameters of the physical model, regularised to known values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ncu_launch.errors import NcuBenchError, WrongUsage

from ncu_tools.ceilings.machine_files import Machine
from ncu_tools.model.expected.carried_run import MeasuredProduct
from ncu_tools.model.expected_time.gemm_time import gemm_work
from ncu_tools.model.expected_time.hardware import hardware_of, types
from ncu_tools.model.expected_time.learning import learnt_from_few
from ncu_tools.model.expected_time.learnt_times import Learnt, LearntEntry
from ncu_tools.model.expected_time.operator_rows import GEMM, operator_rows, read_csv
from ncu_tools.model.expected_time.physics import TimedOperators

FEWEST = 8
"""Fewest products of one type on one machine for learning."""


def products_in_csv(path: Path) -> list[MeasuredProduct] | None:
    """The GEMMs of a table of operators with a column `measured_us`; None if a file is no such table."""
    if path.suffix != ".csv" or not path.is_file():
        return None
    try:
        columns = read_csv(path)
    except NcuBenchError:
        return None
    if "measured_us" not in columns:
        return None
    rows = operator_rows(columns)
    m, n, k, number, quantised = (rows.sizes[name] for name in ("m", "n", "k", "number", "quantised"))
    times = [_number(text) for text in columns["measured_us"]]
    return [
        MeasuredProduct(rows.dtypes[at], int(m[at] * number[at]), int(n[at]), int(k[at]), times[at], quantised[at])
        for at in range(len(rows))
        if rows.failed[at] is None and rows.kinds[at] == GEMM and times[at] > 0
    ]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def learnt_from_products(
    runs: Sequence[tuple[Sequence[MeasuredProduct], Machine]], known: Learnt, source: str
) -> tuple[Learnt, list[dict[str, Any]]]:
    """Entries learnt from products, and a row on each: the error of expected times before and after.

    Raises `WrongUsage` if no type on any machine has enough products of known shapes, or its peak is not known.
    """
    times: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    machines = {machine.id: machine for _, machine in runs}
    for products, machine in runs:
        for dtype, *product in products:
            if dtype in types():
                times.setdefault((machine.id, types()[dtype].like or dtype), []).append(tuple(product))
    entries: list[LearntEntry] = []
    errors: list[dict[str, Any]] = []
    unknown: list[str] = []
    for (name, dtype), rows in times.items():
        hardware = hardware_of(machines[name], dtype)
        if isinstance(hardware, str):
            unknown.append(hardware)
        if len(rows) < FEWEST or isinstance(hardware, str):
            continue
        m, n, k, us, quantised = np.array(rows, dtype=float).T
        measured = TimedOperators(hardware, gemm_work(m, n, k, types()[dtype], quantised=quantised), us)
        entry, before, after = learnt_from_few("gemm", machines[name], dtype, measured, known)
        entries.append(entry)
        errors.append({
            "machine": name, "dtype": dtype, "learnt_points": len(rows), "error_before": before, "error_after": after,
        })  # fmt: skip
    if not entries:
        if unknown:
            raise WrongUsage(
                f"Nothing could be learnt: {'; '.join(unknown)}.",
                "A measured time is compared with the peak of the unit that computes the type.",
                "Name a machine that has it; ncu-bench machines NAME lists its peaks.",
            )
        most = max(map(len, times.values()), default=0)
        raise WrongUsage(
            f"Nothing could be learnt: at most {most} products of one type have shapes, and {FEWEST} are needed.",
            "Times of products are learnt from traces of PyTorch with shapes, or a table with measured_us.",
            "Record with record_shapes=True, and run products of several sizes.",
        )
    return Learnt(tuple(entries), source=f"learnt from {source}"), errors
