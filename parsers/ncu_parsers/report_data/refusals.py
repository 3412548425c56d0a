"""The error for a file that is not a report, whatever its format."""

from __future__ import annotations

from ncu_launch.errors import NcuBenchError

EXPORT = "ncu --import FILE.ncu-rep --csv --page raw --print-units base > FILE.csv"


class NotAReport(NcuBenchError):
    """The file contains no readable table of ncu."""
