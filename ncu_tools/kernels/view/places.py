"""The places of a kernel with the most samples, for its view: source lines, or instructions where no line is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ncu_launch.errors import NcuBenchError

from ncu_tools.kernels.source.hot_places import LINES, SASS, HotPlace, hottest
from ncu_tools.kernels.source.inside_of_run import PER_INSTRUCTION, inside_of
from ncu_tools.kernels.source.kernel_code import kernel_code
from ncu_tools.kernels.view.kernel_view import KernelView

if TYPE_CHECKING:
    from ncu_parsers.sources.sources import Source

PLACES_SHOWN = 3


def hottest_places(
    path: str, view: KernelView, launch: int | None, columns: Iterable[str], reading: Callable[[Source], None]
) -> list[HotPlace]:
    """The places with the most samples of the kernel of a run; [] where the run has no counts of single instructions.

    `columns` are those of its launches. Without samples there is no order, so none is given.
    """
    inside = inside_of(path, [name for name in columns if name in PER_INSTRUCTION], reading)
    if inside.instructions is None:
        return []
    try:
        code = kernel_code(inside.instructions.table, (re.compile(f"^{re.escape(view.kernel_name)}$"),), launch)
    except NcuBenchError:
        return []  # the instructions are of other kernels
    if not code.total("samples"):
        return []
    return hottest(code, LINES if code.has_lines else SASS, "samples", PLACES_SHOWN)[0]
