"""Units follow from names of metrics, as NVIDIA's reader gives them."""

from __future__ import annotations

from ncu_parsers.ncu_rep.metric_units import unit_of
from ncu_parsers.report_data.cell_text import unit

UNITS = {
    "gpu__time_duration.sum": "ns",
    "dram__bytes.sum": "byte",
    "dram__bytes_read.sum.per_second": "byte/s",
    "dram__bytes.sum.peak_sustained": "byte/cycle",
    "dram__bytes_read.sum.pct_of_peak_sustained_elapsed": "%",
    "dram__sectors_read.sum": "sector",
    "lts__t_sectors.avg.per_cycle_elapsed": "sector/cycle",
    "lts__t_sectors_srcunit_tex.sum.per_second": "sector/s",
    "lts__t_requests_srcunit_tex.sum": "request",
    "lts__t_tag_requests.sum": "tag",
    "l1tex__t_requests_pipe_lsu.sum": "",
    "l1tex__t_requests_pipe_lsu.sum.per_second": "1/s",
    "l1tex__data_bank_conflicts_pipe_lsu.sum.per_cycle_elapsed": "1/cycle",
    "l1tex__data_pipe_lsu_wavefronts.sum": "",
    "sm__cycles_elapsed.max": "cycle",
    "sm__cycles_elapsed.avg.per_second": "hz",
    "smsp__issue_active.sum": "cycle",
    "sm__inst_executed.avg.per_cycle_active": "inst/cycle",
    "sm__inst_executed_pipe_tensor.sum": "inst",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed": "inst/cycle",
    "smsp__warps_active.avg.per_cycle_active": "warp",
    "sm__warps_launched.sum": "warp",
    "sm__ctas_launched.sum": "block",
    "sm__maximum_warps_per_active_cycle_pct": "%",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "%",
    "breakdown:sm__throughput.avg.pct_of_peak_sustained_elapsed": "%",
    "pmsampling:sm__cycles_active.avg": "cycle",
    "l1tex__t_sector_hit_rate.pct": "%",
    "SM_B.TriageCompute.l1tex__t_sector_hit_rate.pct": "%",
    "SM_B.TriageCompute.l1tex__t_sectors.sum": "sector",
    "pmsampling:TPC.TriageCompute.sm__inst_executed_realtime.avg.per_cycle_active": "inst/cycle",
    "TPC.TriageCompute.sm__pipe_tensor_op_hmma_cycles_active_realtime.avg": "cycle",
    "gcc__xbar2gcc_sectors.sum": "",
    "derived__derivative_avg_thread_executed_true": "thread",
    "derived__local_spilling_requests_pct": "%",
    "launch__persisting_l2_cache_size": "byte",
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": "inst",
    "smsp__average_warp_latency_per_inst_issued.ratio": "cycle",
    "smsp__thread_inst_executed_per_inst_executed.ratio": "",
    "sm__ops_path_tensor_src_fp16_dst_fp32.sum": "",
    "launch__registers_per_thread": "register/thread",
    "launch__grid_size": "",
    "device__attribute_clock_rate": "",
    "inst_executed": "inst",
    "smsp__pcsamp_warps_issue_stalled_wait": "warp",
    "sass__inst_executed_per_opcode": "",
    "a metric of a newer ncu": "",
}


def test_the_unit_of_a_metric_follows_from_its_name() -> None:
    assert {name: unit_of(name) for name in UNITS} == UNITS


def test_every_unit_is_a_base_unit() -> None:
    for name in UNITS:
        assert (name, *unit(unit_of(name))) == (name, unit_of(name), 1.0)
