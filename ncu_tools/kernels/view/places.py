"""The places of a kernel with the most samples, for its view: source lines, or instructions if lines are unknown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
from ncu_launch.errors import NcuBenchError

from ncu_tools.kernels.source.hot_places import LINES, SASS, HotPlace, hottest
from ncu_tools.kernels.source.inside_of_run import PER_INSTRUCTION, inside_of
from ncu_tools.kernels.source.kernel_code import kernel_code
from ncu_tools.kernels.view.kernel_view import KernelView

if TYPE_CHECKING:
    from ncu_parsers.sources.sources import Source

PLACES_SHOWN = 3


def instructions_of(path: str, columns: Iterable[str], reading: Callable[[Source], None]) -> pa.Table | None:
    """The instructions of a run whose launches have these columns; None if it has no counts per instruction."""
    inside = inside_of(path, [name for name in columns if name in PER_INSTRUCTION], reading)
    return inside.instructions.table if inside.instructions is not None else None


def hottest_places(instructions: pa.Table | None, view: KernelView, launch: int | None) -> list[HotPlace]:
    """The places of a kernel with the most samples, from the instructions of its run; [] if it has none.

    Without samples there is no order, so the result is [].
    """
    if instructions is None:
        return []
    try:
        code = kernel_code(instructions, (re.compile(f"^{re.escape(view.kernel_name)}$"),), launch)
    except NcuBenchError:
        return []  # the instructions belong to other kernels
    if not code.total("samples"):
        return []
    return hottest(code, LINES if code.has_lines else SASS, "samples", PLACES_SHOWN)[0]
