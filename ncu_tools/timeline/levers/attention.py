"""Levers on attention: eager attention, as products with a softmax between them, and slow fused kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
from ncu_launch.operators.table import work_of
from ncu_parsers.derived.operators.work_from_shapes import RecordedInputs, recorded_call
from ncu_parsers.timelines.activity.activity import DEVICE_TO_DEVICE, KERNEL, MEMCPY, Integers

from ncu_tools.numbers.number_format import counted, duration, percent
from ncu_tools.numbers.number_format import scaled as with_prefix
from ncu_tools.timeline.graph.step_graph import Numbers
from ncu_tools.timeline.graph.what_if import WhatIf, all_of, scaled
from ncu_tools.timeline.levers.kernels import gemm_rates, time_of
from ncu_tools.timeline.levers.lever import StepLever, step_lever
from ncu_tools.timeline.levers.situation import StepSituation, lever_facts

# --------------------------------------------------------------------------------------------------- eager attention


@dataclass(frozen=True)
class EagerAttention:
    """One eager attention: its operations from the first product to the second, and the work if it were fused.

    `flops` and `least_bytes` are those of fused attention with the shapes of the operators.
    """

    rows: Integers
    flops: float
    least_bytes: float


@step_lever("sdpa")
def fused_attention(step: StepSituation) -> StepLever | None:
    """Fuse attention that runs as several operators."""
    found = list(eager_attentions(step))
    rates = gemm_rates(step)
    if not found or rates is None or not rates.best:
        return None
    limits = lever_facts()["attention"]
    bandwidth = step.bandwidth or achieved_bandwidth(step)
    rows = np.concatenate([one.rows for one in found])
    lasts = np.array([one.rows[-1] for one in found], np.int64)
    others = np.setdiff1d(rows, lasts)
    readings = []
    for of_rate, of_bandwidth in zip(limits["of_rate"], limits["of_bandwidth"], strict=True):
        by_flops = np.array([one.flops for one in found]) / (of_rate * rates.best) * 1e9
        memory = of_bandwidth * bandwidth if bandwidth else np.inf
        by_bytes = np.array([one.least_bytes for one in found]) / memory * 1e9
        readings.append(np.maximum(by_flops, by_bytes))
    least, most = (scaled(step.graph, lasts, new / np.maximum(step.lasts[lasts], 1)) for new in readings)
    middle = scaled(step.graph, lasts, np.sqrt(readings[0] * readings[1]) / np.maximum(step.lasts[lasts], 1))
    gone = step.gone("", others)
    likely = gone.likely or gone.least
    sizes = sorted({(int(one.flops), len(one.rows)) for one in found}, reverse=True)
    return StepLever(
        WhatIf("fuse attention (SDPA)", all_of(gone.least, least), all_of(likely, middle), all_of(gone.most, most)),
        (f"{counted(len(found), 'attention', 'attentions')} of up to {sizes[0][1]} kernels take {time_of(step, rows)}, "
         f"{percent(float(step.lasts[rows].sum()) / max(float(step.lasts.sum()), 1))} of the GPU's time",
         f"fused: {duration(float(readings[1].sum()))} to {duration(float(readings[0].sum()))}, by "
         f"{with_prefix(limits['of_rate'][0] * rates.best, 'FLOP/s')} to {with_prefix(rates.best, 'FLOP/s')}, the best "
         "of the recording's GEMMs"), rows,
    )  # fmt: skip


def eager_attentions(step: StepSituation) -> Iterator[EagerAttention]:
    """Attentions of two products of 3-dimensional inputs, with a softmax of the first product's shape between."""
    limits, ranges = lever_facts()["attention"], step.activity.ranges
    order = step.launch_order
    operator = step.around[order]
    starts = np.flatnonzero(np.diff(operator, prepend=-2) != 0)
    names = [ranges.names[int(ranges.name[one])] if one >= 0 else "" for one in operator[starts].tolist()]
    ends = np.append(starts[1:], len(order))
    products = np.array([name in limits["first"] for name in names], np.bool_)
    for at in (place for place, name in enumerate(names) if name in limits["softmax"]):
        before = np.flatnonzero(products[max(at - limits["operators"], 0) : at]) + max(at - limits["operators"], 0)
        behind = np.flatnonzero(products[at : at + limits["operators"]]) + at
        if len(before) and len(behind) and behind[0] - before[-1] <= limits["operators"]:
            first, second = int(before[-1]), int(behind[0])
            work = _fused_work(step, *(int(step.label[order[starts[place]]]) for place in (first, at, second)))
            if work is not None:
                yield EagerAttention(order[starts[first] : ends[second]], *work)


def _fused_work(step: StepSituation, first: int, softmax: int, second: int) -> tuple[float, float] | None:
    """FLOPs and least bytes of fused attention: 4 B H S S2 d, and Q, K, V, O once; None for other shapes.

    The products and the softmax are given as labels of ranges.
    """
    one, two = ([shape for shape in step.shapes(operator) or [] if len(shape) == 3] for operator in (first, second))
    mid = step.shapes(softmax)
    if len(one) < 2 or len(two) < 2 or not mid or len(mid[0]) < 2:
        return None
    (batch, rows, depth), columns, out = one[-2], one[-1][2], two[-1][2]
    if mid[0][-2:] != [rows, columns] or prod(mid[0]) != batch * rows * columns:
        return None
    size = lever_facts()["bytes"].get(next(iter(step.types(first)), ""), 4)
    flops = 2.0 * batch * rows * columns * (depth + out)
    least = float(size) * batch * (rows * (depth + out) + columns * (depth + out))
    return flops, least


# ---------------------------------------------------------------------------------------------------- slow kernels


@step_lever("attention-kernel")
def faster_attention(step: StepSituation) -> StepLever | None:
    """Fused attention whose kernel has a newer replacement on its GPU, or is far below the rate of nearby GEMMs."""
    replaced, limits = _replaced_by_newer(step), lever_facts()["attention_kernel"]
    rows, best = _far_below_gemms(step)
    slower = ~np.isin(rows, replaced)
    rows, best = rows[slower], best[:, slower]
    every = np.concatenate([replaced, rows])
    if not len(every):
        return None
    least, likely, most = (
        np.concatenate([np.full(len(replaced), factor), of_rate])
        for factor, of_rate in zip(limits["factor"], (np.ones(len(rows)), *best), strict=True)
    )
    said = []
    if len(replaced):
        said.append(f"{counted(len(replaced), 'kernel', 'kernels')} of FlashAttention 2 on a Hopper GPU: "
                    f"{time_of(step, replaced)}")  # fmt: skip
    if len(rows):
        said.append(f"{counted(len(rows), 'attention', 'attentions')} by shapes: {time_of(step, rows)}, "
                    f"{duration(float((best[1] * step.lasts[rows]).sum()))} at the rate of the recording's best "
                    "GEMMs")  # fmt: skip
    return StepLever(
        WhatIf("use a faster attention kernel", scaled(step.graph, every, least), scaled(step.graph, every, likely),
               scaled(step.graph, every, most)),
        tuple(said), every,
    )  # fmt: skip


def _replaced_by_newer(step: StepSituation) -> Integers:
    """Kernels (rows) of FlashAttention 2 on GPUs for which FlashAttention 3 exists."""
    limits = lever_facts()["attention_kernel"]
    if step.machine is not None:
        is_hopper = step.machine.compute_capability == limits["compute_capability"]
    else:
        is_hopper = bool(step.named(re.compile(limits["only_there"])).any())
    named = step.named(re.compile(limits["kernels"])) & (step.activity.operations.kind == KERNEL)
    return np.flatnonzero(named & is_hopper).astype(np.int64)


def _far_below_gemms(step: StepSituation) -> tuple[Integers, Numbers]:
    """Slow kernels (rows) that are the only attention kernel of an operator with known shapes; and their best times.

    The latter have two rows, likely and best, as shares of each kernel's time.
    """
    rates, limits = gemm_rates(step), lever_facts()["attention_kernel"]
    rows = np.flatnonzero((step.category == "attention") & (step.around >= 0) & (step.lasts > 0))
    _, first, count = np.unique(step.around[rows], return_index=True, return_counts=True)
    rows = rows[first[count == 1]]
    if rates is None or not rates.best or not len(rows):
        return rows[:0], np.zeros((2, 0))
    bandwidth = step.bandwidth or achieved_bandwidth(step) or rates.best / limits["ridge"]
    labels, of_row = np.unique(step.label[rows], return_inverse=True)
    flops, least_bytes = np.array([_fused_attention_work(step, one) for one in labels.tolist()])[of_row.reshape(-1)].T
    best = np.stack([
        np.maximum(flops / (of_rate * rates.best), least_bytes / (of_bandwidth * bandwidth)) * 1e9 / step.lasts[rows]
        for of_rate, of_bandwidth in zip(limits["of_rate"], limits["of_bandwidth"], strict=True)
    ])  # fmt: skip
    slow = best[1] < limits["slow"]
    return rows[slow], np.minimum(best[:, slow], 1.0)


def _fused_attention_work(step: StepSituation, label: int) -> tuple[float, float]:
    """FLOPs and least bytes of an attention operator from the shapes of its inputs; NaN if these are unknown."""
    one = step.activity.ranges.labels[label]
    work = None
    if one.inputs is not None:
        work = work_of(recorded_call(one.name, RecordedInputs(*one.inputs)))
    if work is None or not work.is_contraction or not work.flops or work.least_bytes is None:
        return np.nan, np.nan
    return float(work.flops), float(work.least_bytes)


def achieved_bandwidth(step: StepSituation) -> float | None:
    """The best rate of copies within the device in the recording, in B/s of reads and writes; None without any."""
    operations = step.activity.operations
    within = (operations.kind == MEMCPY) & (operations.direction == DEVICE_TO_DEVICE) & (operations.bytes > 1 << 20)
    within &= step.lasts > 0
    return float((2 * operations.bytes[within] / step.lasts[within] * 1e9).max()) if within.any() else None
