"""The names of ranges that a reader must hold; it may leave others in the file, to be looked up later."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class NamesToHold(NamedTuple):
    """Names that `matches` accepts.

    `like`: patterns of SQL's LIKE; every accepted name matches one of them. () if no such patterns are known.
    """

    matches: Callable[[str], bool]
    like: tuple[str, ...] = ()
