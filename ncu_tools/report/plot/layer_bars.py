"""Bar charts of layers: time of each phase, FLOPs and bytes, one bar per layer in the order in which they ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ncu_tools.kernels.names.distinct_names import fitted_names
from ncu_tools.model.layers.layers import Layer
from ncu_tools.numbers.number_format import duration, scaled
from ncu_tools.report.pictures import drawing, picture_bytes
from ncu_tools.report.table import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PHASE_COLOURS = {
    "forward_ns": "#0072B2", "backward_ns": "#E69F00", "optimizer_ns": "#009E73", "prefill_ns": "#56B4E9",
    "decode_ns": "#D55E00",
}  # fmt: skip
OTHER_COLOUR = "#777777"
MOST_BARS = 60
NAME_LENGTH = 34


def draw_bars(
    layers: Sequence[Layer],
    file_format: str,
    *,
    title: str = "",
    bytes_title: str = "DRAM bytes",
    time_title: str = "time",
) -> bytes:
    """The picture as bytes of `file_format` (svg, png or pdf): three panels with the same layers.

    If there are more than `MOST_BARS` layers, the ones with the most time are drawn, and the title says so. An unknown
    value has no bar.
    """
    hottest = sorted(layers, key=lambda layer: -(layer.time_ns or 0.0))[:MOST_BARS]
    shown = [layer for layer in layers if layer in hottest]
    with drawing(**{"font.size": 8}):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(11, max(2.5, 0.7 + 0.2 * len(shown))), layout="constrained")
        time, flops, moved = figure.subplots(1, 3, sharey=True, width_ratios=(1.4, 1, 1))
        _draw_time(time, shown, time_title)
        at_least = any(layer.flops_lower_bound for layer in shown)
        flops_title = "FLOPs, at least: some were not collected" if at_least else "FLOPs"
        _draw_amount(flops, [layer.flops for layer in shown], flops_title, "FLOP")
        _draw_amount(moved, [layer.dram_bytes for layer in shown], bytes_title, "B")
        if time.get_legend_handles_labels()[0]:
            figure.legend(loc="outside lower left", ncols=len(PHASE_COLOURS) + 1, frameon=False)
        names = fitted_names([printable(layer.module) for layer in shown], NAME_LENGTH)
        time.set_yticks(range(len(shown)), [names[printable(layer.module)] for layer in shown], parse_math=False)
        time.set_ylim(len(shown) - 0.5, -0.5)
        if len(shown) < len(layers):
            title = f"{title} ".lstrip() + f"({len(shown)} of {len(layers)} layers, those that take the most time)"
        return picture_bytes(figure, file_format, title=title, dpi=150)


def _draw_time(plot: Axes, layers: Sequence[Layer], title: str) -> None:
    """Phases side by side in one bar; time without a phase in grey."""
    left = [0.0] * len(layers)
    for phase, colour in PHASE_COLOURS.items():
        widths = [getattr(layer, phase) or 0.0 for layer in layers]
        if any(widths):
            plot.barh(range(len(layers)), widths, left=left, color=colour, label=phase.removesuffix("_ns"))
            left = [start + width for start, width in zip(left, widths, strict=True)]
    rest = [max((layer.time_ns or 0.0) - start, 0.0) for layer, start in zip(layers, left, strict=True)]
    if any(width > 1e-6 * (layer.time_ns or 1.0) for width, layer in zip(rest, layers, strict=True)):
        plot.barh(range(len(layers)), rest, left=left, color=OTHER_COLOUR, label="no phase")
    _mark_unknown(plot, [layer.time_ns for layer in layers])
    _finish(plot, f"{title} of one iteration", duration)


def _draw_amount(plot: Axes, amounts: Sequence[float | None], title: str, unit: str) -> None:
    plot.barh(range(len(amounts)), [amount or 0.0 for amount in amounts], color="#56B4E9")
    _mark_unknown(plot, amounts)
    _finish(plot, title, lambda value: scaled(value, unit))


def _mark_unknown(plot: Axes, amounts: Sequence[float | None]) -> None:
    """Write "not known" in place of bars that would look like zero."""
    for place, amount in enumerate(amounts):
        if amount is None:
            plot.annotate(
                "not known", (0, place), xytext=(3, 0), textcoords="offset points", va="center", color="#777777"
            )


def _finish(plot: Axes, title: str, text_of: Any) -> None:
    plot.set_title(title, loc="left", fontsize=9)
    plot.xaxis.set_major_formatter(lambda value, _: text_of(value) if value else "0")
    plot.xaxis.set_major_locator(_three_ticks())
    if not plot.dataLim.width > 0:  # only zeros, around which the axis would begin below zero
        plot.set_xlim(0, 1)
        plot.set_xticks([0])
    plot.grid(True, axis="x", color="#dddddd", linewidth=0.6)
    plot.set_axisbelow(True)
    for side in ("top", "right", "left"):
        plot.spines[side].set_visible(False)
    plot.tick_params(axis="y", length=0)


def _three_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(3)
