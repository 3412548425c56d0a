"""What allows the fewest blocks of a kernel on an SM: of ncu's launch metrics, or of PyTorch's traces since 2026."""

from __future__ import annotations

import math
from typing import Any

from ncu_tools.advice.situation.measured import MeasuredKernel, quantities

LIMITS = ("limit_registers", "limit_shared", "limit_blocks", "limit_warps")
"""Quantities: how many blocks each resource allows on an SM."""


def limit_of_occupancy(kernel: MeasuredKernel) -> list[dict[str, Any]]:
    """The resources that allow the fewest blocks, as evidence; [] where no limit is known."""
    known = [name for name in LIMITS if name in kernel.numbers]
    least = min((kernel.numbers[name] for name in known), default=math.nan)
    return [
        {"quantity": quantities()[name]["title"], "value": least, "unit": "block",
         "metrics": list(kernel.metrics.get(name, ()))}
        for name in known
        if kernel.numbers[name] == least
    ]  # fmt: skip


def words_of_limit(kernel: MeasuredKernel) -> str:
    """The limit in words, behind a sentence; "" where none is known."""
    found = limit_of_occupancy(kernel)
    return f"; {' and '.join(one['quantity'] for one in found)}: {found[0]['value']:g}" if found else ""
