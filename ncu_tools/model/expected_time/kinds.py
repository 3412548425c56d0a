"""The kinds of operators whose times are learnt: their physics, the coordinates of corrections, and the least time."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ncu_tools.model.expected_time.corrections import Axes
from ncu_tools.model.expected_time.gemm_time import GEMM, least_bytes
from ncu_tools.model.expected_time.hardware import Hardware
from ncu_tools.model.expected_time.physics import Floats, Physics, Work


class OperatorKind(NamedTuple):
    """A kind of operators. `coordinates` and `least` (FLOPs, bytes) take the columns of operators.

    `group` names operators that are measured together, as all m of one (n, k): judging leaves out whole groups.
    """

    physics: Physics
    axes: Axes
    coordinates: Callable[[Work], dict[str, Floats]]
    least: Callable[[Work], tuple[Floats, Floats]]

    def at_best(self, hardware: Hardware, work: Work) -> Floats:
        """The least microseconds of each operator: the greater of FLOPs / peak and bytes / bandwidth."""
        flops, moved = self.least(work)
        return np.maximum(flops / hardware.flops, moved / hardware.dram)


def _log_sizes(work: Work) -> dict[str, Floats]:
    return {name: np.log2(work[name]) for name in ("m", "n", "k")}


def _of_gemm(work: Work) -> tuple[Floats, Floats]:
    return 2.0 * work["m"] * work["n"] * work["k"], least_bytes(work)


_ROWS = tuple(15 / 7 * place for place in range(8))
_SIDE = tuple(5 + 2.2 * place for place in range(6))
KINDS = {
    "gemm": OperatorKind(
        GEMM, {"m": tuple(15 / 7 * place for place in range(8)), "n": _SIDE, "k": _SIDE}, _log_sizes, _of_gemm
    )
}
