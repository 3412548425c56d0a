"""The levers of one kernel for the commands that show it in full: a sentence, and rows of JSON."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import arrays, tables

from ncu_tools.advice.advise import KernelAdvice, advise
from ncu_tools.kernels.view.kernel_view import KernelView

NAMED = 3


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
    """The sentence on the levers that keep the kernel and save most; [] if there are none."""
    worth = [one for one in advice.levers if one.is_worth_it and not one.is_apart][:NAMED] if advice else []
    if not worth:
        return []
    said = []
    for one in worth:
        low, middle, high = (100 * share for share in one.saves)
        said.append(f"{one.title} saves {low:.0f} to {high:.0f} %, likely {middle:.0f} %")
    return [f"levers: {'; '.join(said)} (ncu-bench advise)"]


def rows_of_levers(advice: KernelAdvice | None) -> list[dict[str, Any]]:
    """Every lever that may save time, those that keep the kernel first."""
    return [
        {
            "lever": one.lever,
            "title": one.title,
            "saves_share": one.saves.middle,
            "saves_low": one.saves.low,
            "saves_high": one.saves.high,
            "is_apart": one.is_apart,
        }
        for one in (advice.levers if advice else ())
        if not one.pulled.nothing
    ]
