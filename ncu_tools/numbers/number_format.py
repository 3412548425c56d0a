"""Numbers for people: four significant digits, a prefix, a unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

_STEPS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K"), (1.0, ""))
_SI_UNITS = ("J", "W", "Hz")
"""Units whose thousand is "k"; operations and bytes use "K" here."""
_TIME_STEPS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (0.0, "ns"))


def digits(value: float) -> str:
    """A number with four significant digits; an exponent only below 0.001 and from 1e15 on."""
    if value == 0:
        return "0"
    if 1000 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 1e-3 else f"{value:.2e}"


def shortened(value: float) -> float | None:
    """A number with eight digits, or all digits if eight would change the first four; None for NaN and infinities."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.8g}")
    return short if f"{short:.4g}" == f"{value:.4g}" else value


def scaled(value: float, unit: str) -> str:
    """A value with a decimal prefix: 1.555e12 B/s is "1.555 TB/s"."""
    for step, prefix in _STEPS:
        if abs(value) >= step or step == 1.0:
            prefix = prefix.replace("K", "k") if unit in _SI_UNITS else prefix
            return f"{digits(value / step)} {prefix}{unit}".rstrip()
    raise AssertionError  # the last step always fits


def duration(nanoseconds: float) -> str:
    """A time in the largest unit in which it is at least 1."""
    for step, unit in _TIME_STEPS:
        if abs(nanoseconds) >= step:
            return f"{digits(nanoseconds / (step or 1.0))} {unit}"
    raise AssertionError  # the last step always fits


def percent(fraction: float) -> str:
    """A fraction as per cent with one decimal."""
    return f"{100 * fraction:.1f} %"


def counted(number: int, one: str, several: str) -> str:
    """A number with its noun: "1 launch", "3 launches"."""
    return f"{number:,} {one if number == 1 else several}"


def plural(noun: str) -> str:
    """The plural of a noun: kernels, categories."""
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


def more_kernels(shares: Sequence[float | None], noun: str = "kernel") -> str:
    """The sentence on rows that are not shown, by default kernels, from their shares of the time (None: unknown)."""
    known = [share for share in shares if share is not None]
    if not known:
        return f"{counted(len(shares), f'more {noun}', f'more {plural(noun)}')}, whose share of the time is not known"
    least = "" if len(known) == len(shares) else "at least "
    take = counted(len(shares), f"more {noun} takes", f"more {plural(noun)} take")
    return f"{take} {least}{percent(sum(known))} of the time"


FORMATS: dict[str, Callable[[Any], str]] = {
    "text": str,
    "count": "{:,}".format,
    "time": duration,
    "flop": lambda value: scaled(value, "FLOP"),
    "op": lambda value: scaled(value, "OP"),
    "flop/s": lambda value: scaled(value, "FLOP/s"),
    "byte": lambda value: scaled(value, "B"),
    "byte/s": lambda value: scaled(value, "B/s"),
    "number": digits,
    "fraction": percent,
    "percent": lambda value: percent(value / 100),
    "hz": lambda value: scaled(value, "Hz"),
    "joule": lambda value: scaled(value, "J"),
    "watt": lambda value: scaled(value, "W"),
    "flop/j": lambda value: scaled(value, "FLOP/J"),
}
"""Kind of a column -> how its values are formatted. Machine-readable formats print plain values instead."""
