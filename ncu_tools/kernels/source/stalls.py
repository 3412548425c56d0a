"""Stall reasons of instructions, lines and kernels: which dominates, what it means, and common remedies."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from ncu_launch.files.toml_tables import table_beside
from ncu_parsers.schema.instructions_table import STALLS
from ncu_parsers.schema.tables import Floats

from ncu_tools.kernels.source.kernel_code import KernelCode

ISSUED = "selected"
"""The state of warps that issue: not a stall."""
REASONS = tuple(reason for reason in STALLS if reason != ISSUED)


class Stall(NamedTuple):
    """A reason why warps do not issue: the event they wait for, common remedies, and the operations that cause it."""

    reason: str
    meaning: str
    advice: str
    waits_for: tuple[str, ...]

    @property
    def title(self) -> str:
        """The reason in words, such as "long scoreboard"."""
        return self.reason.replace("_", " ")


@lru_cache(maxsize=1)
def stalls() -> dict[str, Stall]:
    """Every reason by its name in metrics."""
    read: dict[str, Any] = table_beside(__file__, "stalls")
    return {
        reason: Stall(reason, entry["meaning"], entry["advice"], tuple(entry.get("waits_for", ())))
        for reason, entry in read.items()
    }


def stall_counts(code: KernelCode) -> Floats:
    """Samples by stall reason, float64, instructions x `REASONS`; 0 where a reason was not sampled."""
    return np.nan_to_num(np.stack([code.counts(f"stall_{reason}") for reason in REASONS])).T


def dominant(counts: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
    """The index in `REASONS` of the most frequent stall of each row, and its share of all stall samples.

    The share is NaN in rows without a stall.
    """
    whole = counts.sum(axis=1)
    top = counts.argmax(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(whole > 0, counts[np.arange(len(counts)), top] / whole, np.nan)
    return top, share
