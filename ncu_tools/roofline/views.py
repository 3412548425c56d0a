"""What one point of a roofline is: a kernel, a launch, a module, a phase, or a whole run.

A view is a table of launches whose `kernel_name` says which point a launch belongs to, so that every view is aggregated
like kernels are: intensities and rates are ratios of sums.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_parsers.schema import arrays, tables

from ncu_tools.ceilings.machine_files import DRAM, TRAFFIC
from ncu_tools.kernels.hotspots import grouping
from ncu_tools.kernels.operator_work import with_work_of_operators
from ncu_tools.layers.layers import NO_MODULE, NO_PHASE
from ncu_tools.roofline.scene import KERNELS, LAUNCHES, MODULES, OPERATORS, PHASES, RUNS

Codes = npt.NDArray[np.int64]

NEEDED = {MODULES: ("module",), PHASES: ("phase",), KERNELS: (), LAUNCHES: (), RUNS: (), OPERATORS: ()}
"""The columns that a view takes beside those of every roofline."""


@dataclass(frozen=True)
class Look:
    """What to look at: what a point is, at which memory levels, by which definition of their bytes.

    `view` is one of `scene.VIEWS`, `group` what counts as one kernel, `depth` how far below the model modules are told
    apart, `levels` are of `scene.LEVELS`, `definition` is one of `BYTES_COUNTED`. With `follow` the same kernel of
    several runs is paired, also after a rename.
    """

    view: str = KERNELS
    group: str = "name"
    depth: int | None = None
    levels: tuple[str, ...] = (DRAM,)
    definition: str = TRAFFIC
    follow: bool = False


def seen_as(table: pa.Table, view: str, *, group: str = "name", depth: int | None = None, run: str = "") -> pa.Table:
    """The table with the names of its points in the place of kernel names.

    `view` is one of `scene.VIEWS`, `group` says what counts as one kernel, `depth` how far below the model modules
    are told apart (all if None), `run` what the only point of a whole run is called.
    """
    if view == KERNELS and group == "name":
        return table
    if view not in (KERNELS, LAUNCHES) or group == "operator":
        table = with_work_of_operators(table)
    points, titles = _points(table, view, group, depth, run)
    names = pa.DictionaryArray.from_arrays(arrays.indices(points.astype(np.int32)), arrays.texts(titles))
    return table.set_column(table.schema.get_field_index("kernel_name"), "kernel_name", names)


def _points(table: pa.Table, view: str, group: str, depth: int | None, run: str) -> tuple[Codes, list[str]]:
    """For each launch the number of its point, and the points' names."""
    if view in (KERNELS, OPERATORS):
        return grouping(table, "operator" if view == OPERATORS else group)
    if view == LAUNCHES:
        names = tables.words(table, "kernel_name")
        return np.arange(len(table)), [f"{name or '?'} #{row}" for row, name in enumerate(names)]
    if view == RUNS:
        return np.zeros(len(table), np.int64), [run]
    column, nothing = ("module", NO_MODULE) if view == MODULES else ("phase", NO_PHASE)
    codes, texts = tables.codes(table, column)
    cut = [nothing if text is None else _up_to(text, depth if view == MODULES else None) for text in texts]
    return _numbered(codes, cut)


def _up_to(module: str, depth: int | None) -> str:
    return module if depth is None else ".".join(module.split(".")[: depth + 1])


def _numbered(codes: npt.NDArray[np.int32], texts: Sequence[str]) -> tuple[Codes, list[str]]:
    """Codes of texts of which several may be the same -> numbers of distinct texts."""
    known: dict[str, int] = {}
    numbers = np.array([known.setdefault(text, len(known)) for text in texts], np.int64)
    return numbers[codes], list(known)


def says_nothing(points: Set[str], view: str) -> str | None:
    """Why a view with points of these names has one point without a meaning, None where it has not."""
    if view == MODULES and points <= {NO_MODULE}:
        return "no launch knows its module: profile a model target, or use NVTX ranges"
    if view == PHASES and points <= {NO_PHASE}:
        return "no launch knows its phase: profile a model target, or use NVTX ranges"
    return None
