"""The operators of a model as work on a machine: microseconds of each group of operators by physics or by roof."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ncu_tools.ceilings.machine_files import DRAM, Machine
from ncu_tools.model.expected_time.gemm_time import gemm_work
from ncu_tools.model.expected_time.hardware import hardware_of, types
from ncu_tools.model.expected_time.kinds import KINDS
from ncu_tools.model.expected_time.learnt_times import Learnt
from ncu_tools.model.expected_time.model_time import GROUPS
from ncu_tools.model.expected_time.operator_shapes import Product, product_of, shapes_in
from ncu_tools.model.expected_time.physics import Floats

NORMALISING = re.compile("norm|softmax")
FEW_CHANNELS = 8
"""Channels of a group of a convolution below which tensor cores are not used well, and bytes decide."""


class ModelOperator(NamedTuple):
    """An operator of a model: FLOPs of its contraction (0 for none), and bytes that it reads and writes."""

    name: str
    shapes: str | None
    flops: float
    moved: float

    @property
    def group(self) -> str:
        """The group of operators that it is timed with."""
        if "attention" in self.name and self.flops > 0:
            return "attention"
        product = self.product
        if product is None:
            return "normalising" if NORMALISING.search(self.name) else "moving"
        if not product.is_convolution:
            return "products"
        if product.number > 1 and product.n < FEW_CHANNELS:
            return "grouped"
        channels = shapes_in(self.shapes)[1][1]
        return "pointwise" if product.k == channels else "convolutions"

    @property
    def product(self) -> Product | None:
        """The matrix product behind it."""
        return product_of(self.name, shapes_in(self.shapes), self.flops) if self.flops > 0 else None


def model_work(
    operators: Sequence[ModelOperator], machine: Machine, dtype: str, convolutions: str, learnt: Learnt
) -> dict[str, Floats] | str:
    """Microseconds of each group of operators on a machine, or why they are not known.

    `dtype` is that of products, `convolutions` that of convolutions: TF32 where PyTorch computes FP32 so.
    """
    sums = dict.fromkeys(GROUPS, 0.0)
    for kind, name in (("products", dtype), ("pointwise", convolutions), ("convolutions", convolutions)):
        hardware = hardware_of(machine, name)
        if isinstance(hardware, str):
            return hardware
        products = [one.product for one in operators if one.group == kind]
        known = [one for one in products if one is not None]
        if known:
            rows, n, k = np.array([(one.m * one.number, one.n, one.k) for one in known], float).T
            basis = learnt.basis("gemm", machine, name)
            work = gemm_work(rows, n, k, types()[name])
            sums[kind] = float(KINDS["gemm"].physics.best(hardware, work, basis.logs)[0].sum())
    peak = hardware_of(machine, dtype)
    for one in operators:
        group = one.group
        if group in ("grouped", "moving", "normalising", "attention") and not isinstance(peak, str):
            moving = one.moved / machine.rates[DRAM].value * 1e6
            sums[group] += max(moving, one.flops / peak.flops) if group == "attention" else moving
            if group == "grouped" and "fp32" in machine.rates:
                sums["taps"] += one.flops / machine.rates["fp32"].value * 1e6
    return {
        **{name: np.array([value], np.float32) for name, value in sums.items()},
        "operators": np.array([len(operators)], np.float32),
    }
