"""The drawing surface of a roofline picture: the figure, its axes, and text placed in points of the page."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ncu_tools.kernels.names.distinct_names import fitted_names
from ncu_tools.report.plot.label_placement import Room
from ncu_tools.report.plot.page_size import Frame, PicturePage, frame_of
from ncu_tools.report.plot.theme import Theme
from ncu_tools.report.table import printable
from ncu_tools.roofline.mark_area import scale_of
from ncu_tools.roofline.scene import RUNS, DrawnCeiling, Mark, Scene

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SAME_AREA = {
    "s": math.pi / 4, "D": math.pi / 4, "^": math.pi / 2, "v": math.pi / 2,
    "P": 9 * math.pi / 20, "X": 2 * math.pi / 5, "*": 2.7986,
}  # fmt: skip
"""Factor on the squared size of a matplotlib marker that gives it the area of a circle of that diameter."""


class Canvas:
    """One picture while it is drawn. Positions of text are in points from the lower left corner of the page."""

    def __init__(self, scene: Scene, page: PicturePage, theme: Theme) -> None:
        from matplotlib.figure import Figure
        from matplotlib.transforms import Affine2D

        self.scene, self.page, self.theme = scene, page, theme
        self.figure: Figure = Figure(figsize=(page.width / 72, page.height / 72), facecolor=theme.paper)
        self.points = Affine2D().scale(1 / 72) + self.figure.dpi_scale_trans
        self.frame: Frame = frame_of(scene, page.plot)
        self.room = Room(page.plot)
        self.not_labelled: list[DrawnCeiling] = []
        self.axes: Axes = self._axes()
        self.marks = scale_of((mark.weight for mark in scene.marks), len(scene.levels))

    def _axes(self) -> Axes:
        box, page, theme = self.page.plot, self.page, self.theme
        axes: Axes = self.figure.add_axes(
            (box.left / page.width, box.bottom / page.height, box.width / page.width, box.height / page.height),
            facecolor=theme.paper,
        )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(*self.frame.x)
        axes.set_ylim(*self.frame.y)
        x_title = printable(self.scene.x_title)
        x_size = page.text * min(1.0, box.width / self.width_of(x_title, page.text))
        axes.set_xlabel(x_title, color=theme.ink, fontsize=x_size, parse_math=False)
        axes.set_ylabel(self.scene.rate_title, color=theme.ink, fontsize=page.text)
        axes.xaxis.set_major_formatter(lambda value, _: self._tick(value))
        axes.yaxis.set_major_formatter(lambda value, _: short_power(value))
        axes.grid(True, which="major", color=theme.grid, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.tick_params(which="both", color=theme.quiet, labelcolor=theme.ink, labelsize=page.text, width=0.6)
        axes.tick_params(which="minor", length=2)
        for name, side in axes.spines.items():
            side.set(color=theme.quiet, linewidth=0.8, visible=name in ("left", "bottom"))
        return axes

    def _tick(self, value: float) -> str:
        """A number below the horizontal axis; "" where it would be cut by the edge of the page."""
        text = f"{value:,.10g}"
        end = self.frame.at(value, self.frame.y[0])[0] + self.width_of(text, self.page.text) / 2
        return text if end <= self.page.width else ""

    @property
    def several_devices(self) -> bool:
        """True if colours distinguish devices."""
        return len({ceiling.device for ceiling in self.scene.roofs}) > 1

    @property
    def several_runs(self) -> bool:
        """True if colours distinguish runs, not compute units."""
        return len(self.scene.runs) > 1

    @property
    def models(self) -> list[str | None]:
        """The models of whole runs, if colours distinguish them because one has several runs; else []."""
        models = [run.model for run in self.scene.runs]
        if self.scene.view != RUNS or len(set(models)) == len(models) or models == [None] * len(models):
            return []
        return list(dict.fromkeys(models))

    @property
    def devices(self) -> list[str]:
        """The devices with ceilings: those of the runs first, in their order."""
        of_runs = [run.device for run in self.scene.runs if run.device]
        return list(dict.fromkeys([*of_runs, *(ceiling.device for ceiling in self.scene.roofs)]))

    def colour_of(self, mark: Mark) -> str:
        """The colour of a mark: of its model in a view of runs, of its run if there are several, else of its unit."""
        if self.models:
            return self.theme.of_series(self.models.index(self.scene.runs[mark.run].model))
        return self.theme.of_series(mark.run) if self.several_runs else self.theme.of_unit(mark.unit)

    def colour_of_ceiling(self, ceiling: DrawnCeiling) -> str:
        """Colour of a ceiling: of its device if there are several, of its unit if marks have unit colours, else ink."""
        devices = self.devices
        if self.several_devices:
            one_each = len({run.device for run in self.scene.runs}) == len(self.scene.runs)
            if one_each or not self.several_runs:
                return self.theme.of_series(devices.index(ceiling.device))
            return self.theme.quiet
        if ceiling.is_bandwidth:
            return self.theme.ink
        return self.theme.quiet if self.several_runs else self.theme.of_unit(ceiling.unit)

    def radius(self, weight: float) -> float:
        """The radius of a marker in points on this page."""
        return self.marks.radius(weight) * self.page.scale

    def width_of(self, text: str, size: float, *, bold: bool = False) -> float:
        """The width of a text in points."""
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import text_to_path

        font = FontProperties(size=size, weight="bold" if bold else "normal")
        return float(text_to_path.get_text_width_height_descent(text, font, False)[0])

    def fitted_name(self, name: str, size: float, width: float, others: Iterable[str]) -> str:
        """The name; if wider than `width`, cut where it differs from the `others`, preferably in the middle."""
        text = shown = printable(name)
        among, letters = [text, *map(printable, others)], len(text)
        while letters > 1 and (over := self.width_of(shown, size) - width) > 0:
            letters -= max(1, int(over / (0.9 * size)))
            shown = fitted_names(among, max(letters, 1))[text]
        return shown

    def fitted(self, text: str, size: float, width: float) -> str:
        """The text, cut at its end with an ellipsis if it is wider than `width`."""
        text = printable(text)
        if self.width_of(text, size) <= width:
            return text
        kept = len(text)
        while kept > 1 and self.width_of(text[:kept] + "…", size) > width:
            kept -= max(1, int((self.width_of(text[:kept] + "…", size) - width) / (0.9 * size)))
        return text[: max(kept, 1)].rstrip() + "…"

    def write(self, x: float, y: float, text: str, *, on_paper: bool = False, **look: Any) -> None:
        """Write a text from the start of its base line; `on_paper` fades its background."""
        settings: dict[str, Any] = {"fontsize": self.page.text, "color": self.theme.ink, "va": "baseline", **look}
        if on_paper:
            settings["bbox"] = {"facecolor": self.theme.paper, "edgecolor": "none", "alpha": 0.75, "pad": 0.4}
        self.figure.text(
            x, y, printable(text), transform=self.points, parse_math=False, rotation_mode="anchor", **settings
        )


def short_power(value: float) -> str:
    """A tick label of the vertical axis: 1e13 is "10 T"."""
    for step, prefix in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")):
        if value >= step:
            return f"{value / step:g} {prefix}"
    return f"{value:g}"
