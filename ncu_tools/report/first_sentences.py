"""The highest cost in a sentence, for the line below the head of a table. None if nothing is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ncu_tools.kernels.grouping import UNKNOWN_RANGE
from ncu_tools.kernels.kernel_row import Hotspot
from ncu_tools.kernels.names.distinct_names import distinct_names, fitted_names
from ncu_tools.numbers.change import LESS, MORE, Change, sentence
from ncu_tools.numbers.number_format import duration, percent

if TYPE_CHECKING:
    from ncu_tools.compare.compare_kernels import ComparedKernel
    from ncu_tools.model.layers.layers import Layer

LONGEST_NAME = 60
WORTH_SAYING = 0.01
"""The least change of a kernel's time that the first sentence reports."""
MOST_OF_LAYERS = 0.1
"""The least share of the time of a layer that the first sentence reports."""
BOUND_FROM = 0.6
"""The least share of a roof that bounds a kernel: below it NVIDIA's speed-of-light rule sees waiting, not a bound."""
NOTHING_KNOWN = ("(no ", UNKNOWN_RANGE)
"""How titles of rows without operator, location or range begin: nobody can change these."""
WHOLE = 0.9995
"""At this share of the time, a kernel counts as all of it."""


def first_kernel(rows: Sequence[Hotspot], *, by_name: bool = True) -> str | None:
    """The row with most time, its share, and its bound. Without `by_name`, its name is a title of several kernels."""
    timed = [
        row for row in rows if math.isfinite(row.time_share or math.nan) and not row.kernel.startswith(NOTHING_KNOWN)
    ]
    if not timed:
        return None
    row = max(timed, key=lambda one: one.time_total_ns or 0.0)
    bound = bound_in_words(row)
    share = row.time_share or 0.0
    if share >= WHOLE and not bound:
        return None
    name = _short(row.kernel, [one.kernel for one in rows]) if by_name else row.kernel
    takes = "all of the time" if share >= WHOLE else f"{percent(share)} of the time"
    return f"{name} takes {takes}{f', {bound}' if bound else ''}"


def first_change(kernels: Sequence[ComparedKernel]) -> str | None:
    """The first of the `kernels` that became slower or faster, appeared or disappeared; they are sorted by effect."""
    kernel = next((one for one in kernels if one.is_new or one.is_gone or _is_shown(one.changes["time"])), None)
    if kernel is None:
        return None
    name = _short(kernel.pair.kernel, [one.pair.kernel for one in kernels])
    if kernel.is_new or kernel.is_gone:
        side = kernel.new or kernel.base
        time = f", {duration(side.time_total_ns)}" if side is not None and side.time_total_ns else ""
        return f"{name} is {'new' if kernel.is_new else 'gone'}{time}"
    return f"{name}, {sentence(kernel.changes['time'])}"


def _is_shown(change: Change) -> bool:
    return change.outcome in (MORE, LESS) and abs(change.growth or 0.0) >= WORTH_SAYING


def first_layer(layers: Sequence[Layer]) -> str | None:
    """The layer with most time that has none below it."""
    known = [one for one in layers if one.is_leaf and one.time_share]
    most = max(known, key=lambda one: one.time_share or 0.0, default=None)
    if most is None or len(known) == 1 or (most.time_share or 0.0) < MOST_OF_LAYERS:
        return None
    return f"{most.module} takes {percent(most.time_share or 0.0)} of the time"


def _short(name: str, among: Sequence[str]) -> str:
    """The readable name of a kernel, unique in its table."""
    read = distinct_names(among)[name]
    return fitted_names([read], LONGEST_NAME)[read]


def bound_in_words(row: Hotspot) -> str:
    """What bounds a row and how near it is, or how busy SMs and memory are; "" if neither is known."""
    if row.bound is None:
        return ""
    busy = {title: one for title, one in (("SM", row.sm_busy), ("memory", row.memory_busy)) if one is not None}
    if row.bound_fraction is None:
        shares = " and ".join(f"{title} {percent(one)}" for title, one in busy.items())
        return f"bound by {row.bound}: {shares} of {'their peaks' if len(busy) > 1 else 'its peak'}"
    reached = percent(row.bound_fraction)
    if row.flops_lower_bound and row.bound != "DRAM":
        reached = f"at least {reached}"
    if row.bound_fraction >= BOUND_FROM:
        return f"bound by {row.bound} at {reached} of its roof"
    busiest = max(busy, key=busy.__getitem__, default="")
    more = f"; {busiest} {percent(busy[busiest])} busy" if busiest and busy[busiest] > row.bound_fraction else ""
    return f"reaches {reached} of its nearest roof, {row.bound}{more}"
