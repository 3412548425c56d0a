"""Read binary reports of ncu: .ncu-rep, .ncu-repz (compressed), and .nsight-cuprof-report of 2018 to 2020.

Generators turn blocks into results, results into launches as columns, and columns into tables, as for big CSV reports.
A report that may share launches with another file is read as launches, each with its metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import cache

import numpy as np
import pyarrow as pa
from ncu_launch.counters import metrics as known
from ncu_launch.errors import NcuBenchError

from ncu_parsers.derived.opcode_lists import BY_INSTRUCTION, THREADS_BY_FULL_NAME, WARPS_BY_FULL_NAME
from ncu_parsers.ncu_rep.blocks import Blocks, blocks_of, opened
from ncu_parsers.ncu_rep.launch_values import (
    WIDEST,
    LaunchBatch,
    MetricValues,
    ReportedLaunch,
    Shape,
    SummedByOpcode,
    launch_batches,
)
from ncu_parsers.ncu_rep.results import Lost
from ncu_parsers.report_data.cell_text import NumberFormat, whole
from ncu_parsers.report_data.nvtx_path import place
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Launch, Metric, Report, StreamedReport
from ncu_parsers.schema.tables import Rule
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming.cells.rows import Codes, Texts
from ncu_parsers.streaming.launch_columns import ATTRIBUTES, LaunchColumns, MetricColumn, Rules
from ncu_parsers.streaming.streaming_reader import write_launches

DIALECT = "binary report"
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_PRINTED = NumberFormat(".")


def read_report(source: Source) -> Report:
    """Read a binary report as launches with every metric, rule results, NVTX ranges and opcode counts.

    Raises `NcuBenchError` if the file is damaged before its first launch or contains none.
    """
    report = Report(source.name)
    with _reading(source, report) as columns:
        report.launches = [launch for some in columns for launch in launches_from(some)]
    return report


def stream_report(source: Source, write: Callable[[pa.Table], None]) -> StreamedReport:
    """Read a binary report, and pass its launches to `write` in consecutive tables.

    Raises as `read_report`, and `NotStreamed` for a report that must be read as launches.
    """
    report = StreamedReport(source.name)
    with _reading(source, report) as columns:
        write_launches(columns, report, write)
    return report


def read_with() -> str:
    """The installed disassemblers, used for counts per instruction in reports without counts per opcode; "" if none."""
    from ncu_parsers.ncu_rep.sass.kernel_text import installed

    return installed()


@contextmanager
def _reading(source: Source, report: Report) -> Iterator[Iterator[LaunchColumns]]:
    """The launches of a report; losses are added to its notes at the end.

    Iterating raises `NotAReport`, or `memory.TooBig`, if no launch can be read.
    """
    lost = Lost()
    report.dialects = [DIALECT]
    with opened(source) as stream:
        blocks = blocks_of(stream, source.name)
        report.tool_version, report.session = blocks.tool_version, blocks.session
        batches = launch_batches(stream, blocks, lost, source.name, _summed_by_opcode())
        yield _or_refused(map(columns_of, batches), source, blocks, lost)
    notes = lost.notes()
    if blocks.is_cut:
        read = report.rows
        notes.insert(
            0, f"the file ends in damage: {read} complete launches were read, and how many are missing is unknown"
        )
    report.notes[:0] = notes  # before the notes on tables, whether or not tables exist yet


def _or_refused(
    columns: Iterator[LaunchColumns], source: Source, blocks: Blocks, lost: Lost
) -> Iterator[LaunchColumns]:
    first = next(columns, None)
    if first is None:
        if lost.too_long:
            raise memory.TooBig(
                f"{source.name} holds only launches that take more than the memory limit allows.",
                f"Each takes more than {memory.longest_message() // 10**6} MB in the file.",
                f"Give more memory with {memory.OPTION}.",
            )
        raise _empty(source, is_damaged=blocks.is_cut or lost.results > 0)
    yield first
    yield from columns


def _empty(source: Source, *, is_damaged: bool) -> NcuBenchError:
    if is_damaged:
        return NotAReport(
            f"{source.name} is a binary report of ncu that could not be read: it is damaged before its first launch.",
            "It was cut off while it was written or copied, or its layout is newer than this release knows.",
            "Copy it again, or profile again.",
        )
    return NotAReport(
        f"{source.name} is a binary report of ncu and holds no launch.",
        "The run was stopped before its first kernel, or no kernel passed its filters.",
        "Profile again.",
    )


# ------------------------------------------------------------------------------------------- columns from launches


@cache
def _summed_by_opcode() -> SummedByOpcode:
    """Which counts per instruction to sum, unless other metrics give all counters of FLOPs and tensor operations."""
    counters = (counter for precision in known.CUDA_CORE_PRECISIONS for counter in known.flop_weights(precision))
    unless = (
        *((THREADS_BY_FULL_NAME, *(f"{prefix}{one}_pred_on" for prefix in known.SASS_PREFIXES)) for one in counters),
        (WARPS_BY_FULL_NAME, known.TENSOR_PREFIX),
    )
    return SummedByOpcode(frozenset(BY_INSTRUCTION), unless)


def columns_of(batch: LaunchBatch) -> LaunchColumns:
    """Launches as columns, in the form that CSV reports use."""
    launches, metrics = batch.launches, {name: _column(values) for name, values in batch.metrics.items()}
    rows, has_process = len(launches), launches[0].process.number is not None
    return LaunchColumns(
        rows,
        np.array([launch.number for launch in launches], np.int64),
        np.array([launch.process.number for launch in launches], np.int64) if has_process else None,
        {title: _texts(cells) for title, cells in _identity_cells(launches, metrics).items()},
        {
            "Grid Size": _shapes(launches, [launch.grid for launch in launches], metrics, "launch__grid_dim_"),
            "Block Size": _shapes(launches, [launch.block for launch in launches], metrics, "launch__block_dim_"),
        },
        metrics,
        np.ones(rows, np.int64),
        np.zeros(rows, np.int64),
        _rules([launch.rules for launch in launches]),
        [launch.ranges for launch in launches],
    )


def _column(found: MetricValues) -> MetricColumn:
    """A metric as a column. Texts that are numbers are converted."""
    column = MetricColumn(found.numbers, found.unit, instances=found.by_opcode)
    for row, text in found.texts.items():
        number = _PRINTED.parse(text)
        if number is not None:
            column.values[row] = number.value
        elif np.isnan(column.values[row]):
            column.words[row] = text
    return column


def _identity_cells(launches: Sequence[ReportedLaunch], metrics: dict[str, MetricColumn]) -> dict[str, list[str]]:
    """Identity cells by the titles of ncu's pages, "" where unknown. Metrics take precedence over other fields."""
    return {
        "Kernel Name": [launch.name for launch in launches],
        "Device": _whole_texts(metrics, "launch__device_id", [None] * len(launches)),
        "Context": _whole_texts(metrics, "launch__context_id", [launch.context for launch in launches]),
        "Stream": _streams(launches, metrics),
        "Process Name": [launch.process.name or "" for launch in launches],
        "Host Name": [launch.process.host or "" for launch in launches],
        "Kernel Time": [_printed_time(launch.created) for launch in launches],
    }


def _whole_texts(metrics: dict[str, MetricColumn], name: str, others: Sequence[int | None]) -> list[str]:
    column = metrics.get(name)
    values = [None] * len(others) if column is None else [None if v != v else int(v) for v in column.values.tolist()]
    known = (other if value is None else value for value, other in zip(values, others, strict=True))
    return ["" if number is None else str(number) for number in known]


def _streams(launches: Sequence[ReportedLaunch], metrics: dict[str, MetricColumn]) -> list[str]:
    """The stream of each launch; of a range or graph from its own field alone, as its kernels may be on several."""
    texts = _whole_texts(metrics, "launch__stream_id", [launch.stream for launch in launches])
    own = ["" if launch.stream is None else str(launch.stream) for launch in launches]
    return [
        text if launch.is_kernel else own[row] for row, (launch, text) in enumerate(zip(launches, texts, strict=True))
    ]


def _printed_time(created: int | None) -> str:
    """The time of profiling in UTC, formatted as by ncu up to 2022.3, in any time zone and language."""
    try:
        moment = None if created is None else datetime.fromtimestamp(created, timezone.utc)
    except (OverflowError, OSError, ValueError):
        moment = None
    return "" if moment is None else f"{moment.year}-{MONTHS[moment.month - 1]}-{moment:%d %H:%M:%S}"


def _shapes(
    launches: Sequence[ReportedLaunch], shapes: Sequence[Shape], metrics: dict[str, MetricColumn], prefix: str
) -> Codes:
    """Shapes (int32, three per launch) from the metrics of their dimensions, else from the results."""
    result = np.array(shapes, np.int64)
    columns = [metrics.get(prefix + axis) for axis in "xyz"]
    sides = np.stack([np.full(len(shapes), np.nan) if one is None else one.values for one in columns], axis=1)
    are_kernels = np.array([launch.is_kernel for launch in launches], bool)
    is_known = are_kernels & ((sides >= 0) & (sides < WIDEST)).all(axis=1)
    result[is_known] = sides[is_known].astype(np.int64)
    return result.astype(np.int32)


def _texts(cells: Sequence[str]) -> Texts:
    places: dict[str, int] = {}
    codes = [places.setdefault(cell, len(places)) for cell in cells]
    return Texts(np.array(codes, np.int32), list(places))


def _rules(of_launches: Sequence[Sequence[Rule]]) -> Rules | None:
    rules = [rule for some in of_launches for rule in some]
    if not rules:
        return None
    fields = zip(Rule._fields, zip(*rules, strict=True), strict=True)
    return Rules(
        {name: _texts(texts) for name, texts in fields}, np.array([len(some) for some in of_launches], np.int64)
    )


# ------------------------------------------------------------------------------------------- launches from columns


def launches_from(columns: LaunchColumns) -> list[Launch]:
    """Launches with metrics, from launches as columns, for reports that may share launches with others."""
    launches = [Launch(name) for name in _cells(columns, "Kernel Name")]
    shapes = {title: _triples(columns, title) for title in ("Grid Size", "Block Size")}
    devices, contexts, streams = (_cells(columns, title) for title in ("Device", "Context", "Stream"))
    processes = [None] * columns.rows if columns.processes is None else columns.processes.tolist()
    ranges = columns.ranges or [None] * columns.rows
    failed = columns.failed.tolist()
    for row, launch in enumerate(launches):
        launch.launch_id, launch.process_id = int(columns.ids[row]), processes[row]
        launch.device_id, launch.context = whole(devices[row], 31), whole(contexts[row])
        launch.stream = streams[row] or None
        launch.grid, launch.block, launch.failed = shapes["Grid Size"][row], shapes["Block Size"][row], failed[row]
        if (around := ranges[row]) is not None:
            place(launch, list(around))
    for title in ATTRIBUTES:
        for launch, text in zip(launches, _cells(columns, title), strict=True):
            if text:
                launch.attributes[title] = text
    _add_metrics(launches, columns)
    _add_rules(launches, columns)
    return launches


def _cells(columns: LaunchColumns, title: str) -> list[str]:
    texts = columns.cells.get(title)
    return [""] * columns.rows if texts is None else [texts.words[code] for code in texts.codes.tolist()]


def _triples(columns: LaunchColumns, title: str) -> list[tuple[int, int, int] | None]:
    return [None if x < 0 else (x, y, z) for x, y, z in columns.shapes[title].tolist()]


def _add_metrics(launches: list[Launch], columns: LaunchColumns) -> None:
    for name, column in columns.metrics.items():
        rows = np.flatnonzero(~np.isnan(column.values))
        for row, value in zip(rows.tolist(), column.values[rows].tolist(), strict=True):
            launches[row].metrics[name] = Metric(value, 0.0, column.unit)
        for row, word in column.words.items():
            launches[row].metrics[name] = Metric(word, 0.0, column.unit)
        for row, listed in column.instances.items():
            launches[row].instances[name] = listed


def _add_rules(launches: list[Launch], columns: LaunchColumns) -> None:
    if columns.rules is None:
        return
    fields = [[texts.words[code] for code in texts.codes.tolist()] for texts in columns.rules.fields.values()]
    rules = map(Rule._make, zip(*fields, strict=True))
    for launch, count in zip(launches, columns.rules.counts.tolist(), strict=True):
        launch.rules = [next(rules) for _ in range(count)]
