"""Kinds of operators with learnt times: their formulas, the coordinates of their corrections, and their least work."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ncu_tools.model.expected_time.attention_time import (
    CONTEXT,
    GENERATION,
    context_coordinates,
    generation_coordinates,
    least_work,
)
from ncu_tools.model.expected_time.corrections import Axes, Grids
from ncu_tools.model.expected_time.gemm_time import GEMM, least_bytes
from ncu_tools.model.expected_time.hardware import Hardware
from ncu_tools.model.expected_time.model_time import MODEL
from ncu_tools.model.expected_time.movement_time import MOVEMENT
from ncu_tools.model.expected_time.physics import Floats, Physics, Work


class OperatorKind(NamedTuple):
    """One kind of operators. `coordinates` and `least` (FLOPs, bytes) are functions of the columns of operators."""

    physics: Physics
    grids: Grids
    coordinates: Callable[[Work], dict[str, Floats]]
    least: Callable[[Work], tuple[Floats, Floats]]

    def at_best(self, hardware: Hardware, work: Work) -> Floats:
        """The least us of each operator by the roofline model: the greater of FLOPs / peak and bytes / bandwidth."""
        flops, moved = self.least(work)
        return np.maximum(flops / hardware.flops, moved / hardware.dram)


def _log_sizes(work: Work) -> dict[str, Floats]:
    return {"m": np.log2(work["m"] * work["number"]), "n": np.log2(work["n"]), "k": np.log2(work["k"])}


def _of_gemm(work: Work) -> tuple[Floats, Floats]:
    return 2.0 * work["m"] * work["n"] * work["k"] * work["number"], least_bytes(work)


_ROWS = tuple(15 / 7 * place for place in range(8))
_SIDE = tuple(5 + 2.2 * place for place in range(6))
_WIDTHS, _BEYOND = (6.0, 7.0, 7.585, 8.0), (0.0, 0.5, 4.0)
_QUERIES = (0.0, 4.0, 7.0, 10.0, 14.0)
_CONTEXT_GRIDS: tuple[Axes, ...] = (
    {"query": (0, 4, 6, 8, 10, 12, 14), "heads": (0, 4, 7, 10, 14), "head_dim": _WIDTHS, "beyond_window": _BEYOND},
    {"group": (0, 1.5, 3, 5, 5.6, 6, 6.6), "head_dim": _WIDTHS, "query": (4, 8, 11, 14), "beyond_window": (0, 0.5)},
    {"query": tuple(range(15)), "heads": tuple(range(0, 15, 2))},
    {"padded": (0, 0.2, 0.415), "query": _QUERIES, "head_dim": _WIDTHS},
    {"kv_heads": (0, 4, 8, 13), "query": _QUERIES},
)
_GROUPS, _BLOCKS = (0, 1.5, 3, 5, 5.6, 6, 7), (0, 4, 7, 10, 14)
_GENERATION_GRIDS: tuple[Axes, ...] = (
    {"group": _GROUPS, "head_dim": _WIDTHS, "kv_heads": (0, 1, 2, 4), "batch": (0, 4, 7, 11)},
    {"seen": (1, 6, 9, 12, 17), "blocks": _BLOCKS, "head_dim": (*_WIDTHS, 9), "group": _GROUPS},
    {"seen": tuple(range(2, 18, 2)), "blocks": tuple(range(0, 15, 2))},
    {"beyond_window": (0, 0.5, 2, 6), "head_dim": _WIDTHS, "batch": (0, 4, 8, 11)},
    {"padded": (0, 0.415), "blocks": _BLOCKS, "head_dim": _WIDTHS},
)
KINDS = {
    "gemm": OperatorKind(GEMM, ({"m": _ROWS, "n": _SIDE, "k": _SIDE},), _log_sizes, _of_gemm),
    "attention_context": OperatorKind(CONTEXT, _CONTEXT_GRIDS, context_coordinates, least_work),
    "attention_generation": OperatorKind(GENERATION, _GENERATION_GRIDS, generation_coordinates, least_work),
    "movement": OperatorKind(MOVEMENT, (), lambda work: {}, lambda work: (work["moved"] * 0, work["moved"])),
    "model": OperatorKind(MODEL, (), lambda work: {}, lambda work: (work["products"] * 0, work["products"] * 0)),
}
