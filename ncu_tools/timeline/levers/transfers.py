"""Levers on copies and communication."""

from __future__ import annotations

from collections import Counter

import numpy as np
from ncu_parsers.timelines.activity.activity import (
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    KERNEL,
    MEMCPY,
    MISSING,
    PINNED,
    Integers,
)

from ncu_tools.ceilings.machine_files import HOST_LINK
from ncu_tools.numbers.number_format import counted, duration
from ncu_tools.numbers.number_format import scaled as with_prefix
from ncu_tools.timeline.graph.critical_path import COMMUNICATION
from ncu_tools.timeline.graph.operators import numbers_of_names
from ncu_tools.timeline.graph.replay import Change, ReplayTimes, unchanged
from ncu_tools.timeline.graph.step_graph import COLLECTIVE, COPY, SYNC, Numbers, StepGraph
from ncu_tools.timeline.graph.waits import is_pageable
from ncu_tools.timeline.graph.what_if import WhatIf, all_of, scaled, without
from ncu_tools.timeline.levers.lever import StepLever, step_lever
from ncu_tools.timeline.levers.situation import StepSituation, lever_facts
from ncu_tools.timeline.migrations import within_kernels


@step_lever("fewer-copies")
def fewer_copies(step: StepSituation) -> StepLever | None:
    """Copy less between host and device."""
    operations = step.activity.operations
    of_host = np.isin(operations.direction, (HOST_TO_DEVICE, DEVICE_TO_HOST)) & (operations.kind == MEMCPY)
    rows = np.flatnonzero(of_host)
    if not len(rows):
        return None
    time, known = float(step.lasts[rows].sum()), operations.bytes[rows] != MISSING
    size = f", {with_prefix(float(operations.bytes[rows][known].sum()), 'B')}" if known.any() else ""
    evidence = [f"{counted(len(rows), 'copy', 'copies')} between host and GPU{size}: {duration(time)}"]
    gone, likely = without(step.graph, rows), None
    if len(both := _to_and_fro(step, rows)):
        likely = without(step.graph, both)
        evidence.append(
            f"{counted(len(both), 'copy', 'copies')} of sizes that go to the GPU as often as back: "
            f"{duration(float(step.lasts[both].sum()))}"
        )
    return StepLever(WhatIf("copy less between host and GPU", unchanged, likely, gone), tuple(evidence), rows)


def _to_and_fro(step: StepSituation, rows: Integers) -> Integers:
    """Large copies (rows) of sizes that go to the device several times and back as often: seemingly the same data."""
    operations, limits = step.activity.operations, lever_facts()["copy"]
    rows = rows[operations.bytes[rows] >= limits["to_and_fro_bytes"]]
    forth = operations.direction[rows] == HOST_TO_DEVICE
    sizes, size = np.unique(operations.bytes[rows], return_inverse=True)
    there, back = (np.bincount(size[one], minlength=len(sizes)) for one in (forth, ~forth))
    alike = (there == back) & (there >= limits["to_and_fro"])
    found: Integers = rows[alike[size]]
    return found


@step_lever("pin-memory")
def pinned_copies(step: StepSituation) -> StepLever | None:
    """Copy from pinned memory instead of pageable memory."""
    operations, graph = step.activity.operations, step.graph
    of_host = np.isin(operations.direction, (HOST_TO_DEVICE, DEVICE_TO_HOST))
    rows = np.flatnonzero(of_host & is_pageable(operations) & (operations.bytes != MISSING))
    if not len(rows):
        return None
    time, size = step.lasts[rows].astype(np.float64), operations.bytes[rows]
    slow, fast, by = _pinned_rates(step)
    factors = [np.minimum(1.0, size / rate * 1e9 / np.maximum(time, 1.0)) for rate in (slow, fast)]
    to_device = rows[operations.direction[rows] == HOST_TO_DEVICE]
    edges = _waits_for(graph, to_device)
    asynchronous = _later(edges, np.full(len(edges), -np.inf))
    least, most = (scaled(graph, rows, factor) for factor in factors)
    rate = float(size.sum() / max(time.sum(), 1.0) * 1e9)
    evidence = [
        f"{counted(len(rows), 'copy', 'copies')} of pageable memory: {with_prefix(float(size.sum()), 'B')} in "
        f"{duration(float(time.sum()))}, {with_prefix(rate, 'B/s')}; pinned {by}"
    ]
    behind = graph.row[graph.edges.target[edges[graph.edges.kind[edges] == SYNC]]]
    if len(behind):
        waited = float((step.activity.calls.end[behind] - step.activity.calls.start[behind]).sum())
        evidence.append(f"{counted(len(behind), 'wait', 'waits')} of calls behind them: {duration(waited)}")
    return StepLever(
        WhatIf("copy from pinned memory", least, all_of(least, asynchronous), all_of(most, asynchronous)),
        tuple(evidence), rows,
    )  # fmt: skip


@step_lever("prefetch")
def prefetched_pages(step: StepSituation) -> StepLever | None:
    """Move pages of managed memory before a kernel needs them, instead of at its faults."""
    operations, moves, limits = step.activity.operations, step.moves, lever_facts()["prefetch"]
    kernels = np.flatnonzero(operations.kind == KERNEL)
    at, during = within_kernels(moves, operations, kernels)
    during &= moves.bytes != MISSING
    if not during.any():
        return None
    count, size, moving = (
        np.bincount(at[during], weights, len(kernels))
        for weights in (None, moves.bytes[during], (moves.end - moves.start)[during])
    )
    rows = kernels[count > 0]
    count, size, moving = (one[count > 0] for one in (count, size, moving))
    lasts = np.maximum(step.lasts[rows].astype(np.float64), 1.0)
    slow, _, by = _pinned_rates(step)
    own = size / step.bandwidth * 1e9 if step.bandwidth is not None else np.zeros(len(rows))
    waits = np.minimum(lasts - own, moving + limits["fault_ns"] * count)
    gained = (
        moving - size / slow * 1e9,
        np.minimum(waits, limits["of_moving"] * moving) - size / slow * 1e9,
        waits,
    )
    least, likely, most = (scaled(step.graph, rows, np.clip(1 - one / lasts, 0.0, 1.0)) for one in gained)
    evidence = (
        f"{counted(int(count.sum()), 'page move', 'page moves')} during {counted(len(rows), 'kernel', 'kernels')} of "
        f"{duration(float(lasts.sum()))}: {with_prefix(float(size.sum()), 'B')} in {duration(float(moving.sum()))}; "
        f"copies at once {by}"
    )
    return StepLever(WhatIf("move pages of managed memory before the kernel", least, likely, most), (evidence,), rows)


def _pinned_rates(step: StepSituation) -> tuple[float, float, str]:
    """A low and a high rate of copies from pinned memory in B/s, and the source of both, in words."""
    operations, limits = step.activity.operations, lever_facts()["copy"]
    pinned = (operations.source_memory == PINNED) | (operations.destination_memory == PINNED)
    pinned &= (operations.kind == MEMCPY) & (operations.bytes > 1 << 20) & (step.lasts > 0)
    if pinned.any():
        rates = operations.bytes[pinned] / step.lasts[pinned] * 1e9
        low, high = np.quantile(rates, [0.25, 0.75]).tolist()
        return low, high, f"ones of this recording reach {with_prefix(low, 'B/s')} to {with_prefix(high, 'B/s')}"
    link = step.machine.links.get(HOST_LINK) if step.machine is not None else None
    low, high = limits["rate"] if link is None else [share * link.value for share in limits["of_link"]]
    source = "of the link" if link is not None else "over PCIe, as the machine is not known"
    return low, high, f"taken as {with_prefix(low, 'B/s')} to {with_prefix(high, 'B/s')} {source}"


def _waits_for(graph: StepGraph, rows: Integers) -> Integers:
    """The edges by which a call waits for one of these copies: the copying call, or a later one that synchronises."""
    waits = np.isin(graph.edges.kind, (COPY, SYNC))
    found: Integers = np.flatnonzero(waits & np.isin(graph.edges.source, graph.operation_node[rows])).astype(np.int64)
    return found


@step_lever("fewer-waits")
def fewer_waits(step: StepSituation) -> StepLever | None:
    """Wait less often: calls that wait for the GPU, and copies to the host that block."""
    graph, operations = step.graph, step.activity.operations
    waits = np.flatnonzero(np.isin(graph.edges.kind, (COPY, SYNC)))
    to_device = np.flatnonzero(is_pageable(operations) & (operations.direction == HOST_TO_DEVICE))
    edges = np.setdiff1d(waits, _waits_for(graph, to_device))
    target = np.unique(graph.edges.target[edges])
    target = target[graph.row[target] >= 0]
    calls: Integers = graph.row[target].astype(np.int64)
    if not len(calls):
        return None
    # if a thread polls a flag, the wait is the gap before its next call
    since = np.where(graph.is_end[target], step.activity.calls.start[calls] - graph.origin, graph.time[target - 1])
    lasts = graph.time[target] - since
    evidence = f"{counted(len(calls), 'call waits', 'calls wait')} for the GPU, {duration(float(lasts.sum()))}"
    around = step.operators.around(calls)
    if (around >= 0).any():
        name = numbers_of_names(step.activity.ranges)[around[around >= 0]]
        most = int(np.bincount(name, lasts[around >= 0]).argmax())
        evidence += f"; the longest together in {step.activity.ranges.names[most]}"
    never = _later(edges, np.full(len(edges), -np.inf))
    return StepLever(WhatIf("wait less often for the GPU", unchanged, None, never), (evidence,), np.zeros(0, np.int64))


@step_lever("overlap-communication")
def hidden_communication(step: StepSituation) -> StepLever | None:
    """Hide communication, with its time on the critical path."""
    rows = np.flatnonzero(step.kinds == COMMUNICATION)
    on_path = float(step.path.by_kind[COMMUNICATION])
    if not len(rows):
        return None
    return StepLever(
        WhatIf("hide communication", unchanged, None, without(step.graph, rows)),
        (f"{counted(len(rows), 'kernel', 'kernels')} of communication, "
         f"{duration(float(step.lasts[rows].sum()))}, of which "
         f"{duration(on_path)} on the critical path",), rows,
    )  # fmt: skip


@step_lever("balance-ranks")
def balanced_ranks(step: StepSituation) -> StepLever | None:
    """Balance ranks of one recording that wait for each other at collectives."""
    graph, operations = step.graph, step.activity.operations
    edges = np.flatnonzero(graph.edges.kind == COLLECTIVE)
    source, target = graph.edges.source[edges], graph.edges.target[edges]
    # the node before the begin of a transfer is the arrival of its own rank
    late = np.maximum(graph.time[source] + graph.edges.offset[edges] - graph.time[target - 1], 0)
    if not late.any():
        return None
    worst = np.zeros(len(graph))
    np.maximum.at(worst, target, late)
    is_last = (late == worst[target]) & (late > 0)
    gpu, times = Counter(operations.device[graph.row[source[is_last]]].tolist()).most_common(1)[0]
    return StepLever(
        WhatIf("balance the ranks", _later(edges, -0.5 * late), None, _later(edges, np.full(len(edges), -np.inf))),
        (f"ranks wait {duration(float(worst.sum()))} for the last one at "
         f"{counted(int((worst > 0).sum()), 'kernel', 'kernels')}; "
         f"GPU {gpu} is the one waited for at {times:,} of these",),
        np.unique(graph.row[target]).astype(np.int64),
    )  # fmt: skip


def _later(edges: Integers, by: Numbers) -> Change:
    """Delay the targets of edges by so many ns; -inf removes the edge."""

    def change(times: ReplayTimes) -> None:
        times.offset[edges] += by

    return change
