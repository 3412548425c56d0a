"""A timeline with the activity that nsys sampled: its operations, and the samples of each GPU."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import pyarrow as pa

from ncu_parsers.launches.nsys.gpu_metrics import SampledActivity, read_samples
from ncu_parsers.launches.nsys.nsys_rep import MAGIC as REPORT_MAGIC
from ncu_parsers.launches.nsys.nsys_rep import exported
from ncu_parsers.launches.nsys.nsys_sqlite import NoGpuWork, read_export
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.nsys.database import MAGIC


@dataclass(frozen=True)
class SampledTimeline:
    """`operations` has the columns of launches; None if the timeline has no GPU operation."""

    activity: SampledActivity
    operations: pa.Table | None


def is_timeline(source: Source) -> bool:
    """Whether a file is an SQLite database or a report of nsys, by its first bytes and name."""
    head = source.head(len(REPORT_MAGIC))
    return head.startswith((MAGIC, REPORT_MAGIC)) or source.name.lower().endswith((".nsys-rep", ".qdrep"))


def read_sampled_timeline(source: Source) -> SampledTimeline:
    """Read one export or report of nsys. Raises `NcuBenchError` as `nsys_sqlite.read_report` and `exported` do."""
    is_export = source.head(len(MAGIC)).startswith(MAGIC)
    opened: AbstractContextManager[Source] = nullcontext(source) if is_export else exported(source)
    with opened as database:
        activity = read_samples(database, source.name)
        try:
            operations = read_export(database, source.name).table
        except NoGpuWork:
            operations = None
    return SampledTimeline(activity, operations)
