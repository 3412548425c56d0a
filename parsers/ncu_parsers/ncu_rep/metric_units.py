"""The base unit of a metric by its name: a binary report holds names and values, and no units.

A name is UNIT__COUNTER.ROLLUP.RATE, as in dram__bytes.sum.per_second. The name says what is counted, and the rate
divides it by cycles or seconds. Units are those of NVIDIA's reader, which were asked for all counters of four chips and
for the metrics of real reports (tests/parsers/ncu/test_metric_units.py). A name that fits no rule has no unit.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

PREFIXES = r"^(?:pmsampling|breakdown):"


class Counted(NamedTuple):
    """The unit of what a counter counts, and of its rates."""

    base: str
    per_cycle: str
    per_second: str


def _events(base: str) -> Counted:
    return Counted(base, f"{base or 1}/cycle", f"{base or 1}/s")


def _held(base: str) -> Counted:
    """What is there in each cycle, summed over cycles: warps that are active in a cycle are warps."""
    return Counted(base, base, f"{base}/s")


def _always(base: str) -> Counted:
    return Counted(base, base, base)


_CYCLES = Counted("cycle", "", "hz")
_NO_UNIT = _always("")

_RULES: tuple[tuple[str, Counted], ...] = (
    # The launch, its device, and what the profiler says of itself.
    (r"launch__(?:block_dim|cluster_max_potential|occupancy_limit)", _always("block")),
    (r"launch__shared_mem_per_block", _always("byte/block")),
    (r"launch__shared_mem_config_size", _always("byte")),
    (r"launch__registers_per_thread", _always("register/thread")),
    (r"launch__occupancy_cluster_(?:gpu_)?pct", _always("%")),
    (r"launch__thread_count", _always("thread")),
    (r"launch__cluster_max_active", _always("cluster")),
    (r"launch__sm_count", _always("SM")),
    (r"profiler__pmsampler_interval_time", _always("ns")),
    (r"profiler__pmsampler_(?:dropped|merged)_samples", _always("sample")),
    (r"profiler__replayer_passes|smsp__pcsamp_aggregated_passes", _always("pass")),
    (r"profiler__\w*bytes|smsp__pcsamp_\w*bytes", _always("byte")),
    (r"launch__|device__|nvlink__|numa__|c2clink__|profiler__|group:", _NO_UNIT),
    # Samples of the program counter, and counts of instructions by their address or opcode.
    (r"smsp__pcsamp_interval_cycles", _always("cycle")),
    (r"smsp__pcsamp_warps_issue_stalled_branch_resolving", _always("branches")),
    (r"smsp__pcsamp_warps_issue_stalled_no_instructions", _always("inst")),
    (r"smsp__pcsamp_warps", _always("warp")),
    (r"smsp__pcsamp|sass__\w+_per_opcode|smsp__sass_inst_executed_memdesc_explicit_evict_type$", _NO_UNIT),
    (r"(?:thread_)?inst_executed|smsp__inst_executed_memdesc|sass__inst_executed", _always("inst")),
    (r"smsp__branch_targets", _always("branches")),
    (r"memory_l[12]_(?:tag_requests|wavefronts|theoretical_sectors)", _always("sectors")),
    # What a section computes from other metrics.
    (r"derived__pct_occupancy_per_register_count", _always("%/register")),
    (r"derived__pct_occupancy_per_shared_mem_size", _always("%/byte")),
    (r"derived__pct_occupancy_per_block_size|derived__smsp__inst_executed_op_branch_pct", _always("%")),
    (r"derived__lts__lts2xbar_bytes", _always("byte")),
    (r"derived__memory_l2_theoretical_sectors_global_excessive", _always("sector")),
    (r"derived__\w+sass_thread_inst_executed_op", _always("inst")),
    (r"derived__avg_thread_executed", _always("thread")),
    (r"derived_|memory_", _NO_UNIT),
    # Ratios of counters.
    (r"\w*throughput|sm__maximum_warps_per_active_cycle_pct", _always("%")),
    (r"\w*maximum_warps_avg_per_active_cycle|smsp__average_warps_active_per_issue", _always("warp")),
    (r"\w*__average_t_sectors_per_request|\w*l1tex_average_t_sectors_per_request", _always("sector")),
    (r"\w*average_data_bytes_per_sector", _always("byte/sector")),
    (r"\w*average_data_bytes_per_wavefront", _always("byte")),
    (r"\w*average_threads_launched_per_warp", _always("thread/warp")),
    (r"\w*average_warp_latency_issue_stalled|\w*average_inst_executed\w*_per_warp", _always("inst/warp")),
    (r"\w*average_warps_issue_stalled\w*_per_issue_active", _always("inst")),
    (r"\w*average_(?:warp|cta)_latency|\w*average_warps_active_per_inst", _always("cycle")),
    (r"smsp__amortized_warp_latency", _always("cycle/warp")),
    (r"smsp__inst_issued_per_issue_active", _always("inst/cycle")),
    (r"\w*average_registers_per_thread", _always("register/thread")),
    (r"\w*average|\w*(?:_rate|_ratio|per_inst_executed|per_warp_active)$", _NO_UNIT),
    # Counters: what is held in each cycle, cycles, and events.
    (r"\w*__warps_(?:active|eligible|issue_stalled)", _held("warp")),
    (r"\w*__ctas_active", _held("block")),
    (r"\w*registers_allocated", _held("register")),
    (r"\w*sram_(?:bytes|kilobytes)|sm__\w*shared_mem\w*allocated|\w*_kilobytes", _held("byte")),
    (r"gpu__time", _events("ns")),
    (r"\w*bank_(?:conflicts|reads|writes|accesses)|l1tex__f_cycles_active", _events("")),
    (r"gcc__cache_requests", _events("request")),
    (r"\w*__issue_(?:active|inst)|l1tex__f_wavefronts_realtime", _CYCLES),
    (r"\w*_cycles|\w*__cycles|\w*cycles_(?:active|elapsed|stalled|in_)|\w*writeback_active", _CYCLES),
    (r"(?:l1tex__t|\w*l1tex_t)_set_conflicts|\w*(?:dcc|icc|imc)_requests", _CYCLES),
    (r"\w*bytes", _events("byte")),
    (r"\w*sectors", _events("sector")),
    (r"\w*t_tag_requests", _events("tag")),
    (r"\w*(?:wavefronts|l1tex_tags|set_accesses)", _events("")),
    (r"\w*(?:texin_requests|lsuin_requests|l1tex_t_requests)|l1tex__t_requests", _events("")),
    (r"\w*tmain_requests|\w*inst_|\w*instructions?_", _events("inst")),
    (r"\w*requests", _events("request")),
    (r"\w*branch_targets", _events("branches")),
    (r"\w*threads_(?:launched|restored)", _events("thread")),
    (r"\w*warps_(?:launched|restored)", _events("warp")),
    (r"\w*ctas(?:_|$)", _events("block")),
    (r"fe__output_ops", _events("ops")),
)  # fmt: skip
"""Beginnings of names without what stands in front of a colon; the first that fits decides."""


@lru_cache(maxsize=65536)
def unit_of(name: str) -> str:
    """The base unit of a metric, as in "byte/s"; "" where it has none or the name is not known."""
    counter, _, suffix = re.sub(PREFIXES, "", name).partition(".")
    if "pct" in suffix:
        return "%"
    counted = next((counted for beginning, counted in _RULES if re.match(beginning, counter)), _NO_UNIT)
    rate = suffix.rpartition(".")[2]
    if rate == "per_second" and "peak" not in suffix:
        return counted.per_second
    return counted.per_cycle if rate == "peak_sustained" or rate.startswith("per_cycle") else counted.base
