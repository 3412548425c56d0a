"""Columns by name. A table lists names with their layout; the registry has their meaning.

The registry is the TOML files beside this one. The second meaning of a name is written "subject.name".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from ncu_launch.files.toml_tables import table_beside

from ncu_tools.report.columns.column import Column

SUBJECTS = {
    "kernels": "Kernels and layers", "advice": "Advice", "steps": "Levers on a step",
    "inside": "Inside a kernel", "warps": "Inside a kernel, in time", "timelines": "Timelines",
    "points": "Measured points", "works": "Work by formulas", "histories": "Histories",
    "binaries": "Compiled code", "tools": "Tools",
}  # fmt: skip
"""File of the registry -> the subject of its columns."""

OF_LAYOUT = ("title", "kind", "unit", "lower_bound_if", "wide", "prose")


@dataclass(frozen=True)
class Entry:
    """A column in the registry: `null` is the meaning of a missing value, `type` the JSON type if not given by `kind`.

    All other fields are those of `Column`.
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
        """The JSON type of non-null values."""
        is_number = self.kind not in ("text", "kernel") or bool(self.unit)
        return self.type or ("number" if is_number else "string")


@cache
def entries_of(subject: str) -> dict[str, Entry]:
    """The columns of one file of the registry."""
    return {name: Entry(**fields) for name, fields in table_beside(__file__, subject)["columns"].items()}


@cache
def entry(name: str) -> Entry:
    """The registry's entry for a column. Raises `KeyError` for an unknown name."""
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
    """The columns of names separated by spaces: `columns("kernel launches~2")`.

    A number after ~ is the rank by which a column is dropped if there is no room (`Column.spare`).
    """
    found = []
    for word in names.split():
        name, _, spare = word.partition("~")
        found.append(column(name, **({"spare": int(spare)} if spare else {}), **layout))
    return tuple(found)


def table_columns(table: str) -> tuple[Column, ...]:
    """The columns of a table that commands and pages share."""
    return columns(table_beside(__file__, "kernels")["tables"][table])
