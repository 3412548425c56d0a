"""Expected times of whole models on a machine, eager and compiled, from their operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ncu_tools.ceilings.machine_files import Machine
from ncu_tools.model.expected_time.expected_times import expected_times
from ncu_tools.model.expected_time.hardware import Hardware, types
from ncu_tools.model.expected_time.learning import bounds
from ncu_tools.model.expected_time.learnt_times import Learnt, shipped
from ncu_tools.model.expected_time.model_time import MODEL
from ncu_tools.model.expected_time.model_work import ModelOperator, model_work
from ncu_tools.model.expected_time.operator_rows import operator_rows
from ncu_tools.model.expected_time.operator_shapes import Product

EAGER, COMPILED = ", eager", ", compiled"
LEARNT_PHASES = ("forward", "prefill", "decode")
"""No backward pass was among the measured times."""
NOTHING = Hardware(1.0, 1.0, 1.0, 0.0)


class ExpectedModel(NamedTuple):
    """Microseconds of a model run eagerly, the interval of 80 %, and compiled; what they stand on."""

    expected_us: float
    low_us: float
    high_us: float
    compiled_us: float
    basis: str

    def at_least(self, us: float) -> ExpectedModel:
        """The same, and nothing shorter than what the roofs allow: numbers fitted to whole models do not know those."""
        return ExpectedModel(
            max(self.expected_us, us),
            max(self.low_us, us),
            max(self.high_us, us),
            max(self.compiled_us, us),
            self.basis,
        )

    def in_ns(self) -> dict[str, Any]:
        """The columns of an estimate; an interval that nobody knows is None."""
        low, high = (None if us != us else us * 1e3 for us in (self.low_us, self.high_us))
        return {
            "expected_ns": self.expected_us * 1e3, "low_ns": low, "high_ns": high,
            "compiled_ns": self.compiled_us * 1e3, "basis": self.basis,
        }  # fmt: skip


def _of_one(product: Product, machine: Machine, dtype: str, learnt: Learnt) -> ExpectedModel | None:
    """A single product, which needs no model around it; compiling it changes nothing."""
    sizes = {"m": product.m, "n": product.n, "k": product.k}
    rows = operator_rows({"op": ["gemm"], "dtype": [dtype], **{name: [size] for name, size in sizes.items()}})
    rows.sizes["distinct"][:] = product.distinct
    times = expected_times(rows, machine, learnt)
    if times.failed[0] is not None:
        return None
    us, low, high = (float(column[0]) for column in (times.expected_us, times.low_us, times.high_us))
    return ExpectedModel(us, low, high, us, times.basis[0])


def is_learnt(phase: str | None) -> bool:
    """Whether times of a phase were measured."""
    return phase in LEARNT_PHASES


def expected_model(
    operators: Sequence[ModelOperator], machine: Machine, dtype: str, convolutions: str | None
) -> ExpectedModel | None:
    """The expected time of the operators of a model; None on a machine that is no GPU with known rates and SMs."""
    learnt = shipped()
    if dtype not in types():
        return None
    if len(operators) == 1 and (product := operators[0].product) is not None and product.number == 1:
        return _of_one(product, machine, dtype if not product.is_convolution else convolutions or dtype, learnt)
    found = []
    for how in (EAGER, COMPILED):
        work = model_work(operators, machine, dtype, convolutions or dtype, learnt, compiled=how == COMPILED)
        if isinstance(work, str):
            return None
        basis = learnt.basis("model", machine, dtype, how)
        times = MODEL.best(NOTHING, work, basis.logs)[0]
        found.append((times, basis))
    (eager, basis), (compiled, _) = found
    low, high = bounds(eager, basis.spread)
    us = float(eager[0])
    return ExpectedModel(us, float(low[0]), float(high[0]), min(float(compiled[0]), us), basis.words)
