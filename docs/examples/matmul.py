"""A blocked matrix product, and PyTorch's own."""

import torch


def make_inputs(n: int = 512, dtype: torch.dtype = torch.float32):
    """The inputs of every function in this file: two square matrices."""
    return torch.randn(n, n, dtype=dtype), torch.randn(n, n, dtype=dtype)


def blocked(a, b, block: int = 128):
    """The product, computed one block of columns of `a` and rows of `b` at a time."""
    result = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    for start in range(0, a.shape[1], block):
        result.addmm_(a[:, start : start + block], b[start : start + block])
    return result


def whole(a, b):
    """The product by one call."""
    return a @ b
