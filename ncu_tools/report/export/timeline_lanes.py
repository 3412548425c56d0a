"""A recording as lanes for Perfetto and chrome://tracing: streams, gaps by cause and steps of each GPU, threads.

Format: Chrome's Trace Event Format, complete events, with times in µs from the first recorded event, to the nanosecond.
Kernels have unique short names, and their full names as an argument, `full_name`, if different. API calls and ranges of
a thread are two lanes, and overlapping operations of a stream, or overlapping steps, are on further lanes, because
slices of a lane must nest. An operation that ran beside others has the time in which it ran alone; an operation that
levers would change has their names, and a kernel whose work is known the share of its roof that it reaches in the mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np
from ncu_launch.version import VERSION
from ncu_parsers.timelines.activity.activity import (
    DIRECTIONS,
    KERNEL,
    MEMORIES,
    MISSING,
    OPERATION_KINDS,
    GpuOperations,
)
from ncu_parsers.timelines.activity.operation_times import exclusive_times
from ncu_parsers.timelines.activity.samples import title_of_sampled, unit_of_sampled

from ncu_tools.kernels.kernel_row import names_shown
from ncu_tools.timeline.call_kinds import kind_of_call
from ncu_tools.timeline.gaps import CAUSES
from ncu_tools.timeline.levers.step_advice import step_advice
from ncu_tools.timeline.range_depths import rows_of_threads
from ncu_tools.timeline.timeline import GpuTimeline, Timeline

NS_PER_US = 1000
STEP_LANE, GAP_LANE, FIRST_STREAM = 0, 1, 2
"""Lanes of a GPU, in this order; streams after them, then steps of other threads that overlap."""
CALLS_BESIDE = 20_000_000
"""Offset of the lane of a thread's API calls from its number, which is the lane of its ranges."""
FURTHER = 50_000_000
"""Offset of further lanes of a thread, for ranges or calls that overlap without nesting."""
FIRST_GPU, LANES_OF_GPU = 10_000_000, 1000
"""The ids of GPUs are above those of processes; no two have a lane of the same number."""

OF_ALL_OPERATIONS = ("cuda-graphs", "batch")
"""Levers on all operations, which are not listed at single ones."""

Event = dict[str, Any]
NO_ROOFS: Mapping[str, float] = {}


def to_lanes(found: Timeline, roofs: Mapping[str, float] = NO_ROOFS) -> str:
    """The trace as text; `roofs` are the shares of their roofs that kernels reach, by their names."""
    lines = [json.dumps(event, ensure_ascii=False, allow_nan=False) for event in lane_events(found, roofs)]
    metadata = {"exporter": f"ncu-bench {VERSION}", "run": found.name, "origin_ns": found.origin_ns}
    tail = json.dumps({"displayTimeUnit": "ns", "otherData": metadata}, ensure_ascii=False)
    return '{"traceEvents": [\n' + ",\n".join(lines) + "\n]," + tail.removeprefix("{")


def lane_events(found: Timeline, roofs: Mapping[str, float] = NO_ROOFS) -> Iterator[Event]:
    """Every event: GPUs first, then the threads of each process."""
    names, levers = names_shown(found.activity.operations.names), _levers_of_operations(found)
    for number, gpu in enumerate(found.gpus):
        for event in _gpu_events(found, gpu, number, names, levers):
            full = event["args"].get("full_name", event["name"])
            if event.get("cat") == OPERATION_KINDS[KERNEL] and full in roofs:
                event["args"]["% of roof"] = 100 * roofs[full]
            yield event
    yield from _host_events(found)


def _gpu_events(
    found: Timeline, gpu: GpuTimeline, number: int, names: Mapping[str, str], levers: Mapping[int, list[str]]
) -> Iterator[Event]:
    group, first = FIRST_GPU + number, number * LANES_OF_GPU
    name = (
        f"{gpu.title}{'' if gpu.process is None else f' of process {gpu.process}'}{f': {gpu.name}' if gpu.name else ''}"
    )
    yield from _process_name(group, name, number)
    yield _lane(group, first + STEP_LANE, "steps")
    yield _lane(group, first + GAP_LANE, "gaps by cause")
    for cause in CAUSES:
        some = gpu.gaps.causes[cause]
        for start, end in zip(some.start.tolist(), some.end.tolist(), strict=True):
            yield _slice(found, group, first + GAP_LANE, cause, "gap", start, end - start, {})
    operations = found.activity.operations.at(gpu.rows)
    alone = exclusive_times(operations).tolist()
    tracks = _tracks(operations.stream.tolist(), operations.start.tolist(), operations.end.tolist())
    lanes = {track: first + FIRST_STREAM + at for at, track in enumerate(sorted(set(tracks)))}
    for (stream, depth), lane in lanes.items():
        title = "stream" if stream == MISSING else f"stream {stream}"
        yield _lane(group, lane, f"{title} ({depth + 1})" if depth else title)
    for row, track in enumerate(tracks):
        event = _operation(found, operations, row, group, lanes[track], names)
        if alone[row] < operations.end[row] - operations.start[row]:
            event["args"]["exclusive_ns"] = alone[row]
        if titles := levers.get(int(gpu.rows[row])):
            event["args"]["levers"] = titles
        yield event
    yield from _step_events(found, gpu, group, first + STEP_LANE, first + FIRST_STREAM + len(lanes))
    yield from _sampled_events(found, gpu, group)


def _sampled_events(found: Timeline, gpu: GpuTimeline, group: int) -> Iterator[Event]:
    """Samples of a GPU as counters: a value where it changes, and 0 where samples end."""
    for name, samples in found.activity.sampled.series(gpu.process, gpu.device):
        values = samples.values[name]
        known = np.flatnonzero(~np.isnan(values))
        title, unit = f"~{title_of_sampled(name)}", unit_of_sampled(name) or "value"
        last, until = 0.0, None
        for time, end, value in zip(
            samples.times[known].tolist(), samples.ends[known].tolist(), values[known].tolist(), strict=True
        ):
            if until is not None and time > until:
                yield _counter(found, group, title, until, {unit: 0.0})
                last = 0.0
            if value != last:
                yield _counter(found, group, title, time, {unit: value})
            last, until = value, end
        if until is not None:
            yield _counter(found, group, title, until, {unit: 0.0})


def _counter(found: Timeline, group: int, name: str, time: int, args: dict[str, Any]) -> Event:
    at = (time - found.origin_ns) / NS_PER_US
    return {"ph": "C", "name": name, "cat": "sampled", "pid": group, "ts": at, "args": args}


def _levers_of_operations(found: Timeline) -> dict[int, list[str]]:
    """The levers that change each operation, by its row, largest saving first; {} for a trimmed recording."""
    levers: dict[int, list[str]] = {}
    if found.activity.whole is None:
        for one in step_advice(found.activity).levers:
            for row in one.found.rows.tolist() if one.lever not in OF_ALL_OPERATIONS else []:
                levers.setdefault(row, []).append(one.title)
    return levers


def _step_events(found: Timeline, gpu: GpuTimeline, group: int, lane: int, further: int) -> Iterator[Event]:
    """The steps of a GPU: on `lane`, and overlapping ones on lanes from `further` on."""
    start = [step.start_ns for step in gpu.steps]
    end = [step.start_ns + step.span_ns for step in gpu.steps]
    depths = [depth for _, depth in _tracks([0] * len(start), start, end)]
    for depth in range(1, max(depths, default=0) + 1):
        yield _lane(group, further + depth - 1, f"steps ({depth + 1})")
    for step, depth in zip(gpu.steps, depths, strict=True):
        args = {"busy_ns": step.busy_ns, "idle_ns": step.idle_ns, "bound": step.verdict.bound, "why": step.verdict.why}
        on = further + depth - 1 if depth else lane
        yield _slice(found, group, on, step.name, "step", step.start_ns, step.span_ns, args)


def _tracks(streams: Sequence[int], starts: Sequence[int], ends: Sequence[int]) -> list[tuple[int, int]]:
    """The stream of each slice, and its first lane that is free at its start, from 0 on.

    Slices are ordered by start. Slices of a stream overlap if the next begins before one has ended.
    """
    running: dict[int, list[tuple[int, int]]] = {}
    free: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    found = []
    for stream, start, end in zip(streams, starts, ends, strict=True):
        busy, idle = running.setdefault(stream, []), free.setdefault(stream, [])
        while busy and busy[0][0] <= start:
            heappush(idle, heappop(busy)[1])
        if not idle:
            idle.append(used.setdefault(stream, 0))
            used[stream] += 1
        depth = heappop(idle)
        heappush(busy, (end, depth))
        found.append((stream, depth))
    return found


def _operation(
    found: Timeline, operations: GpuOperations, row: int, group: int, lane: int, names: Mapping[str, str]
) -> Event:
    start, end = int(operations.start[row]), int(operations.end[row])
    full = operations.names[int(operations.name[row])]
    args: dict[str, Any] = {} if names[full] == full else {"full_name": full}
    for name in ("correlation", "bytes", "graph_node"):
        value = int(getattr(operations, name)[row])
        if value != MISSING:
            args[name] = value
    if operations.direction[row] >= 0:
        args["direction"] = DIRECTIONS[operations.direction[row]]
        for end_name in ("source_memory", "destination_memory"):
            code = int(getattr(operations, end_name)[row])
            args |= {end_name: MEMORIES[code]} if code >= 0 else {}
    kind = OPERATION_KINDS[operations.kind[row]]
    return _slice(found, group, lane, names[full], kind, start, end - start, args)


def _host_events(found: Timeline) -> Iterator[Event]:
    calls, ranges = found.activity.calls, found.activity.ranges
    for at, process in enumerate(np.unique(np.concatenate([calls.process, ranges.process])).tolist()):
        yield from _process_name(process, f"process {process}", len(found.gpus) + at)
    for table, beside, what in ((ranges, 0, "ranges"), (calls, CALLS_BESIDE, "API calls")):
        threads = list(map(_short, table.thread.tolist()))
        owners = list(zip(table.process.tolist(), threads, strict=True))
        depths = rows_of_threads(owners, table.start.tolist(), table.end.tolist())
        for (process, thread), depth in sorted(set(zip(owners, depths, strict=True))):
            further = f" ({depth + 1})" if depth else ""
            yield _lane(process, thread + beside + depth * FURTHER, f"thread {thread}: {what}{further}")
        for row, ((process, thread), depth) in enumerate(zip(owners, depths, strict=True)):
            start, name = int(table.start[row]), table.names[int(table.name[row])]
            is_call = table is calls
            args = {"correlation": int(calls.correlation[row])} if is_call and calls.correlation[row] != MISSING else {}
            kind = kind_of_call(name) if is_call else "range"
            lane = thread + beside + depth * FURTHER
            yield _slice(found, process, lane, name, kind, start, int(table.end[row]) - start, args)


def _short(thread: int) -> int:
    """The thread's number without the process and machine that nsys puts before it."""
    return thread & 0xFFFFFF if thread >= 1 << 24 else thread


def _slice(
    found: Timeline, group: int, lane: int, name: str, category: str, start: int, lasts: int, args: dict[str, Any]
) -> Event:
    return {
        "ph": "X", "name": name, "cat": category, "pid": group, "tid": lane,
        "ts": (start - found.origin_ns) / NS_PER_US, "dur": lasts / NS_PER_US, "args": args,
    }  # fmt: skip


def _process_name(group: int, name: str, place: int) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": group, "tid": 0, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": group, "tid": 0, "args": {"sort_index": place}}


def _lane(group: int, lane: int, name: str) -> Event:
    return {"ph": "M", "name": "thread_name", "pid": group, "tid": lane, "args": {"name": name}}
