"""Placement of labels so that they do not cover each other, marks or lines.

Each label tries its spots in order and takes the first free one, else the one that covers least. Everything is in
points on the page, and the same labels in the same order always get the same spots.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ncu_tools.report.plot.page_size import Box

WORDS, MARK, LINE = 10.0, 9.0, 2.0
"""The cost of covering other text, a mark, a line."""

OUTSIDE = 20.0


@dataclass(frozen=True)
class Spot:
    """A possible place of a label: its lower left corner, or with an `angle` in degrees the start of its base line."""

    x: float
    y: float
    width: float
    height: float
    angle: float = 0.0

    def nearest_to(self, x: float, y: float) -> tuple[float, float]:
        """The point of a level spot that is nearest to another one."""
        return min(max(x, self.x), self.x + self.width), min(max(y, self.y), self.y + self.height)

    def boxes(self) -> npt.NDArray[np.float64]:
        """The area of the label as rows of left, bottom, right, top; slanted labels take several small boxes."""
        if not self.angle:
            return np.array([[self.x, self.y, self.x + self.width, self.y + self.height]])
        along = math.radians(self.angle)
        steps = np.arange(0.0, self.width, self.height) + self.height / 2
        x = self.x + steps * math.cos(along) - self.height / 2 * math.sin(along)
        y = self.y + steps * math.sin(along) + self.height / 2 * math.cos(along)
        half = 0.6 * self.height
        return np.stack([x - half, y - half, x + half, y + half], axis=1)


class Room:
    """Occupied areas of the plot."""

    def __init__(self, inside: Box) -> None:
        self._inside = inside
        self._boxes = np.empty((0, 4))
        self._costs = np.empty(0)

    def take(self, boxes: npt.NDArray[np.float64], cost: float = WORDS) -> None:
        """Mark boxes (rows of left, bottom, right, top) as taken."""
        self._boxes = np.concatenate([self._boxes, boxes])
        self._costs = np.concatenate([self._costs, np.full(len(boxes), cost)])

    def take_line(self, points: Iterable[tuple[float, float]]) -> None:
        """Mark a line through points on the page as taken."""
        found = list(points)
        for (x0, y0), (x1, y1) in pairwise(found):
            count = max(2, int(math.hypot(x1 - x0, y1 - y0) / 2))  # without a gap, so that no word lies along it
            x, y = np.linspace(x0, x1, count), np.linspace(y0, y1, count)
            self.take(np.stack([x - 1, y - 1, x + 1, y + 1], axis=1), LINE)

    def has_words(self, spot: Spot) -> bool:
        """True if text, or something as important, is at a spot."""
        left, bottom, right, top = spot.boxes()[0]
        taken = self._boxes[self._costs >= WORDS]
        across, up = (taken[:, 0] < right) & (taken[:, 2] > left), (taken[:, 1] < top) & (taken[:, 3] > bottom)
        return bool((across & up).any())

    def is_clear(self, start: tuple[float, float], end: tuple[float, float]) -> bool:
        """True if a line between two points crosses no text."""
        count = max(2, int(math.dist(start, end) / 2))
        along = zip(np.linspace(start[0], end[0], count), np.linspace(start[1], end[1], count), strict=True)
        return not any(self.has_words(Spot(x, y, 0.0, 0.0)) for x, y in along)

    def cost(self, spot: Spot) -> float:
        """The area that a label at a spot would cover, in square points weighted by the covered content."""
        total = 0.0
        inside = self._inside
        for left, bottom, right, top in spot.boxes():
            across = np.minimum(self._boxes[:, 2], right) - np.maximum(self._boxes[:, 0], left)
            up = np.minimum(self._boxes[:, 3], top) - np.maximum(self._boxes[:, 1], bottom)
            total += float((np.clip(across, 0, None) * np.clip(up, 0, None) * self._costs).sum())
            out = max(0.0, inside.left - left) + max(0.0, right - inside.right)
            out += max(0.0, inside.bottom - bottom) + max(0.0, top - inside.top)
            total += OUTSIDE * out * spot.height
        return total

    def place(self, spots: Sequence[Spot], *, at_most: float = math.inf) -> Spot | None:
        """Take the first free spot, else the one with the least cost; None if that exceeds `at_most`."""
        best, least = None, math.inf
        for spot in spots:
            cost = self.cost(spot)
            if cost < least - 1e-9:
                best, least = spot, cost
            if cost == 0:
                break
        if best is None or least > at_most:
            return None
        self.take(best.boxes())
        return best


def around(x: float, y: float, radius: float, width: float, height: float) -> list[Spot]:
    """Spots beside a marker, the nearest first: right, above, below, left, then farther out."""
    spots = []
    for gap in (1.5, 5.0, 11.0, 20.0, 32.0):
        away = radius + gap
        slant = 0.72 * away
        spots += [
            Spot(x + slant, y + slant - 0.3 * height, width, height),
            Spot(x + away, y - height / 2, width, height),
            Spot(x + slant, y - slant - 0.7 * height, width, height),
            Spot(x - width / 2, y + away, width, height),
            Spot(x - width / 2, y - away - height, width, height),
            Spot(x - slant - width, y + slant - 0.3 * height, width, height),
            Spot(x - away - width, y - height / 2, width, height),
            Spot(x - slant - width, y - slant - 0.7 * height, width, height),
        ]
    return spots
