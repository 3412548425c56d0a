"""FLOPs and least bytes of launches, from the shapes of the operators that launched them.

Work belongs to an operator call. It is also given to one launch if that launch clearly did it: the only kernel of the
call, or the only kernel of a product that does not merely prepare or gather operands (`BESIDE_THE_WORK`). Otherwise
only the operator gets it; work is never divided. The timeline's reader names the operator of a kernel: the innermost
one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.operators.backward_calls import backward_call
from ncu_launch.operators.calls import UNRECORDED, Call, Formula, Tensor
from ncu_launch.operators.movement import CALLING_OTHERS, FREE
from ncu_launch.operators.table import NONE_OWN, NOTHING, UNUSABLE, OperatorWork, is_contraction, work_of
from ncu_launch.operators.units import contraction_unit, cpu_unit, elementwise_unit, type_of

from ncu_parsers.derived.operators.list_element_types import element_types
from ncu_parsers.schema import arrays
from ncu_parsers.schema.operator_columns import (
    OPERATOR_BYTES,
    OPERATOR_CALL,
    OPERATOR_FLOPS,
    OPERATOR_UNIT,
    UNIT_COLUMN,
)  # fmt: skip
from ncu_parsers.schema.tables import LEAST_BYTES, SHAPES_BASIS

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.integer]

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
"""Elements of one dimension above which a recorded shape is treated as damage."""


class RecordedInputs(NamedTuple):
    """The inputs of an operator as the profiler recorded them, one list per field; any other value if not recorded."""

    shapes: Any = None
    types: Any = None
    strides: Any = None
    values: Any = None


UNTYPED = "Tensor"
"""Type of a tensor whose shape alone is known."""

LIST = "TensorList"
"""Type that the profiler writes for a list of tensors."""


def recorded_call(name: str, inputs: RecordedInputs, kernels: Sequence[str] = ()) -> Call:
    """The call of an operator; arguments that were not recorded are `UNRECORDED`.

    The profiler records no types for a list of tensors: the names of `kernels` may give them, else they are "".
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
    """A tensor argument. Sizes without strides mean a sparse tensor, whose number of elements is unknown."""
    if not _are_sizes(shape) or (shape and strides == []):
        return UNRECORDED
    known = _are_sizes(strides) and len(strides) == len(shape)
    return Tensor(tuple(shape), dtype, tuple(strides) if known else None)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int and 0 <= one < LARGEST for one in value)


@lru_cache(maxsize=4096)
def _value(text: str) -> Any:
    """Parse a printed number, truth value or list of them; None for "", `UNRECORDED` for any other text."""
    if not text:
        return None
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return UNRECORDED
    return tuple(found) if isinstance(found, list) else found


# -------------------------------------------------------------------------------------------------- work of launches


class LaunchingOperator(NamedTuple):
    """The operator call that launched something; `number` identifies the call within a trace.

    `around` are the numbers of its callers. `kernel` is the kernel's name, "" for a copy and for an operator on a CPU.
    `forward`: name and inputs of the forward operator, for a backward operator without shapes.
    """

    number: int
    name: str
    inputs: RecordedInputs
    around: tuple[int, ...] = ()
    kernel: str = ""
    forward: tuple[str, RecordedInputs] | None = None


@dataclass
class WorkOfLaunches:
    """Columns of work in FLOP and bytes, a value per launch: NaN or -1 if unknown.

    Units are indices into `names_of_units`.
    """

    rows: int
    flops: Floats = field(init=False)
    least_bytes: Floats = field(init=False)
    operator_flops: Floats = field(init=False)
    operator_bytes: Floats = field(init=False)
    units: Codes = field(init=False)
    operator_units: Codes = field(init=False)
    calls: npt.NDArray[np.int64] = field(init=False)
    names_of_units: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.flops, self.least_bytes, self.operator_flops, self.operator_bytes = np.full((4, self.rows), np.nan)
        self.units, self.operator_units = np.full((2, self.rows), -1, np.int32)
        self.calls = np.full(self.rows, -1)

    def part(self, rows: slice) -> WorkOfLaunches:
        """The work of the launches in `rows`."""
        found = copy(self)
        for column in fields(self):
            values = getattr(self, column.name)
            if isinstance(values, np.ndarray):
                setattr(found, column.name, values[rows])
        found.rows = len(found.flops)
        return found

    def unit(self, name: str | None) -> int:
        """The code of a unit; -1 for None."""
        if name is None:
            return -1
        if name not in self.names_of_units:
            self.names_of_units.append(name)
        return self.names_of_units.index(name)

    def give_operator(self, launches: Sequence[int], work: OperatorWork, unit: str | None) -> None:
        """Put the work of a call on the first of its launches, given kernels first, and 0 on the others."""
        for column, amount in ((self.operator_flops, work.flops), (self.operator_bytes, work.least_bytes)):
            if amount is not None:
                for launch in launches[1:]:
                    column[launch] = 0.0
                column[launches[0]] = amount
        self.operator_units[launches[0]] = self.unit(unit)

    def give_launch(self, launch: int, work: OperatorWork, unit: str | None) -> None:
        """Assign the work of a call to the launch that did it."""
        if work.flops is not None:
            self.flops[launch] = work.flops
            self.units[launch] = self.unit(unit)
        if work.least_bytes is not None:
            self.least_bytes[launch] = work.least_bytes

    def contract_columns(self) -> dict[str, pa.Array]:
        """Columns of the launch table by name: FLOPs with basis, least bytes, and FLOPs of each unit that was used."""
        found = {
            "flops": arrays.floats(self.flops),
            "flops_basis": arrays.recoded(np.where(np.isnan(self.flops), -1, 0), [SHAPES_BASIS]),
            LEAST_BYTES: arrays.floats(self.least_bytes),
        }
        tensor = np.zeros(self.rows, np.bool_)
        for code, unit in sorted(enumerate(self.names_of_units), key=lambda pair: pair[1]):
            here = self.units == code
            if not here.any():
                continue
            column = UNIT_COLUMN.get(unit) or f"tensor_flops_{unit.removeprefix('tensor_')}"
            found[column] = arrays.floats(np.where(here, self.flops, np.nan))
            if unit.startswith("tensor_"):
                tensor |= here
        found["tensor_flops"] = arrays.floats(np.where(tensor, self.flops, np.nan))
        return found

    def operator_columns(self) -> list[tuple[str, str, pa.Array]]:
        """Name, unit and values of the operator-call columns, which only some launch tables have."""
        return [
            (OPERATOR_CALL, "", arrays.wholes(self.calls, pa.int64())),
            (OPERATOR_FLOPS, "FLOP", arrays.floats(self.operator_flops)),
            (OPERATOR_BYTES, "byte", arrays.floats(self.operator_bytes)),
            (OPERATOR_UNIT, "", arrays.recoded(self.operator_units, self.names_of_units)),
        ]


class _KnownCalls:
    """Cache of the work of calls and its type; layers repeat calls, so each distinct call is computed once.

    Inputs are compared by identity: keep the calls alive as long as this object.
    """

    def __init__(self, own: Mapping[str, Formula]) -> None:
        self._own = own
        self._known: dict[Hashable, tuple[OperatorWork | None, str | None]] = {}
        self._done: dict[Hashable, tuple[OperatorWork | None, str | None, int | None]] = {}

    def done_by(
        self, call: LaunchingOperator, kernels: tuple[str, ...]
    ) -> tuple[OperatorWork | None, str | None, int | None]:
        """The work of a call, its unit, and the index of the kernel that clearly did it; each None if unknown."""
        key = call.name, id(call.inputs), call.forward and id(call.forward[1]), kernels
        if key not in self._done:
            work, dtype = self.of(call, kernels)
            main = _kernel_with_the_work(kernels, work) if work else None
            kernel = kernels[main or 0]
            unit = None
            if work and work.flops:
                unit = contraction_unit(dtype, kernel) if work.is_contraction else elementwise_unit(dtype)
            self._done[key] = work, unit, main
        return self._done[key]

    def of(self, call: LaunchingOperator, kernels: Sequence[str] = ()) -> tuple[OperatorWork | None, str | None]:
        """The work of a call and its type, None if unknown. `kernels` are the names of the kernels that it ran."""
        takes_lists = isinstance(call.inputs.types, list) and LIST in call.inputs.types
        forward = (call.forward[0], id(call.forward[1])) if call.forward else None
        key = call.name, id(call.inputs), tuple(kernels) if takes_lists else (), forward
        if key not in self._known:
            described = _rebuilt(call) or recorded_call(call.name, call.inputs, kernels)
            self._known[key] = work_of(described, self._own), type_of(described)
        return self._known[key]


def _rebuilt(call: LaunchingOperator) -> Call | None:
    """The call of a backward operator with the shapes of its forward operator; None if these do not determine it."""
    try:
        return backward_call(call.name, recorded_call(*call.forward)) if call.forward else None
    except UNUSABLE:
        return None


def work_of_kernels(
    launched_by: Sequence[LaunchingOperator | None], own: Mapping[str, Formula] = NONE_OWN
) -> WorkOfLaunches:
    """The work of launches, given the call that launched each; None for launches without operator or from a graph.

    `own` are the user's formulas. A call that launched only copies has 0 FLOPs and unknown bytes; the FLOPs of a
    contraction are unknown then, since its kernels may be missing from the trace.
    """
    result = WorkOfLaunches(len(launched_by))
    launches: dict[int, list[int]] = {}
    calls: dict[int, LaunchingOperator] = {}
    wrappers: set[int] = set()
    names = ["" if call is None else call.kernel for call in launched_by]
    contractions = {name for name in {call.name for call in launched_by if call} if is_contraction(name, own)}
    for row, call in enumerate(launched_by):
        if call is not None:
            result.calls[row] = call.number
            launches.setdefault(call.number, []).append(row)
            calls[call.number] = call
            if call.name in contractions:
                wrappers.update(call.around)
    known = _KnownCalls(own)
    for number, call in calls.items():
        rows = launches[number]
        if len(rows) > 1:
            rows.sort(key=lambda row: not names[row])  # kernels before copies
        kernels = tuple(names[row] for row in rows if names[row])
        if call.name in FREE:
            continue  # a view launches nothing
        if not kernels:
            if call.name not in contractions:
                result.flops[rows] = result.operator_flops[rows] = 0.0
            continue
        work, unit, main = known.done_by(call, kernels)
        if work is None or (work.is_contraction and number in wrappers):
            continue  # the product that a wrapper calls has the work
        result.give_operator(rows, work, unit)
        if main is not None:
            result.give_launch(rows[main], work, unit)
    return result


def _kernel_with_the_work(kernels: Sequence[str], work: OperatorWork) -> int | None:
    """Index of the kernel that clearly did the work of a call; None if several may have."""
    if len(kernels) == 1:
        return 0
    if not work.is_contraction:
        return None
    left = [place for place, name in enumerate(kernels) if not BESIDE_THE_WORK.search(name)]
    return left[0] if len(left) == 1 else None


def work_of_cpu_operators(
    known_as: Sequence[LaunchingOperator], code: Codes, above: Codes, own: Mapping[str, Formula] = NONE_OWN
) -> WorkOfLaunches:
    """The work of operators on a CPU, one per row; an operator that calls another which does the work has none itself.

    An operator that computes, such as a sum, has work of its own if its callees only fill or copy. `known_as` are the
    distinct calls, `code` the index of each row's call; `above` is the row of the calling operator, -1 for none.
    """
    result, known = WorkOfLaunches(len(code)), _KnownCalls(own)
    works = [known.of(one) for one in known_as]
    has_flops, has_work, is_product = np.array(
        [(bool(work.flops), bool(work.flops or work.least_bytes), work.is_contraction) if work else (False,) * 3
         for work, _ in works], np.bool_,
    ).reshape(-1, 3).T  # fmt: skip
    around_work = _above(has_work[code], above)
    around_flops = _above(has_flops[code], above)
    around_products = _above((has_work & is_product)[code], above)
    order, begins = np.argsort(code, kind="stable"), np.searchsorted(np.sort(code), np.arange(len(works) + 1))
    for place, (one, (work, dtype)) in enumerate(zip(known_as, works, strict=True)):
        if one.name in CALLING_OTHERS:
            work = NOTHING
        if work is None:
            continue
        rows = order[begins[place] : begins[place + 1]]
        result.calls[rows] = rows
        doers = around_products if work.is_contraction else around_flops if work.flops else around_work
        for mine, done in ((rows[doers[rows]], NOTHING), (rows[~doers[rows]], work)):
            unit = result.unit(cpu_unit(dtype) if done.flops else None)
            result.operator_units[mine] = unit
            if done.flops is not None:
                result.flops[mine] = result.operator_flops[mine] = done.flops
                result.units[mine] = unit
            if done.least_bytes is not None:
                result.least_bytes[mine] = result.operator_bytes[mine] = done.least_bytes
    return result


def _above(marked: npt.NDArray[np.bool_], above: Codes) -> npt.NDArray[np.bool_]:
    """Mask of rows that are above a marked one, at any distance."""
    found = np.zeros(len(marked), np.bool_)
    next_ones = above[marked]
    while len(next_ones := np.unique(next_ones[next_ones >= 0])):
        next_ones = next_ones[~found[next_ones]]
        found[next_ones] = True
        next_ones = above[next_ones]
    return found
