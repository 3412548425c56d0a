"""The answer to Perfetto's files of what warps did, which run-iket, Proton and flashinfer write to be looked at.

Ranges are slices there, and blocks and warps words in titles of tracks; the same tools write them as numbers too.
"""

from __future__ import annotations

from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.report_data.report import Report
from ncu_parsers.sources.sources import Source
from ncu_parsers.warp_ranges.warp_trace import WarpTrace


def read_report(source: Source) -> Report:
    """Raises `NotAReport`."""
    raise _refused(source)


def read_trace(source: Source) -> WarpTrace:
    """Raises `NotAReport`."""
    raise _refused(source)


def _refused(source: Source) -> NotAReport:
    return NotAReport(
        f"{source.name} is a picture for Perfetto of what warps did inside of kernels, and is not read.",
        "Its blocks and warps are words in titles of tracks.",
        'Write the numbers: run-iket profile --postprocess json, proton.start(data="trace") without perfetto_trace, or '
        "torch.save of flashinfer's buffer.",
    )
