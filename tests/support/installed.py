"""Requirements of some tests beyond Python packages, what to type if one is missing, and one real nsys at a time."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock

needs_nsys = pytest.mark.skipif(
    shutil.which("nsys") is None, reason="nsys is not installed: apt-get install nsight-systems (Debian, non-free)"
)
needs_ncu = pytest.mark.skipif(
    shutil.which("ncu") is None, reason="ncu is not installed: apt-get install nsight-compute (Debian, non-free)"
)
WITHOUT_TORCH = "torch is not installed: pip install '.[models]'"
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason=WITHOUT_TORCH)
"""For tests whose processes import PyTorch."""
WITHOUT_TORCHAO = "torchao is not installed: pip install '.[quantize]'"


@contextmanager
def one_nsys(arguments: Sequence[str]) -> Iterator[None]:
    """Wait until no other test has nsys run, if `arguments` ask for it.

    Those of two tests that begin at once can lose each other's semaphores: "sem_open".
    """
    if "nsys" not in arguments:
        yield
        return
    with FileLock(Path(tempfile.gettempdir()) / "ncu-bench-tests-nsys.lock"):
        yield
