"""The parts of a timeline as tables: one for each name of --part. Times count from the first thing recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

from ncu_tools.numbers.number_format import duration
from ncu_tools.report.table import Column, Table
from ncu_tools.timeline.gaps import CAUSES, DEPENDENCY, QUEUED, UNKNOWN, cause_column
from ncu_tools.timeline.step_energy import StepEnergy
from ncu_tools.timeline.steps import TimelineStep
from ncu_tools.timeline.timeline import GpuTimeline, Timeline

Row = dict[str, Any]

GPU = Column("gpu", "GPU", "count", spare=0)
PROCESS = Column("process", "process", "text", spare=9)
DEVICE_NAME = Column("device_name", "device", "text", spare=9)
SAMPLED = tuple(one.name for one in fields(StepEnergy))
OTHERS = 2
"""So many parts of a step beside the one that bounds it are named."""


@dataclass(frozen=True)
class PartOfTimeline:
    """One part: its heading, the columns that people see, those for programs besides, and its rows."""

    heading: str
    columns: tuple[Column, ...]
    more: tuple[Column, ...]
    rows: Callable[[Timeline], Iterator[Row]]

    def table(self, found: Timeline, *, whole: bool) -> Table:
        """The part as a table; `whole` with the columns for programs.

        People see steps before the whole recording, and the process too where processes number their GPUs alike.
        """
        columns = (*self.columns, *self.more) if whole else self.columns
        if not whole and GPU in columns and len({gpu.device for gpu in found.gpus}) < len(found.gpus):
            columns = (PROCESS._replace(spare=0), *columns)
        rows = list(self.rows(found))
        if not whole:
            rows.sort(key=lambda row: bool(row.get("is_whole")))
        return Table("timeline", columns, rows)


def _time(name: str, title: str, spare: int | None = 0) -> Column:
    return Column(name, title, "time", "ns", spare=spare)


def _of_gpu(gpu: GpuTimeline) -> Row:
    return {"gpu": gpu.device, "process": gpu.process, "device_name": gpu.name}


def step_row(found: Timeline, gpu: GpuTimeline, step: TimelineStep, *, whole: bool) -> Row:
    """One step as a row; shares are of its span."""
    verdict = step.verdict
    apart = ("verdict", "causes", "energy", "start_ns")
    plain = {name: value for name, value in asdict(step).items() if name not in apart}
    sampled = asdict(step.energy) if step.energy is not None else dict.fromkeys(SAMPLED)
    return {
        **sampled,
        **_of_gpu(gpu), **plain, "start_ns": step.start_ns - found.origin_ns, "is_whole": whole,
        "busy_share": step.busy_ns / step.span_ns if step.span_ns else None,
        "hidden_communication_ns": step.communication_ns - step.exposed_communication_ns,
        "hidden_copies_ns": step.copies_ns - step.exposed_copies_ns,
        **{cause_column(cause): step.causes.get(cause, 0) for cause in CAUSES},
        "bound": verdict.bound, "shown_bound": verdict.bound or "not decided", "why": verdict.why,
        "saving_ns": verdict.saving_ns,
    }  # fmt: skip


def _steps(found: Timeline) -> Iterator[Row]:
    for gpu in found.gpus:
        yield step_row(found, gpu, gpu.whole, whole=True)
    for gpu in found.gpus:
        for step in gpu.steps:
            yield step_row(found, gpu, step, whole=False)


def by_cost(gpu: GpuTimeline) -> list[TimelineStep]:
    """The steps of a GPU by what they could save, most first; then by their kernels' time, then without a verdict."""
    return sorted(
        gpu.steps,
        key=lambda step: (step.verdict.bound is None, step.verdict.saving_ns is None, -step.verdict.bound_ns),
    )


def _verdicts(found: Timeline) -> Iterator[Row]:
    """The verdict on each GPU's whole time, then on its steps."""
    for gpu in found.gpus:
        for step in (gpu.whole, *by_cost(gpu)):
            verdict = step.verdict
            others = [part for part in verdict.parts if part.kind != verdict.bound]
            yield {
                **_of_gpu(gpu), "name": step.name, "is_whole": step is gpu.whole, "bound": verdict.bound,
                "shown_bound": verdict.bound or "not decided", "why": verdict.why, "saving_ns": verdict.saving_ns,
                "bound_ns": verdict.bound_ns if verdict.bound else None,
                "others": ", ".join(f"{part.kind} {duration(part.time_ns)}" for part in others[:OTHERS]),
                "evidence": "; ".join(verdict.evidence) if verdict.evidence else verdict.why,
            }  # fmt: skip


def _gaps(found: Timeline) -> Iterator[Row]:
    """Every cause of gaps of each GPU with its time, and in how many gaps it takes most."""
    for gpu in found.gpus:
        main = gpu.gaps.by_cause.argmax(axis=0) if len(gpu.gaps) else gpu.gaps.by_cause.sum(axis=0)
        rows = []
        for number, cause in enumerate(CAUSES):
            if time := gpu.whole.causes.get(cause, 0):
                by_host = cause not in (QUEUED, DEPENDENCY, UNKNOWN)
                longest = next((gap for gap in gpu.longest if gap.cause == cause and by_host), None)
                rows.append({
                    **_of_gpu(gpu), "cause": cause, "time_ns": time, "share": time / gpu.whole.span_ns,
                    "gaps": int((main == number).sum()),
                    "host_range": longest.host_range if longest else None,
                })  # fmt: skip
        yield from sorted(rows, key=lambda row: -row["time_ns"])


def _longest(found: Timeline) -> Iterator[Row]:
    for gpu in found.gpus:
        for gap in gpu.longest:
            yield {**_of_gpu(gpu), **asdict(gap), "start_ns": gap.start_ns - found.origin_ns}


def _copies(found: Timeline) -> Iterator[Row]:
    for gpu in found.gpus:
        for one in gpu.copies:
            memory = f"{one.source_memory} to {one.destination_memory}"
            yield {**_of_gpu(gpu), **asdict(one), "memory": memory}


def _collectives(found: Timeline) -> Iterator[Row]:
    for gpu in found.gpus:
        for one in gpu.collectives:
            yield {**_of_gpu(gpu), **asdict(one), "longest_start_ns": one.longest_start_ns - found.origin_ns}


def _waits(found: Timeline) -> Iterator[Row]:
    for one in found.waits:
        yield {**asdict(one), "process": one.process}


def _streams(found: Timeline) -> Iterator[Row]:
    for gpu in found.gpus:
        for one in gpu.streams:
            yield {**_of_gpu(gpu), **asdict(one)}


def _launches(found: Timeline) -> Iterator[Row]:
    for gpu in found.gpus:
        if gpu.launches is not None:
            yield {**_of_gpu(gpu), **asdict(gpu.launches)}


PARTS_OF_TIMELINE = {
    "steps": PartOfTimeline(
        "Where the time goes: gaps and what no kernel hides add up to the span",
        (
            GPU, Column("name", "step", wide=True), _time("span_ns", "span"),
            Column("busy_share", "busy", "fraction", spare=0), _time("compute_ns", "kernels"),
            _time("exposed_communication_ns", "comm.", 3), _time("exposed_copies_ns", "copies", 2),
            _time("idle_ns", "idle"), Column("energy_j", "~energy", "joule", "J", spare=4),
            Column("power_w", "~power", "watt", "W", spare=5), Column("shown_bound", "bound by"),
        ),
        (
            PROCESS, DEVICE_NAME, _time("start_ns", "start"), Column("is_whole", "whole"), _time("busy_ns", "busy"),
            _time("communication_ns", "communication"), _time("hidden_communication_ns", "hidden communication"),
            _time("copies_ns", "all copies"), _time("hidden_copies_ns", "hidden copies"),
            Column("kernels", "kernels", "count"), Column("computing_kernels", "kernels that compute", "count"),
            Column("memsets", "memsets", "count"), Column("graphs", "graphs", "count"),
            Column("copies", "copies", "count"), Column("collectives", "collectives", "count"),
            Column("gaps", "gaps", "count"),
            *(_time(cause_column(cause), cause) for cause in CAUSES), Column("bound", "bound"), Column("why", "why"),
            _time("saving_ns", "saving"), Column("readings", "readings", "count"),
            Column("sampled_s", "sampled", "number", "s"), Column("sm_clock_hz", "SM clock", "number", "hz"),
            Column("temperature_c", "temperature", "number", "degree Celsius"),
        ),
        _steps,
    ),
    "verdicts": PartOfTimeline(
        "What bounds each step, what could save most first",
        (
            GPU, Column("name", "step", wide=True), Column("shown_bound", "bound by"), _time("bound_ns", "time"),
            Column("others", "then", wide=True, spare=1), Column("evidence", "evidence", prose=True),
        ),
        (
            PROCESS, DEVICE_NAME, Column("is_whole", "whole"), Column("bound", "bound"), _time("saving_ns", "saving"),
            Column("why", "why"),
        ),
        _verdicts,
    ),
    "gaps": PartOfTimeline(
        "Gaps by what the host did",
        (
            GPU, Column("cause", "cause", spare=0), _time("time_ns", "time"),
            Column("share", "share", "fraction", spare=0), Column("gaps", "gaps", "count", spare=2),
            Column("host_range", "longest in", wide=True),
        ),
        (PROCESS, DEVICE_NAME),
        _gaps,
    ),
    "longest": PartOfTimeline(
        "The longest gaps",
        (
            GPU, _time("start_ns", "at"), _time("duration_ns", "gap"), Column("cause", "cause", spare=0),
            Column("host_range", "the host was in", wide=True), _time("late_ns", "call began", 3),
            Column("after_wait", "after", wide=True), Column("next_operation", "next", wide=True, spare=4),
        ),
        (PROCESS, DEVICE_NAME, _time("cause_ns", "of the cause"), Column("call", "call"), _time("call_ns", "call took"),
         Column("covered", "covered", "fraction")),
        _longest,
    ),
    "copies": PartOfTimeline(
        "Copies",
        (
            GPU, Column("direction", "direction"), Column("memory", "memory", spare=1),
            Column("count", "copies", "count", spare=4), Column("bytes", "bytes", "byte", "byte"),
            _time("busy_ns", "time"), _time("exposed_ns", "not hidden", 2),
            Column("bytes_per_s", "rate", "byte/s", "byte/s"), Column("link_share", "of link", "fraction"),
        ),
        (PROCESS, DEVICE_NAME, Column("source_memory", "from"), Column("destination_memory", "to")),
        _copies,
    ),
    "collectives": PartOfTimeline(
        "Communication",
        (
            GPU, Column("name", "collective"), Column("count", "count", "count", spare=3),
            Column("bytes", "bytes", "byte", "byte"), Column("ranks", "ranks", "count", spare=4),
            _time("time_ns", "time"), _time("median_ns", "median"), _time("longest_ns", "longest", 1),
            Column("bus_bytes_per_s", "bus", "byte/s", "byte/s"), Column("outliers", "outliers", "count", spare=2),
        ),
        (PROCESS, DEVICE_NAME, Column("kernel", "kernel"), _time("longest_start_ns", "longest at")),
        _collectives,
    ),
    "waits": PartOfTimeline(
        "API calls in which the host waits, allocates or loads code",
        (
            Column("call", "call"), Column("host_range", "in", wide=True), Column("count", "calls", "count", spare=3),
            _time("time_ns", "time"), _time("idle_ns", "GPU idle", 1), _time("behind_ns", "gaps behind", 2),
        ),
        (Column("kind", "kind"), PROCESS),
        _waits,
    ),
    "streams": PartOfTimeline(
        "Streams",
        (
            GPU, Column("stream", "stream"), Column("kernels", "kernels", "count", spare=2),
            Column("copies", "copies", "count", spare=2), _time("busy_ns", "busy"), _time("alone_ns", "alone"),
            _time("in_line_ns", "in line"),
        ),
        (PROCESS, DEVICE_NAME, Column("operations", "operations", "count")),
        _streams,
    ),
    "launches": PartOfTimeline(
        "Launches of kernels, medians",
        (
            GPU, Column("kernels", "kernels", "count"), Column("calls", "API calls", "count"), _time("call_ns", "call"),
            _time("delay_ns", "to start"), _time("kernel_ns", "kernel"),
            Column("shorter", "longer than kernels", "fraction"),
        ),
        (PROCESS, DEVICE_NAME),
        _launches,
    ),
}  # fmt: skip
"""Every part, in the order in which they are shown."""
