"""Numeric metrics of launches as columns, with sums of counters.

Counters are printed as sums, as rates per elapsed cycle (full and roofline sets), or as rates per second. The sum is
used if available; else a rate is multiplied by the cycles or the time of the same launch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from ncu_launch.counters import metrics as known

from ncu_parsers.derived.opcode_lists import NO_LISTS, OpcodeLists
from ncu_parsers.schema.tables import Floats, unknown

Mask = npt.NDArray[np.bool_]
Key = TypeVar("Key", bound=Hashable)


def mask_where(keys: Sequence[Key], predicate: Callable[[Key], bool]) -> Mask:
    """`predicate` of each key (bool, one per key), evaluated once per distinct key."""
    results = {key: bool(predicate(key)) for key in set(keys)}
    if len(results) == 1:
        return np.full(len(keys), next(iter(results.values())))
    return np.array([results[key] for key in keys], dtype=bool)


@dataclass
class Counters:
    """Numeric metrics of launches: float64 columns, one value per launch, NaN if missing; in base units.

    `lists` has the launches' counts per opcode.
    """

    values: Mapping[str, Floats]
    compute_capability: Sequence[str | None]
    device_name: Sequence[str | None]
    lists: OpcodeLists = NO_LISTS
    seconds: Floats = field(init=False)
    cycles: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.seconds = _duration_ns(self) / 1e9
        self.cycles = self.first(known.table("ceilings")["cycles"]["sm"])
        clock = self.first(known.clock_metrics("sm")[:2])
        if clock is not self.nothing:
            self.cycles = self.either(self.cycles, clock * self.seconds)

    @property
    def rows(self) -> int:
        """Number of launches."""
        return len(self.compute_capability)

    def where(self, predicate: Callable[[str | None], bool]) -> Mask:
        """`predicate` of each launch's compute capability (bool, one per launch)."""
        if len(self.capabilities) == 1:
            return np.full(self.rows, bool(predicate(*self.capabilities)))
        return mask_where(self.compute_capability, predicate)

    def where_device(self, predicate: Callable[[str | None, str | None], bool]) -> Mask:
        """`predicate` of each launch's compute capability and device name (bool, one per launch)."""
        if len(self._devices) == 1:  # the usual case
            return self.where(lambda capability: predicate(capability, self.device_name[0]))
        devices = list(zip(self.compute_capability, self.device_name, strict=True))
        return mask_where(devices, lambda device: predicate(*device))

    @cached_property
    def capabilities(self) -> frozenset[str | None]:
        """The distinct compute capabilities."""
        return frozenset(self.compute_capability)

    @cached_property
    def _devices(self) -> frozenset[str | None]:
        return frozenset(self.device_name)

    @cached_property
    def nothing(self) -> Floats:
        """The read-only array of NaN that stands for every missing column; compare with `is`."""
        return unknown(self.rows)

    def either(self, values: Floats, others: Floats) -> Floats:
        """`values`, or `others` where NaN (float64, one per launch); the very array if the other is `nothing`."""
        if values is self.nothing or others is self.nothing:
            return others if values is self.nothing else values
        return np.where(np.isnan(values), others, values)

    def metric(self, name: str) -> Floats:
        """One metric as printed (float64, one per launch, base unit); `nothing` if no launch has it."""
        return self.values.get(name, self.nothing)

    def first(self, names: Sequence[str]) -> Floats:
        """The first of `names` that each launch has (float64, one per launch)."""
        result = self.nothing
        for name in names:
            result = self.either(result, self.metric(name))
        return result

    def counted(self, base: str) -> Floats:
        """The printed sum of a counter over all units (float64, one per launch). `base` has no suffix."""
        return self.first([f"{base}.sum", base])

    def total(self, base: str) -> Floats:
        """The sum of a counter over all units, printed or computed from a rate (float64, one per launch)."""
        result = self.counted(base)
        per_cycle = f"{base}.sum.per_cycle_elapsed"
        if per_cycle in self.values and base.startswith(("sm__", "smsp__")):
            result = self.either(result, self.values[per_cycle] * self.cycles)
        per_second = f"{base}.sum.per_second"
        if per_second in self.values:
            result = self.either(result, self.values[per_second] * self.seconds)
        return result

    def thread_instructions(self, opcode: str) -> Floats:
        """Thread instructions of an opcode (float64, one per launch), by either prefix, or from derived rates, which
        count each instruction 2 or 4 times."""
        result = self.nothing
        for prefix in known.SASS_PREFIXES:
            result = self.either(result, self.total(f"{prefix}{opcode}_pred_on"))
        for operations in (2, 4):
            derived = f"derived__smsp__sass_thread_inst_executed_op_{opcode}_pred_on_x{operations}"
            if derived in self.values:
                result = self.either(result, self.values[derived] / operations * self.cycles)
        return result

    def opcode_threads(self, counter: str) -> Floats:
        """Thread instructions of a counter ("ffma") by the launch's opcodes (float64, one per launch)."""
        return self.lists.threads.get(counter, self.nothing)

    def executed_threads(self, counter: str) -> Floats:
        """Thread instructions by their counter, else by opcodes (float64, one per launch)."""
        return self.either(self.thread_instructions(counter), self.opcode_threads(counter))


def _duration_ns(counters: Counters) -> Floats:
    """GPU time in ns (float64, one per launch): gpu__time_duration, else cycles / cycles per second (NERSC recipe)."""
    table = known.table("ceilings")["time"]
    result = counters.first(table["durations"])
    for cycles, rate in table["cycles_and_rate"]:
        if cycles in counters.values and rate in counters.values:
            with np.errstate(divide="ignore", invalid="ignore"):
                quotient = counters.values[cycles] / counters.values[rate] * 1e9
            result = np.where(np.isnan(result) & np.isfinite(quotient), quotient, result)
    return result


def sum_known(parts: list[Floats]) -> Floats:
    """The sum of non-NaN values per launch; NaN where all are NaN. All arrays are float64, one value per launch."""
    stacked = np.stack(parts)
    return np.where(np.isnan(stacked).all(axis=0), np.nan, np.nansum(stacked, axis=0))
