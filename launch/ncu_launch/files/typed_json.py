"""JSON of files that anybody may have written: records whose every field is of its declared type, or none."""

from __future__ import annotations

import json
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Record = TypeVar("Record")

UNREADABLE = (ValueError, TypeError, RecursionError)
"""What reading JSON of a stranger raises: it is cut, or it means something else, or it is nested without end."""


def record_of(kind: type[Record], values: dict[str, Any]) -> Record:
    """A dataclass of these values. Raises `TypeError` where one is unknown, missing, or of another declared type."""
    record = kind(**values)
    for name, declared in get_type_hints(kind).items():
        if not _is_a(getattr(record, name), declared):
            raise TypeError(f"{name} is not a {getattr(declared, '__name__', declared)}")
    return record


def object_in(file: Path) -> dict[str, Any]:
    """The JSON object in a file; {} where there is none that can be read."""
    try:
        values = json.loads(file.read_text("utf-8"))
    except (OSError, *UNREADABLE):
        return {}
    return values if isinstance(values, dict) else {}


def _is_a(value: object, declared: Any) -> bool:
    """Whether a value that came from JSON is of the type that a field declares; tuples were made of its lists."""
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
