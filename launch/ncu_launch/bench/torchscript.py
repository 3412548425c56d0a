"""A traced model frozen and optimised for inference: weights become constants, and operators are fused around them."""

from __future__ import annotations

from typing import Any

from ncu_launch.workload.workload import Step

CONVERTED_TO = ("fp16", "bf16")
"""The types to which autocast converts; with others it changes nothing."""


def for_inference(step: Step) -> tuple[Any, list[str]]:
    """The model to call in place of a step's traced one, and notes: why it is the same, where it could not be frozen.

    It is frozen and optimised by `torch.jit.freeze` and `torch.jit.optimize_for_inference`, and has run once.
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
