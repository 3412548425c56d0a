"""Quantities of points against one of them as a picture: a panel for each quantity, a line for each series."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from ncu_tools.bench.point_series import PointSeries, SeriesQuantity
from ncu_tools.numbers.number_format import FORMATS
from ncu_tools.report.pictures import drawing, picture_bytes
from ncu_tools.report.plot.theme import LIGHT, RUN_MARKERS
from ncu_tools.report.table import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOG_FROM = 10.0
"""Ratio of the greatest to the least value above which an axis is logarithmic."""
DECADES = 1000.0
"""The same ratio below which such an axis has ticks between its powers of ten."""
MOST_TICKS = 12
WIDTH, PANEL, LEGEND_LINE = 6.4, 2.6, 0.17
"""Sizes in inches: width of the picture, height of a panel, height of a line of the legend."""
LETTERS_OF_TITLE, LETTERS_OF_PANEL, LETTERS_OF_LEGEND = 12, 14, 17
"""Letters per inch in the title, in a panel and in the legend."""
TICKS = 0.9
"""Width of the labels of the vertical axis, in inches."""

Row = dict[str, Any]


def draw_series(
    series: PointSeries, file_format: str, *, title: str | None = None, size: tuple[float, float] | None = None
) -> bytes | None:
    """The picture as bytes of `file_format` (svg, png or pdf); None if no point has both quantities.

    Its title is by default what all points have in common; an empty one leaves it out. `size` is its width and height
    in inches; by default it is as high as its panels and legend need.
    """
    lines = {
        words: rows
        for words, rows in series.lines().items()
        if any(row[y.name] is not None for row in rows for y in series.ys)
    }
    title = printable(", ".join(series.alike) if title is None else title)
    drawn = [y for y in series.ys if any(row[y.name] is not None for rows in lines.values() for row in rows)]
    if not drawn:
        return None
    with drawing(**{"font.size": 8}):
        from matplotlib.figure import Figure

        size = size or (WIDTH, PANEL * len(drawn) + LEGEND_LINE * len(lines) + 0.4)
        figure = Figure(figsize=size)
        figure.set_layout_engine("constrained")
        if title:
            shown = fill(title, int(LETTERS_OF_TITLE * size[0]))
            figure.suptitle(shown, fontsize=10, x=0.01, ha="left", parse_math=False)
        panels = list(figure.subplots(len(drawn), 1, squeeze=False, sharex=True).flat)
        for panel, y in zip(panels, drawn, strict=True):
            _panel(panel, series.x, y, lines, int(LETTERS_OF_PANEL * (size[0] - TICKS)))
        panels[-1].set_xlabel(printable(series.x.title), parse_math=False)
        if len(lines) > 1:
            handles, labels = panels[0].get_legend_handles_labels()
            labels = [fill(label, int(LETTERS_OF_LEGEND * size[0])) for label in labels]
            figure.legend(handles, labels, loc="outside lower left", fontsize=7, frameon=False)
        return picture_bytes(figure, file_format, title=title, dpi=150)


def _panel(panel: Axes, x: SeriesQuantity, y: SeriesQuantity, lines: dict[str, list[Row]], letters: int) -> None:
    """Draw a quantity; `letters` fit in a line of its title."""
    places = _places(x, lines.values())
    for number, (words, rows) in enumerate(lines.items()):
        known = [row for row in rows if row[y.name] is not None]
        look: dict[str, Any] = {
            "color": LIGHT.of_series(number),
            "marker": RUN_MARKERS[number // len(LIGHT.series) % len(RUN_MARKERS)],
        }
        across = [places[row[x.name]] for row in known]
        panel.plot(across, [row[y.name] for row in known], markersize=4, linewidth=1.2, label=printable(words), **look)
        if y.column == "latency_mean_ns":
            _intervals(panel, across, known, look["color"])
    panel.set_title(fill(printable(y.title), letters), loc="left", fontsize=9, parse_math=False)
    panel.grid(True, which="major", color=LIGHT.grid, linewidth=0.7)
    panel.set_axisbelow(True)
    values = [row[y.name] for rows in lines.values() for row in rows if row[y.name] is not None]
    if is_logarithmic(values):
        from matplotlib.ticker import LogLocator

        panel.set_yscale("log")
        if max(values) < DECADES * min(values):
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(lambda value, _: FORMATS[y.kind](value))
    panel.yaxis.set_minor_formatter(lambda value, _: "")
    if x.kind != "text" and is_logarithmic(places):
        panel.set_xscale("log")
        panel.xaxis.set_minor_formatter(lambda value, _: "")
    if x.kind == "text" or len(places) <= MOST_TICKS:
        texts = [str(value) if x.kind == "text" else FORMATS[x.kind](value) for value in places]
        panel.set_xticks(list(places.values()), [printable(text) for text in texts])
    else:
        panel.xaxis.set_major_formatter(lambda value, _: FORMATS[x.kind](value))


def _intervals(panel: Axes, across: Sequence[float], rows: Sequence[Row], colour: str) -> None:
    """The 95 % intervals of mean latencies, if known."""
    for place, row in zip(across, rows, strict=True):
        if row["latency_low_ns"] is not None and row["latency_high_ns"] is not None:
            panel.plot([place, place], [row["latency_low_ns"], row["latency_high_ns"]], linewidth=0.8, color=colour)


def _places(x: SeriesQuantity, lines: Iterable[Sequence[Row]]) -> dict[Any, float]:
    """Positions of the values of x: numbers at their value, texts one after the other."""
    values = dict.fromkeys(row[x.name] for rows in lines for row in rows)
    if x.kind == "text":
        return {value: float(place) for place, value in enumerate(values)}
    return {value: float(value) for value in sorted(values)}


def is_logarithmic(values: Iterable[float | None]) -> bool:
    """True if all values are positive and the greatest is at least `LOG_FROM` times the least."""
    known = [value for value in values if value is not None]
    return bool(known) and min(known) > 0 and max(known) >= LOG_FROM * min(known)
