"""Ceilings contained in a report: sustained peak per cycle x clock of the launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from ncu_launch.counters import metrics as known

from ncu_parsers.derived.counter_columns import Counters, mask_where
from ncu_parsers.derived.tensor_flops import TENSOR_PRECISIONS, tensor_column
from ncu_parsers.schema.tables import Floats


def peaks(counters: Counters) -> dict[str, Floats]:
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
