"""The note on points without a place on logarithmic axes: which they are, why, and their share of the time."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ncu_tools.kernels.kernel_row import Hotspot
from ncu_tools.kernels.names.categories import CATEGORIES
from ncu_tools.numbers.number_format import percent

MOST_NAMED = 6
AN_OPERATOR = re.compile(r"\w+::\w+")
"""Operators and categories are named; kernels, whose names may fill a page, are counted."""


def on_undrawn(undrawn: Sequence[Hotspot], every: Sequence[Hotspot], view: str) -> str:
    """The note on the points `undrawn` of `every` point. Their share of the time is left out where it is not known.

    Points that compute nothing are told from those of which it is not known, each with its share if there are both.
    """
    spots = sorted(undrawn, key=lambda spot: -(spot.time_total_ns or 0.0))
    times = [spot.time_total_ns for spot in every]
    known = [time for time in times if time is not None]
    whole = sum(known) if len(known) == len(times) else 0.0
    empty = [spot for spot in spots if spot.flops == 0]
    unknown = [spot for spot in spots if spot.flops != 0]
    reasons = [("no FLOPs", empty), ("FLOPs, bytes or time unknown", unknown)]
    both = whole if empty and unknown else 0.0
    words = [f"{reason}{_share(found, both)}: {_named(found)}" for reason, found in reasons if found]
    share = _share(spots, whole, " of the time")
    return f"{len(spots)} of {len(every)} {view} have no place on the plot{share}; {'; '.join(words)}"


def _share(spots: Sequence[Hotspot], whole: float, words: str = "") -> str:
    """The share that points take of the whole time in ns, in brackets; "" where the whole is 0 or not known."""
    return f" ({percent(sum(spot.time_total_ns or 0.0 for spot in spots) / whole)}{words})" if whole else ""


def _is_short(name: str) -> bool:
    return name in CATEGORIES or AN_OPERATOR.fullmatch(name) is not None


def _named(spots: Sequence[Hotspot]) -> str:
    names = list(dict.fromkeys(spot.kernel for spot in spots if _is_short(spot.kernel)))[:MOST_NAMED]
    rest = len(spots) - len(names)
    return ", ".join([*names, *([f"{rest} more" if names else str(rest)] if rest > 0 else [])])
