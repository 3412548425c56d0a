"""The points of a roofline view: kernels, launches, modules, phases, or whole runs.

A view is a table of launches whose `kernel_name` is the name of the launch's point, so every view is aggregated like
kernels: intensities and rates are ratios of sums.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_parsers.schema import arrays, tables

from ncu_tools.ceilings.machine_files import DRAM, TRAFFIC
from ncu_tools.kernels.grouping import NO_MODULE, NO_PHASE, grouping, module_at_depth, rows_of
from ncu_tools.kernels.kernel_row import GROUPS, OF_CALLS, OF_SEVERAL
from ncu_tools.kernels.operator_work import with_work_of_operators
from ncu_tools.roofline.scene import KERNELS, LAUNCHES, MODULES, OPERATORS, PHASES, RUNS

Codes = npt.NDArray[np.int64]

NEEDED = {MODULES: ("module",), PHASES: ("phase",), KERNELS: (), LAUNCHES: (), RUNS: (), OPERATORS: ()}
"""View -> the columns it needs besides those of every roofline."""


@dataclass(frozen=True)
class Look:
    """The settings of a roofline: kind of points, memory levels, and the definition of their bytes.

    `view` is one of `scene.VIEWS`, `group` the grouping of kernels, `depth` the most levels of modules below the model,
    `levels` are of `scene.LEVELS`, `definition` is one of `BYTES_COUNTED`. With `follow` the same kernel of several
    runs is paired, also after a rename.
    """

    view: str = KERNELS
    group: str = "name"
    depth: int | None = None
    levels: tuple[str, ...] = (DRAM,)
    definition: str = TRAFFIC
    follow: bool = False

    @property
    def kernels_by(self) -> str:
        """The grouping of launches; only the view of kernels has one."""
        return self.group if self.view == KERNELS else "name"


def noun_of(look: Look) -> str:
    """The noun for a point."""
    if look.view == KERNELS:
        return GROUPS[look.group]
    return "launch" if look.view == LAUNCHES else look.view.removesuffix("s")


def is_of_several(look: Look) -> bool:
    """True if a point combines several kernels."""
    return look.view in (OPERATORS, MODULES, PHASES, RUNS) or (look.view == KERNELS and look.group in OF_SEVERAL)


def seen_as(table: pa.Table, look: Look, run: str = "") -> pa.Table:
    """The table with names of points in place of kernel names; `run` is the only point in the view of whole runs."""
    if look.view == KERNELS and look.group == "name":
        return table
    table, (points, titles) = with_points(table, look, run)
    names = pa.DictionaryArray.from_arrays(arrays.indices(points.astype(np.int32)), arrays.texts(titles))
    return table.set_column(table.schema.get_field_index("kernel_name"), "kernel_name", names)


def with_points(table: pa.Table, look: Look, run: str = "") -> tuple[pa.Table, tuple[Codes, list[str]]]:
    """The launches with the work for sums over points, and the index of each launch's point, with their names."""
    if look.view not in (KERNELS, LAUNCHES) or look.group in OF_CALLS:
        table = with_work_of_operators(table)
    return table, _points(table, look, run)


def _points(table: pa.Table, look: Look, run: str) -> tuple[Codes, list[str]]:
    """For each launch the index of its point, and the names of the points."""
    if look.view in (KERNELS, OPERATORS):
        group = "operator" if look.view == OPERATORS else look.group
        return rows_of(table, group) if is_of_several(look) else grouping(table, group)  # kernel sums do it for kernels
    if look.view == LAUNCHES:
        names = tables.words(table, "kernel_name")
        return np.arange(len(table)), [f"{name or '?'} #{row}" for row, name in enumerate(names)]
    if look.view == RUNS:
        return np.zeros(len(table), np.int64), [run]
    column, nothing, depth = ("module", NO_MODULE, look.depth) if look.view == MODULES else ("phase", NO_PHASE, None)
    codes, texts = tables.codes(table, column)
    return _numbered(codes, [nothing if text is None else module_at_depth(text, depth) for text in texts])


def _numbered(codes: npt.NDArray[np.int32], texts: Sequence[str]) -> tuple[Codes, list[str]]:
    """Renumber codes of texts that may repeat to indices of distinct texts."""
    known: dict[str, int] = {}
    numbers = np.array([known.setdefault(text, len(known)) for text in texts], np.int64)
    return numbers[codes], list(known)


def missing_names_note(points: Set[str], view: str) -> str | None:
    """The note on a view whose only point is launches without a module or phase; None for any other."""
    if view == MODULES and points <= {NO_MODULE}:
        return "no launch knows its module: profile a model target, or use NVTX ranges"
    if view == PHASES and points <= {NO_PHASE}:
        return "no launch knows its phase: profile a model target, or use NVTX ranges"
    return None
