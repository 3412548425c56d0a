"""A chain of element-wise operators, eager and compiled into one loop."""

import torch


def make_inputs(n: int = 1_000_000):
    """One vector."""
    return torch.randn(n)


def gelu(x):
    """Eight operators; each reads and writes the whole vector."""
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))


compiled = torch.compile(gelu)
