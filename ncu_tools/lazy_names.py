"""The names of `ncu_tools` for scripts and notebooks, imported when one of them is used: that takes 20 ms."""

from __future__ import annotations

import sys
from importlib import import_module

PUBLIC = {
    **dict.fromkeys(("estimate", "expected_times", "load", "profile"), "ncu_tools.profiling.from_python"),
    "kernel": "ncu_tools.profiling.kernel_decorator",
    "range": "ncu_launch.workload.user_ranges",
}
"""Name -> the module that has it."""


def __getattr__(name: str) -> object:
    """A public name of the package; raises `AttributeError` for any other."""
    if name not in PUBLIC:
        raise AttributeError(f"module 'ncu_tools' has no attribute {name!r}")
    return getattr(import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    """What `dir(ncu_tools)` lists, and notebooks complete."""
    return sorted({*vars(sys.modules["ncu_tools"]), *PUBLIC})
