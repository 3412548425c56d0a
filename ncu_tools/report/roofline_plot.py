"""A roofline as a picture: logarithmic axes, ceilings, ridge points, one marker per kernel sized by its time.

Kernels are numbered by time and listed beside the plot, so that 300 of them stay legible: the hottest carry their
number, the others are drawn small and counted. Colours are those of Okabe and Ito, told apart by colour-blind readers.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ncu_tools.ceilings import Ceiling, unit_title
from ncu_tools.report.table import printable
from ncu_tools.report.units import digits
from ncu_tools.roofline import Point, Roofline, ceiling_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

FORMATS = ("svg", "png", "pdf")
NUMBERED = 12
DENSE_FROM = 10_000
VECTOR_UP_TO = 2_000

UNIT_COLOURS = {
    "fp64": "#D55E00",
    "fp32": "#0072B2",
    "fp16": "#56B4E9",
    "tensor_fp64": "#CC79A7",
    "tensor_tf32": "#E69F00",
    "tensor_bf16": "#009E73",
    "tensor_fp16": "#009E73",
    "tensor_fp8": "#F0E442",
}
OTHER_COLOUR = "#777777"
RUN_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINE_STYLES = ("-", "--", "-.", ":")


def draw(roofline: Roofline, file_format: str, *, title: str = "") -> bytes:
    """The picture as bytes of `file_format`, one of `FORMATS`."""
    import matplotlib

    matplotlib.use("Agg")
    with matplotlib.rc_context({"svg.hashsalt": "ncu-bench", "svg.fonttype": "path", "font.size": 9}):
        figure = _figure(roofline, title)
        out = io.BytesIO()
        metadata: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(file_format, {})
        figure.savefig(out, format=file_format, dpi=150, metadata=metadata)
    return out.getvalue()


def _figure(roofline: Roofline, title: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.2), layout="constrained")
    plot, listing = figure.subplots(1, 2, width_ratios=(3.1, 1.25))
    points = sorted(roofline.drawable, key=lambda point: -(point.hotspot.time_share or 0.0))
    x_range, y_range = _ranges(points, roofline)
    plot.set_xscale("log")
    plot.set_yscale("log")
    plot.set_xlim(*x_range)
    plot.set_ylim(*y_range)
    plot.set_xlabel(f"arithmetic intensity (FLOP per {roofline.bytes_title})")
    plot.set_ylabel("achieved FLOP/s")
    plot.yaxis.set_major_formatter(lambda value, _: _power(value))
    plot.grid(True, which="major", color="#dddddd", linewidth=0.6)
    plot.set_axisbelow(True)
    if title:
        plot.set_title(printable(title), loc="left", fontsize=10, parse_math=False)
    slanted = _draw_ceilings(plot, roofline, x_range, y_range)
    _draw_points(plot, points)
    _draw_listing(listing, points, roofline)
    figure.draw_without_rendering()  # only now is it known where the axes lie on the page
    _lean(plot, slanted)
    if len(points) <= DENSE_FROM:
        _number(plot, points[:NUMBERED])
    return figure


def _lean(plot: Axes, slanted: Sequence[Text]) -> None:
    """Turn the labels of slanted ceilings to the slope that a line of slope one has on the page."""
    (x0, y0), (x1, y1) = plot.transData.transform([(1.0, 1e12), (10.0, 1e13)])
    for text in slanted:
        text.set_rotation(math.degrees(math.atan2(y1 - y0, x1 - x0)))


def _power(value: float) -> str:
    for step, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")):
        if value >= step:
            return f"{value / step:g} {prefix}FLOP/s"
    return f"{value:g} FLOP/s"


def _ranges(points: Sequence[Point], roofline: Roofline) -> tuple[tuple[float, float], tuple[float, float]]:
    """Axis limits that hold every point, every ridge and a stretch of every ceiling."""
    xs = [point.place[0] for point in points] + [ridge.intensity for ridge in roofline.ridges]
    ys = [point.place[1] for point in points]
    ys += [ceiling.value for ceiling in roofline.ceilings if not ceiling.is_bandwidth]
    xs, ys = xs or [0.1, 100.0], ys or [1e9, 1e13]
    farthest = max((ridge.intensity for ridge in roofline.ridges), default=0.0)
    x_range = (min(min(xs) / 2.5, 0.1), max(max(xs) * 4, farthest * 20, 100.0))
    slopes = [ceiling.value * x_range[0] for ceiling in roofline.ceilings if ceiling.is_bandwidth]
    lowest = min([*ys, *slopes]) if not points else min(min(ys), max(slopes, default=min(ys)))
    return x_range, (lowest / 1.8, max(ys) * 3)


# ------------------------------------------------------------------------------------------------------- ceilings


def _draw_ceilings(
    plot: Axes, roofline: Roofline, x_range: tuple[float, float], y_range: tuple[float, float]
) -> list[Text]:
    """Draw every ceiling and ridge point; returns the labels that have yet to be turned."""
    devices = list(dict.fromkeys(ceiling.device for ceiling in roofline.ceilings))
    ordered = sorted(roofline.ceilings, key=lambda ceiling: ceiling.value)
    bandwidths = [ceiling for ceiling in ordered if ceiling.is_bandwidth]
    peaks = _merged([ceiling for ceiling in ordered if not ceiling.is_bandwidth])
    ridge_of = {(ridge.device, ridge.unit): ridge.intensity for ridge in roofline.ridges}

    def style(ceiling: Ceiling) -> str:
        return LINE_STYLES[devices.index(ceiling.device) % len(LINE_STYLES)]

    slanted = []
    for place, ceiling in enumerate(bandwidths):
        ends = [ridge.intensity for ridge in roofline.ridges if ridge.device == ceiling.device]
        span = (x_range[0], max(ends, default=x_range[1]))
        label = printable(ceiling_label(ceiling, len(devices)))
        slanted.append(_draw_bandwidth(plot, ceiling, span, y_range, style(ceiling), label, place))
    for place, (ceiling, titles) in enumerate(peaks):
        label = printable(ceiling_label(ceiling, len(devices), titles))
        room = [abs(math.log10(other.value / ceiling.value)) for other, _ in peaks[place + 1 :]]
        span = (ridge_of.get((ceiling.device, ceiling.unit), x_range[0]), x_range[1])
        _draw_peak(
            plot, ceiling, span, style(ceiling), label, below=min(room, default=1.0) < LABEL_DECADES, place=place
        )
    _draw_ridges(plot, roofline)
    return slanted


def _merged(peaks: Sequence[Ceiling]) -> list[tuple[Ceiling, str]]:
    """Peaks of one device that lie on each other as one, with all their titles."""
    result: list[tuple[Ceiling, list[str]]] = []
    for peak in peaks:
        for known, titles in result:
            if known.device == peak.device and abs(peak.value / known.value - 1) < 0.01:
                titles.append(unit_title(peak.unit))
                break
        else:
            result.append((peak, [unit_title(peak.unit)]))
    return [(peak, " = ".join(titles)) for peak, titles in result]


LABEL_DECADES = 0.13
"""How much of a decade a line of text takes on the vertical axis, roughly."""


def _draw_bandwidth(
    plot: Axes,
    ceiling: Ceiling,
    span: tuple[float, float],
    y_range: tuple[float, float],
    style: str,
    label: str,
    place: int,
) -> Text:
    plot.plot(span, [x * ceiling.value for x in span], style, color="#222222", linewidth=1.3, zorder=2)
    start = max(span[0], y_range[0] / ceiling.value) * 1.25 * 4.0 ** (place % 3)
    return plot.text(
        start, start * ceiling.value * 1.1, label, rotation_mode="anchor", fontsize=8, color="#222222", zorder=5,
        parse_math=False, bbox=LABEL_BOX, clip_on=True,
    )  # fmt: skip


LABEL_BOX = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5}


def _draw_peak(
    plot: Axes, ceiling: Ceiling, span: tuple[float, float], style: str, label: str, *, below: bool, place: int
) -> None:
    """A flat line with its label at the right end: above it, or, where the next line is near, below and staggered."""
    colour = UNIT_COLOURS.get(ceiling.unit, OTHER_COLOUR)
    plot.plot(span, [ceiling.value, ceiling.value], style, color=colour, linewidth=1.3, zorder=2)
    plot.annotate(
        label, (span[1], ceiling.value), xytext=(-3 - 165 * (place % 2) * below, -10 if below else 3),
        textcoords="offset points", ha="right", fontsize=8, color="#8a8000" if colour == "#F0E442" else colour,
        parse_math=False, zorder=5, bbox=LABEL_BOX,
    )  # fmt: skip


def _draw_ridges(plot: Axes, roofline: Roofline) -> None:
    """Ticks at the ridge points; of those that would lie on each other only the first has its number."""
    labelled: list[tuple[float, float]] = []
    for ridge in sorted(roofline.ridges, key=lambda ridge: ridge.intensity):
        plot.plot([ridge.intensity], [ridge.value], marker="|", markersize=9, color="#444444", zorder=2)
        near = any(
            abs(math.log10(ridge.intensity / x)) < 0.2 and abs(math.log10(ridge.value / y)) < LABEL_DECADES
            for x, y in labelled
        )
        if not near:
            labelled.append((ridge.intensity, ridge.value))
            plot.annotate(
                f"{digits(ridge.intensity)} FLOP/B", (ridge.intensity, ridge.value), xytext=(-4, 4),
                textcoords="offset points", ha="right", fontsize=7, color="#444444", zorder=5, bbox=LABEL_BOX,
            )  # fmt: skip


# --------------------------------------------------------------------------------------------------------- points


def _draw_points(plot: Axes, points: Sequence[Point]) -> None:
    if len(points) > DENSE_FROM:
        xs, ys = zip(*(point.place for point in points), strict=True)
        plot.hexbin(xs, ys, xscale="log", yscale="log", gridsize=80, mincnt=1, bins="log", cmap="viridis", zorder=3)
        return
    runs = list(dict.fromkeys(point.run for point in points))
    kinds = dict.fromkeys((point.run, point.hotspot.unit, point.hotspot.flops_lower_bound) for point in points)
    for run, unit, lower_bound in kinds:
        some = [
            point
            for point in points
            if (point.run, point.hotspot.unit, point.hotspot.flops_lower_bound) == (run, unit, lower_bound)
        ]
        colour = UNIT_COLOURS.get(unit or "", OTHER_COLOUR)
        plot.scatter(
            [point.place[0] for point in some],
            [point.place[1] for point in some],
            s=[marker_area(point.hotspot.time_share or 0.0) for point in some],
            marker=RUN_MARKERS[runs.index(run) % len(RUN_MARKERS)],
            facecolors="none" if lower_bound else colour,
            edgecolors=colour if lower_bound else "white",
            linewidths=1.2 if lower_bound else 0.5,
            alpha=0.8,
            zorder=3,
            rasterized=len(points) > VECTOR_UP_TO,
        )


def marker_area(time_share: float) -> float:
    """The area of a marker in square points, proportional to its share of the time, with a smallest one to see."""
    return 14.0 + 1400.0 * time_share


ROOM_FOR_A_NUMBER = 7.0


def _number(plot: Axes, points: Sequence[Point]) -> None:
    """Numbers beside the hottest points; one that would lie on another moves down a line."""
    placed: list[tuple[float, float]] = []
    pixels = plot.figure.dpi / 72
    for number, point in enumerate(points, start=1):
        spot = point.hotspot
        at = plot.transData.transform(point.place)
        radius = math.sqrt(marker_area(spot.time_share or 0.0) / math.pi)
        inside = radius > ROOM_FOR_A_NUMBER and not spot.flops_lower_bound
        dx, dy = (-3.0 * len(str(number)), -3.0) if inside else (0.75 * radius + 1.5, 0.75 * radius + 1.5)
        while any(abs(at[0] / pixels + dx - x) < 11 and abs(at[1] / pixels + dy - y) < 8 for x, y in placed):
            dy -= 8.5
            dx += 1.0
        placed.append((at[0] / pixels + dx, at[1] / pixels + dy))
        plot.annotate(
            str(number), (spot.arithmetic_intensity, spot.flops_per_s), xytext=(dx, dy), textcoords="offset points",
            fontsize=8, fontweight="bold", color="white" if inside else "#111111", zorder=6,
        )  # fmt: skip


# -------------------------------------------------------------------------------------------------------- listing


def _draw_listing(listing: Axes, points: Sequence[Point], roofline: Roofline) -> None:
    """Beside the plot: the numbered kernels, how many others there are, what the colours and ceilings mean."""
    listing.axis("off")
    runs = list(dict.fromkeys(point.run for point in points))
    lines: list[tuple[str, str, str]] = []
    for number, point in enumerate(points[:NUMBERED], start=1):
        share = point.hotspot.time_share or 0.0
        run = f" [{runs.index(point.run) + 1}]" if len(runs) > 1 else ""
        lines.append((f"{number}  {_shortened(point.hotspot.kernel)}{run}", f"{100 * share:.1f} %", "#111111"))
    rest = points[NUMBERED:]
    if rest:
        share = sum(point.hotspot.time_share or 0.0 for point in rest) / len(runs)
        lines.append((f"{len(rest):,} other kernels", f"{100 * share:.1f} %", "#555555"))
    top = 1.0
    listing.text(0, top, "kernel" if points else "no kernels", fontsize=8, color="#555555", va="top")
    if points:
        listing.text(1, top, "share of time", fontsize=8, color="#555555", va="top", ha="right")
    for row, (text, share_text, colour) in enumerate(lines, start=1):
        listing.text(0, top - row * 0.042, text, fontsize=8, color=colour, va="top", parse_math=False)
        listing.text(1, top - row * 0.042, share_text, fontsize=8, color=colour, va="top", ha="right")
    below = top - (len(lines) + 2) * 0.042
    below = _draw_colours(listing, points, below)
    for number, run in enumerate(runs if len(runs) > 1 else [], start=1):
        listing.text(
            0,
            below,
            f"[{number}] {RUN_MARKERS_TEXT[(number - 1) % len(RUN_MARKERS)]} {_tail(run)}",
            fontsize=8,
            va="top",
            parse_math=False,
        )
        below -= 0.042
    _draw_sources(listing, roofline, below - 0.02)


RUN_MARKERS_TEXT = ("circle", "square", "triangle", "diamond", "down", "plus", "cross", "star")


GENERIC_NAMES = re.compile(r"(?:void )?(?:\w+::)*(?:Kernel2?|kernel|device_kernel)<(?P<argument>[\w:]{4,})")


def _shortened(name: str, most: int = 30) -> str:
    text = printable(name)
    generic = GENERIC_NAMES.match(text)
    if generic:  # a launcher of many kernels: what tells them apart is its template argument
        return generic["argument"][:most]
    short = text.split("(")[0].split("<")[0].strip() or text
    short = short.rsplit("::", 1)[-1].split()[-1] if " " in short or "::" in short else short
    return short if len(short) <= most else short[: most - 1] + "…"


def _tail(run: str, most: int = 30) -> str:
    text = printable(PurePath(run).name or run)
    return text if len(text) <= most else "…" + text[1 - most :]


def _draw_colours(listing: Axes, points: Sequence[Point], below: float) -> float:
    units = [unit for unit in dict.fromkeys(point.hotspot.unit for point in points) if unit]
    if units:
        listing.text(0, below, "most FLOPs by", fontsize=8, color="#555555", va="top")
        below -= 0.042
    for unit in units:
        listing.plot(
            [0.03], [below - 0.014], "o", color=UNIT_COLOURS.get(unit, OTHER_COLOUR), markersize=6, clip_on=False
        )
        listing.text(0.09, below, unit_title(unit), fontsize=8, va="top")
        below -= 0.042
    if any(point.hotspot.flops_lower_bound for point in points):
        listing.plot([0.03], [below - 0.014], "o", markerfacecolor="none", color="#555555", markersize=6, clip_on=False)
        listing.text(0.09, below, "open: FLOPs are a lower bound", fontsize=8, va="top")
        below -= 0.042
    listing.set_xlim(0, 1)
    listing.set_ylim(0, 1)
    return below - 0.02


def _draw_sources(listing: Axes, roofline: Roofline, below: float) -> None:
    import textwrap

    sources = list(dict.fromkeys(f"{ceiling.device}: {ceiling.source}" for ceiling in roofline.ceilings))
    texts = [line for source in sources[:3] for line in textwrap.wrap(printable(source), 46)[:3]]
    listing.text(
        0, max(below, 0.2), "\n".join(["ceilings", *texts] if texts else ["no ceiling is known"]), fontsize=7,
        color="#555555", va="top", parse_math=False,
    )  # fmt: skip
