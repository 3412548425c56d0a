"""Refuse Perfetto's files of ranges of warps, which run-iket, Proton and flashinfer write for viewing.

Blocks and warps are words in titles of tracks there; the same tools write them as numbers too.
"""

from __future__ import annotations

from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Report
from ncu_parsers.sources.sources import Source
from ncu_parsers.warp_ranges.warp_trace import WarpTrace


def read_report(source: Source) -> Report:
    """Refuse the file: always raises `NotAReport`."""
    raise _refused(source)


def read_trace(source: Source) -> WarpTrace:
    """Refuse the file: always raises `NotAReport`."""
    raise _refused(source)


def _refused(source: Source) -> NotAReport:
    return NotAReport(
        f"{source.name} is a picture for Perfetto of what warps did inside of kernels, and is not read.",
        "Its blocks and warps are words in titles of tracks.",
        'Write the numbers: run-iket profile --postprocess json, proton.start(data="trace") without perfetto_trace, or '
        "torch.save of flashinfer's buffer.",
    )
