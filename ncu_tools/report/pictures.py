"""What pictures are written as, and matplotlib as they need it: for files, without a window."""

from __future__ import annotations

import os
from types import ModuleType

from ncu_launch.errors import NcuBenchError

BACKEND = "MPLBACKEND"
FORMATS = ("svg", "png", "pdf")
"""What pictures are written as, by the suffix of their file."""


def matplotlib_for_files() -> ModuleType:
    """matplotlib. Raises `NcuBenchError` where the environment names a backend that it does not know."""
    try:
        import matplotlib
    except ValueError as error:
        raise NcuBenchError(
            f'matplotlib, which draws pictures, cannot start with {BACKEND}="{os.environ.get(BACKEND, "")}".',
            "It knows no such backend; pictures here are files, and need none.", f"Type: unset {BACKEND}",
        ) from error  # fmt: skip
    return matplotlib
