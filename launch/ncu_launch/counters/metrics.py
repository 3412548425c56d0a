"""Counters of FLOPs, tensor operations, bytes and ceilings, read from the tables in `tables/`.

The tables cite their sources; this file only adds types. Weights and names hold for every ncu version unless a table
says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ncu_launch.files.toml_tables import tomllib

CUDA_CORE_PRECISIONS = ("fp64", "fp32", "fp16")
TENSOR_FLOAT_PRECISIONS = ("fp64", "tf32", "bf16", "fp16", "fp8", "fp6", "fp4")
TENSOR_INTEGER_PRECISIONS = ("int8", "int4", "int1")
MEMORY_LEVELS = ("dram", "l2", "l1")

TENSOR_PREFIX = "sm__ops_path_tensor_"
SASS_PREFIXES = ("smsp__sass_thread_inst_executed_op_", "sm__sass_thread_inst_executed_op_")

Alternative = dict[str, float]
"""Base names of counters that add up to one quantity, each with its factor."""


class CounterPeak(NamedTuple):
    """A ceiling in a report, for `column`: value of `metric` x `factor` x clock of the domain `clock`."""

    column: str
    metric: str
    factor: float
    clock: str


class L1Parts(NamedTuple):
    """Counters that add up to the traffic at L1, and the bytes per count.

    `must_be_zero`: counters of traffic missing from the sum, with the compute capability since which such traffic
    exists.
    """

    counters: list[str]
    bytes_per_count: float
    must_be_zero: list[tuple[float, list[str]]]


class TensorCounter(NamedTuple):
    """Meaning of a metric named `sm__ops_path_tensor_...`.

    `total` is the name without sparsity and instruction: counters with the same total are parts of one count. `part` is
    "" for the total itself, else its restriction ("sparsity_off", "op_hgmma sparsity_off").
    """

    total: str
    precision: str
    part: str


@cache
def table(name: str) -> dict[str, Any]:
    """Parse `tables/<name>.toml`."""
    return tomllib.loads((Path(__file__).parent / "tables" / f"{name}.toml").read_text("utf-8"))


def flop_weights(precision: str) -> dict[str, float]:
    """FLOPs per thread instruction, by opcode, for one of `CUDA_CORE_PRECISIONS`."""
    return dict(table("flops")[precision]["weights"])


def packed_fp32_weights() -> dict[str, float]:
    """FLOPs per packed FP32 thread instruction, by opcode (GB100, GB110, GR100)."""
    return dict(table("flops")["fp32"]["packed"]["weights"])


def counts_flops(metric: str) -> bool:
    """True if the metric with this full name counts FLOPs on CUDA cores, or operations on tensor cores."""
    base, _, suffix = metric.partition(".")
    weights = packed_fp32_weights().keys() | {name for one in CUDA_CORE_PRECISIONS for name in flop_weights(one)}
    of_cores = {f"{prefix}{opcode}_pred_on" for prefix in SASS_PREFIXES for opcode in weights}
    return suffix == "sum" and (base in of_cores or tensor_counter(base) is not None)


def counts_bytes(metric: str, level: str) -> bool:
    """True if the metric with this full name is one of the counters of a level's bytes (`dram l2 l1`)."""
    base, _, suffix = metric.partition(".")
    return suffix == "sum" and any(base in alternative for alternative in byte_alternatives(level))


def has_packed_fp32(compute_capability: str | None) -> bool:
    """True if the chip counts packed FP32 instructions separately; False if the chip is unknown."""
    return compute_capability in table("flops")["fp32"]["packed"]["compute_capabilities"]


def moves_constants_with_hfma(compute_capability: str | None) -> bool:
    """True if an hfma count may consist of constant moves only on this chip, or if the chip is unknown."""
    return compute_capability not in table("flops")["fp16"]["phantom"]["free_compute_capabilities"]


@cache
def opcode_counters() -> dict[str, str]:
    """SASS opcode without modifiers -> the counter of its instructions ("FFMA" -> "ffma")."""
    named = {counter: opcodes for counter, opcodes in table("flops")["opcodes"].items() if isinstance(opcodes, list)}
    return {opcode: counter for counter, opcodes in named.items() for opcode in opcodes}


def unplaced_opcodes() -> dict[str, str]:
    """SASS opcode without modifiers -> the counter that may or may not count it."""
    return dict(table("flops")["opcodes"]["unplaced"])


def is_conversion(opcode: str) -> bool:
    """True if the opcode, with its modifiers, is an addition that compilers use to convert a number."""
    name, *modifiers = opcode.split(".")
    conversion = table("flops")["opcodes"]["conversion"]
    return name == conversion["opcode"] and conversion["modifier"] in modifiers


def constant_move_by_opcode(opcode: str) -> bool | None:
    """True if compilers move constants with this opcode, False if it is certainly an FMA; None for other opcodes.

    `opcode` has all its modifiers; without any it may be either: None.
    """
    name, *modifiers = opcode.split(".")
    move = table("flops")["opcodes"]["constant_move"]
    if name != move["opcode"] or not modifiers:
        return None
    return modifiers == [move["modifier"]]


def idle_pipes(precision: str) -> list[list[str]]:
    """For each counter that is 0 only if this precision was not used, its metric names; [] if there is none."""
    suffixes = ["sum", *(f"{kind}.per_cycle_elapsed" for kind in ("sum", "avg")), *_shares()]
    return [[f"{base}.{suffix}" for suffix in suffixes] for base in table("flops")["idle_pipes"].get(precision, [])]


def _shares() -> list[str]:
    return [f"{kind}.pct_of_peak_sustained_{part}" for kind in ("sum", "avg") for part in ("active", "elapsed")]


def byte_alternatives(level: str) -> list[Alternative]:
    """Alternative counters of the bytes of a level (`dram dram_read dram_write l2 l1`), best first."""
    return [dict(alternative) for alternative in table("bytes")[level]]


def l1_parts() -> L1Parts:
    """The counters whose sum is the traffic requested at L1."""
    parts = table("bytes")["l1_parts"]
    unlisted = [(entry["since"], list(entry["counters"])) for entry in parts["must_be_zero"]]
    return L1Parts(list(parts["counters"]), parts["bytes_per_count"], unlisted)


def may_be_from(since: float, compute_capability: str | None) -> bool:
    """True if the compute capability is at least `since`, or unknown."""
    known = re.match(r"[0-9]{1,3}\.[0-9]$", compute_capability or "")
    return known is None or float(known.group()) >= since


def is_system_memory(alternative: Alternative) -> bool:
    """True if these counters count traffic of the CPU's memory."""
    return not alternative.keys().isdisjoint(table("bytes")["system_memory"]["counters"])


def has_system_memory_alone(compute_capability: str | None) -> bool:
    """True if the GPU has no DRAM of its own (Jetson, Thor, GB10); False if it has, or is unknown."""
    return compute_capability in table("bytes")["system_memory"]["compute_capabilities"]


def byte_metrics(level: str, compute_capabilities: Iterable[str | None]) -> list[str]:
    """The metrics to request for the bytes of a level (`dram l2 l1`) on all of these GPUs."""
    shared = table("bytes")["system_memory"]["counters"]
    chosen = [
        shared if level == "dram" and has_system_memory_alone(one) else byte_alternatives(level)[0]
        for one in sorted(set(compute_capabilities), key=str) or [None]
    ]
    return list(dict.fromkeys(f"{counter}.sum" for counters in chosen for counter in counters))


def ceilings() -> list[CounterPeak]:
    """Every ceiling that a report may hold; alternatives for a column are ordered best first."""
    return [CounterPeak(**entry) for entry in table("ceilings")["peak"]]


def clock_metrics(domain: str) -> list[str]:
    """Metrics that hold the clock of a domain (`sm dram lts l1tex`) in Hz."""
    return list(table("ceilings")["clocks"][domain])


def floating_tensor_totals(compute_capability: str | None) -> list[str] | None:
    """Tensor counters that add up to all floating-point tensor operations; None if the chip is unknown."""
    for family in table("chips")["family"]:
        if compute_capability is not None and family.get("compute_capability") == compute_capability:
            names = (f"{TENSOR_PREFIX}{total}" for total in family["totals"])
            return [f"{name}.sum" for name in names if _counts_floats(name)]
    return None


def _counts_floats(base: str) -> bool:
    counter = tensor_counter(base)
    return counter is not None and counter.precision in TENSOR_FLOAT_PRECISIONS


def lacks_tensor_cores(compute_capability: str | None, device_name: str | None) -> bool:
    """True if the device is known to have no tensor cores, by compute capability or, for 7.5, by name."""
    known = table("tensor")["no_tensor_cores"]
    if compute_capability in known["compute_capabilities"]:
        return True
    return compute_capability == "7.5" and any(part in (device_name or "") for part in known["device_names"])


def tensor_evidence(kind: str) -> list[list[str]]:
    """For each counter of a `kind` (`instructions floating warpgroups pipe`), its metric names, best first."""
    evidence = table("tensor")["evidence"]
    return [[f"{base}.{suffix}" for suffix in evidence["suffixes"]] for base in evidence[kind]]


def has_tensor_work_beside_the_pipe(compute_capability: str | None) -> bool:
    """True if some tensor operations may run on a pipe other than the counted tensor pipe."""
    return compute_capability in table("tensor")["evidence"]["beside_the_pipe"]


def has_warpgroup_instructions(compute_capability: str | None) -> bool:
    """True if tensor instructions of warpgroups (wgmma) have a counter of their own."""
    return compute_capability in table("tensor")["evidence"]["with_warpgroups"]


def has_structured_sparsity(compute_capability: str | None) -> bool:
    """True if a tensor total's peak is the sparse peak; also True for an unknown chip, as on every newer one."""
    return compute_capability not in table("tensor")["no_sparsity"]["compute_capabilities"]


@cache
def tensor_counter(metric: str) -> TensorCounter | None:
    """Parse the base name `metric` (without `.sum`); None if it is not a counter of tensor operations.

    `_realtime` metrics repeat others for sampling and give None.
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
