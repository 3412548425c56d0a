"""A roofline as text, for a terminal or a text file: the picture's scene, in letters and braille dots.

Ceilings are lines of dots with their labels beside them; a mark is one character, 1 to 9 and then a to z, at each of
its memory levels; further marks are points. If a terminal cannot show braille, lines are made of "/" and "-".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import click

from ncu_tools.ceilings.ceilings import BOARD_LIMIT, unit_title
from ncu_tools.kernels.names.distinct_names import fitted_names
from ncu_tools.numbers.number_format import counted, percent
from ncu_tools.report.plot.canvas import short_power
from ncu_tools.report.plot.page_size import Box, Frame, frame_of
from ncu_tools.report.plot.roof_lines import ends
from ncu_tools.report.table import printable
from ncu_tools.roofline.scene import DrawnCeiling, Mark, Scene

SYMBOLS = "123456789abcdefghijklmnopqrstuvwxyz"
BRAILLE = 0x2800
DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""The bits of a braille character: of its left and its right column, each from the bottom."""
ACROSS, UP = 2, 4
"""Dots per character, horizontally and vertically."""
SHADES, PLAIN_SHADES = "░▒▓█", ".:+#"
GUTTER = 8
"""Columns left of the plot, for the values of the vertical axis."""
LEGEND = 12
"""Columns of the legend before the names."""
NARROWEST, WIDEST = 40, 120
COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red")
NEXT_TO = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))
"""Alternative cells for a mark if its own is taken: at most one character away."""

Cell = tuple[int, int]
"""Row from the bottom, column."""


def symbol_of(number: int) -> str | None:
    """The character of a mark by its index in `Scene.marks`; None for marks shown as points."""
    return SYMBOLS[number] if number < len(SYMBOLS) else None


@dataclass(frozen=True)
class TextStyle:
    """Format of a roofline: in at most `width` columns (40 to 120), in ASCII only if `plain`.

    `colour` uses the colours of a terminal. The first `numbered` marks are numbered; with `legend`, they are named
    below.
    """

    width: int = 80
    plain: bool = False
    colour: bool = False
    numbered: int = len(SYMBOLS)
    legend: bool = True


def text_picture(scene: Scene, style: TextStyle) -> str:
    """The roofline as lines of text."""
    sheet = _Sheet(scene, style)
    sheet.draw()
    above = [*filter(None, [scene.title]), scene.rate_title]
    below = [scene.x_title.rjust(sheet.width), *_below(sheet), *(_legend(sheet) if style.legend else ())]
    lines = [*map(sheet.fitted, above), *sheet.rows(), *sheet.axis(), *map(sheet.fitted, below)]
    return "\n".join(line.rstrip() for line in lines)


class _Sheet:
    """The plot while it is drawn: dots of lines, characters over them, and a colour for each cell."""

    def __init__(self, scene: Scene, style: TextStyle) -> None:
        self.scene, self.plain, self.colour = scene, style.plain, style.colour
        self.width = min(max(style.width, NARROWEST), WIDEST)
        self.columns, self.height = self.width - GUTTER, max(self.width // 4, 14)
        self.numbered = scene.marks[: min(style.numbered, len(SYMBOLS))]
        self.frame: Frame = frame_of(scene, Box(0, 0, ACROSS * self.columns - 1, UP * self.height - 1))
        self.dots: dict[Cell, int] = {}
        self.letters: dict[Cell, str] = {}
        self.colours: dict[Cell, str] = {}
        self.not_labelled: list[DrawnCeiling] = []
        self.hidden: list[str] = []
        self.series = list(dict.fromkeys(map(self._series, scene.marks)))

    def draw(self) -> None:
        """Draw lines, then marks, then labels where they cover neither."""
        for ceiling in self.scene.roofs:
            self._line(ceiling)
        if self.scene.density is not None:
            self._shade()
        if self.scene.density is None:
            for mark in self.scene.marks[len(self.numbered) :]:
                self._put(mark, "." if self.plain else "·")
        for symbol, mark in zip(SYMBOLS, self.numbered, strict=False):
            if not self._put(mark, symbol):
                self.hidden.append(symbol)
        for ceiling in sorted(self.scene.roofs, key=lambda one: (one.is_bandwidth, -one.value)):
            if not self._label(ceiling):
                self.not_labelled.append(ceiling)

    def cell(self, x: float, y: float) -> Cell:
        """The cell at a position in dots."""
        return int(y) // UP, int(x) // ACROSS

    def _series(self, mark: Mark) -> object:
        """The meaning of a mark's colour: its run if there are several, else its unit."""
        return mark.run if len(self.scene.runs) > 1 else mark.unit

    def _line(self, ceiling: DrawnCeiling) -> None:
        (x0, y0), (x1, y1) = (self.frame.at(*end) for end in ends(self.scene, self.frame, ceiling))
        steps = max(round(abs(x1 - x0)), round(abs(y1 - y0)), 1)
        gap = 3 if ceiling.sparse or ceiling.kind == BOARD_LIMIT else 1
        for step in range(0, steps + 1, gap):
            x, y = x0 + (x1 - x0) * step / steps, y0 + (y1 - y0) * step / steps
            row, column = self.cell(x, y)
            if 0 <= row < self.height and 0 <= column < self.columns:
                bit = DOTS[int(x) % ACROSS][int(y) % UP]
                if self.plain:
                    bit = self.dots.get((row, column)) or ord("/" if ceiling.is_bandwidth else "-")
                self.dots[row, column] = bit if self.plain else self.dots.get((row, column), 0) | bit

    def _shade(self) -> None:
        density = self.scene.density
        assert density is not None  # noqa: S101  the caller looked
        shades = PLAIN_SHADES if self.plain else SHADES
        counts: dict[Cell, int] = {}
        for column, row, launches in density.cells:
            x = density.x[0] + (column + 0.5) * (density.x[1] - density.x[0]) / density.columns
            y = density.y[0] + (row + 0.5) * (density.y[1] - density.y[0]) / density.rows
            cell = self.cell(*self.frame.at(10**x, 10**y))
            counts[cell] = counts.get(cell, 0) + launches
        most = math.log(max(counts.values(), default=1)) or 1.0
        for cell, launches in counts.items():
            self.letters[cell] = shades[round(math.log(launches) / most * (len(shades) - 1))]

    def _put(self, mark: Mark, symbol: str) -> bool:
        """Set the character of a mark at each of its levels; False if other marks surround one of them."""
        found = True
        for place in mark.places:
            row, column = self.cell(*self.frame.at(place.intensity, mark.flops_per_s))
            around = filter(self._is_inside, ((row + up, column + right) for right, up in NEXT_TO))
            free = next((one for one in around if self.letters.get(one, " ") not in SYMBOLS), None)
            if free is None:
                found = False
                continue
            self.letters[free] = symbol
            self.colours[free] = COLOURS[self.series.index(self._series(mark)) % len(COLOURS)]
        return found

    def _is_inside(self, cell: Cell) -> bool:
        return 0 <= cell[0] < self.height and 0 <= cell[1] < self.columns

    def _label(self, ceiling: DrawnCeiling) -> bool:
        """Write a ceiling's label in its line or beside it, over no mark and no other label; False without room."""
        text = f" {printable(ceiling.label)} "
        if not text.isascii() and self.plain:
            return False
        for row, column in self._spots(ceiling, len(text)):
            cells = [(row, column + place) for place in range(len(text))]
            in_line = not ceiling.is_bandwidth and row in self._rows_of_peaks()
            covered = self.letters if in_line else self.letters | self.dots
            if all(self._is_inside(one) and one not in covered for one in cells):
                self.letters |= dict(zip(cells, text, strict=True))
                return True
        return False

    def _spots(self, ceiling: DrawnCeiling, length: int) -> Iterator[Cell]:
        """Possible starts of a label: in the line of a peak from its right end on, beside a slope from its middle on.

        Above or below its line only if no other peak is next to it, so that the label is unambiguous.
        """
        first, last = (self.cell(*self.frame.at(*end)) for end in ends(self.scene, self.frame, ceiling))
        if not ceiling.is_bandwidth:
            near = {row + up for row in self._rows_of_peaks() - {last[0]} for up in (-1, 0, 1)}
            for row, leftmost in ((last[0], first[1] + 1), (last[0] + 1, 0), (last[0] - 1, 0)):
                if row != last[0] and row in near:
                    continue
                yield from ((row, column) for column in range(last[1] + 1 - length, leftmost - 1, -1))
            return
        middle = (first[0] + last[0]) // 2
        for row in sorted(range(first[0], last[0] + 1), key=lambda one: abs(one - middle)):
            on_it = [column for column in range(self.columns) if (row, column) in self.dots]
            if on_it:
                yield from ((row, min(on_it) - length), (row, max(on_it) + 1))

    def _rows_of_peaks(self) -> set[int]:
        peaks = (ceiling.value for ceiling in self.scene.roofs if not ceiling.is_bandwidth)
        return {self.cell(*self.frame.at(1.0, value))[0] for value in peaks}

    def rows(self) -> Iterator[str]:
        """The lines of the plot from the top, each after its part of the vertical axis."""
        ticks = {self.cell(0, self.frame.at(1.0, 10.0**power)[1])[0]: 10.0**power for power in _powers(self.frame.y)}
        for row in reversed(range(self.height)):
            value = short_power(ticks[row]) if row in ticks else ""
            edge = ("+" if value else "|") if self.plain else ("┤" if value else "│")
            yield f"{value:>{GUTTER - 2}} {edge}" + "".join(self._letter((row, at)) for at in range(self.columns))

    def _letter(self, cell: Cell) -> str:
        dots = self.dots.get(cell, 0)
        letter = self.letters.get(cell) or (chr(dots if self.plain else BRAILLE + dots) if dots else " ")
        return click.style(letter, fg=self.colours[cell], bold=True) if self.colour and cell in self.colours else letter

    def axis(self) -> Iterator[str]:
        """The horizontal axis and the values under it."""
        ticks = {self.cell(self.frame.at(10.0**power, 1.0)[0], 0)[1]: 10.0**power for power in _powers(self.frame.x)}
        corner, line, tick = "+-+" if self.plain else "└─┬"
        yield " " * (GUTTER - 1) + corner + "".join(tick if at in ticks else line for at in range(self.columns))
        values = [" "] * (self.width + 1)
        for column, value in sorted(ticks.items()):
            text = f"{value:,.10g}"
            start = min(GUTTER + column - len(text) // 2, self.width - len(text))
            if values[max(start - 1, 0) : start + len(text)] == [" "] * (len(text) + 1):
                values[start : start + len(text)] = text
        yield "".join(values)

    def fitted(self, line: str) -> str:
        """A line cut to the width, and to ASCII if requested."""
        line = printable(line)
        if self.plain:
            line = line.replace("…", "~").encode("ascii", "replace").decode()
        return line if len(line) <= self.width else line[: self.width - 1] + ("~" if self.plain else "…")


def _powers(ends_of_axis: tuple[float, float]) -> range:
    """The powers of ten on an axis."""
    low, high = map(math.log10, ends_of_axis)
    return range(math.ceil(low), math.floor(high) + 1)


def _below(sheet: _Sheet) -> Iterator[str]:
    """Content without room in the plot: labels, covered marks, levels, arrows."""
    scene = sheet.scene
    for ceiling in sheet.not_labelled:
        yield f"roof: {ceiling.label}"
    if len(scene.levels) > 1:
        yield f"each number stands once for each level: {', '.join(map(unit_title, scene.levels))}"
    if sheet.hidden:
        yield f"under other marks: {', '.join(sheet.hidden)}"
    if scene.arrows:
        pairs = [(symbol_of(arrow.start) or ".", symbol_of(arrow.end) or ".") for arrow in scene.arrows]
        yield f"arrows: {', '.join('->'.join(pair) for pair in pairs)}"


def _legend(sheet: _Sheet) -> Iterator[str]:
    names = [printable(_name_in_legend(sheet.scene, mark)) for mark in sheet.numbered]
    fitted = fitted_names(names, sheet.width - LEGEND)
    for symbol, mark, name in zip(SYMBOLS, sheet.numbered, names, strict=False):
        share = percent(mark.time_share) if mark.time_share is not None else ""
        yield f"{symbol} {share:>8}  {fitted[name]}"
    more = len(sheet.scene.marks) - len(sheet.numbered)
    if more:
        yield f"{counted(more, 'more mark is a point', 'more marks are points')}"


def _name_in_legend(scene: Scene, mark: Mark) -> str:
    """A mark's short name, and its run if there are several."""
    run = scene.runs[mark.run].label
    return f"{mark.label}, {run}" if len(scene.runs) > 1 and run != mark.label else mark.label
