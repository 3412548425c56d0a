"""Utilisation of each resource and stalls of warps by kernel: from percentages, else from sums and clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from ncu_launch.counters.metrics import TENSOR_FLOAT_PRECISIONS, TENSOR_INTEGER_PRECISIONS
from ncu_launch.files.toml_tables import table_beside
from ncu_parsers.schema import tables
from ncu_parsers.schema.instructions_table import STALLS
from ncu_parsers.schema.tables import Floats

from ncu_tools.advice.situation.means import KernelMeans

ELAPSED, ACTIVE = "pct_of_peak_sustained_elapsed", "pct_of_peak_sustained_active"
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLED_SHARE = "smsp__warp_issue_stalled_{}_per_warp_active.pct"
SAMPLED = "smsp__pcsamp_warps_issue_stalled_{}"
ISSUED = "selected"
"""The state of a warp that issues, which is not a stall."""
LEAST_STALLS = 2
"""With fewer stall reasons collected, shares of stalls are unknown."""
FEWEST_SMS = 1e-3
TENSOR_COLUMNS = (
    *(f"tensor_flops_{one}" for one in TENSOR_FLOAT_PRECISIONS),
    *(f"tensor_ops_{one}" for one in TENSOR_INTEGER_PRECISIONS),
)
"""Columns of tensor-core work by type; the peak of each is in the column of its name after "peak_"."""
OPERATIONS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"

Sources = dict[str, tuple[str, ...]]


@cache
def resources() -> Mapping[str, Mapping[str, Any]]:
    """Resource -> its title, counters, place, and highest utilisation (`resources.toml`)."""
    return table_beside(__file__, "resources")


@cache
def metrics_of_resources() -> frozenset[str]:
    """Every metric that utilisations and stalls are taken from."""
    counters = [one for spec in resources().values() for one in (*spec["elapsed"], spec.get("throughput"))]
    shares = (f"{one}.avg.{form}" for one in counters if one for form in (ELAPSED, ACTIVE))
    stalls = (pattern.format(_written(one, pattern)) for pattern in (STALLED, STALLED_SHARE, SAMPLED) for one in STALLS)
    operations = (OPERATIONS.format(one) for one in ("dfma", "ffma"))
    return frozenset((*shares, *stalls, *operations))


def busy_shares(means: KernelMeans, numbers: Mapping[str, Floats]) -> tuple[dict[str, Floats], Sources]:
    """Resource -> the share of elapsed time that it is busy, on SMs that have work; and the metrics behind it.

    A grid of fewer blocks than SMs leaves some SMs without work, and still ends when the others do.
    """
    active = 1.0 - tables.or_zero(numbers["idle"])
    found: dict[str, Floats] = {}
    sources: Sources = {}
    for resource, spec in resources().items():
        parts = [*spec["elapsed"], *([spec["throughput"]] if "throughput" in spec else [])]
        values, source = _busiest(means, parts, active if spec["on"] == "sm" else None)
        if source:
            found[resource], sources[resource] = values, source
    for resource, values, metric in _by_sums(means, numbers):
        if resource not in found:
            found[resource], sources[resource] = values, (metric,)
    per_sm = numbers["blocks_per_sm"]
    at_work = np.clip(np.where(np.isnan(per_sm), 1.0, per_sm), FEWEST_SMS, 1.0)
    found = {name: values / at_work if resources()[name]["on"] == "sm" else values for name, values in found.items()}
    if "l1" not in found and "l1_active" in numbers:
        found["l1"], sources["l1"] = numbers["l1_active"], ("l1tex__throughput.avg.pct_of_peak_sustained_active",)
    return {name: np.clip(values, 0.0, 1.0) for name, values in found.items()}, sources


def _busiest(means: KernelMeans, counters: Sequence[str], active: Floats | None) -> tuple[Floats, tuple[str, ...]]:
    """The largest of some counters in elapsed time (or the `active` part of it), and the counter that has it."""
    best, most = tables.unknown(means.count), -1.0
    source: tuple[str, ...] = ()
    for counter in counters:
        name = f"{counter}.avg.{ELAPSED}"
        values = means.of(name) * 0.01
        if np.isnan(values).all() and active is not None:
            name = f"{counter}.avg.{ACTIVE}"
            values = means.of(name) * 0.01 * active
        if not np.isnan(values).all():
            best = np.fmax(best, values)
            if float(np.nanmax(values)) > most:
                most, source = float(np.nanmax(values)), means.metrics.behind(name) or (name,)
    return best, source


def _by_sums(means: KernelMeans, numbers: Mapping[str, Floats]) -> list[tuple[str, Floats, str]]:
    """Utilisations from sums and clocks where no percentage was collected: work / (peak x time).

    Each comes with its main metric; of several for one resource the first counts.
    """
    nothing = tables.unknown(means.count)

    def number(*names: str) -> Floats:
        return np.asarray(np.sum([numbers.get(name, nothing) for name in names], axis=0), np.float64)

    seconds = means.column("duration_ns") * 1e-9
    cycles = np.where(np.isnan(number("cycles")), seconds * number("sm_clock_hz"), number("cycles"))
    active = 1 - tables.or_zero(numbers["idle"])
    fp64, fp32 = ("dadd", "dmul", "dfma"), ("fadd", "fmul", "ffma")
    with np.errstate(invalid="ignore", divide="ignore"):
        rows = [
            ("dram", number("dram_bytes") / (seconds * number("peak_dram_bytes")), "dram__bytes.sum"),
            ("l2", number("l2_bytes") / (seconds * number("peak_l2_bytes")), "lts__t_bytes.sum"),
            ("fp64", number(*(f"{one}_rate" for one in fp64)) / number("dfma_peak"), OPERATIONS.format("dfma")),
            ("fp64", number(*fp64) / (cycles * number("dfma_peak")), OPERATIONS.format("dfma")),
            ("fp64", number("flops_fp64") / (seconds * number("peak_flops_fp64")), OPERATIONS.format("dfma")),
            ("fma", number(*(f"{one}_rate" for one in fp32)) / number("ffma_peak"), OPERATIONS.format("ffma")),
            ("fma", number(*fp32) / (cycles * number("ffma_peak")), OPERATIONS.format("ffma")),
            ("tensor", _tensor_busy(numbers, seconds), "sm__ops_path_tensor_src_*.sum"),
            ("issue", number("instructions") / (4 * cycles * number("sm_count")), "smsp__inst_executed.sum"),
            ("issue", number("issue_per_cycle") * active, "smsp__issue_active.avg.per_cycle_active"),
            (
                "l1",
                number("counted_wavefronts") / (cycles * number("sm_count")),
                "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
            ),
        ]
    return [(name, values, metric) for name, values, metric in rows if not np.isnan(values).all()]


def _tensor_busy(numbers: Mapping[str, Floats], seconds: Floats) -> Floats:
    """The share of the time that tensor cores would need at peak for their work; NaN if unknown."""
    found = np.where(np.isnan(numbers["tensor_flops"]), np.nan, 0.0)
    for column in TENSOR_COLUMNS:
        done, peak = numbers[column], numbers[f"peak_{column}"]
        found = found + np.where(done > 0, done / (seconds * peak), 0.0)
    return np.where(found > 0, found, np.nan)


def stall_shares(means: KernelMeans) -> tuple[dict[str, Floats], tuple[str, ...]]:
    """The share of a warp's time by stall reason, from cycles per issue, shares or samples; and its metrics."""
    for pattern in (STALLED, STALLED_SHARE, SAMPLED):
        found = {one: means.of(pattern.format(_written(one, pattern))) for one in STALLS}
        found = {one: values for one, values in found.items() if not np.isnan(values).all()}
        if len(found) < LEAST_STALLS:
            continue
        whole = np.full(means.count, 100.0)
        if pattern != STALLED_SHARE:
            issuing = 0.0 if ISSUED in found or pattern == SAMPLED else 1.0
            whole = np.nansum(list(found.values()), axis=0) + issuing
        with np.errstate(invalid="ignore", divide="ignore"):
            return {one: values / whole for one, values in found.items() if one != ISSUED}, (pattern.format("*"),)
    return {}, ()


def _written(reason: str, pattern: str) -> str:
    """A stall reason as these metrics spell it: only metrics of samples have the plural "no_instructions"."""
    return reason if pattern == SAMPLED else reason.replace("no_instructions", "no_instruction")
