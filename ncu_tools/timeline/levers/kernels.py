"""Levers on kernels: chains of small kernels, layouts, casts, and types and shapes of GEMMs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
from ncu_parsers.timelines.activity.activity import DEVICE_TO_DEVICE, KERNEL, MEMCPY, Integers

from ncu_tools.kernels.names.categories import CATEGORIES
from ncu_tools.numbers.number_format import counted, duration
from ncu_tools.numbers.number_format import scaled as with_prefix
from ncu_tools.timeline.graph.replay import unchanged
from ncu_tools.timeline.graph.step_graph import Mask, Numbers
from ncu_tools.timeline.graph.what_if import WhatIf, scaled
from ncu_tools.timeline.levers.lever import StepLever, step_lever
from ncu_tools.timeline.levers.situation import StepSituation, lever_facts

GEMM = CATEGORIES[0]


def time_of(step: StepSituation, rows: Integers | Mask) -> str:
    """The total time of operations, in words."""
    return duration(float(step.lasts[rows].sum()))


# ------------------------------------------------------------------------------------------------------------ GEMMs


@dataclass(frozen=True)
class GemmRates:
    """GEMMs with known shapes: their rows, FLOP/s and FLOPs, and the rate that the best ones reach (`best`)."""

    rows: Integers
    rate: Numbers
    flops: Numbers
    best: float


def gemm_rates(step: StepSituation) -> GemmRates | None:
    """The rates of operators that multiply matrices with a single kernel; None if no shapes are recorded."""
    limits = lever_facts()["gemm"]
    of_gemm = step.operator_named(re.compile(limits["operators"])) & (step.activity.operations.kind == KERNEL)
    of_gemm &= step.category == GEMM
    rows = np.flatnonzero(of_gemm & (step.lasts > 0))
    _, first, count = np.unique(step.around[rows], return_index=True, return_counts=True)
    rows = rows[first[count == 1]]
    labels, of_row = np.unique(step.label[rows], return_inverse=True)
    flops = np.array([_gemm_flops(step, one) or 0.0 for one in labels.tolist()])[of_row]
    rows, flops = rows[flops > 0], flops[flops > 0]
    if not len(rows):
        return None
    rate = flops / step.lasts[rows] * 1e9
    order = np.argsort(rate)
    passed = np.cumsum(step.lasts[rows][order])
    best = float(rate[order[np.searchsorted(passed, limits["quantile"] * passed[-1])]])
    return GemmRates(rows, rate, flops, best)


def _gemm_flops(step: StepSituation, label: int) -> float | None:
    """2 B M N K of a product, from the shapes of its inputs; None if these are no matrices."""
    shapes = [one for one in step.shapes(label) or [] if len(one) in (2, 3)]
    if len(shapes) >= 2 and len(shapes[-2]) == len(shapes[-1]) and shapes[-2][-1] == shapes[-1][-2]:
        return 2.0 * prod(shapes[-2]) * shapes[-1][-1]
    for left, right in pairwise(shapes):
        if len(left) == len(right) and left[-1] == right[-2]:
            return 2.0 * prod(left) * right[-1]
    return None


@step_lever("gemm-shape")
def gemm_shapes(step: StepSituation) -> StepLever | None:
    """GEMMs slower than the recording's best ones."""
    rates, limits = gemm_rates(step), lever_facts()["gemm"]
    if rates is None:
        return None
    slow = rates.rate < rates.best
    rows, left = rates.rows[slow], (rates.rate / rates.best)[slow]
    if not len(rows):
        return None
    least = scaled(step.graph, rows, 1.0 - limits["least_share"] * (1.0 - left))
    mean = float(rates.flops[slow].sum() / step.lasts[rows].sum() * 1e9)
    return StepLever(
        WhatIf("change shapes of GEMMs", least, None, scaled(step.graph, rows, left)),
        (f"{counted(len(rows), 'GEMM', 'GEMMs')}, {time_of(step, rows)}, at {with_prefix(mean, 'FLOP/s')} in the mean; "
         f"the best ones reach {with_prefix(rates.best, 'FLOP/s')}",), rows,
    )  # fmt: skip


@step_lever("align")
def aligned_dimensions(step: StepSituation) -> StepLever | None:
    """GEMMs with an unaligned dimension, according to their kernel or shapes."""
    limits = lever_facts()["align"]
    named = step.named(re.compile(limits["kernels"]))
    odd = np.zeros(len(step.call), np.bool_)
    for one in np.unique(step.label[(step.category == GEMM) & (step.label >= 0)]).tolist():
        shapes = [shape for shape in step.shapes(one) or [] if len(shape) in (2, 3)]
        elements = 8 if any("Half" in kind or "BFloat16" in kind for kind in step.types(one)) else 4
        if len(shapes) >= 2 and any(size % elements for shape in shapes for size in shape[-2:]):
            odd |= step.label == one
    rows = np.flatnonzero((named | odd) & (step.category == GEMM))
    if not len(rows):
        return None
    least, most = (scaled(step.graph, rows, factor) for factor in limits["factor"])
    middle = scaled(step.graph, rows, sum(limits["factor"]) / 2)
    return StepLever(
        WhatIf("align dimensions", least, middle, most),
        (f"{counted(len(rows), 'GEMM', 'GEMMs')} of dimensions that do not align take {time_of(step, rows)}",), rows,
    )  # fmt: skip


@step_lever("tensor-cores")
def tensor_cores(step: StepSituation) -> StepLever | None:
    """FP32 GEMMs and convolutions that run on CUDA cores."""
    limits = lever_facts()["types"]
    named = step.named(re.compile(limits["fp32_gemm"])) & ~step.named(re.compile(limits["not_fp32"]))
    rows = np.flatnonzero(named & (step.activity.operations.kind == KERNEL))
    rates = step.machine.rates if step.machine is not None else {}
    gains = {
        title: rates[unit].value / rates["fp32"].value for unit, title in limits["tensor"].items() if unit in rates
    }
    if not len(rows) or (step.machine is not None and max(gains.values(), default=0.0) <= 1.0):
        return None
    most = 1.0 / max(gains.values(), default=limits["gain"])
    peaks = ", ".join(f"{title} {gain:.1f}" for title, gain in gains.items())
    said = (
        f"peaks are {peaks} times FP32's"
        if gains
        else f"TF32's peak is {limits['gain']:.1f} times FP32's on most devices"
    )
    return StepLever(
        WhatIf("use tensor cores for FP32 GEMMs", scaled(step.graph, rows, max(limits["least"], most)), None,
               scaled(step.graph, rows, most)),
        (f"{counted(len(rows), 'GEMM or convolution', 'GEMMs and convolutions')} in FP32 take {time_of(step, rows)}; "
         f"{said}",), rows,
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------- small kernels


@step_lever("fuse")
def fused_chains(step: StepSituation) -> StepLever | None:
    """Fuse runs of consecutive small kernels on one stream."""
    limits, operations = lever_facts()["fusion"], step.activity.operations
    small = np.isin(step.category, limits["categories"]) & (operations.kind == KERNEL)
    small &= ~step.named(re.compile(limits["already"]))
    rows, runs, feeding, known = list[int](), 0, list[int](), False
    for run in _runs(step, small):
        stays = run[int(np.argmax(step.lasts[run]))]
        rows += [one for one in run.tolist() if one != stays]
        runs += 1
        for part in _feeding(step, run):
            stays = part[int(np.argmax(step.lasts[part]))]
            feeding += [one for one in part.tolist() if one != stays]
        known = known or any(step.shapes(one) is not None for one in step.label[run].tolist())
    if not rows:
        return None
    gone = np.array(rows, np.int64)
    of_runs = counted(runs, "run", "runs")
    evidence = f"{of_runs} of small kernels; {len(gone):,} beside the longest of each, {time_of(step, gone)}"
    if not known:
        evidence += "; which feeds which is not recorded" + (" (record_shapes=True)" if step.software != "jax" else "")
        all_gone = step.gone("fuse element-wise chains", gone)
        return StepLever(WhatIf(all_gone.title, unchanged, None, all_gone.most), (evidence,), gone)
    least = np.array(feeding, np.int64)
    evidence += f"; {len(least):,} take what the one before them gives, {time_of(step, least)}"
    return StepLever(step.gone("fuse element-wise chains", gone, least), (evidence,), gone)


def _runs(step: StepSituation, small: Mask) -> Iterator[Integers]:
    """Runs (rows) of at least two consecutive small kernels on a stream."""
    graph = step.graph
    for chain in graph.chains:
        if chain.is_host:
            continue
        rows = graph.row[chain.first : chain.behind].astype(np.int64)
        rows = rows[np.append(True, np.diff(rows) != 0)]
        mine = small[rows]
        edges = np.flatnonzero(np.diff(np.concatenate([[False], mine, [False]])))
        for first, behind in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if behind - first > 1:
                yield rows[first:behind]


def _feeding(step: StepSituation, run: Integers) -> Iterator[Integers]:
    """Parts of a run in which each operator takes a tensor with the shape of the previous one's output."""
    shapes = [step.shapes(one) for one in step.label[run].tolist()]
    first = 0
    for at in range(1, len(run) + 1):
        if at == len(run) or not feeds(shapes[at - 1], shapes[at]):
            if at - first > 1:
                yield run[first:at]
            first = at


def feeds(before: Sequence[Sequence[int]] | None, after: Sequence[Sequence[int]] | None) -> bool:
    """True if an operator has an input of the shape of the previous one's largest input, which its output is like."""
    largest = max(before or [], key=prod, default=[])
    return bool(largest) and largest in (after or [])


@step_lever("layout")
def layouts(step: StepSituation) -> StepLever | None:
    """Kernels that only change a memory layout."""
    rows = np.flatnonzero(step.named(re.compile(lever_facts()["layout"]["kernels"])))
    if not len(rows):
        return None
    return StepLever(
        step.gone("keep one memory layout", rows),
        (f"{counted(len(rows), 'kernel', 'kernels')} that change the layout: {time_of(step, rows)}",), rows,
    )  # fmt: skip


@step_lever("copies")
def copies_and_casts(step: StepSituation) -> StepLever | None:
    """Casts, and copies within the device."""
    operations, limits = step.activity.operations, lever_facts()["casts"]
    within = (operations.kind == MEMCPY) & (operations.direction == DEVICE_TO_DEVICE)
    named = step.named(re.compile(limits["kernels"])) | step.operator_named(re.compile(limits["operators"]))
    rows = np.flatnonzero(within | (named & (operations.kind == KERNEL)))
    if not len(rows):
        return None
    gone = step.gone("copy and cast less", rows)
    return StepLever(
        WhatIf(gone.title, unchanged, None, gone.most),
        (f"{counted(len(rows), 'cast or copy', 'casts and copies')} within the device: {time_of(step, rows)}",), rows,
    )  # fmt: skip
