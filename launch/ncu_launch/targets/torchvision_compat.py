"""Importing torchvision beside a PyTorch that its binaries were not built for.

A torchvision wheel made for CUDA cannot load its operators beside a CPU build of PyTorch, and then fails to import at
all, because it describes operators (nms) that do not exist. Declaring the two of them lets everything work that does
not use them: every classification, segmentation and video model. Detection models need the real operators.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

_kept_alive: list[Any] = []


def import_torchvision() -> ModuleType:
    """The torchvision module.

    Raises `ImportError` when it is not installed or fails for another reason.
    """
    import torch

    if not _kept_alive and not _operators_load(torch):
        from torch import library

        operators = library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept_alive.append(operators)
    return importlib.import_module("torchvision")


def operators_load() -> bool:
    """Whether torchvision's compiled operators load beside this PyTorch."""
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
