"""Which counters say what: FLOPs, tensor operations, bytes and ceilings, read from the tables in `metrics/`.

The tables are data with their sources beside them; this file only gives them types. Weights and names hold for every
tool version unless a table says otherwise.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CUDA_CORE_PRECISIONS = ("fp64", "fp32", "fp16")
TENSOR_FLOAT_PRECISIONS = ("fp64", "tf32", "bf16", "fp16", "fp8", "fp6", "fp4")
TENSOR_INTEGER_PRECISIONS = ("int8", "int4", "int1")
MEMORY_LEVELS = ("dram", "l2", "l1")

TENSOR_PREFIX = "sm__ops_path_tensor_"
SASS_PREFIXES = ("smsp__sass_thread_inst_executed_op_", "sm__sass_thread_inst_executed_op_")

Alternative = dict[str, float]
"""Counters that together make one quantity, each with its factor."""


class CounterPeak(NamedTuple):
    """A peak a report can hold: `metric` x `factor` x the clock of the domain `clock`."""

    column: str
    metric: str
    factor: float
    clock: str


class L1Parts(NamedTuple):
    """Counters that add up to the traffic at L1, and bytes per count.

    `must_be_zero` are counters of what the sum may lack, each with the compute capability from which there is any.
    """

    counters: list[str]
    bytes_per_count: float
    must_be_zero: list[tuple[float, list[str]]]


class TensorCounter(NamedTuple):
    """What a name `sm__ops_path_tensor_...` counts.

    `total` is the name without sparsity and instruction: counters that share it are parts of one count.
    `part` is "" for the total itself, else what it is restricted to ("sparsity_off", "op_hgmma sparsity_off").
    """

    total: str
    precision: str
    part: str


@cache
def table(name: str) -> dict[str, Any]:
    """The parsed table `tables/<name>.toml`."""
    return tomllib.loads((Path(__file__).parent / "tables" / f"{name}.toml").read_text("utf-8"))


def flop_weights(precision: str) -> dict[str, float]:
    """FLOPs per counted thread instruction of each opcode, for one of `CUDA_CORE_PRECISIONS`."""
    return dict(table("flops")[precision]["weights"])


def packed_fp32_weights() -> dict[str, float]:
    """FLOPs per counted packed FP32 instruction (GB100, GB110)."""
    return dict(table("flops")["fp32"]["packed"]["weights"])


def has_packed_fp32(compute_capability: str | None) -> bool:
    """Whether the chip counts packed FP32 instructions apart."""
    return compute_capability in table("flops")["fp32"]["packed"]["compute_capabilities"]


def moves_constants_with_hfma(compute_capability: str | None) -> bool:
    """Whether an hfma count may be nothing but constant moves on this chip (true where unknown)."""
    return compute_capability not in table("flops")["fp16"]["phantom"]["free_compute_capabilities"]


def byte_alternatives(level: str) -> list[Alternative]:
    """Ways to count the bytes of a level (one of `dram dram_read dram_write l2 l1`), best first."""
    return [dict(alternative) for alternative in table("bytes")[level]]


def l1_parts() -> L1Parts:
    """The counters whose sum is what was requested at L1."""
    parts = table("bytes")["l1_parts"]
    unlisted = [(entry["since"], list(entry["counters"])) for entry in parts["must_be_zero"]]
    return L1Parts(list(parts["counters"]), parts["bytes_per_count"], unlisted)


def may_be_from(since: float, compute_capability: str | None) -> bool:
    """Whether a chip has a compute capability of at least `since`; one that is not known may."""
    known = re.match(r"[0-9]{1,3}\.[0-9]$", compute_capability or "")
    return known is None or float(known.group()) >= since


def is_system_memory(alternative: Alternative) -> bool:
    """Whether a way to count bytes counts those of the CPU's memory."""
    return not alternative.keys().isdisjoint(table("bytes")["system_memory"]["counters"])


def has_system_memory_alone(compute_capability: str | None) -> bool:
    """Whether a GPU has no DRAM of its own, as those of Jetson, Thor and GB10; of an unknown one nobody can tell."""
    return compute_capability in table("bytes")["system_memory"]["compute_capabilities"]


def ceilings() -> list[CounterPeak]:
    """Every ceiling a report can hold, best alternative first for each column."""
    return [CounterPeak(**entry) for entry in table("ceilings")["peak"]]


def clock_metrics(domain: str) -> list[str]:
    """Metrics that give the clock of a domain (`sm dram lts l1tex`) in Hz."""
    return list(table("ceilings")["clocks"][domain])


def floating_tensor_totals(compute_capability: str | None) -> list[str] | None:
    """The tensor counters that together hold every floating-point tensor operation; None where the chip is unknown."""
    for family in table("chips")["family"]:
        if compute_capability is not None and family.get("compute_capability") == compute_capability:
            names = (f"{TENSOR_PREFIX}{total}" for total in family["totals"])
            return [f"{name}.sum" for name in names if _counts_floats(name)]
    return None


def _counts_floats(base: str) -> bool:
    counter = tensor_counter(base)
    return counter is not None and counter.precision in TENSOR_FLOAT_PRECISIONS


def lacks_tensor_cores(compute_capability: str | None, device_name: str | None) -> bool:
    """Whether the device is known to have no tensor cores."""
    known = table("tensor")["no_tensor_cores"]
    if compute_capability in known["compute_capabilities"]:
        return True
    return compute_capability == "7.5" and any(part in (device_name or "") for part in known["device_names"])


def tensor_evidence(kind: str) -> list[list[str]]:
    """For each counter of a `kind` (`instructions floating pipe`) its forms, best first."""
    evidence = table("tensor")["evidence"]
    return [[f"{base}.{suffix}" for suffix in evidence["suffixes"]] for base in evidence[kind]]


def has_structured_sparsity(compute_capability: str | None) -> bool:
    """Whether the peak of a plain tensor total is the sparse one (true where unknown, as on every newer chip)."""
    return compute_capability not in table("tensor")["no_sparsity"]["compute_capabilities"]


@cache
def tensor_counter(metric: str) -> TensorCounter | None:
    """What the base name `metric` (no `.sum`) counts, or None when it is not a tensor-operation counter.

    `_realtime` names duplicate others for sampling and are refused.
    """
    if not metric.startswith(TENSOR_PREFIX) or metric.endswith("_realtime"):
        return None
    rest = metric.removeprefix(TENSOR_PREFIX)
    parts = []
    if rest.startswith("op_"):
        instruction, _, rest = rest.partition("_src_")
        parts.append(instruction)
        rest = "src_" + rest
    for sparsity in ("sparsity_off", "sparsity_on"):
        if rest.endswith("_" + sparsity):
            rest = rest.removesuffix("_" + sparsity)
            parts.append(sparsity)
    source = rest.removeprefix("src_").partition("_dst_")[0]
    precision = table("tensor")["precision"].get(source)
    if not rest.startswith("src_") or precision is None:
        return None
    return TensorCounter(rest, precision, " ".join(parts))
