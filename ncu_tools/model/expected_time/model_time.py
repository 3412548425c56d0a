"""A formula of the time of a whole model from its operators, eager or compiled, with a few numbers per GPU and type.

Operators are grouped by what bounds their kernels: matrix products by the GEMM formula, convolutions likewise (as
implicit GEMMs), grouped and depthwise convolutions and all others by bytes, attention by its roof. The factor by which
each group takes longer, and the host's time per operator, are fitted to measured times of whole models. The host runs
ahead of the GPU, so a model takes the longer of both times (a soft maximum).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ncu_tools.model.expected_time.hardware import Hardware
from ncu_tools.model.expected_time.physics import Floats, PhysicalNumber, Physics, Work

NUMBERS = {
    "products": PhysicalNumber(1.0, 0.9, 4, "time of matrix products by that of the physics of GEMMs"),
    "pointwise": PhysicalNumber(1.0, 0.3, 8, "time of 1 x 1 convolutions by that of the products that they are"),
    "convolutions": PhysicalNumber(1.0, 0.3, 8, "time of other convolutions by that of the products that they are"),
    "grouped": PhysicalNumber(2.0, 0.1, 30, "time of grouped convolutions by that of their bytes"),
    "taps": PhysicalNumber(2.0, 0.02, 60, "time of grouped convolutions by that of their FLOPs on CUDA cores"),
    "attention": PhysicalNumber(2.0, 0.7, 20, "time of attention by its roof"),
    "normalising": PhysicalNumber(1.1, 0.1, 10, "time of normalisations by that of their bytes"),
    "rows": PhysicalNumber(1.5, 0.1, 20, "time of layer norms and softmax, which autocast computes in FP32, likewise"),
    "moving": PhysicalNumber(1.1, 0.1, 6, "time of all else by that of its bytes"),
    "operator_us": PhysicalNumber(1.5, 0.1, 20, "us on the GPU for each operator"),
    "host_us": PhysicalNumber(15, 1, 150, "us of the host for each operator"),
}
GROUPS = tuple(NUMBERS)[:-2]
"""Columns of the work: us of each group by formula or roof. The column `operators` is their number."""


def _parts(
    hardware: Hardware, work: Work, numbers: Sequence[float], choice: Sequence[Floats]
) -> tuple[Floats, dict[str, Floats]]:
    parts = {name: np.asarray(work[name] * number) for name, number in zip(GROUPS, numbers[:-2], strict=True)}
    parts["operators"] = work["operators"] * numbers[-2] + 0 * choice[0]
    on_gpu, host = np.asarray(sum(parts.values())), work["operators"] * numbers[-1]
    return (on_gpu**OVERLAP + host**OVERLAP) ** (1 / OVERLAP), parts


OVERLAP = 4.0
"""Exponent of the soft maximum of the times of GPU and host."""
HELD = 1.0
"""How strongly fits hold numbers to their start: models with all groups in equal proportion hardly separate them."""
MODEL = Physics("model", NUMBERS, np.zeros((1, 1), np.float32), _parts, HELD)
