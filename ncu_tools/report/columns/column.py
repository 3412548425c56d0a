"""The layout of a column in one table."""

from __future__ import annotations

from typing import NamedTuple

KERNEL = "kernel"
"""Kind of the columns that hold full names of kernels."""


class Column(NamedTuple):
    """One column: name and unit in machine-readable forms, title and kind of number in text.

    `lower_bound_if` names a column that, if true, makes the value a lower bound, shown with "≥" in front.

    Columns of the kind "kernel" hold full names of kernels, which text and Markdown show by readable names. In text,
    these and names in `wide` columns may be cut, and sentences in `prose` are wrapped. `spare` ranks columns to drop if
    there is no room: 0 never, else the highest number first and equal ones together, until names have half of the
    width; columns without it go last, from the right, and names and `prose` stay. `key` is its name in the registry
    (`ncu_tools.report.columns`), "" for a column of the run.
    """

    name: str
    title: str
    kind: str = "text"
    unit: str = ""
    wide: bool = False
    lower_bound_if: str = ""
    prose: bool = False
    spare: int | None = None
    key: str = ""

    @property
    def is_number(self) -> bool:
        """True if values are right-aligned."""
        return self.kind not in ("text", KERNEL)

    @property
    def is_wide(self) -> bool:
        """True for names, which are cut in the middle if there is no room."""
        return self.wide or self.kind == KERNEL
