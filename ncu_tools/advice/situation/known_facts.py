"""Facts of a kernel without counters: work by shapes, samples of the whole GPU, and limits that the trace recorded.

Each fact names its class. A bound can only be what the facts cover: DRAM, tensor pipe, issue slots, or the peak of the
type by shapes; not caches or shared memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import tables

from ncu_tools.advice.situation.measured import MeasuredKernel, quantities
from ncu_tools.kernels.kernel_row import Hotspot
from ncu_tools.kernels.source.spread.sampled_bytes import SampledBytes
from ncu_tools.numbers.number_format import percent, scaled

BY_SHAPES, SAMPLED, RECORDED = "by shapes", "sampled on the whole GPU", "recorded"
SAMPLED_BYTES = "sampled share of the data sheet's peak, where the kernel ran alone"
"""Classes of facts, by what they follow from."""
BOUND = 0.6
"""Share of the time from which a busy resource bounds a kernel (60 %; NVIDIA's speed-of-light rule: well used)."""
RESOURCES = {
    "sampled_dram_pct": "DRAM",
    "sampled_tensor_active_pct": "tensor pipe",
    "sampled_sm_issue_pct": "issue slots",
}
DRAM_PARTS = ("sampled_dram_read_pct", "sampled_dram_write_pct")
LIMITS = ("limit_registers", "limit_shared", "limit_blocks", "limit_warps")
"""Quantities: the blocks per SM that each resource allows."""


@dataclass(frozen=True)
class KnownFact:
    """One number of a kernel, its columns, and its class."""

    quantity: str
    value: float
    unit: str
    metrics: tuple[str, ...]
    provenance: str

    @property
    def words(self) -> str:
        """The number in words, with its class."""
        shown = percent(self.value) if self.unit == "fraction" else scaled(self.value, self.unit.replace("byte", "B"))
        shown = f"{self.value:g}" if self.unit == "block" else shown
        return f"{self.quantity} {shown} ({self.provenance})"


def sampled_means(launches: pa.Table) -> dict[str, dict[str, float]]:
    """Kernel -> resource -> mean sampled utilisation (0 to 1), weighted by the time of launches with samples."""
    codes, names = tables.codes(launches, "kernel_name")
    lasts = tables.or_zero(tables.floats(launches, "duration_ns"))
    found: dict[str, dict[str, float]] = {}
    for resource, values in _sampled_shares(launches).items():
        known = ~np.isnan(values)
        weight = np.bincount(codes[known], lasts[known], len(names))
        sums = np.bincount(codes[known], (lasts * values)[known], len(names))
        for at in np.flatnonzero(weight > 0).tolist():
            found.setdefault(str(names[at]), {})[resource] = float(sums[at] / weight[at])
    return found


def _sampled_shares(launches: pa.Table) -> dict[str, tables.Floats]:
    """The utilisation of each sampled resource, by launch; NaN for launches without samples."""
    own = set(launches.column_names)
    found = {name: tables.floats(launches, column) / 100 for column, name in RESOURCES.items() if column in own}
    if "DRAM" not in found and own.issuperset(DRAM_PARTS):
        found["DRAM"] = np.sum([tables.floats(launches, column) for column in DRAM_PARTS], axis=0) / 100
    return found


def facts_of(
    kernel: MeasuredKernel, row: Hotspot | None, sampled: Mapping[str, float], moved: SampledBytes | None
) -> list[KnownFact]:
    """Every fact of a kernel; `row` has its sums by shapes, `moved` its DRAM rate by samples."""
    columns = {name: column for column, name in RESOURCES.items()}
    found = [KnownFact(f"{name} busy", value, "fraction", (columns[name],), SAMPLED) for name, value in sampled.items()]
    if moved is not None:
        found.append(KnownFact("DRAM traffic", moved.bytes_per_s, "byte/s", ("sampled_dram_pct",), SAMPLED_BYTES))
    if row is not None:
        for quantity, value, unit, column in (
            ("work", row.flops_per_s, "FLOP/s", "flops"),
            ("least DRAM traffic", row.least_bytes_per_s, "byte/s", "least_bytes"),
            (f"of the roof of {row.bound}", row.bound_fraction if row.bound else None, "fraction", "flops"),
        ):
            if value is not None:
                found.append(KnownFact(quantity, value, unit, (column,), BY_SHAPES))
    return [*found, *limits_of(kernel)]


def limits_of(kernel: MeasuredKernel) -> list[KnownFact]:
    """The resources that allow the fewest blocks per SM; [] if no limit is known."""
    known = [name for name in LIMITS if name in kernel.numbers]
    least = min((kernel.numbers[name] for name in known), default=0.0)
    return [
        KnownFact(str(quantities()[name]["title"]), least, "block", kernel.metrics.get(name, ()), RECORDED)
        for name in known
        if kernel.numbers[name] == least
    ]


def bound_of(sampled: Mapping[str, float], row: Hotspot | None = None) -> str:
    """The resource that bounds a kernel; "" if none that is known is busy enough.

    Samples, which show how busy a resource is, come before shapes, which show only how much work had to be done.
    """
    name, share = max(sampled.items(), key=lambda one: one[1], default=("", 0.0))
    if share >= BOUND:
        return name
    if row is not None and row.bound and (row.bound_fraction or 0.0) >= BOUND:
        return row.bound
    return ""


def in_words(facts: Sequence[KnownFact], bound: str, sampled: Collection[str]) -> str:
    """The facts in a sentence; `sampled` are the resources that have samples."""
    if not facts:
        return "only its time is known"
    said = "; ".join(one.words for one in facts)
    if bound:
        return f"{bound} bounds it: {said}"
    if not sampled:
        return f"no bound is known: {said}"
    idle, unseen = ([one for one in RESOURCES.values() if (one in sampled) is known] for known in (True, False))
    others = f", and {', '.join(unseen)} {'was' if len(unseen) == 1 else 'were'} not sampled" if unseen else ""
    return f"of {', '.join(idle)} nothing is busy enough to bound it{others}: {said}"
