"""Columns by their names. A table lists names, and says how each is laid out; what it is, the registry says.

The registry is the TOML files beside this one. A name that means two things has the second as "subject.name".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from ncu_launch.files.toml_tables import table_beside

from ncu_tools.report.columns.column import Column

SUBJECTS = {
    "kernels": "Kernels and layers", "advice": "Advice", "steps": "Levers on a step",
    "inside": "Inside a kernel", "timelines": "Timelines", "points": "Measured points",
    "works": "Work by formulas", "tools": "Tools",
}  # fmt: skip
"""File of the registry -> what its columns are of."""

OF_LAYOUT = ("title", "kind", "unit", "lower_bound_if", "wide", "prose")


@dataclass(frozen=True)
class Entry:
    """What the registry says of a column: `null` where a value is missing, `type` the JSON type where `kind` does not.

    All else is that of `Column`.
    """

    title: str
    meaning: str
    kind: str = "text"
    unit: str = ""
    null: str = ""
    type: str = ""
    lower_bound_if: str = ""
    wide: bool = False
    prose: bool = False

    @property
    def json_type(self) -> str:
        """The type of the values in JSON where they are not null."""
        is_number = self.kind not in ("text", "kernel") or bool(self.unit)
        return self.type or ("number" if is_number else "string")


@cache
def entries_of(subject: str) -> dict[str, Entry]:
    """The columns of one file of the registry."""
    return {name: Entry(**fields) for name, fields in table_beside(__file__, subject)["columns"].items()}


@cache
def entry(name: str) -> Entry:
    """What the registry says of a column. Raises `KeyError` for a name that it does not have."""
    for subject in SUBJECTS:
        if found := entries_of(subject).get(name):
            return found
    raise KeyError(name)


def column(name: str, **layout: Any) -> Column:
    """The column of a name, or of "subject.name"; `layout` replaces fields of it for one table."""
    known = entry(name)
    fields = {field: getattr(known, field) for field in OF_LAYOUT}
    return Column(name.rpartition(".")[2], key=name, **fields | layout)


def columns(names: str, **layout: Any) -> tuple[Column, ...]:
    """The columns of names with spaces between: `columns("kernel launches~2")`.

    A number behind ~ is the rank by which a column is dropped where there is no room (`Column.spare`).
    """
    found = []
    for word in names.split():
        name, _, spare = word.partition("~")
        found.append(column(name, **({"spare": int(spare)} if spare else {}), **layout))
    return tuple(found)


def table_columns(table: str) -> tuple[Column, ...]:
    """The columns of a table that commands and pages share."""
    return columns(table_beside(__file__, "kernels")["tables"][table])
