"""The reports on disk that tests read, and summaries of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from ncu_launch.errors import NcuBenchError
from ncu_parsers.parse.file_kinds import read_artefact
from ncu_parsers.parse.parse import parse
from ncu_parsers.schema import tables
from ncu_parsers.sources.sources import Source

from tests.conftest import SAMPLES, SHARED

REPORT_SUFFIXES = {".csv", ".txt", ".ncu-rep", ".gz"}
MEASURED = SAMPLES / "h100"
"""The samples that ncu printed, not `sample_reports/generate.py`."""


def sample_files() -> list[Path]:
    """Every sample report of the project: the generated ones, and those of an H100."""
    return sorted(path for path in (*SAMPLES.iterdir(), *MEASURED.iterdir()) if path.suffix in REPORT_SUFFIXES)


EACH_FORMAT = [
    SAMPLES / "d02-long-rules.csv", SAMPLES / "d15-no-kernels.csv", SAMPLES / "d18-text.txt",
    SAMPLES / "d19-summary-per-kernel.csv", SAMPLES / "d20-source-page.csv", SAMPLES / "d22-session-page.csv",
    MEASURED / "conflicts.ncu-rep", MEASURED / "resnet18-raw-scaled.csv",
]  # fmt: skip
"""Of `sample_files`, one of each format, for the day: a binary report, the pages of ncu as CSV and as text, and none."""


def is_binary(sample: Path) -> bool:
    """Whether a sample is a binary report, perhaps compressed."""
    return ".ncu-rep" in sample.suffixes


def shared_reports(folder: str) -> list[Path]:
    """Real reports made by others, kept beside the project and never in it; [] if missing."""
    return sorted(path for path in (SHARED / "reports" / folder).glob("*") if path.is_file())


@cache
def table_of(path: Path) -> pa.Table | None:
    """The launches of a real report, which several tests read; None where it has none."""
    return parse([Source(str(path))], join=False).table


def reports_with_code() -> list[Path]:
    """Every real binary report, ours and those of others, compressed or not; nearly all carry their cubins."""
    folders = (SHARED / "reports", SHARED / "histories", MEASURED)
    return sorted(
        {
            one
            for folder in folders
            for kind in ("*.ncu-rep", "*.ncu-rep.gz", "*.nsight-cuprof-report")
            for one in folder.rglob(kind)
        }
    )


needs_shared_reports = pytest.mark.skipif(
    not (SHARED / "reports").is_dir(), reason="the folder ../shared/reports with other people's real reports is missing"
)

FAULTS = SHARED / "faults"
needs_faults = pytest.mark.skipif(
    not FAULTS.is_dir(), reason="the folder ../shared/faults with inputs that were read or judged wrongly is missing"
)


def given_fault(name: str) -> str:
    """The path of an input in ../shared/faults that was once judged wrongly; the test is skipped without the folder."""
    if not (SHARED / "faults").is_dir():
        pytest.skip("the folder ../shared/faults with inputs that were judged wrongly is missing")
    return str(SHARED / "faults" / name)


def assert_read_or_refused(source: Source) -> None:
    """A damaged recording is refused, or read as a table that is sound: no traceback, and no time below zero."""
    try:
        table = read_artefact(source).table
    except NcuBenchError:
        return
    assert table is not None
    table.validate(full=True)
    assert min(table["duration_ns"].to_pylist()) >= 0


def first_line(error: NcuBenchError) -> str:
    """The start of an error, without the path of the file."""
    return error.what.partition(" ")[2] if "/" in error.what.split()[0] else error.what


def summed_up(path: Path) -> dict[str, Any]:
    """Launches, total time, FLOPs and DRAM bytes of a report, or the refusal's first line."""
    parsed = parse([Source(str(path))])
    if parsed.table is None:
        error = next(iter(parsed.refused.values()))
        return {"refused": first_line(error)}
    table = parsed.table
    invocations = np.nan_to_num(tables.floats(table, "invocations"), nan=1.0)
    totals = {name: tables.floats(table, name) * invocations for name in ("duration_ns", "flops", "dram_bytes")}
    return {
        "dialect": " + ".join(parsed.reports[0].dialects),
        "launches": int(invocations.sum()),
        "failed": sum(table.column("failed").to_pylist()),
        "metrics": len(parsed.reports[0].metric_names),
        **{name: None if np.isnan(values).all() else float(np.nansum(values)) for name, values in totals.items()},
    }
