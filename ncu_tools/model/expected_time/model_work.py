"""The operators of a model as work on a machine: us of each group of operators, by formula or by roof."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from math import prod
from typing import NamedTuple

import numpy as np

from ncu_tools.ceilings.machine_files import DRAM, Machine
from ncu_tools.model.expected_time.gemm_time import gemm_work
from ncu_tools.model.expected_time.hardware import hardware_of, types, unit_of
from ncu_tools.model.expected_time.kinds import KINDS
from ncu_tools.model.expected_time.learnt_times import Learnt
from ncu_tools.model.expected_time.model_time import GROUPS
from ncu_tools.model.expected_time.operator_shapes import Product, product_of, shapes_in
from ncu_tools.model.expected_time.physics import Floats

NORMALISING, OF_ROWS = re.compile("norm"), re.compile("layer_norm|softmax")
MOVED = ("moving", "normalising", "rows")
ATTENTION = "scaled_dot_product_attention"
TAKEN_APART, PRODUCTS = "_safe_softmax", ("bmm", "matmul")
"""The softmax of masked attention that PyTorch decomposes without a GPU, and the products around it."""
BESIDE = ("_to_copy", "mul", "clone")
INTEGERS = "_int_mm"
"""A product of integers, whose operations are not FLOPs."""
TURNED = ("pointwise", "convolutions")
"""Groups of convolutions that run on tensor cores, on images in channels-last."""
FEW_CHANNELS = 8
"""Channels per group of a convolution below which tensor cores are used badly, and bytes decide."""


class ModelOperator(NamedTuple):
    """An operator of a model: FLOPs of its contraction (0 if it has none), and bytes that it reads and writes."""

    name: str
    shapes: str | None
    flops: float
    moved: float

    @property
    def group(self) -> str:
        """The group of operators with which it is timed."""
        if "attention" in self.name and self.flops > 0:
            return "attention"
        product = self.product
        if product is None:
            return "rows" if OF_ROWS.search(self.name) else "normalising" if NORMALISING.search(self.name) else "moving"
        if not product.is_convolution:
            return "products"
        if product.number > 1 and product.n < FEW_CHANNELS:
            return "grouped"
        channels = shapes_in(self.shapes)[1][1]
        return "pointwise" if product.k == channels else "convolutions"

    @property
    def product(self) -> Product | None:
        """The matrix product behind it; None if there is none."""
        is_product = self.flops > 0 or _plain(self.name) == INTEGERS
        return product_of(self.name, shapes_in(self.shapes), self.flops) if is_product else None


def _plain(name: str) -> str:
    """The bare name of an operator: addmm for aten::addmm and aten.addmm.default."""
    return name.replace("::", ".").removeprefix("aten.").split(".")[0]


def whole_attention(operators: Sequence[ModelOperator]) -> list[ModelOperator]:
    """Operators with decomposed attention joined to one, since a GPU computes it in one kernel.

    Attention on tensors with other than four dimensions stays decomposed, as on GPUs.
    """
    names = [_plain(one.name) for one in operators]
    kept: list[ModelOperator | None] = list(operators)
    for place in (at for at, name in enumerate(names) if name == TAKEN_APART):
        before = next((at for at in range(place, -1, -1) if names[at] in PRODUCTS), None)
        after = next((at for at in range(place, len(names)) if names[at] in PRODUCTS), None)
        shapes = shapes_in(operators[place].shapes)
        if before is None or after is None or not shapes or len(shapes[0]) != 4:
            continue
        pairs = [shapes_in(operators[at].shapes) for at in (before, after)]
        if any(len(pair) < 2 for pair in pairs):
            continue
        (query, key), (scores, value) = (pair[:2] for pair in pairs)
        sizes = {prod(query), prod(key), prod(value)}
        while before > 0 and names[before - 1] in BESIDE and _size(operators[before - 1]) in sizes:
            before -= 1
        element = operators[after].moved / (prod(scores) + prod(value) + prod(query[:-1]) * value[-1])
        moved = element * (sum(sizes) if len(sizes) == 3 else 3 * prod(query)) + element * prod(query[:-1]) * value[-1]
        flops = sum(operators[at].flops for at in range(before, after + 1))
        kept[before : after + 1] = [None] * (after + 1 - before)
        kept[before] = ModelOperator(ATTENTION, None, flops, moved)
    return [one for one in kept if one is not None]


def _size(operator: ModelOperator) -> int:
    shapes = shapes_in(operator.shapes)
    return prod(shapes[0]) if shapes else 0


def fused(operators: Sequence[ModelOperator]) -> list[ModelOperator]:
    """Operators as torch.compile runs them: neighbours that only move data are one, with the bytes of the largest."""
    found: list[ModelOperator] = []
    for moves, some in groupby(operators, lambda one: one.group in MOVED):
        neighbours = list(some)
        if moves:
            names = [one.name for one in neighbours if one.group != "moving"]
            name = names[0] if names else neighbours[0].name
            neighbours = [ModelOperator(name, None, 0.0, max(one.moved for one in neighbours))]
        found += neighbours
    return found


def _group_on(operator: ModelOperator, *, on_tensor_cores: bool) -> str:
    """The group with which an operator is timed; on CUDA cores, grouped convolutions have kernels of their own."""
    group = operator.group
    product = operator.product if group in TURNED and not on_tensor_cores else None
    return "grouped" if product is not None and product.number > 1 else group


TURNS = 2.0
"""Passes over an image to convert its layout: one read and one write."""


def model_work(
    operators: Sequence[ModelOperator], machine: Machine, dtype: str, convolutions: str, learnt: Learnt,
    *, compiled: bool = False, turns: bool = False, weight_bytes: float | None = None,
) -> dict[str, Floats] | str:  # fmt: skip
    """Microseconds of each group of operators on a machine, or the reason why they are unknown.

    `dtype` is the type of products, `convolutions` that of convolutions: TF32 if PyTorch computes FP32 in it. With
    `turns`, images of convolutions and their results are converted to channels-last and back, which moves data.
    `weight_bytes` are the bytes per weight of products, if not those of the type.
    """
    operators = whole_attention(operators)
    operators = fused(operators) if compiled else operators
    on_tensor_cores = unit_of(machine, convolutions).startswith("tensor")
    grouped = [(one, _group_on(one, on_tensor_cores=on_tensor_cores)) for one in operators]
    sums = dict.fromkeys(GROUPS, 0.0)
    for kind, name in (("products", dtype), ("pointwise", convolutions), ("convolutions", convolutions)):
        hardware = hardware_of(machine, name)
        if isinstance(hardware, str):
            return hardware
        products = [one.product for one, group in grouped if group == kind]
        known = [one for one in products if one is not None]
        if known:
            sizes = [(one.m, one.n, one.k, one.number, one.distinct) for one in known]
            m, n, k, number, distinct = np.array(sizes, float).T
            basis = learnt.basis("gemm", machine, name)
            stored = types()[name]
            if weight_bytes is not None and kind == "products":
                stored = stored._replace(b=weight_bytes)
            work = gemm_work(m, n, k, stored, number, distinct)
            sums[kind] = float(KINDS["gemm"].physics.best(hardware, work, basis.logs)[0].sum())
    peak = hardware_of(machine, dtype)
    for one, group in grouped:
        if turns and group in TURNED:
            sums["moving"] += TURNS * one.moved / machine.rates[DRAM].value * 1e6
        if group in (*MOVED, "grouped", "attention") and not isinstance(peak, str):
            moving = one.moved / machine.rates[DRAM].value * 1e6
            sums[group] += max(moving, one.flops / peak.flops) if group == "attention" else moving
            if group == "grouped" and "fp32" in machine.rates:
                sums["taps"] += one.flops / machine.rates["fp32"].value * 1e6
    return {
        **{name: np.array([value], np.float32) for name, value in sums.items()},
        "operators": np.array([len(operators)], np.float32),
    }
