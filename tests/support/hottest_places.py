"""The hottest lines and instructions of a real report, without text that only NVIDIA's package knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ncu_parsers.ncu.instructions.read import read_instructions
from ncu_parsers.sources.sources import Source

from ncu_tools.kernels.source.hot_places import hottest
from ncu_tools.kernels.source.kernel_code import kernel_code
from tests.conftest import ROOT

EXPECTATIONS = ROOT / "tests" / "expectations" / "instructions.json"
SHOWN = 12
RECORDED = (
    "place", "line", "offset", "instructions", "samples", "samples_not_issued", "stall", "executed", "sectors",
    "sectors_ideal", "shared_wavefronts", "shared_wavefronts_ideal",
)  # fmt: skip


def hottest_places(path: Path) -> dict[str, list[dict[str, Any]]]:
    """By view, the hottest places of the hottest kernel, with their counts."""
    table = read_instructions(Source(str(path)))
    assert table is not None
    code = kernel_code(table)
    views = ("lines", "sass") if code.has_lines else ("sass",)
    return {
        view: [{name: getattr(row, name) for name in RECORDED} for row in hottest(code, view, "samples", SHOWN)[0]]
        for view in views
    }
