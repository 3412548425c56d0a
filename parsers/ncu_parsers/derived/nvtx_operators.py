"""Operators of PyTorch in the names of NVTX ranges, which `torch.autograd.profiler.emit_nvtx` opens around them.

A name is the operator's with `, seq = 12`, `, op_id = 34`, `, sizes = [[2, 3], [3, 4], []]` and `, input_op_ids = ...`
behind it, as far as each is there; sizes need record_shapes=True. An argument that is no tensor has the size [], as a
tensor without dimensions and a list of tensors have. Types, numbers and flags are not in them. Source: `getNvtxStr` and
`shapesToStr`, torch/csrc/profiler/util.cpp.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import NamedTuple

from ncu_parsers.derived.work_from_shapes import UNTYPED, RecordedInputs

_NAME = re.compile(
    r"(?P<name>.+?)(?:, seq = (?P<seq>\d+))?(?:, op_id = (?P<id>\d+))?(?:, sizes = (?P<sizes>\[[\d, \[\]]*\]))?"
    r"(?:, input_op_ids = \[[\d,() ]*\])?"
)
AUTOGRAD = "autograd::engine::"


class NvtxOperator(NamedTuple):
    """What a range says of the call that it is around; `inputs` are without shapes where it holds none."""

    name: str
    inputs: RecordedInputs

    @property
    def is_operator(self) -> bool:
        """Whether it is an operator, not a label of the user or a node of the backward pass."""
        return "::" in self.name and not self.name.startswith(AUTOGRAD)


def operator_of(range_name: str) -> NvtxOperator | None:
    """The call in the name of a range, None for a range that `emit_nvtx` did not open."""
    if " = " not in range_name:
        return None
    found = _NAME.fullmatch(range_name)
    if found is None or not (found["seq"] or found["id"] or found["sizes"]):
        return None
    return NvtxOperator(found["name"], _inputs(found["sizes"]))


@lru_cache(maxsize=4096)
def _inputs(sizes: str | None) -> RecordedInputs:
    if sizes is None:
        return RecordedInputs()
    try:
        shapes = json.loads(sizes)
    except (ValueError, RecursionError):
        return RecordedInputs()
    return RecordedInputs(shapes, [UNTYPED if shape else "" for shape in shapes])
