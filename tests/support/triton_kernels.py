# mypy: ignore-errors
# ruff: noqa: N803, N806
"""Triton kernels of the shapes of its tutorials, compiled on a CPU for several architectures, each with its PTX.

    python -m tests.support.triton_kernels FOLDER

Needs the package `triton`, which brings ptxas, cuobjdump and nvdisasm too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

ARCHITECTURES = (80, 86, 89, 90, 100, 120)
Variant = tuple[str, Any, dict[str, str], dict[str, int], tuple[int, ...]]


@triton.jit
def add(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)


@triton.jit
def softmax(o, x, n, s, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B)
    v = tl.load(x + r * s + c, mask=c < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(o + r * s + c, e / tl.sum(e, 0), mask=c < n)


@triton.jit
def matmul(a, b, c, K, sa, sb, sc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * sa + rk[None, :]
    pb = b + rk[:, None] * sb + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc)
        pa += BK
        pb += BK * sb
    tl.store(c + rm[:, None] * sc + rn[None, :], acc)


@triton.jit
def layernorm(x, y, w, b, n, eps, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B)
    m = c < n
    v = tl.load(x + r * n + c, mask=m, other=0.0).to(tl.float32)
    d = tl.where(m, v - tl.sum(v, 0) / n, 0.0)
    scale = tl.rsqrt(tl.sum(d * d, 0) / n + eps)
    tl.store(y + r * n + c, d * scale * tl.load(w + c, mask=m) + tl.load(b + c, mask=m), mask=m)


@triton.jit
def attention(q, k, v, o, N, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rd = tl.arange(0, D)
    Q = tl.load(q + rm[:, None] * D + rd[None, :])
    acc = tl.zeros((BM, D), tl.float32)
    mi = tl.zeros((BM,), tl.float32) - float("inf")
    li = tl.zeros((BM,), tl.float32)
    for s in range(0, N, BN):
        rn = s + tl.arange(0, BN)
        S = tl.dot(Q, tl.trans(tl.load(k + rn[:, None] * D + rd[None, :]))) * scale
        mn = tl.maximum(mi, tl.max(S, 1))
        p = tl.exp(S - mn[:, None])
        al = tl.exp(mi - mn)
        li = li * al + tl.sum(p, 1)
        V = tl.load(v + rn[:, None] * D + rd[None, :])
        acc = tl.dot(p.to(V.dtype), V, acc * al[:, None])
        mi = mn
    tl.store(o + rm[:, None] * D + rd[None, :], acc / li[:, None])


@triton.jit
def histogram(x, h, n, B: tl.constexpr):
    for s in range(tl.program_id(0) * B, n, B * tl.num_programs(0)):
        i = s + tl.arange(0, B)
        tl.atomic_add(h + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


@triton.jit
def divide(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o + i, tl.load(x + i, mask=m, other=1) // tl.load(y + i, mask=m, other=1), mask=m)


def variants() -> Iterator[Variant]:
    """Name, kernel, types of arguments, constants, and numbers of warps."""
    fp32, fp16 = "*fp32", "*fp16"
    for size in (256, 1024, 4096):
        yield "add", add, {"x": fp32, "y": fp32, "o": fp32, "n": "i32"}, {"B": size}, (4, 8)
    for size in (512, 2048, 8192):
        yield "softmax", softmax, {"o": fp32, "x": fp32, "n": "i32", "s": "i32"}, {"B": size}, (4, 8)
    tiles = ((32, 32, 32), (64, 64, 32), (128, 128, 64), (128, 256, 64), (256, 256, 32))
    for (m, n, k), kind in product(tiles, (fp16, fp32)):
        types = {"a": kind, "b": kind, "c": fp32, "K": "i32", "sa": "i32", "sb": "i32", "sc": "i32"}
        yield f"matmul-{kind[1:]}", matmul, types, {"BM": m, "BN": n, "BK": k}, (4, 8)
    for size in (512, 4096):
        types = {"x": fp16, "y": fp32, "w": fp32, "b": fp32, "n": "i32", "eps": "fp32"}
        yield "layernorm", layernorm, types, {"B": size}, (4,)
    for m, n, d in ((64, 64, 64), (128, 64, 64), (128, 128, 128)):
        types = {"q": fp16, "k": fp16, "v": fp16, "o": fp32, "N": "i32", "scale": "fp32"}
        yield "attention", attention, types, {"BM": m, "BN": n, "D": d}, (4, 8)
    yield "histogram", histogram, {"x": "*i32", "h": "*i32", "n": "i32"}, {"B": 512}, (4,)
    for kind in ("*i32", "*i64"):
        yield f"divide-{kind[1:]}", divide, {"x": kind, "y": kind, "o": kind, "n": "i32"}, {"B": 512}, (4,)


def main(folder: Path) -> None:
    """Compile every variant for every architecture into a folder, as NAME.cubin and NAME.ptx."""
    for architecture, (name, kernel, types, constants, several) in product(ARCHITECTURES, variants()):
        aligned = [number for number, kind in enumerate(types.values()) if kind.startswith("*") or kind == "i32"]
        attributes = {(number,): [["tt.divisibility", 16]] for number in aligned}
        signature = {**types, **dict.fromkeys(constants, "constexpr")}
        for warps in several:
            source = ASTSource(kernel, signature, dict(constants), attributes)
            target = GPUTarget("cuda", architecture, 32)
            made = triton.compile(source, target=target, options={"num_warps": warps})
            sizes = "-".join(map(str, constants.values()))
            path = folder / f"{name}-{sizes}-w{warps}-sm{architecture}.cubin"
            path.write_bytes(made.asm["cubin"])
            path.with_suffix(".ptx").write_text(made.asm["ptx"], "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
