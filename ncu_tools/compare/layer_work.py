"""Whether a layer or category did the same work in two runs: the same launches, equally often in an iteration.

Numbers of layers are sums, so that those of a run that did less say nothing of a program that became faster. Where both
runs know their iterations, a layer may take other kernels than before, as many as it likes. Kernels of the same name
must be launched as often and with the same grids, and none may come or go without another in its place. Without
iterations nobody knows how often a run repeated its work, so other kernels must be as many, too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import short_name

from ncu_tools.compare.same_work import OtherWork
from ncu_tools.kernels.names.kernel_name_spelling import normalised_name
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.model.layers.layers import NO_MODULE, WHOLE, drop_failed
from ncu_tools.numbers.merged_by_field import MergedByField

Row = tuple[str, str]
"""Phase ("" for none) and module; that of all launches is `ALL`."""
ALL: Row = ("", WHOLE)
Launches = defaultdict[tuple[str, Hashable], float]
"""Kernel, and its grid and block -> launches."""


@dataclass
class LayerWork(MergedByField):
    """The launches of each kernel with one grid and block, by phase and module, and the iterations of a run."""

    launches: defaultdict[Row, Launches] = field(default_factory=lambda: defaultdict(_none))
    iterations: set[float] = field(default_factory=set)

    def add(self, table: pa.Table) -> None:
        """Add launches; failed ones are left out."""
        table = drop_failed(table)
        named = tables.floats(table, "iteration")
        self.iterations |= set(named[~np.isnan(named)].tolist())
        columns = [tables.codes(table, name) for name in ("phase", "module", "kernel_name")]
        shapes = [tables.list_codes(table, name) for name in ("grid", "block")]
        codes = np.stack([*(own.astype(np.int64) for own, _ in columns), *(own for own, _ in shapes)])
        keys, place = np.unique(codes, axis=1, return_inverse=True)
        counts = np.bincount(place.reshape(-1), tables.launch_counts(table), keys.shape[1])
        phases, modules, names = (words for _, words in columns)
        grids, blocks = (lists for _, lists in shapes)
        for (phase, module, name, grid, block), count in zip(keys.T.tolist(), counts.tolist(), strict=True):
            row = phases[phase] or "", modules[module] or NO_MODULE
            self.launches[row][names[name] or "?", (grids[grid], blocks[block])] += count

    @property
    def knows_shapes(self) -> bool:
        """True if a launch has a grid."""
        return any(shape != (None, None) for launches in self.launches.values() for _, shape in launches)

    def rows(self, *, with_shapes: bool) -> dict[Row, Launches]:
        """The launches in an iteration of each layer with all below it, and of the run."""
        found: defaultdict[Row, Launches] = defaultdict(_none)
        for (phase, module), launches in self.launches.items():
            for (name, shape), count in launches.items():
                key = normalised_name(name), shape if with_shapes else None
                for row in (ALL, *((phase, one) for one in _with_those_above(module))):
                    found[row][key] += count / max(1, len(self.iterations))
        return found


def _none() -> Launches:
    return defaultdict(float)


def _with_those_above(module: str) -> Iterator[str]:
    parts = module.split(".")
    yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def other_work_of_rows(base: LayerWork, new: LayerWork) -> dict[Row, OtherWork]:
    """For each row that both runs have, and for `ALL`, the kernels in which they did not do the same work."""
    with_shapes = base.knows_shapes and new.knows_shapes
    ours, theirs = (run.rows(with_shapes=with_shapes) for run in (base, new))
    by_iteration = bool(base.iterations and new.iterations)
    return {row: _between(ours[row], theirs[row], by_iteration) for row in ours if row in theirs}


def _between(ours: Launches, theirs: Launches, by_iteration: bool) -> OtherWork:
    before, after = (_by_kernel(launches) for launches in (ours, theirs))
    both = [name for name in before if name in after]
    differ = [name for name in both if not math.isclose(before[name], after[name])]
    grids = [
        name for name in both
        if name not in differ and not _alike(*(_shapes_of(launches, name) for launches in (ours, theirs)))
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


def _alike(ours: dict[Hashable, float], theirs: dict[Hashable, float]) -> bool:
    return ours.keys() == theirs.keys() and all(math.isclose(ours[key], theirs[key]) for key in ours)
