"""Launches whose tensor operations are an estimate, since no launch could check the opcodes that they follow from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from ncu_launch.notes import Note, NoteKind
from ncu_parsers.schema import tables
from ncu_parsers.schema.flops_basis import COLUMN, basis_of


def estimates_in(table: pa.Table) -> Counter[str]:
    """How many launches have tensor operations that are an estimate, by the words of their basis on it."""
    codes, texts = tables.codes(table, COLUMN)
    found: Counter[str] = Counter()
    for text, launches in zip(texts, np.bincount(codes, minlength=len(texts)).tolist(), strict=True):
        words = basis_of(text).estimate
        if words is not None and launches:
            found[words] += launches
    return found


def estimate_notes(estimates: Mapping[str, int]) -> list[str]:
    """What is estimated, in sentences."""
    return [
        Note(f"FLOPs of {launches} launch{'es' * (launches > 1)} hold an estimate: {words}", NoteKind.ESTIMATE)
        for words, launches in sorted(estimates.items())
    ]
