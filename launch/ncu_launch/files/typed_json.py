"""JSON from untrusted files: dataclasses whose every field has its declared type."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Record = TypeVar("Record")

UNREADABLE = (ValueError, TypeError, RecursionError)
"""Exceptions for JSON that cannot be used: truncated, of another structure, or nested too deeply."""


def record_of(kind: type[Record], values: dict[str, Any]) -> Record:
    """Make the dataclass `kind` from `values`. Raises `TypeError` if one is unknown, missing or of another type."""
    record = kind(**values)
    for name, declared in _hints(kind).items():
        if not _is_a(getattr(record, name), declared):
            raise TypeError(f"{name} is not a {getattr(declared, '__name__', declared)}")
    return record


_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)


def object_in(file: Path) -> dict[str, Any]:
    """The JSON object in a file; {} if the file cannot be read or holds none."""
    try:
        values = json.loads(file.read_text("utf-8"))
    except (OSError, *UNREADABLE):
        return {}
    return values if isinstance(values, dict) else {}


def _is_a(value: object, declared: Any) -> bool:
    """True if a value has the type that a field declares. A tuple field accepts no list: callers convert JSON lists."""
    inner = get_args(declared)
    if declared is Any:
        return True
    if get_origin(declared) in (Union, UnionType):
        return any(_is_a(value, one) for one in inner)
    if get_origin(declared) is tuple:
        kinds = inner[:1] * len(value) if isinstance(value, tuple) and inner[-1] is Ellipsis else inner
        return isinstance(value, tuple) and len(value) == len(kinds) and all(map(_is_a, value, kinds))
    if get_origin(declared) is list:
        return isinstance(value, list) and all(_is_a(one, inner[0]) for one in value)
    if get_origin(declared) is dict:
        return isinstance(value, dict) and all(_is_a(one, inner[1]) for one in value.values())
    if declared in (int, float):
        return not isinstance(value, bool) and isinstance(value, int | float if declared is float else int)
    return isinstance(value, declared)
