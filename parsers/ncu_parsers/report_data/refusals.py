"""What is said of a file that is no report, whatever its format."""

from __future__ import annotations

from ncu_launch.errors import NcuBenchError

EXPORT = "ncu --import FILE.ncu-rep --csv --page raw --print-units base > FILE.csv"


class NotAReport(NcuBenchError):
    """The file holds no table of ncu that could be read."""
