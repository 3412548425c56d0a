"""The area of a marker on a roofline, by its time: one rule for pictures and the HTML page.

Areas are in square points, of circles; markers of other shapes have the same area. A picture multiplies them by the
square of its page's scale, the page has 4/3 pixels to a point.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

SMALLEST, OF_ALL_TIME = 13.0, 1100.0
"""Squared diameters in points: of a marker without time, and the addition for the time of the longest run."""

MOST, MOST_OF_SEVERAL = 620.0, 200.0
"""Largest addition for the longest mark; the second if marks have a marker per level."""

PIXELS_PER_POINT = 4 / 3


@dataclass(frozen=True)
class MarkScale:
    """Addition to the squared diameter for a weight of 1 (a mark's time as a share of the longest run's)."""

    growth: float

    def area(self, weight: float) -> float:
        """The area of a marker in square points."""
        return math.pi / 4 * (SMALLEST + self.growth * weight)

    def radius(self, weight: float) -> float:
        """The radius in points of a circle of this area."""
        return math.sqrt(self.area(weight) / math.pi)


def scale_of(weights: Iterable[float], levels: int) -> MarkScale:
    """The scale of a roofline with marks of these weights at `levels` memory levels."""
    most = MOST if levels == 1 else MOST_OF_SEVERAL
    return MarkScale(min(OF_ALL_TIME, most / max([*weights, 1e-9])))
