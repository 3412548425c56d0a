"""Attention: FLOPs of both products forward and of five backward, and the bytes of every operand once.

`flops` is of the whole matrix of scores, as PyTorch's counter has it (torch.utils.flop_counter: sdpa_flop_count,
sdpa_backward_flop_count). The correction is what a causal mask saves: the scores above the diagonal, which fused
kernels do not compute but in the tiles that the diagonal crosses. The heads are the query's, so grouped queries (GQA)
have the work of all of them and the bytes of the fewer keys. Sequences of different lengths in one tensor (varlen,
nested), pages of a cache and sliding windows have no formula: shapes do not hold their lengths.
"""

from __future__ import annotations

from typing import NamedTuple

from ncu_launch.operators.calls import Call, Formula, Shape, Tensor, UnknownWork

FORWARD = "2 x heads x rows x columns x (depth of K + depth of V) (torch.utils.flop_counter: sdpa_flop_count)"
BACKWARD = (
    "2 x heads x rows x columns x (3 x depth of K + 2 x depth of V): scores again, dV, dP, dQ, dK (FlashAttention)"
)


class _Sizes(NamedTuple):
    heads: int
    rows: int
    columns: int
    depth: int
    depth_of_values: int


class _Variant(NamedTuple):
    """Where an attention operator has its arguments. `heads_first`: [batch, heads, rows, depth], not [..., rows, heads,
    depth]. `lengths` are the places of cumulative lengths, `window` the places of a sliding window's sides.
    """

    first: int
    causal: int | None
    heads_first: bool = True
    lengths: tuple[int, ...] = ()
    window: tuple[int, ...] = ()
    bias: int | None = None
    mask: int | None = None

    def sizes(self, call: Call) -> _Sizes:
        """Raises `UnknownWork` for shapes that are not of batches of equally long sequences."""
        query, key, value = (call.tensor(self.first + one).shape for one in range(3))
        if any(len(shape) != 4 for shape in (query, key, value)) or any(map(call.is_tensor, self.lengths)):
            raise UnknownWork("the lengths of the sequences")
        if any(call.value(place, -1) != -1 for place in self.window):
            raise UnknownWork("the formula of a sliding window")
        if not self.heads_first:
            query, key, value = (_heads_first(shape) for shape in (query, key, value))
        return _Sizes(query[0] * query[1], query[2], key[2], query[3], value[3])

    def skipped_share(self, call: Call) -> float:
        """The share of the scores that a causal mask leaves out: row i sees i + 1 columns, none of more than are there.

        Rows are aligned to the first columns, as PyTorch's are; with as many rows as columns there is no other way.
        """
        if self.mask is not None:
            kind = call.value(self.mask, 0)
            if kind not in (0, 1, 2):
                raise UnknownWork("the mask")
            is_causal = kind != 0
        else:
            is_causal = bool(call.value(self.causal, False)) if self.causal is not None else False
        if not is_causal:
            return 0.0
        sizes = self.sizes(call)
        if sizes.rows != sizes.columns:
            raise UnknownWork("how a causal mask lies on scores that are not square")
        return 1.0 - (sizes.rows + 1) / (2 * sizes.rows)


def _heads_first(shape: Shape) -> Shape:
    batch, rows, heads, depth = shape
    return batch, heads, rows, depth


def _bias_bytes(variant: _Variant, call: Call) -> int:
    place = variant.bias
    return call.tensor(place).bytes if place is not None and call.is_tensor(place) else 0


def _forward(variant: _Variant) -> Formula:
    def flops(call: Call) -> float:
        heads, rows, columns, depth, depth_of_values = variant.sizes(call)
        return 2.0 * heads * rows * columns * (depth + depth_of_values)

    def read(call: Call) -> float:
        return float(sum(call.tensor(variant.first + one).bytes for one in range(3)) + _bias_bytes(variant, call))

    def written(call: Call) -> float:
        query, value = call.tensor(variant.first), call.tensor(variant.first + 2)
        return float(Tensor((*query.shape[:-1], value.shape[-1]), query.dtype).bytes)

    return Formula(flops, read, written, True, FORWARD, lambda call: -flops(call) * variant.skipped_share(call))


def _backward(variant: _Variant, out: int) -> Formula:
    """`out` is the place of the forward pass's result."""

    def flops(call: Call) -> float:
        heads, rows, columns, depth, depth_of_values = variant.sizes(call)
        return 2.0 * heads * rows * columns * (3 * depth + 2 * depth_of_values)

    def read(call: Call) -> float:
        operands = (variant.first - 1, *(variant.first + one for one in range(3)), out)
        return float(sum(call.tensor(place).bytes for place in operands) + _bias_bytes(variant, call))

    def written(call: Call) -> float:
        return float(sum(call.tensor(variant.first + one).bytes for one in range(3)))

    return Formula(flops, read, written, True, BACKWARD, lambda call: -flops(call) * variant.skipped_share(call))


_SDPA = "aten::_scaled_dot_product_"
_FLASH_LENGTHS, _EFFICIENT_LENGTHS = (3, 4, 13, 15), (4, 5, 12)
"""Cumulative lengths, lengths used, and pages of a cache."""

ATTENTION: dict[str, Formula] = {
    f"{_SDPA}flash_attention": _forward(_Variant(0, causal=4)),
    f"{_SDPA}efficient_attention": _forward(_Variant(0, causal=6, bias=3)),
    f"{_SDPA}cudnn_attention": _forward(_Variant(0, causal=6, bias=3)),
    f"{_SDPA}fused_attention_overrideable": _forward(_Variant(0, causal=5, bias=3)),
    f"{_SDPA}flash_attention_for_cpu": _forward(_Variant(0, causal=4, bias=5)),
    f"{_SDPA}flash_attention_backward": _backward(_Variant(1, causal=11, lengths=(6, 7)), 4),
    f"{_SDPA}efficient_attention_backward": _backward(_Variant(1, causal=11, bias=4), 5),
    f"{_SDPA}cudnn_attention_backward": _backward(_Variant(1, causal=14, bias=8, lengths=(9, 10)), 4),
    f"{_SDPA}flash_attention_for_cpu_backward": _backward(_Variant(1, causal=7), 4),
    "aten::_flash_attention_forward": _forward(
        _Variant(0, causal=8, heads_first=False, lengths=_FLASH_LENGTHS, window=(11, 12))
    ),
    "aten::_flash_attention_backward": _backward(
        _Variant(1, causal=11, heads_first=False, lengths=(6, 7), window=(15, 16)), 4
    ),
    "aten::_efficient_attention_forward": _forward(
        _Variant(0, causal=None, heads_first=False, lengths=_EFFICIENT_LENGTHS, window=(13,), bias=3, mask=9)
    ),
    "aten::_efficient_attention_backward": _backward(
        _Variant(1, causal=None, heads_first=False, lengths=(6, 7), window=(18,), bias=4, mask=14), 5
    ),
    "aten::_cudnn_attention_forward": _forward(_Variant(0, causal=10, bias=3, lengths=(4, 5))),
    "flash_attn::_flash_attn_forward": _forward(
        _Variant(0, causal=5, heads_first=False, window=(6, 7))
    ),
    "flash_attn::_flash_attn_backward": _backward(
        _Variant(1, causal=11, heads_first=False, window=(12, 13)), 4
    ),
}  # fmt: skip
"""Operator -> its formula. The math variant calls products and a softmax, and has none of its own.

Places of arguments are those of PyTorch's schemas, and for `flash_attn::` of flash_attn/flash_attn_interface.py.
"""
