"""Which kernels take the time, and how near each is to what bounds it.

Per cent of the bound follows from the roofline model: a launch cannot be faster than its most loaded resource allows,
be it DRAM (bytes / bandwidth) or one of the compute units (operations / peak). The resource with the longest such
time bounds the kernel, and that time divided by the measured time is how near the kernel is to its roof. A kernel far
below every roof is bound by something this model does not see: latency, occupancy, another cache level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch import metrics as counters
from ncu_parsers import arrays, tables
from ncu_parsers.tables import Floats

from ncu_tools.ceilings import Ceilings, unit_title

Mask = npt.NDArray[np.bool_]

ORDERS = {"time": "time_total_ns", "flops": "flops", "dram": "dram_bytes"}
GROUPS = ("name", "short", "grid", "nvtx")

CERTAIN_FRACTION = 0.5
"""Where FLOPs are a lower bound, DRAM is called the bound only from this share of its bandwidth on."""


@dataclass(frozen=True)
class Hotspot:
    """All launches of one kernel. Times in ns, rates per second of GPU time; None where the report lacks it."""

    kernel: str
    launches: int
    time_total_ns: float | None
    time_mean_ns: float | None
    time_min_ns: float | None
    time_max_ns: float | None
    time_std_ns: float | None
    time_share: float | None
    time_cumulative: float | None
    flops: float | None
    flops_per_s: float | None
    dram_bytes: float | None
    dram_bytes_per_s: float | None
    arithmetic_intensity: float | None
    bound: str | None
    bound_fraction: float | None
    unit: str | None = None
    flops_basis: str | None = None
    flops_lower_bound: bool = False


@dataclass
class Hotspots:
    """Every kernel in the order asked for, with the notes a reader needs."""

    rows: list[Hotspot]
    notes: list[str] = field(default_factory=list)


def kernels_table(rows: list[Hotspot]) -> pa.Table:
    """The kernels as a table, a column for each field of `Hotspot`: kernels.parquet of a run folder."""
    columns = {}
    for column in fields(Hotspot):
        values = [getattr(row, column.name) for row in rows]
        if column.type == "int":
            columns[column.name] = arrays.integers(values, pa.int64())
        elif column.type == "bool":
            columns[column.name] = arrays.booleans(values)
        elif column.type.startswith("float"):
            columns[column.name] = arrays.floats(np.array([np.nan if value is None else value for value in values]))
        else:
            columns[column.name] = arrays.texts(values)
    return pa.table(columns)


def hotspots(table: pa.Table, ceilings: Ceilings, *, by: str = "time", group: str = "name") -> Hotspots:
    """The kernels of `table`, hottest first.

    `by` is one of `ORDERS`, `group` one of `GROUPS`. Launches that failed are left out and noted.
    """
    launches = _Launches(table, ceilings)
    keys, titles = _grouping(table, group)
    rows = _aggregate(launches, keys, titles)
    order = ORDERS[by]
    rows.sort(key=lambda row: (-(getattr(row, order) if getattr(row, order) is not None else -1.0), row.kernel))
    return Hotspots(_with_shares(rows), [*_notes(table, launches), *ceilings.notes])


class _Launches:
    """The columns of a table that the aggregation needs, with failed launches given no weight."""

    def __init__(self, table: pa.Table, ceilings: Ceilings) -> None:
        self.rows = len(table)
        failed = table.column("failed").to_pylist() if "failed" in table.column_names else [False] * self.rows
        self.failed: Mask = np.array([bool(value) for value in failed], dtype=bool)
        invocations = tables.floats(table, "invocations")
        self.averaged: Mask = invocations > 1
        self.weight: Floats = np.where(self.failed, 0.0, np.where(np.isnan(invocations), 1.0, invocations))
        self.seconds: Floats = tables.floats(table, "duration_ns") / 1e9
        self.shortest = tables.floats(table, "gpu__time_duration.sum (minimum)") / 1e9
        self.longest = tables.floats(table, "gpu__time_duration.sum (maximum)") / 1e9
        self.flops = tables.floats(table, "flops")
        self.dram = tables.floats(table, "dram_bytes")
        self.basis = tables.words(table, "flops_basis")
        self.partial: Mask = np.array(
            ["not collected" in (text or "") or "not every" in (text or "") for text in self.basis], bool
        )
        self.work = self._work(table)
        self.needed = self._seconds_needed(ceilings)

    def _work(self, table: pa.Table) -> dict[str, Floats]:
        """FLOPs per unit that make up `flops`; fp16 without its constant moves."""
        work = {unit: np.nan_to_num(tables.floats(table, f"flops_{unit}")) for unit in ("fp64", "fp32")}
        for precision in counters.TENSOR_FLOAT_PRECISIONS:
            work[f"tensor_{precision}"] = np.nan_to_num(tables.floats(table, f"tensor_flops_{precision}"))
        rest = self.flops - sum(work.values(), np.zeros(self.rows))
        fp16 = np.nan_to_num(tables.floats(table, "flops_fp16"))
        work["fp16"] = np.where(rest > 0.5 * fp16, fp16, 0.0)
        return work

    def _seconds_needed(self, ceilings: Ceilings) -> dict[str, Floats]:
        """The least time each resource needs for a launch; NaN where its ceiling is needed and not known."""
        demand = {**self.work, "dram": self.dram}
        return {unit: np.where(amount == 0, 0.0, amount / ceilings.per_launch[unit]) for unit, amount in demand.items()}


def _grouping(table: pa.Table, group: str) -> tuple[npt.NDArray[np.int64], list[str]]:
    """For each launch the number of its group, and the groups' titles."""
    if group in ("name", "short"):
        keys, names = tables.codes(table, "kernel_name" if group == "name" else "kernel_short")
        return keys.astype(np.int64), [name or "?" for name in names]
    if group == "grid":
        shapes = zip(
            tables.words(table, "kernel_name"),
            table.column("grid").to_pylist(),
            table.column("block").to_pylist(),
            strict=True,
        )
        titles = [f"{name} {_shape(grid)} x {_shape(block)}" for name, grid, block in shapes]
    else:
        titles = ["/".join(path) if path else "(no range)" for path in table.column("nvtx_path").to_pylist()]
    known: dict[str, int] = {}
    return np.array([known.setdefault(title, len(known)) for title in titles], dtype=np.int64), list(known)


def _shape(shape: list[int] | None) -> str:
    return "(" + ", ".join(map(str, shape)) + ")" if shape else "(?)"


def _aggregate(launches: _Launches, keys: npt.NDArray[np.int64], titles: list[str]) -> list[Hotspot]:
    groups = len(titles)
    weight = launches.weight

    def total(values: Floats, where: Mask) -> Floats:
        return np.bincount(keys[where], (values * weight)[where], groups).astype(np.float64)

    timed = ~np.isnan(launches.seconds) & (weight > 0)
    count = np.bincount(keys, weight, groups)
    with np.errstate(divide="ignore", invalid="ignore"):
        time = total(launches.seconds, timed)
        timed_count = total(np.ones(launches.rows), timed)
        mean = time / timed_count
        spread = np.bincount(keys[timed], ((launches.seconds - mean[keys]) ** 2)[timed], groups)
        deviation = np.sqrt(spread / (timed_count - 1))
    deviation[np.bincount(keys, launches.averaged & timed, groups) > 0] = np.nan
    shortest = _extreme(np.minimum, np.fmin(launches.seconds, launches.shortest), keys, timed, groups)
    longest = _extreme(np.maximum, np.fmax(launches.seconds, launches.longest), keys, timed, groups)

    flops, flops_rate = _total_and_rate(launches.flops, launches, keys, groups, total)
    dram, dram_rate = _total_and_rate(launches.dram, launches, keys, groups, total)
    intensity = _intensity(launches, total)
    bounds = _bounds(launches, keys, groups, total)
    units = _main_units(launches, groups, total)
    bases = _bases(launches, keys)
    partial = np.bincount(keys[launches.partial & (weight > 0)], minlength=groups) > 0
    rows = []
    for key in np.flatnonzero(np.bincount(keys, minlength=groups) > 0).tolist():
        has_time = timed_count[key] == count[key] > 0
        rows.append(
            Hotspot(
                kernel=titles[key],
                launches=int(count[key]),
                time_total_ns=_or_none(time[key] * 1e9) if has_time else None,
                time_mean_ns=_or_none(mean[key] * 1e9),
                time_min_ns=_or_none(shortest[key] * 1e9),
                time_max_ns=_or_none(longest[key] * 1e9),
                time_std_ns=_or_none(deviation[key] * 1e9),
                time_share=None,
                time_cumulative=None,
                flops=_or_none(flops[key]),
                flops_per_s=_or_none(flops_rate[key]),
                dram_bytes=_or_none(dram[key]),
                dram_bytes_per_s=_or_none(dram_rate[key]),
                arithmetic_intensity=_or_none(intensity[key]),
                bound=bounds[key][0],
                bound_fraction=bounds[key][1],
                unit=units[key],
                flops_basis=bases.get(key),
                flops_lower_bound=bool(partial[key]) and not np.isnan(flops_rate[key]),
            )
        )
    return rows


Total = Callable[[Floats, Mask], Floats]


def _extreme(pick: np.ufunc, values: Floats, keys: npt.NDArray[np.int64], where: Mask, groups: int) -> Floats:
    result = np.full(groups, np.inf if pick is np.minimum else -np.inf)
    pick.at(result, keys[where], values[where])
    return np.where(np.isfinite(result), result, np.nan)


def _total_and_rate(
    amount: Floats, launches: _Launches, keys: npt.NDArray[np.int64], groups: int, total: Total
) -> tuple[Floats, Floats]:
    """The total of a group, unknown unless every launch has it; and amount per second over the launches with both."""
    known = ~np.isnan(amount) & (launches.weight > 0)
    missing = np.bincount(keys[np.isnan(amount) & (launches.weight > 0)], minlength=groups)
    both = known & ~np.isnan(launches.seconds)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = total(amount, both) / total(launches.seconds, both)
    some = np.bincount(keys[known], minlength=groups) > 0
    return np.where(some & (missing == 0), total(amount, known), np.nan), np.where(np.isfinite(rate), rate, np.nan)


def _intensity(launches: _Launches, total: Total) -> Floats:
    """FLOPs per DRAM byte, as a ratio of sums over the launches that have both."""
    both = ~np.isnan(launches.flops) & ~np.isnan(launches.dram) & (launches.weight > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = total(launches.flops, both) / total(launches.dram, both)
    return np.where(np.isfinite(ratio), ratio, np.nan)


def _bounds(
    launches: _Launches, keys: npt.NDArray[np.int64], groups: int, total: Total
) -> list[tuple[str | None, float | None]]:
    """What bounds each group and how near it is, over the launches for which every needed ceiling is known."""
    needed = np.stack(list(launches.needed.values()))
    judged = ~np.isnan(launches.flops) & ~np.isnan(needed).any(axis=0) & (launches.seconds > 0) & (launches.weight > 0)
    units = list(launches.needed)
    seconds = np.stack([total(launches.needed[unit], judged) for unit in units])
    measured = total(launches.seconds, judged)
    partial = np.bincount(keys[launches.partial & judged], minlength=groups) > 0
    result: list[tuple[str | None, float | None]] = []
    for key in range(groups):
        longest = int(np.argmax(seconds[:, key]))
        if measured[key] <= 0 or seconds[longest, key] <= 0:
            result.append((None, None))
            continue
        fraction = float(seconds[longest, key] / measured[key])
        uncertain = partial[key] and units[longest] == "dram" and fraction < CERTAIN_FRACTION
        result.append((None, None) if uncertain else (unit_title(units[longest]), fraction))
    return result


def _main_units(launches: _Launches, groups: int, total: Total) -> list[str | None]:
    """The compute unit that did most of each group's FLOPs."""
    known = ~np.isnan(launches.flops) & (launches.weight > 0)
    names = list(launches.work)
    sums = np.stack([total(launches.work[name], known) for name in names])
    return [names[int(np.argmax(sums[:, key]))] if sums[:, key].max() > 0 else None for key in range(groups)]


def _bases(launches: _Launches, keys: npt.NDArray[np.int64]) -> dict[int, str]:
    found: dict[int, set[str]] = {}
    for key, basis, weight in zip(keys.tolist(), launches.basis, launches.weight.tolist(), strict=True):
        if basis and weight:
            found.setdefault(key, set()).add(basis)
    return {key: " / ".join(sorted(bases)) for key, bases in found.items()}


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _with_shares(rows: list[Hotspot]) -> list[Hotspot]:
    """The rows with their share of all time, and the share of all rows down to each."""
    whole = sum(row.time_total_ns or 0.0 for row in rows)
    if whole <= 0:
        return rows
    result, reached = [], 0.0
    for row in rows:
        share = None if row.time_total_ns is None else row.time_total_ns / whole
        reached += share or 0.0
        result.append(Hotspot(**{**row.__dict__, "time_share": share, "time_cumulative": min(reached, 1.0)}))
    return result


# ---------------------------------------------------------------------------------------------------------- notes


def _notes(table: pa.Table, launches: _Launches) -> list[str]:
    alive = launches.weight > 0
    notes = []
    if launches.failed.any():
        names = sorted(
            {tables.words(table, "kernel_short")[row] or "?" for row in np.flatnonzero(launches.failed).tolist()}
        )
        failures = int(launches.failed.sum())
        notes.append(
            f"{failures} failed launch{'es' * (failures > 1)} left out of every number: {', '.join(names[:5])}"
        )
    if launches.averaged.any():
        notes.append("the report holds averages over launches (--print-summary): totals are average x launches")
    capabilities = {
        cc for cc, here in zip(tables.words(table, "compute_capability"), alive.tolist(), strict=True) if here
    }
    counted = np.array([source == "ncu" for source in tables.words(table, "source")], dtype=bool)
    for column, values, wanted in (
        ("times", launches.seconds, "gpu__time_duration.sum"),
        ("FLOP counts", launches.flops, flop_metrics(capabilities)),
        ("DRAM bytes", launches.dram, "dram__bytes.sum"),
    ):
        missing = int((np.isnan(values) & alive & counted).sum())
        if missing:
            notes.append(f"{missing} of {int(alive.sum())} launches have no {column}; ask ncu for --metrics {wanted}")
    notes += _partial_notes(launches, alive)
    rounded = int(((launches.seconds == 0) & alive).sum())
    if rounded:
        notes.append(f"{rounded} launches print a time of 0: shorter than the report's digits can show")
    return notes


def flop_metrics(capabilities: set[str | None]) -> str:
    """The metrics to ask ncu for to have every FLOP counted, as one --metrics argument."""
    opcodes = [opcode for precision in counters.CUDA_CORE_PRECISIONS for opcode in counters.flop_weights(precision)]
    if any(counters.has_packed_fp32(capability) for capability in capabilities):
        opcodes += counters.packed_fp32_weights()
    names = [f"{counters.SASS_PREFIXES[0]}{opcode}_pred_on.sum" for opcode in opcodes]
    if len(capabilities) == 1:
        names += counters.floating_tensor_totals(next(iter(capabilities))) or []
    return ",".join(names)


def _partial_notes(launches: _Launches, alive: Mask) -> list[str]:
    found: dict[str, int] = {}
    for row in np.flatnonzero(alive & launches.partial).tolist():
        missing = (launches.basis[row] or "").partition("not collected: ")[2] or "some tensor types"
        found[missing] = found.get(missing, 0) + 1
    return [
        f"FLOPs of {count} launches are at least what is shown (not collected: {missing})"
        if not (launches.partial & alive & np.isnan(launches.flops)).all()
        else f"{count} launches did work that was not counted: {missing}"
        for missing, count in sorted(found.items())
    ]
