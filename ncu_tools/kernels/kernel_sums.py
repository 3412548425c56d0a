"""Sums over the launches of each kernel, added in batches of launches.

Every sum is taken in the order of the launches, so batch sizes change no digit: a file read in batches gives the same
as its whole table, in memory that grows only with the number of kernels.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.counters import metrics as counters
from ncu_parsers.report_data.operator_records import BY_OPERATOR, TRACE
from ncu_parsers.schema import tables
from ncu_parsers.schema.flops_basis import BasisMark, in_part, marked
from ncu_parsers.schema.tables import LEAST_BYTES, Floats

from ncu_tools.ceilings import device_attributes
from ncu_tools.ceilings.above_ceiling import TOLERANCE, Excess, flag
from ncu_tools.ceilings.ceilings import Ceilings
from ncu_tools.ceilings.work_by_unit import (
    FLOAT_UNITS,
    INTEGER_UNITS,
    SAME,
    UNIT_COLUMNS,
    total_of,
    work_by_unit,
)
from ncu_tools.numbers.named_sums import Keys, Mask, NamedSums, Title, extended, or_none, ratio
from ncu_tools.runs.partition_sums import BUSY

Other = TypeVar("Other", bound=Hashable)
Objects = npt.NDArray[np.object_]

RESOURCES = (*FLOAT_UNITS, "dram", *INTEGER_UNITS)
"""The resources that can bound a kernel; of two that need the same time, the first is named."""


class Launches:
    """The columns of launches that the sums need; failed launches have weight 0.

    Arrays hold one value per launch. `needed[resource]` is the least time in s that the resource needs, for resources
    that any launch uses; NaN where a needed ceiling is unknown.
    """

    def __init__(self, table: pa.Table, ceilings: Ceilings) -> None:
        self.table, self.ceilings, self.rows = table, ceilings, len(table)
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
        self.traffic: Floats = np.where(np.isnan(self.dram), self.least, self.dram)
        """What the roofline model takes for bytes of memory: counted, else the least that shapes allow."""
        self.busy = {part: tables.floats(table, metric) / 100 for part, metric in BUSY.items()}
        self.basis_codes, self.bases = tables.codes(table, "flops_basis")
        self.partial = in_part(table)
        self.work = work_by_unit(table, self.flops, marked(table, BasisMark.LEFT_OUT), self.partial)
        self.needed = self._seconds_needed()
        together = total_of({unit: self.work[unit] for unit in self._counted(FLOAT_UNITS)}, self.rows)
        self.unattributed: Mask = self.flops - together > SAME * self.flops
        """Mask of launches with FLOPs that no unit is known to have done; their bound cannot be determined."""
        self.judged: Mask = ~np.isnan(self.flops) & self.running & ~self.unattributed
        """Mask of launches for which every needed ceiling is known."""
        for needed in self.needed.values():
            self.judged &= ~np.isnan(needed)

    def _counted(self, units: Iterable[str]) -> list[str]:
        """The units that have a column; the others did nothing, or their work is unknown."""
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
        """The values of a text column for the launches `rows`, None where there is none."""
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


class KernelSums(Generic[Title]):
    """Sums over the launches of each kernel. Kernels are numbered in the order in which they are first seen.

    The title of a kernel is its key: a name, or whatever else launches are grouped by.
    """

    def __init__(self) -> None:
        self._sums: NamedSums[Title] = NamedSums()
        self._first = np.empty(0)
        self._shortest = np.empty(0)
        self._longest = np.empty(0)
        self._bases: dict[int, set[str]] = {}
        self._evidence: dict[str, list[_Evidence]] = {}

    def add(self, launches: Launches, keys: Keys, titles: Sequence[Title]) -> None:
        """Add launches; `keys` is the index in `titles` of each launch's kernel."""
        keys = self._sums.use(titles, keys)
        self._sums.add("rows", np.ones(launches.rows))
        self._sums.add("launches", launches.weight)
        self._sums.add("succeeded", launches.succeeded)
        self._sums.add("partial", launches.partial & launches.succeeded)
        self._add_bases(launches, keys)
        with np.errstate(invalid="ignore", divide="ignore"):
            self._add_times(launches, keys)
            self._add_amount(["flops"], launches.flops, launches, rated=True)
            self._add_amount(["dram"], launches.dram, launches, rated=True)
            self._add_amount(["least"], launches.least, launches, rated=True)
            for part in BUSY:
                self._add_busy(part, launches)
            for units, amount in _units_by_work(launches.work):
                self._add_amount(units, amount, launches)
            self._add_main_units(launches)
            self._add_bounds(launches)
            self._add_fractions(launches, keys)

    def merge(self, other: KernelSums[Title]) -> None:
        """Merge the sums of later launches; what is known of a kernel's first launch stays.

        Sums are added in the order of the merges, so the same parts merged in the same order give the same digits. The
        last digit may differ from adding all launches one by one.
        """
        self._take(other, other.titles)

    def titled(self, titles: Sequence[Other]) -> KernelSums[Other]:
        """Merge kernels: `titles` gives the new title of each, and kernels with the same title become one."""
        result: KernelSums[Other] = KernelSums()
        result._take(self, titles)
        return result

    def _take(self, other: KernelSums[Any], titles: Sequence[Title]) -> None:
        numbers = self._sums.use(titles)
        moved = self._distance_moved(other, numbers)
        theirs = {name: other.of(name) for name in other._sums.names} | moved
        for resource in dict.fromkeys([*self._evidence, *other._evidence]):
            self._sums.begin(f"{resource} measured", "running seconds")
            theirs.setdefault(f"{resource} measured", other.of("running seconds"))
        for name, amounts in theirs.items():
            self._sums.add(name, amounts)
        for key, bases in other._bases.items():
            self._bases.setdefault(int(numbers[key]), set()).update(bases)
        for resource, evidence in other._evidence.items():
            for one in evidence:
                self._keep_evidence(resource, one._replace(keys=numbers[one.keys]))

    def _distance_moved(self, other: KernelSums[Any], numbers: Keys) -> dict[str, Floats]:
        """Sums of times of `other`, shifted to the first launches here; also updates extremes and first launches.

        With d the step from one first launch to the other, sum (x + d)^2 = sum x^2 + 2 d sum x + n d^2.
        """
        size = self._sums.kernels
        self._first = extended(self._first, size, np.nan)
        self._shortest, self._longest = extended(self._shortest, size, np.inf), extended(self._longest, size, -np.inf)
        new = np.flatnonzero(np.isnan(self._first[numbers]) & ~np.isnan(other._first))[::-1]
        self._first[numbers[new]] = other._first[new]  # of equal indices the last assignment wins: the first launch
        np.minimum.at(self._shortest, numbers, other._shortest)
        np.maximum.at(self._longest, numbers, other._longest)
        step = np.nan_to_num(other._first - self._first[numbers])
        count, distance = other.of("timed"), other.of("distance")
        return {
            "distance": distance + step * count,
            "squares": other.of("squares") + 2 * step * distance + step**2 * count,
        }

    def _keep_evidence(self, resource: str, evidence: _Evidence) -> None:
        """Keep the evidence of `other` for kernels without evidence here."""
        known = self._evidence.setdefault(resource, [])
        unseen = ~np.isin(evidence.keys, np.concatenate([one.keys for one in known] or [np.empty(0, np.int64)]))
        if unseen.any():
            known.append(evidence.only(np.flatnonzero(unseen)))

    # ------------------------------------------------------------------------------------------------- what is added

    def _add_times(self, launches: Launches, keys: Keys) -> None:
        """Add times, and their distances from the kernel's first time: squares of distances keep enough digits."""
        timed = ~np.isnan(launches.seconds) & launches.succeeded
        self._sums.add("seconds", launches.seconds * launches.weight, timed)
        self._sums.add("timed", launches.weight, timed)
        self._sums.add("averaged", launches.averaged & timed)
        self._first = extended(self._first, self._sums.kernels, np.nan)
        rows = np.flatnonzero(timed & np.isnan(self._first[keys]))[::-1]
        self._first[keys[rows]] = launches.seconds[rows]  # of equal indices the last assignment wins: the first launch
        distance = launches.seconds - self._first[keys]
        self._sums.add("distance", distance, timed)
        self._sums.add("squares", distance**2, timed)
        self._shortest = extended(self._shortest, self._sums.kernels, np.inf)
        self._longest = extended(self._longest, self._sums.kernels, -np.inf)
        np.minimum.at(self._shortest, keys[timed], np.fmin(launches.seconds, launches.shortest)[timed])
        np.maximum.at(self._longest, keys[timed], np.fmax(launches.seconds, launches.longest)[timed])

    def _add_amount(self, names: Sequence[str], amount: Floats, launches: Launches, *, rated: bool = False) -> None:
        """Add an amount per launch to several sums; with `rated` also to those of its rate."""
        known = ~np.isnan(amount) & launches.succeeded
        if not known.any():
            return
        self._sums.count([f"{name} known" for name in names], known)
        for name in names if amount.any() else ():
            self._sums.add(name, amount * launches.weight, known)
        for name in names if rated else ():
            both = known & ~np.isnan(launches.seconds)
            self._sums.add(f"{name} timed", amount * launches.weight, both)
            self._sums.add(f"{name} seconds", launches.seconds * launches.weight, both)

    def _add_busy(self, part: str, launches: Launches) -> None:
        """Add how busy a part of the GPU was, weighted by time, and by launches for those without one."""
        share = launches.busy[part]
        known = ~np.isnan(share) & launches.succeeded
        if not known.any():
            return
        self._sums.count([f"{part} busy known"], known)
        for title, weight in (("busy", launches.weight), ("busy seconds", launches.seconds * launches.weight)):
            self._sums.add(f"{part} {title}", share * weight, known)
            self._sums.add(f"{part} {title} of", weight, known)

    def _add_main_units(self, launches: Launches) -> None:
        known = ~np.isnan(launches.flops) & launches.succeeded
        for unit in FLOAT_UNITS:
            if unit in launches.needed:
                self._sums.add(f"{unit} counted", tables.or_zero(launches.work[unit]) * launches.weight, known)
        both = known & ~np.isnan(launches.traffic)
        self._sums.add("flops beside bytes", launches.flops * launches.weight, both)
        self._sums.add("bytes beside flops", launches.traffic * launches.weight, both)

    def _add_bounds(self, launches: Launches) -> None:
        """Add the seconds that each resource and roof needs, over launches for which every needed ceiling is known."""
        for resource, needed in launches.needed.items():
            self._sums.add(f"{resource} needed", needed * launches.weight, launches.judged)
        roof = np.fmax.reduce([np.zeros(launches.rows), *launches.needed.values()])  # of each launch its own
        self._sums.add("roof seconds", np.fmin(roof, launches.seconds) * launches.weight, launches.judged)
        self._sums.add("judged seconds", launches.seconds * launches.weight, launches.judged)
        self._sums.add("judged partial", launches.partial & launches.judged)

    def _add_fractions(self, launches: Launches, keys: Keys) -> None:
        """Add the seconds that each resource needs and those measured, over launches with a known ceiling."""
        for resource in RESOURCES:
            needed = launches.needed.get(resource)
            if needed is None:
                continue
            self._sums.begin(f"{resource} measured", "running seconds")
            known = ~np.isnan(needed) & launches.running
            self._sums.add(f"{resource} least", needed * launches.weight, known)
            self._sums.add(f"{resource} measured", launches.seconds * launches.weight, known)
            self._remember(resource, launches, keys, known & (needed > 0))
        running = launches.seconds * launches.weight
        for resource in self._evidence.keys() - launches.needed.keys():
            self._sums.add(f"{resource} measured", running, launches.running)
        self._sums.add("running seconds", running, launches.running)

    def _remember(self, resource: str, launches: Launches, keys: Keys, where: Mask) -> None:
        """Keep evidence of the first launch of each kernel that used a resource."""
        evidence = self._evidence.setdefault(resource, [])
        seen = np.zeros(self._sums.kernels, bool)
        for earlier in evidence:
            seen[earlier.keys] = True
        rows = np.flatnonzero(where & ~seen[keys])
        if rows.size:
            kernels, at = np.unique(keys[rows], return_index=True)
            evidence.append(_Evidence.of(launches, resource, kernels, rows[at]))

    def _add_bases(self, launches: Launches, keys: Keys) -> None:
        count = len(launches.bases)
        both = keys[launches.succeeded] * count + launches.basis_codes[launches.succeeded]
        seen = np.flatnonzero(np.bincount(both))
        for key, code in zip((seen // count).tolist(), (seen % count).tolist(), strict=True):
            basis = launches.bases[code]
            if basis:
                self._bases.setdefault(key, set()).add(basis)

    # ------------------------------------------------------------------------------------------------------ results

    @property
    def titles(self) -> list[Title]:
        """The titles of the kernels."""
        return list(self._sums.numbers)

    def number(self, title: Title) -> int:
        """The index of a kernel by title. Raises `KeyError` if there is none."""
        return self._sums.numbers[title]

    def kernels(self) -> list[int]:
        """The indices of the kernels that have launches."""
        return np.flatnonzero(self._sums.of("rows") > 0).tolist()

    def of(self, what: str) -> Floats:
        """A sum by name (float64, one per kernel)."""
        return self._sums.of(what)

    def total(self, what: str) -> Floats:
        """The total of an amount, one per kernel; NaN unless every launch that succeeded has it."""
        known = self.of(f"{what} known")
        return np.where((known > 0) & (known == self.of("succeeded")), self.of(what), np.nan)

    def rate(self, what: str) -> Floats:
        """An amount per second, one per kernel, over the launches that have both."""
        return ratio(self.of(f"{what} timed"), self.of(f"{what} seconds"))

    def busy(self, part: str) -> Floats:
        """How busy a part of the GPU was, a mean over time, one per kernel; NaN unless every launch knows it."""
        known = self.of(f"{part} busy known")
        over_time = ratio(self.of(f"{part} busy seconds"), self.of(f"{part} busy seconds of"))
        over_launches = ratio(self.of(f"{part} busy"), self.of(f"{part} busy of"))
        means = np.where(np.isnan(over_time), over_launches, over_time)
        return np.where((known > 0) & (known == self.of("succeeded")), means, np.nan)

    def intensity(self) -> Floats:
        """FLOPs per byte of memory, one per kernel: a ratio of sums over the launches that have both."""
        return ratio(self.of("flops beside bytes"), self.of("bytes beside flops"))

    def mean_seconds(self) -> Floats:
        """The mean time of a launch in s, one per kernel; NaN without one."""
        return ratio(self.of("seconds"), self.of("timed"))

    def deviation_seconds(self) -> Floats:
        """The standard deviation of launch times in s, one per kernel; NaN for fewer than two, or for averages."""
        timed, distance = self.of("timed"), self.of("distance")
        with np.errstate(divide="ignore", invalid="ignore"):
            squares = np.maximum(self.of("squares") - distance**2 / timed, 0.0)
            deviation = np.sqrt(squares / (timed - 1))
        return np.where((timed > 1) & (self.of("averaged") == 0), deviation, np.nan)

    def shortest_seconds(self) -> Floats:
        """The time of the shortest launch in s, one per kernel."""
        return np.where(np.isfinite(self._shortest), self._shortest, np.nan)

    def longest_seconds(self) -> Floats:
        """The time of the longest launch in s, one per kernel."""
        return np.where(np.isfinite(self._longest), self._longest, np.nan)

    def bases(self, kernel: int) -> set[str]:
        """The bases of a kernel's FLOP counts."""
        return self._bases.get(kernel, set())

    def used_units(self) -> list[str]:
        """The units with any work, in the order of `UNIT_COLUMNS`."""
        return [unit for unit in UNIT_COLUMNS if self.of(unit).any()]

    def main_units(self) -> list[str | None]:
        """The unit that did most of each kernel's FLOPs."""
        names = list(FLOAT_UNITS)
        sums = np.stack([self.of(f"{name} counted") for name in names])
        return [names[int(np.argmax(each))] if each.max() > 0 else None for each in sums.T]

    def bounds(self) -> list[tuple[str, float] | None]:
        """For each kernel the resource that needs most time, and its share of the measured time; None if unknown."""
        seconds = np.stack([self.of(f"{resource} needed") for resource in RESOURCES])
        measured = self.of("judged seconds")
        result: list[tuple[str, float] | None] = []
        for kernel, longest in enumerate(np.argmax(seconds, axis=0).tolist()):
            least = seconds[longest, kernel]
            known = measured[kernel] > 0 and least > 0
            result.append((RESOURCES[longest], float(least / measured[kernel])) if known else None)
        return result

    def flags(self) -> dict[int, str]:
        """The flag of each kernel that is above a ceiling: for the resource with the largest excess."""
        farthest: dict[int, tuple[float, str]] = {}
        for resource in self._evidence:
            fractions = ratio(self.of(f"{resource} least"), self.of(f"{resource} measured"))
            for kernel in np.flatnonzero(fractions > 1 + TOLERANCE).tolist():
                farthest[kernel] = max(farthest.get(kernel, (0.0, "")), (float(fractions[kernel]), resource))
        found = {kernel: flag(self._excess(kernel, *excess)) for kernel, excess in farthest.items()}
        return {kernel: sentence for kernel, sentence in found.items() if sentence is not None}

    def _excess(self, kernel: int, fraction: float, resource: str) -> Excess:
        evidence = next(evidence for evidence in self._evidence[resource] if kernel in evidence.keys)
        return evidence.excess(kernel, fraction, resource)


class _Evidence(NamedTuple):
    """What is known of one launch per kernel that may be above a ceiling."""

    keys: Keys
    origins: Objects
    devices: Objects
    capabilities: Objects
    sources: Objects
    clocks: Floats
    sparse_shares: Floats
    bytes_moved: Floats
    l2_sizes: Floats

    @classmethod
    def of(cls, launches: Launches, resource: str, keys: Keys, rows: Keys) -> _Evidence:
        """The evidence of the launches `rows`, one for each of `keys`."""
        table, ceilings = launches.table, launches.ceilings
        shares = device_attributes.sparse_shares(table).get(resource, np.full(launches.rows, np.nan))
        return cls(
            keys,
            np.fromiter((ceilings.origins[one] for one in ceilings.origin_of[resource][rows].tolist()), object),
            launches.texts_at("device_name", rows),
            launches.texts_at("compute_capability", rows),
            launches.texts_at("source", rows),
            tables.floats(table, "sm_clock_hz")[rows],
            shares[rows],
            launches.traffic[rows],
            device_attributes.l2_size(table)[rows],
        )

    def only(self, at: Keys) -> _Evidence:
        """The evidence of some kernels, by their indices in `keys`."""
        return _Evidence._make(values[at] for values in self)

    def excess(self, kernel: int, fraction: float, resource: str) -> Excess:
        """The excess of one kernel, as the rules of `above_ceiling.py` need it."""
        at = int(np.flatnonzero(self.keys == kernel)[0])
        return Excess(
            resource,
            fraction,
            self.origins[at],
            self.devices[at],
            sm_clock_hz=or_none(self.clocks[at]),
            sparse_share=or_none(self.sparse_shares[at]),
            has_sparsity=counters.has_structured_sparsity(self.capabilities[at]),
            bytes_of_a_launch=or_none(self.bytes_moved[at]),
            l2_size=or_none(self.l2_sizes[at]),
            from_operators=self.sources[at] in BY_OPERATOR or self.sources[at] == TRACE,
            from_shapes=self.sources[at] == TRACE,
        )
