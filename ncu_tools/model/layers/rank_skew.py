"""Load imbalance of ranks: each kernel or layer across ranks, the slowest rank, and where it loses its time.

A rank waits in collectives for the last one, so the total time of all ranks is much the same, and the late rank waits
least. The slowest rank is therefore the one with the most time outside collectives, unless it waits longer than the
median rank: then another one is later, by time in which its GPU is idle, and none is named. The slowest rank loses time
in kernels or layers that take longer than on the median rank.

A rank that recorded more steps took longer for that reason alone, so ranks with different steps are compared in the
steps common to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.tables import HOST, Floats

from ncu_tools.kernels import operator_times
from ncu_tools.kernels.grouping import NO_MODULE, module_at_depth
from ncu_tools.kernels.names.categories import CATEGORY, COMMUNICATION, categories_in
from ncu_tools.kernels.names.kernel_titles import short_title
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.kernels.names.uncategorised import notes_on_other
from ncu_tools.numbers.number_format import counted, duration
from ncu_tools.numbers.row_sums import or_none

RANKS_NAMED = 4
"""Most ranks whose number of steps a note lists."""

COLLECTIVES = "(collectives)"
"""The row of collectives in a table of layers; they belong to no layer."""
NEEDED = (
    "rank", "device_id", "device_name", HOST, "kernel_name", "kernel_short", "module", "invocations", "failed",
    "duration_ns", "source", "operator", "iteration", *operator_times.NEEDED,
)  # fmt: skip
"""The columns of launches that skew is computed from."""
Coded = tuple[npt.NDArray[np.signedinteger[Any]], Sequence[str | None]]


@dataclass(frozen=True)
class RankTime:
    """The times of one rank in ns: all kernels and copies, collectives, and the rest.

    None if a launch has no time. `excess_ns` is `work_ns` minus the median over the ranks.
    """

    rank: int
    host: str | None
    device: str | None
    launches: int
    time_ns: float | None
    collective_ns: float | None
    work_ns: float | None
    excess_ns: float | None


@dataclass(frozen=True)
class Skew:
    """One kernel or layer across ranks; times in ns summed over its launches on a rank.

    A rank without launches of it took 0; None means that a launch has no time. `ranks` is the number of ranks that ran
    it, `slowest` the rank of the maximum. `skew_ns` is maximum - median, `excess_ns` the time on the run's slowest rank
    - median.
    """

    name: str
    ranks: int
    launches: int
    min_ns: float | None
    median_ns: float | None
    max_ns: float | None
    slowest: int | None
    skew_ns: float | None
    excess_ns: float | None
    is_collective: bool


@dataclass
class Skews:
    """The ranks in order, and the kernels or layers by the time that the slowest rank loses in them.

    `share_steps` is False for ranks that recorded different steps and none in common: none of them is the slowest.
    """

    ranks: list[RankTime]
    rows: list[Skew] = field(default_factory=list)
    slowest: int | None = None
    notes: list[str] = field(default_factory=list)
    share_steps: bool = True


def skew(table: pa.Table, *, by: str = "kernel", depth: int | None = None) -> Skews:
    """Compare the kernels, layers or categories of a run across its ranks: `by` is "kernel", "layer" or "category".

    With `depth`, launches of deeper layers count for the layer of that depth, else each launch for its own layer.
    Launches that failed or have no rank are left out, with a note.
    """
    launches = _Launches(table)
    result = Skews(launches.rank_times(), share_steps=launches.steps.are_shared)
    result.notes = launches.notes
    if len(result.ranks) < 2:
        result.notes.append(
            "there are no two ranks to compare: name the report of each rank, or profile with --nproc, or inside srun "
            "or mpirun"
        )
        return result
    result.slowest = _slowest(result.ranks) if result.share_steps else None
    coded = {"kernel": lambda: launches.names, "layer": lambda: launches.layers(depth), CATEGORY: launches.categories}
    rows = launches.across_ranks(coded[by](), result.slowest)
    result.rows = sorted(rows, key=lambda row: (-(row.excess_ns or 0.0), -(row.skew_ns or 0.0), row.name))
    result.notes += launches.uneven()
    result.notes += [*summary(result, of_kernels=by == "kernel"), *(notes_on_other(table) if by == CATEGORY else [])]
    return result


def expect_own_ranks(runs: Sequence[tuple[str, pa.Table]]) -> None:
    """Raise `NcuBenchError` if several runs (name, launches) have the same rank, or if one has none."""
    if len(runs) < 2:
        return
    runs_of: dict[int | None, list[str]] = {}
    for name, table in runs:
        for rank in table.column("rank").unique().to_pylist():
            runs_of.setdefault(rank, []).append(name)
    for rank, names in runs_of.items():
        if rank is None:
            raise NcuBenchError(
                f"{names[0]} does not say which rank it belongs to.",
                "Traces of PyTorch do if torch.distributed ran, and reports that ncu-bench profile made.",
                "Compare two runs by ncu-bench compare.",
            )
        if len(names) > 1:
            raise NcuBenchError(
                f"{' and '.join(names[:2])} both hold rank {rank}, so they are not ranks of one run.",
                advice="Name one report of each rank, or compare two runs by ncu-bench compare.",
            )


def summary(skews: Skews, *, of_kernels: bool = True) -> list[str]:
    """The slowest rank in a sentence, and where it loses its time, or why none is named; [] if a time is unknown.

    Rows are kernels, whose names are shortened, or layers or categories. [] for ranks without a step in common.
    """
    if not skews.share_steps:
        return []
    slow = next((rank for rank in skews.ranks if rank.rank == skews.slowest), None)
    if slow is None:
        return _none_is_named(skews.ranks)
    if not slow.work_ns or slow.excess_ns is None:
        return []
    median = slow.work_ns - slow.excess_ns
    more = f" ({100 * slow.excess_ns / median:.1f} % more)" if median else ""
    host = f" on {slow.host}" if slow.host else ""
    notes = [
        f"rank {slow.rank}{host} is the slowest: {slow.work_ns / 1e6:,.3f} ms outside collectives, "
        f"{slow.excess_ns / 1e6:,.3f} ms above the median of {len(skews.ranks)} ranks{more}"
    ]
    places = [row for row in skews.rows if not row.is_collective and row.excess_ns and row.excess_ns > 0][:3]
    if places and slow.excess_ns > 0:
        name = short_title if of_kernels else str
        listed = ", ".join(f"{name(row.name)} ({(row.excess_ns or 0.0) / 1e6:,.3f} ms)" for row in places)
        notes.append(f"it loses most against the median rank in {listed}")
    return notes


def collective_share(table: pa.Table) -> tuple[float, float] | None:
    """Time in collectives over all ranks in ns, and its share of all time; None if a time is unknown, or all are 0."""
    time = tables.floats(table, "duration_ns")
    if not len(time) or np.isnan(time).any() or not time.sum():
        return None
    waits = collective_launches(table)
    return float(time[waits].sum()), float(time[waits].sum() / time.sum())


def collective_launches(table: pa.Table) -> npt.NDArray[np.bool_]:
    """Mask of the launches that wait for other ranks: their category is communication."""
    numbers, categories = categories_in(table)
    return np.equal(numbers, categories.index(COMMUNICATION))


def _slowest(ranks: Sequence[RankTime]) -> int | None:
    """The rank that works longest; None if a time is unknown, if the median rank works as long, or waits less."""
    busiest = _busiest(ranks)
    if busiest is None or (busiest.work_ns or 0.0) <= _median_work(ranks):
        return None
    return None if (busiest.collective_ns or 0.0) > _median_wait(ranks) else busiest.rank


def _busiest(ranks: Sequence[RankTime]) -> RankTime | None:
    """The rank with the most time outside collectives; None if a time is unknown."""
    known = [rank for rank in ranks if rank.work_ns is not None and rank.collective_ns is not None]
    return max(known, key=lambda rank: rank.work_ns or 0.0) if known and len(known) == len(ranks) else None


def _median_work(ranks: Sequence[RankTime]) -> float:
    """The median time outside collectives, in ns."""
    return float(np.median([rank.work_ns or 0.0 for rank in ranks]))


def _median_wait(ranks: Sequence[RankTime]) -> float:
    """The median time in collectives, in ns."""
    return float(np.median([rank.collective_ns or 0.0 for rank in ranks]))


def _none_is_named(ranks: Sequence[RankTime]) -> list[str]:
    """Why no rank is the slowest, and the one that is probably late; [] if a time is unknown."""
    busiest = _busiest(ranks)
    if busiest is None:
        return []
    if (busiest.work_ns or 0.0) <= _median_work(ranks):
        each = duration(_median_work(ranks))
        return [f"no rank is called the slowest: none works longer outside collectives than the median rank, {each}"]
    least = min(ranks, key=lambda rank: rank.collective_ns or 0.0)
    waits, least_waits = busiest.collective_ns or 0.0, least.collective_ns or 0.0
    return [
        f"no rank is called the slowest: rank {busiest.rank} works longest outside collectives, and yet is in them for "
        f"{duration(waits)}, longer than the median rank ({duration(_median_wait(ranks))}). Rank {least.rank} is in "
        f"them for the least time, {duration(least_waits)}: what makes it late may be time in which its GPU runs "
        "nothing, which ncu-bench timeline splits by cause"
    ]


class _Steps:
    """The steps that ranks recorded, by ranks and iterations of launches, NaN for launches in no step.

    They are `known` if every rank has some. If they differ, `compared` are the launches in common steps.
    """

    def __init__(self, ranks: Floats, iterations: Floats) -> None:
        of_rank = {
            int(rank): set(np.unique(iterations[(ranks == rank) & ~np.isnan(iterations)]).tolist())
            for rank in np.unique(ranks).tolist()
        }
        each = list(of_rank.values())
        shared = each[0].intersection(*each) if each else set[float]()
        self.known = bool(each) and all(each)
        differ = self.known and any(one != shared for one in each)
        self.are_shared = not differ or bool(shared)
        inside = np.isin(iterations, sorted(shared))
        self.compared: npt.NDArray[np.bool_] = inside if differ and shared else np.ones(len(ranks), bool)
        numbers = ", ".join(f"{len(steps)} on rank {rank}" for rank, steps in list(of_rank.items())[:RANKS_NAMED])
        more = f", {len(of_rank) - RANKS_NAMED} more" if len(of_rank) > RANKS_NAMED else ""
        self.notes: list[str] = []
        if differ and shared:
            left_out = counted(int((~inside).sum()), "launch", "launches")
            what = counted(len(shared), "step", "steps")
            self.notes = [
                f"ranks recorded different steps ({numbers}{more}): compared are the {what} that all have, without "
                f"{left_out} outside of them"
            ]
        elif differ:
            self.notes = [
                f"ranks recorded different steps ({numbers}{more}), and none in common: times are sums over all of a "
                "rank's steps, and no rank is called the slowest"
            ]


class _Launches:
    """The launches with a known rank, and their columns; texts as indices into lists of distinct ones."""

    def __init__(self, table: pa.Table) -> None:
        ranks = tables.floats(table, "rank")
        kept = ~np.isnan(ranks)
        if "failed" in table.column_names:
            kept &= ~np.concatenate([np.empty(0, bool), *map(arrays.bits_of, table.column("failed").chunks)])
        left_out = counted(int((~kept).sum()), "launch", "launches")
        self.notes = [] if kept.all() else [f"{left_out} failed, or of no known rank: left out"]
        self.steps = _Steps(ranks[kept], tables.floats(table, "iteration")[kept])
        self.notes += self.steps.notes
        kept[kept] = self.steps.compared
        self.ranks, self.place = np.unique(ranks[kept].astype(np.int64), return_inverse=True)
        self.count = tables.launch_counts(table)[kept]
        self.nanoseconds = tables.floats(table, "duration_ns")[kept] * self.count
        self.collective = collective_launches(table)[kept]
        self.names, self.modules, self.hosts, self.devices = (
            (codes[kept], texts)
            for codes, texts in (tables.codes(table, name) for name in ("kernel_name", "module", HOST, "device_name"))
        )
        self.device_ids = tables.floats(table, "device_id")[kept]
        self._table, self._kept = table, kept

    def uneven(self) -> list[str]:
        """The note on kernels that all ranks launched, but not equally often, unless steps explain it; else []."""
        codes, names = self.names
        counts = np.zeros((len(names), len(self.ranks)))
        np.add.at(counts, (codes, self.place), self.count)
        spread = np.where((counts > 0).all(axis=1), np.ptp(counts, axis=1), 0.0) if len(names) else np.empty(0)
        if self.steps.known or not spread.any():
            return []
        worst = int(np.argmax(spread))
        fewest, most = int(np.argmin(counts[worst])), int(np.argmax(counts[worst]))
        others = int((spread > 0).sum()) - 1
        more = f", {counted(others, 'more kernel', 'more kernels')} unequally often too" if others else ""
        ends = (
            f"{counts[worst, fewest]:,.0f} times on rank {self.ranks[fewest]} and {counts[worst, most]:,.0f} times on"
        )
        return [
            f"{readable_name(names[worst] or '?')} was launched {ends} rank {self.ranks[most]}{more}: no step says "
            "whether the ranks recorded the same work, and one that recorded more takes longer"
        ]

    def layers(self, depth: int | None) -> Coded:
        """The layer of each launch; collectives have a separate row."""
        codes, modules = self.modules
        names = [module_at_depth(module or NO_MODULE, depth) for module in modules] + [COLLECTIVES]
        return np.where(self.collective, len(names) - 1, codes), names

    def categories(self) -> Coded:
        """The category of each launch."""
        codes, categories = categories_in(self._table)
        return codes[self._kept], categories

    def rank_times(self) -> list[RankTime]:
        """The times of each rank."""
        every, waiting = (self._per_rank(mask) for mask in (np.ones(len(self.place), bool), self.collective))
        work = self._per_rank(~self.collective)
        median = float(np.median(work)) if len(work) else np.nan
        result = []
        for place, rank in enumerate(self.ranks.tolist()):
            first = int(np.argmax(self.place == place))
            count = int(self.count[self.place == place].sum())
            values = (or_none(one) for one in (every[place], waiting[place], work[place], work[place] - median))
            device = _device(self.device_ids[first], _text(self.devices, first))
            result.append(RankTime(rank, _text(self.hosts, first), device, count, *values))
        return result

    def _per_rank(self, mask: npt.NDArray[np.bool_]) -> Floats:
        return np.bincount(self.place[mask], self.nanoseconds[mask], len(self.ranks)).astype(np.float64)

    def across_ranks(self, coded: Coded, slowest: int | None) -> list[Skew]:
        """One row per distinct text of `coded` among the launches."""
        codes, texts = coded
        at_work = np.unique(codes)
        known, place = np.unique(np.array([str(texts[one]) for one in at_work]), return_inverse=True)
        code = place[np.searchsorted(at_work, codes)]
        times = np.zeros((len(known), len(self.ranks)))
        np.add.at(times, (code, self.place), self.nanoseconds)
        counts = np.zeros((len(known), len(self.ranks)))
        np.add.at(counts, (code, self.place), self.count)
        waits = np.zeros(len(known), bool)
        waits[code[self.collective]] = True
        late = int(np.searchsorted(self.ranks, slowest)) if slowest is not None else None
        return [self._row(str(known[at]), times[at], counts[at], late, bool(waits[at])) for at in range(len(known))]

    def _row(self, name: str, times: Floats, counts: Floats, late: int | None, waits: bool) -> Skew:
        complete = not np.isnan(times).any()
        median = float(np.median(times))
        return Skew(
            name=name,
            ranks=int((counts > 0).sum()),
            launches=int(counts.sum()),
            min_ns=or_none(times.min()),
            median_ns=or_none(median),
            max_ns=or_none(times.max()),
            slowest=int(self.ranks[int(np.argmax(times))]) if complete else None,
            skew_ns=or_none(times.max() - median),
            excess_ns=or_none(times[late] - median) if late is not None else None,
            is_collective=waits,
        )


def _text(coded: Coded, row: int) -> str | None:
    codes, texts = coded
    return texts[int(codes[row])]


def _device(number: float, name: str | None) -> str | None:
    if np.isnan(number):
        return name
    return f"{int(number)}: {name}" if name else str(int(number))
