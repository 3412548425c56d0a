"""Sums over the launches of each kernel, added in batches of launches.

Every sum is taken in the order of the launches, so batch sizes change no digit: a file read in batches gives the same
as its whole table, in memory that grows only with the number of kernels.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.counters import metrics as counters
from ncu_parsers.schema import tables
from ncu_parsers.schema.flops_basis import BasisMark, in_part, marked
from ncu_parsers.schema.operator_columns import BY_OPERATOR, TRACE
from ncu_parsers.schema.tables import LEAST_BYTES, Floats

from ncu_tools.ceilings import device_attributes
from ncu_tools.ceilings.above_ceiling import TOLERANCE, Excess, flag
from ncu_tools.ceilings.ceilings import Ceilings, ceilings_of
from ncu_tools.ceilings.work_by_unit import (
    FLOAT_UNITS,
    INTEGER_UNITS,
    SAME,
    UNIT_COLUMNS,
    total_of,
    work_by_unit,
)
from ncu_tools.numbers.row_sums import (
    Accumulator,
    Chosen,
    Family,
    Keys,
    Mask,
    Mean,
    Quotient,
    Rated,
    RowNumbers,
    RowSums,
    Seen,
    Sum,
    Title,
    Total,
    first_at,
    or_none,
    ratio,
)
from ncu_tools.runs.partition_sums import BUSY

Other = TypeVar("Other", bound=Hashable)
Objects = npt.NDArray[np.object_]

RESOURCES = (*FLOAT_UNITS, "dram", *INTEGER_UNITS)
"""The resources that can bound a kernel; if two need the same time, the first is named."""


class Launches:
    """The columns of launches that the sums need; failed launches have weight 0.

    Arrays hold one value per launch. `needed[resource]` is the least time in s that the resource needs, for resources
    that any launch uses; NaN if a needed ceiling is unknown. By default the ceilings are the launches' own.
    """

    def __init__(self, table: pa.Table, ceilings: Ceilings | None = None) -> None:
        self.table, self.rows = table, len(table)
        self.ceilings = ceilings_of(table) if ceilings is None else ceilings
        self.failed: Mask = tables.floats(table, "failed") > 0  # False where null
        launches = tables.launch_counts(table)
        self.averaged: Mask = launches > 1
        self.weight: Floats = np.where(self.failed, 0.0, launches)
        self.succeeded: Mask = self.weight > 0
        self.seconds: Floats = tables.floats(table, "duration_ns") / 1e9
        self.running: Mask = self.succeeded & (self.seconds > 0)
        self.shortest = tables.floats(table, "gpu__time_duration.sum (minimum)") / 1e9
        self.longest = tables.floats(table, "gpu__time_duration.sum (maximum)") / 1e9
        self.flops = tables.floats(table, "flops")
        self.dram = tables.floats(table, "dram_bytes")
        self.least = tables.floats(table, LEAST_BYTES)
        self.alone: Floats = tables.floats(table, "exclusive_ns") / 1e9
        """Seconds in which nothing else ran on the GPU; NaN where nothing ever ran beside each other."""
        self.traffic: Floats = np.where(np.isnan(self.dram), self.least, self.dram)
        """Bytes of memory in the roofline model: counted, else the least that shapes allow."""
        self.busy = {part: tables.floats(table, metric) / 100 for part, metric in BUSY.items()}
        self.basis_codes, self.bases = tables.codes(table, "flops_basis")
        self.partial = in_part(table)
        self.work = work_by_unit(table, self.flops, marked(table, BasisMark.LEFT_OUT), self.partial)
        self.needed = self._seconds_needed()
        together = total_of({unit: self.work[unit] for unit in self._counted(FLOAT_UNITS)}, self.rows)
        self.unattributed: Mask = self.flops - together > SAME * self.flops
        """Mask of launches with FLOPs of an unknown unit; their bound cannot be determined."""
        self.judged: Mask = ~np.isnan(self.flops) & self.running & ~self.unattributed
        """Mask of launches for which every needed ceiling is known."""
        for needed in self.needed.values():
            self.judged &= ~np.isnan(needed)

    def _counted(self, units: Iterable[str]) -> list[str]:
        """The units with a column; the others did nothing, or their work is unknown."""
        return [unit for unit in units if tables.has_column(self.table, UNIT_COLUMNS[unit])]

    def _seconds_needed(self) -> dict[str, Floats]:
        amounts = {"dram": self.traffic} | {
            unit: tables.or_zero(self.work[unit]) for unit in self._counted(UNIT_COLUMNS)
        }
        return {
            resource: _seconds_for(amounts[resource], self.ceilings.per_launch[resource])
            for resource in RESOURCES
            if resource in amounts and amounts[resource].any()
        }

    def texts_at(self, column: str, rows: Keys) -> Objects:
        """The values of a text column for the launches `rows`, None if missing."""
        codes, texts = tables.codes(self.table, column)
        return np.array(texts, object)[codes[rows]]


def _units_by_work(work: dict[str, Floats]) -> list[tuple[list[str], Floats]]:
    """Group compute units by identical work array (units without a column share one)."""
    groups: dict[int, tuple[list[str], Floats]] = {}
    for unit, amount in work.items():
        groups.setdefault(id(amount), ([], amount))[0].append(unit)
    return list(groups.values())


def _seconds_for(amount: Floats, ceiling: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(amount == 0, 0.0, amount / ceiling)


class Times(Total):
    """The times of launches in s: their sum, extremes and spread."""

    def __init__(self, rows: RowNumbers[Any]) -> None:
        super().__init__(rows)
        self._first = Chosen(rows, first_at)
        self.shortest, self.longest = Chosen(rows, np.fmin.at), Chosen(rows, np.fmax.at)
        self._averaged, self._distance, self._squares = Sum(rows), Sum(rows), Sum(rows)

    def add(self, launches: Launches, keys: Keys) -> None:
        """Add times, and their distances from the row's first time: squares of distances keep enough digits."""
        seconds, timed = launches.seconds, ~np.isnan(launches.seconds) & launches.succeeded
        self.sum.add(seconds * launches.weight, timed)
        self.launches.count(np.where(timed, launches.weight, 0.0))
        self._averaged.count(launches.averaged & timed)
        self._first.add(keys[timed], seconds[timed])
        distance = seconds - self._first.values[keys]
        self._distance.add(distance, timed)
        self._squares.add(distance**2, timed)
        self.shortest.add(keys[timed], np.fmin(seconds, launches.shortest)[timed])
        self.longest.add(keys[timed], np.fmax(seconds, launches.longest)[timed])

    def merge(self, other: Times, numbers: Keys) -> None:
        """Merge later times; distances are then from the first launches here.

        With d the step from one first launch to the other, sum (x + d)^2 = sum x^2 + 2 d sum x + n d^2.
        """
        self._first.merge(other._first, numbers)
        step = np.nan_to_num(other._first.values - self._first.values[numbers])
        count, distance = other.launches.values, other._distance.values
        self._distance.add(distance + step * count)
        self._squares.add(other._squares.values + 2 * step * distance + step**2 * count)
        for mine, theirs in ((self.sum, other.sum), (self.launches, other.launches), (self._averaged, other._averaged)):
            mine.merge(theirs, numbers)
        for chosen, later in ((self.shortest, other.shortest), (self.longest, other.longest)):
            chosen.merge(later, numbers)

    def mean(self) -> Floats:
        """The mean time of a launch, one per row; NaN without launches."""
        return ratio(self.sum.values, self.launches.values)

    def deviation(self) -> Floats:
        """The standard deviation of times, one per row; NaN for fewer than two, or for averages."""
        timed = self.launches.values
        with np.errstate(divide="ignore", invalid="ignore"):
            squares = np.maximum(self._squares.values - self._distance.values**2 / timed, 0.0)
            deviation = np.sqrt(squares / (timed - 1))
        return np.where((timed > 1) & (self._averaged.values == 0), deviation, np.nan)


class Need(Accumulator):
    """The least time in s that a resource needs, and for each row one launch above its ceiling.

    `judged` covers launches for which every needed ceiling is known; `least` and the `measured` time cover launches
    with a known ceiling of this resource.
    """

    def __init__(self, rows: RowNumbers[Any]) -> None:
        self.judged, self.least, self.measured = Sum(rows), Sum(rows), Sum(rows)
        self.excesses: dict[int, Excess] = {}

    def remember(self, resource: str, launches: Launches, keys: Keys, where: Mask) -> None:
        """Keep the first launch of each row among the launches `where`, which are above the ceiling."""
        above = np.flatnonzero(where)
        kernels, first = np.unique(keys[above], return_index=True)
        for kernel, row in zip(kernels.tolist(), above[first].tolist(), strict=True):
            if kernel not in self.excesses:
                self.excesses[kernel] = _excess(resource, launches, row)

    def merge(self, other: Need, numbers: Keys) -> None:
        """See `Accumulator.merge`."""
        super().merge(other, numbers)
        for row, one in other.excesses.items():
            self.excesses.setdefault(int(numbers[row]), one)


class Needs(Family[Need]):
    """The needs of all resources that any launch uses. A launch needs no time of an unused resource."""

    def __init__(self, rows: RowNumbers[Any]) -> None:
        super().__init__(partial(Need, rows))
        self._running = Sum(rows)

    def add(self, launches: Launches, keys: Keys) -> None:
        """Add launches with the row of each."""
        running = launches.seconds * launches.weight
        for resource in RESOURCES:
            needed = launches.needed.get(resource)
            if needed is not None:
                need = self._begun(resource)
                known = ~np.isnan(needed) & launches.running
                need.judged.add(needed * launches.weight, launches.judged)
                need.least.add(needed * launches.weight, known)
                need.measured.add(running, known)
                need.remember(resource, launches, keys, known & (needed > launches.seconds))
            elif resource in self.members:
                self[resource].measured.add(running, launches.running)
        self._running.add(running, launches.running)

    def merge(self, other: Needs, numbers: Keys) -> None:
        """See `Accumulator.merge`."""
        for resource in (*self.members, *other.members):
            self._begun(resource)
            other._begun(resource)
        super().merge(other, numbers)
        self._running.merge(other._running, numbers)

    def _begun(self, resource: str) -> Need:
        need = self.made(resource)
        need.measured.begin(self._running)
        return need


class KernelSums(RowSums[Title]):
    """Sums over the launches of each kernel, or of whatever else launches are grouped by."""

    def __init__(self) -> None:
        super().__init__()
        rows = self.rows
        self.seen, self.launches, self.partial = Sum(rows), Sum(rows), Sum(rows)
        self.times = Times(rows)
        self.flops, self.dram, self.least = Rated(rows), Rated(rows), Rated(rows)
        self.alone = Total(rows)
        self.busy = Family(partial(Mean, rows))
        self.work = Family(partial(Total, rows))
        self.counted = Family(partial(Sum, rows))
        """FLOPs of each unit, over launches whose FLOPs are known."""
        self.intensity = Quotient(rows)
        """FLOPs per byte of memory."""
        self.needs = Needs(rows)
        self.roof_seconds, self.judged_seconds, self.judged_partial = Sum(rows), Sum(rows), Sum(rows)
        self.bases: Seen[str] = Seen()
        self.from_reports: Seen[str] = Seen(most=2)

    def add_launches(self, launches: Launches, keys: Keys, titles: Sequence[Title]) -> None:
        """Add launches; `keys` is the index in `titles` of each launch's kernel."""
        keys = self.rows.use(titles, keys)
        self.seen.count(np.ones(launches.rows))
        self.launches.count(launches.weight)
        self.partial.count(launches.partial & launches.succeeded)
        done = launches.succeeded
        self.bases.add_codes(keys[done], launches.basis_codes[done], launches.bases)
        self.from_reports.add_codes(keys, *tables.codes(launches.table, "report"))
        with np.errstate(invalid="ignore", divide="ignore"):
            self.times.add(launches, keys)
            self._add_rated(self.flops, launches.flops, launches)
            self._add_rated(self.dram, launches.dram, launches)
            self._add_rated(self.least, launches.least, launches)
            self._add_amount([self.alone], launches.alone, launches)
            for part, share in launches.busy.items():
                known = ~np.isnan(share) & launches.succeeded
                if known.any():
                    self.busy.made(part).add(share, launches.weight, launches.seconds * launches.weight, known)
            for units, amount in _units_by_work(launches.work):
                self._add_amount([self.work.made(unit) for unit in units], amount, launches)
            self._add_main_units(launches)
            self.needs.add(launches, keys)
            self._add_roofs(launches)

    def titled(self, titles: Sequence[Other]) -> KernelSums[Other]:
        """Merge kernels: `titles` gives the new title of each, and kernels with the same title become one."""
        result: KernelSums[Other] = KernelSums()
        result._take(self, titles)
        return result

    # ------------------------------------------------------------------------------------------------- what is added

    def _add_amount(self, totals: Sequence[Total], amount: Floats, launches: Launches) -> None:
        """Add an amount per launch to several totals."""
        known = ~np.isnan(amount) & launches.succeeded
        counted = self.rows.counted(np.where(known, launches.weight, 0.0))
        for total in totals if known.any() else ():
            total.launches.plus(counted)
            if amount.any():
                total.sum.add(amount * launches.weight, known)

    def _add_rated(self, total: Rated, amount: Floats, launches: Launches) -> None:
        self._add_amount([total], amount, launches)
        both = ~np.isnan(amount) & ~np.isnan(launches.seconds) & launches.succeeded
        if both.any():
            total.rate.add(amount * launches.weight, launches.seconds * launches.weight, both)

    def _add_main_units(self, launches: Launches) -> None:
        known = ~np.isnan(launches.flops) & launches.succeeded
        for unit in FLOAT_UNITS:
            if unit in launches.needed:
                self.counted.made(unit).add(tables.or_zero(launches.work[unit]) * launches.weight, known)
        both = known & ~np.isnan(launches.traffic)
        self.intensity.add(launches.flops * launches.weight, launches.traffic * launches.weight, both)

    def _add_roofs(self, launches: Launches) -> None:
        """Add the seconds that the highest roof needs, over launches for which every needed ceiling is known."""
        roof = np.fmax.reduce([np.zeros(launches.rows), *launches.needed.values()])  # each launch's own
        self.roof_seconds.add(np.fmin(roof, launches.seconds) * launches.weight, launches.judged)
        self.judged_seconds.add(launches.seconds * launches.weight, launches.judged)
        self.judged_partial.count(launches.partial & launches.judged)

    # ------------------------------------------------------------------------------------------------------ results

    def kernels(self) -> list[int]:
        """The indices of the kernels that have launches."""
        return np.flatnonzero(self.seen.values > 0).tolist()

    def used_units(self) -> list[str]:
        """The units with any work, in the order of `UNIT_COLUMNS`."""
        return [unit for unit in UNIT_COLUMNS if self.work[unit].sum.values.any()]

    def main_units(self) -> list[str | None]:
        """The unit that did most of each kernel's FLOPs."""
        names = list(FLOAT_UNITS)
        sums = np.stack([self.counted[name].values for name in names])
        return [names[int(np.argmax(each))] if each.max() > 0 else None for each in sums.T]

    def bounds(self) -> list[tuple[str, float] | None]:
        """For each kernel the resource that needs most time, and its share of the measured time; None if unknown."""
        seconds = np.stack([self.needs[resource].judged.values for resource in RESOURCES])
        measured = self.judged_seconds.values
        result: list[tuple[str, float] | None] = []
        for kernel, longest in enumerate(np.argmax(seconds, axis=0).tolist()):
            least = seconds[longest, kernel]
            known = measured[kernel] > 0 and least > 0
            result.append((RESOURCES[longest], float(least / measured[kernel])) if known else None)
        return result

    def flags(self) -> dict[int, str]:
        """The flag of each kernel that is above a ceiling: for the resource with the largest excess."""
        farthest: dict[int, tuple[float, str]] = {}
        for resource, need in self.needs.members.items():
            fractions = ratio(need.least.values, need.measured.values)
            for kernel in np.flatnonzero(fractions > 1 + TOLERANCE).tolist():
                farthest[kernel] = max(farthest.get(kernel, (0.0, "")), (float(fractions[kernel]), resource))
        found = {
            kernel: flag(self.needs[resource].excesses[kernel]._replace(fraction=fraction))
            for kernel, (fraction, resource) in farthest.items()
        }
        return {kernel: sentence for kernel, sentence in found.items() if sentence is not None}


def _excess(resource: str, launches: Launches, row: int) -> Excess:
    """Evidence on a launch above the ceiling of a resource."""
    table, ceilings, at = launches.table, launches.ceilings, np.array([row])
    shares = device_attributes.sparse_shares(table).get(resource)
    device, capability, source = (
        launches.texts_at(name, at)[0] for name in ("device_name", "compute_capability", "source")
    )
    return Excess(
        resource,
        float(launches.needed[resource][row] / launches.seconds[row]),
        ceilings.origins[int(ceilings.origin_of[resource][row])],
        device,
        sm_clock_hz=or_none(tables.floats(table, "sm_clock_hz")[row]),
        sparse_share=None if shares is None else or_none(shares[row]),
        has_sparsity=counters.has_structured_sparsity(capability),
        bytes_of_a_launch=or_none(launches.traffic[row]),
        l2_size=or_none(device_attributes.l2_size(table)[row]),
        from_operators=source in BY_OPERATOR or source == TRACE,
        from_shapes=source == TRACE,
    )
