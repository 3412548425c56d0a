"""The kernels of a run by time, and how near each is to its bound.

Per cent of the bound follows from the roofline model: a launch cannot be faster than its most loaded resource allows,
be it DRAM (bytes / bandwidth) or a compute unit (operations / peak). The resource with the longest such time bounds the
kernel, and that time divided by the measured time is the fraction of the ceiling that the kernel reaches. A kernel far
below every ceiling is bound by something outside this model: latency, occupancy, another cache level. A kernel above a
ceiling is flagged with the likely reason (`ncu_tools.ceilings.above_ceiling`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.counters import metrics as counters
from ncu_launch.counters.chips import chip_of
from ncu_launch.notes import Note, NoteKind
from ncu_parsers.derived.operators.python_locations import BY_FORWARD, COMPILED_LINES, LOCATION_BASIS, NO_LOCATION
from ncu_parsers.schema import tables
from ncu_parsers.schema.flops_basis import BETWEEN_BASES, SOME_TENSOR_TYPES, Completeness, basis_of

from ncu_tools.ceilings.ceilings import Ceilings, unit_title
from ncu_tools.ceilings.launch_devices import names_of_devices
from ncu_tools.kernels.estimated_flops import estimate_notes, estimates_in
from ncu_tools.kernels.grouping import rows_of
from ncu_tools.kernels.kernel_row import (
    CATEGORY,
    FLAGS_NOTED,
    NEAR_ITS_LIMIT,
    OF_CALLS,
    OF_SEVERAL,
    Hotspot,
    Hotspots,
    ranked,
    title_and_device,
)
from ncu_tools.kernels.kernel_sums import KernelSums, Launches
from ncu_tools.kernels.names.kernel_titles import short_title
from ncu_tools.kernels.names.uncategorised import Uncategorised
from ncu_tools.kernels.operator_times import clocks_of, operator_notes, time_title
from ncu_tools.kernels.operator_work import WorkCoverage, with_work_of_operators
from ncu_tools.numbers.merged_by_field import MergedByField
from ncu_tools.numbers.number_format import counted, percent
from ncu_tools.numbers.row_sums import MOSTLY_KNOWN, Family, RowSums, Sum, or_none

FOLLOW_FROM = {
    "flops": ("flops_per_s", "unit"),
    "dram": ("dram_bytes_per_s",),
    "least": ("least_bytes_per_s",),
    "flops and bytes": ("arithmetic_intensity",),
    "bound": ("bound", "bound_fraction", "headroom_ns", "flag"),
}
"""Quantity of a launch -> the fields of a row of several kernels that derive from it."""
SEVERAL_AS_ONE = (
    "kernels that ncu profiled as one, which has no grid, registers or theoretical occupancy, and whose instructions "
    "are not counted one by one; to see each kernel, profile without --replay-mode and --graph-profiling"
)
EVERY_TYPE = "; ncu-bench profile --metrics flops,tensor,dram counts every type, in more passes"
SUBJECTS = {"FLOP counts": "FLOPs", "DRAM bytes": "DRAM bytes"}
"""Quantity missing in launches -> the subject of the note on it."""
WITHOUT_STACKS = (
    "no launch has a Python location: PyTorch's profiler records stacks with torch.profiler.profile(with_stack=True)"
)
CERTAIN_FRACTION = 0.5
"""If FLOPs are a lower bound, DRAM is called the bound only above this share of its bandwidth."""
LATENCY_BELOW = 0.6
"""If neither SMs nor memory reach this share of their peaks, latency bounds a kernel. Source: see `NEAR_ITS_LIMIT`."""


Rows = tuple[npt.NDArray[np.int64], Sequence[str]]
"""The number of the row of each launch, and the keys of the rows (`kernel_row.row_key`)."""


def hotspots(
    table: pa.Table, ceilings: Ceilings, *, by: str = "time", group: str = "name", rows: Rows | None = None
) -> Hotspots:
    """The kernels of `table`, hottest first.

    `by` is one of `ORDERS`, `group` one of `GROUPS`; `rows` are rows of several kernels in place of those of `group`.
    Failed launches are left out, with a note.
    """
    run = RunSums(group, of_several=rows is not None)
    run.add(table, ceilings, rows)
    notes = [*run.notes(), *ceilings.notes]
    return ranked(run.kernels(), notes, by=by, time_title=run.time_title, devices=run.devices)


class RunSums(MergedByField):
    """Sums of the launches of a run by kernel, with the counts behind its notes, added in batches of launches.

    `group` is one of `GROUPS`. With `of_several`, rows combine several kernels whatever the group. The result does not
    depend on the sizes of the batches.
    """

    def __init__(self, group: str, *, of_several: bool = False) -> None:
        self._group = group
        self._sums: KernelSums[str] = KernelSums()
        self._known = _KnownTimes() if of_several or group in OF_SEVERAL else None
        self._counts = _NoteCounts()
        self._uncategorised = Uncategorised() if group == CATEGORY else None
        self._ran = KernelsOfRows()

    def add(self, table: pa.Table, ceilings: Ceilings, rows: Rows | None = None) -> None:
        """Add launches with their ceilings; `rows` replace the rows of the group."""
        if self._group in OF_CALLS:
            table = with_work_of_operators(table)
        launches = Launches(table, ceilings)
        keys, titles = rows_of(table, self._group) if rows is None else rows
        self._sums.add_launches(launches, keys, titles)
        self._counts.add(launches)
        if self._known is not None:
            self._known.add(launches, keys, titles)
        if self._uncategorised is not None:
            self._uncategorised.add(table)
        if self._group == "location":
            self._ran.add(launches, keys, titles)

    def notes(self) -> list[str]:
        """Notes on missing or unusual values of the run."""
        on_categories = [] if self._uncategorised is None else self._uncategorised.notes()
        on_rates = [] if self._known is None else self._known.notes()
        return [*on_categories, *on_rates, *self._ran.notes(), *self._counts.notes()]

    @property
    def time_title(self) -> str:
        """The title of the times of the launches."""
        return time_title(self._counts.clocks)

    @property
    def devices(self) -> list[str]:
        """The devices of the launches, in order."""
        return list(self._counts.devices)

    def kernels(self) -> list[Hotspot]:
        """All kernels, without their shares of the run."""
        rows = kernels_of(self._sums)
        if self._known is not None:
            shares = self._known.shares()
            rows = [_where_known(row, shares[row.kernel]) for row in rows]
        rows = self._ran.beside(rows) if self._group == "location" else rows
        return [self._placed(row) for row in rows]

    def _placed(self, row: Hotspot) -> Hotspot:
        """Replace a row's title, which is its key, by title, device and report."""
        title, device = title_and_device(row.kernel)
        reports = self._sums.from_reports.of(self._sums.number(row.kernel))
        return replace(row, kernel=title, device=device, report=reports[0] if len(reports) == 1 else None)


class _KnownTimes(RowSums[tuple[str, str]]):
    """For rows of several kernels, the share of a row's time in kernels with a known quantity.

    A kernel counts in full if the quantity is known for some of its launches, as in a row of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seconds = Sum(self.rows)
        self._known = Family(partial(Sum, self.rows))
        """Number of launches by known quantity."""

    def add(self, launches: Launches, keys: npt.NDArray[np.int64], titles: Sequence[str]) -> None:
        """Add launches; `keys` is the index in `titles` of each launch's row."""
        codes, names = tables.codes(launches.table, "kernel_name")
        pairs, places = np.unique(keys * len(names) + codes, return_inverse=True)
        found = [(titles[pair // len(names)], names[pair % len(names)] or "?") for pair in pairs.tolist()]
        self.rows.use(found, places.reshape(-1))
        self._seconds.add(launches.seconds * launches.weight, launches.running)
        flops, dram, least, traffic = (
            ~np.isnan(amount) & launches.running
            for amount in (launches.flops, launches.dram, launches.least, launches.traffic)
        )
        known = {"flops": flops, "dram": dram, "least": least, "flops and bytes": flops & traffic}
        for what, of_launches in (known | {"bound": launches.judged}).items():
            self._known.made(what).count(of_launches)

    def shares(self) -> dict[str, dict[str, float]]:
        """For each row, in order of time, the known share for each of `FOLLOW_FROM`; 0 in rows without time."""
        titles: dict[str, int] = {}
        rows = np.array([titles.setdefault(row, len(titles)) for row, _ in self.rows.numbers], np.int64)
        seconds = self._seconds.values
        whole = np.bincount(rows, seconds, len(titles))
        shares = {
            what: np.bincount(rows, np.where(self._known[what].values > 0, seconds, 0.0), len(titles))
            / np.where(whole > 0, whole, 1.0)
            for what in FOLLOW_FROM
        }
        names = list(titles)
        return {
            names[row]: {what: float(share[row]) for what, share in shares.items()}
            for row in np.argsort(-whole, kind="stable").tolist()
        }

    def notes(self) -> list[str]:
        """The note that names rows without a rate or a bound, since too little is known; [] without such rows."""
        rows = [row for row, shares in self.shares().items() if any(0 < one < MOSTLY_KNOWN for one in shares.values())]
        if not rows:
            return []
        rows = list(dict.fromkeys(title_and_device(row)[0] for row in rows))
        more = f" and {len(rows) - FLAGS_NOTED} more" if len(rows) > FLAGS_NOTED else ""
        return [
            f"no rate or bound of {', '.join(rows[:FLAGS_NOTED])}{more} where it would follow from less than "
            f"{percent(MOSTLY_KNOWN)} of the time; ncu-bench hotspots --by name has them by kernel"
        ]


def _where_known(row: Hotspot, shares: dict[str, float]) -> Hotspot:
    """The row without rates and bound that derive from too little of its time."""
    lost = [name for what, names in FOLLOW_FROM.items() if shares[what] < MOSTLY_KNOWN for name in names]
    is_bounded = row.flops_lower_bound and "flops_per_s" not in lost
    return replace(row, **dict.fromkeys(lost), flops_lower_bound=is_bounded)  # type: ignore[arg-type]


class KernelsOfRows(MergedByField):
    """Kernels that the launches of a row ran, by their GPU time, for rows that are Python locations."""

    def __init__(self) -> None:
        self._seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._by_forward = 0.0

    def add(self, launches: Launches, keys: npt.NDArray[np.int64], titles: Sequence[str]) -> None:
        """Add launches; `keys` is the index in `titles` of each launch's row."""
        codes, names = tables.codes(launches.table, "kernel_name")
        seconds = np.nan_to_num(launches.seconds) * launches.weight
        both = keys * len(names) + codes
        amounts = np.bincount(both, seconds)
        for one in np.unique(both[launches.succeeded]).tolist():
            self._seconds[titles[one // len(names)], names[one % len(names)] or "?"] += float(amounts[one])
        bases, words = tables.codes(launches.table, LOCATION_BASIS)
        compiled, lines = tables.codes(launches.table, COMPILED_LINES)
        is_forward = np.array([word == BY_FORWARD for word in words], bool)[bases]
        is_forward &= np.array([line is None for line in lines], bool)[compiled]
        self._by_forward += float(seconds[is_forward].sum())

    def beside(self, rows: Sequence[Hotspot]) -> list[Hotspot]:
        """The rows with the number of their kernels and the hottest of these."""
        kernels: dict[str, list[tuple[float, str]]] = {}
        for (title, name), seconds in self._seconds.items():
            kernels.setdefault(title, []).append((-seconds, name))
        return [
            replace(row, kernels=len(ran), hottest_kernel=short_title(min(ran)[1]) if ran else None)
            for row in rows
            for ran in [kernels.get(row.kernel, [])]
        ]

    def notes(self) -> list[str]:
        """The share of the time with a location, and the kind of location; [] for other rows."""
        whole = sum(self._seconds.values())
        unplaced = {row for row, _ in self._seconds if title_and_device(row)[0] == NO_LOCATION}
        unknown = sum(seconds for (row, _), seconds in self._seconds.items() if row in unplaced)
        if not self._seconds:
            return []
        if all(row in unplaced for row, _ in self._seconds):
            return [WITHOUT_STACKS]
        if not whole:
            return []
        found = f"{percent(1 - unknown / whole)} of the time has a Python location"
        if self._by_forward:
            found += f", of which {percent(self._by_forward / (whole - unknown))} is that of the forward operator"
        return [f"{found}; a line of a stack is that on which its function begins"]


def kernels_of(sums: KernelSums[str]) -> list[Hotspot]:
    """A row per kernel, without its share of the run."""
    count, lower_bound = sums.launches.values, sums.partial.values
    bounds, units, flags, titles = _bounds(sums), sums.main_units(), sums.flags(), sums.titles
    roofs, judged = sums.roof_seconds.values, sums.judged_seconds.values
    alone_ns = sums.alone.whole(sums.launches) * 1e9
    numbers = {
        "time_total_ns": sums.times.whole(sums.launches) * 1e9,
        "time_mean_ns": sums.times.mean() * 1e9,
        "time_min_ns": sums.times.shortest.values * 1e9,
        "time_max_ns": sums.times.longest.values * 1e9,
        "time_std_ns": sums.times.deviation() * 1e9,
        "flops": sums.flops.whole(sums.launches),
        "flops_per_s": sums.flops.rate.values,
        "dram_bytes": sums.dram.whole(sums.launches),
        "dram_bytes_per_s": sums.dram.rate.values,
        "least_bytes": sums.least.whole(sums.launches),
        "least_bytes_per_s": sums.least.rate.values,
        "arithmetic_intensity": sums.intensity.values,
        "sm_busy": sums.busy["sm"].mean_of_all(sums.launches),
        "memory_busy": sums.busy["memory"].mean_of_all(sums.launches),
    }
    work = {unit: sums.work[unit].whole(sums.launches) for unit in sums.used_units()}
    rows = []
    for key in sums.kernels():
        row = Hotspot(
            kernel=titles[key],
            launches=int(count[key]),
            time_share=None,
            time_cumulative=None,
            bound=bounds[key][0],
            bound_fraction=bounds[key][1],
            unit=units[key],
            flops_basis=BETWEEN_BASES.join(sorted(sums.bases.of(key))) or None,
            flops_lower_bound=bool(lower_bound[key]) and not np.isnan(numbers["flops_per_s"][key]),
            flag=flags.get(key),
            work={unit: or_none(amount[key]) for unit, amount in work.items()},
            **{name: or_none(values[key]) for name, values in numbers.items()},  # type: ignore[arg-type]
        )
        rows.append(_bound_by_throughput(_with_headroom(row, roofs[key], judged[key], alone_ns[key])))
    return rows


def _bounds(sums: KernelSums[str]) -> list[tuple[str | None, float | None]]:
    """The bound of each kernel and the fraction reached; None if DRAM is nearest and FLOPs are a low lower bound.

    Without any FLOPs, DRAM is the bound if it is near its limit.
    """
    partial, without_flops = sums.judged_partial.values, sums.flops.launches.values == 0
    least, measured = sums.needs["dram"].least.values, sums.needs["dram"].measured.values
    result: list[tuple[str | None, float | None]] = []
    for kernel, bound in enumerate(sums.bounds()):
        if without_flops[kernel] and least[kernel] > 0 and least[kernel] >= NEAR_ITS_LIMIT * measured[kernel]:
            result.append((unit_title("dram"), float(least[kernel] / measured[kernel])))
        elif bound is None or (partial[kernel] and bound[0] == "dram" and bound[1] < CERTAIN_FRACTION):
            result.append((None, None))
        else:
            result.append((unit_title(bound[0]), bound[1]))
    return result


def _bound_by_throughput(row: Hotspot) -> Hotspot:
    """The row bound by the busier of SMs and memory if no roof is known, as in NVIDIA's speed-of-light rule.

    If neither reaches `LATENCY_BELOW`, it is latency. If only one is known, it must be near its limit.
    """
    known = {title: share for title, share in (("SM", row.sm_busy), ("memory", row.memory_busy)) if share is not None}
    if row.bound is not None or not known:
        return row
    busiest = max(known, key=lambda title: known[title])
    if len(known) == 1:
        return replace(row, bound=busiest) if known[busiest] >= NEAR_ITS_LIMIT else row
    return replace(row, bound=busiest if known[busiest] >= LATENCY_BELOW else "latency")


def _with_headroom(row: Hotspot, roof: float, judged: float, alone_ns: float) -> Hotspot:
    """The row with the time saved if each launch reached its own roof, 0 for launches above it.

    The launches that can be `judged` (s) need at least `roof` (s); without any, the fraction of the bound decides.
    While other operations run on the GPU a shorter kernel saves nothing: no more is saved than the time in which it ran
    `alone_ns`, NaN if it always did.
    """
    if row.time_total_ns is None or row.bound_fraction is None:
        return row
    fraction = roof / judged if judged else row.bound_fraction
    saved = row.time_total_ns * max(0.0, 1.0 - fraction)
    return replace(row, headroom_ns=float(np.fmin(saved, alone_ns)))


# ---------------------------------------------------------------------------------------------------------- notes


class _NoteCounts(MergedByField):
    """Counts over the launches of a run for its notes."""

    def __init__(self) -> None:
        self.succeeded = self.failed = self.rounded = 0
        self.averaged = False
        self.clocks: set[str] = set()
        self.coverage = WorkCoverage()
        self.failed_names: set[str] = set()
        self.capabilities: set[str | None] = set()
        self.devices: dict[str, None] = {}
        self.missing: Counter[str] = Counter()
        self.of_several = 0
        self.lower_bounds: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.estimates: Counter[str] = Counter()

    def add(self, launches: Launches) -> None:
        """Add launches."""
        succeeded = launches.succeeded
        weight = np.where(succeeded, tables.launch_counts(launches.table), 0.0)  # an average counts several launches
        self.succeeded += int(weight.sum())
        self.averaged |= bool(launches.averaged.any())
        self.rounded += int(((launches.seconds == 0) & succeeded).sum())
        if launches.failed.any():
            self.failed += int(launches.failed.sum())
            failed = launches.texts_at("kernel_short", np.flatnonzero(launches.failed))
            self.failed_names |= {name or "?" for name in failed}
        self.capabilities |= _capabilities(launches.table, succeeded)
        self.devices |= dict.fromkeys(names_of_devices(launches.table))
        codes, sources = tables.codes(launches.table, "source")
        self.clocks |= clocks_of(launches.table)
        self.coverage.add(launches.table, launches.seconds * launches.weight)
        self.estimates += estimates_in(launches.table)
        by_ncu = np.array([source == "ncu" for source in sources], bool)[codes]
        of_several = by_ncu & tables.are_of_several_kernels(launches.table)
        self.of_several += int(weight[of_several].sum())
        partial, unknown = launches.partial & succeeded, np.isnan(launches.flops)
        bases = [basis_of(text) for text in launches.bases]
        some_types = np.array([one.completeness is Completeness.SOME_TYPES for one in bases], bool)
        told_below = partial & some_types[launches.basis_codes]
        lacking = {
            "times": np.isnan(launches.seconds),
            "FLOP counts": unknown & ~of_several & ~told_below,
            "DRAM bytes": np.isnan(launches.dram),
        }
        not_asked = _not_asked(launches.table)
        for column, lacks in lacking.items():
            self.missing[column] += 0 if column in not_asked else int(weight[lacks & by_ncu].sum())
        for which, counts in ((partial & ~unknown, self.lower_bounds), (partial & unknown, self.unknown)):
            each = np.bincount(launches.basis_codes[which], weight[which], minlength=len(bases))
            for code in np.flatnonzero(each).tolist():
                counts[bases[code].lacking] += int(each[code])

    def notes(self) -> list[str]:
        """The notes as sentences."""
        notes: list[str] = [*operator_notes(self.clocks)]
        notes += self.coverage.notes()
        if self.failed:
            names = ", ".join(sorted(self.failed_names)[:5])
            failed = f"{self.failed} failed launch{'es' * (self.failed > 1)} left out of every number: {names}"
            notes.append(Note(failed, NoteKind.LOST))
        if self.averaged:
            notes.append("the report holds averages over launches (a summary): totals are average x launches")
        wanted = {
            "times": "gpu__time_duration.sum",
            "FLOP counts": _flop_metrics_in_short(self.capabilities),
            "DRAM bytes": ",".join(counters.byte_metrics("dram", self.capabilities)),
        }
        notes += [
            Note(
                f"{_of_launches(missing, self.succeeded)} no {column}; ask ncu for --metrics {wanted[column]}",
                *(NoteKind.NO_TIME, "times") if column == "times" else (NoteKind.NOT_KNOWN, SUBJECTS[column]),
            )
            for column, missing in self.missing.items()
            if missing
        ]
        if self.of_several:
            notes.append(f"{self.of_several} of {self.succeeded} launches are ranges or graphs: {SEVERAL_AS_ONE}")
        partial = [
            (f"FLOPs of {counted(count, 'launch', 'launches')} are {how} (not collected: {missing})", kind, subject)
            for how, counts, kind, subject in (
                ("at least what is shown", self.lower_bounds, NoteKind.ESTIMATE, ""),
                ("not known", self.unknown, NoteKind.NOT_KNOWN, "FLOPs"),
            )
            for missing, count in sorted(counts.items())
        ]
        if SOME_TENSOR_TYPES in (*self.lower_bounds, *self.unknown):
            words, kind, subject = partial.pop()
            partial.append((words + EVERY_TYPE, kind, subject))
        notes += [Note(*one) for one in partial]
        notes += estimate_notes(self.estimates)
        if self.rounded:
            zero = f"{self.rounded} launches print a time of 0: shorter than the report's digits can show"
            notes.append(Note(zero, NoteKind.NO_TIME))
        return notes


def _not_asked(table: pa.Table) -> set[str]:
    """The metrics that the run did not request from ncu; empty for a report that was only read."""
    asked = tables.table_metadata(table).get(tables.ASKED_METRICS)
    if asked is None:
        return set()
    are_asked = {
        "FLOP counts": any(map(counters.counts_flops, asked)),
        "DRAM bytes": any(counters.counts_bytes(metric, "dram") for metric in asked),
    }
    return {column for column, is_asked in are_asked.items() if not is_asked}


def _capabilities(table: pa.Table, where: npt.NDArray[np.bool_]) -> set[str | None]:
    """The compute capabilities of some launches."""
    codes, texts = tables.codes(table, "compute_capability")
    return {texts[code] for code in np.flatnonzero(np.bincount(codes[where], minlength=len(texts))).tolist()}


def _of_launches(some: int, every: int) -> str:
    """The subject of a sentence: "3 of 5 launches have", "1 of 5 launches has", "the only launch has"."""
    return "the only launch has" if every == 1 else f"{some} of {every} launches {'has' if some == 1 else 'have'}"


def _flop_metrics_in_short(capabilities: set[str | None]) -> str:
    """The first metric that counts FLOPs, and the command that lists the others."""
    first, *others = flop_metrics(capabilities)
    chip = chip_of(next(iter(capabilities))) if len(capabilities) == 1 else None
    of_chip = f" --chip {chip.name.lower()}" if chip is not None else ""
    return f"{first} and {len(others)} more, which ncu-bench machines --metrics flops,tensor{of_chip} lists"


def flop_metrics(capabilities: set[str | None]) -> list[str]:
    """The metrics that count every FLOP on these chips."""
    opcodes = [opcode for precision in counters.CUDA_CORE_PRECISIONS for opcode in counters.flop_weights(precision)]
    if any(counters.has_packed_fp32(capability) for capability in capabilities):
        opcodes += counters.packed_fp32_weights()
    names = [f"{counters.SASS_PREFIXES[0]}{opcode}_pred_on.sum" for opcode in opcodes]
    if len(capabilities) == 1:
        names += counters.floating_tensor_totals(next(iter(capabilities))) or []
    return names
