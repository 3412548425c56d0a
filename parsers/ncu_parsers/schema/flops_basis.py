"""What the FLOPs of a launch rest on: marks, the sentence in `flops_basis` that tells them, and the way back.

Files hold the sentence, those of every release the same. It is taken apart here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.counters.metrics import CUDA_CORE_PRECISIONS

from ncu_parsers.schema import tables

Mask = npt.NDArray[np.bool_]

COLUMN = "flops_basis"
BETWEEN_BASES = " / "
"""Between the sentences of several launches that one row stands for."""
SOURCES = ("sass", "opcodes", "instructions", "idle pipe")
"""What the FLOPs of a precision come from: counters of the code (SASS), counts per opcode, counts per instruction, the
zero of an idle pipe."""
SOME_TENSOR_TYPES = "some tensor types"

_BETWEEN, _MISSING = "; ", "not collected: "


class BasisMark(Enum):
    """What is true of a launch's FLOPs, beside the source of each precision of CUDA cores, in the sentence's words."""

    BY_SHAPE = "tensor ops from the shapes of opcodes"
    BY_UNCHECKED_SHAPE = "tensor ops estimated from the shapes of opcodes"
    BY_INSTRUCTION = "tensor ops estimated: 512 per instruction"
    ALL_TYPES = "tensor ops"
    SOME_TYPES = "tensor ops (not every type)"
    LEFT_OUT = "fp16 left out: constant moves"
    HFMA_ALONE = "fp16 is hfma alone and may be constant moves"
    MOVES_BESIDE = "some of fp16 is HFMA2.MMA, which may be constant moves"
    UNCOUNTED = "tensor, which was busy"
    NO_PACKED = "packed fp32"
    IDLE = "idle"
    """Tensor cores did nothing, which the sentence leaves out."""


TENSOR_MARKS = tuple(BasisMark)[:5]
"""The marks on operations of tensor cores; of several that hold, the first is told."""
ESTIMATES = (BasisMark.BY_UNCHECKED_SHAPE, BasisMark.BY_INSTRUCTION)
AnyMark = tuple[str, str] | BasisMark
"""A source with a precision, or another mark."""


class Completeness(Enum):
    """How much of what a launch computed its FLOPs hold."""

    WHOLE = auto()
    SOME_TYPES = auto()
    """Of tensor cores, the operations of some input types are missing."""
    IN_PART = auto()
    """Those of a precision, or of all tensor cores, are missing."""


@dataclass(frozen=True)
class FlopsBasis:
    """What a sentence says. `missing` lists what was not collected, as "fp16, tensor"."""

    marks: frozenset[BasisMark]
    missing: str

    @property
    def completeness(self) -> Completeness:
        """How much of the work is counted; all but `WHOLE` make FLOPs a lower bound."""
        if self.missing:
            return Completeness.IN_PART
        return Completeness.SOME_TYPES if BasisMark.SOME_TYPES in self.marks else Completeness.WHOLE

    @property
    def lacking(self) -> str:
        """What is missing, in words; "" if nothing is."""
        return self.missing or (SOME_TENSOR_TYPES if BasisMark.SOME_TYPES in self.marks else "")

    @property
    def estimate(self) -> str | None:
        """The words on how tensor operations are estimated; None where they are not."""
        return next((one.value for one in ESTIMATES if one in self.marks), None)


# ------------------------------------------------------------------------------------------------------- the sentence


def sentence(marks: set[AnyMark]) -> str:
    """The sentence that tells these marks."""
    words = []
    for source in SOURCES:
        used = [precision for precision in CUDA_CORE_PRECISIONS if (source, precision) in marks]
        words += [f"{source} {'+'.join(used)}"] if used else []
    missing = [one for one in CUDA_CORE_PRECISIONS if not any((source, one) in marks for source in SOURCES)]
    tensor = [mark.value for mark in TENSOR_MARKS if mark in marks]
    words += tensor[:1]
    if not tensor and BasisMark.IDLE not in marks:
        missing.append(BasisMark.UNCOUNTED.value if BasisMark.UNCOUNTED in marks else "tensor")
    missing += _told(marks, (BasisMark.NO_PACKED,))
    words += _told(marks, (BasisMark.LEFT_OUT, BasisMark.HFMA_ALONE, BasisMark.MOVES_BESIDE))
    return _BETWEEN.join([*words, *([_MISSING + ", ".join(missing)] if missing else [])])


def _told(marks: set[AnyMark], of: Iterable[BasisMark]) -> list[str]:
    return [mark.value for mark in of if mark in marks]


@lru_cache(maxsize=4096)
def basis_of(text: str | None) -> FlopsBasis:
    """What a sentence, or several with `BETWEEN_BASES`, say; nothing is missing where there is none."""
    parts = [part for one in (text or "").split(BETWEEN_BASES) for part in one.split(_BETWEEN)]
    missing = ", ".join(dict.fromkeys(part.removeprefix(_MISSING) for part in parts if part.startswith(_MISSING)))
    listed = {BasisMark.UNCOUNTED, BasisMark.NO_PACKED}
    marks = {mark for mark in BasisMark if mark.value in parts or (mark in listed and mark.value in missing)}
    return FlopsBasis(frozenset(marks), missing)


# ---------------------------------------------------------------------------------------------------------- launches


def marked(table: pa.Table, mark: BasisMark) -> Mask:
    """Which launches have a mark."""
    codes, texts = tables.codes(table, COLUMN)
    return np.array([mark in basis_of(text).marks for text in texts], bool)[codes]


def in_part(table: pa.Table) -> Mask:
    """Which launches have FLOPs that are a lower bound, as something was not collected."""
    codes, texts = tables.codes(table, COLUMN)
    return np.array([basis_of(text).completeness is not Completeness.WHOLE for text in texts], bool)[codes]
