"""Notes on big reports that were read slower than possible."""

from __future__ import annotations

from ncu_parsers.report_data.report import Report
from ncu_parsers.streaming.cells import compiled_loops
from ncu_parsers.streaming.cells.rows import NotStreamed

NOT_COMPILED = (
    "read by the pure-Python loops, several times slower than the compiled ones: most likely no C compiler was there "
    "at installation; install a wheel, or a C compiler and then ncu-bench again"
)


def note_loops(report: Report) -> None:
    """Add a note to a streamed report of lines if this installation has no compiled loops."""
    if compiled_loops.loops is None and report.lines and report.origin == "ncu":
        report.notes.append(NOT_COMPILED)


def note_not_streamed(report: Report, reason: NotStreamed) -> None:
    """Add a note to a report that was read launch by launch, which takes several times as long as streaming."""
    report.notes.append(f"read launch by launch, several times slower than as a stream: {reason}")
