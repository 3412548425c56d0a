"""Roofs on the plot: slanted bandwidths, flat peaks, ridge points, each with its words where there is room."""

from __future__ import annotations

import math
from typing import Any

from ncu_tools.ceilings.ceilings import BOARD_LIMIT, MEASURED
from ncu_tools.numbers.number_format import digits
from ncu_tools.report.plot.canvas import Canvas
from ncu_tools.report.plot.label_placement import Spot
from ncu_tools.roofline.scene import DrawnCeiling

RIDGES_LABELLED = 6
COVERED = 0.3
"""How much the words of a roof may cover for their size; where that is not enough, the listing has them."""

FREE = 0.03
"""The same as long as shorter words may do: one line may run through, and no mark."""


def draw_ceilings(canvas: Canvas) -> None:
    """Draw every roof as a line. Its words are placed by `label_ceilings`, when the marks have taken their room."""
    for roof in canvas.scene.roofs:
        (x0, y0), (x1, y1) = ends(canvas, roof)
        style = line_of(roof)
        style["linewidth"] *= min(1.0, max(0.7, canvas.page.scale))
        canvas.axes.plot([x0, x1], [y0, y1], color=canvas.colour_of_roof(roof), zorder=2, **style)
        canvas.room.take_line([canvas.frame.at(x0, y0), canvas.frame.at(x1, y1)])


def line_of(roof: DrawnCeiling) -> dict[str, Any]:
    """How a roof is drawn: dashed for the board's limit, dotted for sparse rates, dash and dot for measured ones."""
    if roof.sparse:
        return {"linestyle": (0, (1, 1.6)), "linewidth": 1.3}
    if roof.kind == BOARD_LIMIT:
        return {"linestyle": (0, (5, 2.4)), "linewidth": 1.0, "alpha": 0.85}
    if roof.kind == MEASURED:
        return {"linestyle": (0, (6, 2, 1.2, 2)), "linewidth": 1.3}
    return {"linestyle": "-", "linewidth": 1.5}


def ends(canvas: Canvas, roof: DrawnCeiling) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where a roof begins and ends in FLOP/B and FLOP/s: at the others of its device, or at the edge of the plot."""
    low, high = canvas.frame.x
    bottom = canvas.frame.y[0]
    own = [other for other in canvas.scene.roofs if other.device == roof.device]
    if roof.is_bandwidth:
        peaks = [other.value for other in own if not other.is_bandwidth]
        last = min(max(peaks, default=math.inf) / roof.value, high)
        first = max(low, bottom / roof.value)
        return (first, first * roof.value), (last, last * roof.value)
    slopes = [other.value for other in own if other.is_bandwidth]
    first = max(low, roof.value / max(slopes)) if slopes else low
    return (first, roof.value), (high, roof.value)


def label_ceilings(canvas: Canvas) -> None:
    """Write beside each roof what it is: the highest peaks first, then the slopes, then the ridge points."""
    peaks = [roof for roof in canvas.scene.roofs if not roof.is_bandwidth]
    for roof in sorted(peaks, key=lambda roof: -roof.value):
        _label(canvas, roof)
    for roof in canvas.scene.roofs:
        if roof.is_bandwidth:
            _label(canvas, roof)
    _draw_ridges(canvas)


def _label(canvas: Canvas, roof: DrawnCeiling) -> None:
    """Put a label beside a roof, where it covers little; what finds no place is kept for the legend."""
    size = canvas.page.small
    for label, covered in _labels(canvas, roof):
        width, height = canvas.width_of(label, size), 1.05 * size
        spots = (_along_slope if roof.is_bandwidth else _along_peak)(canvas, roof, width, height)
        spot = canvas.room.place(spots, at_most=covered * width * height)
        if spot is not None:
            lift = 0 if roof.is_bandwidth else 0.18 * size
            canvas.words(
                spot.x, spot.y + lift, label, on_paper=True, fontsize=size, color=canvas.colour_of_roof(roof),
                rotation=spot.angle, zorder=5,
            )  # fmt: skip
            return
    canvas.not_labelled.append(roof)


def _along_peak(canvas: Canvas, roof: DrawnCeiling, width: float, height: float) -> list[Spot]:
    """Where a label may stand above or below a horizontal roof, from its right end on."""
    (x0, y), (x1, _) = (canvas.frame.at(*end) for end in ends(canvas, roof))
    room = max(x1 - width - x0, 0.0)
    steps = [step / 8 * room for step in range(9)]
    return [
        Spot(x1 - width - 2 - step, y + above, width, height) for step in steps for above in (2.4, 0.9, -height - 1.4)
    ]


def _along_slope(canvas: Canvas, roof: DrawnCeiling, width: float, height: float) -> list[Spot]:
    """Where a label may stand above or below a sloping roof, from its left end on."""
    angle = canvas.frame.slope
    (x0, y0), (x1, y1) = (canvas.frame.at(*end) for end in ends(canvas, roof))
    length, across = math.hypot(x1 - x0, y1 - y0), math.radians(angle + 90)
    spots = []
    for part in (0.06, 0.16, 0.28, 0.4, 0.52, 0.64, 0.76):
        for gap in (2.6, -height - 0.6):
            along = part * max(length - width, 0.0)
            x = x0 + along * math.cos(math.radians(angle)) + gap * math.cos(across)
            y = y0 + along * math.sin(math.radians(angle)) + gap * math.sin(across)
            spots.append(Spot(x, y, width, height, angle))
    return spots


def _labels(canvas: Canvas, roof: DrawnCeiling) -> list[tuple[str, float]]:
    """What can stand beside a roof, the best first, and how much it may cover there.

    It is shorter without the device, which the colour tells as well where devices have colours.
    """
    short = roof.label.removeprefix(f"{roof.device}: ")
    if short == roof.label or canvas.colour_of_roof(roof) == canvas.theme.quiet:
        return [(roof.label, COVERED)]
    return [(roof.label, FREE), (short, FREE), (roof.label, COVERED), (short, COVERED)]


def _draw_ridges(canvas: Canvas) -> None:
    """Ticks at the ridge points, with their intensity where that covers nothing."""
    size = canvas.page.small - 0.4
    highest = sorted(canvas.scene.ridges, key=lambda ridge: -ridge.value)
    seen: list[tuple[float, float]] = []
    for number, ridge in enumerate(highest):
        x, y = canvas.frame.at(ridge.intensity, ridge.value)
        if any(math.dist((x, y), other) < 6 for other in seen):
            continue
        seen.append((x, y))
        canvas.axes.plot([ridge.intensity], [ridge.value], marker="|", markersize=7, color=canvas.theme.quiet, zorder=3)
        if number >= RIDGES_LABELLED:
            continue
        label = f"{digits(ridge.intensity)} FLOP/B"
        width, height = canvas.width_of(label, size), size
        spots = [Spot(x - width - 3, y + 2.5, width, height), Spot(x + 3, y - height - 3, width, height)]
        spot = canvas.room.place(spots, at_most=40.0)
        if spot is not None:
            canvas.words(
                spot.x, spot.y + 0.15 * size, label, on_paper=True, fontsize=size, color=canvas.theme.quiet, zorder=5
            )
