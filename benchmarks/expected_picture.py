"""Expected against measured times as a picture, both axes logarithmic: docs/expected-measured.svg."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ncu_tools.report.pictures import drawing, picture_bytes

EACH = 14
"""Cells of the picture per factor of 10."""
FACTORS = (0.5, 1.0, 2.0)

Pair = tuple[NDArray[np.floating], NDArray[np.floating]]
"""Measured and expected microseconds."""


def draw(found: Mapping[str, Pair], file_format: str = "svg") -> bytes:
    """Draw a panel per title: counts of times per cell, with lines at half, equal and double."""
    with drawing(**{"font.size": 8}):
        from matplotlib.colors import LogNorm
        from matplotlib.figure import Figure

        figure = Figure(figsize=(3.1 * len(found), 3.2))
        figure.set_layout_engine("constrained")
        for plot, (title, (measured, expected)) in zip(
            figure.subplots(1, len(found), squeeze=False).flat, found.items(), strict=True
        ):
            low, high = np.floor(np.log10(measured.min())), np.ceil(np.log10(measured.max()))
            edges = np.logspace(low, high, int((high - low) * EACH) + 1)
            counts = np.histogram2d(measured, expected, (edges, edges))[0]
            shown = np.ma.masked_equal(counts, 0)
            plot.pcolormesh(edges, edges, shown.T, norm=LogNorm(), cmap="viridis_r", rasterized=True)
            for factor in FACTORS:
                style = {"color": "#444444", "linewidth": 0.9 if factor == 1 else 0.6, "zorder": 3}
                plot.plot(edges[[0, -1]], edges[[0, -1]] * factor, linestyle="-" if factor == 1 else ":", **style)
            plot.set(
                xscale="log", yscale="log", xlim=edges[[0, -1]], ylim=edges[[0, -1]], aspect="equal",
                xlabel="measured (µs)", title=f"{title} ({len(measured):,})",
            )  # fmt: skip
        figure.axes[0].set_ylabel("expected (µs)")
        return picture_bytes(figure, file_format, dpi=150)
