"""Ceilings on the plot: slanted bandwidths, flat peaks, ridge points, each with its label if there is room."""

from __future__ import annotations

import math
from typing import Any

from ncu_tools.ceilings.ceilings import BOARD_LIMIT, MEASUREMENTS
from ncu_tools.numbers.number_format import digits
from ncu_tools.report.plot.canvas import Canvas
from ncu_tools.report.plot.label_placement import Spot
from ncu_tools.report.plot.page_size import Frame
from ncu_tools.roofline.scene import DrawnCeiling, Scene

RIDGES_LABELLED = 6
COVERED = 0.1
"""Largest share of its size that a label may cover; otherwise it goes to the listing."""

FREE = 0.03
"""The same while shorter labels are left to try: one line may run through, but no mark."""


def draw_ceilings(canvas: Canvas) -> None:
    """Draw every ceiling as a line. `label_ceilings` places the labels after the marks."""
    for ceiling in canvas.scene.roofs:
        (x0, y0), (x1, y1) = ends(canvas.scene, canvas.frame, ceiling)
        style = line_of(ceiling)
        style["linewidth"] *= min(1.0, max(0.7, canvas.page.scale))
        canvas.axes.plot([x0, x1], [y0, y1], color=canvas.colour_of_ceiling(ceiling), zorder=2, **style)
        canvas.room.take_line([canvas.frame.at(x0, y0), canvas.frame.at(x1, y1)])


def line_of(ceiling: DrawnCeiling) -> dict[str, Any]:
    """Line style of a ceiling: dashed for the board's limit, dotted for sparse rates, dash-dotted for measured ones."""
    if ceiling.sparse:
        return {"linestyle": (0, (1, 1.6)), "linewidth": 1.3}
    if ceiling.kind == BOARD_LIMIT:
        return {"linestyle": (0, (5, 2.4)), "linewidth": 1.0, "alpha": 0.85}
    if ceiling.kind in MEASUREMENTS:
        return {"linestyle": (0, (6, 2, 1.2, 2)), "linewidth": 1.3}
    return {"linestyle": "-", "linewidth": 1.5}


def ends(scene: Scene, frame: Frame, ceiling: DrawnCeiling) -> tuple[tuple[float, float], tuple[float, float]]:
    """The ends of a ceiling in FLOP/B and FLOP/s: at the others of its device, or at the edge of the plot."""
    low, high = frame.x
    bottom = frame.y[0]
    own = [other for other in scene.roofs if other.device == ceiling.device]
    if ceiling.is_bandwidth:
        peaks = [other.value for other in own if not other.is_bandwidth]
        last = min(max(peaks, default=math.inf) / ceiling.value, high)
        first = max(low, bottom / ceiling.value)
        return (first, first * ceiling.value), (last, last * ceiling.value)
    slopes = [other.value for other in own if other.is_bandwidth]
    first = max(low, ceiling.value / max(slopes)) if slopes else low
    return (first, ceiling.value), (high, ceiling.value)


def label_ceilings(canvas: Canvas) -> None:
    """Label the ceilings: the highest peaks first, those at a board's limit last, then slopes, then ridge points."""
    peaks = [ceiling for ceiling in canvas.scene.roofs if not ceiling.is_bandwidth]
    for ceiling in sorted(peaks, key=lambda ceiling: (ceiling.kind == BOARD_LIMIT, -ceiling.value)):
        _label(canvas, ceiling)
    for ceiling in canvas.scene.roofs:
        if ceiling.is_bandwidth:
            _label(canvas, ceiling)
    _draw_ridges(canvas)


def _label(canvas: Canvas, ceiling: DrawnCeiling) -> None:
    """Put a label beside a ceiling where it covers little; if there is no free place, the listing shows it."""
    size = canvas.page.small
    for label, covered in _labels(canvas, ceiling):
        width, height = canvas.width_of(label, size), 1.05 * size
        spots = (_along_slope if ceiling.is_bandwidth else _along_peak)(canvas, ceiling, width, height)
        spot = canvas.room.place(spots, at_most=covered * width * height)
        if spot is not None:
            lift = 0 if ceiling.is_bandwidth else 0.18 * size
            canvas.write(
                spot.x, spot.y + lift, label, on_paper=True, fontsize=size, color=canvas.colour_of_ceiling(ceiling),
                rotation=spot.angle, zorder=5,
            )  # fmt: skip
            return
    canvas.not_labelled.append(ceiling)


def _along_peak(canvas: Canvas, ceiling: DrawnCeiling, width: float, height: float) -> list[Spot]:
    """Spots for a label above or below a horizontal ceiling, from its right end on."""
    (x0, y), (x1, _) = (canvas.frame.at(*end) for end in ends(canvas.scene, canvas.frame, ceiling))
    room = max(x1 - width - x0, 0.0)
    steps = [step / 8 * room for step in range(9)]
    return [
        Spot(x1 - width - 2 - step, y + above, width, height) for step in steps for above in (2.4, 0.9, -height - 1.4)
    ]


def _along_slope(canvas: Canvas, ceiling: DrawnCeiling, width: float, height: float) -> list[Spot]:
    """Spots for a label above or below a sloping ceiling, from its left end on."""
    angle = canvas.frame.slope
    (x0, y0), (x1, y1) = (canvas.frame.at(*end) for end in ends(canvas.scene, canvas.frame, ceiling))
    length, across = math.hypot(x1 - x0, y1 - y0), math.radians(angle + 90)
    spots = []
    for part in (0.06, 0.16, 0.28, 0.4, 0.52, 0.64, 0.76):
        for gap in (2.6, -height - 0.6):
            along = part * max(length - width, 0.0)
            x = x0 + along * math.cos(math.radians(angle)) + gap * math.cos(across)
            y = y0 + along * math.sin(math.radians(angle)) + gap * math.sin(across)
            spots.append(Spot(x, y, width, height, angle))
    return spots


def _labels(canvas: Canvas, ceiling: DrawnCeiling) -> list[tuple[str, float]]:
    """The possible labels of a ceiling, the best first, and the share that each may cover.

    The machine name is dropped first if colours distinguish the devices.
    """
    short = ceiling.label.removeprefix(f"{ceiling.device}: ")
    if short == ceiling.label or canvas.colour_of_ceiling(ceiling) == canvas.theme.quiet:
        return [(ceiling.label, COVERED)]
    return [(ceiling.label, FREE), (short, FREE), (ceiling.label, COVERED), (short, COVERED)]


def _draw_ridges(canvas: Canvas) -> None:
    """Draw ticks at the ridge points, with their intensity if it covers nothing."""
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
        label = f"{digits(ridge.intensity)} {canvas.scene.intensity_unit}"
        width, height = canvas.width_of(label, size), size
        spots = [Spot(x - width - 3, y + 2.5, width, height), Spot(x + 3, y - height - 3, width, height)]
        spot = canvas.room.place(spots, at_most=40.0)
        if spot is not None:
            canvas.write(
                spot.x, spot.y + 0.15 * size, label, on_paper=True, fontsize=size, color=canvas.theme.quiet, zorder=5
            )
