"""The NVTX ranges around a launch, and iteration, phase and module from ranges of our launcher."""

from __future__ import annotations

from ncu_launch.nvtx_ranges import DOMAIN, RUN_PHASES

from ncu_parsers.report_data.cell_text import whole
from ncu_parsers.report_data.report import Launch


def place(launch: Launch, ranges: list[tuple[str, str]]) -> None:
    """Store a launch's (domain, name) ranges, outermost first; those in `DOMAIN` set iteration, phase and module."""
    launch.nvtx_path = tuple(name for _, name in ranges)
    for domain, name in ranges:
        if domain != DOMAIN:
            continue
        kind, _, number = name.partition(" ")
        if name in RUN_PHASES:
            launch.phase = name
        elif kind == "iteration" and whole(number, bits=31) is not None:
            launch.iteration = whole(number, bits=31)
        else:
            launch.module = name  # the innermost range comes last
