"""Matrix products and convolutions: FLOPs, and the bytes of each operand and the result once.

A multiply-add counts as 2, and an added bias counts, which PyTorch's counter leaves out. Source of the FLOPs: the
definitions in PyTorch's documentation. Without the bias they equal those of `torch.utils.flop_counter` except in the
backward pass of grouped convolutions, whose weights that counter counts once for every group (pytorch#183405).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ncu_launch.operators.calls import UNRECORDED, Call, Formula, Shape, Tensor, UnknownWork, bytes_at

PRODUCT = "2 x rows x columns x inner size (definition of the product; torch.utils.flop_counter: mm_flop)"
CONVOLUTION = "2 x batch x places x weights (torch.utils.flop_counter: conv_flop_count)"
SCALAR_TYPES = {5: "float16", 6: "float32", 7: "float64", 15: "bfloat16", 23: "float8_e5m2", 24: "float8_e4m3fn"}
"""PyTorch's number of a type, as traces contain it -> type. Source: c10/core/ScalarType.h."""


# ------------------------------------------------------------------------------------------------- products of matrices


def product_flops(left: Shape, right: Shape, packed: int = 1) -> float:
    """FLOPs of [..., m, k] x [..., k, n], with `packed` numbers in each element.

    Raises `UnknownWork` for other shapes.
    """
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2] or left[:-2] != right[:-2]:
        raise UnknownWork("two matrices that fit each other")
    return 2.0 * prod(left) * right[-1] * packed


def product(first: int, *, added: bool = False, by: Callable[[Call], str] | None = None) -> Formula:
    """A product of the matrices at `first` and `first + 1`; if `added`, plus the tensor at `first - 1`.

    `by`: type of the result, None for the left matrix's.
    """

    def flops(call: Call) -> float:
        left = call.tensor(first)
        packed = 2 if left.dtype == "float4_e2m1fn_x2" else 1
        return product_flops(left.shape, call.tensor(first + 1).shape, packed)

    def is_added(call: Call) -> bool:
        """True if a tensor is added, with a factor other than 0. An unrecorded factor counts as 0: the least work."""
        factor = call.arguments[first + 2] if len(call.arguments) > first + 2 else 1
        return added and factor is not UNRECORDED and factor != 0

    def read(call: Call) -> float:
        operands = [call.tensor(first), call.tensor(first + 1), *([call.tensor(first - 1)] if is_added(call) else [])]
        return float(sum(one.bytes for one in operands))

    def written(call: Call) -> float:
        left, right = call.tensor(first), call.tensor(first + 1)
        result = (*left.shape[:-1], right.shape[-1])
        return float(Tensor(result, by(call) if by else left.dtype).bytes)

    def addition(call: Call) -> float:
        if not is_added(call):
            return 0.0
        return float(prod(call.tensor(first).shape[:-1]) * call.tensor(first + 1).shape[-1])

    return Formula(flops, read, written, True, PRODUCT, addition)


def _addbmm() -> Formula:
    """The sum of a batch of products; the result has no batch dimension."""
    return product(1, added=True)._replace(
        correction=None,
        written=lambda call: float(
            Tensor((call.tensor(1).shape[1], call.tensor(2).shape[2]), call.tensor(1).dtype).bytes
        ),
    )


def linear() -> Formula:
    """A product [..., k] x [n, k] transposed, plus a bias of n."""

    def flops(call: Call) -> float:
        source, weight = call.tensor(0).shape, call.tensor(1).shape
        if not source or len(weight) != 2 or source[-1] != weight[1]:
            raise UnknownWork("a weight that fits the input")
        return 2.0 * prod(source) * weight[0]

    def read(call: Call) -> float:
        bias = call.tensor(2).bytes if call.is_tensor(2) else 0
        return float(call.tensor(0).bytes + call.tensor(1).bytes + bias)

    def written(call: Call) -> float:
        source = call.tensor(0)
        return float(Tensor((*source.shape[:-1], call.tensor(1).shape[0]), source.dtype).bytes)

    def addition(call: Call) -> float:
        return float(prod(call.tensor(0).shape[:-1]) * call.tensor(1).shape[0]) if call.is_tensor(2) else 0.0

    return Formula(flops, read, written, True, PRODUCT, addition)


def _euclidean_distances() -> Formula:
    """[..., m, k] and [..., n, k]: one product, in which two more columns hold the squares of each row's length.

    In addition: squares and their sums, a factor for the left operand, and a comparison and a root per distance.
    """

    def result(call: Call) -> Shape:
        left, right = call.tensor(0).shape, call.tensor(1).shape
        if len(left) < 2 or left[:-2] != right[:-2] or left[-1] != right[-1]:
            raise UnknownWork("rows that fit each other")
        return (*left[:-1], right[-2])

    def beside(call: Call) -> float:
        return 3.0 * call.tensor(0).elements + 2 * call.tensor(1).elements + 2 * prod(result(call))

    return Formula(
        lambda call: 2.0 * prod(result(call)) * (call.tensor(0).shape[-1] + 2), bytes_at(0, 1),
        lambda call: float(Tensor(result(call), call.tensor(0).dtype).bytes), True,
        "2 x rows x rows x (depth + 2), the product that PyTorch does (aten/src/ATen/native/Distance.cpp)", beside,
    )  # fmt: skip


def _matvec(first: int) -> Formula:
    """[m, k] x [k], or the dot product of two vectors."""

    def written(call: Call) -> float:
        left = call.tensor(first)
        return float(Tensor(left.shape[:-1], left.dtype).bytes)

    def read(call: Call) -> float:
        return float(sum(call.tensor(place).bytes for place in range(first + 2)))

    return Formula(lambda call: 2.0 * call.tensor(first).elements, read, written, True, PRODUCT)


# -------------------------------------------------------------------------------------------------------- convolutions


def convolution_flops(places: Shape, batch: int, weight: Shape) -> float:
    """2 N x places x prod(weight): holds for any groups, because weight is [out, in / groups, *kernel].

    `places` is the spatial size of the output; for a transposed convolution, whose weight is [in, out / groups,
    *kernel], that of the input.
    """
    return 2.0 * batch * prod(places) * prod(weight)


class _Places:
    """Argument positions of a convolution operator; None, or -1 for `dilation`, if it has no such argument.

    `transposed` is a position, or the value if the operator determines it. `also_read`: further tensors.
    """

    def __init__(
        self, stride: int, padding: int, dilation: int, transposed: int | bool = False, bias: int | None = None,
        groups: int | None = None, output_padding: int | None = None, also_read: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.stride, self.padding, self.dilation, self.transposed = stride, padding, dilation, transposed
        self.bias, self.groups, self.output_padding, self.also_read = bias, groups, output_padding, also_read

    def is_transposed(self, call: Call) -> bool:
        if isinstance(self.transposed, bool):
            return self.transposed
        return bool(call.value(self.transposed, False))

    def output(self, call: Call) -> Shape:
        """The shape of the result. Source: documentation of torch.nn.Conv2d and ConvTranspose2d."""
        source, weight = call.tensor(0).shape, call.tensor(1).shape
        spatial, kernel = source[2:], weight[2:]
        count = len(spatial)
        if not count or len(kernel) != count:
            raise UnknownWork("an input and a weight that fit each other")
        stride, padding = call.numbers(self.stride, count), call.numbers(self.padding, count)
        dilation = call.numbers(self.dilation, count) if self.dilation >= 0 else (1,) * count
        each = list(zip(spatial, kernel, stride, padding, dilation, strict=True))
        if not self.is_transposed(call):
            return (source[0], weight[0], *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in each))
        groups = call.numbers(self.groups, 1)[0] if self.groups is not None else 1
        extra = call.numbers(self.output_padding, count) if self.output_padding is not None else (0,) * count
        sizes = ((n - 1) * s - 2 * p + d * (k - 1) + e + 1 for (n, k, s, p, d), e in zip(each, extra, strict=True))
        return (source[0], weight[1] * groups, *sizes)


def _convolution(places: _Places) -> Formula:
    def flops(call: Call) -> float:
        source, weight = call.tensor(0).shape, call.tensor(1).shape
        spatial = source[2:] if places.is_transposed(call) else places.output(call)[2:]
        return convolution_flops(spatial, source[0], weight)

    def read(call: Call) -> float:
        others = [*([places.bias] if places.bias is not None else []), *places.also_read]
        return float(call.given_bytes((0, 1, *others)))

    def written(call: Call) -> float:
        return float(Tensor(places.output(call), call.tensor(0).dtype).bytes)

    def addition(call: Call) -> float:
        has_bias = places.bias is not None and call.is_tensor(places.bias)
        return float(prod(places.output(call))) if has_bias else 0.0

    return Formula(flops, read, written, True, CONVOLUTION, addition)


def _convolution_backward(transposed: int | None, mask_at: int) -> Formula:
    """The forward pass's FLOPs once for the input's gradient and once for the weight's, each if wanted.

    `transposed` and `mask_at` are the positions of the flag and of the mask of wanted gradients.
    """

    def wanted(call: Call) -> list[bool]:
        mask = call.value(mask_at)
        if not isinstance(mask, (list, tuple)) or len(mask) != 3:
            raise UnknownWork("which gradients are wanted")
        return [bool(one) for one in mask]

    def flops(call: Call) -> float:
        gradient, source, weight = (call.tensor(place).shape for place in range(3))
        is_transposed = transposed is not None and bool(call.value(transposed))
        spatial = (source if is_transposed else gradient)[2:]
        return convolution_flops(spatial, source[0], weight) * sum(wanted(call)[:2])

    def read(call: Call) -> float:
        of_input, of_weight, _ = wanted(call)
        return float(call.tensor(0).bytes + of_weight * call.tensor(1).bytes + of_input * call.tensor(2).bytes)

    def written(call: Call) -> float:
        of_input, of_weight, of_bias = wanted(call)
        gradient = call.tensor(0)
        bias = Tensor(gradient.shape[1:2], gradient.dtype).bytes
        return float(of_input * call.tensor(1).bytes + of_weight * call.tensor(2).bytes + of_bias * bias)

    return Formula(flops, read, written, True, CONVOLUTION)


_PLAIN = _Places(stride=3, padding=4, dilation=5, transposed=6, bias=2, output_padding=7, groups=8)

CONTRACTIONS: dict[str, Formula] = {
    "aten::mm": product(0),
    "aten::addmm": product(1, added=True),
    "aten::addmm_": product(1, added=True),
    "aten::_addmm_activation": product(1, added=True),
    "aten::bmm": product(0),
    "aten::baddbmm": product(1, added=True),
    "aten::baddbmm_": product(1, added=True),
    "aten::addbmm": _addbmm(),
    "aten::linear": linear(),
    "aten::mkldnn_linear": linear(),
    "aten::_int_mm": product(0, by=lambda call: "int32"),
    "aten::mv": _matvec(0),
    "aten::addmv": _matvec(1),
    "aten::addmv_": _matvec(1),
    "aten::dot": _matvec(0),
    "aten::vdot": _matvec(0),
    "aten::_euclidean_dist": _euclidean_distances(),
    "aten::convolution": _convolution(_PLAIN),
    "aten::_convolution": _convolution(_PLAIN),
    "aten::convolution_overrideable": _convolution(_PLAIN),
    "aten::cudnn_convolution": _convolution(_Places(stride=3, padding=2, dilation=4)),
    "aten::cudnn_convolution_transpose": _convolution(
        _Places(stride=4, padding=2, dilation=5, transposed=True, output_padding=3, groups=6)
    ),
    "aten::cudnn_convolution_relu": _convolution(_Places(stride=3, padding=4, dilation=5, bias=2)),
    "aten::cudnn_convolution_add_relu": _convolution(
        _Places(stride=5, padding=6, dilation=7, bias=4, also_read=(2,))
    ),
    "aten::miopen_convolution": _convolution(_Places(stride=4, padding=3, dilation=5, bias=2)),
    "aten::miopen_depthwise_convolution": _convolution(_Places(stride=4, padding=3, dilation=5, bias=2)),
    "aten::miopen_convolution_transpose": _convolution(
        _Places(stride=5, padding=3, dilation=6, transposed=True, bias=2, output_padding=4, groups=7)
    ),
    "aten::miopen_convolution_relu": _convolution(_Places(stride=3, padding=4, dilation=5, bias=2)),
    "aten::miopen_convolution_add_relu": _convolution(
        _Places(stride=5, padding=6, dilation=7, bias=4, also_read=(2,))
    ),
    "aten::mkldnn_convolution": _convolution(_Places(stride=4, padding=3, dilation=5, bias=2)),
    "aten::_conv_depthwise2d": _convolution(_Places(stride=4, padding=5, dilation=6, bias=3)),
    "aten::conv_depthwise3d": _convolution(_Places(stride=4, padding=5, dilation=6, bias=3)),
    "aten::slow_conv_dilated2d": _convolution(_Places(stride=4, padding=5, dilation=6, bias=3)),
    "aten::slow_conv_dilated3d": _convolution(_Places(stride=4, padding=5, dilation=6, bias=3)),
    "aten::slow_conv3d_forward": _convolution(_Places(stride=4, padding=5, dilation=-1, bias=3)),
    "aten::slow_conv_transpose2d": _convolution(
        _Places(stride=4, padding=5, dilation=7, transposed=True, bias=3, output_padding=6)
    ),
    "aten::slow_conv_transpose3d": _convolution(
        _Places(stride=4, padding=5, dilation=7, transposed=True, bias=3, output_padding=6)
    ),
    "aten::_slow_conv2d_forward": _convolution(_Places(stride=4, padding=5, dilation=-1, bias=3)),
    "aten::convolution_backward": _convolution_backward(7, 10),
    "aten::convolution_backward_overrideable": _convolution_backward(6, 9),
    "aten::_slow_conv2d_backward": _convolution_backward(None, 6),
}  # fmt: skip
"""Operator -> its formula. `aten::matmul` and `aten::einsum` call these operators, and have no formula of their own."""

INTEGER_PRODUCTS_OF_TORCH = frozenset({"aten::_int_mm"})
"""Products of integers: their operations are not FLOPs."""
