"""Source and completeness of a launch's FLOPs: marks, the sentence in `flops_basis` for them, and its parser.

Files contain the sentence, which is the same in every release. Only this module parses it.
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
"""Separates the sentences of several launches in one row."""
SOURCES = ("sass", "opcodes", "instructions", "idle pipe")
"""Sources of a precision's FLOPs: counters of the code (SASS), counts per opcode, counts per instruction, the zero of
an idle pipe."""
SOME_TENSOR_TYPES = "some tensor types"

_BETWEEN, _MISSING = "; ", "not collected: "


class BasisMark(Enum):
    """Facts on a launch's FLOPs other than the source per CUDA-core precision, in the sentence's words."""

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
    """Tensor cores were idle, which the sentence does not mention."""


TENSOR_MARKS = tuple(BasisMark)[:5]
"""Marks on tensor-core operations; if several hold, the first is written."""
ESTIMATES = (BasisMark.BY_UNCHECKED_SHAPE, BasisMark.BY_INSTRUCTION)
AnyMark = tuple[str, str] | BasisMark
"""A source with a precision, or another mark."""


class Completeness(Enum):
    """How much of a launch's work its FLOPs include."""

    WHOLE = auto()
    SOME_TYPES = auto()
    """Tensor-core operations of some input types are missing."""
    IN_PART = auto()
    """All FLOPs of a precision, or of the tensor cores, are missing."""


@dataclass(frozen=True)
class FlopsBasis:
    """A parsed sentence. `missing` lists what was not collected, as "fp16, tensor"."""

    marks: frozenset[BasisMark]
    missing: str

    @property
    def completeness(self) -> Completeness:
        """How much of the work is counted; FLOPs are a lower bound unless `WHOLE`."""
        if self.missing:
            return Completeness.IN_PART
        return Completeness.SOME_TYPES if BasisMark.SOME_TYPES in self.marks else Completeness.WHOLE

    @property
    def lacking(self) -> str:
        """What is missing, in words; "" if nothing is."""
        return self.missing or (SOME_TENSOR_TYPES if BasisMark.SOME_TYPES in self.marks else "")

    @property
    def estimate(self) -> str | None:
        """The words on how tensor operations are estimated; None if they are not."""
        return next((one.value for one in ESTIMATES if one in self.marks), None)


# ------------------------------------------------------------------------------------------------------- the sentence


def sentence(marks: set[AnyMark]) -> str:
    """The sentence for these marks."""
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
    """Parse a sentence, or several joined by `BETWEEN_BASES`; without a sentence nothing is missing."""
    parts = [part for one in (text or "").split(BETWEEN_BASES) for part in one.split(_BETWEEN)]
    missing = ", ".join(dict.fromkeys(part.removeprefix(_MISSING) for part in parts if part.startswith(_MISSING)))
    listed = {BasisMark.UNCOUNTED, BasisMark.NO_PACKED}
    marks = {mark for mark in BasisMark if mark.value in parts or (mark in listed and mark.value in missing)}
    return FlopsBasis(frozenset(marks), missing)


# ---------------------------------------------------------------------------------------------------------- launches


def marked(table: pa.Table, mark: BasisMark) -> Mask:
    """Mask of launches with a mark."""
    codes, texts = tables.codes(table, COLUMN)
    return np.array([mark in basis_of(text).marks for text in texts], bool)[codes]


def in_part(table: pa.Table) -> Mask:
    """Mask of launches whose FLOPs are a lower bound because something was not collected."""
    codes, texts = tables.codes(table, COLUMN)
    return np.array([basis_of(text).completeness is not Completeness.WHOLE for text in texts], bool)[codes]
