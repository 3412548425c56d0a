"""Marks on the plot: one marker per memory level joined by a line, arrows between runs, launches as a density."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ncu_tools.report.plot.canvas import SAME_AREA, Canvas
from ncu_tools.report.plot.label_placement import MARK, Spot, around
from ncu_tools.report.plot.theme import LEVEL_MARKERS, RUN_MARKERS, readable_on
from ncu_tools.roofline.scene import PHASES, RUNS, Mark, Scene

VECTOR_UP_TO = 2_000
"""If there are more markers, they are drawn as an image inside the picture, which keeps an SVG small."""

NUMBERED = 12
MOST_NAMED = 10
"""A view of phases or runs with at most this many marks shows their names."""

DESCENT = 0.24
"""Depth of descenders such as in p and _ below the base line, as a part of the size; digits have none."""

FAR = 7
"""Points between a marker and its text beyond which a line joins them."""
MARKS_IN_THE_WAY = 400
RING_AREA, SMALL_RING = 95.0, 0.2


def has_names(scene: Scene) -> bool:
    """True if marks have names, not numbers, beside them."""
    return scene.view in (PHASES, RUNS) and len(scene.marks) <= MOST_NAMED


def marker_of(canvas: Canvas, mark: Mark, level: str) -> str:
    """The shape of a marker: of its memory level if several are shown, else of its run."""
    if len(canvas.scene.levels) > 1:
        return LEVEL_MARKERS[level]
    return RUN_MARKERS[mark.run % len(RUN_MARKERS)] if canvas.several_runs and not canvas.models else "o"


def draw_marks(canvas: Canvas) -> None:
    """Draw every mark, the longest first, so that short ones lie on top; or the density of launches under rings."""
    if canvas.scene.density is not None:
        _draw_density(canvas)
        return
    marks = canvas.scene.marks
    count = sum(len(mark.places) for mark in marks)
    _join_levels(canvas, marks, rasterized=count > VECTOR_UP_TO)
    kinds: dict[tuple[str, str, bool, int], list[tuple[float, float, float]]] = {}
    for place, mark in enumerate(marks):
        for spot in mark.places:
            layer = place * 4 // max(len(marks), 1)  # a scatter is one layer, so a few of them keep the order
            kind = (marker_of(canvas, mark, spot.level), canvas.colour_of(mark), mark.is_open, layer)
            kinds.setdefault(kind, []).append((spot.intensity, mark.flops_per_s, canvas.radius(mark.weight)))
    for (marker, colour, is_open, layer), points in sorted(kinds.items(), key=lambda item: item[0][3]):
        x, y, radii = zip(*points, strict=True)
        canvas.axes.scatter(
            x, y, s=[(2 * radius) ** 2 * SAME_AREA.get(marker, 1.0) for radius in radii], marker=marker,
            facecolors="none" if is_open else colour,
            edgecolors=colour if is_open else canvas.theme.paper,
            linewidths=1.2 if is_open else 0.5,
            alpha=0.85, zorder=3 + 0.1 * layer, rasterized=count > VECTOR_UP_TO,
        )  # fmt: skip
    _take_room(canvas, marks[:MARKS_IN_THE_WAY])


def _join_levels(canvas: Canvas, marks: Sequence[Mark], *, rasterized: bool) -> None:
    """Draw a line through the positions of each mark, so that its memory levels form one shape."""
    from matplotlib.collections import LineCollection

    joined = [mark for mark in marks if len(mark.places) > 1]
    lines = [[(place.intensity, mark.flops_per_s) for place in mark.places] for mark in joined]
    colours = [canvas.colour_of(mark) for mark in joined]
    canvas.axes.add_collection(
        LineCollection(lines, colors=colours, linewidths=0.9, alpha=0.6, zorder=2.5, rasterized=rasterized),
        autolim=False,
    )
    for mark in joined[:MARKS_IN_THE_WAY]:
        canvas.room.take_line([canvas.frame.at(place.intensity, mark.flops_per_s) for place in mark.places])


def _take_room(canvas: Canvas, marks: Sequence[Mark]) -> None:
    boxes = []
    for mark in marks:
        half = 0.88 * canvas.radius(mark.weight)
        for place in mark.places:
            x, y = canvas.frame.at(place.intensity, mark.flops_per_s)
            boxes.append([x - half, y - half, x + half, y + half])
    if boxes:
        canvas.room.take(np.array(boxes), MARK)


# --------------------------------------------------------------------------------------------------------- density


def _draw_density(canvas: Canvas) -> None:
    """Draw launches per cell of the grid as colours."""
    from matplotlib.colors import LogNorm

    density = canvas.scene.density
    assert density is not None  # noqa: S101 - the caller looked
    counts = np.full((density.rows, density.columns), np.nan)
    for column, row, launches in density.cells:
        counts[row, column] = launches
    x, y = (
        np.logspace(*ends, number + 1)
        for ends, number in ((density.x, density.columns), (density.y, density.rows))
    )  # fmt: skip
    most = max((launches for _, _, launches in density.cells), default=1)
    canvas.axes.pcolormesh(
        x, y, np.ma.masked_invalid(counts), norm=LogNorm(1, max(most, 2)), cmap=canvas.theme.density, zorder=2.2,
        rasterized=True, shading="flat",
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------- numbers and names


def draw_numbers(canvas: Canvas, count: int) -> None:
    """Number the first marks as in the listing: inside the marker if that is large enough and free, else beside it."""
    size = canvas.page.text - 0.8
    if canvas.scene.density is not None:
        _draw_rings(canvas, count)
        return
    for number, mark in enumerate(canvas.scene.marks[:count], start=1):
        text, radius = str(number), canvas.radius(mark.weight)
        x, y = canvas.frame.at(mark.places[0].intensity, mark.flops_per_s)
        width, height = canvas.width_of(text, size, bold=True), 0.75 * size
        inside = Spot(x - width / 2, y - height / 2, width, height)
        fits = 1.6 * radius > math.hypot(width, height)
        if fits and not mark.is_open and not canvas.room.has_words(inside):
            canvas.room.take(inside.boxes())
            colour = readable_on(canvas.colour_of(mark))
            canvas.write(x - width / 2, y - height / 2, text, fontsize=size, fontweight="bold", color=colour, zorder=6)
            continue
        _write_beside(canvas, mark, text, size, radius, bold=True)


def _draw_rings(canvas: Canvas, count: int) -> None:
    """Draw a numbered ring at the mean of each kernel; if it meets another, a small one with the number beside it."""
    size = canvas.page.text - 1.6
    for number, mark in enumerate(canvas.scene.marks[:count], start=1):
        area = RING_AREA * canvas.page.scale
        x, y = canvas.frame.at(mark.places[0].intensity, mark.flops_per_s)
        half = math.sqrt(area) / 2 + 0.5
        whole = Spot(x - half, y - half, 2 * half, 2 * half)
        crowded = canvas.room.has_words(whole)
        canvas.axes.scatter(
            [mark.places[0].intensity], [mark.flops_per_s], s=area * (SMALL_RING if crowded else 1.0),
            facecolors=canvas.theme.paper, edgecolors=canvas.theme.ink, linewidths=0.9, zorder=4,
        )  # fmt: skip
        if crowded:
            _write_beside(canvas, mark, str(number), size, half / 2, bold=True)
            continue
        canvas.room.take(whole.boxes())
        width = canvas.width_of(str(number), size, bold=True)
        canvas.write(x - width / 2, y - 0.37 * size, str(number), fontsize=size, fontweight="bold", zorder=6)


def draw_names(canvas: Canvas) -> None:
    """Write the name of every mark beside it; for many runs, each model's name beside its longest mark."""
    size = canvas.page.text
    named = _named_marks(canvas)
    for mark, name in named:
        text = canvas.fitted_name(name, size, 0.35 * canvas.page.plot.width, [other for _, other in named])
        _write_beside(canvas, mark, text, size, canvas.radius(mark.weight), bold=False)


def _named_marks(canvas: Canvas) -> list[tuple[Mark, str]]:
    scene = canvas.scene
    if not has_names(scene):
        longest = {scene.runs[mark.run].model: mark for mark in reversed(scene.marks)}
        return [(mark, model) for model, mark in longest.items() if model is not None and model in canvas.models]
    apart = canvas.several_runs and scene.view != RUNS
    return [(mark, f"{mark.label}, {scene.runs[mark.run].label}" if apart else mark.label) for mark in scene.marks]


def _write_beside(canvas: Canvas, mark: Mark, text: str, size: float, radius: float, *, bold: bool) -> None:
    """Write a text beside a mark, with a thin line to it if it had to be placed far away."""
    x, y = canvas.frame.at(mark.places[0].intensity, mark.flops_per_s)
    below = 0.0 if text.isdecimal() else DESCENT * size
    width, height = canvas.width_of(text, size, bold=bold), 0.8 * size + below
    spots = around(x, y, radius, width, height)
    lines = [_line_to(spot, x, y, radius) for spot in spots]
    clear = [spot for spot, line in zip(spots, lines, strict=True) if line is None or canvas.room.is_clear(*line)]
    spot = canvas.room.place(clear or spots)
    if spot is None:
        return
    if line := _line_to(spot, x, y, radius):
        _leader(canvas, *line)
    weight, colour = ("bold", canvas.theme.ink) if bold else ("normal", canvas.colour_of(mark))
    canvas.write(spot.x, spot.y + below, text, on_paper=True, fontsize=size, fontweight=weight, color=colour, zorder=6)


def _line_to(spot: Spot, x: float, y: float, radius: float) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """The ends of the line from the edge of a marker to a text at a spot; None if the text is near."""
    nearest = spot.nearest_to(x, y)
    away = math.dist((x, y), nearest)
    if away <= radius + FAR:
        return None
    return (x + (nearest[0] - x) * radius / away, y + (nearest[1] - y) * radius / away), nearest


def _leader(canvas: Canvas, start: tuple[float, float], end: tuple[float, float]) -> None:
    from matplotlib.lines import Line2D

    canvas.figure.add_artist(
        Line2D(
            [start[0], end[0]],
            [start[1], end[1]],
            transform=canvas.points,
            color=canvas.theme.quiet,
            linewidth=0.5,
            zorder=5.5,
        )
    )


# ---------------------------------------------------------------------------------------------------------- arrows


def draw_arrows(canvas: Canvas) -> None:
    """Draw arrows from each mark to its counterpart in the next run, from edge to edge of their markers."""
    from matplotlib.patches import FancyArrowPatch

    marks = canvas.scene.marks
    for arrow in canvas.scene.arrows:
        start, end = marks[arrow.start], marks[arrow.end]
        ends = [canvas.frame.at(mark.places[0].intensity, mark.flops_per_s) for mark in (start, end)]
        radii = [canvas.radius(mark.weight) for mark in (start, end)]
        if math.dist(*ends) < sum(radii) + 4:
            continue
        canvas.figure.add_artist(
            FancyArrowPatch(
                *ends,
                transform=canvas.points,
                arrowstyle="-|>,head_length=3.4,head_width=1.9",
                connectionstyle="arc3,rad=0.08",
                shrinkA=radii[0] + 1.2,
                shrinkB=radii[1] + 1.2,
                color=canvas.theme.quiet,
                linewidth=0.9,
                alpha=0.9,
                zorder=4.5,
            )
        )
        canvas.room.take_line(ends)
