"""The compute unit of an operator's work, by its type and the kernel's name.

Units are named as in the columns of launches: `tensor_bf16` is the tensor cores with bf16 inputs, `fp32` the CUDA
cores. A product of float32 runs on either (torch.backends.cuda.matmul.allow_tf32); only the kernel's name tells.
"""

from __future__ import annotations

import re

from ncu_launch.operators.calls import Call, Tensor

_TENSOR_UNITS = {
    "float16": "tensor_fp16", "bfloat16": "tensor_bf16",
    "float8_e4m3fn": "tensor_fp8", "float8_e5m2": "tensor_fp8", "float8_e4m3fnuz": "tensor_fp8",
    "float8_e5m2fnuz": "tensor_fp8", "float4_e2m1fn_x2": "tensor_fp4", "int8": "tensor_int8",
}  # fmt: skip
_TF32 = re.compile(r"tf32|s1688|s16816|_16816_|hgmma.*f32f32", re.IGNORECASE)
_FP32 = re.compile(r"sgemm|ffma|simt|_scudnn|scudnn|gemmsn|gemv|fp32_nn|maxwell_|volta_s", re.IGNORECASE)
_CUDA_CORES = re.compile(r"gemv|dot_kernel|simt", re.IGNORECASE)
"""Kernels for products with a vector, and CUTLASS's without tensor cores: they compute half types in float32."""
_TYPES_IN_NAMES = (
    ("bfloat16", re.compile(r"bf16|bfloat16|nvjet_t", re.IGNORECASE)),
    ("float8_e4m3fn", re.compile(r"e4m3|e5m2|fp8|nvjet_qq", re.IGNORECASE)),
    ("float16", re.compile(r"fp16|f16f16|_h(?:16816|1688|884)|hgemm|__half|nvjet_h", re.IGNORECASE)),
    ("float64", re.compile(r"dgemm|f64f64|d884|d16816", re.IGNORECASE)),
    ("float32", re.compile(r"tf32|sgemm|f32f32|s1688|s16816|nvjet_s", re.IGNORECASE)),
)
"""Input types of products, and their patterns in kernel names of cuBLAS, CUTLASS and others; the first match counts."""
_TENSOR_FP64 = re.compile(r"dmma|d884|d16816|tensorop_d", re.IGNORECASE)
_FP64 = re.compile(r"dfma|simt_dgemm|volta_d", re.IGNORECASE)


def type_of(call: Call) -> str | None:
    """The type of the computation: of the first floating-point tensor with dimensions, else of any, else of the first.

    Two matrices of FP8 or FP4 are the operands of a product, even if its result precedes them. None without tensors.
    """
    tensors: list[Tensor] = list(call.every_tensor())
    small = [one for one in tensors if one.dtype.startswith(("float8", "float4")) and len(one.shape) > 1]
    if len(small) > 1:
        return small[0].dtype
    floats = [one for one in tensors if one.is_float]
    found = [one for one in floats if one.shape] or floats or tensors
    return found[0].dtype if found else None


def elementwise_unit(dtype: str | None) -> str | None:
    """The unit of element-wise work on a GPU: half types are computed in float32. None for integers and complex."""
    if dtype == "float64":
        return "fp64"
    return "fp32" if dtype is not None and dtype.startswith(("float", "bfloat")) else None


def type_in_name(kernel: str) -> str | None:
    """The input type in the name of a product's kernel, None if it has none."""
    return next((dtype for dtype, pattern in _TYPES_IN_NAMES if pattern.search(kernel)), None)


def contraction_unit(dtype: str | None, kernel: str) -> str | None:
    """The unit of a product on a GPU; None if neither type nor kernel name shows it. A type of "" is unknown."""
    if dtype == "":
        dtype = type_in_name(kernel)
    if dtype == "float32":
        return "tensor_tf32" if _TF32.search(kernel) else "fp32" if _FP32.search(kernel) else None
    if dtype == "float64":
        return "tensor_fp64" if _TENSOR_FP64.search(kernel) else "fp64" if _FP64.search(kernel) else None
    if dtype in ("float16", "bfloat16") and _CUDA_CORES.search(kernel):
        return "fp32"
    return _TENSOR_UNITS.get(dtype or "")


def cpu_unit(dtype: str | None) -> str | None:
    """The unit of any work on a CPU, which has one for float64 and one for float32. None for other types."""
    return {"float64": "fp64", "float32": "fp32"}.get(dtype or "")
