"""Accuracy of the graph of a step: recordings replayed, steps exchanged, and edges left out in turn.

    OMP_NUM_THREADS=1 python -m benchmarks.steps ../shared/reports [--speed]

One step: each operation starts from the recorded times of its predecessors, with the recording's own constants. Free
run: only host gaps and durations of calls and operations are recorded values. Across: the graph and lags of a step
between two synchronisations, with the times of the next step, against that step as recorded; "as it was" takes the
first step's length as the forecast. Both substituted: the same between two recordings, here before and after a change.
Without an edge: all kernels at half their time, with one kind of edge left out; either this is noticed (fewer explained
starts, more unexplained time or waiting calls), or the interval contains the result of the whole graph. An unchanged
replay is exact by construction and is only a unit test.
"""

from __future__ import annotations

import argparse
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from ncu_launch.errors import NcuBenchError
from ncu_parsers.timelines.activity.activity import (
    KERNEL,
    MISSING,
    Activity,
    ApiCalls,
    GpuOperations,
    HostRanges,
    Overheads,
    columns_of,
    empty,
)

from ncu_tools.timeline.graph.build import expected, step_graph
from ncu_tools.timeline.graph.critical_path import critical_path
from ncu_tools.timeline.graph.evidence import GraphEvidence, evidence
from ncu_tools.timeline.graph.replay import ReplayTimes, replay, unchanged
from ncu_tools.timeline.graph.step_graph import EDGE_KINDS, LAUNCH, StepGraph
from ncu_tools.timeline.graph.waits import staged_copies, waiting_calls
from ncu_tools.timeline.graph.what_if import WhatIf, savings, scaled
from ncu_tools.timeline.launch_links import launching_calls
from ncu_tools.timeline.load_activity import load_activity
from ncu_tools.timeline.migrations import without_migrations

NEAR_NS, LEAST_CALLS = 5_000, 20


def recordings(folder: str) -> Iterator[tuple[str, Activity]]:
    """Timelines in a folder of reports, by a short name."""
    for path in sorted(Path(folder).rglob("*")):
        if path.parent.name in ("kineto", "nsys", "other") and path.suffix in (".gz", ".sqlite", ".pb"):
            try:
                found, _ = without_migrations(load_activity(str(path)))
            except NcuBenchError:
                continue
            if len(found.operations):
                yield path.name.split(".")[0].partition("__")[2][-44:], found


def starts_of(graph: StepGraph) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Recorded start of each operation, in ns since the origin."""
    return graph.time[graph.entry_node]


def one_step(found: Activity) -> float:
    """Share of operations that start within 5 us of the time from their edges, each with recorded predecessors."""
    graph = step_graph(found, constants_only=True)
    off = np.abs(graph.time - expected(graph))[graph.entry_node]
    return float((off <= NEAR_NS).mean())


def free_run(found: Activity) -> tuple[float, float]:
    """Relative error of the end, and the share of starts with an error below 1 % of the recording."""
    graph = step_graph(found, constants_only=True)
    replayed = replay(graph, [unchanged], lags=False, keep_times=True)
    off = np.abs(replayed.reached[0][graph.entry_node] - starts_of(graph))
    return float(replayed.end[0] / graph.length - 1), float((off <= 0.01 * graph.length).mean())


# ------------------------------------------------------------------------------------------------- steps exchanged


def steps_between_waits(found: Activity) -> dict[int, list[Activity]]:
    """Per process, the recording cut at the returns of waiting calls of the thread with most launches."""
    call, calls = launching_calls(found), found.calls
    steps: dict[int, list[Activity]] = {}
    for process in np.unique(calls.process).tolist():
        mine = calls.process == process
        by = call[(call >= 0)]
        by = by[mine[by]]
        if not len(by):
            continue
        threads, count = np.unique(calls.thread[by], return_counts=True)
        thread = threads[np.argmax(count)]
        waits = np.flatnonzero(mine & (calls.thread == thread) & waiting_calls(found))
        for one, other in pairwise(calls.end[waits].tolist()):
            rows = np.flatnonzero(mine & (calls.thread == thread) & (calls.start >= one) & (calls.start < other))
            operations = np.flatnonzero(np.isin(call, rows))
            if len(rows) >= LEAST_CALLS and len(operations):
                cut = replace(
                    found, operations=found.operations.at(operations), calls=calls.at(rows),
                    ranges=empty(HostRanges), overheads=empty(Overheads),
                )  # fmt: skip
                steps.setdefault(process, []).append(cut)
    return steps


def exchanged(one: StepGraph, other: StepGraph, *, lags: bool) -> tuple[float, float] | None:
    """Relative errors of the length of `other`: by the graph of `one` with the times of `other`, and by `one` itself.

    None if the steps have different calls or operations.
    """
    if len(one) != len(other) or not (one.chain == other.chain).all():
        return None
    if not ((one.row >= 0) == (other.row >= 0)).all() or len(one.edges) != len(other.edges):
        return None

    def change(times: ReplayTimes) -> None:
        times.work[:], times.call[:] = other.work, other.call
        hosts = one.is_host
        times.rest[hosts] = other.rest[hosts]

    end = float(replay(one, [change], lags=lags).end[0])
    return end / other.length - 1, one.length / other.length - 1


def launched_at_ends(found: Activity) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Mask of calls that launch their operation as they return."""
    graph, at_ends = step_graph(found), np.zeros(len(found.calls), np.bool_)
    launching = graph.launch[graph.launch >= 0]
    at_ends[graph.row[launching[graph.is_end[launching]]]] = True
    return at_ends


def _staged_as_in(one: StepGraph, other: StepGraph, staged: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> StepGraph:
    """The first graph with what the host takes in calls to stage copies (`staged`) in the second one."""
    if len(one) != len(other) or len(staged) != len(one.entry_node):
        return one
    latency, nodes = one.latency.copy(), one.entry_node[staged]
    latency[nodes] = other.latency[nodes]
    return replace(one, latency=latency)


def across(first: Sequence[Activity], second: Sequence[Activity]) -> list[tuple[float, float, float]]:
    """Errors of each pair of steps: with lags, with constants only, and with the first step as the forecast."""
    found = []
    for pair in zip(first, second, strict=False):
        if len(pair[0].calls) != len(pair[1].calls):
            continue
        at_ends = launched_at_ends(pair[0]) | launched_at_ends(pair[1])
        one, other = (step_graph(each, at_ends=at_ends) for each in pair)
        one = _staged_as_in(one, other, staged_copies(pair[0].operations))
        kept, dropped = (exchanged(one, other, lags=lags) for lags in (True, False))
        if kept is not None and dropped is not None:
            found.append((kept[0], dropped[0], kept[1]))
    return found


def mean_and_worst(errors: Sequence[float]) -> str:
    """Mean and maximum of the errors, in %."""
    sizes = np.abs(np.array(errors)) * 100
    return f"{sizes.mean():.2f} % (at most {sizes.max():.2f})"


# -------------------------------------------------------------------------------------------------- edges left out


def halved(found: Activity, graph: StepGraph) -> tuple[float, float, GraphEvidence]:
    """Bounds of the share saved with all kernels at half their time, and the evidence for the graph."""
    rows = np.flatnonzero(found.operations.kind == KERNEL)
    saved = savings(graph, [WhatIf.of("", scaled(graph, rows, 0.5))])[0]
    known = evidence(graph, found, critical_path(graph, found))
    return saved.low_ns / graph.length, saved.high_ns / graph.length, known


def left_out(found: Activity) -> Iterator[tuple[str, str]]:
    """A line for each kind of edge in the recording."""
    whole = step_graph(found)
    low, high, known = halved(found, whole)
    count = np.bincount(whole.edges.kind, minlength=len(EDGE_KINDS))
    count[LAUNCH] = int((whole.launch >= 0).sum())
    for kind, name in enumerate(EDGE_KINDS):
        if not count[kind]:
            continue
        graph = step_graph(found, without={kind})
        less, more, then = halved(found, graph)
        noticed = then.level != known.level or then.path_share > known.path_share + 0.005
        noticed |= then.explained < known.explained - 0.005
        holds = less - 0.005 <= (low + high) / 2 <= more + 0.005
        verdict = "noticed" if noticed else "held" if holds else "MISSED"
        yield (
            name,
            f"{count[kind]:6,}  {100 * low:4.1f} -> {100 * less:4.1f} to {100 * more:4.1f} %  unexplained "
            f"{100 * known.path_share:4.1f} -> {100 * then.path_share:4.1f} %  starts {100 * known.explained:3.0f} -> "
            f"{100 * then.explained:3.0f} %  {verdict}",
        )


# ----------------------------------------------------------------------------------------------------------- speed


def made(launches: int, every: int) -> Activity:
    """A thread that launches a kernel every 8 us on one stream, and synchronises after every `every` launches."""
    random = np.random.default_rng(0)
    calls, operations, at, done = list[tuple[int, int, int, int]](), list[tuple[int, int, int]](), 0, 0
    pauses, lasts = random.integers(2_000, 8_000, launches), random.integers(1_000, 9_000, launches)
    for number in range(launches):
        at += int(pauses[number])
        begun = max(at + 5_000, done + 1_000)
        done = begun + int(lasts[number])
        operations.append((begun, done, number))
        calls.append((at, at + 3_000, 0, number))
        at += 3_000
        if number % every == every - 1:
            calls.append((at, max(at, done) + 4_000, 1, launches + number))
            at = max(at, done) + 4_000
    start, end, name, correlation = np.array(calls, np.int64).T
    begin, finish, by = np.array(operations, np.int64).T
    zero, none = np.zeros(len(start), np.int64), np.zeros(launches, np.int64)
    table = columns_of(
        GpuOperations,
        {"start": begin, "end": finish, "kind": none, "name": none, "process": none, "device": none, "context": none,
         "stream": none, "correlation": by}, ["kernel"],
    )  # fmt: skip
    called = columns_of(
        ApiCalls,
        {"start": start, "end": end, "name": name, "process": zero, "thread": zero, "correlation": correlation},
        ["cudaLaunchKernel", "cudaStreamSynchronize"],
    )  # fmt: skip
    return Activity("made", "nsys", table, called, empty(HostRanges), empty(Overheads))


def speed() -> None:
    """Print processor seconds to build and replay graphs of a million events."""
    print("A million events (calls and operations), processor seconds")
    for every in (1_000, 100):
        found = made(500_000, every)
        call = launching_calls(found)
        began = time.process_time()
        graph = step_graph(found, call)
        built = time.process_time()
        replay(graph, [unchanged], lags=True)
        once = time.process_time()
        replay(graph, [scaled(graph, np.arange(len(call)), 0.5 + 0.02 * one) for one in range(20)], lags=True)
        twenty = time.process_time()
        arrays = sum(one.nbytes for one in vars(graph).values() if isinstance(one, np.ndarray)) / 1e6
        print(
            f"  a wait after {every:5,} launches: built in {built - began:.2f} s, replayed in {once - built:.2f} s, 20 "
            f"what-ifs in {twenty - once:.2f} s, {arrays:.0f} MB"
        )


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default="../shared/reports")
    parser.add_argument("--speed", action="store_true", help="Only the seconds that a million events take.")
    options = parser.parse_args()
    if options.speed:
        speed()
        return
    found = list(recordings(options.folder))
    _print_replays(found)
    cuts = {name: steps_between_waits(recorded) for name, recorded in found}
    _print_exchanges(cuts)
    print("\nAll kernels at half their time: edges, saving with them -> without, and what the evidence says then")
    for name, recorded in found:
        for kind, line in left_out(recorded):
            print(f"  {name[-36:]:36} {kind:10} {line}")


def _print_replays(found: Sequence[tuple[str, Activity]]) -> None:
    lacking = list[str]()
    print(f"{'recording':44} {'ms':>9} {'starts':>7} {'one step':>9} {'end off':>9} {'within 1 %':>10}  believed")
    for name, recorded in found:
        graph = step_graph(recorded)
        known = evidence(graph, recorded, critical_path(graph, recorded))
        off, within = free_run(recorded)
        print(
            f"{name:44} {graph.length / 1e6:9.1f} {len(recorded.operations):7,} {100 * one_step(recorded):7.1f} % "
            f"{100 * off:+7.2f} % {100 * within:8.1f} %  {known.level}"
        )
        if known.why:
            lacking += ["", *textwrap.wrap(f"{name}: {known.why}", 120, initial_indent="  ", subsequent_indent="    ")]
    print("\nWhat recordings lack whose savings are not sound")
    print("\n".join(lacking))


def _print_exchanges(cuts: Mapping[str, Mapping[int, Sequence[Activity]]]) -> None:
    print("\nAcross steps: error of the end with lags, with constants alone, and of the step before as it was")
    for name, steps in cuts.items():
        for process, some in steps.items():
            if errors := across(some, some[1:]):
                columns = [mean_and_worst(column) for column in zip(*errors, strict=True)]
                of_process = "" if process == MISSING else f", process {process}"
                print(f"  {name}{of_process}: {len(errors)} pairs: {', '.join(columns)}")
    before, after = (next((one for name, one in cuts.items() if name.endswith(end)), {}) for end in ("before", "after"))
    print("\nBoth substituted: the graph of one recording with the kernels and host times of the other")
    for title, graphs, times in (("before -> after", before, after), ("after -> before", after, before)):
        errors = [
            each for one, other in zip(graphs.values(), times.values(), strict=False) for each in across(one, other)
        ]
        if errors:
            columns = [mean_and_worst(column) for column in zip(*errors, strict=True)]
            print(f"  {title}: {len(errors)} steps: {', '.join(columns)}")


if __name__ == "__main__":
    main()
