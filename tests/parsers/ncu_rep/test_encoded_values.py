"""Values decoded many at once are those that protobuf decodes one by one."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.ncu_rep.encoded_values import values_of
from ncu_parsers.ncu_rep.fields import Damaged, decoded

from tests.support.binary_reports import field, value

wholes = st.integers(0, 2**64 - 1)
singles = st.floats(width=32).map(lambda number: b"\x15" + struct.pack("<f", number))
smalls = st.integers(0, 2**64 - 1).map(lambda number: field(4, number))
values = st.one_of(
    st.just(b""), wholes.map(value), st.floats().map(value), singles, smalls, st.text(max_size=200).map(value)
)


@given(st.lists(values))
def test_any_values_are_those_that_protobuf_decodes(encoded: list[bytes]) -> None:
    found = values_of(encoded)
    assert found.damaged == 0
    for place, one in enumerate(encoded):
        expected = decoded("Value", one)
        kinds = [kind for kind in ("text", "single", "double", "small", "whole") if expected.HasField(kind)]
        number = getattr(expected, kinds[0]) if kinds and kinds[0] != "text" else math.nan
        assert found.texts.get(place) == (expected.text.decode() if kinds == ["text"] else None)
        assert np.array_equal(found.numbers[place], float(number), equal_nan=True)
        assert found.is_whole[place] == (kinds in (["small"], ["whole"]))
        assert found.whole[place] == (number if found.is_whole[place] else 0)


@given(st.lists(st.binary(max_size=14)))
@pytest.mark.slow
def test_any_bytes_are_a_value_or_damaged_where_protobuf_says_so(encoded: list[bytes]) -> None:
    found = values_of(encoded)
    assert len(found.numbers) == len(encoded)
    damaged = 0
    for one in encoded:
        try:
            decoded("Value", one)
        except Damaged:
            damaged += 1
    assert found.damaged == damaged


def test_the_first_known_kind_of_several_fields_counts() -> None:
    found = values_of([value(7) + value("word"), value(7) + value(2.5), field(9, 3), field(9, 3) + value(4)])
    assert found.texts == {0: "word"}
    assert np.array_equal(found.numbers, [math.nan, 2.5, math.nan, 4.0], equal_nan=True)
