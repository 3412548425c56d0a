"""The text of `flops_basis`: which counters, opcodes or pipes gave the FLOPs of a launch, and what they exclude."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

import numpy as np
import pyarrow as pa
from ncu_launch.counters import metrics as known

from ncu_parsers.derived.counter_columns import Mask
from ncu_parsers.schema import arrays

SOURCES = ("sass", "opcodes", "instructions", "idle pipe")
"""What the FLOPs of a precision come from: counters of the code (SASS), counts per opcode, counts per instruction, the
zero of an idle pipe."""


class BasisMark(Enum):
    """What is true of a launch's FLOPs, beside the source of each precision of CUDA cores."""

    LEFT_OUT = auto()
    HFMA_ALONE = auto()
    MOVES_BESIDE = auto()
    TENSOR = auto()
    COMPLETE = auto()
    BY_SHAPE = auto()
    BY_UNCHECKED_SHAPE = auto()
    BY_GROUP_SHAPE = auto()
    BY_INSTRUCTION = auto()
    IDLE = auto()
    UNCOUNTED = auto()
    NO_PACKED = auto()


AnyMark = tuple[str, str] | BasisMark
"""A source with a precision, or another mark."""


def basis(marks: Mapping[AnyMark, Mask], some: Mask) -> pa.Array:
    """The text of each launch from its marks (bool, one per launch each); null where `some` FLOPs are not known."""
    names = list(marks)
    codes = sum(
        (mask.astype(np.int64) << bit for bit, mask in enumerate(marks.values())), np.zeros(len(some), np.int64)
    )
    found, place = np.unique(codes, return_inverse=True)
    words = [_text({name for bit, name in enumerate(names) if code >> bit & 1}) for code in found.tolist()]
    distinct = list(dict.fromkeys(words))
    text_of = np.array([distinct.index(text) for text in words], np.int32)
    return arrays.coded(np.where(some, text_of[place], -1).astype(np.int32), distinct)


def _text(marks: set[AnyMark]) -> str:
    words = _of_cores(marks)
    missing = [
        precision
        for precision in known.CUDA_CORE_PRECISIONS
        if not any((source, precision) in marks for source in SOURCES)
    ]
    tensor = _of_tensor_cores(marks)
    if tensor:
        words.append(tensor)
    elif BasisMark.IDLE not in marks:
        missing.append("tensor, which was busy" if BasisMark.UNCOUNTED in marks else "tensor")
    if BasisMark.NO_PACKED in marks:
        missing.append("packed fp32")
    if BasisMark.LEFT_OUT in marks:
        words.append("fp16 left out: constant moves")
    if BasisMark.HFMA_ALONE in marks:
        words.append("fp16 is hfma alone and may be constant moves")
    if BasisMark.MOVES_BESIDE in marks:
        words.append("some of fp16 is HFMA2.MMA, which may be constant moves")
    if missing:
        words.append("not collected: " + ", ".join(missing))
    return "; ".join(words)


def estimate_in(basis: str | None) -> str | None:
    """The part of a basis that says by what tensor operations are estimated; None where they are not."""
    return next((words for words in (basis or "").split("; ") if words.startswith("tensor ops estimated")), None)


def _of_cores(marks: set[AnyMark]) -> list[str]:
    words = []
    for source in SOURCES:
        used = [precision for precision in known.CUDA_CORE_PRECISIONS if (source, precision) in marks]
        words += [f"{source} {'+'.join(used)}"] if used else []
    return words


def _of_tensor_cores(marks: set[AnyMark]) -> str:
    if BasisMark.BY_SHAPE in marks:
        return "tensor ops from the shapes of opcodes"
    if BasisMark.BY_UNCHECKED_SHAPE in marks:
        return "tensor ops estimated from the shapes of opcodes"
    if BasisMark.BY_GROUP_SHAPE in marks:
        return "tensor ops estimated from the shapes of opcodes of wgmma"
    if BasisMark.BY_INSTRUCTION in marks:
        return "tensor ops estimated: 512 per instruction"
    if BasisMark.TENSOR in marks:
        return "tensor ops" if BasisMark.COMPLETE in marks else "tensor ops (not every type)"
    return ""
