"""The lanes of one step of a timeline: gaps, communication, copies and streams of each GPU, and its longest gaps.

A sampled metric of a GPU has a lane of equal boxes, each as high as the metric's mean share of its peak.

A step is shown as one GPU saw it, with the other GPUs' work below. A step of another GPU is the same one if it has the
same name and runs in the middle of this one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
from ncu_parsers.timelines.activity.activity import MISSING, GpuOperations
from ncu_parsers.timelines.activity.samples import sampled_columns, title_of_sampled

from ncu_tools.kernels.names.categories import CATEGORIES, category_of
from ncu_tools.report.html.host_lanes import LanesOfThread, host_lanes
from ncu_tools.report.html.lane_boxes import LaneBox, LanePieces
from ncu_tools.timeline.gaps import CAUSES, LongGap, ThreadsOfCalls, gaps_within, longest_gaps
from ncu_tools.timeline.graph.critical_path import PATH_KINDS
from ncu_tools.timeline.intervals import IntervalSet
from ncu_tools.timeline.launch_links import launching_calls
from ncu_tools.timeline.steps import GpuWork, TimelineStep
from ncu_tools.timeline.timeline import LONGEST, GpuTimeline, Timeline

COMMUNICATES, COPIES, HIDDEN_COMMUNICATION, HIDDEN_COPIES, SAMPLED, FIRST_CAUSE = range(6)
OF_KERNELS = tuple(f"{one} kernels" for one in CATEGORIES)
OF_HOST = ("range", "operator", "API call")
KINDS = (
    "communication", "copies", "hidden communication", "hidden copies", "sampled", *CAUSES, *OF_KERNELS,
    *OF_HOST, *(f"path: {kind}" for kind in PATH_KINDS),
)  # fmt: skip
"""Kinds of boxes: work of a GPU, sampled metrics, causes of idle time, categories of kernels, what a host thread did,
and what the critical path waits for.

Hidden communication runs while a kernel computes, hidden copies run while anything else does.
"""
FIRST_CATEGORY = FIRST_CAUSE + len(CAUSES)
FIRST_OF_HOST = FIRST_CATEGORY + len(OF_KERNELS)
FIRST_OF_PATH = FIRST_OF_HOST + len(OF_HOST)

GAPS, LONGEST_GAPS, PATH = "gaps", "longest gaps", "waits for"
NO_NAME = -1
NO_PIECES = LanePieces(*(np.zeros(0, np.int64) for _ in range(4)))
SAMPLED_BOXES = 120
"""Boxes of a lane of samples. Each merges several pieces, so that a page draws their share of its time."""
MOST_STREAMS, MOST_GPUS = 12, 16
"""Most streams of a GPU with lanes (the busiest ones), and most GPUs with lanes."""


@dataclass(frozen=True)
class StepOfTimeline:
    """A step as one GPU saw it, and as other GPUs that ran it at the same time."""

    gpu: GpuTimeline
    step: TimelineStep
    others: tuple[tuple[GpuTimeline, TimelineStep], ...] = ()

    @property
    def window(self) -> tuple[int, int]:
        """Start and end of the shown time, in ns of the recording."""
        return self.step.start_ns, self.step.start_ns + self.step.span_ns


@dataclass(frozen=True)
class StepLane:
    """One lane in a step, with `total` the ns in which any of its pieces ran. Times count from the step's start.

    `name` of a piece is the index of an operation's name in the recording, for a longest gap its rank, else `NO_NAME`.
    A lane of samples has `boxes` in place of pieces.
    """

    title: str
    pieces: LanePieces
    total: int
    boxes: tuple[LaneBox, ...] = ()


@dataclass(frozen=True)
class LanesOfGpu:
    """The lanes of one GPU in a step, its longest gaps there, and the number of further streams."""

    gpu: GpuTimeline
    lanes: list[StepLane]
    longest: list[LongGap]
    more_streams: int


def steps_by_saving(found: Timeline) -> tuple[list[StepOfTimeline], list[StepOfTimeline]]:
    """The steps of a timeline and the whole recording, each as GPUs saw it, largest possible saving first.

    Steps without a known saving come last, by the time in which no kernel computes.
    """
    return _joined([gpu.steps for gpu in found.gpus], found), _joined([[gpu.whole] for gpu in found.gpus], found)


def _joined(of_gpus: Sequence[Sequence[TimelineStep]], found: Timeline) -> list[StepOfTimeline]:
    """The steps of all GPUs by possible saving, with steps of the same name at the same time joined."""
    ranked = sorted(
        ((gpu, place) for gpu, steps in enumerate(of_gpus) for place in range(len(steps))),
        key=lambda one: _rank(of_gpus[one[0]][one[1]]),
    )
    named: dict[str, list[dict[int, int]]] = {}
    for gpu, place in ranked:
        step = of_gpus[gpu][place]
        named.setdefault(step.name, [{} for _ in of_gpus])[gpu][step.start_ns] = place
    starts = {name: [sorted(mine) for mine in by_gpu] for name, by_gpu in named.items()}
    taken: set[tuple[int, int]] = set()
    joined = []
    for gpu, place in ranked:
        if (gpu, place) in taken:
            continue
        step, others = of_gpus[gpu][place], []
        middle = step.start_ns + step.span_ns // 2
        for other in range(len(of_gpus)):
            at = bisect_right(starts[step.name][other], middle) - 1
            if other == gpu or at < 0:
                continue
            same = named[step.name][other][starts[step.name][other][at]]
            its = of_gpus[other][same]
            if middle < its.start_ns + its.span_ns and (other, same) not in taken:
                others.append((other, same))
        taken.update(others)
        joined.append(
            StepOfTimeline(found.gpus[gpu], step, tuple((found.gpus[one], of_gpus[one][its]) for one, its in others))
        )
    return joined


def _rank(step: TimelineStep) -> tuple[bool, int]:
    saving = step.verdict.saving_ns
    return saving is None, -(step.span_ns - step.compute_ns if saving is None else saving)


class LanesOfTimeline:
    """The lanes of the steps of a timeline, computed on request and cached for each step.

    `path` is the recording's critical path, in ns of the recording; empty if there is none.
    """

    def __init__(self, found: Timeline, path: LanePieces = NO_PIECES) -> None:
        self._found, self._path = found, path
        self._threads = ThreadsOfCalls(found.activity, launching_calls(found.activity))
        self._gpus: dict[int, list[LanesOfGpu]] = {}
        self._hosts: dict[int, list[LanesOfThread]] = {}
        names = found.activity.operations.names
        self._categories = np.array([CATEGORIES.index(category_of(name)) for name in names], np.int64)
        self._operations = {id(gpu): found.activity.operations.at(gpu.rows) for gpu in found.gpus}

    def gpus(self, shown: StepOfTimeline) -> list[LanesOfGpu]:
        """The lanes of the GPUs that ran the step, then of other GPUs known at that time; `MOST_GPUS` at most."""
        first = [shown.gpu, *(gpu for gpu, _ in shown.others)]
        others = [gpu for gpu in self._found.gpus if not any(gpu is one for one in first)]
        if id(shown) not in self._gpus:
            found = (self._of(gpu, *shown.window) for gpu in (*first, *others))
            self._gpus[id(shown)] = list(islice((one for one in found if one.lanes), MOST_GPUS))
        return self._gpus[id(shown)]

    def path(self, shown: StepOfTimeline) -> list[StepLane]:
        """The critical path within the step as one lane; [] if the path has no part there."""
        start, end = shown.window
        inside = np.flatnonzero((self._path.end > start) & (self._path.start < end))
        begins = np.maximum(self._path.start[inside], start) - start
        ends = np.minimum(self._path.end[inside], end) - start
        pieces = LanePieces(begins, ends, self._path.kind[inside], self._path.name[inside])
        return [StepLane(PATH, pieces, int(pieces.own.sum()))] if len(inside) else []

    def hosts(self, shown: StepOfTimeline) -> list[LanesOfThread]:
        """The lanes of the busiest host threads of the processes whose GPUs ran the step."""
        processes = [gpu.process for gpu in (shown.gpu, *(gpu for gpu, _ in shown.others))]
        kinds = (FIRST_OF_HOST, FIRST_OF_HOST + 1, FIRST_OF_HOST + 2)
        if id(shown) not in self._hosts:
            self._hosts[id(shown)] = host_lanes(self._found.activity, processes, *shown.window, kinds)
        return self._hosts[id(shown)]

    def _of(self, gpu: GpuTimeline, start: int, end: int) -> LanesOfGpu:
        window = IntervalSet.between(start, end)
        every = self._operations[id(gpu)]
        here = np.flatnonzero(
            (every.start < end) & (every.end >= start) & ((every.end > start) | (every.start >= start))
        )
        operations = every.at(here)
        work = GpuWork.of(operations)
        compute, communication, copies = (one & window for one in (work.compute, work.communication, work.copies))
        exposed_copies = work.exposed_copies & window
        kernels = FIRST_CATEGORY + self._categories[operations.name]
        kind = np.where(work.computes, kernels, np.where(work.communicates, COMMUNICATES, COPIES))
        longest = self._longest(gpu, start, end)
        streams = _streams(operations, kind, start, end)
        causes = [(FIRST_CAUSE + number, gpu.gaps.causes[cause] & window) for number, cause in enumerate(CAUSES)]
        lanes = [
            _lane(GAPS, causes, start),
            _lane("communication", [(COMMUNICATES, communication - compute),
                                    (HIDDEN_COMMUNICATION, communication & compute)], start),
            _lane("copies", [(COPIES, exposed_copies), (HIDDEN_COPIES, copies - exposed_copies)], start),
            *streams[:MOST_STREAMS],
            *self._sampled(gpu, start, end),
            _of_longest(longest, start),
        ]  # fmt: skip
        return LanesOfGpu(
            gpu, [lane for lane in lanes if len(lane.pieces) or lane.boxes], longest, len(streams[MOST_STREAMS:])
        )

    def _sampled(self, gpu: GpuTimeline, start: int, end: int) -> Iterator[StepLane]:
        """A lane for each metric sampled on a GPU within the window, in % of its peak."""
        samples = self._found.activity.sampled.of(gpu.process, gpu.device)
        for name in sampled_columns() if samples is not None else ():
            if samples is None or name not in samples.values:
                continue
            edges = np.linspace(start, end, SAMPLED_BOXES + 1).astype(np.int64)
            amount, covered = samples.amounts(name, edges[:-1], edges[1:])
            lasts = np.diff(edges)
            mean = np.divide(amount, covered, out=np.zeros(SAMPLED_BOXES), where=covered > 0)
            active = np.rint(np.clip(mean / 100, 0, 1) * lasts).astype(np.int64)
            boxes = tuple(
                LaneBox(begin - start, begin - start + length, 2, None, {SAMPLED: time})
                for begin, length, time in zip(edges[:-1].tolist(), lasts.tolist(), active.tolist(), strict=True)
                if time
            )
            yield StepLane(f"~{title_of_sampled(name)}", NO_PIECES, int(active.sum()), boxes)

    def _longest(self, gpu: GpuTimeline, start: int, end: int) -> list[LongGap]:
        """The longest gaps within the window, longest first; gaps beyond its edges are cut."""
        within = gaps_within(gpu.gaps, start, end)
        return longest_gaps(self._found.activity, gpu.rows, within, self._threads, LONGEST)


def _lane(title: str, sets: Sequence[tuple[int, IntervalSet]], begin: int) -> StepLane:
    """A lane of moments that belong to one kind each."""
    start, end = (np.concatenate([getattr(one, name) for _, one in sets]) for name in ("start", "end"))
    kind = np.repeat([kind for kind, _ in sets], [len(one) for _, one in sets])
    order = np.argsort(start, kind="stable")
    pieces = LanePieces(start[order] - begin, end[order] - begin, kind[order], np.full(len(order), NO_NAME))
    return StepLane(title, pieces, sum(one.total for _, one in sets))


def _streams(operations: GpuOperations, kind: npt.NDArray[np.int64], start: int, end: int) -> list[StepLane]:
    """A lane for each stream with all its work, the busiest first."""
    found = []
    for stream in np.unique(operations.stream).tolist():
        mine = operations.stream == stream
        pieces = LanePieces(
            np.maximum(operations.start[mine], start) - start, np.minimum(operations.end[mine], end) - start,
            kind[mine], operations.name[mine],
        )  # fmt: skip
        found.append(StepLane("stream" if stream == MISSING else f"stream {stream}", pieces, int(pieces.own.sum())))
    return sorted(found, key=lambda lane: -lane.total)


def _of_longest(longest: Sequence[LongGap], begin: int) -> StepLane:
    """A lane of the longest gaps, each named by its rank, to show the host's activity."""
    ranks = sorted(range(len(longest)), key=lambda rank: longest[rank].start_ns)
    columns = [
        (gap.start_ns - begin, gap.start_ns - begin + gap.duration_ns, FIRST_CAUSE + CAUSES.index(gap.cause), rank)
        for rank, gap in ((rank, longest[rank]) for rank in ranks)
    ]
    pieces = LanePieces(*np.array(columns, np.int64).reshape(-1, 4).T)
    return StepLane(LONGEST_GAPS, pieces, sum(gap.duration_ns for gap in longest))
