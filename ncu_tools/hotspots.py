"""Which kernels take the time, and how near each is to what bounds it.

Per cent of the bound follows from the roofline model: a launch cannot be faster than its most loaded resource allows,
be it DRAM (bytes / bandwidth) or one of the compute units (operations / peak). The resource with the longest such
time bounds the kernel, and that time divided by the measured time is how near the kernel is to its roof. A kernel far
below every roof is bound by something this model does not see: latency, occupancy, another cache level. One above a
roof is flagged with the likely reason (`ncu_tools.flags`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch import metrics as counters
from ncu_parsers import arrays, tables
from ncu_parsers.tables import Floats

from ncu_tools import board
from ncu_tools.ceilings import Ceilings, unit_title
from ncu_tools.flags import TOLERANCE, Excess, flag
from ncu_tools.work import FLOAT_UNITS, INTEGER_UNITS, UNIT_COLUMNS, work_by_unit

Mask = npt.NDArray[np.bool_]

ORDERS = {"time": "time_total_ns", "headroom": "headroom_ns", "flops": "flops", "dram": "dram_bytes"}
GROUPS = ("name", "short", "grid", "nvtx")

OPERATORS = (
    "times are of PyTorch operators; FLOPs and bytes are counted from operators, not by hardware; DRAM stands for "
    "inputs + weights + outputs"
)

FLAGS_NOTED = 3
"""How many flagged kernels are written out in notes."""

BETWEEN_BASES = " / "
"""Between the bases of launches that differ in them."""

CERTAIN_FRACTION = 0.5
"""Where FLOPs are a lower bound, DRAM is called the bound only from this share of its bandwidth on."""


@dataclass(frozen=True)
class Hotspot:
    """All launches of one kernel. Times in ns, rates per second of GPU time; None where the report lacks it.

    `work` is what each unit did that any kernel of the run used: FLOP, or OP of integer tensor units, which `flops`
    leaves out. `flag` says why the kernel may be above a ceiling, None where it is not. `headroom_ns` is the time that
    reaching its own roof would save, and `headroom_share` its share of all time: the most that the run can gain.
    """

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
    flag: str | None = None
    headroom_ns: float | None = None
    headroom_share: float | None = None
    work: dict[str, float | None] = field(default_factory=dict)

    def share_of_flops(self, unit: str) -> float | None:
        """The share of a unit in the counted FLOPs of the kernel; None for integer units, and where it is unknown."""
        amount = self.work.get(unit)
        return amount / self.flops if unit in FLOAT_UNITS and self.flops and amount is not None else None


@dataclass
class Hotspots:
    """Every kernel in the order asked for, with the notes a reader needs."""

    rows: list[Hotspot]
    notes: list[str] = field(default_factory=list)


def kernels_table(rows: list[Hotspot]) -> pa.Table:
    """The kernels as a table, a column for each field of `Hotspot` and used unit: kernels.parquet of a run folder."""
    columns = {}
    for column in fields(Hotspot):
        if column.name == "work":
            continue
        values = [getattr(row, column.name) for row in rows]
        if column.type == "int":
            columns[column.name] = arrays.integers(values, pa.int64())
        elif column.type == "bool":
            columns[column.name] = arrays.booleans(values)
        elif column.type.startswith("float"):
            columns[column.name] = arrays.floats(np.array([np.nan if value is None else value for value in values]))
        else:
            columns[column.name] = arrays.texts(values)
    for unit in used_units(rows):
        amounts = [row.work[unit] for row in rows]
        columns[UNIT_COLUMNS[unit]] = arrays.floats(np.array([np.nan if one is None else one for one in amounts]))
    return pa.table(columns)


def used_units(rows: list[Hotspot]) -> list[str]:
    """The units that any kernel used, CUDA cores first and integer tensor units last."""
    return [unit for unit in UNIT_COLUMNS if any(row.work.get(unit) for row in rows)]


def run_total(rows: list[Hotspot]) -> Hotspot:
    """All kernels as one: sums of what every kernel has, None where one lacks it. No bound, no spread, no flag."""
    time, flops, dram = (
        _sum_of_all([getattr(row, name) for row in rows if row.launches])
        for name in ("time_total_ns", "flops", "dram_bytes")
    )
    launches = sum(row.launches for row in rows)
    bases = {basis for row in rows if row.flops_basis for basis in row.flops_basis.split(BETWEEN_BASES)}
    return Hotspot(
        kernel="all kernels",
        launches=launches,
        time_total_ns=time,
        time_mean_ns=time / launches if time is not None and launches else None,
        time_min_ns=None,
        time_max_ns=None,
        time_std_ns=None,
        time_share=None if time is None else 1.0,
        time_cumulative=None,
        flops=flops,
        flops_per_s=flops / time * 1e9 if flops is not None and time else None,
        dram_bytes=dram,
        dram_bytes_per_s=dram / time * 1e9 if dram is not None and time else None,
        arithmetic_intensity=flops / dram if flops is not None and dram else None,
        bound=None,
        bound_fraction=None,
        flops_basis=BETWEEN_BASES.join(sorted(bases)) or None,
        flops_lower_bound=flops is not None and any(row.flops_lower_bound for row in rows),
        work={unit: _sum_of_all([row.work[unit] for row in rows if row.launches]) for unit in used_units(rows)},
    )


def _sum_of_all(values: list[float | None]) -> float | None:
    """The sum, None unless every value is known and there is one."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def hotspots(table: pa.Table, ceilings: Ceilings, *, by: str = "time", group: str = "name") -> Hotspots:
    """The kernels of `table`, hottest first.

    `by` is one of `ORDERS`, `group` one of `GROUPS`. Launches that failed are left out and noted.
    """
    launches = _Launches(table, ceilings)
    keys, titles = grouping(table, group)
    rows = [_with_headroom(row) for row in _aggregate(launches, keys, titles, _Excesses(table, ceilings))]
    order = ORDERS[by]
    rows.sort(key=lambda row: (-(getattr(row, order) if getattr(row, order) is not None else -1.0), row.kernel))
    return Hotspots(_with_shares(rows), [*_notes(table, launches), *ceilings.notes, *_flag_notes(rows)])


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
        self.work = work_by_unit(table, self.flops, self.basis, self.partial)
        self.needed = self._seconds_needed(ceilings, FLOAT_UNITS)
        self.needed_by_integers = self._seconds_needed(ceilings, INTEGER_UNITS)
        self.needed["dram"] = _seconds_for(self.dram, ceilings.per_launch["dram"])

    def _seconds_needed(self, ceilings: Ceilings, units: Iterable[str]) -> dict[str, Floats]:
        """The least time each unit needs for a launch; NaN where its ceiling is needed and not known."""
        return {unit: _seconds_for(np.nan_to_num(self.work[unit]), ceilings.per_launch[unit]) for unit in units}


def _seconds_for(amount: Floats, ceiling: Floats) -> Floats:
    return np.where(amount == 0, 0.0, amount / ceiling)


def grouping(table: pa.Table, group: str) -> tuple[npt.NDArray[np.int64], list[str]]:
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


def _aggregate(
    launches: _Launches, keys: npt.NDArray[np.int64], titles: list[str], excesses: _Excesses
) -> list[Hotspot]:
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
        deviation = np.where(timed_count > 1, np.sqrt(spread / (timed_count - 1)), np.nan)
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
    flags = excesses.flags(launches, keys, groups, total)
    work = {
        unit: _total_and_rate(amount, launches, keys, groups, total)[0]
        for unit, amount in launches.work.items()
        if np.nansum(amount * weight) > 0
    }
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
                flag=flags.get(key),
                work={unit: _or_none(amount[key]) for unit, amount in work.items()},
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
    resources = {**launches.needed, **launches.needed_by_integers}
    needed = np.stack(list(resources.values()))
    judged = ~np.isnan(launches.flops) & ~np.isnan(needed).any(axis=0) & (launches.seconds > 0) & (launches.weight > 0)
    units = list(resources)
    seconds = np.stack([total(amount, judged) for amount in resources.values()])
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
    names = list(FLOAT_UNITS)
    sums = np.stack([total(np.nan_to_num(launches.work[name]), known) for name in names])
    return [names[int(np.argmax(sums[:, key]))] if sums[:, key].max() > 0 else None for key in range(groups)]


def _bases(launches: _Launches, keys: npt.NDArray[np.int64]) -> dict[int, str]:
    found: dict[int, set[str]] = {}
    for key, basis, weight in zip(keys.tolist(), launches.basis, launches.weight.tolist(), strict=True):
        if basis and weight:
            found.setdefault(key, set()).add(basis)
    return {key: BETWEEN_BASES.join(sorted(bases)) for key, bases in found.items()}


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
        gain = None if row.headroom_ns is None else row.headroom_ns / whole
        result.append(replace(row, time_share=share, time_cumulative=min(reached, 1.0), headroom_share=gain))
    return result


def _with_headroom(row: Hotspot) -> Hotspot:
    """The row with the time it would save at its roof: time x (1 - fraction of the bound), none above the roof."""
    if row.time_total_ns is None or row.bound_fraction is None:
        return row
    return replace(row, headroom_ns=row.time_total_ns * max(0.0, 1.0 - row.bound_fraction))


# ---------------------------------------------------------------------------------------------------------- flags


class _Excesses:
    """What is known of the launches of a table that may be above a ceiling."""

    def __init__(self, table: pa.Table, ceilings: Ceilings) -> None:
        self.table = table
        self.ceilings = ceilings
        self.clocks = tables.floats(table, "sm_clock_hz")
        self.l2_size = board.l2_size(table)
        self.sparse_shares = board.sparse_shares(table)

    def flags(self, launches: _Launches, keys: npt.NDArray[np.int64], groups: int, total: Total) -> dict[int, str]:
        """The flag of each group that is above a ceiling: of the unit that it is farthest above."""
        farthest: dict[int, tuple[float, str, int]] = {}
        for unit, needed in {**launches.needed, **launches.needed_by_integers}.items():
            known = ~np.isnan(needed) & (launches.seconds > 0) & (launches.weight > 0)
            if not (needed[known] > 0).any():
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                fractions = total(needed, known) / total(launches.seconds, known)
            for key in np.flatnonzero(fractions > 1 + TOLERANCE).tolist():
                launch = int(np.flatnonzero(known & (keys == key) & (needed > 0))[0])
                farthest[key] = max(farthest.get(key, (0.0, "", 0)), (float(fractions[key]), unit, launch))
        found = {key: flag(self._excess(launches, *excess)) for key, excess in farthest.items()}
        return {key: sentence for key, sentence in found.items() if sentence is not None}

    def _excess(self, launches: _Launches, fraction: float, unit: str, launch: int) -> Excess:
        ceilings, shares = self.ceilings, self.sparse_shares.get(unit)
        return Excess(
            unit,
            fraction,
            ceilings.origins[ceilings.origin_of[unit][launch]],
            self._word("device_name", launch),
            sm_clock_hz=_or_none(self.clocks[launch]),
            sparse_share=None if shares is None else _or_none(shares[launch]),
            has_sparsity=counters.has_structured_sparsity(self._word("compute_capability", launch)),
            bytes_of_a_launch=_or_none(launches.dram[launch]),
            l2_size=_or_none(self.l2_size[launch]),
            from_operators=self._word("source", launch) == "operators",
        )

    def _word(self, column: str, launch: int) -> str | None:
        return tables.words(self.table.slice(launch, 1), column)[0]


def _flag_notes(rows: list[Hotspot]) -> list[str]:
    flagged = [row for row in rows if row.flag]
    notes = [f"{row.kernel[:60]}: {row.flag}" for row in flagged[:FLAGS_NOTED]]
    more = len(flagged) - len(notes)
    if more:
        notes.append(f"{more} more kernel{'s are' if more > 1 else ' is'} above a ceiling; --format json says why")
    return notes


# ---------------------------------------------------------------------------------------------------------- notes


def _notes(table: pa.Table, launches: _Launches) -> list[str]:
    alive = launches.weight > 0
    sources = tables.words(table, "source")
    notes = [OPERATORS] if "operators" in sources else []
    if launches.failed.any():
        names = sorted(
            {tables.words(table, "kernel_short")[row] or "?" for row in np.flatnonzero(launches.failed).tolist()}
        )
        failures = int(launches.failed.sum())
        notes.append(
            f"{failures} failed launch{'es' * (failures > 1)} left out of every number: {', '.join(names[:5])}"
        )
    if launches.averaged.any():
        notes.append("the report holds averages over launches (a summary): totals are average x launches")
    capabilities = {
        cc for cc, here in zip(tables.words(table, "compute_capability"), alive.tolist(), strict=True) if here
    }
    counted = np.array([source == "ncu" for source in sources], dtype=bool)
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
