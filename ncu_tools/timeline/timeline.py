"""The analysis of a timeline: each GPU with its steps, gaps, copies, communication, streams and launches.

`timeline(activity)` returns a `Timeline` of plain values that also keeps the recording, for a page to draw its lanes.
Sums are whole nanoseconds, and in each step busy + gaps = span.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.notes import Note, NoteKind, kind_of, reworded
from ncu_launch.profilers.sampling.power_readings import PowerReading
from ncu_parsers.sources import memory
from ncu_parsers.timelines.activity.activity import (
    DEVICE_TO_HOST,
    DIRECTIONS,
    GRAPH,
    HOST_TO_DEVICE,
    KERNEL,
    MEMCPY,
    MISSING,
    PEER_TO_PEER,
    Activity,
    GpuOperations,
    Integers,
    Window,
)
from ncu_parsers.timelines.activity.operation_times import without_impossible_ends

from ncu_tools.ceilings.machine_files import HOST_LINK, PEER_LINK, Machine, machine_of_device
from ncu_tools.numbers.number_format import duration, percent
from ncu_tools.timeline.communication import CollectiveSum, collectives_on
from ncu_tools.timeline.copies import CopySum, copies_on
from ncu_tools.timeline.gaps import (
    LAUNCH,
    Gaps,
    LongGap,
    ThreadsOfCalls,
    gaps_of,
    gaps_within,
    longest_gaps,
    times_to_name,
)
from ncu_tools.timeline.intervals import NOTHING, IntervalSet, Mask
from ncu_tools.timeline.launch_links import LaunchLinks, launch_links
from ncu_tools.timeline.step_energy import (
    RECORDED_POWER,
    energy_between,
    power_note,
    power_of_whole_run,
    readings_of,
    recorded_readings,
)
from ncu_tools.timeline.steps import (
    TRIMMED,
    WHOLE,
    GpuWork,
    LaunchTimes,
    StepWindow,
    TimelineStep,
    step_ranges,
    sums_of_steps,
    typical_step,
    window_behind_earlier_work,
    windows_by_repetition,
    windows_of_iterations,
    windows_of_ranges,
)
from ncu_tools.timeline.streams import StreamSum, streams_on
from ncu_tools.timeline.verdict import (
    COMMUNICATION,
    COPY,
    KERNELS,
    LAUNCHES,
    NO_KERNEL,
    communication_evidence,
    copy_evidence,
    gap_evidence,
    on_a_shared_gpu,
    step_evidence,
    what_computes,
    without_kernels,
)
from ncu_tools.timeline.waits import HostWait, WaitingCalls, waits_of

LONGEST = 10
"""The number of gaps described per GPU."""

NO_STEP_HERE = "ranges that --step names; none of them launched GPU work in the time of --trim"

WORTH_A_NOTE = 0.01
"""Smallest share of a GPU's time that another stream could save for a note on it."""


@dataclass(frozen=True)
class LaunchSums:
    """Launches of one GPU with known API calls; medians in ns.

    `delay_ns` is the time from the begin of a call to the start of its first kernel, including the time in the queue.
    `shorter` is the share of calls whose kernels (several for a graph) take less time than the call itself.
    """

    kernels: int
    calls: int
    call_ns: float
    delay_ns: float
    kernel_ns: float
    shorter: float


@dataclass(frozen=True)
class GpuTimeline:
    """The timeline of one GPU, as its process numbers it.

    `whole` is all of it: the trimmed time, or from the first thing that its process did to the end of the last
    operation or step. `steps` may be empty; `longest_of_typical` are the longest gaps of the step of median length.
    `rows` are the GPU's operations in the recording; with `busy` and `gaps`, they serve to draw lanes.
    """

    process: int | None
    device: int | None
    name: str | None
    whole: TimelineStep
    how_steps: str
    step_notes: list[str]
    steps: list[TimelineStep]
    longest_of_typical: list[LongGap]
    longest: list[LongGap]
    copies: list[CopySum]
    collectives: list[CollectiveSum]
    streams: list[StreamSum]
    launches: LaunchSums | None
    gaps: Gaps
    rows: npt.NDArray[np.int32]
    busy: IntervalSet

    @property
    def title(self) -> str:
        """The GPU's name among others: "GPU 0"."""
        return "GPU" if self.device is None else f"GPU {self.device}"

    @property
    def typical(self) -> TimelineStep | None:
        """The step of median length; None without steps."""
        return typical_step(self.steps)


@dataclass(frozen=True)
class Timeline:
    """An analysed recording. Times of its parts count from `origin_ns`, its first operation or API call.

    `doubts` are the notes on what in the recording is impossible.
    """

    name: str
    tool: str
    origin_ns: int
    gpus: list[GpuTimeline]
    waits: list[HostWait]
    activity: Activity
    notes: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)

    @property
    def trimmed(self) -> bool:
        """Whether only a part of the recording was looked at. `activity` may hold more of it, or no more."""
        return self.activity.whole is not None or any(gpu.whole.name == TRIMMED for gpu in self.gpus)


def timeline(
    activity: Activity,
    *,
    step: re.Pattern[str] | None = None,
    trim: Window | None = None,
    machine: Machine | None = None,
    longest: int = LONGEST,
    power: Mapping[str, Sequence[PowerReading]] | None = None,
) -> Timeline:
    """Analyse a recording.

    `step` matches the names of ranges that are steps; `trim` restricts the analysis to a time (ns since the first
    event). Peaks of links are those of `machine`, else of the machine file for the GPU's name. `power` are readings of
    each GPU by its index. Raises `NcuBenchError` for a recording without GPU work, `WrongUsage` if `step` matches no
    range or `trim` leaves nothing.
    """
    if not len(activity.operations):
        raise no_gpu_work(activity, power or {})
    operations, impossible = without_impossible_ends(activity.operations)
    activity = replace(activity, operations=operations)
    recording = activity.whole or recording_of(activity)
    looked_at = None if trim is None else _trimmed(recording, trim)
    links = launch_links(activity)
    threads = ThreadsOfCalls(activity, links.call)
    each = [
        _gpu(activity, process, device, links, threads, step, looked_at, machine)
        for process, device in activity.operations.gpus()
    ]
    memory.trim_heap()  # what the last GPU left
    gpus = [gpu for gpu in each if gpu is not None]
    if not gpus and step is not None:
        raise _no_step(activity, step)
    window = looked_at if looked_at is not None else IntervalSet.between(*recording)
    waiting = WaitingCalls.of(activity, links.call, window)
    to_describe = [gaps for gpu in gpus for gaps in (gpu.gaps, _gaps_of_typical(gpu)) if gaps is not None]
    in_gaps = [time for gaps in to_describe for time in times_to_name(activity, gaps, longest)]
    threads.look_up([*in_gaps, *waiting.times_to_name(activity)])
    gpus = [_described(activity, gpu, threads, longest) for gpu in gpus]
    doubts = [*impossible, *links.notes]
    notes = [
        *doubts, *_notes(gpus, trimmed=trim is not None), *activity.missing, *activity.notes
    ]  # fmt: skip
    if power or activity.sampled.environment:
        gpus, more = _with_energy(activity, gpus, power or {})
        notes += more
    busy, gaps = _by_process(gpus)
    waits = waits_of(activity, waiting, busy, gaps, threads)
    return Timeline(activity.name, activity.tool, recording[0], gpus, waits, activity, notes, doubts)


def recording_of(activity: Activity) -> Window:
    """The window from the first operation or API call to the end of the last one."""
    tables = [table for table in (activity.operations, activity.calls) if len(table)]
    return Window(min(int(one.start.min()) for one in tables), max(int(one.end.max()) for one in tables))


def _trimmed(recording: Window, trim: Window) -> IntervalSet:
    start, end = max(recording[0], recording[0] + trim[0]), min(recording[1], recording[0] + trim[1])
    if end <= start:
        raise WrongUsage(
            f"--trim leaves nothing: the recording lasts {(recording[1] - recording[0]) / 1e6:,.3f} ms.",
            "Times count from its first operation or API call.",
            "Name a start and an end within it: --trim 100ms,250ms",
        )
    return IntervalSet.between(start, end)


def _gpu(
    activity: Activity, process: int, device: int, links: LaunchLinks, threads: ThreadsOfCalls,
    step: re.Pattern[str] | None, looked_at: IntervalSet | None, machine: Machine | None,
) -> GpuTimeline | None:  # fmt: skip
    """The timeline of one GPU; None if `step` matches ranges and none of them launched anything here.

    In a trimmed recording such a GPU is kept, since ranges outside may have launched something. Gaps are described
    later, since the ranges over those of all GPUs are looked up at once.
    """
    memory.trim_heap()  # what reading and the GPU before left
    mine = (activity.operations.process == process) & (activity.operations.device == device)
    rows = np.flatnonzero(mine).astype(np.int32)
    operations, call = _placed_in_time(activity.operations).at(rows), links.call[rows]
    found, how, step_notes = step_windows(activity, process, operations, call, step)
    if step is not None and not found and activity.whole is None:
        return None
    windows, cut = _clipped(found, looked_at)
    step_notes = [*step_notes, *cut]
    whole = _whole_window(activity, process, operations, windows, looked_at)
    window = IntervalSet.between(whole.start, whole.end)
    work = GpuWork.of(operations)
    busy, idle = (work.compute | work.communication | work.copies).split(whole.start, whole.end)
    gaps = gaps_of(activity, operations, call, idle, threads, links.lost_by(process))
    memory.trim_heap()  # what splitting the gaps left
    found_steps = sums_of_steps([whole, *windows], operations, work, gaps)
    if looked_at is None and not ((operations.kind == KERNEL) | (operations.kind == GRAPH)).any():
        found_steps = [replace(one, verdict=without_kernels(one.verdict)) for one in found_steps]
    others = _sharing(activity, process, device)
    first, *steps = (replace(one, verdict=on_a_shared_gpu(one.verdict, others)) for one in found_steps)
    machine = machine or machine_of_device(activity.devices.get((process, device)))
    copies = copies_on(
        activity.operations.at(rows[operations.kind == MEMCPY]), window, work.exposed_copies, _links(machine)
    )
    communicates = np.flatnonzero(work.communicates)
    here = window.touches(operations.start[communicates], operations.end[communicates])
    collectives = collectives_on(activity, rows[communicates[here]].tolist(), window)
    launches = _launches(activity, operations, call, work.computes & window.holds(operations.start))
    memory.trim_heap()  # what the sums left
    return GpuTimeline(
        None if process == MISSING else process, None if device == MISSING else device,
        activity.devices.get((process, device)), first, how, step_notes, steps, [], [], copies, collectives,
        streams_on(operations, work.computes, window, work.exposed_copies | work.exposed_communication),
        launches, gaps, rows, busy,
    )  # fmt: skip


def _placed_in_time(operations: GpuOperations) -> GpuOperations:
    """The operations without the columns that say what was copied and for whom, a third of their memory."""
    unused = np.broadcast_to(np.int64(MISSING), len(operations))
    return replace(
        operations, process=unused, device=unused, context=unused, correlation=unused, graph_node=unused, bytes=unused,
        direction=unused, source_memory=unused, destination_memory=unused,
    )  # fmt: skip


def _gaps_of_typical(gpu: GpuTimeline) -> Gaps | None:
    """The gaps of the step of median length; None without steps."""
    step = gpu.typical
    return None if step is None else gaps_within(gpu.gaps, step.start_ns, step.start_ns + step.span_ns)


def _described(activity: Activity, gpu: GpuTimeline, threads: ThreadsOfCalls, longest: int) -> GpuTimeline:
    """The timeline of a GPU with its longest gaps, and the evidence for its verdicts."""
    described = longest_gaps(activity, gpu.rows, gpu.gaps, threads, longest)
    within_calls = _within_calls(activity, MISSING if gpu.process is None else gpu.process, gpu.gaps)
    evidence = _evidence(gpu.whole, gpu.copies, gpu.collectives, described, gpu.launches, within_calls)
    whole = replace(gpu.whole, verdict=replace(gpu.whole.verdict, evidence=evidence))
    steps, typical, of_typical = [_with_evidence(step, described) for step in gpu.steps], gpu.typical, list[LongGap]()
    if typical is not None and (gaps := _gaps_of_typical(gpu)) is not None:
        of_typical = longest_gaps(activity, gpu.rows, gaps, threads, longest)
        steps[gpu.steps.index(typical)] = _with_evidence(typical, of_typical)
    return replace(gpu, whole=whole, steps=steps, longest=described, longest_of_typical=of_typical)


def _sharing(activity: Activity, process: int, device: int) -> list[int]:
    """The other processes that ran on this GPU, if the recording has its UUID."""
    uuid = activity.uuids.get((process, device))
    same = [gpu for gpu in activity.operations.gpus() if uuid is not None and activity.uuids.get(gpu) == uuid]
    return sorted(other for other, _ in same if other != process)


def _links(machine: Machine | None) -> dict[str, float]:
    """Peaks of links in B/s, by the direction of copies."""
    taken = {HOST_TO_DEVICE: HOST_LINK, DEVICE_TO_HOST: HOST_LINK, PEER_TO_PEER: PEER_LINK}
    links = machine.links if machine is not None else {}
    return {DIRECTIONS[direction]: links[end].value for direction, end in taken.items() if end in links}


def _evidence(
    whole: TimelineStep, copies: Sequence[CopySum], collectives: Sequence[CollectiveSum], longest: Sequence[LongGap],
    launches: LaunchSums | None, within_calls: int,
) -> tuple[str, ...]:  # fmt: skip
    """Sentences on what bounds a GPU over the whole recording; `within_calls` is the launch time in API calls, ns."""
    bound = whole.verdict.bound
    if bound == COPY:
        return copy_evidence(copies)
    if bound == COMMUNICATION:
        return communication_evidence(collectives)
    if bound == KERNELS:
        return (f"{what_computes(whole.verdict.metrics)}; what to change: ncu-bench advise",)
    if bound is None:
        return ()
    found = gap_evidence(bound, whole.causes, longest)
    if bound == LAUNCHES and launches is not None:
        found += (
            f"of launch, {duration(within_calls)} is in API calls, and the rest between two of them, as in Python",
            f"medians: API call {duration(launches.call_ns)}, kernel {duration(launches.kernel_ns)}; "
            f"{percent(launches.shorter)} of the calls take longer than the kernels that they launch",
        )
    return found


def _within_calls(activity: Activity, process: int, gaps: Gaps) -> int:
    """The part of a GPU's launch gaps that lies in API calls of the process, in ns."""
    calls, launching = activity.calls, gaps.causes[LAUNCH]
    near = launching.touches(calls.start, calls.end)  # keeps few of millions
    rows = np.flatnonzero(near & (calls.of_process(process) | (process == MISSING)))
    return (launching & IntervalSet.union_at(calls.start, calls.end, rows)).total


def _whole_window(
    activity: Activity, process: int, operations: GpuOperations, steps: Sequence[StepWindow],
    looked_at: IntervalSet | None,
) -> StepWindow:  # fmt: skip
    """The window of all that concerns a GPU, from the first event of its process, such as loading data, to its last."""
    if looked_at is not None:
        return StepWindow(TRIMMED, int(looked_at.start[0]), int(looked_at.end[0]))
    start = int(operations.start.min())
    for table in (activity.calls, activity.ranges):
        own = table.of_process(process) | (process == MISSING)
        start = int(table.start.min(where=own, initial=start))
    end = max([int(operations.end.max()), *(one.end for one in steps)])
    return StepWindow(WHOLE, min([start, *(one.start for one in steps)]), max(end, start + 1))


def step_windows(
    activity: Activity, process: int, operations: GpuOperations, call: Integers, step: re.Pattern[str] | None
) -> tuple[list[StepWindow], str, list[str]]:
    """The steps on one GPU, how they were found, and notes on them; [] and "" if there are none."""
    found = step_ranges(activity.ranges, process, step)
    if found is not None:
        windows, notes = windows_of_ranges(found[0], operations, _launched(activity, call))
        return windows, found[1], notes
    if step is not None:
        return [], NO_STEP_HERE, []
    if (operations.iteration != MISSING).any():
        return windows_of_iterations(operations), "iterations that the recording names", []
    found_alone = windows_by_repetition(operations, call) or window_behind_earlier_work(
        operations, call, activity.calls
    )
    return (*(found_alone or ([], "")), [])


def _launched(activity: Activity, call: Integers) -> LaunchTimes:
    """When and by which thread each operation was launched, from the rows of API calls (-1: unknown)."""
    calls = activity.calls
    if not len(calls):
        return LaunchTimes(np.full(len(call), MISSING), np.full(len(call), MISSING))
    is_known = call >= 0
    return LaunchTimes(
        np.where(is_known, calls.start[call], MISSING), np.where(is_known, calls.threads_of(call), MISSING)
    )  # fmt: skip


def _clipped(windows: Sequence[StepWindow], looked_at: IntervalSet | None) -> tuple[list[StepWindow], list[str]]:
    """The steps that lie wholly in the trimmed time; if none does, the parts of those that it cuts; and notes."""
    if looked_at is None:
        return list(windows), []
    low, high = int(looked_at.start[0]), int(looked_at.end[0])
    here = [one for one in windows if one.start < high and one.end > low]
    whole = [one for one in here if low <= one.start and one.end <= high]
    if len(whole) == len(here):
        return whole, []
    if whole:
        left_out = len(here) - len(whole)
        are = "is" if left_out == 1 else "are"
        return whole, [f"{left_out} of {len(here)} steps {are} cut by --trim, and left out"]
    cut = [replace(one, start=max(one.start, low), end=min(one.end, high)) for one in here]
    return cut, ["--trim cuts every step: numbers are of what is left of them"]


def _with_evidence(step: TimelineStep, longest: Sequence[LongGap]) -> TimelineStep:
    """The step with the evidence for its verdict; `longest` are the longest gaps of its GPU."""
    own = [gap for gap in longest if step.start_ns <= gap.start_ns < step.start_ns + step.span_ns]
    evidence = step_evidence(step.verdict.bound, step.verdict.metrics, step.causes, own)
    return replace(step, verdict=replace(step.verdict, evidence=evidence))


def _launches(activity: Activity, operations: GpuOperations, call: Integers, computes: Mask) -> LaunchSums | None:
    rows = np.flatnonzero(computes & (call >= 0) & (operations.kind == KERNEL))
    if not len(rows):
        return None
    used, of_call = np.unique(call[rows], return_inverse=True)
    first = np.full(len(used), np.iinfo(np.int64).max)
    np.minimum.at(first, of_call, operations.start[rows])
    delay = float(np.median(first - activity.calls.start[used]))
    calling = activity.calls.end[used] - activity.calls.start[used]
    lasts = operations.end[rows] - operations.start[rows]
    shorter = float((np.bincount(of_call, lasts, len(used)) < calling).mean())
    return LaunchSums(
        len(rows), len(used), float(np.median(calling)), delay, float(np.median(lasts)), shorter
    )  # fmt: skip


def _by_process(gpus: Sequence[GpuTimeline]) -> tuple[dict[int, IntervalSet], dict[int, IntervalSet]]:
    """By process, when any of its GPUs ran something, and the gaps of its most idle GPU."""
    busy: dict[int, IntervalSet] = {}
    gaps: dict[int, IntervalSet] = {}
    for gpu in gpus:
        process = MISSING if gpu.process is None else gpu.process
        busy[process] = busy.get(process, NOTHING) | gpu.busy
        if gpu.gaps.idle.total > gaps.get(process, NOTHING).total:
            gaps[process] = gpu.gaps.idle
    return busy, gaps


def _notes(gpus: Sequence[GpuTimeline], *, trimmed: bool) -> list[str]:
    notes = []
    for how in dict.fromkeys(gpu.how_steps for gpu in gpus):
        nothing = "nothing marks steps, and no sequence of kernels repeats; name ranges that are steps with --step"
        notes.append(Note(f"steps are {how}", NoteKind.METHOD) if how else nothing)
    for gpu in gpus:
        notes += [reworded(f"{gpu.title}: {note}", note) for note in gpu.step_notes]
        if not trimmed and gpu.whole.copies and gpu.whole.verdict.why == NO_KERNEL:
            notes.append(f"{gpu.title}: no kernel was recorded, so nothing is known to run beside its copies")
        for one in gpu.streams:
            hidden_at_most = min(one.in_line_ns, gpu.whole.compute_ns)
            if hidden_at_most >= WORTH_A_NOTE * gpu.whole.span_ns:
                notes.append(
                    f"{gpu.title}, stream {one.stream}: {duration(one.in_line_ns)} of copies and communication stand "
                    f"in line with the kernels of their own stream; on another one {duration(hidden_at_most)} at most "
                    "could hide behind kernels, unless these need them"
                )
    return notes


def _with_energy(
    activity: Activity, gpus: Sequence[GpuTimeline], power: Mapping[str, Sequence[PowerReading]]
) -> tuple[list[GpuTimeline], list[str]]:
    """The GPUs with the energy of their steps, and notes on the readings.

    `power` are readings in ns since 1970; without them, the recording's own readings are used, in its own time.
    """
    if power and activity.utc_ns is None:
        return list(gpus), ["power was sampled, and no energy is shown: the recording does not say when it began"]
    began, found = (activity.utc_ns or 0) if power else 0, []
    for gpu in gpus:
        process, device = (MISSING if one is None else one for one in (gpu.process, gpu.device))
        readings = (
            readings_of(activity, (process, device), power) if power else recorded_readings(activity, (process, device))
        )
        whole, *steps = (
            replace(step, energy=energy_between(readings, began + step.start_ns, began + step.start_ns + step.span_ns))
            for step in (gpu.whole, *gpu.steps)
        )
        found.append(replace(gpu, whole=whole, steps=steps))
    if not any(step.energy for gpu in found for step in (gpu.whole, *gpu.steps)):
        return found, ["power was sampled, and no energy is shown: no GPU has two readings in the time of its work"]
    return found, [power_note(power) if power else RECORDED_POWER]


def no_gpu_work(activity: Activity, power: Mapping[str, Sequence[PowerReading]]) -> NcuBenchError:
    """The error for a recording without GPU work; `power` are readings of the whole run."""
    tables = ((activity.calls, "API calls"), (activity.ranges, "ranges of the host"))
    seen = [f"{len(table):,} {what}" for table, what in tables if len(table)]
    why = f"It has {' and '.join(seen)}." if seen else "The program used no GPU, or its GPU work was not recorded."
    left_out = [f"Besides, {note}." for note in activity.notes if kind_of(note) == NoteKind.LOST]
    readable = " that could be read" if left_out else ""
    return NcuBenchError(
        f"{activity.name} holds no GPU work{readable}: no kernel, no copy and no memset.",
        " ".join([why, *left_out, *power_of_whole_run(power)]),
        "Record a program that uses a GPU, and its work there"
        + (f", with: {activity.recorded_with}" if activity.recorded_with else "."),
    )


def _no_step(activity: Activity, step: re.Pattern[str]) -> WrongUsage:
    some = list(dict.fromkeys(activity.ranges.names))[:5]
    have = f"There are: {', '.join(some)} ..." if some else "The recording has no ranges."
    return WrongUsage(f"--step {step.pattern} names no range that launched GPU work.", have, "Name one of the ranges.")
