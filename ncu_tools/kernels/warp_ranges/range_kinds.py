"""The kind of a range by the words of its name: wait, barrier, copy, store or compute."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any

from ncu_launch.files.toml_tables import table_beside

_WORDS = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*|[0-9]+[a-z]*")


class RangeKind(Enum):
    """Kind of a range. A warp does nothing in a wait or barrier; `OTHER` is work of unknown kind."""

    BARRIER = "barrier"
    WAIT = "wait"
    STORE = "store"
    COPY = "copy"
    COMPUTE = "compute"
    OTHER = "other"

    @property
    def is_waiting(self) -> bool:
        """True for kinds in which warps wait."""
        return self in (RangeKind.WAIT, RangeKind.BARRIER)


NAMED: Mapping[str, RangeKind] = {}
"""The default of names to which the user gave a kind: none."""


def kind_of_range(name: str, named: Mapping[str, RangeKind] = NAMED) -> RangeKind:
    """The kind of a range: as given in `named`, else by the words of its name."""
    if name in named:
        return named[name]
    words = words_of(name)
    return next((kind for kind, those in _kinds().items() if words & those), RangeKind.OTHER)


def is_tile(name: str) -> bool:
    """True if a range's name says that it is a tile of work, not a step within one."""
    said, words = _table()["tiles"], words_of(name)
    return bool(words & set(said["words"])) and not words & set(said["without"])


def words_of(name: str) -> set[str]:
    """The words of a name, in lower case."""
    return {word.lower() for word in _WORDS.findall(name)}


@cache
def _kinds() -> dict[RangeKind, frozenset[str]]:
    return {RangeKind(kind): frozenset(words) for kind, words in _table()["kinds"].items()}


@cache
def _table() -> dict[str, Any]:
    return table_beside(__file__, "range_kinds")
