"""Small GPU programs whose FLOPs and bytes follow from their sizes, to be run under a profiler.

    python -m benchmarks.gpu.programs copy --gigabytes 4
    python -m benchmarks.gpu.programs model resnet18 --batch-size 8

Each prints one line of JSON: what its main kernels do by arithmetic, in bytes of device memory and FLOPs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import torch
from ncu_launch.workload.workload import prepared
from ncu_launch.workload_spec import Workload

Expected = dict[str, float]
FLOAT_BYTES = 4


def copy(gigabytes: float) -> Expected:
    """b = a: reads and writes half of the bytes each."""
    elements = int(gigabytes * 1e9 / 2 / FLOAT_BYTES)
    source = torch.rand(elements, device="cuda")
    torch.empty_like(source).copy_(source)
    return {"dram_bytes": 2 * FLOAT_BYTES * elements, "flops": 0}


def triad(gigabytes: float) -> Expected:
    """a = b + s c: two reads and a write of each element, one fused multiply-add."""
    elements = int(gigabytes * 1e9 / 3 / FLOAT_BYTES)
    one, other = (torch.rand(elements, device="cuda") for _ in range(2))
    torch.add(one, other, alpha=3.0, out=torch.empty_like(one))
    return {"dram_bytes": 3 * FLOAT_BYTES * elements, "flops": 2 * elements}


def reduction(gigabytes: float) -> Expected:
    """The sum of all elements: each is read once and added once."""
    elements = int(gigabytes * 1e9 / FLOAT_BYTES)
    torch.ones(elements, device="cuda").sum()
    return {"dram_bytes": FLOAT_BYTES * elements, "flops": elements - 1}


def resident(gigabytes: float) -> Expected:
    """A copy of 8 MB, which a second time finds its input in L2: less than the bytes by arithmetic reach DRAM."""
    del gigabytes
    source = torch.rand(1 << 20, device="cuda")
    target = torch.empty_like(source)
    for _ in range(4):
        target.copy_(source)
    return {"dram_bytes": 2 * FLOAT_BYTES * source.numel(), "flops": 0}


def attention(gigabytes: float) -> Expected:
    """Scaled dot-product attention: two products of 2 batch x heads x length^2 x width FLOPs, in bf16."""
    del gigabytes
    batch, heads, length, width = 8, 16, 2048, 64
    query, key, value = (
        torch.randn(batch, heads, length, width, device="cuda", dtype=torch.bfloat16) for _ in range(3)
    )
    torch.nn.functional.scaled_dot_product_attention(query, key, value)
    return {"tensor_flops": 4 * batch * heads * length**2 * width, "dram_bytes": 8 * batch * heads * length * width}


def layer_norm(gigabytes: float) -> Expected:
    """Layer norm over rows of 1024: reads and writes each element once; its FLOPs depend on the kernel."""
    rows = int(gigabytes * 1e9 / 2 / FLOAT_BYTES / 1024)
    values = torch.rand(rows, 1024, device="cuda")
    torch.nn.functional.layer_norm(values, (1024,))
    return {"dram_bytes": 2 * FLOAT_BYTES * values.numel()}


def products(gigabytes: float) -> Expected:
    """A product of 2048 x 2048 matrices in each type, 2 x 2048^3 operations each; TF32 is FP32 on tensor cores."""
    del gigabytes
    size = 2048
    one = torch.randn(size, size, device="cuda")
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        typed = one.to(dtype)
        torch.mm(typed, typed)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.mm(one, one)
    whole = torch.randint(-8, 8, (size, size), device="cuda", dtype=torch.int8)
    torch._int_mm(whole, whole.t().contiguous().t())
    if torch.cuda.get_device_capability() >= (8, 9):
        eighth, scale = one.to(torch.float8_e4m3fn), torch.ones((), device="cuda")
        torch._scaled_mm(eighth, eighth.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
    return {"operations_of_each_product": 2 * size**3}


PROGRAMS: dict[str, Callable[[float], Expected]] = {
    program.__name__: program for program in (copy, triad, reduction, resident, attention, layer_norm, products)
}


def model(name: str, batch_size: int, alive_gigabytes: float) -> Expected:
    """Forward and backward of a model, once to warm up and once to look at, beside so many GB that stay alive."""
    alive = torch.zeros(int(alive_gigabytes * 1e9), dtype=torch.uint8, device="cuda")
    step = prepared(Workload(name, batch_size=batch_size, device="cuda", warmup=1))
    from contextlib import nullcontext

    step.run(lambda phase: nullcontext())
    torch.cuda.synchronize()
    return {"bytes_alive": alive.numel() + torch.cuda.memory_allocated()}


def main() -> None:
    """Run one program and print what it does by arithmetic."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=[*PROGRAMS, "model"])
    parser.add_argument("name", nargs="?", default="resnet18")
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--alive-gigabytes", type=float, default=0.0)
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("There is no GPU that PyTorch can use: these programs need one. Try: ncu-bench doctor")
    expected: dict[str, Any]
    if asked.program == "model":
        expected = model(asked.name, asked.batch_size, asked.alive_gigabytes)
    else:
        expected = PROGRAMS[asked.program](asked.gigabytes)
    torch.cuda.synchronize()
    print(json.dumps({"program": asked.program, "name": asked.name, **expected}))


if __name__ == "__main__":
    main()
