"""A timeline's operations together with the GPU activity that its tool sampled."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import pyarrow as pa

from ncu_parsers.parse.file_kinds import FileKind, activity_reader_of, kind_of
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity.samples import SampledActivity


@dataclass(frozen=True)
class SampledTimeline:
    """Sampled GPU activity, and the launch table of `operations`; None if the timeline has no GPU operation."""

    activity: SampledActivity
    operations: pa.Table | None


def is_timeline(source: Source) -> bool:
    """True for a timeline, by its first bytes and name. Raises `NcuBenchError` if it cannot be opened."""
    kind = kind_of(source)
    return kind is not None and bool(kind.origin)


def read_sampled_timeline(source: Source) -> SampledTimeline:
    """Read a timeline and its samples.

    Raises `NcuBenchError` if it cannot be read, `ValueError` if it is no timeline.
    """
    kind = kind_of(source)
    if kind is None or not kind.origin:
        raise ValueError(f"{source.name} is no timeline")
    return _viewed(source, kind) if kind.is_viewed else _of_nsys(source)


def _viewed(source: Source, kind: FileKind) -> SampledTimeline:
    from ncu_parsers.launches.launch_view import report_of

    read = activity_reader_of(kind, launches=True)
    found = read(source)
    try:
        table = report_of(source, lambda other: found if other is source else read(other), kind.origin).table
    except NotAReport:
        table = None
    return SampledTimeline(found.sampled, table if len(found.operations) else None)


def _of_nsys(source: Source) -> SampledTimeline:
    from ncu_parsers.launches.nsys.nsys_rep import exported
    from ncu_parsers.launches.nsys.nsys_sqlite import NoGpuWork, read_export
    from ncu_parsers.timelines.nsys.database import MAGIC
    from ncu_parsers.timelines.nsys.gpu_metrics import read_samples

    is_export = source.head(len(MAGIC)).startswith(MAGIC)
    opened: AbstractContextManager[Source] = nullcontext(source) if is_export else exported(source)
    with opened as database:
        activity = read_samples(database, source.name)
        try:
            operations = read_export(database, source.name).table
        except NoGpuWork:
            operations = None
    return SampledTimeline(activity, operations)
