"""The interval around a model's saving, by how such intervals held on known histories, and how often it holds.

What the report holds decides more than the lever: a model that saw instructions and stalls is off by less than one that
saw a few percentages. `calibration.toml` has the widths by what was there, with the histories they were taken from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ncu_launch.files.toml_tables import table_beside

from ncu_tools.advice.situation.measured import MeasuredKernel
from ncu_tools.advice.situation.model import SavedShare

CODE, PERCENTAGES, FEW = "code and stalls", "utilisations", "few counters"
"""What a report holds of a kernel: instructions with stalls; utilisations of most resources; less."""
KINDS = (CODE, PERCENTAGES, FEW)
MOST = 0.995


@dataclass(frozen=True)
class Confidence:
    """How often the interval of such a lever held on known histories, and how many changes by how many authors."""

    held: float
    histories: int
    authors: int


def calibration() -> Mapping[str, Any]:
    """What a report holds -> how far its intervals are widened, and how they held (`calibration.toml`)."""
    return table_beside(__file__, "calibration")


def what_is_known(kernel: MeasuredKernel, *, has_code: bool) -> str:
    """Which of the three kinds of reports a kernel's is."""
    if has_code and kernel.stalls:
        return CODE
    return PERCENTAGES if len(kernel.busy) >= calibration()[PERCENTAGES]["resources"] else FEW


def widened(saving: SavedShare, known: str, *, brings_nothing: bool = False) -> SavedShare:
    """The calibrated interval around a model's saving, between 0 and nearly 1. The middle is 0 where it would lose."""
    calibrated = calibration()[known]
    below, above = calibrated["nothing" if brings_nothing else "widen"]
    middle = max(0.0, saving.middle)
    room = min(1.0, (1.0 - middle) / calibration()["room"])
    low = middle - calibrated["spread"] * (middle - saving.low) - below
    high = middle + calibrated["spread"] * (saving.high - middle) + above * room
    return SavedShare(max(0.0, min(low, middle)), min(middle, MOST), min(MOST, max(high, middle)))


def confidence(known: str) -> Confidence:
    """How such intervals held."""
    calibrated = calibration()[known]
    return Confidence(calibrated["held"], calibrated["histories"], calibrated["authors"])
