"""Messages of protobuf are decoded from a table of their fields, and what is whole of a damaged one is told apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.report_data.protobuf_messages import Damaged, MessageTypes, fields_in, whole_fields

from tests.support.binary_reports import field

TYPES = MessageTypes(
    "ncu_bench_test",
    {"Outer": ((1, "number", "int64"), (2, "inner", "Inner*")), "Inner": ((1, "text", "bytes"), (2, "real", "double"))},
)
PARTS = st.lists(st.tuples(st.integers(1, 40), st.binary(max_size=300)), max_size=6)


def test_a_message_is_decoded_by_its_table_of_fields() -> None:
    found = TYPES.decoded("Outer", field(1, 5) + field(2, field(1, b"one")) + field(2, b"") + field(9, b"unknown"))
    assert (found.number, [inner.text for inner in found.inner]) == (5, [b"one", b""])


def test_a_damaged_message_is_refused() -> None:
    with pytest.raises(Damaged, match="a Outer cannot be decoded"):
        TYPES.decoded("Outer", b"\x12\x05ab")


@given(PARTS)
def test_fields_are_told_apart_in_their_order(parts: list[tuple[int, bytes]]) -> None:
    encoded = b"".join(field(7, 123456) + field(number, content) for number, content in parts)
    assert [(number, bytes(content)) for number, content in fields_in(memoryview(encoded))] == parts


@given(PARTS.filter(bool), st.data())
def test_a_truncated_message_keeps_its_whole_fields_and_the_rest_of_its_last_one(
    parts: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    pieces = [field(number, content) for number, content in parts]
    encoded = b"".join(pieces)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    kept, found = bytes(whole_fields(memoryview(encoded)[:cut])), []
    ends = [sum(map(len, pieces[:count])) for count in range(len(pieces) + 1)]
    assert len(kept) == max(end for end in ends if end <= cut)
    try:
        for one in fields_in(memoryview(encoded)[:cut]):
            found.append(one)
        assert cut in ends
    except Damaged:
        assert cut not in ends
    assert all(bytes(content) == parts[at][1][: len(content)] for at, (_, content) in enumerate(found))


@given(st.binary(max_size=60))
def test_any_bytes_are_fields_or_damaged(data: bytes) -> None:
    kept = whole_fields(memoryview(data))
    assert sum(1 for _ in fields_in(kept)) <= len(kept)
