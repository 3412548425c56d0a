"""Refuse a trace from inside kernels where a command needs launches."""

from __future__ import annotations

from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Report
from ncu_parsers.sources.sources import Source


def read_report(source: Source) -> Report:
    """Always raises `NotAReport`: ranges of warps are not launches."""
    raise NotAReport(
        f"{source.name} holds what warps did inside of kernels, and no launches with counters.",
        "It was recorded by run-iket, Proton, flashinfer's profiler or the like.",
        f"Look at it with: ncu-bench kernel {source.name} --part inside",
    )
