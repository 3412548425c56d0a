"""Rows of ATen operators: the matrix product, attention or moved bytes behind a name and its shapes.

Shapes are written as by the collector, `64x1024 1024x512`, or as in traces, `[[64,1024],[1024,512]]`; `-` or `[]` is an
argument that is no tensor. Whatever shapes do not tell has PyTorch's defaults: stride 1, no padding, no causal mask.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ncu_launch.operators import Call, Tensor, UnknownWork, contraction_flops, formula_of, work_of

from ncu_tools.model.expected_time.operator_shapes import Product, Shape, product_of

PYTORCH_TYPES = {
    "fp64": "float64", "fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16",
    "fp8": "float8_e4m3fn", "int8": "int8",
}  # fmt: skip
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "convolution", "_convolution", "cudnn_convolution")
HEADS_FIRST, ROWS_FIRST = ("scaled_dot_product",), ("flash_attention_forward", "efficient_attention_forward")
QUANTISED = ("_scaled_mm", "_int_mm")
LISTS = ("cat", "stack")
ALIASES = {"layer_norm": "native_layer_norm", "softmax": "_softmax", "log_softmax": "_log_softmax"}
"""Operators that consist of several kernels -> the forward operator that has a formula."""
REARRANGING = ("cat", "stack", "copy_", "clone", "contiguous", "_to_copy", "permute", "transpose", "index_select")
"""Operators that read or write in another order than memory's."""
MOST = 2.0**40
SETTINGS = ("stride", "padding", "dilation", "causal")


class AtenWork(NamedTuple):
    """The kind of operators of a row, and its sizes by column."""

    kind: str
    sizes: dict[str, float]


def name_of(op: str) -> str:
    """The name used by formulas: "aten::mm" for mm, aten.mm.default and aten::mm."""
    plain = op.replace("::", ".").split(".")
    if plain[0] == "aten":
        plain = plain[1:]
    elif "::" in op:
        return op
    return f"aten::{plain[0]}" if plain and plain[0] else op


def is_quantised(op: str | None) -> bool:
    """True if a product takes activations in its narrow type, to which another operator converted them."""
    return op is not None and name_of(op).partition("::")[2] in QUANTISED


def aten_work(op: str, dtype: str, shapes: object, settings: Mapping[str, str]) -> AtenWork | str:
    """The work of a row, or the reason why it is unknown."""
    name = name_of(op)
    plain = name.partition("::")[2]
    is_attention = any(word in plain for word in (*HEADS_FIRST, *ROWS_FIRST))
    arguments = arguments_in(shapes)
    if not arguments:
        return f"shapes {shapes!s:.60} cannot be read" if shapes else f"the shapes of {name} are missing"
    try:
        if is_attention:
            return _attention(name, [one for one in arguments if one], settings)
        if plain in CONVOLUTIONS:
            return _convolution(name, arguments, settings)
        product = product_of(name, [one for one in arguments if one], 1.0)
        if product is None:
            return _movement(name, dtype, arguments)
        return _of_product(product, quantised=is_quantised(name))
    except (UnknownWork, ValueError, IndexError, OverflowError) as error:
        return f"the shapes of {name} do not tell its work: {error}"


def arguments_in(shapes: object) -> list[Shape]:
    """The shape of each argument in order, () for one that is no tensor; [] if they cannot be read."""
    text = shapes if isinstance(shapes, str) else json.dumps(shapes, default=str) if shapes is not None else ""
    try:
        if not text.lstrip().startswith("["):
            return [() if word == "-" else _shape(word.split("x")) for word in text.replace("*", "x").split()]
        found: list[Shape] = []
        for each in json.loads(text):
            nested = bool(each) and all(isinstance(one, list) for one in each)
            found += [_shape(one) for one in (each if nested else [each])]
        return found
    except (ValueError, TypeError, RecursionError):
        return []


def _shape(sizes: Sequence[Any]) -> Shape:
    """The sizes of a shape. Raises `ValueError` if they are none."""
    found = tuple(int(size) for size in sizes)
    if any(not 0 < size <= MOST or isinstance(given, bool) for size, given in zip(found, sizes, strict=True)):
        raise ValueError("no shape")
    return found


def _of_product(product: Product, *, quantised: bool = False) -> AtenWork:
    return AtenWork("gemm", {
        "m": product.m, "n": product.n, "k": product.k, "number": product.number, "distinct": product.distinct,
        **({"quantised": 1.0} if quantised else {}), **({"convolution": 1.0} if product.is_convolution else {}),
    })  # fmt: skip


def _convolution(name: str, arguments: Sequence[Shape], settings: Mapping[str, str]) -> AtenWork | str:
    image, weights = (one for one in arguments[:2])
    if len(image) != len(weights) or len(image) < 3:
        return f"the image and the weights of {name} do not fit each other"
    count = len(image) - 2
    stride, padding, dilation = (
        _numbers(settings.get(key, ""), default, count)
        for key, default in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    groups = max(image[1] // weights[1], 1)
    call = Call(
        "aten::convolution",
        (
            Tensor(image, "float16"),
            Tensor(weights, "float16"),
            None,
            stride,
            padding,
            dilation,
            False,
            [0] * count,
            groups,
        ),
    )
    product = product_of("aten::convolution", [image, weights], contraction_flops(call) or 0.0)
    return f"the image and the weights of {name} do not fit each other" if product is None else _of_product(product)


def _numbers(text: str, default: int, count: int) -> list[int]:
    """Parse a setting for `count` directions, "2" or "2x1". Raises `ValueError` for other texts."""
    found = [int(one) for one in text.split("x")] if text else [default]
    return found * count if len(found) == 1 else found


def _attention(name: str, tensors: Sequence[Shape], settings: Mapping[str, str]) -> AtenWork | str:
    plain = name.partition("::")[2]
    heads_first = any(word in plain for word in HEADS_FIRST)
    known = heads_first or any(word in plain for word in ROWS_FIRST)
    if "backward" in plain or not known or len(tensors) < 3 or any(len(one) != 4 for one in tensors[:3]):
        return f"the shapes of {name} are not those of queries, keys and values of sequences of one length"
    query, key = tensors[:2]
    batch, *middle, head_dim = query
    heads, rows = middle if heads_first else middle[::-1]
    kv_heads, keys = key[1:3] if heads_first else key[1:3][::-1]
    if key[0] != batch or key[3] != head_dim or heads % kv_heads:
        return f"the queries and the keys of {name} do not fit each other"
    causal = settings.get("causal", "") in ("1", "true", "yes")
    if causal and keys < rows:
        return f"{name} has fewer keys than queries under a causal mask"
    kind = "attention_generation" if rows == 1 else "attention_context"
    return AtenWork(kind, {
        "batch": batch, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "query": rows,
        "context": keys - rows, "window": 0, "causal": float(causal), "writes": 0,
    })  # fmt: skip


def _movement(name: str, dtype: str, arguments: Sequence[Shape]) -> AtenWork | str:
    plain = name.partition("::")[2]
    plain = ALIASES.get(plain, plain)
    if formula_of(name if plain == name.partition("::")[2] else f"aten::{plain}") is None:
        return f"no formula of {name} is known"
    if dtype not in PYTORCH_TYPES:
        return f"{name} in {dtype} has no formula"
    tensors: list[Any] = [Tensor(one, PYTORCH_TYPES[dtype]) if one else None for one in arguments]
    if plain in LISTS:
        tensors = [tuple(one for one in tensors if one is not None)]
    elif "layer_norm" in plain and "backward" not in plain:
        given = [one for one in tensors if one is not None]
        tensors = [given[0], list(given[1].shape if len(given) > 1 else given[0].shape[-1:]), *given[1:3]]
    work = work_of(Call(f"aten::{plain}" if name.startswith("aten::") else name, tuple(tensors)))
    if work is None or work.least_bytes is None or work.is_contraction:
        return f"the shapes of {name} do not tell its work"
    if not work.least_bytes:
        return f"{name} launches no kernel"
    unlike = len({one for one in arguments if len(one) > 1}) > 1
    return AtenWork("movement", {"moved": work.least_bytes, "rearranges": float(plain in REARRANGING or unlike)})
