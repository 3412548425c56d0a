"""Scaling of latency and throughput with sizes: exponents, knees, and correlations of models' quantities.

An exponent k of latency ~ size^k (`ncu_tools.bench.power_law`) holds for the measured sizes: if small sizes are
dominated by something else, such as kernel starts, it is below the exponent of large ones, which is shown beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from ncu_launch.bench.latency_statistics import BLOCKS
from ncu_launch.bench.point_outcomes import OK
from ncu_parsers.schema.bench_table import IDENTITY
from ncu_parsers.schema.tables import Floats

from ncu_tools.bench.power_law import LEAST_SIZES, PowerFit, Spread, fitted
from ncu_tools.numbers.statistics import CONFIDENCE, student_quantile

AXES = {"batch_size": ("batch", 1.0), "input_size": ("image", 2.0), "sequence_length": ("tokens", 1.0)}
"""Size -> its title, and the exponent at which time is proportional to the work (pixels: width^2).

Arguments of functions are axes too; their exponent of proportionality follows from the FLOPs of their points.
"""

WITHIN_A_GROUP = ("input_size", "sequence_length", "arguments")
"""Sizes that must be equal for correlated models, if any model has several."""

TOO_FEW = "too few points to say"
NO_WORK = "FLOPs are not known"
TOO_UNCERTAIN = "too uncertain to say"
WIDEST_INTERVAL = 0.5
"""Widest interval around the exponent of proportionality from which proportionality is concluded."""
LEAST_MODELS = 5
"""With four models, even a perfect rank correlation happens by chance in 2 of 24 orders, more than 5 %."""
KNEE_SHARE = 0.9
SAME_EXPONENT = 0.05
"""Exponents of medians and of means that differ by more are both shown: over 20 times the size it makes 16 %."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Series:
    """Rows that differ in one size or argument only, sorted by it; `axis` is its column, `same` are common values.

    `latencies_ns` are means, and `spreads` the uncertainty of each; None for a point timed once. `flops` come from
    formulas.
    """

    axis: str
    same: Row
    sizes: tuple[float, ...]
    latencies_ns: tuple[float, ...]
    spreads: tuple[Spread | None, ...]
    throughputs: tuple[float | None, ...]
    throughput_unit: str | None
    flops: tuple[float | None, ...] = ()
    medians_ns: tuple[float | None, ...] = ()

    @property
    def title(self) -> str:
        """The name of the axis."""
        return axis_title(self.axis)

    @property
    def flops_exponent(self) -> float | None:
        """The exponent of FLOPs over the axis; None if FLOPs are unknown, or the sizes are too few."""
        known = [amount for amount in self.flops if amount]
        fit = fitted(self.sizes, known) if known and len(known) == len(self.sizes) else None
        return fit.exponent if fit is not None else None

    @property
    def fit(self) -> PowerFit | None:
        """The power law through the mean latencies; None if there are too few."""
        return fitted(self.sizes, self.latencies_ns, self.spreads)

    @property
    def median_exponent(self) -> float | None:
        """The exponent of the medians, which outliers hardly move; None if one is unknown, or there are too few."""
        known = [median for median in self.medians_ns if median]
        fit = fitted(self.sizes, known, self.spreads) if len(known) == len(self.sizes) else None
        return fit.exponent if fit is not None else None

    @property
    def is_moved_by_outliers(self) -> bool:
        """True if means and medians have different exponents."""
        fit, of_medians = self.fit, self.median_exponent
        return fit is not None and of_medians is not None and abs(of_medians - fit.exponent) > SAME_EXPONENT

    @property
    def last_exponent(self) -> float | None:
        """The slope of the means between the two largest sizes; None if there is only one."""
        sizes = sorted(set(self.sizes))
        if len(sizes) < 2:
            return None
        ends = [np.mean([ns for at, ns in zip(self.sizes, self.latencies_ns, strict=True) if at == size])
                for size in sizes[-2:]]  # fmt: skip
        return float(math.log(ends[1] / ends[0]) / math.log(sizes[-1] / sizes[-2]))

    @property
    def verdict(self) -> str:
        """The meaning of the exponent in words."""
        fit = self.fit
        if fit is None:
            return TOO_FEW
        title, proportional = AXES.get(self.axis, ("FLOPs", self.flops_exponent))
        if proportional is None:
            return NO_WORK
        amount = "pixels" if self.axis == "input_size" else title
        if fit.high < proportional:
            return f"less than proportional to {amount}"
        if fit.low > proportional:
            return f"more than proportional to {amount}"
        return f"proportional to {amount}" if fit.high - fit.low <= WIDEST_INTERVAL else TOO_UNCERTAIN

    @property
    def knee(self) -> Knee | None:
        """The knee of throughput over batch size; None for other axes, and if throughput is unknown."""
        known = [(size, rate) for size, rate in zip(self.sizes, self.throughputs, strict=True) if rate is not None]
        return knee(known) if self.axis == "batch_size" and known else None


@dataclass(frozen=True)
class Knee:
    """The best throughput, and the smallest batch that reaches 90 % of it, or why there is none."""

    best: float
    best_batch: float
    batch: float | None
    why_not: str | None


def knee(points: Sequence[tuple[float, float]]) -> Knee:
    """The knee of (batch, throughput) points, at least one.

    If only the largest batch comes near the best, throughput may still grow beyond it, and there is no knee yet.
    """
    ordered = sorted(points)
    best_batch, best = max(ordered, key=lambda point: point[1])
    if len({batch for batch, _ in ordered}) < LEAST_SIZES:
        return Knee(best, best_batch, None, TOO_FEW)
    reached = next(batch for batch, rate in ordered if rate >= KNEE_SHARE * best)
    if reached == ordered[-1][0]:
        return Knee(best, best_batch, None, f"still growing at {reached}")
    return Knee(best, best_batch, reached, None)


def axis_title(axis: str) -> str:
    """The name of a size, or of an argument."""
    return AXES[axis][0] if axis in AXES else axis


def series(rows: Iterable[Row], arguments: Sequence[str] = ()) -> list[Series]:
    """Every set of measured rows that differ in one size or argument only, with at least two different values.

    `arguments` are columns of arguments. Only positive values can be on an axis, since its exponent is fitted to
    logarithms.
    """
    measured = [row for row in rows if row["outcome"] == OK and row["latency_mean_ns"]]
    found = []
    for axis in (*AXES, *arguments):
        shared = [name for name in IDENTITY if name != axis]
        if axis in arguments:
            shared = [*(name for name in IDENTITY if name != "arguments"), *(one for one in arguments if one != axis)]
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in measured:
            if isinstance(row.get(axis), (int, float)) and row[axis] > 0:
                groups.setdefault(tuple(row.get(name) for name in shared), []).append(row)
        for key, members in groups.items():
            if len({row[axis] for row in members}) > 1:
                own = {name: members[0].get(name) for name in arguments if name != axis}
                found.append(_series(axis, {**own, **dict(zip(shared, key, strict=True))}, members))
    return found


def _series(axis: str, same: Row, members: list[Row]) -> Series:
    members = sorted(members, key=lambda row: float(row[axis]))
    return Series(
        axis,
        same,
        tuple(row[axis] for row in members),
        tuple(row["latency_mean_ns"] for row in members),
        tuple(spread_of(row) for row in members),
        tuple(row["throughput"] for row in members),
        members[0]["throughput_unit"],
        tuple(row.get("expected_flops") if row.get("expected_why_not") is None else None for row in members),
        tuple(row.get("latency_median_ns") for row in members),
    )


def spread_of(row: Row) -> Spread | None:
    """The uncertainty of a measured row's mean, from its 95 % interval; None without one.

    The interval is computed from the means of processes, or of up to `BLOCKS` blocks of the samples of one process.
    """
    if row["latency_low_ns"] is None or row["latency_high_ns"] is None:
        return None
    processes = len(row["process_means_ns"] or ())
    freedom = min(BLOCKS, processes if processes > 1 else row["iterations"]) - 1
    reach = (row["latency_high_ns"] - row["latency_low_ns"]) / 2
    return Spread((reach / student_quantile(CONFIDENCE, float(freedom)) / row["latency_mean_ns"]) ** 2, float(freedom))


# ------------------------------------------------------------------------------------------------------- correlations


@dataclass(frozen=True)
class Correlation:
    """Correlation of two quantities over models: rank correlation (Spearman) and linear one (Pearson), -1 to 1.

    Intervals are 95 %. None for fewer than five models, if a quantity is the same for all of them, and for the interval
    of a perfect correlation.
    """

    group: str
    one: str
    other: str
    models: int
    spearman: float | None
    spearman_low: float | None
    spearman_high: float | None
    pearson: float | None
    pearson_low: float | None
    pearson_high: float | None


def correlations(rows: Iterable[Row]) -> list[Correlation]:
    """Correlations of parameters, FLOPs, bytes, and latency at each batch size, over the models of each group.

    A group has one device, data type, mode and phase, and, if a model has several, one input size and sequence length,
    one memory format, with or without autocast. FLOPs and bytes are from the smallest batch. Repeated measurements
    count with their mean.
    """
    found = []
    for group, members in by_group(rows).items():
        quantities = quantities_of(members)
        for one, other in combinations(quantities, 2):
            both = sorted(set(quantities[one]) & set(quantities[other]))
            x, y = (np.array([quantities[name][model] for model in both], np.float64) for name in (one, other))
            found.append(_correlation(group, one, other, x, y))
    return found


def by_group(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The measured rows, by the group in which models are compared."""
    rows = [row for row in rows if row["outcome"] == OK]
    sizes: dict[str, set[tuple[Any, ...]]] = {}
    for row in rows:
        sizes.setdefault(row["target"], set()).add(tuple(row.get(name) for name in WITHIN_A_GROUP))
    names = ["device_name", "dtype", "mode", "phase"]
    names += [name for name in ("autocast", "channels_last") if _both_ways(rows, names, name)]
    if any(len(several) > 1 for several in sizes.values()):
        names += WITHIN_A_GROUP
    groups: dict[str, list[Row]] = {}
    for row in rows:
        title = ", ".join(_value_text(name, row[name]) for name in names if row.get(name) is not None)
        groups.setdefault(title, []).append(row)
    return groups


def _both_ways(rows: Sequence[Row], names: Sequence[str], flag: str) -> bool:
    """True if rows that agree in `names` occur with and without a flag."""
    return len({tuple(row[name] for name in (*names, flag)) for row in rows}) > len(
        {tuple(row[name] for name in names) for row in rows}
    )


def _value_text(name: str, value: Any) -> str:
    """A value of a group as text; sizes with their title, as `image 64` and `tokens 64`."""
    if isinstance(value, bool):
        return f"{'' if value else 'no '}{name.replace('_', ' ')}"
    return f"{AXES[name][0]} {value}" if name in AXES else str(value)


def quantities_of(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Quantity -> model -> value, where known. Latencies in ns."""
    batches = sorted({row["batch_size"] for row in rows if row["batch_size"] is not None})
    smallest = [row for row in rows if row["batch_size"] is not None and row["batch_size"] == batches[0]]
    at = f" at batch {batches[0]}" if batches else ""
    found = {
        "parameters": _values(smallest, "parameters"),
        f"FLOPs{at}": _values(smallest, "expected_flops"),
        f"bytes{at}": _values(smallest, "expected_bytes"),
    }
    for batch in batches:
        found[f"latency at batch {batch}"] = _values(
            [row for row in rows if row["batch_size"] == batch], "latency_mean_ns"
        )
    return found


def _values(rows: Iterable[Row], name: str) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for row in rows:
        if row[name] is not None:
            found.setdefault(row["target"], []).append(float(row[name]))
    return {target: math.fsum(values) / len(values) for target, values in found.items()}


def _correlation(group: str, one: str, other: str, x: Floats, y: Floats) -> Correlation:
    rank = pearson(ranks(x), ranks(y)) if len(x) >= LEAST_MODELS else None
    linear = pearson(x, y) if len(x) >= LEAST_MODELS else None
    return Correlation(
        group, one, other, len(x),
        rank, *_interval(rank, len(x), 1 + (rank or 0.0) ** 2 / 2),
        linear, *_interval(linear, len(x), 1.0),
    )  # fmt: skip


def pearson(x: Floats, y: Floats) -> float | None:
    """The linear correlation of two arrays of shape (n,); None if one of them is constant."""
    across, up = x - x.mean(), y - y.mean()
    scale = math.sqrt(float(across @ across) * float(up @ up))
    return max(-1.0, min(1.0, float(across @ up) / scale)) if scale > 0 else None


def ranks(values: Floats) -> Floats:
    """The ranks of an array of shape (n,), from 1; equal values share their mean rank."""
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    mean: Floats = last - (count - 1) / 2
    return mean[group]


def _interval(r: float | None, models: int, variance: float) -> tuple[float | None, float | None]:
    """The 95 % interval by Fisher's z, with variance / (n - 3): 1 for Pearson, 1 + r^2 / 2 for Spearman.

    The Spearman variance is from Bonett and Wright, Psychometrika 65, 2000, p. 23.
    """
    if r is None or abs(r) > 1 - 1e-12:
        return None, None
    reach = 1.959964 * math.sqrt(variance / (models - 3))
    return math.tanh(math.atanh(r) - reach), math.tanh(math.atanh(r) + reach)
