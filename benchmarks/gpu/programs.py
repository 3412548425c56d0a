"""Small GPU programs with known FLOPs and bytes, to be profiled.

    python -m benchmarks.gpu.programs known
    python -m benchmarks.gpu.programs model resnet18 --batch-size 8

Each prints one line of JSON: for every NVTX range, the FLOPs and the bytes of device memory that its kernels need by
arithmetic.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from ncu_launch.workload.workload import prepared
from ncu_launch.workload_spec import Workload

Expected = dict[str, dict[str, float]]
FLOAT_BYTES = 4
ON_CUDA_CORES = {"fp64": torch.float64, "fp32": torch.float32}
ON_TENSOR_CORES = {"tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def _ranged(expected: Expected, name: str, work: Callable[[], object], **counts: float) -> None:
    """Run `work` in an NVTX range, and store its expected counts under the range's name."""
    torch.cuda.synchronize()
    with torch.cuda.nvtx.range(name):
        work()
        torch.cuda.synchronize()
    expected[name] = counts


def copy(elements: int) -> Callable[[], object]:
    """b = not a: two accesses per element. A plain copy would be a memcpy, which ncu does not profile."""
    source = torch.ones(elements, device="cuda", dtype=torch.int32)
    return partial(torch.bitwise_not, source, out=torch.empty_like(source))


def triad(elements: int) -> Callable[[], object]:
    """c = a + 3 b: three accesses and two operations per element."""
    one, other = (torch.rand(elements, device="cuda") for _ in range(2))
    return partial(torch.add, one, other, alpha=3.0, out=torch.empty_like(one))


def total(elements: int) -> Callable[[], object]:
    """The sum of a: one access and one operation per element."""
    return partial(torch.sum, torch.rand(elements, device="cuda"))


STREAMS = ((copy, 2, 0), (triad, 3, 2), (total, 1, 1))
"""Program, accesses of device memory per element, operations per element."""


def bytes_moved() -> Expected:
    """Copies, triads and sums that move 1 and 8 GB, and copies of 8 MB, whose input is in L2 from the second on."""
    expected: Expected = {}
    for gigabytes in (1, 8):
        for program, accesses, operations in STREAMS:
            elements = int(gigabytes * 1e9 / accesses / FLOAT_BYTES)
            counts = {"dram_bytes": accesses * FLOAT_BYTES * elements, "flops": operations * elements}
            _ranged(expected, f"{program.__name__} of {gigabytes} GB", program(elements), **counts)
            torch.cuda.empty_cache()
    again, elements = copy(1 << 20), 1 << 20
    for turn in range(4):
        _ranged(expected, f"copy of 8 MB, {turn}", again, dram_bytes=2 * FLOAT_BYTES * elements)
    return expected


def known() -> Expected:
    """Products, convolutions and attention with known FLOPs in each type, and a layer norm with known bytes."""
    expected: Expected = {}
    _products(expected, 2048)
    _convolutions(expected)
    _attention(expected)
    values = torch.rand(1 << 17, 1024, device="cuda")
    norm = partial(torch.nn.functional.layer_norm, values, (1024,))
    _ranged(expected, "layer norm fp32", norm, dram_bytes=2 * FLOAT_BYTES * values.numel())
    return expected


def _products(expected: Expected, size: int) -> None:
    """A product of square matrices in each type, 2 size^3 operations; TF32 is FP32 on tensor cores."""
    flops = 2 * size**3
    one = torch.randn(size, size, device="cuda")
    for name, dtype in {**ON_CUDA_CORES, **ON_TENSOR_CORES}.items():
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        typed = one.to(dtype)
        _ranged(expected, f"product {name}", partial(torch.mm, typed, typed), flops=flops)
    whole = torch.randint(-8, 8, (size, size), device="cuda", dtype=torch.int8)
    columns = whole.t().contiguous().t()
    _ranged(expected, "product int8", partial(torch._int_mm, whole, columns), flops=flops)
    if torch.cuda.get_device_capability() >= (8, 9):
        eighth, scale = one.to(torch.float8_e4m3fn), torch.ones((), device="cuda")
        across = eighth.t().contiguous().t()
        scaled = partial(torch._scaled_mm, eighth, across, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
        _ranged(expected, "product fp8", scaled, flops=flops)


def _convolutions(expected: Expected) -> None:
    """A 3 x 3 convolution of 64 channels, 2 N K P Q C R S operations: cuDNN may choose an algorithm with fewer."""
    images, channels, side = 32, 64, 56
    flops = 2 * images * channels * side**2 * channels * 9
    pixels = torch.randn(images, channels, side, side, device="cuda")
    weights = torch.randn(channels, channels, 3, 3, device="cuda")
    for name, dtype in {"fp32": torch.float32, **ON_TENSOR_CORES}.items():
        torch.backends.cudnn.allow_tf32 = name == "tf32"
        typed = [one.to(dtype).contiguous(memory_format=torch.channels_last) for one in (pixels, weights)]
        work = partial(torch.nn.functional.conv2d, *typed, padding=1)
        _ranged(expected, f"convolution {name}", work, flops=flops)


def _attention(expected: Expected) -> None:
    """Scaled dot-product attention: two products of 2 batch heads length^2 width operations each."""
    batch, heads, length, width = 8, 16, 2048, 64
    for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
        inputs = [torch.randn(batch, heads, length, width, device="cuda", dtype=dtype) for _ in range(3)]
        work = partial(torch.nn.functional.scaled_dot_product_attention, *inputs)
        _ranged(expected, f"attention {name}", work, flops=4 * batch * heads * length**2 * width)


def model(name: str, batch_size: int, alive_gigabytes: float) -> Expected:
    """Forward and backward pass of a model, while `alive_gigabytes` GB of other tensors stay allocated."""
    alive = torch.zeros(int(alive_gigabytes * 1e9), dtype=torch.uint8, device="cuda")
    prepared(Workload(name, batch_size=batch_size, device="cuda")).run(lambda phase: nullcontext())
    torch.cuda.synchronize()
    return {name: {"bytes_alive": alive.numel() + torch.cuda.memory_allocated()}}


def main() -> None:
    """Run one program and print its expected counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=["known", "bytes", "model"])
    parser.add_argument("name", nargs="?", default="resnet18")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--alive-gigabytes", type=float, default=0.0)
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("There is no GPU that PyTorch can use: these programs need one. Try: ncu-bench doctor")
    programs: dict[str, Callable[[], Any]] = {
        "known": known,
        "bytes": bytes_moved,
        "model": lambda: model(asked.name, asked.batch_size, asked.alive_gigabytes),
    }
    print(json.dumps({"program": asked.program, "expected": programs[asked.program]()}))


if __name__ == "__main__":
    main()
