"""The time of a whole model from that of its operators: eager or compiled, with a few numbers for each GPU and type.

Operators are grouped by what bounds their kernels: matrix products by the physics of GEMMs, convolutions likewise (as
implicit GEMMs), grouped and depthwise convolutions and all else by bytes, attention by its roof. How much longer each
group takes than so, and what the host takes for an operator, is fitted to measured times of whole models. The host runs
ahead of the GPU: a model takes the longer of what the two take (a soft maximum).
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
"""Columns of the work: us of each group by physics or roof. `operators` is their number."""


def _parts(
    hardware: Hardware, work: Work, numbers: Sequence[float], choice: Sequence[Floats]
) -> tuple[Floats, dict[str, Floats]]:
    parts = {name: np.asarray(work[name] * number) for name, number in zip(GROUPS, numbers[:-2], strict=True)}
    parts["operators"] = work["operators"] * numbers[-2] + 0 * choice[0]
    on_gpu, host = np.asarray(sum(parts.values())), work["operators"] * numbers[-1]
    return (on_gpu**OVERLAP + host**OVERLAP) ** (1 / OVERLAP), parts


OVERLAP = 4.0
"""Exponent of the soft maximum of GPU and host."""
HELD = 1.0
"""A table of models hardly tells apart what all of them have in one proportion."""
MODEL = Physics("model", NUMBERS, np.zeros((1, 1), np.float32), _parts, HELD)
