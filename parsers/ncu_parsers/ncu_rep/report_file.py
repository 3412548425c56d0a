"""Read binary reports of ncu: .ncu-rep, .ncu-repz (compressed), and .nsight-cuprof-report of 2018 to 2020.

Blocks of the file become results, these launches as columns, these tables: a chain of generators as for big CSV
reports. A report that may share launches with another file is read as launches, each with its metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from ncu_launch.errors import NcuBenchError

from ncu_parsers.ncu_rep.blocks import Blocks, blocks_of, opened
from ncu_parsers.ncu_rep.launch_batches import launches_of
from ncu_parsers.ncu_rep.results import Lost
from ncu_parsers.report_data.cell_text import whole
from ncu_parsers.report_data.nvtx_path import place
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Launch, Metric, Report, Rule, StreamedReport
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import Source
from ncu_parsers.streaming.launch_columns import ATTRIBUTES, LaunchColumns
from ncu_parsers.streaming.streaming_reader import write_launches

DIALECT = "binary report"


def read_report(source: Source) -> Report:
    """Read a binary report as launches with every metric, rule results, NVTX ranges and opcode counts.

    Raises `NcuBenchError` if the file is damaged before its first launch or contains none.
    """
    report = Report(source.name)
    with _reading(source, report) as columns:
        report.launches = [launch for some in columns for launch in launches_from(some)]
    return report


def stream_report(source: Source, write: Callable[[pa.Table], None]) -> StreamedReport:
    """Read a binary report, and give its launches to `write` in tables that follow each other.

    Raises what `read_report` does, and `NotStreamed` for a report that has to be read as launches.
    """
    report = StreamedReport(source.name)
    with _reading(source, report) as columns:
        write_launches(columns, report, write)
    return report


def read_with() -> str:
    """What gives the text of instructions, where a report counts by these and not by opcode."""
    from ncu_parsers.ncu.sass.kernel_text import installed

    return installed()


@contextmanager
def _reading(source: Source, report: Report) -> Iterator[Iterator[LaunchColumns]]:
    """The launches of a report; what is lost is noted in it at the end. Raises `NotAReport` if there is no launch."""
    lost = Lost()
    report.dialects = [DIALECT]
    with opened(source) as stream:
        blocks = blocks_of(stream, source.name)
        report.tool_version, report.session = blocks.tool_version, blocks.session
        yield _or_refused(launches_of(stream, blocks, lost, source.name), source, blocks, lost)
    notes = lost.notes()
    if blocks.is_cut:
        read = report.rows
        notes.insert(
            0, f"the file ends in damage: {read} complete launches were read, and how many are missing is unknown"
        )
    report.notes[:0] = notes  # those on tables stand behind them, whether tables were made by now or not


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


# ------------------------------------------------------------------------------------------- launches from columns


def launches_from(columns: LaunchColumns) -> list[Launch]:
    """Launches with their metrics from launches as columns, for reports that may share launches with others."""
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
