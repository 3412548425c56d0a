"""Classify API calls by what they do: wait, allocate, load code, capture, launch; by the patterns of timeline.toml."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from ncu_launch.files.toml_tables import table_beside
from ncu_parsers.timelines.activity.activity import ApiCalls

SYNCHRONISATION, ALLOCATOR, MODULE_LOADING, LAUNCH = "synchronisation", "allocator", "module loading", "launch"
BEGIN_CAPTURE, END_CAPTURE = "begin of capture", "end of capture"
OTHER_CALL = "other"

Mask = npt.NDArray[np.bool_]
ALL = slice(None)


def facts() -> dict[str, Any]:
    """The contents of timeline.toml: patterns of names, and limits."""
    return table_beside(__file__, "timeline")


@lru_cache(maxsize=4096)
def kind_of_call(name: str) -> str:
    """What an API call does: one of the kinds in timeline.toml, or `OTHER_CALL`."""
    return next((kind for kind, pattern in _patterns() if pattern.fullmatch(name)), OTHER_CALL)


def calls_of_kind(calls: ApiCalls, *kinds: str, rows: npt.NDArray[Any] | slice = ALL) -> Mask:
    """Mask of the calls of one of these kinds, among all or those at `rows` (bool, one per call)."""
    chosen = np.array([kind_of_call(name) in kinds for name in calls.names], np.bool_)
    return chosen[calls.name[rows]] if len(calls) else np.zeros(0, np.bool_)


def calls_named(calls: ApiCalls, pattern: str) -> Mask:
    """Mask of the calls whose whole name matches a pattern (bool, one per call)."""
    chosen = np.array([re.fullmatch(pattern, name) is not None for name in calls.names], np.bool_)
    return chosen[calls.name] if len(calls) else np.zeros(0, np.bool_)


def names_that_load_data(names: Sequence[str]) -> Mask:
    """Mask of the range names that mean loading of data (bool, one per name)."""
    pattern = re.compile(facts()["data_loading"]["pattern"])
    return np.array([pattern.search(name) is not None for name in names], np.bool_)


@lru_cache(maxsize=1)
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    return [(one["kind"], re.compile(one["pattern"])) for one in facts()["call"]]
