"""Expected times of whole models on a machine, eager and compiled, from their operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ncu_tools.ceilings.machine_files import Machine
from ncu_tools.model.expected_time.aten_rows import is_quantised
from ncu_tools.model.expected_time.expected_times import expected_times
from ncu_tools.model.expected_time.hardware import Hardware, family_of, types, unit_of
from ncu_tools.model.expected_time.learning import bounds
from ncu_tools.model.expected_time.learnt_times import Learnt, shipped
from ncu_tools.model.expected_time.model_time import MODEL
from ncu_tools.model.expected_time.model_work import ModelOperator, model_work, whole_attention
from ncu_tools.model.expected_time.operator_rows import operator_rows
from ncu_tools.model.expected_time.operator_shapes import Product
from ncu_tools.model.expected_time.physics import Floats

EAGER, COMPILED = ", eager", ", compiled"
LEARNT_PHASES = ("forward", "prefill", "decode")
"""Phases with measured times; there are none of backward passes."""
NOTHING = Hardware(1.0, 1.0, 1.0, 0.0)


class ExpectedModel(NamedTuple):
    """Expected time of a model in us: eager with its 80 % interval, and compiled; and the basis of these times."""

    expected_us: float
    low_us: float
    high_us: float
    compiled_us: float
    basis: str

    def at_least(self, us: float) -> ExpectedModel:
        """The same times, but none shorter than the roofline's, which numbers fitted to whole models do not know."""
        return ExpectedModel(
            max(self.expected_us, us),
            max(self.low_us, us),
            max(self.high_us, us),
            max(self.compiled_us, us),
            self.basis,
        )

    def in_ns(self) -> dict[str, Any]:
        """The columns of an estimate, in ns; None for an unknown interval."""
        low, high = (None if us != us else us * 1e3 for us in (self.low_us, self.high_us))
        return {
            "expected_ns": self.expected_us * 1e3, "low_ns": low, "high_ns": high,
            "compiled_ns": self.compiled_us * 1e3, "basis": self.basis,
        }  # fmt: skip


def _of_one(product: Product, machine: Machine, dtype: str, learnt: Learnt, *, quantised: bool) -> ExpectedModel | None:
    """The expected time of a single product as a model; compiling changes nothing."""
    sizes = {"m": product.m, "n": product.n, "k": product.k}
    rows = operator_rows({"op": ["gemm"], "dtype": [dtype], **{name: [size] for name, size in sizes.items()}})
    rows.sizes["distinct"][:] = product.distinct
    rows.sizes["quantised"][:] = float(quantised)
    rows.sizes["convolution"][:] = float(product.is_convolution)
    times = expected_times(rows, machine, learnt)
    if times.failed[0] is not None:
        return None
    us, low, high = (float(column[0]) for column in (times.expected_us, times.low_us, times.high_us))
    return ExpectedModel(us, low, high, us, times.basis[0])


def is_learnt(phase: str | None) -> bool:
    """True if times of a phase were measured."""
    return phase in LEARNT_PHASES


MEASURED_CHANNELS_LAST = ("7.0", "7.5")
"""GPU families whose models were measured in channels-last with 16 bits, as NVIDIA's examples run them.

In PyTorch's default layout, cuDNN converts images to channels-last and back, since tensor cores need that layout
(docs.nvidia.com/deeplearning/performance/dl-performance-convolutional, "Tensor Layouts In Memory"). On other GPUs,
models were measured in the default layout, so their times include these conversions.
"""


def _turns(machine: Machine, convolutions: str) -> bool:
    on_tensor_cores = unit_of(machine, convolutions).startswith("tensor")
    return on_tensor_cores and family_of(machine) in MEASURED_CHANNELS_LAST


def _with_cache_of_fewer_bytes(operators: Sequence[ModelOperator], saved: float) -> list[ModelOperator]:
    """The operators, with attention reading `saved` bytes less of its cache."""
    attention = sum(one.moved for one in operators if one.group == "attention")
    share = min(saved / attention, 1.0) if attention else 0.0
    return [
        one._replace(moved=one.moved * (1 - share)) if one.group == "attention" else one for one in operators
    ]  # fmt: skip


def expected_model(
    operators: Sequence[ModelOperator], machine: Machine, dtype: str, convolutions: str | None,
    *, weight_bytes: float | None = None, saved_of_cache: float = 0.0,
) -> ExpectedModel | None:  # fmt: skip
    """The expected time of a model's operators; None on a machine that is no GPU with known rates and SMs.

    `weight_bytes` are the bytes per weight if only weights have another type; `saved_of_cache` is the number of KV
    cache bytes that are not read although operators count them.
    """
    learnt = shipped()
    if dtype not in types():
        return None
    operators = _with_cache_of_fewer_bytes(whole_attention(operators), saved_of_cache) if saved_of_cache else operators
    if len(operators) == 1 and (product := operators[0].product) is not None and product.number == 1:
        one = dtype if not product.is_convolution else convolutions or dtype
        return _of_one(product, machine, one, learnt, quantised=is_quantised(operators[0].name))
    layers = convolutions or dtype
    turns = _turns(machine, layers)
    eager = model_work(operators, machine, dtype, layers, learnt, turns=turns, weight_bytes=weight_bytes)
    compiled = model_work(operators, machine, dtype, layers, learnt, compiled=True, weight_bytes=weight_bytes)
    if isinstance(eager, str) or isinstance(compiled, str):
        return None
    basis = learnt.basis("model", machine, dtype, EAGER)
    expected = MODEL.best(NOTHING, eager, basis.logs)[0]
    low, high = bounds(expected, basis.spread)
    quick, slow = (float(MODEL.best(NOTHING, eager, logs)[0][0]) for logs in _on_other_hosts(learnt, basis.logs))
    of_compiled = float(MODEL.best(NOTHING, compiled, learnt.basis("model", machine, dtype, COMPILED).logs)[0][0])
    us = float(expected[0])
    return ExpectedModel(
        us, min(float(low[0]), quick), max(float(high[0]), slow), min(of_compiled, us), basis.words
    )  # fmt: skip


def _on_other_hosts(learnt: Learnt, logs: Floats) -> list[Floats]:
    """The numbers of a model with the fastest and the slowest measured host, since the host is not part of the GPU."""
    place = list(MODEL.numbers).index("host_us")
    hosts = [float(one.logs[place]) for one in learnt.entries if one.kind == "model" and one.dtype.endswith(EAGER)]
    found = [logs.copy(), logs.copy()]
    for one, host in zip(found, (min(hosts, default=logs[place]), max(hosts, default=logs[place])), strict=True):
        one[place] = host
    return found
