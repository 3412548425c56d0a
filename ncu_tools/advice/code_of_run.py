"""Load the instructions of a run's kernels with the columns that levers read."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_parsers.sources.sources import Source, is_here

from ncu_tools.kernels.source.inside_of_run import PER_INSTRUCTION, has_instructions
from ncu_tools.kernels.source.load_instructions import load_instructions

OF_INSTRUCTIONS = frozenset({"inst_executed", "samples", "l2_sectors", "avg_threads", "shared_wavefronts"})
"""Columns of the table of instructions that levers read."""


def instructions_for_levers(
    path: str, columns: Iterable[str], reading: Callable[[Source], None] = lambda source: None
) -> tuple[pa.Table | None, list[str]]:
    """The instructions of a run, or None, and notes on why they could not be read; `columns` are those of its launches.

    A damaged page of code is only noted: without instructions, levers follow from counters alone.
    """
    if not is_here(path):
        return None, []
    try:
        if has_instructions(path, [name for name in columns if name in PER_INSTRUCTION]):
            return load_instructions(path, reading, OF_INSTRUCTIONS).table, []
    except NcuBenchError as error:
        return None, [f"without the code of kernels: {error.what}"]
    return None, []
