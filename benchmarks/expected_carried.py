"""Error of times carried from a run on one GPU to another (`estimate RUN`), for products measured on both.

Each product is carried by fits without its (n, k), in ten folds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.model.expected.carried_run import CarriedKernel, carried_run
from ncu_tools.model.expected_time.learning import Fit, MeasuredTimes, fits_without_folds
from ncu_tools.model.expected_time.learnt_times import Learnt, LearntEntry, shipped

PAIRS = (
    ("h100-sxm", "h200"), ("a100-sxm4-80gb", "h100-sxm"), ("h100-sxm", "b200"), ("h100-sxm", "l40s"),
    ("b200", "gb300"),
)  # fmt: skip
HEAD = (
    "\n**A measured run elsewhere: BF16 products over 20 us, classes left out**\n\n"
    "| from, to | products | median | p90 | bias | within | ratio of roofs: median | p90 |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|"
)
LONG_NS = 20e3
Shape = tuple[float, float, float]


def carried(everything: Sequence[MeasuredTimes]) -> Iterator[str]:
    """The table of products carried between pairs of GPUs."""
    times = [one for one in everything if one.dtype == "bf16"]
    numbers = [shipped().basis("gemm", find_machine(one.machine), "bf16").logs for one in times]
    found: dict[tuple[str, str], list[tuple[CarriedKernel, float]]] = {pair: [] for pair in PAIRS}
    for left_out, fits in fits_without_folds(times, numbers, seed=1):
        learnt = Learnt(tuple(_entry(one, fit) for one, fit in zip(times, fits, strict=True)))
        of_fold = {one.machine: one.where(chosen) for one, chosen in zip(times, left_out, strict=True)}
        for source, target in PAIRS:
            there = dict(zip(_shapes(of_fold[target]), of_fold[target].measured.time_us * 1e3, strict=True))
            run = _run(of_fold[source], there)
            rows = carried_run(run, find_machine(source), [find_machine(target)], learnt)
            found[source, target] += [(row, there[_shape_of(row)]) for row in rows]
    yield HEAD
    for (source, target), pairs in found.items():
        known = [(row, ns) for row, ns in pairs if ns > LONG_NS and row.expected_ns and row.roof_ratio]
        columns = [
            (row.expected_ns, row.low_ns, row.high_ns, row.time_ns / (row.roof_ratio or 1), ns) for row, ns in known
        ]
        expected, low, high, by_roofs, measured = np.array(columns, dtype=float).T
        off, off_roofs = 100 * (expected / measured - 1), 100 * (by_roofs / measured - 1)
        inside = 100 * np.mean((low <= measured) & (measured <= high))
        yield (
            f"| {source}, {target} | {len(off):,} | {_median_and_tail(off)} | {np.median(off):+.1f} | {inside:.0f} | "
            f"{_median_and_tail(off_roofs)} |"
        )


def _median_and_tail(off: NDArray[np.floating]) -> str:
    return " | ".join(f"{value:.1f}" for value in np.percentile(np.abs(off), [50, 90]))


def _entry(one: MeasuredTimes, fit: Fit) -> LearntEntry:
    spread = shipped().basis(one.kind, find_machine(one.machine), one.dtype).spread
    return LearntEntry(one.kind, one.machine, one.dtype, len(one.groups), fit.logs, fit.corrections, spread)


def _shapes(one: MeasuredTimes) -> list[Shape]:
    work = one.measured.work
    return list(zip(*(work[name].tolist() for name in "mnk"), strict=True))


def _shape_of(row: CarriedKernel) -> Shape:
    (m, k), (_, n) = ([float(size) for size in word.split("x")] for word in (row.shapes or "").split())
    return m, n, k


def _run(one: MeasuredTimes, both: dict[Shape, float]) -> pa.Table:
    """Products that the other GPU was measured with too, as the launches of a trace."""
    rows = [(shape, us) for shape, us in zip(_shapes(one), one.measured.time_us.tolist(), strict=True) if shape in both]
    sizes = np.array([shape for shape, _ in rows]).reshape(-1, 3)
    m, n, k = sizes.T
    return pa.table({
        "kernel_name": ["gemm"] * len(rows), "operator": ["aten::mm"] * len(rows),
        "shapes": [f"{m:.0f}x{k:.0f} {k:.0f}x{n:.0f}" for m, n, k in sizes], "dtype": ["bfloat16"] * len(rows),
        "duration_ns": [us * 1e3 for _, us in rows], "flops": 2 * m * n * k,
        "least_bytes": 2 * (m * k + k * n + m * n), "tensor_flops_bf16": 2 * m * n * k,
    })  # fmt: skip
