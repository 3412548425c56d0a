"""Every measure of launches from their metrics: time, FLOPs, bytes by level, clocks, and the ceilings in a report.

A ceiling is a sustained peak per cycle x the clock of the launch. Metric names and their sources are in the tables of
`ncu_launch.counters.metrics`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from ncu_launch.counters import metrics as known

from ncu_parsers.derived.counter_columns import Counters, mask_where
from ncu_parsers.derived.flops import flops_columns
from ncu_parsers.derived.tensor_flops import TENSOR_PRECISIONS, tensor_column
from ncu_parsers.schema.tables import Floats


def measures(counters: Counters) -> dict[str, Floats | pa.Array]:
    """Every measure column, by name: float64 (ns, FLOP, byte, hz, rates per s), one per launch, NaN if missing; texts
    as Arrow arrays."""
    result: dict[str, Floats | pa.Array] = {"duration_ns": counters.seconds * 1e9}
    result.update(flops_columns(counters))
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
