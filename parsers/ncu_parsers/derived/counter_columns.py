"""The numeric metrics of launches, as columns: a sum where there is one, else a rate multiplied back.

Counters come in three forms: sums, rates per elapsed cycle (in full and roofline sets) and rates per second. A sum is
used where there is one; a rate is multiplied back with the cycles or the time of the same launch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from ncu_launch.counters import metrics as known

from ncu_parsers.schema.tables import Floats, unknown

Mask = npt.NDArray[np.bool_]
Key = TypeVar("Key", bound=Hashable)


def answered(launches: Sequence[Key], question: Callable[[Key], bool]) -> Mask:
    """Where the answer for what is known of a launch is yes; the same is asked only once."""
    answers = {key: bool(question(key)) for key in set(launches)}
    if len(answers) == 1:
        return np.full(len(launches), next(iter(answers.values())))
    return np.array([answers[key] for key in launches], dtype=bool)


@dataclass
class Counters:
    """The numeric metrics of some launches, as columns; NaN where a launch lacks one.

    `opcodes` are warp instructions per opcode with modifiers, None for a launch without; () where no launch has them.
    """

    values: Mapping[str, Floats]
    compute_capability: Sequence[str | None]
    device_name: Sequence[str | None]
    opcodes: Sequence[Mapping[str, float] | None] = ()
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
        """How many launches there are."""
        return len(self.compute_capability)

    def where(self, question: Callable[[str | None], bool]) -> Mask:
        """Where the answer for a launch's compute capability is yes; each capability is asked for once."""
        if len(self.capabilities) == 1:
            return np.full(self.rows, bool(question(*self.capabilities)))
        return answered(self.compute_capability, question)

    def where_device(self, question: Callable[[str | None, str | None], bool]) -> Mask:
        """The same for compute capability and device name."""
        if len(self._devices) == 1:  # so nearly always
            return self.where(lambda capability: question(capability, self.device_name[0]))
        devices = list(zip(self.compute_capability, self.device_name, strict=True))
        return answered(devices, lambda device: question(*device))

    @cached_property
    def capabilities(self) -> frozenset[str | None]:
        """Those of all launches."""
        return frozenset(self.compute_capability)

    @cached_property
    def _devices(self) -> frozenset[str | None]:
        return frozenset(self.device_name)

    @cached_property
    def nothing(self) -> Floats:
        """What no launch has: NaN throughout. This very array, which cannot be written to, stands for it everywhere."""
        return unknown(self.rows)

    def either(self, values: Floats, others: Floats) -> Floats:
        """`values`, and where a launch has none, `others`: one of the two themselves where the other is nothing."""
        if values is self.nothing or others is self.nothing:
            return others if values is self.nothing else values
        return np.where(np.isnan(values), others, values)

    def metric(self, name: str) -> Floats:
        """One metric, as it stands in the report; nothing when no launch has it."""
        return self.values.get(name, self.nothing)

    def first(self, names: Sequence[str]) -> Floats:
        """For each launch the first of `names` that it has."""
        result = self.nothing
        for name in names:
            result = self.either(result, self.metric(name))
        return result

    def counted(self, base: str) -> Floats:
        """The sum of a counter over all units, as printed. `base` has no suffix."""
        return self.first([f"{base}.sum", base])

    def total(self, base: str) -> Floats:
        """The sum of a counter over all units: as printed, or a rate multiplied back."""
        result = self.counted(base)
        per_cycle = f"{base}.sum.per_cycle_elapsed"
        if per_cycle in self.values and base.startswith(("sm__", "smsp__")):
            result = self.either(result, self.values[per_cycle] * self.cycles)
        per_second = f"{base}.sum.per_second"
        if per_second in self.values:
            result = self.either(result, self.values[per_second] * self.seconds)
        return result

    def thread_instructions(self, opcode: str) -> Floats:
        """Thread instructions of an opcode, under either prefix; derived rates count each 2 or 4 times."""
        result = self.nothing
        for prefix in known.SASS_PREFIXES:
            result = self.either(result, self.total(f"{prefix}{opcode}_pred_on"))
        for operations in (2, 4):
            derived = f"derived__smsp__sass_thread_inst_executed_op_{opcode}_pred_on_x{operations}"
            if derived in self.values:
                result = self.either(result, self.values[derived] / operations * self.cycles)
        return result


def _duration_ns(counters: Counters) -> Floats:
    """Time of each launch in ns: gpu__time_duration, else cycles divided by cycles per second (the NERSC recipe)."""
    table = known.table("ceilings")["time"]
    result = counters.first(table["durations"])
    for cycles, rate in table["cycles_and_rate"]:
        if cycles in counters.values and rate in counters.values:
            with np.errstate(divide="ignore", invalid="ignore"):
                quotient = counters.values[cycles] / counters.values[rate] * 1e9
            result = np.where(np.isnan(result) & np.isfinite(quotient), quotient, result)
    return result


def sum_known(parts: list[Floats]) -> Floats:
    """The sum of what is known in each row; NaN where nothing is."""
    stacked = np.stack(parts)
    return np.where(np.isnan(stacked).all(axis=0), np.nan, np.nansum(stacked, axis=0))
