"""Which kernels take the time, and how near each is to what bounds it.

Per cent of the bound follows from the roofline model: a launch cannot be faster than its most loaded resource allows,
be it DRAM (bytes / bandwidth) or one of the compute units (operations / peak). The resource with the longest such
time bounds the kernel, and that time divided by the measured time is how near the kernel is to its roof. A kernel far
below every roof is bound by something this model does not see: latency, occupancy, another cache level. One above a
roof is flagged with the likely reason (`ncu_tools.ceilings.above_ceiling`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.counters import metrics as counters
from ncu_launch.counters.chips import chip_of
from ncu_parsers.schema import tables

from ncu_tools.ceilings.ceilings import Ceilings, unit_title
from ncu_tools.kernels.kernel_row import BETWEEN_BASES as BETWEEN_BASES
from ncu_tools.kernels.kernel_row import ORDERS as ORDERS
from ncu_tools.kernels.kernel_row import Hotspot as Hotspot
from ncu_tools.kernels.kernel_row import Hotspots as Hotspots
from ncu_tools.kernels.kernel_row import kernels_table as kernels_table
from ncu_tools.kernels.kernel_row import ranked as ranked
from ncu_tools.kernels.kernel_row import run_total as run_total
from ncu_tools.kernels.kernel_row import used_units as used_units
from ncu_tools.kernels.kernel_sums import KernelSums, Launches, or_none
from ncu_tools.kernels.kernel_titles import names_nothing, short_title
from ncu_tools.kernels.operator_times import clocks_of, operators_note, time_title
from ncu_tools.kernels.operator_work import WorkCoverage, operator_titles, with_work_of_operators

GROUPS = ("name", "short", "grid", "nvtx", "operator")

CERTAIN_FRACTION = 0.5
"""Where FLOPs are a lower bound, DRAM is called the bound only from this share of its bandwidth on."""


def hotspots(table: pa.Table, ceilings: Ceilings, *, by: str = "time", group: str = "name") -> Hotspots:
    """The kernels of `table`, hottest first.

    `by` is one of `ORDERS`, `group` one of `GROUPS`. Launches that failed are left out and noted.
    """
    run = RunSums(group)
    run.add(table, ceilings)
    return ranked(run.kernels(), [*run.notes(), *ceilings.notes], by=by, time_title=run.time_title)


class RunSums:
    """The launches of one run summed by kernel, and what its notes say, a stretch of launches at a time.

    `group` is one of `GROUPS`. The stretches that the launches come in change nothing.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._sums: KernelSums[str] = KernelSums()
        self._account = _Account()

    def add(self, table: pa.Table, ceilings: Ceilings) -> None:
        """Take the next launches, with their ceilings."""
        if self._group == "operator":
            table = with_work_of_operators(table)
        launches = Launches(table, ceilings)
        self._sums.add(launches, *grouping(table, self._group))
        self._account.add(launches)

    def merge(self, other: RunSums) -> None:
        """Take the sums of the launches that come behind those here; see `KernelSums.merge`."""
        self._sums.merge(other._sums)
        self._account.merge(other._account)

    def notes(self) -> list[str]:
        """What is missing in the run, or odd."""
        return self._account.notes()

    @property
    def time_title(self) -> str:
        """What the times of the launches are called."""
        return time_title(self._account.clocks)

    def kernels(self) -> list[Hotspot]:
        """Every kernel, without its shares of the run."""
        return kernels_of(self._sums)


def kernels_of(sums: KernelSums[str]) -> list[Hotspot]:
    """A row for every kernel of these sums, without its share of the run."""
    seconds, timed, count, partial = (sums.of(name) for name in ("seconds", "timed", "launches", "partial"))
    mean, deviation = sums.mean_seconds(), sums.deviation_seconds()
    shortest, longest = sums.shortest_seconds(), sums.longest_seconds()
    flops, flops_rate, dram, dram_rate = (
        sums.total("flops"),
        sums.rate("flops"),
        sums.total("dram"),
        sums.rate("dram"),
    )
    least, least_rate = sums.total("least"), sums.rate("least")
    intensity, bounds, units, flags = sums.intensity(), _bounds(sums), sums.main_units(), sums.flags()
    work = {unit: sums.total(unit) for unit in sums.used_units()}
    titles = sums.titles
    rows = [
        Hotspot(
            kernel=titles[key],
            launches=int(count[key]),
            time_total_ns=or_none(seconds[key] * 1e9) if timed[key] == count[key] > 0 else None,
            time_mean_ns=or_none(mean[key] * 1e9),
            time_min_ns=or_none(shortest[key] * 1e9),
            time_max_ns=or_none(longest[key] * 1e9),
            time_std_ns=or_none(deviation[key] * 1e9),
            time_share=None,
            time_cumulative=None,
            flops=or_none(flops[key]),
            flops_per_s=or_none(flops_rate[key]),
            dram_bytes=or_none(dram[key]),
            dram_bytes_per_s=or_none(dram_rate[key]),
            arithmetic_intensity=or_none(intensity[key]),
            bound=bounds[key][0],
            bound_fraction=bounds[key][1],
            unit=units[key],
            flops_basis=BETWEEN_BASES.join(sorted(sums.bases(key))) or None,
            flops_lower_bound=bool(partial[key]) and not np.isnan(flops_rate[key]),
            flag=flags.get(key),
            least_bytes=or_none(least[key]),
            least_bytes_per_s=or_none(least_rate[key]),
            work={unit: or_none(amount[key]) for unit, amount in work.items()},
        )
        for key in sums.kernels()
    ]
    return [_with_headroom(row) for row in rows]


def _bounds(sums: KernelSums[str]) -> list[tuple[str | None, float | None]]:
    """What bounds each kernel and how near it is; nothing where DRAM is nearest and not all FLOPs are known."""
    partial = sums.of("judged partial")
    result: list[tuple[str | None, float | None]] = []
    for kernel, bound in enumerate(sums.bounds()):
        if bound is None or (partial[kernel] and bound[0] == "dram" and bound[1] < CERTAIN_FRACTION):
            result.append((None, None))
        else:
            result.append((unit_title(bound[0]), bound[1]))
    return result


def grouping(table: pa.Table, group: str) -> tuple[npt.NDArray[np.int64], list[str]]:
    """For each launch the number of its group, and the groups' titles."""
    if group == "name":
        keys, names = tables.codes(table, "kernel_name")
        return keys.astype(np.int64), [name or "?" for name in names]
    if group == "operator":
        return operator_titles(table)
    if group == "short":
        return _by_short_name(table)
    if group == "grid":
        names = tables.words(table, "kernel_name")
        titles = [f"{name} {shape}" for name, shape in zip(names, _shapes(table), strict=True)]
    else:
        titles = [_path(path) for path in table.column("nvtx_path").to_pylist()]
    known: dict[str, int] = {}
    return np.array([known.setdefault(title, len(known)) for title in titles], dtype=np.int64), list(known)


def _by_short_name(table: pa.Table) -> tuple[npt.NDArray[np.int64], list[str]]:
    """As `grouping` by short name; where that is but the word "kernel", by the launch's shape too."""
    codes, names = tables.codes(table, "kernel_name")
    shorts = [short_title(name) if name else "?" for name in names]
    if any(map(names_nothing, shorts)):
        shapes = [
            f" {shape}" if names_nothing(shorts[code]) else ""
            for code, shape in zip(codes, _shapes(table), strict=True)
        ]
        shorts = [shorts[code] + shape for code, shape in zip(codes, shapes, strict=True)]
        codes = np.arange(len(table), dtype=np.int32)
    known: dict[str, int] = {}
    numbers = np.array([known.setdefault(short, len(known)) for short in shorts], np.int64)
    return numbers[codes], list(known)


def _shapes(table: pa.Table) -> list[str]:
    """Grid and block of each launch, as `(128, 1, 1) x (256, 1, 1)`."""
    pairs = zip(table.column("grid").to_pylist(), table.column("block").to_pylist(), strict=True)
    return [f"{_shape(grid)} x {_shape(block)}" for grid, block in pairs]


NO_RANGE, UNKNOWN_RANGE = "(no range)", "(range not known)"


def _path(path: list[str] | None) -> str:
    if path is None:
        return UNKNOWN_RANGE
    return "/".join(map(_range, path)) if path else NO_RANGE


def _range(name: str) -> str:
    """A range's name, in quotes where it could be taken for several ranges, for a quoted one or for none."""
    tells = name and "/" not in name and not name.startswith('"') and name not in (NO_RANGE, UNKNOWN_RANGE)
    return name if tells else '"' + name.replace('"', '""') + '"'


def _shape(shape: list[int] | None) -> str:
    return "(" + ", ".join(map(str, shape)) + ")" if shape else "(?)"


def _with_headroom(row: Hotspot) -> Hotspot:
    """The row with the time it would save at its roof: time x (1 - fraction of the bound), none above the roof."""
    if row.time_total_ns is None or row.bound_fraction is None:
        return row
    return replace(row, headroom_ns=row.time_total_ns * max(0.0, 1.0 - row.bound_fraction))


# ---------------------------------------------------------------------------------------------------------- notes


class _Account:
    """What the notes on a run say, gathered over its launches."""

    def __init__(self) -> None:
        self.launches = self.alive = self.failed = self.rounded = self.uncounted = 0
        self.averaged = False
        self.clocks: set[str] = set()
        self.coverage = WorkCoverage()
        self.failed_names: set[str] = set()
        self.capabilities: set[str | None] = set()
        self.missing: Counter[str] = Counter()
        self.partial: Counter[str] = Counter()

    def add(self, launches: Launches) -> None:
        """Take the next launches."""
        alive = launches.alive
        self.launches += launches.rows
        self.alive += int(alive.sum())
        self.averaged |= bool(launches.averaged.any())
        self.rounded += int(((launches.seconds == 0) & alive).sum())
        if launches.failed.any():
            self.failed += int(launches.failed.sum())
            failed = launches.texts_at("kernel_short", np.flatnonzero(launches.failed))
            self.failed_names |= {name or "?" for name in failed}
        self.capabilities |= _texts_where(launches.table, "compute_capability", alive)
        codes, sources = tables.codes(launches.table, "source")
        self.clocks |= clocks_of(launches.table)
        self.coverage.add(launches.table, launches.seconds * launches.weight)
        counted = np.array([source == "ncu" for source in sources], bool)[codes]
        for column, values in (
            ("times", launches.seconds),
            ("FLOP counts", launches.flops),
            ("DRAM bytes", launches.dram),
        ):
            self.missing[column] += int((np.isnan(values) & alive & counted).sum())
        partial = launches.partial & alive
        self.uncounted += int((partial & np.isnan(launches.flops)).sum())
        each = np.bincount(launches.basis_codes[partial], minlength=len(launches.bases))
        for code in np.flatnonzero(each).tolist():
            missing = (launches.bases[code] or "").partition("not collected: ")[2] or "some tensor types"
            self.partial[missing] += int(each[code])

    def merge(self, other: _Account) -> None:
        """Take what was gathered over the launches behind."""
        for name in ("launches", "alive", "failed", "rounded", "uncounted"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.averaged |= other.averaged
        self.clocks |= other.clocks
        self.coverage.merge(other.coverage)
        self.failed_names |= other.failed_names
        self.capabilities |= other.capabilities
        self.missing.update(other.missing)
        self.partial.update(other.partial)

    def notes(self) -> list[str]:
        """In sentences."""
        notes = [note] if (note := operators_note(self.clocks)) else []
        notes += self.coverage.notes()
        if self.failed:
            names = ", ".join(sorted(self.failed_names)[:5])
            notes.append(f"{self.failed} failed launch{'es' * (self.failed > 1)} left out of every number: {names}")
        if self.averaged:
            notes.append("the report holds averages over launches (a summary): totals are average x launches")
        wanted = {
            "times": "gpu__time_duration.sum",
            "FLOP counts": _flop_metrics_in_short(self.capabilities),
            "DRAM bytes": "dram__bytes.sum",
        }
        notes += [
            f"{missing} of {self.alive} launches have no {column}; ask ncu for --metrics {wanted[column]}"
            for column, missing in self.missing.items()
            if missing
        ]
        notes += [
            f"FLOPs of {count} launches are at least what is shown (not collected: {missing})"
            if self.uncounted < self.launches
            else f"FLOPs of {count} launches are not known (not collected: {missing})"
            for missing, count in sorted(self.partial.items())
        ]
        if self.rounded:
            notes.append(f"{self.rounded} launches print a time of 0: shorter than the report's digits can show")
        return notes


def _texts_where(table: pa.Table, column: str, where: npt.NDArray[np.bool_]) -> set[str | None]:
    """The texts of a column that stand in some of the launches."""
    codes, texts = tables.codes(table, column)
    return {texts[code] for code in np.flatnonzero(np.bincount(codes[where], minlength=len(texts))).tolist()}


def _flop_metrics_in_short(capabilities: set[str | None]) -> str:
    """The first of the metrics that count FLOPs, and where all of them are."""
    first, *others = flop_metrics(capabilities)
    chip = chip_of(next(iter(capabilities))) if len(capabilities) == 1 else None
    of_chip = f" --chip {chip.name.lower()}" if chip is not None else ""
    return f"{first} and {len(others)} more, which ncu-bench metrics flops tensor{of_chip} lists"


def flop_metrics(capabilities: set[str | None]) -> list[str]:
    """The metrics to ask ncu for to have every FLOP counted."""
    opcodes = [opcode for precision in counters.CUDA_CORE_PRECISIONS for opcode in counters.flop_weights(precision)]
    if any(counters.has_packed_fp32(capability) for capability in capabilities):
        opcodes += counters.packed_fp32_weights()
    names = [f"{counters.SASS_PREFIXES[0]}{opcode}_pred_on.sum" for opcode in opcodes]
    if len(capabilities) == 1:
        names += counters.floating_tensor_totals(next(iter(capabilities))) or []
    return names
