"""Launches whose tensor operations are an estimate, since their opcodes were never compared with counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from ncu_launch.notes import Note, NoteKind
from ncu_parsers.schema import tables
from ncu_parsers.schema.flops_basis import COLUMN, basis_of


def estimates_in(table: pa.Table) -> Counter[str]:
    """Number of launches with estimated tensor operations, by the words of their basis."""
    codes, texts = tables.codes(table, COLUMN)
    found: Counter[str] = Counter()
    for text, launches in zip(texts, np.bincount(codes, minlength=len(texts)).tolist(), strict=True):
        words = basis_of(text).estimate
        if words is not None and launches:
            found[words] += launches
    return found


def estimate_notes(estimates: Mapping[str, int]) -> list[str]:
    """Notes on estimated operations."""
    return [
        Note(f"FLOPs of {launches} launch{'es' * (launches > 1)} hold an estimate: {words}", NoteKind.ESTIMATE)
        for words, launches in sorted(estimates.items())
    ]
