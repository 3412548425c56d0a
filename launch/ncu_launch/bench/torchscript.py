"""Freeze and optimise a traced model for inference: weights become constants, and operators are fused."""

from __future__ import annotations

from typing import Any

from ncu_launch.workload.workload import Step

CONVERTED_TO = ("fp16", "bf16")
"""The types to which autocast converts; it ignores others."""


def for_inference(step: Step) -> tuple[Any, list[str]]:
    """The model to call instead of a step's traced one, and notes if it is the same model.

    Uses `torch.jit.freeze` and `torch.jit.optimize_for_inference`, and runs the model once.
    """
    import torch

    workload = step.workload
    if workload.wants_backward:
        return step.model, ["traced and not frozen: gradients need parameters, which freezing makes constants"]
    if workload.autocast and workload.dtype in CONVERTED_TO:
        return step.model, ["traced and not frozen: autocast does not convert the constants of a frozen model"]
    try:
        frozen = torch.jit.optimize_for_inference(torch.jit.freeze(step.model))
        frozen(*step.arguments)
    except RuntimeError as error:
        last_line = (str(error).strip().splitlines() or [""])[-1]
        return step.model, [f"traced and not frozen: PyTorch could not optimise it for inference ({last_line})"]
    return frozen, []
