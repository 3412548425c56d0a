"""The timelines of an HTML report as plain values: for each step its verdict, its numbers, and lanes of boxes.

It includes as many steps as keep the page small, the typical one first, then by possible saving; notes list omissions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ncu_parsers.timelines.activity.activity import MISSING

from ncu_tools.kernels.kernel_row import names_shown
from ncu_tools.kernels.names.distinct_names import fitted_names
from ncu_tools.numbers.number_format import counted, duration
from ncu_tools.report.columns.registry import column
from ncu_tools.report.html.fine_lanes import FineLanes, TextOf, Texts
from ncu_tools.report.html.host_lanes import HostLane, LanesOfThread
from ncu_tools.report.html.html_page import embedded
from ncu_tools.report.html.lane_boxes import LaneBox, LanePieces, boxes_of, resolution_of
from ncu_tools.report.html.page_columns import SHOWN, WIDEST_NAME, table_of
from ncu_tools.report.html.step_lanes import (
    KINDS,
    LONGEST_GAPS,
    NO_NAME,
    NO_PIECES,
    LanesOfGpu,
    LanesOfTimeline,
    StepLane,
    StepOfTimeline,
    steps_by_saving,
)
from ncu_tools.report.timeline_parts import PARTS_OF_TIMELINE, PROCESS, step_row
from ncu_tools.timeline.gaps import DEPENDENCY, QUEUED, UNKNOWN, LongGap
from ncu_tools.timeline.headline import headline, verdict_words
from ncu_tools.timeline.steps import TimelineStep
from ncu_tools.timeline.timeline import GpuTimeline, Timeline
from ncu_tools.timeline.verdict import PARTS

NEXT = "next_operation"
LANES_LETTERS, MOST_STEPS = 400_000, 20
"""Most characters of JSON that the lanes of all steps take on a page, and most steps of a run."""
MOST_BOXES, FEWEST_BOXES = 4_000, 200
"""Most boxes of a step, and the least number to which the first one's boxes are merged if there is little room. A
browser draws half as many at a time, and merges boxes shorter than a pixel."""
BOXES_OF_WHOLE = 1_500
"""Most boxes of the whole recording, if it has steps."""
LONGEST_NAME, LONGEST_TITLE = 300, 80
"""Characters of a name and of its short form; longer ones are cut in the middle."""


def timeline_content(
    timelines: Mapping[int, Timeline],
    room: int,
    shown: Mapping[str, str] | None = None,
    fine: FineLanes | None = None,
    paths: Mapping[int, LanePieces] | None = None,
) -> dict[str, Any]:
    """The steps of timelines by run index, in `room` characters of JSON; `fine` gets the pieces of their lanes.

    `paths` are critical paths by run index, in ns of the recording. Names are stored once in "texts", as they are
    `shown` on the page and in a longer form, and boxes hold their indices.
    """
    operations = (name for one in timelines.values() for name in one.activity.operations.names)
    shown = shown or names_shown(operations, width=WIDEST_NAME)
    fine = fine or FineLanes()
    texts = fine.texts
    steps, left_out, notes = list[dict[str, Any]](), list[str](), list[str]()
    for place, found in timelines.items():
        lanes = LanesOfTimeline(found, (paths or {}).get(place, NO_PIECES))
        made, more = _steps(found, lanes, shown, texts, room // len(timelines), fine)
        of_run = f"{found.name}: " if len(timelines) > 1 else ""
        steps += [{"run": place, **one} for one in made]
        left_out += [of_run + one for one in more]
        notes += [of_run + one for one in found.notes]
    return {
        "kinds": [{"title": kind, "part": _part_of(number)} for number, kind in enumerate(KINDS)],
        "steps": steps,
        "texts": list(texts),
        "left_out": left_out,
        "notes": list(dict.fromkeys(notes)),
    }


def _part_of(kind: int) -> str | None:
    """The part of the verdict to which a cause of gaps belongs; None for work."""
    return next((part for part, causes in PARTS.items() if KINDS[kind] in causes), None)


def _steps(
    found: Timeline, lanes: LanesOfTimeline, names: Mapping[str, str], texts: Texts, room: int, fine: FineLanes
) -> tuple[list[dict[str, Any]], list[str]]:
    """The steps that fit in `room`, and omissions. The whole recording gets room before the second step, but is
    last."""
    steps, wholes = steps_by_saving(found)
    steps.sort(key=lambda one: not _is_typical(found, one))  # the headline's step is shown first
    made: dict[int, dict[str, Any]] = {}
    of_whole = BOXES_OF_WHOLE if steps else MOST_BOXES
    order = [(one, MOST_BOXES) for one in steps[:MOST_STEPS]]
    for one, most in [*order[:1], *((one, of_whole) for one in wholes), *order[1:]]:
        fewest = FEWEST_BOXES if not made else most
        drawn, more, letters = _fitting(found, lanes, one, names, texts, room, most, fewest)
        if made and letters > room:
            continue
        texts.update(more)
        room -= letters
        made[id(one)] = drawn
    drawn_steps = [one for one in (*steps, *wholes) if id(one) in made]
    fine.steps += [_pieces(found, lanes, one, names, texts) for one in drawn_steps]
    shown = [made[id(one)] for one in drawn_steps]
    left_out = []
    rest = [one for one in steps if id(one) not in made]
    if rest:
        longest = max(one.step.span_ns for one in rest)
        left_out.append(
            f"{len(steps) - len(rest):,} of {len(steps):,} steps are here: the typical one, and those that could save "
            f"most, or in which no kernel computes for longest; the others last {duration(longest)} at most: ncu-bench "
            "timeline lists them"
        )
    if any(id(one) not in made for one in wholes):
        left_out.append(
            "no room for the lanes of the whole recording: ncu-bench report -o FILE.perfetto.json --lanes has them"
        )
    return shown, left_out


def _is_typical(found: Timeline, one: StepOfTimeline) -> bool:
    """True for the typical step of the first GPU."""
    first = found.gpus[0]
    return any(gpu is first and step is first.typical for gpu, step in ((one.gpu, one.step), *one.others))


def _fitting(
    found: Timeline,
    lanes: LanesOfTimeline,
    shown: StepOfTimeline,
    short: Mapping[str, str],
    texts: Texts,
    room: int,
    most: int,
    fewest: int,
) -> tuple[dict[str, Any], Texts, int]:
    """A step with as many boxes as fit in `room`, but at least `fewest`; its new texts, and its size in characters."""
    while True:
        known = dict(texts)
        drawn = _step(found, lanes, shown, short, known, most)
        new = dict(list(known.items())[len(texts) :])
        letters = len(embedded([drawn, list(new)]))
        if letters <= room or most <= fewest:
            return drawn, new, letters
        most //= 2


def _step(
    found: Timeline, lanes: LanesOfTimeline, shown: StepOfTimeline, short: Mapping[str, str], texts: Texts, most: int
) -> dict[str, Any]:
    """A step with at most `most` boxes."""
    start, end = shown.window
    gpus, hosts, path = lanes.gpus(shown), lanes.hosts(shown), lanes.path(shown)
    pieces = [lane.pieces for lane in path]
    pieces += [lane.pieces for host in hosts for lane in host.lanes]
    pieces += [lane.pieces for gpu in gpus for lane in gpu.lanes]
    resolution = resolution_of(pieces, end - start, most)
    names = [(short[name], name) for name in found.activity.operations.names]
    return {
        "name": _cut(shown.step.name),
        "gpu": shown.gpu.title,
        "bound": shown.step.verdict.bound or "not decided",
        "start_ns": start - found.origin_ns,
        "span_ns": end - start,
        "saving_ns": shown.step.verdict.saving_ns,
        "verdicts": _verdicts(shown),
        "numbers": _numbers(found, shown),
        "longest": _longest(gpus[0].longest, start, short),
        "path": [_lane(lane, resolution, names.__getitem__, texts) for lane in path],
        "hosts": [_host(thread, resolution, texts) for thread in hosts],
        "gpus": [_gpu(of_gpu, shown.step.name, resolution, names, texts) for of_gpu in gpus],
        "resolution_ns": resolution,
        "left_out": _gpus_left_out(found, gpus),
    }


def _pieces(
    found: Timeline, lanes: LanesOfTimeline, shown: StepOfTimeline, short: Mapping[str, str], texts: Texts
) -> list[tuple[LanePieces, TextOf]]:
    """The pieces of a step's lanes in the page's order; none for lanes that are never merged."""
    names = [(short[name], name) for name in found.activity.operations.names]
    path = [(lane.pieces, _text_of(names.__getitem__, texts)) for lane in lanes.path(shown)]
    hosts = [(lane.pieces, _text_of(_twice(lane.names), texts)) for host in lanes.hosts(shown) for lane in host.lanes]
    on_gpus = [
        (NO_PIECES if lane.title == LONGEST_GAPS else lane.pieces, _text_of(names.__getitem__, texts))
        for gpu in lanes.gpus(shown)
        for lane in gpu.lanes
    ]
    return [*path, *hosts, *on_gpus]


def _gpus_left_out(found: Timeline, gpus: Sequence[LanesOfGpu]) -> str | None:
    rest = len(found.gpus) - len(gpus)
    return f"{counted(rest, 'more GPU has', 'more GPUs have')} no lanes here" if rest else None


def _verdicts(shown: StepOfTimeline) -> list[dict[str, Any]]:
    """The verdict of each GPU that ran the step, with its evidence and all causes of its gaps."""
    found = []
    for gpu, step in ((shown.gpu, shown.step), *shown.others):
        first = headline(gpu)
        heading, text = (first.heading, first.text) if step is first.step else verdict_words(gpu, step)
        evidence = [*(first.evidence if step is first.step else step.verdict.evidence), *_idle(step)]
        found.append({"heading": heading, "text": text, "evidence": [_cut(one) for one in evidence]})
    return found


def _idle(step: TimelineStep) -> list[str]:
    """The sentence on all causes of a step's gaps; [] if it has none."""
    causes = sorted(step.causes.items(), key=lambda one: -one[1])
    said = ", ".join(f"{cause} {duration(time)}" for cause, time in causes)
    return [f"idle {duration(step.idle_ns)} in {counted(step.gaps, 'gap', 'gaps')}: {said}"] if said else []


def _numbers(found: Timeline, shown: StepOfTimeline) -> dict[str, Any]:
    """The step's rows of `timeline --part steps`, of each GPU that ran it."""
    columns = PARTS_OF_TIMELINE["steps"].columns
    if len({gpu.device for gpu in found.gpus}) < len(found.gpus):
        columns = (PROCESS, *columns)
    of_gpus = [(shown.gpu, shown.step), *shown.others]
    rows = [step_row(found, gpu, step, whole=step is gpu.whole) for gpu, step in of_gpus]
    return table_of(columns, [{**row, "name": _cut(row["name"])} for row in rows])


def _longest(longest: Sequence[LongGap], start: int, short: Mapping[str, str]) -> dict[str, Any]:
    """The longest gaps of a step in the columns of `timeline --part longest`, times from the step's start."""
    columns = [
        one._replace(spare=1) if one.name == "start_ns" else one  # in narrow windows the cause matters more
        for one in PARTS_OF_TIMELINE["longest"].columns
        if one.name != "gpu"
    ]
    columns.append(column("next_operation_shown"))
    rows = [
        {**asdict(gap), "start_ns": gap.start_ns - start, NEXT + SHOWN: short.get(gap.next_operation or "")}
        for gap in longest
    ]
    return table_of(columns, [{name: _cut(value) for name, value in row.items()} for row in rows])


def _gpu(
    of_gpu: LanesOfGpu, step: str, resolution: int, names: Sequence[tuple[str, str]], texts: Texts
) -> dict[str, Any]:
    hosts = [_host_was_in(gap, step) for gap in of_gpu.longest]

    def of_gap(rank: int) -> tuple[str, str]:
        return hosts[rank], hosts[rank]

    lanes = []
    for lane in of_gpu.lanes:
        if lane.title == LONGEST_GAPS:  # also listed in the table of longest gaps
            lanes.append({**_lane(lane, 0, of_gap, texts), "ranks": lane.pieces.name.tolist()})
        else:
            lanes.append(_lane(lane, resolution, names.__getitem__, texts))
    more = of_gpu.more_streams
    left_out = f"{counted(more, 'more stream is', 'more streams are')} left out" if more else None
    return {"title": gpu_title(of_gpu.gpu), "lanes": lanes, "left_out": left_out}


def _host(thread: LanesOfThread, resolution: int, texts: Texts) -> dict[str, Any]:
    lanes = [_lane(lane, resolution, _twice(lane.names), texts) for lane in thread.lanes]
    return {"title": host_title(thread), "lanes": lanes, "left_out": thread.left_out}


def _twice(names: Sequence[str]) -> Callable[[int], tuple[str, str]]:
    """Short and longer form of names of ranges, which are equal."""
    return lambda number: (names[number], names[number])


def host_title(thread: LanesOfThread) -> str:
    """A thread's title among others; nsys puts machine and process before a thread's number."""
    process, number = thread.owner
    own = number & 0xFFFFFF if number >= 1 << 24 else number
    return f"thread {own}" if process in (own, MISSING) else f"thread {own} of process {process}"


def gpu_title(gpu: GpuTimeline) -> str:
    """A GPU's title among others: its number, process and name."""
    of_process = "" if gpu.process is None else f" of process {gpu.process}"
    return f"{gpu.title}{of_process}{f': {gpu.name}' if gpu.name else ''}"


def _lane(
    lane: StepLane | HostLane, resolution: int, name_of: Callable[[int], tuple[str, str]], texts: Texts
) -> dict[str, Any]:
    text_of = _text_of(name_of, texts)
    drawn = lane.boxes if isinstance(lane, StepLane) and lane.boxes else boxes_of(lane.pieces, resolution)
    boxes = [_box(box, text_of) for box in drawn]
    return {"title": lane.title, "total_ns": lane.total, "boxes": boxes}


def _text_of(name_of: Callable[[int], tuple[str, str]], texts: Texts) -> TextOf:
    """A function from a piece's name to its index in `texts`, which adds names on first use."""

    def text_of(number: int) -> int:
        if number == NO_NAME:
            return NO_NAME
        title, name = name_of(number)
        return texts.setdefault((_cut(title, LONGEST_TITLE), _cut(name)), len(texts))

    return text_of


def _host_was_in(gap: LongGap, step: str) -> str:
    """The host's activity in a gap: a range within the step, the call that ended it if it took half of it, or its
    cause.

    If neither range nor call is known, the call that waited when the gap began shows what preceded it. Host activity
    that is no cause is not named.
    """
    if gap.cause in (QUEUED, DEPENDENCY, UNKNOWN):
        return gap.cause
    if gap.host_range is not None and gap.host_range != step:
        return gap.host_range
    if gap.call is not None and gap.call_ns is not None and gap.late_ns is not None:
        within = min(gap.late_ns + gap.call_ns, gap.duration_ns) - max(gap.late_ns, 0)
        if 2 * within >= gap.duration_ns:
            return gap.call
    return f"{gap.cause}, after {gap.after_wait}" if gap.after_wait else gap.cause


def _box(box: LaneBox, text_of: Callable[[int], int]) -> list[int]:
    """[start, length, kind, text] of one piece, [start, length, pieces, kind, ns, kind, ns ...] of merged ones.

    If a part of a single piece ran below others: [start, length, 1, kind, ns, text].
    """
    length = box.end - box.start
    if box.name is not None and list(box.times.values()) == [length]:
        return [box.start, length, *box.times, text_of(box.name)]
    times = [value for pair in box.times.items() for value in pair]
    return [box.start, length, box.count, *times, *([] if box.name is None else [text_of(box.name)])]


def _cut(value: Any, most: int = LONGEST_NAME) -> Any:
    """A text with at most `most` characters, cut in the middle; other values unchanged."""
    return fitted_names([value], most)[value] if isinstance(value, str) and len(value) > most else value
