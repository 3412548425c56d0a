"""The page of a roofline picture: its size, the areas of plot and listing, and positions of values in the plot.

Everything is in points (1/72 inch) from the lower left corner, and known before anything is drawn.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ncu_launch.errors import WrongUsage

from ncu_tools.roofline.scene import Scene

SIZES = {"screen": (11.0, 6.2), "slide": (13.33, 7.5), "page": (7.16, 4.6), "column": (3.5, 4.9)}
"""Width and height in inches: a screen, a 16:9 slide, the full width of a two-column paper, one column of it."""

SMALLEST, LARGEST = 2.5, 50.0
LINE = 1.62
"""Line spacing of the listing, in font sizes."""

LINES_UNDER = 15
NARROW = 5.2
"""Below this width in inches the listing is under the plot, not beside it."""


def size_of(text: str) -> tuple[float, float]:
    """Width and height in inches of a name in `SIZES`, or of WIDTHxHEIGHT in inches, or in cm with the suffix cm.

    Raises `WrongUsage` for anything else, and for sides that are too small or too large.
    """
    if text in SIZES:
        return SIZES[text]
    match = re.fullmatch(r"(\d+(?:\.\d+)?)x(\d+(?:\.\d+)?)(cm)?", text.strip().lower())
    if not match:
        raise WrongUsage(
            f"{text} is no size of a picture.",
            advice=f"Say {', '.join(SIZES)}, or inches as 8x5, or centimetres as 18x12cm.",
        )
    width, height = (float(number) / (2.54 if match[3] else 1.0) for number in match.groups()[:2])
    if not (SMALLEST <= width <= LARGEST and SMALLEST <= height <= LARGEST):
        raise WrongUsage(
            f"A picture of {width:.1f} x {height:.1f} inches cannot be drawn.",
            advice=f"Each side is at least {SMALLEST} and at most {LARGEST:g} inches.",
        )
    return width, height


@dataclass(frozen=True)
class Box:
    """A rectangle in points."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def width(self) -> float:
        """The extent from left to right."""
        return self.right - self.left

    @property
    def height(self) -> float:
        """The extent from bottom to top."""
        return self.top - self.bottom


@dataclass(frozen=True)
class PicturePage:
    """A page in points: the plot, the listing beside or under it, and the font size."""

    width: float
    height: float
    plot: Box
    listing: Box
    text: float

    @property
    def is_narrow(self) -> bool:
        """True if the listing is under the plot."""
        return self.listing.top <= self.plot.bottom

    @property
    def small(self) -> float:
        """The font size of less important text."""
        return max(self.text - 1.2, 5.0)

    @property
    def scale(self) -> float:
        """The scale of markers, 1 on the page of a screen."""
        return min(1.3, max(0.45, self.plot.width / 540))


def page_of(size: tuple[float, float], *, titled: bool, lines: int = LINES_UNDER) -> PicturePage:
    """The layout of a page of `size` inches, with room for a title if `titled`.

    `lines` is the number of lines of the listing under the plot; it gets at most two fifths of the page.
    """
    width, height = (72 * side for side in size)
    text = 9.0 if size[0] >= 10 else 8.0 if size[0] >= 8.5 else 7.0 if size[0] >= NARROW else 6.2
    left, bottom, top = 7.6 * text, 4.4 * text, height - (2.6 * text if titled else 0.9 * text)
    if size[0] < NARROW:
        under = min(0.4 * height, (LINE * lines + 1.5) * text)
        plot = Box(left, under + bottom, width - 0.8 * text, top)
        return PicturePage(width, height, plot, Box(0.8 * text, 0.8 * text, width - 0.8 * text, under), text)
    beside = min(max(0.255 * width, 15.5 * text), 28 * text)
    plot = Box(left, bottom, width - beside - 2.2 * text, top)
    return PicturePage(width, height, plot, Box(width - beside - 0.8 * text, 0.8 * text, width - 0.8 * text, top), text)


@dataclass(frozen=True)
class Frame:
    """Logarithmic axes on the page: their ends in FLOP/B and FLOP/s, and the box they fill."""

    x: tuple[float, float]
    y: tuple[float, float]
    box: Box

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The position of a value on the page, in points."""
        return (
            self.box.left + self.box.width * _part(x, self.x),
            self.box.bottom + self.box.height * _part(y, self.y),
        )

    @property
    def slope(self) -> float:
        """The angle in degrees of a bandwidth: a line of slope one in both logarithms."""
        (x0, y0), (x1, y1) = self.at(1.0, 1e12), self.at(10.0, 1e13)
        return math.degrees(math.atan2(y1 - y0, x1 - x0))


def _part(value: float, ends: tuple[float, float]) -> float:
    low, high = (math.log10(end) for end in ends)
    return (math.log10(value) - low) / (high - low)


def frame_of(scene: Scene, box: Box) -> Frame:
    """Axes that include every mark, every ridge point, and a part of every ceiling."""
    xs = [place.intensity for mark in scene.marks for place in mark.places]
    ys = [mark.flops_per_s for mark in scene.marks]
    if scene.density is not None:
        xs += [10**end for end in scene.density.x]
        ys += [10**end for end in scene.density.y]
    meetings = _meetings(scene)
    peaks = [ceiling.value for ceiling in scene.roofs if not ceiling.is_bandwidth]
    slopes = [ceiling.value for ceiling in scene.roofs if ceiling.is_bandwidth]
    all_xs, all_ys = [*xs, *meetings] or [0.1, 100.0], [*ys, *peaks] or [1e9, 1e13]
    x = (min(min(all_xs) / 3, 0.1), max(max(all_xs) * 5, max(meetings, default=0.0) * 20, 100.0))
    if not xs and meetings:  # bare ceilings: equal parts of slopes and peaks
        x = (min(meetings) / 30, max(meetings) * 30)
    lowest = min(all_ys) if ys else min([*all_ys, *(slope * x[0] * 2 for slope in slopes)])
    highest = max(all_ys)
    reached = [slope * x[0] for slope in slopes]
    if ys and reached:
        lowest = min(lowest, max(min(reached), lowest / 30))
    return Frame(x, (lowest / 2.5, highest * 2.5), box)


def _meetings(scene: Scene) -> Sequence[float]:
    """The intensities at which the bandwidths of each device meet its lowest and its highest peak."""
    found = []
    for device in {ceiling.device for ceiling in scene.roofs}:
        own = [ceiling for ceiling in scene.roofs if ceiling.device == device]
        peaks = [ceiling.value for ceiling in own if not ceiling.is_bandwidth]
        slopes = [ceiling.value for ceiling in own if ceiling.is_bandwidth]
        found += [peak / slope for slope in slopes for peak in (min(peaks), max(peaks))] if peaks else []
    return found
