"""What a diagnosis looks at, of all launches of each kernel: ratios of sums, and means weighted with time.

Everything is kept as sums, a stretch of launches at a time, so that it can be merged, and a run of any size diagnosed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.metrics import table as metrics_table
from ncu_parsers import tables
from ncu_parsers.parquet import launch_stretches
from ncu_parsers.tables import Floats

from ncu_tools.file_sums import OF_GROUPS, notes_of_reports, sums_of_run
from ncu_tools.hotspots import grouping
from ncu_tools.kernel_sums import NamedSums
from ncu_tools.loading import OnDisk, Run

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
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
OF_THE_CONTRACT = ("source", "kernel_name", "kernel_short", "dtype", "duration_ns", "invocations")
SUMMED = ("tensor_flops_fp16", "tensor_flops_bf16")


@cache
def facts() -> dict[str, Any]:
    """The tables of `diagnosis.toml`."""
    return tomllib.loads(Path(__file__).with_name("diagnosis.toml").read_text("utf-8"))


@dataclass(frozen=True)
class Inputs:
    """What the launches of a kernel multiply: the type of the inputs, "" where nothing says, and how that is known."""

    type: str = ""
    says: str = ""
    is_product: bool = False
    is_vector: bool = False

    @property
    def words(self) -> str:
        """The type, and who says so."""
        return f"{self.type} (by {self.says})"


class DiagnosisSums:
    """Sums over the launches of each kernel; `group` is how kernels are told apart, as in `hotspots.grouping`."""

    def __init__(self, group: str) -> None:
        self.reports: dict[str, None] = {}
        self._group = group
        self._numbers: dict[str, int] = {}
        self._sums = NamedSums()
        self._inputs: dict[int, dict[Inputs, None]] = {}
        self._of_ncu: set[int] = set()

    def add(self, table: pa.Table) -> None:
        """Take the next launches."""
        self.reports |= notes_of_reports(table)
        places, titles = grouping(table, self._group)
        keys = self._numbered(titles)[places]
        self._sums.turn_to(keys, len(self._numbers))
        weight = tables.launch_counts(table)
        seconds = np.nan_to_num(tables.floats(table, "duration_ns")) * weight
        self._sums.add("launches", weight)
        self._sums.add("time", seconds)
        for name in sorted(({*looked_at(), *SUMMED}) & set(table.column_names)):
            values = tables.floats(table, name)
            known = ~np.isnan(values)
            self._sums.add(name, values * weight, known)
            self._sums.add(f"{name} known", weight, known)
            self._sums.add(f"{name} by time", values * seconds, known)
            self._sums.add(f"{name} time", seconds, known)
        self._note_inputs(table, keys)
        by_ncu = np.array([(source or "").startswith("ncu") for source in tables.words(table, "source")], bool)
        self._of_ncu.update(keys[by_ncu].tolist())

    def merge(self, other: DiagnosisSums) -> None:
        """Take what comes behind."""
        self.reports |= other.reports
        numbers = self._numbered(list(other._numbers))
        self._sums.turn_to(numbers, len(self._numbers))
        for name in other._sums.names:
            self._sums.add(name, other._sums.of(name))
        for key, inputs in other._inputs.items():
            self._inputs.setdefault(int(numbers[key]), {}).update(inputs)
        self._of_ncu.update(numbers[list(other._of_ncu)].tolist())

    def _numbered(self, titles: Sequence[str]) -> npt.NDArray[np.int64]:
        return np.array([self._numbers.setdefault(title, len(self._numbers)) for title in titles], np.int64)

    def _note_inputs(self, table: pa.Table, keys: npt.NDArray[np.int64]) -> None:
        """The inputs by the operators' tensors where a trace recorded them, else by the kernels' names."""
        codes, names = tables.codes(table, "kernel_name")
        of_names = [_named(name or "") for name in names]
        types, kinds = tables.codes(table, "dtype") if "dtype" in table.column_names else (None, [])
        of_types = [_type_in(words or "") for words in kinds]
        pairs = np.stack([keys, codes, types if types is not None else np.full(len(keys), -1)])
        for key, code, kind in np.unique(pairs, axis=1).T.tolist():
            inputs = of_names[code]
            if kind >= 0 and of_types[kind]:
                inputs = replace(inputs, type=of_types[kind], says="the operator's tensors")
            self._inputs.setdefault(key, {})[inputs] = None

    # ------------------------------------------------------------------------------------------------------ results

    def number(self, kernel: str) -> int:
        """The place of a kernel in every quantity. Raises `KeyError` where none is called so."""
        return self._numbers[kernel]

    def is_of_ncu(self, place: int) -> bool:
        """Whether a launch of the kernel was seen by ncu."""
        return place in self._of_ncu

    def inputs(self, place: int) -> Inputs:
        """What the launches of a kernel multiply; nothing is known where they have inputs of different types."""
        found = list(self._inputs.get(place, ()))
        return found[0] if len({one.type for one in found}) == 1 else Inputs()

    def quantities(self) -> dict[str, Floats]:
        """Every quantity that metrics give, one value per kernel.

        Instructions of local memory are 0 where they are known to be few of all.
        """
        total, mean = self._total, self._mean
        with np.errstate(divide="ignore", invalid="ignore"):
            result = {
                "sectors_per_load": total(SECTORS.format("ld")) / total(REQUESTS.format("ld")),
                "sectors_per_store": total(SECTORS.format("st")) / total(REQUESTS.format("st")),
            }
        executed = _first([total(name) for name in ALL_INSTRUCTIONS])
        local = _first([total(loads) + total(stores) for loads, stores in LOCAL])
        amounts = {"local_instructions": local, "spill_instructions": total(SPILLS)}
        result |= {name: np.where(amount < FEW * executed, 0.0, amount) for name, amount in amounts.items()}
        result |= {name: total(name) for name in SUMMED}
        result |= {name: mean(metric) for name, metric in MEANS.items()}
        result["dram_busy"] = np.fmax.reduce([mean(metric) for metric in DRAM_BUSY])
        stalls = {reason: mean(STALL.format(reason)) for reason in stall_reasons()}
        result |= {f"stall {reason}": values for reason, values in stalls.items()}
        with np.errstate(invalid="ignore"):
            result["top_stall"] = np.fmax.reduce(list(stalls.values()))
        return result

    def _total(self, name: str) -> Floats:
        """The sum of a metric, NaN unless every launch has it."""
        of = self._sums.of
        return np.where(of(f"{name} known") == of("launches"), of(name), np.nan)

    def _mean(self, name: str) -> Floats:
        """The mean of a metric over the launches that have it, weighted with their time where the kernel's is known."""
        of = self._sums.of
        timed = of("time") > 0
        amounts = np.where(timed, of(f"{name} by time"), of(name))
        with np.errstate(invalid="ignore", divide="ignore"):
            return amounts / np.where(timed, of(f"{name} time"), of(f"{name} known"))


def sums_to_diagnose(run: OnDisk | Run, group: str) -> DiagnosisSums:
    """What a diagnosis looks at of a run, with some launches in memory at a time.

    Raises `NcuBenchError` as `sums_of_run` does.
    """
    columns = {*OF_THE_CONTRACT, *OF_GROUPS[group], *SUMMED, *looked_at()}
    return sums_of_run(run, partial(DiagnosisSums, group), partial(launch_stretches, columns=columns))


def _named(name: str) -> Inputs:
    names = facts()["names"]
    is_product, is_vector = (bool(re.search(names[kind], name)) for kind in ("products", "vectors"))
    return Inputs(_type_in(name), "the kernel's name", is_product, is_vector)


def _type_in(words: str) -> str:
    """The first 16-bit type that words name, "" where they name none."""
    return next((kind for kind, pattern in facts()["inputs"].items() if re.search(pattern, words)), "")


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
