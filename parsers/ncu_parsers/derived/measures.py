"""Metrics of launches as columns, and all derived measures except FLOPs: time, bytes by level, clocks, ceilings.

Counters are printed as sums, as rates per elapsed cycle (full and roofline sets), or as rates per second. The sum is
used if available; else a rate is multiplied by the cycles or the time of the same launch. A ceiling is a sustained peak
per cycle x the clock of the launch. Metric names and their sources are in the tables of `ncu_launch.counters.metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from ncu_launch.counters import metrics as known

from ncu_parsers.derived.opcode_lists import NO_LISTS, OpcodeLists
from ncu_parsers.schema.tables import Floats, unknown

Mask = npt.NDArray[np.bool_]
Key = TypeVar("Key", bound=Hashable)

TENSOR_PRECISIONS = (*known.TENSOR_FLOAT_PRECISIONS, *known.TENSOR_INTEGER_PRECISIONS)


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
    nanoseconds: Floats = field(init=False)
    seconds: Floats = field(init=False)
    cycles: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.nanoseconds = _duration_ns(self)
        self.seconds = self.nanoseconds / 1e9
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
        """The read-only array of NaN shared by all missing columns; compare with `is`."""
        return unknown(self.rows)

    def either(self, values: Floats, others: Floats) -> Floats:
        """`values`, or `others` where NaN (float64, one per launch); no copy is made if either is `nothing`."""
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


# --------------------------------------------------------------------------------------------- bytes, clocks, ceilings


def bytes_clocks_and_ceilings(counters: Counters) -> dict[str, Floats]:
    """Time, bytes by level, clocks and ceilings by column (float64: ns, byte, hz, rates per s; one per launch, NaN if
    missing)."""
    result: dict[str, Floats] = {"duration_ns": counters.nanoseconds}
    for column, level in (
        ("dram_bytes", "dram"), ("dram_read_bytes", "dram_read"), ("dram_write_bytes", "dram_write"),
        ("l2_bytes", "l2"), ("l1_bytes", "l1"),
    ):  # fmt: skip
        result[column] = _bytes(counters, level)
    result["sm_clock_hz"] = counters.first(known.clock_metrics("sm"))
    result["dram_clock_hz"] = counters.first(known.clock_metrics("dram"))
    result.update(_peaks(counters))
    return result


def _bytes(counters: Counters, level: str) -> Floats:
    """Bytes of a level (float64, one per launch), by the first alternative with all counters; sums before rates."""
    result = counters.nothing
    for amount in (counters.counted, counters.total):
        for alternative in known.byte_alternatives(level):
            parts = {base: amount(base) for base in alternative}
            if not any(part is counters.nothing for part in parts.values()):
                total = sum((part * alternative[base] for base, part in parts.items()), np.zeros(counters.rows))
                if known.is_system_memory(alternative):
                    total = np.where(counters.where(known.has_system_memory_alone), total, np.nan)
                result = counters.either(result, total)
    return counters.either(result, _l1_by_parts(counters)) if level == "l1" else result


def _l1_by_parts(counters: Counters) -> Floats:
    """Bytes at L1 as the sum of its parts (float64, one per launch); NaN if a part is missing or not covered."""
    parts = known.l1_parts()
    amounts = [counters.total(base) for base in parts.counters]
    if any(amount is counters.nothing for amount in amounts):
        return counters.nothing
    total: Floats = np.sum(amounts, axis=0) * parts.bytes_per_count
    for since, bases in parts.must_be_zero:
        concerned = counters.where(partial(known.may_be_from, since))
        for base in bases:
            total = np.where(concerned & ~(counters.total(base) == 0), np.nan, total)
    return total


# ------------------------------------------------------------------------------------------------------------ ceilings


def _peaks(counters: Counters) -> dict[str, Floats]:
    """Ceiling columns in FLOP/s, OP/s or byte/s (float64, one per launch; NaN if missing), dense for tensor cores."""
    clocks = {domain: counters.first(known.clock_metrics(domain)) for domain in ("sm", "dram", "lts", "l1tex")}
    result: dict[str, Floats] = {}
    for ceiling in known.ceilings():
        peak, clock = counters.metric(ceiling.metric), clocks[ceiling.clock]
        if peak is not counters.nothing:
            peak = peak * ceiling.factor * clock
        result[ceiling.column] = counters.either(result.get(ceiling.column, counters.nothing), peak)
    return result | _tensor_peaks(counters, clocks["sm"])


def _tensor_peaks(counters: Counters, clock: Floats) -> dict[str, Floats]:
    """Dense tensor ceilings (float64, one per launch): per precision the largest over result types and instructions."""
    result = {f"peak_{tensor_column(name)}": counters.nothing for name in TENSOR_PRECISIONS}
    for peak in tensor_peaks(counters.values, counters.compute_capability):
        if not peak.sparse:
            column = f"peak_{tensor_column(peak.precision)}"
            result[column] = np.fmax(result[column], peak.per_cycle * clock)
    return result


TENSOR_PEAK = "sum.peak_sustained"


class TensorPeak(NamedTuple):
    """Operations per SM cycle that the tensor cores of a whole GPU sustain (float64, one per launch); NaN if missing.

    `instruction` is the instruction that reaches them, as in the counter's name ("hgmma"); "" if every one does.
    """

    precision: str
    instruction: str
    sparse: bool
    per_cycle: Floats


def tensor_peaks(values: Mapping[str, Floats], compute_capability: Sequence[str | None]) -> list[TensorPeak]:
    """Every dense or sparse tensor peak among the metrics `values`, which map name -> float64, one per launch.

    The peak of a total without `_sparsity_off` is the sparse peak on chips with structured sparsity, and unknown on
    unknown chips. Source: peaks in reports of A100 and H100, compared with their data sheets.
    """
    names = (name.partition(".") for name in values)
    found = {"".join(name): known.tensor_counter(name[0]) for name in names if name[2] == TENSOR_PEAK}
    if not found:
        return []
    dense_as_is = ~mask_where(compute_capability, known.has_structured_sparsity)
    known_chip = mask_where(compute_capability, lambda capability: capability is not None)
    result = []
    for name, counter in found.items():
        if counter is None:
            continue
        peak = values[name]
        instruction = counter.part.split()[0].removeprefix("op_") if counter.part.startswith("op_") else ""
        dense, sparse = peak, np.full(len(peak), np.nan)
        if "sparsity_on" in counter.part:
            dense, sparse = sparse, peak
        elif "sparsity_off" not in counter.part and not _never_sparse(counter):
            dense, sparse = np.where(dense_as_is, peak, np.nan), np.where(~dense_as_is & known_chip, peak, np.nan)
        for per_cycle, is_sparse in ((dense, False), (sparse, True)):
            if not np.isnan(per_cycle).all():
                result.append(TensorPeak(counter.precision, instruction, is_sparse, per_cycle))
    return result


def _never_sparse(counter: known.TensorCounter) -> bool:
    return counter.precision in ("fp64", "int1")


def tensor_column(precision: str) -> str:
    """The column of the launch table for tensor operations on inputs of this type."""
    return f"tensor_ops_{precision}" if precision in known.TENSOR_INTEGER_PRECISIONS else f"tensor_flops_{precision}"
