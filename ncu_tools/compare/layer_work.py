"""Check whether a layer or category did the same work in two runs: the same launches, equally often per iteration.

Numbers of layers are sums, so a run that did less work would look faster. If both runs know their iterations, a layer
may replace its kernels by others, in any number. Kernels of the same name must be launched as often and with the same
grids, and none may appear or disappear without another in its place. Without iterations it is unknown how often a run
repeated its work, so the numbers of other kernels must match, too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import drop_failed, short_name

from ncu_tools.compare.same_work import OtherWork
from ncu_tools.kernels.grouping import NO_MODULE
from ncu_tools.kernels.names.kernel_name_spelling import normalised_name
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.model.layers.layers import WHOLE
from ncu_tools.numbers.row_sums import RowSums, Sum

Row = tuple[str, str]
"""Phase ("" for none) and module; the row of all launches is `ALL`."""
ALL: Row = ("", WHOLE)
Launches = defaultdict[tuple[str, Hashable], float]
"""Kernel, and its grid and block -> launches."""


class WorkRow(NamedTuple):
    """The common values of launches that are counted together; None if unknown."""

    phase: str | None
    module: str | None
    kernel: str | None
    grid: Hashable
    block: Hashable


class LayerWork(RowSums[WorkRow]):
    """The launches of each kernel with one grid and block, by phase and module, and the iterations of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.launches = Sum(self.rows)
        self.iterations: set[float] = set()

    def add(self, table: pa.Table) -> None:
        """Add launches; failed ones are left out."""
        table = drop_failed(table)
        named = tables.floats(table, "iteration")
        self.iterations |= set(named[~np.isnan(named)].tolist())
        columns: list[tuple[Any, list[Any]]] = [
            tables.codes(table, name) for name in ("phase", "module", "kernel_name")
        ]
        columns += [tables.list_codes(table, name) for name in ("grid", "block")]
        codes = np.stack([own.astype(np.int64) for own, _ in columns])
        keys, place = np.unique(codes, axis=1, return_inverse=True)
        titles = [
            WorkRow(*(words[code] for code, (_, words) in zip(key, columns, strict=True))) for key in keys.T.tolist()
        ]
        self.rows.use(titles, place.reshape(-1))
        self.launches.count(tables.launch_counts(table))

    @property
    def knows_shapes(self) -> bool:
        """True if a launch has a grid."""
        return any((row.grid, row.block) != (None, None) for row in self.titles)

    def by_layer(self, *, with_shapes: bool) -> dict[Row, Launches]:
        """The launches per iteration of each layer, including everything below it, and of the run."""
        found: defaultdict[Row, Launches] = defaultdict(_none)
        for row, count in zip(self.titles, self.launches.values.tolist(), strict=True):
            key = normalised_name(row.kernel or "?"), (row.grid, row.block) if with_shapes else None
            for layer in (ALL, *((row.phase or "", one) for one in _with_those_above(row.module or NO_MODULE))):
                found[layer][key] += count / max(1, len(self.iterations))
        return found


def _none() -> Launches:
    return defaultdict(float)


def _with_those_above(module: str) -> Iterator[str]:
    parts = module.split(".")
    yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def other_work_of_rows(base: LayerWork, new: LayerWork) -> dict[Row, OtherWork]:
    """For each common row, and for `ALL`, the kernels in which the runs did not do the same work."""
    with_shapes = base.knows_shapes and new.knows_shapes
    ours, theirs = (run.by_layer(with_shapes=with_shapes) for run in (base, new))
    by_iteration = bool(base.iterations and new.iterations)
    return {row: _between(ours[row], theirs[row], by_iteration) for row in ours if row in theirs}


def _between(ours: Launches, theirs: Launches, by_iteration: bool) -> OtherWork:
    before, after = (_by_kernel(launches) for launches in (ours, theirs))
    both = [name for name in before if name in after]
    differ = [name for name in both if not math.isclose(before[name], after[name])]
    grids = [
        name for name in both
        if name not in differ and not _is_same_work(*(_shapes_of(launches, name) for launches in (ours, theirs)))
    ]  # fmt: skip
    each = " an iteration" if by_iteration else ""
    gone, fresh = [name for name in before if name not in after], [name for name in after if name not in before]
    replaced = bool(gone) == bool(fresh)
    if not by_iteration:
        replaced = math.isclose(sum(before[name] for name in gone), sum(after[name] for name in fresh))
    differ += [] if replaced else [*gone, *fresh]
    phrases = [f"{before[name]:,g} -> {after[name]:,g} launches of {readable_name(name)}{each}" for name in differ]
    phrases += [f"another grid or block of {readable_name(name)}" for name in grids]
    known = [name for name in (*differ, *grids) if name in both] or both
    return OtherWork(phrases, [short_name(name) for name in known])


def _by_kernel(launches: Launches) -> dict[str, float]:
    """The launches of each kernel, by its name in order."""
    found: defaultdict[str, float] = defaultdict(float)
    for name, count in sorted((name, count) for (name, _), count in launches.items()):
        found[name] += count
    return found


def _shapes_of(launches: Launches, kernel: str) -> dict[Hashable, float]:
    return {shape: count for (name, shape), count in launches.items() if name == kernel}


def _is_same_work(ours: dict[Hashable, float], theirs: dict[Hashable, float]) -> bool:
    return ours.keys() == theirs.keys() and all(math.isclose(ours[key], theirs[key]) for key in ours)
