"""The refusal of compiled code by commands that need launches, such as `parse` and `hotspots`."""

from __future__ import annotations

from typing import NoReturn

from ncu_launch.errors import NcuBenchError

from ncu_parsers.sources.sources import Source


def read_report(source: Source) -> NoReturn:
    """Always raises `NcuBenchError`, which names the commands that take code."""
    raise NcuBenchError(
        f"{source.name} is compiled code, and no report.",
        "It holds kernels, and says nothing of a run.",
        f"Look at its kernels with: ncu-bench kernel {source.name} (also source, advise, and compare of two files).",
    )
