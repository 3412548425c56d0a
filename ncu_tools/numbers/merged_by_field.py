"""Sums over launches that are merged field by field, so that a new field needs no extra code."""

from __future__ import annotations

from typing import Any

import numpy as np


class MergedByField:
    """Sums that can be merged with the sums of later launches.

    Numbers and lists are added, sets and dicts united, flags are true if any is, and a field with a `merge` method uses
    it. Any other field, such as a name, is equal in both: settings are not numbers, lists or sets.
    """

    def merge(self, other: Any) -> None:
        """Merge the sums of later launches, of the same class, into these."""
        for name, later in vars(other).items():
            setattr(self, name, merged(getattr(self, name), later))


def merged(first: Any, later: Any) -> Any:
    """A field's value merged with the same field of later sums."""
    if isinstance(first, (bool, set)):
        return first | later
    if isinstance(first, (int, float, list, np.ndarray)):
        return first + later
    if isinstance(first, dict):
        for key, value in later.items():
            first[key] = merged(first[key], value) if key in first else value
    elif hasattr(first, "merge"):
        first.merge(later)
    return first
