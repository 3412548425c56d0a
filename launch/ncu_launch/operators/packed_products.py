"""Products of quantised, packed and grouped matrices, and recurrent networks: FLOPs, and the bytes of operands once.

Source of the FLOPs: the definition of the product. Integer products have no FLOPs. Multiplying by scales is not
counted; bytes of scales count only where a formula takes their positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ncu_launch.operators.calls import Call, Formula, Shape, Tensor, UnknownWork
from ncu_launch.operators.contractions import PRODUCT, SCALAR_TYPES, linear, product

Type = Callable[[Call], str]
"""A function that returns the type of a product's result, such as "bfloat16"."""

RECURRENT = "2 x inputs of all moments x weights (definitions in the documentation of torch.nn.LSTM and GRU)"


def requested_type(place: int) -> Type:
    """The result type of a product: the one requested at position `place`, or argument 0's if that is None."""

    def kind(call: Call) -> str:
        asked = call.value(place)
        if asked is None:
            return call.tensor(0).dtype
        if asked not in SCALAR_TYPES:
            raise UnknownWork("the type of the result")
        return SCALAR_TYPES[asked]

    return kind


def type_at(place: int) -> Type:
    """The type of the tensor at a position, such as the one that receives the result."""
    return lambda call: call.tensor(place).dtype


def _numbers_per_element(tensor: Tensor) -> int:
    """Numbers packed in an element. Raises `UnknownWork` for integers: their operations are not FLOPs."""
    if not tensor.is_float:
        raise UnknownWork("FLOPs of integers")
    return 2 if tensor.dtype == "float4_e2m1fn_x2" else 1


def scaled_product(result: Type, *, bias: int | None = None, first: int = 0) -> Formula:
    """A product of the quantised matrices at `first` and `first + 1`, plus an optional bias; scales are not read.

    Its FLOPs are unknown for integer matrices.
    """
    base = product(first, by=result)
    biases = () if bias is None else (bias,)

    def flops(call: Call) -> float:
        _numbers_per_element(call.tensor(first))
        return float(base.flops(call))

    def addition(call: Call) -> float:
        rows, columns = prod(call.tensor(first).shape[:-1]), call.tensor(first + 1).shape[-1]
        return float(rows * columns) if any(map(call.is_tensor, biases)) else 0.0

    return base._replace(
        flops=flops, read=lambda call: float(base.read(call)) + call.given_bytes(biases), correction=addition
    )


def weight_only(scales: Sequence[int]) -> Formula:
    """A product with a weight of int8 [n, k]; `scales` are the positions of its scales."""
    return linear()._replace(read=lambda call: float(call.given_bytes((0, 1, *scales))), correction=None)


def packed_weight(columns: Callable[[Call], int], others: Sequence[int], *, bits: int = 4) -> Formula:
    """A product with a packed weight of `bits` per number; `columns` returns the number of columns of the result.

    `others` are the positions of scales and zero points. FLOPs are unknown if the bytes of the weight do not fit the
    product.
    """

    def flops(call: Call) -> float:
        source, weight = call.tensor(0), call.tensor(1)
        if weight.bytes * 8 != source.shape[-1] * columns(call) * bits:
            raise UnknownWork("a weight that fits the input")
        return 2.0 * source.elements * columns(call)

    def written(call: Call) -> float:
        source = call.tensor(0)
        return float(Tensor((*source.shape[:-1], columns(call)), source.dtype).bytes)

    return Formula(flops, lambda call: float(call.given_bytes((0, 1, *others))), written, True, PRODUCT)


def sparse_product(packed: int, dense: int, others: Sequence[int], result: Type, *, of_weight: bool = False) -> Formula:
    """A product with a 2:4 sparse matrix: only the kept numbers count, half of all.

    [m, k / 2] packed x [k, n], or with `of_weight` [..., k] x [n, k / 2] packed; `packed`, `dense` and `others`
    (metadata, a bias) are positions of the tensors that are read.
    """

    def sizes(call: Call) -> tuple[int, Shape]:
        """Number of multiplications, and shape of the result. Raises `UnknownWork` for matrices that do not fit."""
        kept, whole = call.tensor(packed), call.tensor(dense).shape
        inner, other = (whole[-1], whole[:-1]) if of_weight else (whole[0], whole[1:])
        if len(kept.shape) != 2 or kept.shape[1] * 2 != inner or not other:
            raise UnknownWork("two matrices that fit each other")
        rows = kept.shape[:1]
        return kept.elements * prod(other), (*other, *rows) if of_weight else (*rows, *other)

    return Formula(
        lambda call: 2.0 * sizes(call)[0],
        lambda call: float(call.given_bytes((packed, dense, *others))),
        lambda call: float(Tensor(sizes(call)[1], result(call)).bytes),
        True,
        "2 x rows x columns x kept numbers of the inner size (definition of the product)",
    )


def integer_product(sizes: Callable[[Call], tuple[int, int, int]], result: Type, read: Sequence[int]) -> Formula:
    """A product of integers of `sizes` (rows, columns, inner) that reads the tensors at `read`.

    Its operations are not FLOPs: its operator must be in `INTEGER_CONTRACTIONS`.
    """

    def written(call: Call) -> float:
        rows, columns, _ = sizes(call)
        return float(Tensor((rows, columns), result(call)).bytes)

    return Formula(
        lambda call: 2.0 * prod(sizes(call)), lambda call: float(call.given_bytes(read)), written, True, PRODUCT
    )  # fmt: skip


def columns_of(place: int, dim: int = -1) -> Callable[[Call], int]:
    """A function that returns the size of dimension `dim` of the tensor at position `place`."""
    return lambda call: call.tensor(place).shape[dim]


# ------------------------------------------------------------------------------------------------------------- groups


def grouped(offsets: int, bias: int, result: Type) -> Formula:
    """Products of groups of rows, columns or inner indices, each with its own matrix.

    `offsets`: position of the ends of the groups. [m, k] x [groups, k, n] has groups of rows, [groups, m, k] x [k, n]
    of columns, and [m, k] x [k, n] of inner indices: their FLOPs are those of one product, whatever the groups are.
    Rows after the last group count. With fewer rows or columns than groups, some groups are empty and their matrices
    not read: bytes are unknown. Source: torch.nn.functional.grouped_mm.
    """

    def flops(call: Call) -> float:
        left, right = _operands(call)
        batch = left[0] if len(left) == len(right) == 3 else 1
        return 2.0 * batch * prod(left[-2:]) * right[-1] * _numbers_per_element(call.tensor(0))

    def output(call: Call) -> Shape:
        left, right = _operands(call)
        if len(left) != len(right):
            return left[-2], right[-1]
        return (left[0] if len(left) == 3 else call.tensor(offsets).elements), left[-2], right[-1]

    def read(call: Call) -> float:
        left, right = _operands(call)
        if (len(left) == 2 and len(right) == 3 and left[0] < right[0]) or (
            len(left) == 3 and len(right) == 2 and right[1] < left[0]
        ):
            raise UnknownWork("which groups are empty")
        return float(call.given_bytes((0, 1, bias)))

    return Formula(
        flops,
        read,
        lambda call: float(Tensor(output(call), result(call)).bytes),
        True,
        PRODUCT,
        lambda call: float(prod(output(call))) if call.is_tensor(bias) else 0.0,
    )


def _operands(call: Call) -> tuple[Shape, Shape]:
    left, right = call.tensor(0).shape, call.tensor(1).shape
    if len(left) not in (2, 3) or len(right) not in (2, 3) or left[-1] != right[-2]:
        raise UnknownWork("two matrices that fit each other")
    return left, right


# ------------------------------------------------------------------------------------------------ recurrent networks


def _recurrent(weights: Callable[[Call], Sequence[Tensor]], hidden: Callable[[Call], int]) -> Formula:
    """A recurrent network: every weight matrix is multiplied by a vector at each time step of each sequence.

    Element-wise work is left out. `hidden`: the depth of the result.
    """

    def flops(call: Call) -> float:
        moments = prod(call.tensor(0).shape[:-1])
        return 2.0 * moments * sum(one.elements for one in weights(call) if len(one.shape) == 2)

    def read(call: Call) -> float:
        return float(call.tensor(0).bytes + sum(one.bytes for one in weights(call)))

    def written(call: Call) -> float:
        source = call.tensor(0)
        return float(Tensor((*source.shape[:-1], hidden(call)), source.dtype).bytes)

    return Formula(flops, read, written, True, RECURRENT)


def _recurrent_backward(
    weights: Callable[[Call], Sequence[Tensor]], results: tuple[int, int], wants_weights: Callable[[Call], bool]
) -> Formula:
    """FLOPs of the forward products once for gradients of inputs and states, and once more for the weights' if wanted.

    `results`: the positions of the result and of its gradient.
    """
    forward = _recurrent(weights, lambda call: 0)

    def written(call: Call) -> float:
        of_weights = sum(one.bytes for one in weights(call)) if wants_weights(call) else 0
        return float(call.tensor(0).bytes + of_weights)

    return forward._replace(
        flops=lambda call: forward.flops(call) * (1 + wants_weights(call)),
        read=lambda call: forward.read(call) + call.given_bytes(results),
        written=written,
    )


def _asks_for_weights(place: int) -> Callable[[Call], bool]:
    """A function that returns whether the last of four gradients, the weights', is wanted, by the mask at `place`."""

    def wanted(call: Call) -> bool:
        mask = call.value(place)
        if not isinstance(mask, (list, tuple)) or len(mask) != 4:
            raise UnknownWork("which gradients are wanted")
        return bool(mask[3])

    return wanted


def _cudnn_depth(call: Call) -> int:
    """Depth of cuDNN's result: the hidden size, or the projection's, once per direction."""
    hidden, projected, twice = call.value(7), call.value(8), call.value(13)
    return int(projected or hidden) * (2 if twice else 1)


PACKED_PRODUCTS: dict[str, Formula] = {
    "aten::_scaled_mm": scaled_product(requested_type(6), bias=4),
    "aten::_scaled_mm_v2": scaled_product(requested_type(9), bias=8),
    "aten::_sparse_semi_structured_mm": sparse_product(0, 2, (1,), requested_type(3)),
    "aten::_sparse_semi_structured_addmm": sparse_product(1, 3, (0, 2), requested_type(6)),
    "aten::_sparse_semi_structured_linear": sparse_product(1, 0, (2, 3), requested_type(5), of_weight=True),
    "aten::_weight_int8pack_mm": weight_only([2]),
    "aten::_weight_int4pack_mm": packed_weight(columns_of(3, 1), [3]),
    "aten::_weight_int4pack_mm_for_cpu": packed_weight(columns_of(3, 1), [3]),
    "aten::_grouped_mm": grouped(2, 3, requested_type(4)),
    "aten::_scaled_grouped_mm": grouped(4, 5, requested_type(7)),
    "aten::_scaled_grouped_mm_v2": grouped(8, 9, requested_type(10)),
    "aten::_cudnn_rnn": _recurrent(lambda call: call.tensors(1), _cudnn_depth),
    "aten::miopen_rnn": _recurrent(
        lambda call: call.tensors(1), lambda call: int(call.value(6)) * (2 if call.value(11) else 1)
    ),
    "aten::mkldnn_rnn_layer": _recurrent(
        lambda call: [call.tensor(place) for place in range(1, 5)], lambda call: int(call.value(10))
    ),
    "aten::_cudnn_rnn_backward": _recurrent_backward(lambda call: call.tensors(1), (6, 7), _asks_for_weights(21)),
    "aten::miopen_rnn_backward": _recurrent_backward(lambda call: call.tensors(1), (6, 7), _asks_for_weights(20)),
    "aten::mkldnn_rnn_layer_backward": _recurrent_backward(
        lambda call: [call.tensor(place) for place in range(1, 5)], (7, 10), lambda call: True
    ),
}  # fmt: skip
"""Operator -> its formula; argument positions follow PyTorch's schemas."""
