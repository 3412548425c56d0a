"""Runs with source pages only: launches are known by their instructions, without metrics of their own."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_parsers.derived.table_builder import launches_table
from ncu_parsers.report_data.report import Launch, Report
from ncu_parsers.schema.tables import SCHEMA_VERSION, concatenated, with_metadata, words
from ncu_parsers.sources.sources import Source

from ncu_tools.kernels.source.inside_of_run import Inside
from ncu_tools.kernels.source.load_instructions import RunInstructions, load_instructions
from ncu_tools.runs.run import Run

WITHOUT_LAUNCHES = (
    "{}: a source page, which has counters per instruction but none per launch; for times and counters, put the raw "
    "page into a folder with it: ncu --import REPORT --csv --page raw --print-units base > RAW.csv"
)


def run_of_source_pages(path: str, reading: Callable[[Source], None]) -> tuple[Run, Inside] | None:
    """The launches on the source pages that `path` names, and their inside; None without source pages."""
    try:
        found = load_instructions(path, reading)
    except NcuBenchError:
        return None
    if not len(found.table):
        return None
    notes = [WITHOUT_LAUNCHES.format(path), *found.notes]
    return Run.held(path, _launches(found), notes), Inside(found)


def _launches(found: RunInstructions) -> pa.Table:
    """A row for every launch with instructions; only its names and its position on the page are known."""
    table = found.table
    places = zip(words(table, "report"), table["launch_id"].to_pylist(), words(table, "kernel_name"), strict=True)
    reports = dict[str, Report]()
    for name, launch, kernel in dict.fromkeys(places):
        report = reports.setdefault(name or "", Report(name or "", ["source page"]))
        report.launches.append(Launch(kernel or "", launch))
    described = [{"report": one.source, "dialects": one.dialects, "launches": one.rows} for one in reports.values()]
    metadata = {"schema_version": SCHEMA_VERSION, "reports": described, "notes": []}
    return with_metadata(concatenated([launches_table(one) for one in reports.values()]), metadata)
