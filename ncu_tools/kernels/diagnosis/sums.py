"""The quantities of a diagnosis, per kernel: ratios of sums, and means weighted by time.

Everything is kept as sums over launches, added batch by batch, so sums can be merged and a run of any size can be
diagnosed. `rules.toml` names the metrics of each quantity.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.counters.metrics import has_tensor_work_beside_the_pipe
from ncu_parsers.schema import tables
from ncu_parsers.schema.metric_forms import MetricsInAnyForm, with_every_form
from ncu_parsers.schema.tables import Floats

from ncu_tools.ceilings.machine_files import machine_of_device
from ncu_tools.kernels.diagnosis.rule_texts import RULES, printed_numbers
from ncu_tools.kernels.diagnosis.rules import BY_RULE, STALL, facts, quantities, stall_reasons
from ncu_tools.kernels.grouping import rows_of
from ncu_tools.kernels.kernel_row import OF_SEVERAL
from ncu_tools.kernels.names.categories import category_of
from ncu_tools.numbers.row_sums import Family, Mean, Seen, Sum, TimedSums, ratio
from ncu_tools.runs.partition_sums import OF_GROUPS, in_batches, notes_of_reports, sums_of_run
from ncu_tools.runs.run import Run

SECTORS, REQUESTS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum", "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
SECTORS_PER_REQUEST = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{}.ratio"
LOCAL = (
    ("smsp__sass_inst_executed_op_local_ld.sum", "smsp__sass_inst_executed_op_local_st.sum"),
    ("sass__inst_executed_local_loads", "sass__inst_executed_local_stores"),
    ("l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum", "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum"),
)
"""Warp instructions that load and store local memory; the first pair that a report has counts."""
SPILLS = "sass__inst_executed_register_spilling"
LOCAL_SECTORS = ("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum")
L1_SECTORS = "l1tex__t_sectors.sum"
LOCAL_THEORETICAL = "memory_l2_theoretical_sectors_local"
ALL_INSTRUCTIONS = ("smsp__inst_executed.sum", "sm__inst_executed.sum")
SECTORS_EXCESSIVE = "derived__memory_l2_theoretical_sectors_global_excessive"
SECTORS_THEORETICAL = "memory_l2_theoretical_sectors_global"
SECTORS_IDEAL = "memory_l2_theoretical_sectors_global_ideal"
SECTORS_ASKED_OF_L2 = "lts__t_sectors_srcunit_tex.sum"
SECTOR_BYTES, WARP_THREADS = 32, 32
DRAM_BYTES_OF_A_SECTOR = 96
"""Upper bound on DRAM bytes per excess sector: 64 for itself, and 32 beside a needed one.

On an H100 DRAM read 4.29 GB for 67.1 million scattered sectors: 64 bytes each.
"""
WAVEFRONTS = (
    ("derived__memory_l1_wavefronts_shared_excessive", "memory_l1_wavefronts_shared"),
    ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"),
)
"""Shared-memory wavefronts added by conflicts, and all of them; the first pair that a report has counts."""
WAVEFRONTS_OF_ACCESSES = tuple(
    tuple(f"{one.removesuffix('.sum')}_op_{access}.sum" for one in WAVEFRONTS[1]) for access in ("ld", "st")
)
"""The same for loads and for stores alone, used for all if the others were not counted."""

PER_CENT, PER_CYCLE, OF_FOUR_SCHEDULERS = 0.01, 1.0, 0.25
MEANS: dict[str, tuple[tuple[str, float], ...]] = {
    "theoretical": (("sm__maximum_warps_per_active_cycle_pct", PER_CENT),),
    "achieved": (("sm__warps_active.avg.pct_of_peak_sustained_active", PER_CENT),),
    "issue": (
        ("smsp__issue_active.avg.per_cycle_active", PER_CYCLE),
        ("smsp__issue_active.avg.pct_of_peak_sustained_active", PER_CENT),
        ("sm__inst_issued.avg.pct_of_peak_sustained_active", PER_CENT),
        ("sm__inst_issued.avg.per_cycle_active", OF_FOUR_SCHEDULERS),
    ),
    "eligible": (("smsp__warps_eligible.avg.per_cycle_active", 1.0),),
    "latency": (("smsp__average_warp_latency_per_inst_issued.ratio", 1.0),),
    "lanes": (("smsp__thread_inst_executed_per_inst_executed.ratio", 1.0),),
    "registers": (("launch__registers_per_thread", 1.0),),
    "used_load_bytes": (("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio", 1.0),),
    "used_store_bytes": (("smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio", 1.0),),
    "sm_busy": (("sm__throughput.avg.pct_of_peak_sustained_elapsed", PER_CENT),),
    "memory_busy": (("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", PER_CENT),),
    "shared_wavefronts": (("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed", PER_CENT),),
    "l1_busy_while_active": (("l1tex__throughput.avg.pct_of_peak_sustained_active", PER_CENT),),
}
"""Quantity -> its metrics (the first one in a report is used), with the factor to a fraction."""

ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
LIMITERS = {
    "registers": "registers",
    "shared_mem": "shared memory",
    "blocks": "the number of blocks that an SM holds",
    "warps": "the block size",
    "barriers": "barriers",
}
"""Limits on the blocks per SM, as in launch__occupancy_limit_* -> their names in sentences."""
LIMIT = "launch__occupancy_limit_{}"
BLOCKS, THREADS = "launch__grid_size", "launch__block_size"
SM_COUNTS = ("device__attribute_multiprocessor_count", "launch__sm_count")
WAVES = "launch__waves_per_multiprocessor"
LEAST_WAVES_TO_TELL_SMS = 0.1
"""Number of waves above which two printed digits suffice to derive blocks per SM without the number of SMs."""
WAVES_PRINTED_TO = 0.006
"""Largest difference between a number of waves printed with two digits and the exact one."""
ACTIVE_CYCLES = "sm__cycles_active.avg"
SLICE_CYCLES = "lts__cycles_{}"
ACTIVE_SHARE = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
ELAPSED_CYCLES = ("sm__cycles_elapsed.max", "gpc__cycles_elapsed.max", "sm__cycles_elapsed.avg")
CONTRACT_COLUMNS = (
    "source", "kernel_name", "kernel_short", "dtype", "duration_ns", "invocations", "device_name", "grid", "block",
    "dram_bytes", "compute_capability",
)  # fmt: skip
SUMMED = ("tensor_flops_fp16", "tensor_flops_bf16", "dram_bytes")
STALLED_SHARE = "smsp__warp_issue_stalled_{}_per_warp_active.pct"
"""Time of warps in a stall, in % of their time on an SM."""
PIPE = "tensor_pipe"
"""The quantity whose metrics `rules.toml` names: the activity of the pipe of all tensor operations."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of a kernel's launches: their 16-bit type ("" if unknown), and its source in `says`."""

    type: str = ""
    says: str = ""
    is_product: bool = False
    is_vector: bool = False

    @property
    def description(self) -> str:
        """The type with its source."""
        return f"{self.type} (by {self.says})"


class DiagnosisSums(TimedSums):
    """Sums over the launches of each kernel; `group` is one of `hotspots.GROUPS`."""

    def __init__(self, group: str) -> None:
        super().__init__(of_several=group in OF_SEVERAL)
        self.reports: dict[str, None] = {}
        self._group = group
        self._values = Family(partial(Mean, self.rows))
        self._inputs: Seen[Inputs] = Seen()
        self._by_ncu = Sum(self.rows)
        self._behind: dict[str, tuple[str, ...]] = {}

    def add(self, table: pa.Table) -> None:
        """Add launches."""
        self.reports |= notes_of_reports(table)
        places, titles = rows_of(table, self._group)
        keys = self.rows.use(titles, places)
        weight = tables.launch_counts(table)
        seconds = np.nan_to_num(tables.floats(table, "duration_ns")) * weight
        self.launches.count(weight)
        self.seconds.add(seconds)
        metrics = MetricsInAnyForm(table)
        columns = {name: metrics.floats(name) for name in diagnosis_metrics() if metrics.behind(name)}
        columns |= {name: tables.floats(table, name) for name in SUMMED}
        by_rules = printed_numbers(table)
        columns |= launch_quantities(table, by_rules) | {PIPE: _tensor_pipe(table)}
        columns |= {name + BY_RULE: values for name, values in by_rules.items()}
        for name, values in sorted(columns.items()):
            known = ~np.isnan(values)
            if known.any():
                self._behind |= {name: metrics.behind(name)} if name in diagnosis_metrics() else {}
                self._values.made(name).add(values, weight, seconds, known)
        self._note_inputs(table, keys)
        self._by_ncu.count(np.array([(one or "").startswith("ncu") for one in tables.words(table, "source")], bool))

    def _note_inputs(self, table: pa.Table, keys: npt.NDArray[np.int64]) -> None:
        """Record inputs from the operators' tensors if a trace has them, else from the kernels' names."""
        codes, names = tables.codes(table, "kernel_name")
        of_names = [_inputs_by_name(name or "") for name in names]
        types, kinds = tables.codes(table, "dtype")
        of_types = [_type_in(words or "") for words in kinds]
        for key, code, kind in np.unique(np.stack([keys, codes, types]), axis=1).T.tolist():
            inputs = of_names[code]
            if of_types[kind]:
                inputs = replace(inputs, type=of_types[kind], says="the operator's tensors")
            self._inputs.add(key, [inputs])

    # ------------------------------------------------------------------------------------------------------ results

    def is_of_ncu(self, place: int) -> bool:
        """True if ncu profiled a launch of the kernel."""
        return bool(self._by_ncu.values[place])

    def metrics(self) -> Mapping[str, Sequence[str]]:
        """Metric -> the source columns in the report, for every metric that some launch has."""
        return self._behind

    def inputs(self, place: int) -> Inputs:
        """The inputs of a kernel's launches; empty if their types differ.

        A row of several kernels is a product only if each of them is, since it has their total time.
        """
        found = self._inputs.of(place)
        if len({one.type for one in found}) != 1:
            return Inputs()
        is_product, is_vector = all(one.is_product for one in found), any(one.is_vector for one in found)
        return replace(found[0], is_product=is_product, is_vector=is_vector)

    def quantities(self) -> dict[str, Floats]:
        """Every quantity that metrics give: float64, one per kernel; NaN if unknown."""
        result = {name: self._mean_of_first(metrics) for name, metrics in MEANS.items()}
        result |= {name: self._mean(name) for name in LAUNCH_QUANTITIES}
        result |= {name: self._total(name) for name in SUMMED}
        result |= self._of_small_grids()
        result[PIPE] = self._mean_of_all(PIPE)
        with np.errstate(divide="ignore", invalid="ignore"):
            result |= self._of_memory()
            result |= self._of_instructions()
        result |= {part: self._mean(metric) * PER_CENT for part, metric in part_metrics().items()}
        result |= {f"limit {name}": self._mean(LIMIT.format(name)) for name in LIMITERS}
        for reason in stall_reasons():
            result[f"stall {reason}"] = self._mean(STALL.format(reason))
            result[f"stalled {reason}"] = PER_CENT * self._mean(STALLED_SHARE.format(reason))
        return result | {name: self._mean(name) for name in self._values.members if name.endswith(BY_RULE)}

    def _of_small_grids(self) -> dict[str, Floats]:
        """Launches with fewer blocks than SMs, among launches with known blocks, and means over these alone."""
        small, means = self._values["small"], {}
        for name in OF_SMALL_GRIDS:
            means[name] = ratio(self._values[name].sum.values, self._values[name].launches.values)
        spread = means.pop("squares_of_small") - means["blocks_of_small"] ** 2
        counts = {"sized_launches": small.launches.values, "small_launches": small.sum.values}
        return {**counts, "blocks_spread": spread, **means}

    def _of_memory(self) -> dict[str, Floats]:
        total = self._total
        ideal = total(SECTORS_IDEAL)
        theoretical = total(SECTORS_THEORETICAL)
        excessive = _first_known([total(SECTORS_EXCESSIVE), theoretical - ideal])
        loaded, stored = (total(SECTORS.format(access)) for access in ("ld", "st"))
        asked, dram = total(SECTORS_ASKED_OF_L2), total("dram_bytes")
        wasted = np.where(np.isnan(asked), np.nan, np.maximum(np.fmin(excessive, asked - ideal), 0))
        overfetch = np.fmin(1 - ideal * SECTOR_BYTES / dram, wasted * DRAM_BYTES_OF_A_SECTOR / dram)
        of_loads, of_stores = (_share(total(added), total(whole)) for added, whole in WAVEFRONTS_OF_ACCESSES)
        conflicts = [*(_share(total(added), total(whole)) for added, whole in WAVEFRONTS), of_loads, of_stores]
        return {
            "sectors_per_load": self._per_request("ld"),
            "sectors_per_store": self._per_request("st"),
            "excessive_sectors": _share(excessive, theoretical),
            "load_sectors": _share(loaded, loaded + stored),
            "store_sectors": _share(stored, loaded + stored),
            "l2_overfetch": _share(wasted, asked),
            "dram_overfetch": np.where(dram > 0, np.maximum(overfetch, 0), np.nan),
            "conflicts": _first_known(conflicts),
            "load_conflicts": of_loads,
            "store_conflicts": of_stores,
            "local_sectors": _first_known(
                [
                    (total(LOCAL_SECTORS[0]) + total(LOCAL_SECTORS[1])) / total(L1_SECTORS),
                    _share(total(LOCAL_THEORETICAL), total(LOCAL_THEORETICAL) + theoretical),
                ]
            ),
        }

    def _per_request(self, access: str) -> Floats:
        sums = _share(self._total(SECTORS.format(access)), self._total(REQUESTS.format(access)))
        return _first_known([sums, self._mean_of_all(SECTORS_PER_REQUEST.format(access))])

    def _of_instructions(self) -> dict[str, Floats]:
        total = self._total
        executed = _first_known([total(name) for name in ALL_INSTRUCTIONS])
        local = _first_known([total(loads) + total(stores) for loads, stores in LOCAL])
        spilled = total(SPILLS)
        return {
            "local_instructions": local,
            "spill_instructions": spilled,
            "local": _share(local, executed),
            "spills": _share(spilled, executed),
        }

    def _total(self, name: str) -> Floats:
        """The sum of a metric, one per kernel; NaN unless every launch has it."""
        return self._values[name].whole(self.launches)

    def _mean_of_all(self, name: str) -> Floats:
        """The mean of a metric, one per kernel; NaN unless every launch has it."""
        return np.where(np.isnan(self._total(name)), np.nan, self._mean(name))

    def _mean_of_first(self, metrics: Iterable[tuple[str, float]]) -> Floats:
        return _first_known([self._mean(metric) * factor for metric, factor in metrics])

    def _mean(self, name: str) -> Floats:
        """The mean of a metric over the launches that have it, weighted by time if that is known; one per kernel.

        NaN for rows of several kernels in which launches with less than `MOSTLY_KNOWN` of the time have it.
        """
        return self.means(self._values[name])


LAUNCH_QUANTITIES = (
    "blocks", "threads", "warp_threads", "sm_count", "fitting", "blocks_per_sm", "waves", "empty_sms", "tail", "idle",
    "launch_ns", "small", "slice_busy", "slice_mean",
)  # fmt: skip
"""Quantities of a single launch that are not sums: computed per launch, then averaged over time."""


OF_SMALL_GRIDS = ("blocks_of_small", "squares_of_small", "empty_of_small")


def launch_quantities(table: pa.Table, by_rules: Mapping[str, Floats]) -> dict[str, Floats]:
    """`LAUNCH_QUANTITIES`: float64, one per launch, NaN if unknown: how a grid fills the GPU, and for how long.

    waves = blocks / (SMs x blocks that fit on an SM), unless the report or its rules (`by_rules`) print another number;
    empty_sms = 1 - blocks per SM, at least 0, and `small` is 1 where it is above 0, else 0;
    tail = (ceil(waves) - waves) / ceil(waves); idle = 1 - active / elapsed cycles of an SM, mean over the SMs;
    warp_threads = threads of a block / its warps.
    """

    column = MetricsInAnyForm(table).floats
    blocks = _first_known([column(BLOCKS), _sizes(table, "grid")])
    threads = _first_known([column(THREADS), _sizes(table, "block")])
    nothing = tables.unknown(len(table))
    sm_counts = [*(column(name) for name in SM_COUNTS), _sm_counts(table), by_rules.get("sm_count", nothing)]
    sm_count, by_rule = _first_known(sm_counts), by_rules.get("waves", nothing)
    fitting = np.fmin.reduce([column(LIMIT.format(name)) for name in LIMITERS])
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = np.where((sm_count > 0) & (fitting > 0), blocks / (sm_count * fitting), np.nan)
        printed = column(WAVES)
        waves = np.where(abs(exact - printed) <= WAVES_PRINTED_TO, exact, _first_known([printed, exact, by_rule]))
        by_waves = np.where(waves >= LEAST_WAVES_TO_TELL_SMS, waves * fitting, np.nan)
        blocks_per_sm = _first_known([np.where(sm_count > 0, blocks / sm_count, np.nan), by_waves])
        whole = np.ceil(waves)
        active = column(ACTIVE_CYCLES) / _first_known([column(name) for name in ELAPSED_CYCLES])
        idle = 1 - _first_known([active, PER_CENT * column(ACTIVE_SHARE)])
        empty = np.where(np.isnan(blocks), np.nan, np.maximum(1 - blocks_per_sm, 0))
        slices = column(SLICE_CYCLES.format("elapsed.max"))
        return {
            "blocks": blocks,
            "threads": threads,
            "warp_threads": threads / np.ceil(threads / WARP_THREADS),
            "sm_count": sm_count,
            "fitting": fitting,
            "blocks_per_sm": blocks_per_sm,
            "waves": waves,
            "empty_sms": empty,
            "small": np.where(np.isnan(empty), np.nan, empty > 0),
            "blocks_of_small": np.where(empty > 0, blocks, np.nan),
            "squares_of_small": np.where(empty > 0, blocks**2, np.nan),
            "empty_of_small": np.where(empty > 0, empty, np.nan),
            "slice_busy": np.minimum(column(SLICE_CYCLES.format("active.max")) / slices, 1),
            "slice_mean": column(SLICE_CYCLES.format("active.avg")) / slices,
            "tail": np.where(waves > 1, (whole - waves) / whole, 0 * waves),
            "idle": np.maximum(idle, 0),
            "launch_ns": tables.floats(table, "duration_ns"),
        }


def _sizes(table: pa.Table, column: str) -> Floats:
    """The number of blocks of each grid, or threads of each block: the product of its dimensions, NaN if unknown.

    A failed launch is reported with a grid of 0, not with the requested one.
    """
    codes, shapes = tables.list_codes(table, column)
    return np.array([float(np.prod(shape)) or np.nan if shape else np.nan for shape in shapes], np.float64)[codes]


def _tensor_pipe(table: pa.Table) -> Floats:
    """The activity of the pipe of all tensor operations, 0 to 1, one per launch.

    NaN if unknown: on chips with a second tensor pipe, and on unknown chips.
    """
    metrics = MetricsInAnyForm(table)
    active = np.fmax.reduce([metrics.floats(name) for name in quantities()[PIPE].metrics])
    codes, chips = tables.codes(table, "compute_capability")
    is_whole = np.array([bool(chip) and not has_tensor_work_beside_the_pipe(chip) for chip in chips], bool)
    return np.where(is_whole[codes], active * PER_CENT, np.nan)


def _sm_counts(table: pa.Table) -> Floats:
    """SMs of each launch's device by its data sheet; NaN if the device has no machine file."""
    codes, names = tables.codes(table, "device_name")
    machines = [machine_of_device(name) for name in names]
    return np.array([float(one.sm_count) if one and one.sm_count else np.nan for one in machines], np.float64)[codes]


def sums_to_diagnose(run: Run, group: str) -> DiagnosisSums:
    """Sum the metrics that a diagnosis of a run needs, with a few row groups in memory at a time.

    Raises `NcuBenchError` as `sums_of_run` does.
    """
    columns = {*CONTRACT_COLUMNS, *OF_GROUPS[group], *SUMMED, *diagnosis_columns(), RULES}
    return sums_of_run(run, partial(DiagnosisSums, group), in_batches(columns))


def _inputs_by_name(name: str) -> Inputs:
    names = facts()["names"]
    product, beside, vector = (bool(re.search(names[kind], name)) for kind in ("products", "beside", "vectors"))
    is_product = product and not beside and category_of(name) in names["categories"]
    return Inputs(_type_in(name), "the kernel's name", is_product, vector)


def _type_in(words: str) -> str:
    """The first 16-bit type named in `words`, or ""."""
    return next((kind for kind, pattern in facts()["inputs"].items() if re.search(pattern, words)), "")


@cache
def part_metrics() -> Mapping[str, str]:
    """Part of a resource, as in "sm/ALU pipe/sm__pipe_alu_cycles_active" -> the metric of its use."""
    return {
        f"{name}/{title}/{metric}": metric + ELAPSED
        for name, parts in facts()["resource"].items()
        for metric, title in parts.items()
    }


@cache
def diagnosis_metrics() -> frozenset[str]:
    """The metrics of a report that a diagnosis can depend on, besides the columns of the contract."""
    patterns = (SECTORS, REQUESTS, SECTORS_PER_REQUEST)
    accesses = (pattern.format(access) for pattern in patterns for access in ("ld", "st"))
    pairs = (name for pair in (*LOCAL, *WAVEFRONTS, *WAVEFRONTS_OF_ACCESSES) for name in pair)
    means = (metric for metrics in MEANS.values() for metric, _ in metrics)
    return frozenset((
        *accesses, *pairs, *means, SPILLS, *LOCAL_SECTORS, L1_SECTORS, *ALL_INSTRUCTIONS, *part_metrics().values(),
        LOCAL_THEORETICAL, SECTORS_EXCESSIVE, SECTORS_THEORETICAL, SECTORS_IDEAL, SECTORS_ASKED_OF_L2,
        *map(STALL.format, stall_reasons()), *map(STALLED_SHARE.format, stall_reasons()),
        *map(LIMIT.format, LIMITERS), BLOCKS, THREADS, *SM_COUNTS, WAVES, ACTIVE_CYCLES, ACTIVE_SHARE, *ELAPSED_CYCLES,
        *(SLICE_CYCLES.format(one) for one in ("active.max", "active.avg", "elapsed.max")),
        *quantities()[PIPE].metrics,
    ))  # fmt: skip


@cache
def diagnosis_columns() -> frozenset[str]:
    """The metrics of a diagnosis in every form in which a report may have them."""
    return with_every_form(diagnosis_metrics())


def _share(part: Floats, whole: Floats) -> Floats:
    """`part` / `whole`, element by element: 0 for a part of 0, whatever the whole; else NaN if either is unknown."""
    return np.where(part == 0, 0.0, np.where(whole > 0, part / whole, np.nan))


def _first_known(alternatives: Sequence[Floats]) -> Floats:
    """The first known value, element by element."""
    result = alternatives[0]
    for other in alternatives[1:]:
        result = np.where(np.isnan(result), other, result)
    return result
