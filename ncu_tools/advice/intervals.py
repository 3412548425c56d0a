"""Calibrated intervals around the modelled saving of a lever, and how often such intervals held on known histories.

Widths depend on what the report holds, more than on the lever: a model with instructions and stalls is more accurate
than one with a few utilisations. `calibration.toml` has the widths, and the histories that they were fitted to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ncu_launch.files.toml_tables import table_beside

from ncu_tools.advice.situation.measured import MeasuredKernel
from ncu_tools.advice.situation.model import SavedShare

CODE, PERCENTAGES, FEW = "code and stalls", "utilisations", "few counters"
"""What a report has of a kernel: instructions and stalls, the utilisation of most resources, or less."""
KINDS = (CODE, PERCENTAGES, FEW)
MOST = 0.995


@dataclass(frozen=True)
class Confidence:
    """The share of known changes whose saving lay in such an interval, and the number of changes and their authors."""

    held: float
    histories: int
    authors: int


def calibration() -> Mapping[str, Any]:
    """What a report has of a kernel -> how far intervals are widened, and how often they held (`calibration.toml`)."""
    return table_beside(__file__, "calibration")


def what_is_known(kernel: MeasuredKernel, *, has_code: bool) -> str:
    """Which of `KINDS` describes what the report has of a kernel."""
    if has_code and kernel.stalls:
        return CODE
    return PERCENTAGES if len(kernel.busy) >= calibration()[PERCENTAGES]["resources"] else FEW


def widened(saving: SavedShare, known: str, *, brings_nothing: bool = False) -> SavedShare:
    """The calibrated interval around a modelled saving, within 0 to nearly 1; the middle is at least 0."""
    calibrated = calibration()[known]
    below, above = calibrated["nothing" if brings_nothing else "widen"]
    middle = max(0.0, saving.middle)
    room = min(1.0, (1.0 - middle) / calibration()["room"])
    low = middle - calibrated["spread"] * (middle - saving.low) - below
    high = middle + calibrated["spread"] * (saving.high - middle) + above * room
    return SavedShare(max(0.0, min(low, middle)), min(middle, MOST), min(MOST, max(high, middle)))


def confidence(known: str) -> Confidence:
    """How often intervals of kernels with this kind of report held."""
    calibrated = calibration()[known]
    return Confidence(calibrated["held"], calibrated["histories"], calibrated["authors"])
