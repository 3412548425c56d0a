"""Colours and markers of pictures, on white and on dark paper.

The colours are from Okabe and Ito, which colour-blind readers can distinguish, a little lighter on dark paper and
completed by three of Tol's. Source: Okabe, Ito, Color Universal Design, 2008; Tol, Colour Schemes, SRON, 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

LEVEL_MARKERS = {"dram": "o", "l2": "s", "l1": "^", "shared": "D"}
RUN_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


@dataclass(frozen=True)
class Theme:
    """Colours of paper, text and lines, of the compute units, and of runs and devices in order."""

    paper: str
    ink: str
    quiet: str
    grid: str
    units: dict[str, str]
    series: tuple[str, ...]
    other: str
    density: str

    def of_unit(self, unit: str | None) -> str:
        """The colour of a compute unit."""
        return self.units.get(unit or "", self.other)

    def of_series(self, number: int) -> str:
        """The colour of a run or device by its number; colours repeat."""
        return self.series[number % len(self.series)]


def _units(
    *, orange: str, blue: str, sky: str, purple: str, yellow: str, green: str, gold: str, wine: str, olive: str,
    violet: str, brown: str,
) -> dict[str, str]:  # fmt: skip
    return {
        "fp64": orange, "fp32": blue, "fp16": sky, "bf16": sky, "tensor_fp64": purple, "tensor_tf32": yellow,
        "tensor_bf16": green, "tensor_fp16": violet, "tensor_fp8": gold, "tensor_fp6": olive, "tensor_fp4": wine,
        "tensor_int8": brown, "tensor_int4": brown, "tensor_int1": brown,
    }  # fmt: skip


_LIGHT_UNITS = _units(
    orange="#D55E00", blue="#0072B2", sky="#3C9BD6", purple="#B5578F", yellow="#C98600", green="#008A66",
    gold="#8F7F00", wine="#882255", olive="#7A6A2E", violet="#6A4FB0", brown="#8A5A2B",
)  # fmt: skip
LIGHT = Theme(
    paper="#ffffff",
    ink="#1f2328",
    quiet="#5b6169",
    grid="#e7e9ec",
    units=_LIGHT_UNITS,
    series=("#0072B2", "#D55E00", "#008A66", "#B5578F", "#C98600", "#3C9BD6", "#8F7F00", "#5b6169"),
    other="#6b7178",
    density="viridis_r",
)
_DARK_UNITS = _units(
    orange="#FF8A3D", blue="#4DA8E8", sky="#8CCBF2", purple="#E08BBE", yellow="#F2B134", green="#2CC197",
    gold="#E5D84B", wine="#E0739B", olive="#C9B668", violet="#B39DF0", brown="#D0A070",
)  # fmt: skip
DARK = Theme(
    paper="#15181c",
    ink="#e6e8eb",
    quiet="#9ba2ab",
    grid="#2b3037",
    units=_DARK_UNITS,
    series=("#4DA8E8", "#FF8A3D", "#2CC197", "#E08BBE", "#F2B134", "#8CCBF2", "#E5D84B", "#9ba2ab"),
    other="#9ba2ab",
    density="viridis",
)
THEMES = {"light": LIGHT, "dark": DARK}


def readable_on(colour: str) -> str:
    """Black or white, whichever is more readable on a colour. Source: relative luminance of WCAG 2.2."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#ffffff" if luminance < 0.3 else "#111111"
