"""Import torchvision with a PyTorch that its binaries were not built for.

A torchvision wheel for CUDA cannot load its operators with a CPU build of PyTorch; then the import fails, because it
registers fake kernels for operators that do not exist. Once these two operators (nms, qnms) are declared, everything
that does not call them works: classification, segmentation and video models. Detection models need the real operators.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from ncu_launch.targets.quick_imports import quick_imports

_kept_alive: list[Any] = []


def import_torchvision() -> ModuleType:
    """Import torchvision, declaring its operators first if they do not load.

    Raises `ImportError` if it is not installed or fails for another reason.
    """
    import torch

    if not _kept_alive and not _operators_load(torch):
        from torch import library

        operators = library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept_alive.append(operators)
    with quick_imports():
        return importlib.import_module("torchvision")


def operators_load() -> bool:
    """True if torchvision's compiled operators load with this PyTorch. Raises `ImportError` without torchvision."""
    import torch

    return _operators_load(torch)


def _operators_load(torch: Any) -> bool:
    found = importlib.util.find_spec("torchvision")
    if found is None or not found.submodule_search_locations:
        raise ImportError("torchvision is not installed")
    compiled = [path for folder in found.submodule_search_locations for path in Path(folder).glob("_C*.so")]
    try:
        for path in compiled:
            torch.ops.load_library(str(path))
    except OSError:
        return False
    return bool(compiled)
