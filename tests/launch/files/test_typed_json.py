"""Untrusted JSON becomes a record only if every field has its declared type."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.files.typed_json import object_in, record_of


@dataclass
class Kept:
    name: str
    count: int = 0
    share: float = 0.0
    size: int | None = None
    shape: tuple[int, ...] = ()
    pair: tuple[int, str] = (0, "")
    words: dict[str, list[str]] | None = None


@pytest.mark.parametrize(
    "values",
    [
        {"name": "a", "share": 1},
        {"name": "a", "size": None, "shape": (1, 2, 3)},
        {"name": "a", "pair": (1, "b"), "words": {"x": ["y"]}},
    ],
)
def test_values_of_the_declared_types_make_a_record(values: dict[str, Any]) -> None:
    record = record_of(Kept, values)
    assert {name: getattr(record, name) for name in values} == values


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"name": 1},
        {"name": "a", "unknown": 1},
        {"name": "a", "count": True},
        {"name": "a", "count": 1.0},
        {"name": "a", "share": "1"},
        {"name": "a", "size": "1"},
        {"name": "a", "shape": (1, "2")},
        {"name": "a", "shape": [1]},
        {"name": "a", "pair": (1,)},
        {"name": "a", "words": {"x": [1]}},
    ],
)
def test_any_other_value_raises_a_type_error(values: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        record_of(Kept, values)


@pytest.mark.parametrize("text", ["", "{", "[1]", '"a"', "[" * 100_000, "\udcff"])
def test_a_file_without_a_readable_object_gives_an_empty_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "file.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert object_in(tmp_path / "file.json") == {}
    assert object_in(tmp_path / "missing.json") == {}


def test_an_object_in_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file.json").write_text('{"a": [1, null]}', "utf-8")
    assert object_in(tmp_path / "file.json") == {"a": [1, None]}
