"""Attention: FLOPs of two products forward and five backward, and the bytes of every operand once.

`flops` covers the whole score matrix, as in PyTorch's counter (torch.utils.flop_counter: sdpa_flop_count,
sdpa_backward_flop_count). The correction, negative, is the part that a causal mask or a sliding window saves: scores
outside it, which fused kernels compute only in tiles that its edges cross. The head count is the query's, so grouped
queries (GQA) have the work of all query heads and the bytes of the fewer key heads.

Sequences of different lengths in one tensor (varlen, nested) have bytes and no FLOPs: their lengths are data. If the
number of sequences times the longest equals all rows, all sequences are equally long. Paged caches, and partly used
caches, have neither.
"""

from __future__ import annotations

from typing import NamedTuple

from ncu_launch.operators.calls import Call, Formula, Shape, Tensor, UnknownWork

FORWARD = "2 x heads x rows x columns x (depth of K + depth of V) (torch.utils.flop_counter: sdpa_flop_count)"
BACKWARD = (
    "2 x heads x rows x columns x (3 x depth of K + 2 x depth of V): scores again, dV, dP, dQ, dK (FlashAttention)"
)


FIRST, LAST = "first", "last"
"""Alignment of a causal mask on non-square scores: row 0 sees column 0, or the last row sees the last column."""


class _Sizes(NamedTuple):
    """Rows (queries) and columns (keys) of one head's scores; `heads` counts the heads of all sequences together."""

    heads: int
    rows: int
    columns: int
    depth: int
    depth_of_values: int


class Variant(NamedTuple):
    """Argument positions of an attention operator; None or () for arguments that it does not have.

    `first`: query, followed by key and value. `heads_first`: [batch, heads, rows, depth], not [batch, rows, heads,
    depth]. `lengths`: positions of the cumulative lengths of queries and keys in tensors [rows of all, heads, depth],
    `longest` of their longest lengths. `unknown`: arguments, such as pages of a cache, with which shapes do not
    determine the work. `window`: its left and right size; -1 is unlimited. `causal`: a flag; `mask`: a number (0 none,
    1 aligned to the first row, 2 to the last). `aligned`: alignment of a flag's mask on non-square scores, None if not
    documented.
    """

    first: int
    causal: int | None = None
    heads_first: bool = True
    lengths: tuple[int, ...] = ()
    longest: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    window: tuple[int, ...] = ()
    bias: int | None = None
    mask: int | None = None
    aligned: str | None = None

    def sizes(self, call: Call) -> _Sizes:
        """The sizes of a call. Raises `UnknownWork` for sequences whose lengths shapes do not determine."""
        if any(call.value(place) not in (None, 0, -1) for place in self.unknown):
            raise UnknownWork("how much of the tensors is used")
        query, key, value = (call.tensor(self.first + one).shape for one in range(3))
        if any(map(call.is_tensor, self.lengths)):
            return self._equally_long(call, query, key, value)
        if any(len(shape) != 4 for shape in (query, key, value)):
            raise UnknownWork("the lengths of the sequences")
        if not self.heads_first:
            query, key, value = (_heads_first(shape) for shape in (query, key, value))
        return _Sizes(query[0] * query[1], query[2], key[2], query[3], value[3])

    def _equally_long(self, call: Call, query: Shape, key: Shape, value: Shape) -> _Sizes:
        """Sizes if sequences of the longest length fill the tensors, so that every sequence has that length.

        Raises `UnknownWork` otherwise.
        """
        query, key, value = (shape[1:] if len(shape) == 4 and shape[0] == 1 else shape for shape in (query, key, value))
        if any(len(shape) != 3 for shape in (query, key, value)) or len(self.longest) != 2:
            raise UnknownWork("the lengths of the sequences")
        count = call.tensor(self.lengths[0]).elements - 1
        rows, columns = (call.value(place) for place in self.longest)
        if rows * count != query[0] or columns * count != key[0]:
            raise UnknownWork("the lengths of the sequences")
        return _Sizes(count * query[1], rows, columns, query[2], value[2])

    def skipped_share(self, call: Call) -> float:
        """The fraction of the scores that a causal mask or a window skips, 0 to 1.

        Raises `UnknownWork` if the alignment of a mask on non-square scores is not documented.
        """
        left, right = (call.value(place, -1) for place in self.window) if self.window else (-1, -1)
        alignment = self._alignment(call)
        if alignment is not None:
            right = 0
        if left < 0 and right < 0:
            return 0.0
        sizes = self.sizes(call)
        alignment = alignment or self.aligned
        if sizes.rows != sizes.columns and not alignment:
            raise UnknownWork("how a mask lies on scores that are not square")
        shift = sizes.columns - sizes.rows if alignment == LAST else 0
        seen = scores_inside(sizes.rows, sizes.columns, shift, left, right)
        return 1.0 - seen / max(sizes.rows * sizes.columns, 1)

    def _alignment(self, call: Call) -> str | None:
        """Alignment of a causal mask: "" if not documented, None without a mask."""
        if self.mask is not None:
            kind = call.value(self.mask, 0)
            if kind not in (0, 1, 2):
                raise UnknownWork("the mask")
            return (None, FIRST, LAST)[kind]
        is_causal = self.causal is not None and bool(call.value(self.causal, False))
        return (self.aligned or "") if is_causal else None

    def operands(self, call: Call) -> int:
        """Bytes of queries, keys, values and bias. Raises `UnknownWork` if perhaps only a part of them is used."""
        if any(map(call.is_tensor, self.unknown)):
            raise UnknownWork("how much of the tensors is used")
        places = [*range(self.first, self.first + 3), *([self.bias] if self.bias is not None else [])]
        return sum(call.tensor(place).bytes for place in places[:3]) + call.given_bytes(places[3:])


def _heads_first(shape: Shape) -> Shape:
    batch, rows, heads, depth = shape
    return batch, heads, rows, depth


def scores_inside(rows: int, columns: int, shift: int, left: int, right: int) -> int:
    """Number of scores (row, column) with row + shift - left <= column <= row + shift + right.

    A negative `left` or `right` is unlimited.
    """
    upto = _clamped_sum(shift + right + 1, rows, columns) if right >= 0 else rows * columns
    before = _clamped_sum(shift - left, rows, columns) if left >= 0 else 0
    return max(upto - before, 0)


def _clamped_sum(start: int, count: int, top: int) -> int:
    """The sum of `count` consecutive integers from `start`, each clamped to 0..`top`."""

    def up_to(last: int) -> int:
        inside = max(min(last, top), 0)
        return inside * (inside + 1) // 2 + max(last - top, 0) * top

    return up_to(start + count - 1) - up_to(start - 1)


def forward(variant: Variant, *, halves_fp8: bool = False) -> Formula:
    """The formula of attention forward. `halves_fp8`: queries in FP8 give a BF16 result."""

    def flops(call: Call) -> float:
        heads, rows, columns, depth, depth_of_values = variant.sizes(call)
        return 2.0 * heads * rows * columns * (depth + depth_of_values)

    def written(call: Call) -> float:
        query, value = call.tensor(variant.first), call.tensor(variant.first + 2)
        kind = "bfloat16" if halves_fp8 and query.dtype.startswith("float8") else query.dtype
        return float(Tensor((*query.shape[:-1], value.shape[-1]), kind).bytes)

    return Formula(
        flops,
        lambda call: float(variant.operands(call)),
        written,
        True,
        FORWARD,
        lambda call: -flops(call) * variant.skipped_share(call),
    )


def backward(variant: Variant, out: int) -> Formula:
    """The formula of attention backward: the result's gradient precedes the query; `out` is the result's position."""

    def flops(call: Call) -> float:
        heads, rows, columns, depth, depth_of_values = variant.sizes(call)
        return 2.0 * heads * rows * columns * (3 * depth + 2 * depth_of_values)

    def read(call: Call) -> float:
        return float(variant.operands(call) + call.tensor(variant.first - 1).bytes + call.tensor(out).bytes)

    def written(call: Call) -> float:
        return float(sum(call.tensor(variant.first + one).bytes for one in range(3)))

    return Formula(flops, read, written, True, BACKWARD, lambda call: -flops(call) * variant.skipped_share(call))


# ------------------------------------------------------------------- whole layers, which PyTorch fuses in inference


LAYER = "the products, biases, norms, activation and residuals of the documentation of torch.nn.TransformerEncoderLayer"


def _projections_and_scores(query: Shape, key: Shape, width: int) -> float:
    """Four projections and both products of the scores, for queries and keys [batch, rows, width]."""
    if len(query) != 3 or len(key) != 3 or query[0] != key[0] or {query[2], key[2]} != {width}:
        raise UnknownWork("the lengths of the sequences")
    rows, columns = query[1], key[1]
    return 4.0 * query[0] * width * (rows * width + columns * width + rows * columns)


def _multi_head_attention() -> Formula:
    """nn.MultiheadAttention. Inputs of one shape are assumed to be one tensor, as in self-attention, and read once."""

    def flops(call: Call) -> float:
        return _projections_and_scores(call.tensor(0).shape, call.tensor(1).shape, call.value(3))

    def read(call: Call) -> float:
        inputs = {call.tensor(place) for place in range(3)}
        return float(sum(one.bytes for one in inputs) + call.given_bytes(range(5, 10)))

    def written(call: Call) -> float:
        query, (_, columns, _) = call.tensor(0), call.tensor(1).shape
        heads = 1 if call.value(11, True) else call.value(4)
        weights = (query.shape[0], heads, query.shape[1], columns) if call.value(10, True) else (0,)
        return float(query.bytes + Tensor(weights, query.dtype).bytes)

    def biases(call: Call) -> float:
        return 2.0 * (call.tensor(0).elements + call.tensor(1).elements)

    return Formula(flops, read, written, True, LAYER, biases)


def _encoder_layer() -> Formula:
    """nn.TransformerEncoderLayer: self-attention, two products, two norms of 8 per element, two residuals."""

    def hidden(call: Call) -> float:
        return float(call.tensor(0).elements / call.value(1) * call.tensor(14).shape[0])

    def flops(call: Call) -> float:
        source = call.tensor(0).shape
        width = int(call.value(1))
        return _projections_and_scores(source, source, width) + 4.0 * hidden(call) * width

    def beside(call: Call) -> float:
        activation = 5 if call.value(7) else 1
        return float((4 + 1 + 2 * 8 + 2) * call.tensor(0).elements + (1 + activation) * hidden(call))

    return Formula(
        flops, lambda call: float(call.given_bytes((0, *range(3, 7), *range(10, 19)))),
        lambda call: float(call.tensor(0).bytes), True, LAYER, beside,
    )  # fmt: skip


_SDPA = "aten::_scaled_dot_product_"
_FLASH = Variant(0, causal=8, heads_first=False, lengths=(3, 4), longest=(5, 6), unknown=(13, 15), window=(11, 12),
                 aligned=LAST)  # fmt: skip
_FLASH_BACKWARD = Variant(1, causal=11, heads_first=False, lengths=(6, 7), longest=(8, 9), window=(15, 16),
                          aligned=LAST)  # fmt: skip

ATTENTION: dict[str, Formula] = {
    f"{_SDPA}flash_attention": forward(Variant(0, causal=4, aligned=LAST)),
    f"{_SDPA}efficient_attention": forward(Variant(0, causal=6, bias=3, aligned=FIRST)),
    f"{_SDPA}cudnn_attention": forward(Variant(0, causal=6, bias=3)),
    f"{_SDPA}fused_attention_overrideable": forward(Variant(0, causal=5, bias=3)),
    f"{_SDPA}flash_attention_for_cpu": forward(Variant(0, causal=4, bias=5, aligned=FIRST)),
    f"{_SDPA}flash_attention_backward": backward(Variant(1, causal=11, unknown=(6, 7), aligned=LAST), 4),
    f"{_SDPA}efficient_attention_backward": backward(Variant(1, causal=11, bias=4, aligned=FIRST), 5),
    f"{_SDPA}cudnn_attention_backward": backward(Variant(1, causal=14, bias=8, unknown=(9, 10)), 4),
    f"{_SDPA}flash_attention_for_cpu_backward": backward(Variant(1, causal=7, aligned=FIRST), 4),
    "aten::_flash_attention_forward": forward(_FLASH),
    "aten::_flash_attention_backward": backward(_FLASH_BACKWARD, 4),
    "aten::_efficient_attention_forward": forward(
        Variant(0, heads_first=False, lengths=(4, 5), longest=(6, 7), unknown=(12, 13), bias=3, mask=9)
    ),
    "aten::_efficient_attention_backward": backward(
        Variant(1, heads_first=False, lengths=(6, 7), longest=(8, 9), unknown=(18,), bias=4, mask=14), 5
    ),
    "aten::_native_multi_head_attention": _multi_head_attention(),
    "aten::_transformer_encoder_layer_fwd": _encoder_layer(),
    "aten::_cudnn_attention_forward": forward(Variant(0, causal=10, bias=3, unknown=(4, 5))),
}  # fmt: skip
"""Operator -> its formula. The math variant calls products and a softmax, and has no formula of its own.

Argument positions follow PyTorch's schemas; mask alignments are from torch/nn/attention/bias.py.
"""
