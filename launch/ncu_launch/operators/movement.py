"""Operators that move or fill memory: copies, concatenation, gathering and scattering; and views.

Only additions are FLOPs: of scattered elements, and of rows of an embedding. An operator that gathers rows reads at
most as much of its source as it writes, and a scatter touches at most the whole target: shapes do not show which rows
repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from ncu_launch.files.toml_tables import table_beside
from ncu_launch.operators.calls import Call, Formula, Tensor, UnknownWork, broadcast, bytes_at, of_floats

MOVED = "every element once"
PICKED = "of the source as many bytes as are written, and the indices"


def _nothing(call: Call) -> float:
    return 0.0


def _moving(read: Callable[[Call], float], written: Callable[[Call], float], source: str = MOVED) -> Formula:
    return Formula(_nothing, read, written, False, source)


def _picking(result: Callable[[Call], Tensor], *, source: int, indices: int) -> Formula:
    """The rows or elements of the tensor at `source` selected by the indices at `indices`."""

    def written(call: Call) -> float:
        return float(result(call).bytes)

    def read(call: Call) -> float:
        return min(written(call), float(call.tensor(source).bytes)) + call.tensor(indices).bytes

    return _moving(read, written, PICKED)


def _embedded(call: Call) -> Tensor:
    """[rows, depth] selected by indices of any shape."""
    weight, indices = call.tensor(0), call.tensor(1)
    return Tensor((*indices.shape, *weight.shape[1:]), weight.dtype)


def _selected(call: Call) -> Tensor:
    """The source with one dimension replaced by the number of indices."""
    source, dim, indices = call.tensor(0), call.value(1), call.tensor(2)
    if not isinstance(dim, int) or not source.shape:
        raise UnknownWork("the dimension")
    sizes = list(source.shape)
    sizes[dim % len(sizes)] = indices.elements
    return Tensor(tuple(sizes), source.dtype)


def _indexed(call: Call) -> Tensor:
    """The source with its first dimensions replaced by the broadcast shape of their indices."""
    source, indices = call.tensor(0), call.tensors(1)
    if any(one.dtype == "bool" for one in indices):
        raise UnknownWork("how many elements a mask picks")
    shape = broadcast([one.shape for one in indices])
    return Tensor((*shape, *source.shape[len(indices) :]), source.dtype)


def _index() -> Formula:
    def written(call: Call) -> float:
        return float(_indexed(call).bytes)

    def read(call: Call) -> float:
        indices = sum(one.bytes for one in call.tensors(1))
        return min(written(call), float(call.tensor(0).bytes)) + indices

    return _moving(read, written, PICKED)


# ---------------------------------------------------------------------------------------------------------- scattering


def _touched(call: Call, elements: int) -> float:
    """Bytes of this many elements of argument 0, at most all of it."""
    target = call.tensor(0)
    return float(min(Tensor((elements,), target.dtype).bytes, target.bytes))


def _scattering(*, adds: bool = False) -> Formula:
    """Scatter argument 3, a tensor or number, to the indices in argument 2. `adds`: added to the existing elements.

    Out-of-place variants call `aten::copy_`, whose formula counts the copy.
    """

    def moved(call: Call) -> Tensor:
        """The scattered elements: as many as indices if the source has their shape, else whole rows."""
        wanted = call.tensor(2).shape
        if not call.is_tensor(3):
            return Tensor(wanted, call.tensor(0).dtype)
        found = call.tensor(3)
        return Tensor(wanted, found.dtype) if len(wanted) == len(found.shape) else found

    def flops(call: Call) -> float:
        return of_floats(call, float(adds * moved(call).elements))

    def read(call: Call) -> float:
        given = moved(call).bytes if call.is_tensor(3) else 0
        return float(call.tensor(2).bytes + given + adds * _touched(call, moved(call).elements))

    def written(call: Call) -> float:
        return _touched(call, moved(call).elements)

    return Formula(flops, read, written, False, PICKED)


def _index_put() -> Formula:
    """Scatter values to indices, added if argument 3 is true."""

    def elements(call: Call) -> int:
        return _indexed(call).elements

    def adds(call: Call) -> bool:
        return bool(call.value(3, False))

    def read(call: Call) -> float:
        indices = sum(one.bytes for one in call.tensors(1))
        return float(call.tensor(2).bytes + indices + adds(call) * _touched(call, elements(call)))

    return Formula(
        lambda call: of_floats(call, float(elements(call))) if adds(call) else 0.0,
        read,
        lambda call: _touched(call, elements(call)),
        False,
        PICKED,
    )


def _embedding_bag() -> Formula:
    """Rows selected by indices, reduced per bag: an operation per element of a row in every mode (sum, mean, max)."""

    def rows(call: Call) -> Tensor:
        weight = call.tensor(0)
        return Tensor((call.tensor(1).elements, *weight.shape[1:]), weight.dtype)

    def written(call: Call) -> float:
        weight, offsets = call.tensor(0), call.tensor(2)
        if len(offsets.shape) != 1:
            raise UnknownWork("the bags")
        bags = offsets.shape[0] - bool(call.value(7, False))
        return float(Tensor((bags, *weight.shape[1:]), weight.dtype).bytes)

    def read(call: Call) -> float:
        indices = call.tensor(1).bytes + call.tensor(2).bytes
        return float(min(rows(call).bytes, call.tensor(0).bytes) + indices)

    return Formula(lambda call: of_floats(call, float(rows(call).elements)), read, written, False, PICKED)


def _counted_up(call: Call) -> float:
    """Bytes written by the variant of arange whose arguments are start, end, step and result; others are unknown."""
    if not call.is_tensor(3):
        raise UnknownWork("the type of the result")
    start, end, step = (call.value(place) for place in range(3))
    return float(ceil((end - start) / step) * Tensor((), call.tensor(3).dtype).bytes)


# ------------------------------------------------------------------------------------------------------------- the rest


def _all_of(call: Call) -> float:
    return float(sum(one.bytes for one in call.tensors(0)))


def _repeated(call: Call) -> float:
    """Bytes of the gradient of an embedding's weight, [rows, depth], which is written whole."""
    gradient, rows = call.tensor(0), call.value(2)
    if not isinstance(rows, int):
        raise UnknownWork("the number of rows")
    return float(Tensor((rows, gradient.shape[-1]), gradient.dtype).bytes)


def _padded(call: Call) -> float:
    source, pads = call.tensor(0), call.value(1)
    if not isinstance(pads, (list, tuple)):
        raise UnknownWork("the padding")
    sizes = list(source.shape)
    for place in range(len(pads) // 2):
        sizes[-1 - place] += pads[2 * place] + pads[2 * place + 1]
    return float(Tensor(tuple(sizes), source.dtype).bytes)


MOVEMENT: dict[str, Formula] = {
    # the source is broadcast to the destination, which is only written
    "aten::copy_": _moving(bytes_at(1), bytes_at(0)),
    "aten::fill_": _moving(_nothing, bytes_at(0)),
    "aten::zero_": _moving(_nothing, bytes_at(0)),
    **{
        f"aten::{name}": _moving(_nothing, bytes_at(0))  # random numbers are not counted
        for name in ("normal_", "uniform_", "bernoulli_", "exponential_", "random_", "log_normal_", "geometric_")
    },
    "aten::arange": _moving(_nothing, _counted_up),
    "aten::masked_fill_": _moving(bytes_at(1), _nothing),  # the mask's number of elements is unknown: perhaps none
    "aten::cat": _moving(_all_of, _all_of),
    "aten::stack": _moving(_all_of, _all_of),
    "aten::flip": _moving(bytes_at(0), bytes_at(0)),
    "aten::roll": _moving(bytes_at(0), bytes_at(0)),
    "aten::tril": _moving(bytes_at(0), bytes_at(0)),
    "aten::triu": _moving(bytes_at(0), bytes_at(0)),
    "aten::constant_pad_nd": _moving(bytes_at(0), _padded),
    "aten::embedding": _picking(_embedded, source=0, indices=1),
    "aten::index_select": _picking(_selected, source=0, indices=2),
    "aten::gather": _picking(lambda call: Tensor(call.tensor(2).shape, call.tensor(0).dtype), source=0, indices=2),
    "aten::index": _index(),
    "aten::embedding_dense_backward": _moving(
        lambda call: float(call.tensor(0).bytes + call.tensor(1).bytes), _repeated
    )._replace(flops=lambda call: of_floats(call, float(call.tensor(0).elements))),
    "aten::_embedding_bag": _embedding_bag(),
    "aten::_embedding_bag_forward_only": _embedding_bag(),
    **{f"aten::{name}": _scattering() for name in ("scatter", "scatter_", "index_copy", "index_copy_")},
    **{
        f"aten::{name}": _scattering(adds=True)
        for name in ("scatter_add", "scatter_add_", "index_add", "index_add_")
    },
    "aten::index_put_": _index_put(),
    "aten::_index_put_impl_": _index_put(),
}  # fmt: skip
"""Operator -> its formula. FLOPs are 0, except of operators that add elements."""

_NAMES = table_beside(__file__, "movement")
FREE = frozenset(f"aten::{name}" for name in _NAMES["free"].split())
"""Views and allocations, which neither compute nor move anything."""
CALLING_OTHERS = frozenset(f"aten::{name}" for name in _NAMES["calling_others"].split())
"""Operators that only call other operators, whose formulas count the work."""
