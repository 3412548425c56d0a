"""One kernel over the runs of a history as a picture: its time with the spread of each level, counts, and changes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
from ncu_parsers.schema.tables import Floats

from ncu_tools.history.causes import HistoryChange
from ncu_tools.history.change_points import spread_of
from ncu_tools.history.quantities import CODE, CYCLES, MACHINE, METHOD, NOISE, TIME, UNKNOWN, quantities
from ncu_tools.history.series import History
from ncu_tools.kernels.names.distinct_names import fitted_names
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.numbers.number_format import FORMATS
from ncu_tools.report.pictures import drawing, picture_bytes
from ncu_tools.report.plot.theme import LIGHT
from ncu_tools.report.table import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, PANEL = 8.0, 1.7
"""Width of the picture and height of a panel in inches; the panel of times is twice as high."""
MOST_COUNTS, SHORT_COMMIT, LONGEST_NAME = 3, 9, 18
LETTERS_OF_TITLE, TICKS_PER_INCH = 12, 1.75
"""Letters of the title, and names of runs on the axis, per inch."""
LETTER, ROW = 4.4, 10.0
"""Largest width of a letter in the label of a change, and height of a row of labels, in points."""
BELOW_ZERO = 0.03
"""Part of a panel's height that lies below zero at most: no quantity is negative."""
SPREADS = 2.0
"""Half-width of a band in spreads: about 95 of 100 runs of a level lie inside."""
COLOURS = {
    CODE: LIGHT.series[1], METHOD: LIGHT.series[3], MACHINE: LIGHT.series[2],
    NOISE: LIGHT.series[7], UNKNOWN: LIGHT.series[7],
}  # fmt: skip


def draw_history(
    history: History,
    series: int,
    changes: Sequence[HistoryChange],
    file_format: str,
    size: tuple[float, float] | None = None,
) -> bytes:
    """The picture of a series as bytes of `file_format` (svg, png or pdf); `changes` of other series are left out.

    `size` is its width and height in inches; by default it is as high as its panels need.
    """
    own = [one for one in changes if one.series == series]
    shown = _quantities(history, series, own)
    name = readable_name(history.names[series])
    with drawing(**{"font.size": 8}):
        from matplotlib.figure import Figure

        heights = [2.0 if one in (TIME, CYCLES) else 1.0 for one in shown]
        size = size or (WIDTH, PANEL * sum(heights) + 0.7)
        figure = Figure(figsize=size)
        figure.set_layout_engine("constrained")
        panels = list(figure.subplots(len(shown), 1, squeeze=False, sharex=True, height_ratios=heights).flat)
        for panel, quantity in zip(panels, shown, strict=True):
            _draw(panel, history, series, quantity, own, size[0])
        _ticks(panels[-1], history, int(TICKS_PER_INCH * size[0]))
        devices = list(dict.fromkeys(one.devices for one in history.facts if one.devices))
        title = printable(", ".join([name, *devices[:1]] if len(devices) == 1 else [name]))
        figure.suptitle(fill(title, int(LETTERS_OF_TITLE * size[0])), fontsize=10, x=0.01, ha="left", parse_math=False)
        return picture_bytes(figure, file_format, title=title, dpi=150)


def _quantities(history: History, series: int, changes: Sequence[HistoryChange]) -> list[str]:
    """The quantities to draw: the time or other noisy ones, and the counts of the series that changed."""
    known = [name for name in (TIME, CYCLES) if not np.isnan(history.values(name)[:, series]).all()]
    moved = dict.fromkeys(one.quantity for one in changes if quantities()[one.quantity].exact)
    return [*known[:1], *list(moved)[:MOST_COUNTS]] or ["launches"]


def _draw(
    panel: Axes, history: History, series: int, quantity: str, changes: Sequence[HistoryChange], width: float
) -> None:
    known = quantities()[quantity]
    values = history.values(quantity)[:, series]
    runs = np.arange(len(values))
    own = [one for one in changes if one.quantity == quantity]
    if known.exact:
        panel.step(runs, values, where="mid", color=LIGHT.series[0], linewidth=1.2)
    else:
        _bands(panel, values, own)
        panel.plot(runs, values, "o", markersize=3, color=LIGHT.series[0])
    _mark(panel, own, len(values), width)
    panel.set_title(known.title, loc="left", fontsize=9, parse_math=False)
    panel.grid(True, which="major", color=LIGHT.grid, linewidth=0.7)
    panel.set_axisbelow(True)
    panel.margins(y=0.25)
    low, high = panel.get_ylim()
    panel.set_ylim(bottom=max(low, -BELOW_ZERO * high))
    whole = known.kind == "count"
    if whole:
        from matplotlib.ticker import MaxNLocator

        panel.yaxis.set_major_locator(MaxNLocator(5, integer=True))  # otherwise 3.5 launches are written as 3
    panel.yaxis.set_major_formatter(lambda value, _: FORMATS[known.kind](int(value) if whole else value))


def _mark(panel: Axes, changes: Sequence[HistoryChange], runs: int, width: float) -> None:
    """Draw a line at each change with its cause and growth, in as many rows as keep labels apart; `width` in inches."""
    taken = dict[int, float]()
    letter = LETTER * runs / (72 * width)
    for one in sorted(changes, key=lambda one: one.run):
        colour = COLOURS[one.cause]
        panel.axvline(one.run - 0.5, color=colour, linewidth=1.0, linestyle="--")
        if one.drift:
            panel.axvspan(one.run - 0.5, one.end + 0.5, color=colour, alpha=0.1, linewidth=0)
        words = f" {one.cause}: {one.growth_in_words} "
        begin, wide = one.run - 0.5, letter * len(words)
        is_last = begin + wide > runs - 0.3  # at the right edge labels stand left of their line
        begin -= wide * is_last
        row = next(row for row in range(len(changes)) if taken.get(row, -1.0) <= begin or row + 1 == len(changes))
        taken[row] = begin + wide
        panel.text(
            one.run - 0.5, 0.98 - row * ROW / (72 * PANEL), words, color=colour, fontsize=7, va="top", zorder=5,
            ha="right" if is_last else "left", transform=panel.get_xaxis_transform(), parse_math=False,
            bbox={"facecolor": LIGHT.paper, "edgecolor": "none", "alpha": 0.8, "pad": 0.2},
        )  # fmt: skip


def _bands(panel: Axes, values: Floats, changes: Sequence[HistoryChange]) -> None:
    """Draw the level between two changes with the band in which its runs scatter; none along a drift."""
    edges = [0, *(edge for one in changes for edge in ((one.run, one.end) if one.drift else (one.run,))), len(values)]
    drifts = {one.run for one in changes if one.drift}
    for low, high in pairwise(edges):
        part = values[low:high]
        part = part[~np.isnan(part) & (part > 0)]
        if low in drifts or not len(part):
            continue
        level, spread = float(np.median(part)), spread_of(np.log(part))
        across = [low - 0.5, high - 0.5]
        panel.plot(across, [level, level], color=LIGHT.quiet, linewidth=1.0)
        ends = [level * np.exp(sign * SPREADS * spread) for sign in (-1, 1)]
        panel.fill_between(across, *ends, color=LIGHT.series[0], alpha=0.12, linewidth=0)


def _ticks(panel: Axes, history: History, most: int) -> None:
    """Label at most `most` places with commits, or else names of runs."""
    every = max(1, -(-len(history.runs) // most))
    places = list(range(0, len(history.runs), every))
    commits = [(history.facts[place].commit or "")[:SHORT_COMMIT] for place in places]
    names = fitted_names([history.runs[place] for place in places], LONGEST_NAME)
    texts = [commit or names[history.runs[place]] for commit, place in zip(commits, places, strict=True)]
    panel.set_xticks(places, [printable(text) for text in texts], rotation=30, ha="right", parse_math=False)
    panel.set_xlim(-0.7, len(history.runs) - 0.3)
