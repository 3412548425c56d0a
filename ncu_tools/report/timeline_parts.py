"""The parts of a timeline as tables: one for each name of --part. Times count from the first recorded event."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

from ncu_tools.numbers.number_format import duration
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.table import KERNEL, Column, Table
from ncu_tools.timeline.gaps import CAUSES, DEPENDENCY, QUEUED, UNKNOWN, cause_column
from ncu_tools.timeline.step_energy import StepEnergy
from ncu_tools.timeline.steps import TimelineStep
from ncu_tools.timeline.timeline import GpuTimeline, Timeline

Row = dict[str, Any]

GPU = column("gpu", spare=0)
PROCESS = column("process", spare=9)
DEVICE_NAME = column("device_name", spare=9)
SAMPLED = tuple(one.name for one in fields(StepEnergy))
OTHERS = 2
"""Number of parts of a step named beside its bound."""


@dataclass(frozen=True)
class PartOfTimeline:
    """One part: its heading, the columns for people, further ones for programs, and its rows."""

    heading: str
    columns: tuple[Column, ...]
    more: tuple[Column, ...]
    rows: Callable[[Timeline], Iterator[Row]]

    def table(self, found: Timeline, *, whole: bool) -> Table:
        """The part as a table; `whole` with the columns for programs.

        People see steps before the whole recording, and the process too if it tells rows apart that the GPU does not.
        """
        columns = (*self.columns, *self.more) if whole else self.columns
        numbers = [gpu.device if GPU in columns else None for gpu in found.gpus]
        processes = {(gpu.process, number) for gpu, number in zip(found.gpus, numbers, strict=True)}
        if not whole and len(set(numbers)) < len(processes):
            columns = (PROCESS._replace(spare=0), *columns)
        rows = list(self.rows(found))
        if not whole:
            rows.sort(key=lambda row: bool(row.get("is_whole")))
        return Table("timeline", columns, rows)


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
    """The steps of a GPU by possible saving, largest first; then those bound by kernels; then those undecided."""
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
    """Every cause of gaps of each GPU with its time, and the number of gaps in which it takes most."""
    for gpu in found.gpus:
        main = gpu.gaps.main_causes
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
    GPU,
    *columns(
        "step.name span_ns~0 busy_share~0 compute_ns~0 exposed_communication_ns~3 exposed_copies_ns~2 "
        "idle_ns~0 energy_j~4 power_w~5 shown_bound"
    ),
),
        (
    PROCESS,
    DEVICE_NAME,
    *columns(
        "start_ns~0 is_whole busy_ns~0 communication_ns~0 hidden_communication_ns~0 copies_ns~0 "
        "hidden_copies_ns~0 kernels computing_kernels memsets graphs copies collectives gaps"
    ),
    *columns(" ".join(map(cause_column, CAUSES))),
    *columns("bound why saving_ns~0 readings sampled_s sm_clock_hz temperature_c"),
),
        _steps,
    ),
    "verdicts": PartOfTimeline(
        "What bounds each step, what could save most first",
        (GPU, *columns("step.name shown_bound bound_ns~0 others~1 evidence")),
        (PROCESS, DEVICE_NAME, *columns("is_whole bound saving_ns~0 why")),
        _verdicts,
    ),
    "gaps": PartOfTimeline(
        "Gaps by what the host did",
        (GPU, *columns("cause~0 time_ns~0 share~0 gaps~2 host_range")),
        (PROCESS, DEVICE_NAME),
        _gaps,
    ),
    "longest": PartOfTimeline(
        "The longest gaps",
        (
            GPU,
            *columns("start_ns~0 duration_ns~0 cause~0 host_range late_ns~3 after_wait"),
            column("next_operation", kind=KERNEL, spare=4),
        ),
        (PROCESS, DEVICE_NAME, *columns("cause_ns~0 call call_ns~0 covered")),
        _longest,
    ),
    "copies": PartOfTimeline(
        "Copies",
        (GPU, *columns("direction memory~1 count~4 bytes busy_ns~0 exposed_ns~2 bytes_per_s link_share")),
        (PROCESS, DEVICE_NAME, *columns("source_memory destination_memory")),
        _copies,
    ),
    "collectives": PartOfTimeline(
        "Communication",
        (
    GPU,
    *columns(
        "collective.name count~3 bytes ranks~4 time_ns~0 median_ns~0 longest_ns~1 bus_bytes_per_s outliers~2"
    ),
),
        (PROCESS, DEVICE_NAME, *columns("kernel longest_start_ns~0")),
        _collectives,
    ),
    "waits": PartOfTimeline(
        "API calls in which the host waits, allocates or loads code",
        columns("call host_range count~3 time_ns~0 idle_ns~1 behind_ns~2"),
        (column("kind"), PROCESS),
        _waits,
    ),
    "streams": PartOfTimeline(
        "Streams",
        (GPU, *columns("stream kernels~2 copies~2 busy_ns~0 alone_ns~0 in_line_ns~0")),
        (PROCESS, DEVICE_NAME, column("operations")),
        _streams,
    ),
    "launches": PartOfTimeline(
        "Launches of kernels, medians",
        (GPU, *columns("kernels calls call_ns~0 delay_ns~0 kernel_ns~0 shorter")),
        (PROCESS, DEVICE_NAME),
        _launches,
    ),
}  # fmt: skip
"""Every part, in the order in which they are shown."""
COLUMNS = [(*part.columns, *part.more) for part in PARTS_OF_TIMELINE.values()]
"""The columns of every part."""
