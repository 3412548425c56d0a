"""The counters of each kernel of a run as quantities, utilisations of resources, and stalls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from ncu_launch.files.toml_tables import table_beside
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.tables import Floats

from ncu_tools.advice.situation.contradictions import contradictions
from ncu_tools.advice.situation.largest_values import ROUNDING, largest_of
from ncu_tools.advice.situation.means import Groups, KernelMeans, grouped
from ncu_tools.advice.situation.utilisation import TENSOR_COLUMNS, Sources, busy_shares, stall_shares
from ncu_tools.kernels.diagnosis.rule_texts import printed_numbers, rule_of_quantity
from ncu_tools.kernels.diagnosis.sums import launch_quantities


@dataclass
class MeasuredKernel:
    """One kernel at one block size and about one grid size: launches that did not fail, mean time in ns, counters.

    `numbers` are quantities by name, `busy` the share of the time that a resource is busy on the SMs that have work (0
    to 1), `stalls` the share of a warp's time by reason. What was not collected is missing from all three. `metrics`
    are those that a quantity, a resource or "stalls" comes from. `row` is the number of the row that its launches are
    of, where these were separated by rows. `doubts` say which counters contradict each other, or are impossible and
    were not used.
    """

    name: str
    device: str | None
    capability: str
    grid: tuple[int, ...] | None
    block: tuple[int, ...] | None
    launches: int
    time_ns: float
    numbers: dict[str, float] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    stalls: dict[str, float] = field(default_factory=dict)
    metrics: Sources = field(default_factory=dict)
    row: int = 0
    doubts: list[str] = field(default_factory=list)

    @property
    def total_ns(self) -> float:
        """The time of all launches in ns."""
        return self.time_ns * self.launches

    def get(self, name: str, otherwise: float = math.nan) -> float:
        """The quantity of this name; `otherwise` if unknown."""
        return self.numbers.get(name, otherwise)

    def has(self, name: str) -> bool:
        """True if the quantity or resource of this name is known, or for "stalls" any stall."""
        return name in self.numbers or name in self.busy or (name == "stalls" and bool(self.stalls))

    @cached_property
    def bound(self) -> tuple[str, float]:
        """The busiest resource and its share of the time; ("", 0) where none is known."""
        return max(self.busy.items(), key=lambda item: item[1], default=("", 0.0))

    def stalled(self, *reasons: str) -> float:
        """The share of a warp's time in these stalls together; NaN where no stalls were collected."""
        return min(1.0, sum(self.stalls.get(one, 0.0) for one in reasons)) if self.stalls else math.nan


def measured_kernels(launches: pa.Table, rows: Groups | None = None) -> list[MeasuredKernel]:
    """Every kernel of the launches, the one with most time first, without launches that failed or have no time.

    `rows` are indices by launch: launches of different rows count as different kernels.
    """
    times = tables.floats(launches, "duration_ns")
    ran = (tables.or_zero(tables.floats(launches, "failed")) == 0) & (times > 0) & (times < math.inf)
    rows = np.zeros(len(launches), np.int64) if rows is None else rows
    if not ran.all():
        launches, rows = arrays.kept(launches, ran), rows[ran]
    if not len(launches):
        return []
    with np.errstate(all="ignore"):  # of damaged reports, whose numbers are left out below
        return _measured(launches, rows)


def _measured(launches: pa.Table, rows: Groups) -> list[MeasuredKernel]:
    means = KernelMeans(launches, grouped(launches, rows))
    kernels = _described(launches, means, rows)
    _fill(means, kernels)
    return sorted(kernels, key=lambda one: -one.total_ns)


def _described(launches: pa.Table, means: KernelMeans, rows: Groups) -> list[MeasuredKernel]:
    """The kernels of the groups, with names and shapes of the first launch of each."""
    firsts = np.unique(means.groups, return_index=True)[1].tolist()
    texts = {name: tables.words(launches, name) for name in ("kernel_name", "device_name", "compute_capability")}
    shapes = {name: tables.list_codes(launches, name) for name in ("grid", "block")}
    counts, times = means.total(means.launches).tolist(), means.total(means.times).tolist()
    return [
        MeasuredKernel(
            name=texts["kernel_name"][first] or "?",
            device=texts["device_name"][first],
            capability=texts["compute_capability"][first] or "",
            grid=shapes["grid"][1][shapes["grid"][0][first]],
            block=shapes["block"][1][shapes["block"][0][first]],
            launches=max(1, round(count)),
            time_ns=time / max(1, round(count)),
            row=int(rows[first]),
        )
        for first, count, time in zip(firsts, counts, times, strict=True)
    ]


def _fill(means: KernelMeans, kernels: Sequence[MeasuredKernel]) -> None:
    """Set quantities, utilisations of resources, and stalls of the kernels."""
    numbers, sources = _numbers(means)
    busy, of_resources = busy_shares(means, numbers)
    stalls, of_stalls = stall_shares(means)
    for place, kernel in enumerate(kernels):
        kernel.numbers, kernel.busy, kernel.stalls = (
            _possible_values(found, place) for found in (numbers, busy, stalls)
        )
        kernel.metrics = {**sources, **of_resources, "stalls": of_stalls}
    _add_doubts(means, kernels)


def _add_doubts(means: KernelMeans, kernels: Sequence[MeasuredKernel]) -> None:
    """Note impossible values and contradictory counters at each kernel."""
    for metric, largest in means.impossible.items():
        for place in np.flatnonzero(largest).tolist():
            limit = largest_of(metric) / (1 + ROUNDING)
            kernels[place].doubts.append(f"{metric} is {largest[place]:.5g}, and {limit:g} at most: it was not used")
    for one in contradictions(means.table):
        launches = np.flatnonzero(one.launches)
        for place, first in zip(*np.unique(means.groups[launches], return_index=True), strict=True):
            kernels[place].doubts.append(one.told(int(launches[first])))


def _possible_values(found: Mapping[str, Floats], place: int) -> dict[str, float]:
    """The finite values of one kernel; values below 0, as damaged reports have, are left out."""
    return {name: float(values[place]) for name, values in found.items() if 0 <= values[place] < math.inf}


# ------------------------------------------------------------------------------------------------------- quantities


@cache
def quantities() -> Mapping[str, Mapping[str, Any]]:
    """Quantity -> its title, unit and metrics (`quantities.toml`)."""
    return table_beside(__file__, "quantities")


COLUMNS = (
    "dram_bytes", "dram_read_bytes", "l2_bytes", "sm_clock_hz", "tensor_flops", "peak_dram_bytes", "peak_l2_bytes",
    "peak_flops_fp64", "flops_fp64", *TENSOR_COLUMNS, *(f"peak_{column}" for column in TENSOR_COLUMNS),
)  # fmt: skip
"""Columns of the table of launches that are quantities under their own names."""


def _numbers(means: KernelMeans) -> tuple[dict[str, Floats], dict[str, tuple[str, ...]]]:
    found: dict[str, Floats] = {}
    sources: dict[str, tuple[str, ...]] = {}
    for name, spec in quantities().items():
        for metric, factor in zip(spec["metrics"], spec.get("factors", [1.0] * len(spec["metrics"])), strict=True):
            if means.metrics.behind(metric) and not np.isnan(values := means.of(metric)).all():
                found[name], sources[name] = values * factor, means.metrics.behind(metric)
                break
    for name in COLUMNS:
        found[name], sources[name] = means.column(name), (name,)
    by_rules = printed_numbers(means.table)
    for name, values in launch_quantities(means.table, by_rules).items():
        found[name] = means.mean(values)
    for name, values in by_rules.items():
        found[f"{name} by rule"], sources[f"{name} by rule"] = means.mean(values), (rule_of_quantity(name),)
    for name, metrics in LAUNCH_SOURCES.items():
        sources[name] = tuple(one for metric in metrics for one in means.metrics.behind(metric))
    return found, sources


LAUNCH_SOURCES: dict[str, tuple[str, ...]] = {
    "blocks": ("launch__grid_size",),
    "threads": ("launch__block_size",),
    "waves": ("launch__waves_per_multiprocessor",),
    "sm_count": ("device__attribute_multiprocessor_count",),
    "idle": ("sm__cycles_active.avg", "gpc__cycles_elapsed.max"),
    "slice_busy": ("lts__cycles_active.max",),
    "slice_mean": ("lts__cycles_active.avg",),
    "launch_ns": ("gpu__time_duration.sum",),
}
"""Quantity of `launch_quantities` -> the metrics that it usually comes from."""
