"""Project a measured run to another GPU: each kernel from its own time; kernels without a basis are named.

Library products of known shapes have expected times on both GPUs: the ratio of measured to expected time is carried
over with an exponent, since it depends partly on the kernel that one GPU's library chose, and partly on the machine.
Other kernels with known work take the ratio of their roofs, above a floor for the launch. Kernels of unknown work are
not projected, and their share of the time is reported.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import tables

from ncu_tools.ceilings.ceilings import unit_title
from ncu_tools.ceilings.machine_files import DRAM, Machine
from ncu_tools.ceilings.work_by_unit import FLOAT_UNITS
from ncu_tools.kernels.names.categories import COMMUNICATION, category_of
from ncu_tools.model.expected_time.aten_rows import is_quantised
from ncu_tools.model.expected_time.expected_times import ExpectedTimes, expected_times
from ncu_tools.model.expected_time.hardware import family_of
from ncu_tools.model.expected_time.learnt_times import Learnt
from ncu_tools.model.expected_time.operator_rows import operator_rows
from ncu_tools.model.expected_time.operator_shapes import Product, product_of, shapes_in

WITHIN, ACROSS = 0.6, 0.2
"""Exponent with which measured / expected time is carried over within a family of GPUs, and across families. Best
values for products were 0.5 to 0.7 and 0 to 0.3 (docs/estimate.md)."""
FLOOR_NS = 2000.0
"""Launch overhead of a short kernel, which no roof shortens."""
TYPES = {
    "BFloat16": "bf16", "bfloat16": "bf16", "Half": "fp16", "float16": "fp16", "float": "fp32", "float32": "fp32",
    "double": "fp64", "float64": "fp64", "Float8_e4m3fn": "fp8",
}  # fmt: skip
UNITS = {"bf16": "tensor_bf16", "fp16": "tensor_fp16", "fp32": "fp32", "fp64": "fp64", "fp8": "tensor_fp8"}
NO_WORK = "work not known"


@dataclass
class CarriedKernel:
    """All launches of one kernel with the same operator and shapes; times in ns, None if unknown.

    `roof_ratio` is the speed-up by the roofs alone. `bound` is the bound on the other machine, `basis` the method of
    the projection, and `failed` why there is none. `flops` and `moved` (bytes) are per launch; `unit` does most of the
    FLOPs.
    """

    kernel: str
    operator: str | None
    shapes: str | None
    launches: int
    time_ns: float
    machine: str
    expected_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None
    roof_ratio: float | None = None
    bound: str | None = None
    basis: str | None = None
    failed: str | None = None
    flops: float | None = None
    moved: float | None = None
    unit: str | None = None

    @property
    def speedup(self) -> float | None:
        """Measured / expected time."""
        return None if not self.expected_ns else self.time_ns / self.expected_ns


@dataclass(frozen=True)
class _Group:
    """Facts on equal launches: per launch, except `launches` and `time_ns`."""

    kernel: str
    operator: str | None
    shapes: str | None
    dtype: str | None
    launches: int
    time_ns: float
    flops: float
    moved: float
    unit: str | None

    @property
    def each_us(self) -> float:
        """Mean time of a launch."""
        return self.time_ns / self.launches / 1e3

    @property
    def product(self) -> Product | None:
        """The product behind the operator, if the launch did its FLOPs."""
        if self.operator is None or not self.flops > 0:
            return None
        return product_of(self.operator, shapes_in(self.shapes), self.flops)


def carried_run(
    launches: pa.Table, measured_on: Machine, machines: Sequence[Machine], learnt: Learnt
) -> list[CarriedKernel]:
    """The kernels of a run on other machines: machine by machine, the longest first.

    On the machine of the measurement, they take their measured time.
    """
    groups = sorted(_groups(launches), key=lambda group: -group.time_ns)
    rows = operator_rows(_products(groups))
    here = expected_times(rows, measured_on, learnt)
    found = []
    for machine in machines:
        there = expected_times(rows, machine, learnt)
        same = family_of(machine) == family_of(measured_on)
        place = 0
        for group in groups:
            row = CarriedKernel(
                group.kernel, group.operator, group.shapes, group.launches, group.time_ns, machine.id,
                flops=group.flops, moved=group.moved, unit=group.unit,
            )  # fmt: skip
            _by_roofs(row, group, measured_on, machine)
            if group.product is not None and machine.id != measured_on.id:
                _as_product(row, group, place, here, there, WITHIN if same else ACROSS)
            place += group.product is not None
            found.append(row)
    return found


class MeasuredProduct(NamedTuple):
    """A product C[m, n] = A[m, k] B[k, n] and its mean time; `quantised` (1) if A came in its narrow type."""

    dtype: str
    m: int
    n: int
    k: int
    time_us: float
    quantised: float = 0.0


def products_measured(launches: pa.Table) -> list[MeasuredProduct]:
    """Every product of a run with known shapes."""
    return [
        MeasuredProduct(
            group.dtype or "",
            product.m * product.number,
            product.n,
            product.k,
            group.time_ns / group.launches / 1e3,
            float(is_quantised(group.operator)),
        )
        for group in _groups(launches)
        if (product := group.product) is not None and not product.is_convolution
    ]


def _products(groups: Sequence[_Group]) -> dict[str, list[Any]]:
    """Products of groups as rows of operators."""
    columns: dict[str, list[Any]] = {name: [] for name in ("op", "dtype", "m", "n", "k", "number", "quantised")}
    for group in groups:
        if (product := group.product) is not None:
            quantised = int(is_quantised(group.operator))
            values = ("gemm", group.dtype or "", product.m, product.n, product.k, product.number, quantised)
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
    return columns


def _as_product(
    row: CarriedKernel, group: _Group, place: int, here: ExpectedTimes, there: ExpectedTimes, exponent: float
) -> None:
    """Project a product with expected times on both GPUs: t_B = model_B x (t_A / model_A) ^ exponent."""
    if here.failed[place] is not None or there.failed[place] is not None:
        return
    off = (group.each_us / here.expected_us[place]) ** exponent
    each = group.launches * 1e3 * off
    row.expected_ns, row.low_ns, row.high_ns = (
        float(each * column[place]) for column in (there.expected_us, there.low_us, there.high_us)
    )
    row.bound = there.bound[place]
    row.basis = f"product, {there.basis[place]}; measured / expected ^ {exponent:g}"
    row.failed = None


def _by_roofs(row: CarriedKernel, group: _Group, here: Machine, there: Machine) -> None:
    """Project a kernel by the ratio of its roofs, above a floor for the launch.

    The interval is between the ratios of bandwidths and of peaks; its low end is no less than computing takes there.
    """
    if category_of(group.kernel, group.operator) == COMMUNICATION:
        row.failed = "communication: links between GPUs are not modelled"
        return
    roofs = [_roof(group, machine) for machine in (here, there)]
    reasons = [roof for roof in roofs if isinstance(roof, str)]
    if reasons:
        row.failed = reasons[0]
        return
    (best_here, _, computing_here, moving_here), (best_there, bound, computing_there, moving_there) = roofs
    each = group.time_ns / group.launches
    floor = min(FLOOR_NS, each)
    ratios = [best_there / best_here]
    ratios += [moving_there / moving_here] if moving_here else []
    ratios += [computing_there / computing_here] if computing_here else []
    low, expected, high = (
        group.launches * (floor + (each - floor) * ratio) for ratio in (min(ratios), ratios[0], max(ratios))
    )
    row.expected_ns = expected
    low = min(max(low, group.launches * computing_there), expected)
    if high > low:  # the error of a single ratio is unknown
        row.low_ns, row.high_ns = low, high
    row.roof_ratio = 1 / ratios[0]
    row.bound = "launch" if floor > expected / group.launches / 2 else bound
    row.basis = "ratio of roofs"


def _roof(group: _Group, machine: Machine) -> Any:
    """(least ns, bound, ns of computing, ns of moving) of a launch on a machine, or why it is unknown."""
    if np.isnan(group.moved) and np.isnan(group.flops):
        return NO_WORK
    if DRAM not in machine.rates:
        return f"the bandwidth of {machine.id} is not known"
    moving = 0.0 if np.isnan(group.moved) else group.moved / machine.rates[DRAM].value * 1e9
    computing = 0.0
    if group.flops > 0 and group.unit is not None:
        if group.unit not in machine.rates:
            return f"no peak for {unit_title(group.unit)} is known of {machine.id}"
        computing = group.flops / machine.rates[group.unit].value * 1e9
    if max(moving, computing) <= 0:
        return NO_WORK
    return max(moving, computing), "DRAM" if moving >= computing else unit_title(group.unit or ""), computing, moving


def _type_in(text: str | None) -> str | None:
    """The type in "bfloat16", or of the first tensor in a trace's '["c10::BFloat16","Scalar"]'."""
    words = re.findall(r"[A-Za-z0-9_]+", (text or "").replace("c10::", ""))
    return next((TYPES[word] for word in words if word in TYPES), None)


def _groups(launches: pa.Table) -> list[_Group]:
    """Launches grouped by kernel, operator, shapes and type: sums of times, and the work of one launch."""
    count = len(launches)
    texts = {
        name: tables.words(launches, name) if tables.has_column(launches, name) else [None] * count
        for name in ("kernel_name", "operator", "shapes", "dtype")
    }
    times = tables.floats(launches, "duration_ns")
    flops = tables.floats(launches, "flops")
    moved = tables.floats(launches, "dram_bytes")
    moved = np.where(np.isnan(moved), tables.floats(launches, "least_bytes"), moved)
    invocations = tables.floats(launches, "invocations")
    number = np.where(np.isnan(invocations), 1, invocations)
    units = {unit: tables.floats(launches, column) for unit, column in FLOAT_UNITS.items()}
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, key in enumerate(zip(*texts.values(), strict=True)):
        if not np.isnan(times[place]) and key[0] is not None:
            places.setdefault(key, []).append(place)
    found = []
    for (kernel, operator, shapes, dtype), rows in places.items():
        first = rows[0]
        name = _type_in(dtype)
        work = {unit: column[first] for unit, column in units.items() if column[first] > 0}
        unit = max(work, key=lambda one: work[one]) if work else UNITS.get(name or "")
        found.append(
            _Group(
                kernel, operator, shapes, name, int(number[rows].sum()), float((times * number)[rows].sum()),
                float(flops[first]), float(moved[first]), unit,
            )
        )  # fmt: skip
    return found
