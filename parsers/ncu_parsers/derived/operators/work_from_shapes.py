"""FLOPs and least bytes of launches, from the shapes of the operators that launched them.

Work belongs to an operator call. The launch that plainly did it has it too: the only kernel of the call, or the only
one of a product that is no known preparation or aftermath (`BESIDE_THE_WORK`). Else the operator alone has it, and
nothing is divided. Which operator it was that launched a kernel, the reader of the timeline says: the innermost.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from ncu_launch.operators.backward_calls import backward_call
from ncu_launch.operators.calls import UNRECORDED, Call, Tensor
from ncu_launch.operators.movement import CALLING_OTHERS, FREE
from ncu_launch.operators.table import NOTHING, UNUSABLE, OperatorWork, is_contraction, work_of
from ncu_launch.operators.units import contraction_unit, cpu_unit, elementwise_unit, type_of

from ncu_parsers.derived.operators.list_element_types import element_types
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import LEAST_BYTES, SHAPES_BASIS

OPERATOR_CALL, OPERATOR_FLOPS, OPERATOR_BYTES, OPERATOR_UNIT = (
    "operator_call", "operator_flops", "operator_least_bytes", "operator_unit",
)  # fmt: skip
"""Columns of the call that a launch belongs to: its number in the trace, and its work, which stands on its first kernel
alone; on its other launches it is 0, so that sums hold it once."""

UNIT_COLUMN = {"fp64": "flops_fp64", "fp32": "flops_fp32"}
"""The columns of units that are not tensor cores."""

BESIDE_THE_WORK = re.compile(
    r"split_?k_?reduce|reduce_kernel|transpose|nchwto|nhwcto|convert|computeoffsets|scalepackedtensor|memset|fill|copy"
    r"|elementwise|dot_do_o|dq_dk_dv_convert|offsetstensor|im2col|pad|workspace",
    re.IGNORECASE,
)
"""Kernels that prepare the operands of a product, convolution or attention, or gather its parts."""

TYPES = {
    "double": "float64", "float": "float32", "c10::Half": "float16", "c10::BFloat16": "bfloat16",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2",
    "c10::Float8_e4m3fnuz": "float8_e4m3fnuz", "c10::Float8_e5m2fnuz": "float8_e5m2fnuz",
    "c10::Float8_e8m0fnu": "float8_e8m0fnu", "c10::Float4_e2m1fn_x2": "float4_e2m1fn_x2",
    "long int": "int64", "long": "int64", "long long": "int64", "int": "int32", "short int": "int16", "short": "int16",
    "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128", "c10::complex<c10::Half>": "complex32",
}  # fmt: skip
"""Types as PyTorch's profiler writes them -> as PyTorch names them."""

LARGEST = 2**48
"""Elements of one dimension from which on a recorded shape is taken for damage."""


class RecordedInputs(NamedTuple):
    """The inputs of an operator as the profiler recorded them, a list each; anything else where it did not.

    `backward_of`: of a node of the backward pass, the sequence number of its forward operator.
    """

    shapes: Any = None
    types: Any = None
    strides: Any = None
    values: Any = None
    backward_of: int | None = None


UNTYPED = "Tensor"
"""What stands for the type of a tensor of which the shape alone is known."""

LIST = "TensorList"
"""What the profiler writes for the type of a list of tensors."""


def recorded_call(name: str, inputs: RecordedInputs, kernels: Sequence[str] = ()) -> Call:
    """The call of an operator; what was not recorded of its arguments is `UNRECORDED`.

    A list of tensors is recorded without types: they are known where the names of `kernels` tell, else "".
    """
    if not isinstance(inputs.types, list) or not isinstance(inputs.shapes, list):
        return Call(name, ())
    has_values = isinstance(inputs.values, list)
    arguments: list[Any] = []
    of_lists = element_types(kernels, TYPES) if LIST in inputs.types else ()
    lists = 0
    for place, kind in enumerate(inputs.types):
        shape, strides, value = (_at(listed, place) for listed in (inputs.shapes, inputs.strides, inputs.values))
        if kind in TYPES:
            arguments.append(_tensor(shape, TYPES[kind], strides))
        elif kind == UNTYPED:
            arguments.append(_tensor(shape, "", strides))
        elif kind == LIST:
            dtype = of_lists[min(lists, len(of_lists) - 1)] if of_lists else ""
            lists += 1
            listed = [_tensor(one, dtype, None) for one in shape] if isinstance(shape, list) else []
            known = listed and all(isinstance(one, Tensor) for one in listed)
            arguments.append(tuple(listed) if known else UNRECORDED)
        else:
            arguments.append(_value(value) if has_values and isinstance(value, str) else UNRECORDED)
    return Call(name, tuple(arguments))


def _at(values: Any, place: int) -> Any:
    return values[place] if isinstance(values, list) and place < len(values) else None


def _tensor(shape: Any, dtype: str, strides: Any) -> Any:
    if not _are_sizes(shape):
        return UNRECORDED
    known = _are_sizes(strides) and len(strides) == len(shape)
    return Tensor(tuple(shape), dtype, tuple(strides) if known else None)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int and 0 <= one < LARGEST for one in value)


@lru_cache(maxsize=4096)
def _value(text: str) -> Any:
    """A number, a truth value or a list of them as printed; None for "", `UNRECORDED` for what is none of these."""
    if not text:
        return None
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return UNRECORDED
    return tuple(found) if isinstance(found, list) else found


# -------------------------------------------------------------------------------------------------- work of launches


class LaunchingOperator(NamedTuple):
    """The operator call that launched something: `number` tells the calls of a trace apart.

    `around` are the numbers of the operators that called it. `kernel` is what ran, "" for a copy and for an operator on
    a CPU. `forward`: of an operator of the backward pass without shapes, the name and inputs of its forward operator.
    """

    number: int
    name: str
    inputs: RecordedInputs
    around: tuple[int, ...] = ()
    kernel: str = ""
    forward: tuple[str, RecordedInputs] | None = None


@dataclass
class WorkOfLaunches:
    """Columns of work, a value per launch: NaN or None where it is not known. FLOP and bytes."""

    rows: int
    flops: Any = field(init=False)
    least_bytes: Any = field(init=False)
    operator_flops: Any = field(init=False)
    operator_bytes: Any = field(init=False)
    units: list[str | None] = field(init=False)
    operator_units: list[str | None] = field(init=False)
    calls: list[int | None] = field(init=False)

    def __post_init__(self) -> None:
        self.flops, self.least_bytes, self.operator_flops, self.operator_bytes = np.full((4, self.rows), np.nan)
        self.units, self.operator_units = [None] * self.rows, [None] * self.rows
        self.calls = [None] * self.rows

    def give_operator(self, launches: Sequence[int], work: OperatorWork, unit: str | None) -> None:
        """Put the work of a call on the first of its launches, given kernels first, and 0 on the others."""
        for column, amount in ((self.operator_flops, work.flops), (self.operator_bytes, work.least_bytes)):
            if amount is not None:
                column[launches] = 0.0
                column[launches[0]] = amount
        self.operator_units[launches[0]] = unit

    def give_launch(self, launch: int, work: OperatorWork, unit: str | None) -> None:
        """Put the work of a call on the launch that did it."""
        if work.flops is not None:
            self.flops[launch] = work.flops
            self.units[launch] = unit
        if work.least_bytes is not None:
            self.least_bytes[launch] = work.least_bytes

    def contract_columns(self) -> dict[str, pa.Array]:
        """Those columns of the table of launches that have a value."""
        known = ~np.isnan(self.flops)
        found = {
            "flops": arrays.floats(self.flops),
            "flops_basis": arrays.dictionary([SHAPES_BASIS if one else None for one in known.tolist()]),
            LEAST_BYTES: arrays.floats(self.least_bytes),
        }
        for unit in sorted({unit for unit in self.units if unit}):
            column = UNIT_COLUMN.get(unit) or f"tensor_flops_{unit.removeprefix('tensor_')}"
            found[column] = arrays.floats(np.where([one == unit for one in self.units], self.flops, np.nan))
        tensor = [bool(unit and unit.startswith("tensor_")) for unit in self.units]
        found["tensor_flops"] = arrays.floats(np.where(tensor, self.flops, np.nan))
        return found

    def operator_columns(self) -> list[tuple[str, str, pa.Array]]:
        """Name, unit and values of the columns of calls, which the table of launches has beyond its contract."""
        return [
            (OPERATOR_CALL, "", arrays.integers(self.calls, pa.int64())),
            (OPERATOR_FLOPS, "FLOP", arrays.floats(self.operator_flops)),
            (OPERATOR_BYTES, "byte", arrays.floats(self.operator_bytes)),
            (OPERATOR_UNIT, "", arrays.dictionary(self.operator_units)),
        ]


class _KnownCalls:
    """The work of calls and the type it is done in; layers repeat calls, so that each is worked out once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[OperatorWork | None, str | None]] = {}

    def of(self, call: LaunchingOperator, kernels: Sequence[str] = ()) -> tuple[OperatorWork | None, str | None]:
        """The work of a call and its type, None where they are not known. `kernels` are the names of what it ran."""
        takes_lists = isinstance(call.inputs.types, list) and LIST in call.inputs.types
        key = f"{call.name}{tuple(call.inputs)}{kernels if takes_lists else ''}{call.forward or ''}"
        if key not in self._known:
            described = _rebuilt(call) or recorded_call(call.name, call.inputs, kernels)
            self._known[key] = work_of(described), type_of(described)
        return self._known[key]


def _rebuilt(call: LaunchingOperator) -> Call | None:
    """The call of a backward operator with the shapes of its forward operator; None where those do not tell."""
    try:
        return backward_call(call.name, recorded_call(*call.forward)) if call.forward else None
    except UNUSABLE:
        return None


def work_of_kernels(launched_by: Sequence[LaunchingOperator | None]) -> WorkOfLaunches:
    """The work of launches, each with the call that launched it; None for what no operator or a graph launched.

    Copies do none, and a call that launched nothing else has none that is known: what it moved may not be here.
    """
    result = WorkOfLaunches(len(launched_by))
    launches: dict[int, list[int]] = {}
    calls: dict[int, LaunchingOperator] = {}
    wrappers: set[int] = set()
    names = ["" if call is None else call.kernel for call in launched_by]
    contractions = {name for name in {call.name for call in launched_by if call} if is_contraction(name)}
    for row, call in enumerate(launched_by):
        if call is not None:
            result.calls[row] = call.number
            launches.setdefault(call.number, []).append(row)
            calls[call.number] = call
            if call.name in contractions:
                wrappers.update(call.around)
    known = _KnownCalls()
    for number, call in calls.items():
        rows = sorted(launches[number], key=lambda row: not names[row])  # kernels in front of copies
        kernels = [names[row] for row in rows if names[row]]
        work, dtype = known.of(call, kernels)
        if work is None or not kernels or call.name in FREE or (work.is_contraction and number in wrappers):
            continue  # a view launches nothing, and the work of a wrapper is that of the product which it calls
        main = _doer(kernels, work)
        kernel = kernels[main if main is not None else 0]
        unit = contraction_unit(dtype, kernel) if work.is_contraction else elementwise_unit(dtype)
        unit = unit if work.flops else None
        result.give_operator(rows, work, unit)
        if main is not None:
            result.give_launch(rows[main], work, unit)
    return result


def _doer(kernels: Sequence[str], work: OperatorWork) -> int | None:
    """Which kernel of a call plainly did its work; None where several may have."""
    if len(kernels) == 1:
        return 0
    if not work.is_contraction:
        return None
    left = [place for place, name in enumerate(kernels) if not BESIDE_THE_WORK.search(name)]
    return left[0] if len(left) == 1 else None


def work_of_cpu_operators(operators: Sequence[LaunchingOperator | None]) -> WorkOfLaunches:
    """The work of operators on a CPU, each a row. One that calls another which does the work has none of its own.

    One that computes, as a sum, does so itself where those that it calls only fill or copy.
    """
    result = WorkOfLaunches(len(operators))
    known = _KnownCalls()
    found = [(None, None) if one is None else known.of(one) for one in operators]
    around_products: set[int] = set()
    around_flops: set[int] = set()
    around_work: set[int] = set()
    for one, (work, _) in zip(operators, found, strict=True):
        if one is not None and work is not None and (work.flops or work.least_bytes):
            around_work.update(one.around)
            around_flops.update(one.around if work.flops else ())
            around_products.update(one.around if work.is_contraction else ())
    for row, (one, (work, dtype)) in enumerate(zip(operators, found, strict=True)):
        if one is not None and one.name in CALLING_OTHERS:
            work = NOTHING
        if one is None or work is None:
            continue
        result.calls[row] = one.number
        doers = around_products if work.is_contraction else around_flops if work.flops else around_work
        work = NOTHING if one.number in doers else work
        unit = cpu_unit(dtype) if work.flops else None
        result.give_operator([row], work, unit)
        result.give_launch(row, work, unit)
    return result
