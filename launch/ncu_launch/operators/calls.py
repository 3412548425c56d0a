"""A call of an operator as input of formulas: tensors by shape, type and strides, other arguments by value.

The operator collector makes calls from real tensors, the reader of traces from recordings of PyTorch's profiler.
Arguments that were not recorded are `UNRECORDED`, and a formula that needs one raises `UnknownWork`: nothing is
guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import Any, NamedTuple

Shape = tuple[int, ...]

ELEMENT_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
    "complex32": 4, "complex64": 8, "complex128": 16,
}  # fmt: skip
"""PyTorch type name -> bytes of an element. An element of float4_e2m1fn_x2 holds two numbers."""


class UnknownWork(LookupError):
    """A call lacks an argument that its formula needs."""


class _Unrecorded:
    def __repr__(self) -> str:
        return "UNRECORDED"


UNRECORDED = _Unrecorded()
"""The value of an argument that a trace does not contain."""


class Tensor(NamedTuple):
    """Shape, type as PyTorch names it, and strides in elements if known. A number has the shape ()."""

    shape: Shape
    dtype: str
    strides: Shape | None = None

    @property
    def elements(self) -> int:
        """Number of elements, broadcast ones included."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of memory behind the tensor; a dimension of stride 0 counts once.

        Raises `UnknownWork` for a type of unknown size.
        """
        if self.dtype not in ELEMENT_BYTES:
            raise UnknownWork(f"the size of the type {self.dtype or '?'}")
        sizes = self.shape
        if self.strides is not None and len(self.strides) == len(sizes):
            sizes = tuple(size for size, stride in zip(sizes, self.strides, strict=True) if stride or not size)
        return prod(sizes) * ELEMENT_BYTES[self.dtype]

    @property
    def is_float(self) -> bool:
        """True if arithmetic on it counts as FLOPs."""
        return self.dtype.startswith(("float", "bfloat", "complex"))


class Call(NamedTuple):
    """One call of an operator, such as "aten::mm", with its arguments in the order of its schema."""

    name: str
    arguments: tuple[Any, ...]

    def tensor(self, place: int) -> Tensor:
        """The tensor at an argument position. Raises `UnknownWork` if there is none."""
        found = self.arguments[place] if place < len(self.arguments) else None
        if not isinstance(found, Tensor):
            raise UnknownWork(f"the tensor of argument {place}")
        return found

    def is_tensor(self, place: int) -> bool:
        """True if the argument at a position is a tensor; optional ones may be missing."""
        return place < len(self.arguments) and isinstance(self.arguments[place], Tensor)

    def tensors(self, place: int) -> tuple[Tensor, ...]:
        """The list of tensors at a position. Raises `UnknownWork` if it is empty or the trace lacks its shapes."""
        found = self.arguments[place] if place < len(self.arguments) else None
        if not isinstance(found, (tuple, list)) or not found or not all(isinstance(one, Tensor) for one in found):
            raise UnknownWork(f"the tensors of argument {place}")
        return tuple(found)

    def given_bytes(self, places: Iterable[int]) -> int:
        """Bytes of the tensors at these positions; arguments that are no tensors count 0."""
        return sum(self.tensor(place).bytes for place in places if self.is_tensor(place))

    def value(self, place: int, default: Any = None) -> Any:
        """The value at a position; `default` for None and after the last argument.

        Raises `UnknownWork` if it was not recorded.
        """
        found = self.arguments[place] if place < len(self.arguments) else default
        if found is UNRECORDED:
            raise UnknownWork(f"the value of argument {place}")
        return default if found is None else found

    def numbers(self, place: int, count: int) -> Shape:
        """`count` integers at a position, such as strides or padding; a single one is repeated `count` times.

        Raises `UnknownWork` for anything else.
        """
        found = self.value(place)
        listed = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if not listed or not all(isinstance(one, int) for one in listed):
            raise UnknownWork(f"the numbers of argument {place}")
        if len(listed) not in (1, count):
            raise UnknownWork(f"{count} numbers in argument {place}")
        return listed * count if len(listed) == 1 else listed

    def every_tensor(self) -> Iterator[Tensor]:
        """All tensors among the arguments, lists included."""
        for argument in self.arguments:
            if isinstance(argument, Tensor):
                yield argument
            elif isinstance(argument, (tuple, list)):
                yield from (one for one in argument if isinstance(one, Tensor))


def bytes_at(*places: int) -> Callable[[Call], float]:
    """A function that returns the bytes of the tensors at these positions; raises `UnknownWork` if one is missing."""
    return lambda call: float(sum(call.tensor(place).bytes for place in places))


class Formula(NamedTuple):
    """The work of an operator, as functions of a call.

    `flops`: operations, a multiply-add as 2. `read` and `written`: the least bytes that it moves from and to memory,
    each input and output once. `is_contraction`: matrix products, convolutions and attention, done by tensor cores;
    other work is done by CUDA cores. `correction`, None for 0, is the FLOPs to add to `flops`, which for contractions
    are those of PyTorch's own counter: of an added bias, or, negative, saved by a causal mask. `source`: where the
    formula is from. All functions may raise `UnknownWork`.
    """

    flops: Any
    read: Any
    written: Any
    is_contraction: bool
    source: str
    correction: Any = None


REAL_OF_COMPLEX = 4
"""A complex multiply-add takes four multiplications and four additions, as much as four real ones."""


def broadcast(shapes: Iterator[Shape] | list[Shape]) -> Shape:
    """The shape to which these shapes broadcast. Raises `UnknownWork` if they do not fit each other."""
    result: list[int] = []
    for shape in shapes:
        longer = max(len(shape), len(result))
        ours, theirs = [1] * (longer - len(result)) + result, [1] * (longer - len(shape)) + list(shape)
        if any(1 not in (a, b) and a != b for a, b in zip(ours, theirs, strict=True)):
            raise UnknownWork("shapes that fit each other")
        result = [b if a == 1 else a for a, b in zip(ours, theirs, strict=True)]
    return tuple(result)


def of_floats(call: Call, operations: float) -> float:
    """`operations` if any tensor of the call is of floating-point type, else 0: integer operations are not FLOPs.

    Raises `UnknownWork` if no type was recorded.
    """
    types = {one.dtype for one in call.every_tensor()}
    if operations and types == {""}:
        raise UnknownWork("the types of the tensors")
    return operations if any(one.is_float for one in call.every_tensor()) else 0.0


_CATEGORY = {"bool": 0, "uint8": 1, "int8": 1, "int16": 1, "int32": 1, "int64": 1, "complex64": 3, "complex128": 3}
_ORDER = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip


def promoted(tensors: list[Tensor]) -> str:
    """The type of an element-wise result. Numbers (shape ()) decide only if their kind (integer to complex) is higher.

    Source: "Type promotion", documentation of torch.Tensor attributes. Raises `UnknownWork` for types it does not list.
    """
    if any(one.dtype not in _ORDER for one in tensors) or not tensors:
        raise UnknownWork("the type of the result")
    whole = [one.dtype for one in tensors if one.shape]
    numbers = [one.dtype for one in tensors if not one.shape]
    best = _highest(whole) if whole else _highest(numbers)
    if whole and numbers:
        rival = _highest(numbers)
        if _CATEGORY.get(rival, 2) > _CATEGORY.get(best, 2):
            return "float32" if _CATEGORY.get(rival, 2) == 2 else rival
    return best


def _highest(types: list[str]) -> str:
    if {"float16", "bfloat16"} <= set(types):
        return "float32" if "float64" not in types else "float64"
    return max(types, key=_ORDER.index)
