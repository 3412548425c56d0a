"""One sentence per kernel on why it is as slow as it is, from what was collected. The rules are `diagnosis.toml`.

Quantities are those of all launches of a kernel: ratios of sums, and means weighted with time. What was not collected
is NaN, fulfils no condition, and the groups of metrics that would say more are named.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.metrics import table as metrics_table
from ncu_parsers import tables
from ncu_parsers.tables import Floats

from ncu_tools.ceilings import unit_title
from ncu_tools.hotspots import Hotspot, grouping

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SECTORS, REQUESTS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum", "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
LOCAL = (
    ("smsp__sass_inst_executed_op_local_ld.sum", "smsp__sass_inst_executed_op_local_st.sum"),
    ("sass__inst_executed_local_loads", "sass__inst_executed_local_stores"),
    ("l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum", "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum"),
)
"""Warp instructions that load and store local memory: the first pair that a report has."""
SPILLS = "sass__inst_executed_register_spilling"
ALL_INSTRUCTIONS = ("smsp__inst_executed.sum", "sm__inst_executed.sum")
FEW = 0.01
"""The share of a kernel's instructions below which those of local memory are not what makes it slow."""
MEANS = {
    "waves": "launch__waves_per_multiprocessor",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm_busy": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "memory_busy": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
}
DRAM_BUSY = (
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
)
CONSTANT_MOVES = "may be constant moves"
"""What `flops_basis` says where FP16 FLOPs are those of an instruction that compilers also move constants with."""
BELOW_EVERY_ROOF = "below every roof"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


@dataclass(frozen=True)
class Rule:
    """A cause: the conditions on quantities, all of which must hold, and what is said then."""

    id: str
    when: Mapping[str, Mapping[str, float]]
    says: str
    source: str
    needs: Sequence[str] = ()
    confirmed_by: Sequence[str] = ()

    def fits(self, quantities: Mapping[str, float]) -> bool:
        """Whether every condition holds. NaN fulfils none."""
        return all(_holds(quantities.get(name, np.nan), limits) for name, limits in self.when.items())

    def lacks(self, quantities: Mapping[str, float]) -> bool:
        """Whether it could fit, had something that it looks at been collected."""
        known = {name: quantities[name] for name in self.when if not np.isnan(quantities.get(name, np.nan))}
        return len(known) < len(self.when) and all(_holds(known[name], self.when[name]) for name in known)


def _holds(value: float, limits: Mapping[str, float]) -> bool:
    tests = {
        "at_least": value >= limits.get("at_least", 0),
        "above": value > limits.get("above", 0),
        "at_most": value <= limits.get("at_most", 0),
        "below": value < limits.get("below", 0),
    }
    return all(tests[name] for name in limits)


@cache
def _facts() -> dict[str, Any]:
    return tomllib.loads((files("ncu_tools") / "diagnosis.toml").read_text("utf-8"))


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule, in the order in which they are tried."""
    return tuple(Rule(**entry) for entry in _facts()["rule"])


def diagnoses(table: pa.Table, kernels: Sequence[Hotspot], group: str) -> dict[str, str]:
    """A sentence for each kernel of which something can be said. `group` is how `kernels` were grouped.

    Where no rule fits a kernel that ncu saw, it names what to collect.
    """
    keys, titles = grouping(table, group)
    collected = _quantities(table, keys, len(titles))
    inputs = _inputs(table, keys, len(titles))
    places = {title: place for place, title in enumerate(titles)}
    by_ncu = np.array([(source or "").startswith("ncu") for source in tables.words(table, "source")], bool)
    seen = set(keys[by_ncu].tolist())
    found = {}
    for kernel in kernels:
        place = places[kernel.kernel]
        quantities = {name: float(values[place]) for name, values in collected.items()} | _of_kernel(kernel)
        quantities |= _of_inputs(inputs[place], quantities)
        sentence = diagnose(quantities, kernel.bound or "", inputs[place].words)
        if not sentence and place in seen:
            sentence = _lacking(quantities)
        if sentence:
            found[kernel.kernel] = sentence
    return found


def diagnose(quantities: Mapping[str, float], bound: str, inputs: str = "") -> str:
    """What the first rule that fits says, with the groups that would confirm it or say more; "" where none fits.

    `bound` and `inputs` are words: what bounds the kernel, and the type of what it multiplies with who says so.
    """
    rule = next((rule for rule in rules() if rule.fits(quantities)), None)
    if rule is None:
        return ""
    missing = _missing(quantities)
    says = rule.says.format(bound=bound, inputs=inputs, top_stall_reason=_stall_reason(quantities), **quantities)
    if rule.id == BELOW_EVERY_ROOF:
        return f"{says}; {', '.join(missing)} would say why" if missing else says
    others = [group for group in missing if group in rule.confirmed_by]
    return f"{says}; {', '.join(others)} would confirm it" if others else says


def _lacking(quantities: Mapping[str, float]) -> str:
    missing = _missing(quantities)
    return f"not known from what was collected; {', '.join(missing)} would say more" if missing else ""


def _missing(quantities: Mapping[str, float]) -> list[str]:
    """The groups of metrics that a rule looks at and that were not collected."""
    return sorted({group for rule in rules() if rule.lacks(quantities) for group in rule.needs})


def _of_kernel(kernel: Hotspot) -> dict[str, float]:
    """What the roofline says of a kernel already. A unit that no kernel used is not among its work.

    Without a complete count, tensor cores may have done what was not collected; and what may be constant moves is no
    arithmetic in FP16.
    """
    tensor = [amount for unit, amount in kernel.work.items() if unit.startswith("tensor_")]
    half = kernel.work.get("fp16", 0.0)
    known = kernel.flops is not None and not kernel.flops_lower_bound
    doubtful = CONSTANT_MOVES in (kernel.flops_basis or "")
    share = half / kernel.flops if half is not None and kernel.flops else 0.0 if known else np.nan
    return {
        "bound_fraction": np.nan if kernel.bound_fraction is None else kernel.bound_fraction,
        "half_share": np.nan if doubtful or not known else share,
        "half_is_nearest": np.nan if kernel.bound is None else float(kernel.bound == unit_title("fp16")),
        "tensor_flops": float(sum(filter(None, tensor))) if known and None not in tensor else np.nan,
    }


@dataclass(frozen=True)
class _Inputs:
    """What the launches of a kernel multiply: the type of the inputs, "" where nothing says, and how that is known."""

    type: str = ""
    says: str = ""
    is_product: bool = False
    is_vector: bool = False

    @property
    def words(self) -> str:
        return f"{self.type} (by {self.says})"


def _inputs(table: pa.Table, keys: npt.NDArray[np.int64], groups: int) -> list[_Inputs]:
    """The inputs of each group: by its operators' tensors where a trace recorded them, else by its kernels' names.

    A group whose launches have inputs of different types has none that is known.
    """
    codes, names = tables.codes(table, "kernel_name")
    of_names = [_named(name or "") for name in names]
    types, kinds = tables.codes(table, "dtype") if "dtype" in table.column_names else (None, [])
    of_types = [_type_in(words or "") for words in kinds]
    found: list[set[_Inputs]] = [set() for _ in range(groups)]
    pairs = np.stack([keys, codes, types if types is not None else np.full(len(keys), -1)])
    for key, code, kind in np.unique(pairs, axis=1).T.tolist():
        inputs = of_names[code]
        if kind >= 0 and of_types[kind]:
            inputs = replace(inputs, type=of_types[kind], says="the operator's tensors")
        found[key].add(inputs)
    return [next(iter(inputs)) if len({one.type for one in inputs}) == 1 else _Inputs() for inputs in found]


def _named(name: str) -> _Inputs:
    names = _facts()["names"]
    is_product, is_vector = (bool(re.search(names[kind], name)) for kind in ("products", "vectors"))
    return _Inputs(_type_in(name), "the kernel's name", is_product, is_vector)


def _type_in(words: str) -> str:
    """The first 16-bit type that words name, "" where they name none."""
    return next((kind for kind, pattern in _facts()["inputs"].items() if re.search(pattern, words)), "")


def _of_inputs(inputs: _Inputs, quantities: Mapping[str, float]) -> dict[str, float]:
    """What is known of a kernel by its inputs: whether they are of 16 bits, and what tensor cores did with them."""
    counted = quantities.get(f"tensor_flops_{inputs.type}", np.nan)
    return {
        "half_inputs": float(bool(inputs.type)),
        "matrix_product": float(inputs.is_product),
        "vector_product": float(inputs.is_vector),
        "tensor_flops_of_inputs": quantities["tensor_flops"] if np.isnan(counted) else counted,
    }


def _quantities(table: pa.Table, keys: npt.NDArray[np.int64], groups: int) -> dict[str, Floats]:
    """Every quantity that metrics of the report give, one value per group.

    Instructions of local memory are 0 where they are known to be few of all.
    """

    def total(name: str) -> Floats:
        values = tables.floats(table, name)
        sums = np.bincount(keys, np.nan_to_num(values), groups)
        return np.where(np.bincount(keys, np.isnan(values), groups) > 0, np.nan, sums)

    seconds = np.nan_to_num(tables.floats(table, "duration_ns"))
    weight = np.where(np.bincount(keys, seconds, groups)[keys] > 0, seconds, 1.0)

    def mean(name: str) -> Floats:
        values = tables.floats(table, name)
        known = ~np.isnan(values)
        with np.errstate(invalid="ignore"):
            return np.bincount(keys[known], (values * weight)[known], groups) / np.bincount(
                keys[known], weight[known], groups
            )

    with np.errstate(divide="ignore", invalid="ignore"):
        result = {
            "sectors_per_load": total(SECTORS.format("ld")) / total(REQUESTS.format("ld")),
            "sectors_per_store": total(SECTORS.format("st")) / total(REQUESTS.format("st")),
        }
    executed = _first([total(name) for name in ALL_INSTRUCTIONS])
    local = _first([total(loads) + total(stores) for loads, stores in LOCAL])
    amounts = {"local_instructions": local, "spill_instructions": total(SPILLS)}
    result |= {name: np.where(amount < FEW * executed, 0.0, amount) for name, amount in amounts.items()}
    result |= {name: total(name) for name in ("tensor_flops_fp16", "tensor_flops_bf16")}
    result |= {name: mean(metric) for name, metric in MEANS.items()}
    result["dram_busy"] = np.fmax.reduce([mean(metric) for metric in DRAM_BUSY])
    stalls = {reason: mean(STALL.format(reason)) for reason in stall_reasons()}
    result |= {f"stall {reason}": values for reason, values in stalls.items()}
    with np.errstate(invalid="ignore"):
        result["top_stall"] = np.fmax.reduce(list(stalls.values()))
    return result


@cache
def looked_at() -> frozenset[str]:
    """The metrics of a report that a diagnosis can depend on, beside the columns of the contract."""
    accesses = (pattern.format(access) for pattern in (SECTORS, REQUESTS) for access in ("ld", "st"))
    local = (name for pair in LOCAL for name in pair)
    stalls = map(STALL.format, stall_reasons())
    return frozenset((*accesses, *local, SPILLS, *ALL_INSTRUCTIONS, *MEANS.values(), *DRAM_BUSY, *stalls))


def _first(alternatives: Sequence[Floats]) -> Floats:
    """For each group the first value that is known."""
    result = alternatives[0]
    for other in alternatives[1:]:
        result = np.where(np.isnan(result), other, result)
    return result


@cache
def stall_reasons() -> dict[str, str]:
    """The reasons for stalls that the group stalls collects, each with its meaning; being ready is none."""
    group = next(group for group in metrics_table("groups")["group"] if group["name"] == "stalls")
    start, end = STALL.split("{}")
    reasons = {one["name"].removeprefix(start).removesuffix(end): one["meaning"] for one in group["counters"]}
    return {reason: meaning for reason, meaning in reasons.items() if reason != "not_selected"}


def _stall_reason(quantities: Mapping[str, float]) -> str:
    values = {reason: quantities.get(f"stall {reason}", np.nan) for reason in stall_reasons()}
    known = {reason: value for reason, value in values.items() if not np.isnan(value)}
    return stall_reasons()[max(known, key=lambda reason: known[reason])] if known else ""
