"""What one point of a roofline is: a kernel, a launch, a module, a phase, or a whole run.

A view is a table of launches whose `kernel_name` says which point a launch belongs to, so that every view is aggregated
like kernels are: intensities and rates are ratios of sums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_parsers import arrays, tables

from ncu_tools.hotspots import grouping
from ncu_tools.layers import NO_MODULE
from ncu_tools.scene import KERNELS, LAUNCHES, MODULES, PHASES, RUNS

NO_PHASE = "(no phase)"

Codes = npt.NDArray[np.int64]

NEEDED = {MODULES: ("module",), PHASES: ("phase",), KERNELS: (), LAUNCHES: (), RUNS: ()}
"""The columns that a view takes beside those of every roofline."""


def needed_by_group(group: str) -> tuple[str, ...]:
    """The columns that grouping kernels takes."""
    return {"grid": ("grid", "block"), "nvtx": ("nvtx_path",)}.get(group, ())


def seen_as(table: pa.Table, view: str, *, group: str = "name", depth: int | None = None, run: str = "") -> pa.Table:
    """The table with the names of its points in the place of kernel names.

    `view` is one of `scene.VIEWS`, `group` says what counts as one kernel, `depth` how far below the model modules
    are told apart (all if None), `run` what the only point of a whole run is called.
    """
    if view == KERNELS and group == "name":
        return table
    points, titles = _points(table, view, group, depth, run)
    names = pa.DictionaryArray.from_arrays(arrays.indices(points.astype(np.int32)), arrays.texts(titles))
    return table.set_column(table.schema.get_field_index("kernel_name"), "kernel_name", names)


def _points(table: pa.Table, view: str, group: str, depth: int | None, run: str) -> tuple[Codes, list[str]]:
    """For each launch the number of its point, and the points' names."""
    if view == KERNELS:
        return grouping(table, group)
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


def says_nothing(table: pa.Table, view: str) -> str | None:
    """Why a view of a table has one point without a meaning, None where it has not."""
    if view == MODULES and all(module is None for module in tables.words(table, "module")):
        return "no launch knows its module: profile a model target, or use NVTX ranges"
    if view == PHASES and all(phase is None for phase in tables.words(table, "phase")):
        return "no launch knows its phase: profile a model target, or use NVTX ranges"
    return None
