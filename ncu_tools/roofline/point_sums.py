"""The points of a roofline, summed as launches are read: each point, and its intensity at each memory level.

Every number is a ratio of sums over launches, so a run of any size becomes points, file by file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import tables

from ncu_tools.ceilings import levels
from ncu_tools.ceilings.machine_files import DRAM, Machine
from ncu_tools.kernels.grouping import rows_of
from ncu_tools.kernels.hotspots import RunSums
from ncu_tools.kernels.kernel_cache import Summed, hotspots_of
from ncu_tools.kernels.kernel_row import Hotspot, Hotspots, ranked
from ncu_tools.kernels.matching.launch_signatures import LaunchSignature, signatures_in
from ncu_tools.numbers.merged_by_field import MergedByField
from ncu_tools.numbers.row_sums import Quotient, RowSums
from ncu_tools.roofline import views
from ncu_tools.roofline.density import DenseLaunches, weights
from ncu_tools.roofline.scene import KERNELS, LAUNCHES, LevelPlace
from ncu_tools.roofline.views import Look, is_of_several, seen_as, with_points
from ncu_tools.runs.partition_sums import OF_GROUPS, batches_for_sums, notes_of_reports, sums_of_run
from ncu_tools.runs.run import Run


class Intensities(RowSums[tuple[str, str]]):
    """FLOPs per byte of points at memory levels, over the launches that have both; rows are of a level and a point."""

    def __init__(self) -> None:
        super().__init__()
        self._found = Quotient(self.rows)

    def add(self, seen: pa.Table, look: Look) -> None:
        """Add launches from `views.seen_as`, whose kernel names are names of points."""
        codes, names = rows_of(seen, "name") if not is_of_several(look) else tables.codes(seen, "kernel_name")
        flops, weight = tables.floats(seen, "flops"), weights(seen)
        for level, moved in levels.bytes_of(seen, look.levels, look.definition).items():
            self.rows.use([(level, name or "?") for name in names], codes)
            both = ~np.isnan(flops) & ~np.isnan(moved) & (weight > 0)
            self._found.add(flops * weight, moved * weight, both)

    def places(self) -> dict[str, tuple[LevelPlace, ...]]:
        """For each point, by `Hotspot.key`, its intensities in FLOP per byte, where known and above 0."""
        found: dict[str, tuple[LevelPlace, ...]] = {}
        for (level, name), intensity in zip(self.titles, self._found.values.tolist(), strict=True):
            if intensity > 0:
                found[name] = (*found.get(name, ()), LevelPlace(level, intensity))
        return found


@dataclass
class Points:
    """The points of one run with their positions, and its launch signatures if kernels are followed between runs.

    `launches` are set if they are drawn as a density; then the points are the kernels.
    """

    spots: Hotspots
    places: dict[str, tuple[LevelPlace, ...]]
    signatures: list[LaunchSignature] = field(default_factory=list)
    launches: DenseLaunches | None = None


@dataclass
class _PointSums(MergedByField):
    """Sums over launches for the points of a run. `run` is the name of the only point in the view of whole runs."""

    look: Look
    machine: Machine | None
    run: str
    kernels: Summed = field(init=False)
    intensities: Intensities = field(default_factory=Intensities)
    signatures: dict[LaunchSignature, None] = field(default_factory=dict)
    reports: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        several = is_of_several(self.look)
        run = RunSums(self.look.kernels_by if several else "name", of_several=several)
        self.kernels = Summed(run, self.machine)

    def add(self, table: pa.Table) -> None:
        """Add launches."""
        look = self.look
        seen = seen_as(table, look, self.run)
        self.reports |= notes_of_reports(table)
        if is_of_several(look):
            self.kernels.add(*with_points(table, look, self.run))
        else:
            self.kernels.add(seen)
        self.intensities.add(seen, self.look)
        if self.look.follow:
            self.signatures |= dict.fromkeys(signatures_in(table)[1])


def points_of(run: Run, machine: Machine | None, look: Look) -> Points:
    """The points of a run in files, read in batches; the files of a dataset are read by its engine.

    Raises `NcuBenchError` as `sums_of_run` does.
    """
    if look.view == LAUNCHES:
        found = points_of(run, machine, replace(look, view=KERNELS, group="name"))
        found.launches = DenseLaunches(run, look.levels, look.definition)
        return found
    if look.view == KERNELS and look.levels == (DRAM,) and not look.follow:
        spots = hotspots_of(run, machine, group=look.group)
        return Points(spots, {row.key: _dram_place(row.arithmetic_intensity) for row in spots.rows})
    others = {*views.NEEDED[look.view], *OF_GROUPS[look.group], *levels.COLUMNS.values(), *levels.needed_metrics()}
    if look.follow:
        others |= {*OF_GROUPS["signature"]}
    sums = sums_of_run(run, partial(_PointSums, look, machine, run.name), partial(batches_for_sums, others=others))
    summed = sums.kernels.run
    spots = ranked(summed.kernels(), sums.kernels.notes(run), time_title=summed.time_title)
    places = sums.intensities.places()
    if is_of_several(look):
        places = where_known(places, spots.rows)
    return Points(spots, places, list(sums.signatures))


def where_known(
    places: dict[str, tuple[LevelPlace, ...]], rows: Sequence[Hotspot]
) -> dict[str, tuple[LevelPlace, ...]]:
    """The places of points of several kernels, without DRAM places of points that have no intensity."""
    unknown = {row.key for row in rows if row.arithmetic_intensity is None}
    return {
        point: tuple(one for one in of_point if one.level != DRAM or point not in unknown)
        for point, of_point in places.items()
    }


def _dram_place(intensity: float | None) -> tuple[LevelPlace, ...]:
    return (LevelPlace(DRAM, intensity),) if intensity else ()
