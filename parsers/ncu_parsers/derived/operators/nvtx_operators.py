"""PyTorch operators in the names of NVTX ranges that `torch.autograd.profiler.emit_nvtx` opens around them.

A range name is the operator's name, then, as far as known, `, seq = 12`, `, op_id = 34`,
`, sizes = [[2, 3], [3, 4], []]` and `, input_op_ids = ...`; sizes need record_shapes=True. The size [] stands for a
non-tensor, a 0-dimensional tensor or a list of tensors. Names hold no types, numbers or flags. Source: `getNvtxStr` and
`shapesToStr`, torch/csrc/profiler/util.cpp.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import NamedTuple

from ncu_parsers.derived.operators.work_from_shapes import UNTYPED, RecordedInputs

_BEGIN = re.compile(", (?:seq|op_id|sizes) = ")
_BEHIND_THE_NAME = re.compile(
    r"(?:, seq = \d+)?(?:, op_id = \d+)?(?:, sizes = (\[[\d, \[\]]*\]))?(?:, input_op_ids = \[[\d,() ]*\])?"
)
AUTOGRAD = "autograd::engine::"


class NvtxOperator(NamedTuple):
    """The operator call in a range's name; `inputs` have no shapes if the name has none."""

    name: str
    inputs: RecordedInputs

    @property
    def is_operator(self) -> bool:
        """True for an operator, false for a user's label or a node of the backward pass."""
        return "::" in self.name and not self.name.startswith(AUTOGRAD)


def operator_of(range_name: str) -> NvtxOperator | None:
    """The call in a range's name; None for a range that `emit_nvtx` did not open."""
    begin = _BEGIN.search(range_name) if " = " in range_name else None
    if begin is None or begin.start() == 0:
        return None
    found = _BEHIND_THE_NAME.fullmatch(range_name, begin.start())
    return _operator(range_name[: begin.start()], found[1]) if found else None


@lru_cache(maxsize=4096)
def _operator(name: str, sizes: str | None) -> NvtxOperator:
    """Parse a call; equal operators with equal sizes share one object, since timelines hold millions."""
    try:
        shapes = json.loads(sizes) if sizes else None
    except (ValueError, RecursionError):
        shapes = None
    if shapes is None:
        return NvtxOperator(name, RecordedInputs())
    return NvtxOperator(name, RecordedInputs(shapes, [UNTYPED if shape else "" for shape in shapes]))
