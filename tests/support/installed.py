"""Requirements of some tests beyond Python packages, and what to type if one is missing."""

from __future__ import annotations

import importlib.util
import shutil

import pytest

needs_nsys = pytest.mark.skipif(
    shutil.which("nsys") is None, reason="nsys is not installed: apt-get install nsight-systems (Debian, non-free)"
)
needs_ncu = pytest.mark.skipif(
    shutil.which("ncu") is None, reason="ncu is not installed: apt-get install nsight-compute (Debian, non-free)"
)
WITHOUT_TORCH = "torch is not installed: pip install 'ncu-bench[models]'"
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason=WITHOUT_TORCH)
"""For tests whose processes import PyTorch."""
WITHOUT_TORCHAO = "torchao is not installed: pip install 'ncu-bench[quantize]'"
