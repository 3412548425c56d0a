"""The sentence on what FLOPs rest on is taken apart into what it was made of."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.counters.metrics import CUDA_CORE_PRECISIONS
from ncu_parsers.schema.flops_basis import (
    BETWEEN_BASES,
    SOURCES,
    TENSOR_MARKS,
    BasisMark,
    Completeness,
    basis_of,
    in_part,
    marked,
    sentence,
)
from ncu_parsers.schema.tables import SHAPES_BASIS

OF_CORES = [(source, precision) for source in SOURCES for precision in CUDA_CORE_PRECISIONS]
BESIDE = [mark for mark in BasisMark if mark not in (*TENSOR_MARKS, BasisMark.IDLE, BasisMark.UNCOUNTED)]
TENSOR = [*[{mark} for mark in TENSOR_MARKS], {BasisMark.IDLE}, {BasisMark.UNCOUNTED}, set[BasisMark]()]
EVERY_CORE = {("sass", precision) for precision in CUDA_CORE_PRECISIONS}


@given(st.sets(st.sampled_from(OF_CORES)), st.sampled_from(TENSOR), st.sets(st.sampled_from(BESIDE)))
def test_marks_come_back_from_their_sentence(
    cores: set[tuple[str, str]], tensor: set[BasisMark], beside: set[BasisMark]
) -> None:
    found = basis_of(sentence({*cores, *tensor, *beside}))
    assert found.marks == (tensor | beside) - {BasisMark.IDLE}
    lost = [one for one in CUDA_CORE_PRECISIONS if one not in {precision for _, precision in cores}]
    is_whole = not lost and BasisMark.NO_PACKED not in beside and not tensor.isdisjoint({*TENSOR_MARKS, BasisMark.IDLE})
    assert (found.completeness is Completeness.IN_PART) == (not is_whole)
    assert found.missing.split(", ")[: len(lost)] == (lost or found.missing.split(", ")[:0])


@pytest.mark.parametrize(
    ("marks", "completeness", "lacking"),
    [
        ({BasisMark.ALL_TYPES}, Completeness.WHOLE, ""),
        ({BasisMark.IDLE}, Completeness.WHOLE, ""),
        ({BasisMark.SOME_TYPES}, Completeness.SOME_TYPES, "some tensor types"),
        ({BasisMark.SOME_TYPES, BasisMark.NO_PACKED}, Completeness.IN_PART, "packed fp32"),
        ({BasisMark.UNCOUNTED}, Completeness.IN_PART, "tensor, which was busy"),
    ],
)
def test_flops_are_a_lower_bound_where_something_was_not_collected(
    marks: set[BasisMark], completeness: Completeness, lacking: str
) -> None:
    found = basis_of(sentence({*EVERY_CORE, *marks}))
    assert (found.completeness, found.lacking) == (completeness, lacking)


def test_a_row_of_several_launches_has_what_is_true_of_any() -> None:
    one, other = ({*EVERY_CORE, mark} for mark in (BasisMark.SOME_TYPES, BasisMark.BY_INSTRUCTION))
    found = basis_of(sentence(one) + BETWEEN_BASES + sentence(other))
    assert found.marks == {BasisMark.SOME_TYPES, BasisMark.BY_INSTRUCTION}
    assert (found.completeness, found.estimate) == (Completeness.SOME_TYPES, BasisMark.BY_INSTRUCTION.value)


@pytest.mark.parametrize("text", [None, "", SHAPES_BASIS, "operator formulas, contractions only"])
def test_flops_that_were_not_counted_are_complete(text: str | None) -> None:
    assert basis_of(text).completeness is Completeness.WHOLE


STORED = {
    "sass fp64+fp32+fp16; tensor ops": (False, False),
    "sass fp64+fp32+fp16; tensor ops (not every type)": (True, False),
    "sass fp32; fp16 left out: constant moves; not collected: fp64, tensor, which was busy, packed fp32": (True, True),
}
"""Sentences as files of every release hold them -> whether FLOPs are a lower bound, and FP16 was left out."""


def test_sentences_of_older_files_read_on() -> None:
    table = pa.table({"flops_basis": pa.array([*STORED, None]).dictionary_encode()})
    found = zip(in_part(table).tolist(), marked(table, BasisMark.LEFT_OUT).tolist(), strict=True)
    assert list(found) == [*STORED.values(), (False, False)]
