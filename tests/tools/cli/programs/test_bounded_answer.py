"""Bounded answers: every row is in exactly one page, and no page is longer than the bound."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from ncu_tools.cli.programs.bounded_answer import bounded, bounded_text

MOST = 2000
ROWS = some.lists(some.dictionaries(some.sampled_from("abcdef"), some.text(max_size=400), max_size=6), max_size=40)


@given(ROWS, some.lists(some.text(max_size=300), max_size=10))
def test_pages_hold_every_row_once_within_the_bound(rows: list[dict[str, str]], notes: list[str]) -> None:
    answer: dict[str, Any] = {"columns": {"a": "ns", "b": ""}, "rows": rows, "notes": notes}
    read: list[Any] = []
    cursor: int | None = 0
    while cursor is not None:
        page = bounded(answer, cursor, MOST)
        assert len(json.dumps(page)) <= MOST + 200  # the keys of the page itself
        assert page["all_rows"] == len(rows)
        read += page["rows"]
        cursor = page["next_cursor"]
    assert len(read) == len(rows)
    assert all(one == row or str(one).startswith("left out: ") for one, row in zip(read, rows, strict=True))


def test_the_first_page_alone_has_what_is_beside_the_rows() -> None:
    answer = {"columns": {"time_ns": "ns"}, "rows": [{"x": "y" * 900}] * 4, "notes": ["read slowly"]}
    first = bounded(answer, 0, MOST)
    assert (first["notes"], first["units"]) == (["read slowly"], {"time_ns": "ns"})
    assert "notes" not in bounded(answer, first["next_cursor"], MOST)


def test_rows_of_kernels_begin_with_short_names_that_tell_them_apart() -> None:
    names = [f"void softmax_warp_forward<float, {size}>(float *)" for size in (6, 7)]
    rows: list[dict[str, Any]] = [{"kernel": name, "kernel_id": f"k{at}"} for at, name in enumerate(names)]
    rows.append({"kernel": "all kernels", "kernel_id": None})
    found = bounded({"rows": rows})["rows"]
    assert [next(iter(row.items())) for row in found] == [
        ("short_name", "softmax_warp_forward fp32 (6)"),
        ("short_name", "softmax_warp_forward fp32 (7)"),
        ("kernel", "all kernels"),
    ]
    assert [row["kernel"] for row in found[:2]] == names


@given(some.text(max_size=3000), some.integers(10, 500))
def test_pages_of_a_text_are_the_text(text: str, most: int) -> None:
    read, cursor = "", 0
    while True:
        page = bounded_text(text, cursor, most)
        assert len(page["text"]) <= most
        read += page["text"]
        if page["next_cursor"] is None:
            break
        cursor = page["next_cursor"]
    assert read == text
