"""ncu-bench timeline --part samples: activity that a profiler sampled, over time, by NVTX range or by kernel."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any

import click
from ncu_launch.errors import NcuBenchError
from ncu_parsers.parse.file_kinds import kind_of
from ncu_parsers.parse.sampled_timeline import SampledTimeline, read_sampled_timeline
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity.samples import rate_text, title_of_sampled

from ncu_tools.cli.options import MACHINE_FORMATS, format_option, progress, show
from ncu_tools.kernels.source.spread.sampled_bytes import bytes_in
from ncu_tools.kernels.source.spread.sampled_gpus import BY_KERNEL, groups, metrics_over_time
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.table import KERNEL, Column, Table

COLLECT = "ncu-bench profile --tool nsys --gpu-metrics PROGRAM, or nsys profile --gpu-metrics-devices=all PROGRAM"
COLLECT_WITH_TORCH = (
    "torch.profiler.profile(activities=[{ProfilerActivity.CUDA: torch.profiler.ProfilerActivityConfig(profiler_configs="
    "[torch.profiler.PerformanceMetricsConfig(metric_names=[...])])}]), of a PyTorch that has these classes"
)
OVER_TIME = columns("gpu title sparkline sampled.mean~0 sampled.peak~0 samples~1")
OF_SEVERAL_UNITS = columns("gpu title sparkline mean~0 peak~0 value.unit~1 samples~1")
MACHINE_READABLE = columns("metric duration_ns")
SERIES = columns("times_ns values")
OF_GROUPS = columns("gpu~2 operations~4 busy_ns~0 sampled_ns~3 samples~1")
OF_KERNELS = columns("sampled_bytes_per_s~2")
TORCH = "kineto"
"""The origin of timelines of PyTorch's profiler."""
GROUPS = {"nvtx": "range", "name": "kernel"}
WHOLE_GPU = "sampled values are for the whole GPU, never counts of a kernel: they include all that ran then"
PIECES = (
    "means are over pieces of time of at least five samples in which nothing else ran for more than a tenth; operations"
    " less than a sample apart are one piece"
)


@click.command()
@click.argument("run")
@click.option("--by", type=click.Choice(tuple(GROUPS)), help="A row per NVTX range, or per kernel.")
@format_option
def command(run: str, by: str | None, output_format: str) -> None:
    """Show GPU metrics that were sampled over a recording, or what the GPU did while a range or kernel ran.

    RUN is a recording of nsys or of PyTorch's profiler, or a run folder with one. A row is a metric over the recording,
    its bars go from 0 to its peak; with --by it is a range or kernel with the mean of each metric.

    \b
    Example:
      ncu-bench timeline recording.sqlite --part samples
      ncu-bench timeline recording.sqlite --part samples --by nvtx
    """
    from ncu_tools.report.head import head_of
    from ncu_tools.timeline.load_activity import sampled_timeline_in

    source = sampled_timeline_in(run)
    if source is None:
        raise NcuBenchError(
            f"{run} is no recording.",
            "GPU metrics over time are in recordings of nsys and of PyTorch's profiler.",
            f"Of a kernel that ncu sampled: ncu-bench kernel {shlex.quote(run)} --part samples",
        )
    with progress("Reading") as reading:
        reading(source)
        table = sampled_table(source, output_format, by)
    show(table, output_format, head=head_of([source.path]))


def sampled_table(source: Source, output_format: str, by: str | None) -> Table:
    """A timeline's samples over time, or `by` a key of `GROUPS`. Raises `NcuBenchError` if it has none."""
    timeline = read_sampled_timeline(source)
    if not timeline.activity.gpus and (by is not None or not timeline.activity.environment):
        kind = kind_of(source)
        raise NcuBenchError(
            f"{source.name} holds no sampled GPU metrics.",
            " ".join(f"{note[0].upper()}{note[1:]}." for note in timeline.activity.notes),
            f"Collect them with: {COLLECT_WITH_TORCH if kind and kind.origin == TORCH else COLLECT}",
        )
    return _over_time(timeline, output_format) if by is None else _groups(timeline, output_format, by)


def _over_time(timeline: SampledTimeline, output_format: str) -> Table:
    rows: list[dict[str, Any]] = [asdict(one) for one in metrics_over_time(timeline)]
    more = (*MACHINE_READABLE, *SERIES) if output_format == "json" else MACHINE_READABLE
    shown = OVER_TIME if {row["unit"] for row in rows} <= {"%"} else OF_SEVERAL_UNITS
    return Table("samples", shown, rows, [*_rates(timeline), WHOLE_GPU], more=more)


def _groups(timeline: SampledTimeline, output_format: str, by: str) -> Table:
    found = groups(timeline, by)
    names = dict.fromkeys(name for one in found for name in one.means)
    titles = {name: name if output_format in MACHINE_FORMATS else title_of_sampled(name) for name in names}
    shown = [
        column("group", title=GROUPS[by], kind=KERNEL if by == "name" else "text", wide=True),
        *OF_GROUPS,
        *(OF_KERNELS if by == BY_KERNEL else ()),
        *(Column(name, title, "percent", "%") for name, title in titles.items()),
    ]
    moved = bytes_in(timeline) if by == BY_KERNEL else {}
    rows = [
        {
            **asdict(one),
            **one.means,
            "sampled_bytes_per_s": moved[one.group].bytes_per_s if one.group in moved else None,
        }
        for one in found
    ]
    without = sum(not one.samples for one in found)
    notes = [f"{without} of {len(found)} have no such piece, and so no mean"] if without else []
    return Table("samples", shown, rows, [*_rates(timeline), WHOLE_GPU, PIECES, *notes])


def _rates(timeline: SampledTimeline) -> list[str]:
    found = [
        f"GPU {gpu}: {len(one):,} samples at {rate_text(one.period_ns)}, {one.covered_ns / 1e9:.3g} s"
        + (f", {one.lost_ns / 1e9:.2g} s between them lost" if one.lost_ns > 0 else "")
        for gpu, one in sorted(timeline.activity.gpus.items())
    ]
    return [*found, *timeline.activity.notes]
