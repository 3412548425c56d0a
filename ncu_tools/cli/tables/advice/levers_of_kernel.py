"""The levers of one kernel for the commands that show it in full."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import arrays, tables

from ncu_tools.advice.advise import KernelAdvice, advise
from ncu_tools.advice.lever_sentences import sentence_on
from ncu_tools.kernels.view.kernel_view import KernelView


def advice_on_view(
    view: KernelView, launches: pa.Table, instructions: pa.Table | None, launch: int | None = None
) -> KernelAdvice | None:
    """The levers of a view's kernel, for its launches with the most time; None if none ran."""
    codes, names = tables.codes(launches, "kernel_name")
    wanted = np.array([name == view.kernel_name for name in names])[codes]
    if launch is not None:
        wanted &= tables.launch_numbers(launches) == launch
    found = advise(arrays.kept(launches, wanted), instructions).kernels
    return found[0] if found else None


def levers_in_words(advice: KernelAdvice | None) -> list[str]:
    """The sentence on the levers of a kernel; [] if none of its launches ran."""
    return [f"{sentence_on(advice)} (ncu-bench advise)"] if advice is not None else []
