"""A sweep as a picture: latency over each size with its fit, throughput with its knee, models, correlations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor, log10
from typing import TYPE_CHECKING, Any

from ncu_tools.bench.scaling import AXES, Correlation, Series, axis_title, quantities_of
from ncu_tools.numbers.number_format import digits, duration, scaled
from ncu_tools.report.pictures import drawing, picture_bytes
from ncu_tools.report.table import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#777777", "#222222")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DISTINGUISHING = ("target", "device_name", "dtype", "mode", "phase", "batch_size", "input_size", "sequence_length")
MOST_COLUMNS = 3
MOST_IN_LEGEND = 16
LEGEND_LINE = 0.12
"""Height of a picture per line of its legends, in inches."""

SHORT_AXIS = 100
"""Ratio of greatest to least value: a shorter axis has at most two powers of ten."""
GROUP_LENGTH = 70

Panel = Callable[["Axes"], None]


def draw_scaling(
    series: Sequence[Series],
    groups: dict[str, list[dict[str, Any]]],
    correlations: Sequence[Correlation],
    file_format: str,
    *,
    title: str = "",
) -> bytes | None:
    """The picture as bytes of `file_format` (svg, png or pdf); None if there is nothing to draw.

    `groups` are measured rows whose models are drawn against each other, by the name of the group.
    """
    panels = _panels(series, groups, correlations)
    if not panels:
        return None
    with drawing(**{"font.size": 8}):
        from matplotlib.figure import Figure

        across = min(MOST_COLUMNS, len(panels))
        down = -(-len(panels) // across)
        figure = Figure(figsize=(4.6 * across, 3.7 * down + LEGEND_LINE * _longest_legend(series) * down))
        figure.set_layout_engine("constrained")
        if title:
            figure.suptitle(printable(title), fontsize=10, x=0.01, ha="left", parse_math=False)
        plots = list(figure.subplots(down, across, squeeze=False).flat)
        for plot, panel in zip(plots, panels, strict=False):
            panel(plot)
        for plot in plots[len(panels) :]:
            plot.set_axis_off()
        return picture_bytes(figure, file_format, title=title, dpi=150)


def _panels(
    series: Sequence[Series], groups: dict[str, list[dict[str, Any]]], correlations: Sequence[Correlation]
) -> list[Panel]:
    panels: list[Panel] = []
    for axis in _axes(series):
        some = [one for one in series if one.axis == axis]
        if some:
            panels.append(lambda plot, some=some, axis=axis: _latency(plot, some, axis))  # type: ignore[misc]
    units = dict.fromkeys(one.throughput_unit for one in series if one.knee is not None)
    for unit in units:
        some = [one for one in series if one.knee is not None and one.throughput_unit == unit]
        panels.append(lambda plot, some=some, unit=unit: _throughput(plot, some, str(unit)))  # type: ignore[misc]
    for group, rows in groups.items():
        quantities = quantities_of(rows)
        latencies = [name for name in quantities if name.startswith("latency")]
        for against in list(quantities)[:2]:
            if latencies and len(quantities[against]) > 2:
                panels.append(
                    lambda plot, group=group, quantities=quantities, against=against: _models(  # type: ignore[misc]
                        plot, group, quantities, against
                    )
                )
    for group in dict.fromkeys(one.group for one in correlations if one.spearman is not None):
        pairs = [one for one in correlations if one.group == group]
        panels.append(lambda plot, group=group, pairs=pairs: _matrix(plot, group, pairs))  # type: ignore[misc]
    return panels


def _axes(series: Sequence[Series]) -> list[str]:
    return list(dict.fromkeys((*AXES, *(one.axis for one in series))))


def _labels(series: Sequence[Series]) -> list[str]:
    """Labels with only the values in which the series differ."""
    names = dict.fromkeys((*DISTINGUISHING, *(name for one in series for name in one.same)))
    differing = [name for name in names if len({one.same.get(name) for one in series}) > 1] or ["target"]

    def word(one: Series, name: str) -> str:
        value = one.same.get(name)
        if name in DISTINGUISHING or name == "arguments" or value is None:
            return "" if value is None else f"{AXES[name][0]} {value}" if name in AXES else str(value)
        return f"{name}={value}"

    return [printable(" ".join(filter(None, (word(one, name) for name in differing)))) for one in series]


def _style(place: int) -> dict[str, Any]:
    return {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place // len(COLOURS) % len(MARKERS)]}


def _latency(plot: Axes, series: Sequence[Series], axis: str) -> None:
    """Draw the points, and fitted lines with their exponents in the legend."""
    for place, (one, label) in enumerate(zip(series, _labels(series), strict=True)):
        fit, style = one.fit, _style(place)
        power = f" ~ {fit.exponent:.2f} [{fit.low:.2f}, {fit.high:.2f}]" if fit else ""
        plot.plot(one.sizes, one.latencies_ns, linestyle="", markersize=4, label=label + power, **style)
        if fit is not None:
            ends = (min(one.sizes), max(one.sizes))
            plot.plot(ends, [fit.at(size) for size in ends], linewidth=1, color=style["color"])
    _log_log(plot, f"mean latency against {axis_title(axis)} (exponent, 95 %)", axis_title(axis), duration)
    _size_ticks(plot, {size for one in series for size in one.sizes})


def _throughput(plot: Axes, series: Sequence[Series], unit: str) -> None:
    for place, (one, label) in enumerate(zip(series, _labels(series), strict=True)):
        rates = [float("nan") if rate is None else rate for rate in one.throughputs]
        knee, style = one.knee, _style(place)
        plot.plot(one.sizes, rates, markersize=4, linewidth=1, label=label, **style)
        if knee is not None and knee.batch is not None:
            at = (knee.batch, rates[one.sizes.index(knee.batch)])
            plot.plot(*at, "o", markersize=11, markerfacecolor="none", color=style["color"])
    _log_log(plot, "throughput (ring: knee, 90 % of the best)", "batch", lambda value: f"{digits(value)} {unit}")
    _size_ticks(plot, {size for one in series for size in one.sizes})


def _models(plot: Axes, group: str, quantities: dict[str, dict[str, float]], against: str) -> None:
    """Draw the latency of each model, at each batch size, over its parameters or FLOPs."""
    x = quantities[against]
    latencies = {name: values for name, values in quantities.items() if name.startswith("latency")}
    for place, (name, values) in enumerate(latencies.items()):
        both = [model for model in x if model in values]
        plot.plot([x[model] for model in both], [values[model] for model in both], linestyle="", markersize=4,
                  label=name.removeprefix("latency at "), **_style(place))  # fmt: skip
    first = next(iter(latencies.values()))
    for model in x:
        if model in first:
            plot.annotate(
                printable(model), (x[model], first[model]), xytext=(4, -3), textcoords="offset points", fontsize=6,
                color="#444444", parse_math=False,
            )  # fmt: skip
    unit = "FLOP" if against.startswith("FLOPs") else ""
    _log_log(plot, f"latency against {against}", against, duration)
    plot.xaxis.set_major_formatter(lambda value, _: scaled(value, unit))
    _write_group(plot, group)


def _matrix(plot: Axes, group: str, pairs: Sequence[Correlation]) -> None:
    """Draw Spearman's coefficients; an empty field is unknown."""
    names = list(dict.fromkeys(name for pair in pairs for name in (pair.one, pair.other)))
    values = [[1.0 if row == column else float("nan") for column in names] for row in names]
    for pair in pairs:
        one, other = names.index(pair.one), names.index(pair.other)
        if pair.spearman is not None:
            values[one][other] = values[other][one] = pair.spearman
    plot.imshow(values, vmin=-1, vmax=1, cmap="RdBu_r")
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            if value == value:
                colour = "white" if abs(value) > 0.7 else "black"
                plot.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)
    plot.set_xticks(range(len(names)), names, rotation=40, ha="right")
    plot.set_yticks(range(len(names)), names)
    models = sorted({pair.models for pair in pairs})
    counts = f"{models[0]} - {models[-1]}" if len(models) > 1 else str(models[0])
    plot.set_title(f"rank correlation over {counts} models", loc="left", fontsize=9)
    _write_group(plot, group)


def _write_group(plot: Axes, group: str) -> None:
    """Write the common settings of the measurements, in small letters under the axes."""
    text = printable(group)
    short = text if len(text) <= GROUP_LENGTH else "…" + text[-GROUP_LENGTH + 1 :]
    plot.annotate(
        short, (0, 0), xytext=(0, -88 if not plot.get_xlabel() else -34), xycoords="axes fraction", fontsize=6,
        textcoords="offset points", color="#777777", parse_math=False,
    )  # fmt: skip


def _log_log(plot: Axes, title: str, x_title: str, text_of: Callable[[float], str]) -> None:
    plot.set_xscale("log")
    plot.set_yscale("log")
    plot.set_title(printable(title), loc="left", fontsize=9, parse_math=False)
    plot.set_xlabel(x_title)
    plot.yaxis.set_major_formatter(lambda value, _: text_of(value))
    plot.yaxis.set_minor_formatter(lambda value, _: text_of(value) if _needs_label(value, plot.get_ylim()) else "")
    plot.xaxis.set_minor_formatter(lambda value, _: "")
    plot.grid(True, which="both", color="#e3e3e3", linewidth=0.5)
    plot.set_axisbelow(True)
    if 0 < len(plot.get_legend_handles_labels()[0]) <= MOST_IN_LEGEND:
        _legend_below(plot)


def _legend_below(plot: Axes) -> None:
    """Put the legend under axis title and group, so that it covers no point and no text."""
    from matplotlib.transforms import ScaledTranslation

    below = plot.transAxes + ScaledTranslation(0, -38 / 72, plot.figure.dpi_scale_trans)
    plot.legend(
        fontsize=6, edgecolor="none", framealpha=0, loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=below,
        borderaxespad=0, borderpad=0.2,
    )  # fmt: skip


def _longest_legend(series: Sequence[Series]) -> int:
    """The most lines of a legend, among those shown."""
    each = [len([one for one in series if one.axis == axis]) for axis in _axes(series)]
    return max((number for number in each if number <= MOST_IN_LEGEND), default=0)


def _needs_label(value: float, limits: tuple[float, float]) -> bool:
    """True if a tick between powers of ten has a label: 2 and 5 on an axis so short that it has few others."""
    leading = round(value / 10 ** floor(log10(value)))
    return limits[1] < SHORT_AXIS * limits[0] and leading in (2, 5)


def _size_ticks(plot: Axes, sizes: set[float]) -> None:
    """Use the sizes themselves as ticks if they are few."""
    if len(sizes) <= 8:
        plot.set_xticks(sorted(sizes), [f"{size:,}" for size in sorted(sizes)])
