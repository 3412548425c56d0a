"""Diagnoses: which causes are named, what each can cost at most, what is ruled out and why; and headroom."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.counters.metric_groups import group_names
from ncu_parsers.parse.parse import parse
from ncu_parsers.parse.report_files import find_sources
from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import Rule as RuleResult

from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.cli import cli
from ncu_tools.kernels.diagnosis.diagnose import AT_ITS_LIMIT, Diagnosis, diagnose, diagnoses
from ncu_tools.kernels.diagnosis.rules import facts, quantities, rules
from ncu_tools.kernels.diagnosis.sums import Inputs, diagnosis_metrics
from ncu_tools.kernels.hotspots import hotspots
from ncu_tools.kernels.kernel_row import Hotspot
from tests.conftest import ROOT, SAMPLES, SHARED
from tests.support.launches import by_title, launch, metric, sass, table, tensor
from tests.support.reports import needs_shared_reports

ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
DRAM, L2, SM_WHOLE = f"dram__throughput{ELAPSED}", f"lts__throughput{ELAPSED}", f"sm__throughput{ELAPSED}"
L1 = f"l1tex__throughput{ELAPSED}"
MEMORY_WHOLE, ALU = f"gpu__compute_memory_throughput{ELAPSED}", f"sm__pipe_alu_cycles_active{ELAPSED}"
WAITING = {"smsp__issue_active.avg.per_cycle_active": 0.1, "smsp__warps_eligible.avg.per_cycle_active": 0.2}
"""Schedulers that find no warp to issue from."""
ISSUING = {"smsp__issue_active.avg.per_cycle_active": 0.7, "smsp__warps_eligible.avg.per_cycle_active": 2.4}
"""Schedulers that have enough warps."""
LIMIT = "launch__occupancy_limit_{}"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


def diagnosed(*collected: dict[str, float], rule_results: list[RuleResult] | None = None, **more: Any) -> Diagnosis:
    """The diagnosis of one launch of 100 us with these metrics."""
    metrics = {name: metric(value) for one in collected for name, value in one.items()}
    made = table(launch("k", metrics, ns=1e5, rules=rule_results or [], **more))
    return by_title(diagnoses(made, hotspots(made, ceilings_of(made)).rows, "name"))["k"]


def grid(blocks: int, *, sms: int = 80, fit: int = 4, threads: int = 128) -> dict[str, float]:
    """The metrics of a grid of blocks on SMs, with the number of blocks that fit on an SM by registers."""
    limits = {LIMIT.format(name): 16.0 for name in ("shared_mem", "blocks", "warps")}
    return {
        **limits, LIMIT.format("registers"): float(fit), "launch__grid_size": float(blocks),
        "launch__block_size": float(threads), "device__attribute_multiprocessor_count": float(sms),
    }  # fmt: skip


def occupancy(theoretical: float, achieved: float) -> dict[str, float]:
    return {
        "sm__maximum_warps_per_active_cycle_pct": theoretical,
        "sm__warps_active.avg.pct_of_peak_sustained_active": achieved,
    }


def costs(found: Diagnosis) -> dict[str, float | None]:
    return {cause.rule: None if cause.cost is None else round(cause.cost, 9) for cause in found.causes}


class TestTheGridIsTooSmall:
    def test_only_if_some_sms_have_no_block_and_the_sms_are_not_busy(self) -> None:
        found = diagnosed(grid(64), {SM_WHOLE: 20.0, MEMORY_WHOLE: 10.0})
        assert found.causes[0].says == "few blocks: 64 for 80 SMs, so 20 % of the SMs have no work"
        assert found.causes[0].cost == pytest.approx(0.2)

    def test_is_ruled_out_with_the_reason_if_what_all_sms_share_is_busy_nevertheless(self) -> None:
        found = diagnosed(grid(64), {SM_WHOLE: 20.0, DRAM: 75.0, L2: 10.0})
        assert "few blocks" not in costs(found)
        assert "ruled out, as DRAM is at 75 % all the same: few blocks (64 for 80 SMs)" in found.text
        assert "ruled out, as memory system is at 75 % all the same" in diagnosed(grid(64), {MEMORY_WHOLE: 75.0}).text

    def test_is_a_cause_however_busy_the_other_sms_are(self) -> None:
        """With work on all 80 SMs, those that are busy for 75 % of all SMs' time would be done in 80 % of the time."""
        assert costs(diagnosed(grid(64), {SM_WHOLE: 75.0, MEMORY_WHOLE: 10.0})) == {"few blocks": 0.2}

    def test_is_not_diagnosed_for_less_than_a_wave_with_a_block_on_every_sm(self) -> None:
        found = diagnosed(grid(160), occupancy(50.0, 25.0), WAITING, {SM_WHOLE: 20.0, MEMORY_WHOLE: 10.0})
        assert "few blocks" not in costs(found)
        says = "occupancy: 0.5 waves give an SM 2 blocks where 4 fit, and 0.20 warps are ready to issue"
        assert says in [cause.says for cause in found.causes]

    def test_gives_the_sms_with_work_one_block_and_room_for_more_blocks_alone_changes_nothing(self) -> None:
        quiet = {SM_WHOLE: 20.0, MEMORY_WHOLE: 10.0}
        found = diagnosed(grid(64), occupancy(50.0, 12.5), WAITING, quiet)
        says = "occupancy: 0.2 waves give an SM 1 block where 4 fit, and 0.20 warps are ready to issue"
        assert {cause.rule: cause.says for cause in found.causes}["partial wave"] == says
        assert costs(found) == {"partial wave": 0.8, "few blocks": 0.2}
        found = diagnosed(grid(64, fit=1), occupancy(12.5, 12.5), WAITING, quiet)
        says = "occupancy: 0.8 waves give an SM 1 block where 1 fits by registers, and 0.20 warps are ready to issue"
        assert {cause.rule: cause.says for cause in found.causes}["partial wave"] == says
        assert "theoretical occupancy" not in costs(found)

    def test_is_derived_from_printed_waves_if_the_number_of_sms_is_unknown(self) -> None:
        limits = {**grid(64), "launch__waves_per_multiprocessor": 0.2}
        del limits["device__attribute_multiprocessor_count"]
        found = diagnosed(limits, {SM_WHOLE: 20.0, MEMORY_WHOLE: 10.0})
        assert found.causes[0].says == "few blocks: 64, so 20 % of the SMs have no work"

    def test_is_not_diagnosed_if_the_report_prints_no_waves(self) -> None:
        limits = {**grid(64), "launch__waves_per_multiprocessor": 0.0}
        del limits["device__attribute_multiprocessor_count"]
        assert "few blocks" not in costs(diagnosed(limits, {SM_WHOLE: 20.0, MEMORY_WHOLE: 10.0}))


class TestALastWavePartlyFilled:
    QUIET = {SM_WHOLE: 30.0, MEMORY_WHOLE: 10.0}  # noqa: RUF012

    def test_is_a_cause_that_costs_at_most_its_empty_slots(self) -> None:
        found = diagnosed(grid(400), self.QUIET)
        assert found.causes[0].says == "tail: 1.25 waves, so the last of 2 is 25 % full"
        assert found.causes[0].cost == pytest.approx(0.375)  # 3/4 of the second of two waves

    def test_of_one_block_is_told_as_such_where_three_digits_show_whole_waves(self) -> None:
        """529 blocks on the 132 SMs of an H100 that hold 2 each: 2.004 waves."""
        found = diagnosed(grid(529, sms=132, fit=2), self.QUIET)
        assert found.causes[0].says == "tail: just over 2 waves, so the last of 3 is < 1 % full"

    def test_costs_no_more_than_the_idle_time_of_the_sms(self) -> None:
        idle = {"sm__cycles_active.avg": 90.0, "sm__cycles_elapsed.max": 100.0}
        assert costs(diagnosed(grid(400), self.QUIET, idle)) == {"tail": 0.1}

    def test_costs_no_more_than_the_busiest_resource_leaves(self) -> None:
        assert costs(diagnosed(grid(400), {SM_WHOLE: 75.0, MEMORY_WHOLE: 10.0})) == {"tail": 0.25}

    def test_is_no_cause_for_whole_waves(self) -> None:
        assert costs(diagnosed(grid(640), self.QUIET)) == {}


class TestIdleSMs:
    def test_while_others_work_are_a_separate_cause(self) -> None:
        idle = {"sm__cycles_active.avg": 60.0, "sm__cycles_elapsed.max": 100.0}
        found = diagnosed(grid(640), idle, {SM_WHOLE: 30.0, MEMORY_WHOLE: 10.0})
        assert found.causes[0].says.startswith(
            "idle SMs: on average an SM has work for 60 % of the 100 µs; blocks or SMs get"
        )
        assert found.causes[0].cost == pytest.approx(0.4)

    def test_without_a_block_are_not_counted_twice(self) -> None:
        idle = {"sm__cycles_active.avg": 20.0, "sm__cycles_elapsed.max": 100.0}
        assert costs(diagnosed(grid(20), idle, {SM_WHOLE: 5.0, MEMORY_WHOLE: 5.0})) == {"few blocks": 0.75}


class TestOccupancy:
    QUIET = {SM_WHOLE: 20.0, MEMORY_WHOLE: 10.0}  # noqa: RUF012

    def test_names_its_limiter_with_the_limit(self) -> None:
        found = diagnosed(grid(3200), occupancy(25.0, 24.0), WAITING, self.QUIET)
        says = "occupancy: 25 % at most, limited by registers: 4 blocks of 128 threads an SM; 0.20 warps are ready to issue"
        assert found.causes[0].says == says
        assert found.causes[0].cost == pytest.approx(0.75)

    @pytest.mark.parametrize(
        ("limit", "named"),
        [("shared_mem", "shared memory"), ("warps", "the block size"), ("barriers", "barriers")],
    )
    def test_names_shared_memory_block_size_and_barriers(self, limit: str, named: str) -> None:
        found = diagnosed({**grid(3200), LIMIT.format(limit): 2.0}, occupancy(25.0, 24.0), WAITING, self.QUIET)
        assert f"limited by {named}: 2 blocks of 128 threads an SM" in found.text

    def test_achieved_and_theoretical_are_separate_numbers(self) -> None:
        found = diagnosed(grid(3200), occupancy(100.0, 40.0), WAITING, self.QUIET)
        assert found.causes[0].says.startswith("achieved occupancy: 40 % where 100 % fit")
        assert found.causes[0].cost == pytest.approx(0.6)

    def test_is_only_possible_if_warps_are_ready_in_bursts(self) -> None:
        eligible = {**WAITING, "smsp__warps_eligible.avg.per_cycle_active": 2.4}
        found = diagnosed(grid(3200), occupancy(25.0, 24.0), eligible, self.QUIET)
        assert (costs(found), found.ruled_out) == ({}, [])
        assert "perhaps occupancy (25 % at most by registers" in found.text

    def test_is_no_cause_if_issue_slots_are_used(self) -> None:
        found = diagnosed(grid(3200), occupancy(25.0, 24.0), ISSUING, {SM_WHOLE: 70.0, MEMORY_WHOLE: 10.0})
        assert costs(found) == {}
        assert "ruled out, as 70 % of the issue slots are used: occupancy" in found.text

    def test_is_possible_if_ready_warps_were_not_collected_and_names_the_group_to_collect(self) -> None:
        found = diagnosed(grid(3200), occupancy(25.0, 24.0), self.QUIET)
        assert costs(found) == {}
        assert "perhaps occupancy (25 % at most by registers: 4 blocks of 128 threads an SM)" in found.text
        assert "issue" in found.collect


class TestUncoalescedAccesses:
    EXCESS = {  # noqa: RUF012
        "memory_l2_theoretical_sectors_global": 100.0,
        "derived__memory_l2_theoretical_sectors_global_excessive": 60.0,
        "memory_l2_theoretical_sectors_global_ideal": 40.0,
    }

    def test_cost_the_time_that_a_level_spends_on_them(self) -> None:
        moved = {"dram__bytes.sum": 40.0 * 32}
        found = diagnosed(self.EXCESS, moved, {L2: 70.0, DRAM: 30.0, MEMORY_WHOLE: 70.0, SM_WHOLE: 10.0})
        assert found.causes[0].says.startswith("uncoalesced: 60 % of the sectors of global memory")
        assert found.causes[0].cost == pytest.approx(0.42)  # 60 % of the 70 % for which L2 is busy

    def test_cost_no_more_than_is_left_by_a_level_whose_bytes_stay(self) -> None:
        moved = {"dram__bytes.sum": 40.0 * 32}
        found = diagnosed(self.EXCESS, moved, {L2: 79.0, DRAM: 89.0, MEMORY_WHOLE: 89.0, SM_WHOLE: 10.0})
        assert [cause.rule for cause in found.causes] == [AT_ITS_LIMIT, "uncoalesced"]
        assert found.causes[1].cost == pytest.approx(0.11)

    def test_of_dram_that_moves_unused_bytes_rank_before_its_limit(self) -> None:
        moved = {"dram__bytes.sum": 100.0 * 32}
        found = diagnosed(self.EXCESS, moved, {L2: 30.0, DRAM: 90.0, MEMORY_WHOLE: 90.0, SM_WHOLE: 10.0})
        assert [cause.rule for cause in found.causes] == ["uncoalesced", AT_ITS_LIMIT]
        assert found.causes[0].cost == pytest.approx(0.54)

    @pytest.mark.parametrize("access", ["ld", "st"])
    def test_are_diagnosed_by_sectors_per_request_too(self, access: str) -> None:
        name = f"l1tex__t_{{}}_pipe_lsu_mem_global_op_{access}.sum"
        found = diagnosed({name.format("sectors"): 320.0, name.format("requests"): 10.0, SM_WHOLE: 6.0})
        what = {"ld": "load", "st": "store"}[access]
        assert found.causes[0].says == f"uncoalesced: 32.0 sectors per {what}, where 4-byte {what}s need 4"
        assert found.causes[0].cost is None, "how busy L1, L2 and DRAM are was not collected"
        other = {f"l1tex__t_sectors_pipe_lsu_mem_global_op_{one}.sum": 0.0 for one in {"ld", "st"} - {access}}
        counts = {name.format("sectors"): 320.0, name.format("requests"): 10.0, **other}
        found = diagnosed({**counts, SM_WHOLE: 6.0, L2: 50.0})
        assert found.causes[0].cost == pytest.approx(0.5 * 31 / 32), "31 of 32 sectors at most, of those of L2"

    def test_of_16_bytes_that_are_coalesced_are_no_cause(self) -> None:
        name = "l1tex__t_{}_pipe_lsu_mem_global_op_ld.sum"
        assert costs(diagnosed({name.format("sectors"): 160.0, name.format("requests"): 10.0, SM_WHOLE: 6.0})) == {}


class TestStalls:
    def stalls(self, **cycles: float) -> dict[str, float]:
        latency = {"smsp__average_warp_latency_per_inst_issued.ratio": 20.0}
        return latency | {STALL.format(reason): value for reason, value in cycles.items()}

    def test_name_what_warps_wait_for_and_their_share_of_the_time(self) -> None:
        found = diagnosed(self.stalls(long_scoreboard=15.0, barrier=2.0), WAITING, {SM_WHOLE: 10.0, MEMORY_WHOLE: 10.0})
        says = (
            "stalled: warps wait on global, local or texture memory for 75 % of their time (15.0 cycles an instruction)"
        )
        assert (found.causes[0].says, found.causes[0].cost) == (says, pytest.approx(0.75))

    @pytest.mark.parametrize(("cycles", "says"), [(6.0, ", and 30 % at a barrier of the block"), (5.9, "")])
    def test_name_a_second_one_from_30_per_cent_on(self, cycles: float, says: str) -> None:
        found = diagnosed(self.stalls(long_scoreboard=10.0, barrier=cycles, wait=3.0), WAITING, {SM_WHOLE: 10.0})
        assert found.causes[0].says.partition(" (10.0 cycles an instruction)")[2] == says

    def test_are_no_cause_if_issue_slots_are_used(self) -> None:
        busy = {"smsp__issue_active.avg.per_cycle_active": 0.85}
        found = diagnosed(self.stalls(long_scoreboard=15.0), busy, {SM_WHOLE: 70.0, MEMORY_WHOLE: 10.0})
        assert "stalled" not in costs(found)
        assert "ruled out, as 85 % of the issue slots are used: stalls" in found.text

    def test_that_were_not_collected_are_unknown(self) -> None:
        found = diagnosed(WAITING, {SM_WHOLE: 10.0, MEMORY_WHOLE: 10.0})
        assert "stalled" not in costs(found)
        assert "stalls" in found.collect


class TestOtherWaste:
    QUIET = {SM_WHOLE: 40.0, MEMORY_WHOLE: 50.0, f"l1tex__throughput{ELAPSED}": 50.0}  # noqa: RUF012

    def test_of_bank_conflicts_costs_the_time_that_the_data_pipe_spends_on_them(self) -> None:
        name = "memory_l1_wavefronts_shared"
        found = diagnosed({f"derived__{name}_excessive": 40.0, name: 100.0}, self.QUIET)
        assert costs(found) == {"bank conflicts": 0.2}

    def test_is_ruled_out_by_the_busiest_resource_whose_work_stays(self) -> None:
        """Without half of its wavefronts the L1 data pipe, the busiest, would be the idlest: the ADU pipe limits."""
        name = "memory_l1_wavefronts_shared"
        busy = {f"l1tex__data_pipe_lsu_wavefronts{ELAPSED}": 99.0, f"sm__inst_executed_pipe_adu{ELAPSED}": 96.0}
        found = diagnosed({f"derived__{name}_excessive": 49.0, name: 100.0}, busy, {SM_WHOLE: 96.0, MEMORY_WHOLE: 99.0})
        assert found.busiest is not None
        assert found.busiest.title == "L1 data pipe"
        assert [one.reason for one in found.ruled_out] == [
            "ADU pipe at 96 % leaves no more to gain without fewer instructions"
        ]

    def test_of_divergence_costs_the_time_that_the_sms_spend_on_inactive_lanes(self) -> None:
        lanes = {"smsp__thread_inst_executed_per_inst_executed.ratio": 16.0}
        assert costs(diagnosed(lanes, {SM_WHOLE: 60.0, MEMORY_WHOLE: 20.0})) == {"divergence": 0.3}

    def test_of_blocks_that_are_no_multiple_of_32_threads_is_the_block_size_and_not_divergence(self) -> None:
        lanes = {"smsp__thread_inst_executed_per_inst_executed.ratio": 1.0, "launch__block_size": 1.0}
        found = diagnosed(lanes, {SM_WHOLE: 15.0, DRAM: 53.0, L2: 20.0})
        assert found.causes[0].says == "partial warps: blocks of 1 thread give a warp 1 of its 32"
        assert costs(found) == {"partial warps": pytest.approx(0.47)}, "DRAM keeps its work"
        found = diagnosed({"launch__block_size": 48.0}, {SM_WHOLE: 15.0, DRAM: 53.0, L2: 20.0})
        assert found.causes[0].says == "partial warps: blocks of 48 threads give a warp 24 of its 32"
        assert costs(found) == {"partial warps": pytest.approx(0.25)}

    @pytest.mark.parametrize(
        "pair",
        [
            ("smsp__sass_inst_executed_op_local_ld.sum", "smsp__sass_inst_executed_op_local_st.sum"),
            ("sass__inst_executed_local_loads", "sass__inst_executed_local_stores"),
            ("l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum", "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum"),
        ],
    )
    def test_of_local_memory_is_diagnosed_from_any_section_that_counts_it(self, pair: tuple[str, str]) -> None:
        loads, stores = pair
        executed = {"smsp__inst_executed.sum": 2048.0}
        found = diagnosed({loads: 300.0, stores: 212.0}, executed, self.QUIET)
        assert found.causes[0].says.startswith("local memory: 512 warp instructions (25 %)")
        assert "local memory" not in diagnosed({loads: 0.0, stores: 0.0}, executed, self.QUIET).text

    def test_of_spilled_registers_replaces_local_memory(self) -> None:
        counted = {
            "sass__inst_executed_register_spilling": 900.0, "sass__inst_executed_local_loads": 500.0,
            "sass__inst_executed_local_stores": 500.0, "smsp__inst_executed.sum": 4000.0,
        }  # fmt: skip
        assert list(costs(diagnosed(counted, self.QUIET))) == ["spilling"]

    def test_of_a_small_share_of_instructions_is_no_cause(self) -> None:
        local = {"sass__inst_executed_local_loads": 50.0, "sass__inst_executed_local_stores": 50.0}
        assert costs(diagnosed(local, {"smsp__inst_executed.sum": 1e6}, self.QUIET)) == {}


class TestTheFirstCause:
    def test_is_the_limit_of_the_busiest_resource_if_that_is_near_it(self) -> None:
        found = diagnosed({ALU: 92.0, SM_WHOLE: 92.0, MEMORY_WHOLE: 30.0})
        assert found.text == "ALU pipe bound: at 92 % of its peak"

    @pytest.mark.parametrize("busiest", [ALU, DRAM, L2, SM_WHOLE, MEMORY_WHOLE])
    def test_is_never_another_resource_than_the_busiest(self, busiest: str) -> None:
        levels = {ALU: 30.0, DRAM: 30.0, L2: 30.0, SM_WHOLE: 30.0, MEMORY_WHOLE: 90.0 if busiest == L2 else 30.0}
        found = diagnosed({**levels, busiest: 90.0})
        assert found.causes[0].rule == AT_ITS_LIMIT
        assert found.busiest is not None
        assert found.busiest.share == pytest.approx(0.9)
        assert found.busiest.metric == busiest or busiest.startswith(found.busiest.metric)

    def test_is_the_one_that_can_cost_most(self) -> None:
        found = diagnosed(grid(400), occupancy(50.0, 49.0), WAITING, {SM_WHOLE: 20.0, MEMORY_WHOLE: 10.0})
        assert list(costs(found)) == ["theoretical occupancy", "tail"]

    @given(
        st.dictionaries(
            st.sampled_from(sorted(diagnosis_metrics())),
            st.floats(0, 100) | st.sampled_from([0.0, 1.0, 32.0]),
            max_size=40,
        )
    )
    def test_costs_at_most_what_unchanged_resources_leave(self, collected: dict[str, float]) -> None:
        made = table(launch("k", {name: metric(value) for name, value in collected.items()}, ns=1e5))
        for found in diagnoses(made, hotspots(made, ceilings_of(made)).rows, "name").values():
            assert "nan" not in found.text
            shares = [-1.0 if cause.cost is None else round(cause.cost, 9) for cause in found.causes]
            assert shares == sorted(shares, reverse=True)
            frees = {rule.id: rule.frees for rule in rules()}
            for cause in found.causes:
                if cause.rule != AT_ITS_LIMIT and not frees[cause.rule] and found.busiest and cause.cost:
                    assert cause.cost <= max(0.0, 1 - found.busiest.share) + 1e-9


class TestMissingMetrics:
    def test_explain_nothing_and_the_groups_to_collect_are_named(self) -> None:
        found = diagnosed({})
        assert found.text == (
            "not explained by what was collected; coalescing, dram, flops, issue, occupancy, speed-of-light, spills, stalls would say more"
        )

    def test_of_memory_leave_the_busiest_resource_uncertain(self) -> None:
        assert "busiest of what was collected is SM, at 22 %" in diagnosed({SM_WHOLE: 22.0}).text
        assert "busiest is SM, at 22 %" in diagnosed({SM_WHOLE: 22.0, MEMORY_WHOLE: 5.0}).text
        assert "busiest of what was collected is SM, at 22 %" in diagnosed({SM_WHOLE: 22.0, DRAM: 5.0}).text
        assert "busiest is SM, at 22 %" in diagnosed({SM_WHOLE: 22.0, DRAM: 5.0, L2: 5.0, L1: 5.0}).text

    def test_name_only_groups_whose_metrics_are_missing(self) -> None:
        found = diagnosed(grid(3200), occupancy(100.0, 95.0), {SM_WHOLE: 22.0, MEMORY_WHOLE: 5.0})
        assert "occupancy" not in found.collect

    def test_are_not_requested_for_a_timeline(self) -> None:
        made = table(launch("k", ns=1e6))
        place = made.schema.get_field_index("source")
        timeline = made.set_column(place, "source", arrays.repeated("nsys", len(made)))
        assert diagnoses(timeline, hotspots(timeline, ceilings_of(timeline)).rows, "name") == {}

    def test_with_bytes_and_time_present_are_a_ceiling(self) -> None:
        made = table(launch("k", complete(), ns=1e6, dram=1e6))
        (kernel,) = hotspots(made, ceilings_of(made)).rows
        assert (kernel.flops, kernel.bound) == (0.0, None)
        assert by_title(diagnoses(made, [kernel], "name"))["k"].text == (
            "a ceiling of its device is missing: --machine NAME or ncu-bench machines measure gives one; coalescing, issue, occupancy, speed-of-light, spills, stalls would say more"
        )

    def test_of_operators_are_not_requested_from_ncu(self) -> None:
        made = table(launch("k", complete(), ns=1e6, dram=1e6))
        place = made.schema.get_field_index("source")
        operators = made.set_column(place, "source", arrays.repeated("operators", len(made)))
        without, on_a_gpu = (
            hotspots(operators, ceilings_of(operators, one)).rows for one in (None, find_machine("t4"))
        )
        assert by_title(diagnoses(operators, without, "name"))["k"].text.endswith(
            "ncu-bench machines measure gives one"
        )
        assert by_title(diagnoses(operators, on_a_gpu, "name"))["k"].text == (
            "no cause stands out: busiest of what was collected is DRAM, at < 1 %"
        )


def complete() -> dict[str, Any]:
    """Every FLOP counter at zero, and idle tensor cores."""
    return {**sass(), "sm__inst_executed_pipe_tensor.sum": metric(0.0)}


class TestEvidence:
    def test_names_the_value_its_unit_and_the_metric_of_the_report(self) -> None:
        found = diagnosed(grid(64), {SM_WHOLE: 20.0, MEMORY_WHOLE: 10.0})
        blocks, sm_count, _ = found.causes[0].evidence
        assert (blocks.value, blocks.unit, list(blocks.metrics)) == (64, "block", ["launch__grid_size"])
        assert list(sm_count.metrics) == ["device__attribute_multiprocessor_count"]

    def test_from_the_text_of_a_rule_names_the_rule(self) -> None:
        text = (
            "This kernel grid is too small to fill the available resources, resulting in only 0.7 full waves across all"
        )
        results = [RuleResult("SpeedOfLight", "SOLBottleneck", "OPT", text, "", "")]
        limits = {**grid(224, fit=2), **occupancy(16.7, 11.3)}
        del limits["device__attribute_multiprocessor_count"]
        found = diagnosed(limits, WAITING, {SM_WHOLE: 9.0, MEMORY_WHOLE: 20.0}, rule_results=results)
        (wave,) = [cause for cause in found.causes if cause.rule == "partial wave"]
        assert wave.says.startswith("occupancy: 0.7 waves give an SM 1.4 blocks where 2 fit")
        assert list(wave.evidence[0].metrics) == ["NVIDIA's rule SOLBottleneck"]

    def test_of_the_number_of_sms_is_what_the_launch_rule_prints_and_without_it_idle_sms_have_no_cause(self) -> None:
        limits = grid(52)
        del limits["device__attribute_multiprocessor_count"]
        idle = {"sm__cycles_active.avg": 20.0, "sm__cycles_elapsed.max": 100.0, SM_WHOLE: 5.0, MEMORY_WHOLE: 5.0}
        text = "This launch executes only 52 blocks, which is less than the GPU's 82 multiprocessors."
        results = [RuleResult("LaunchStats", "LaunchConfiguration", "OPT", text, "", "")]
        found = diagnosed(limits, idle, rule_results=results)
        few = next(cause for cause in found.causes if cause.rule == "few blocks")
        assert few.says == "few blocks: 52 for 82 SMs, so 37 % of the SMs have no work"
        assert list(few.evidence[1].metrics) == ["NVIDIA's rule LaunchConfiguration"]
        assert {"few blocks", "uneven"} & set(costs(diagnosed(limits, idle))) == set()

    def test_is_in_the_json_of_hotspots(self) -> None:
        report = str(SAMPLES / "d01-wide-raw.csv")
        result = CliRunner().invoke(cli, ["hotspots", report, "--diagnose", "--format", "json"])
        document = json.loads(result.stdout)
        triad = next(one for one in document["diagnoses"] if one["kernel"].startswith("triad"))
        (limit,) = triad["causes"]
        assert limit["rule"] == AT_ITS_LIMIT
        assert limit["evidence"][0]["unit"] == "fraction"
        assert limit["evidence"][0]["metrics"] == ["roofline"]

    def test_every_quantity_that_a_rule_looks_at_has_a_title_a_unit_and_metrics(self) -> None:
        for rule in rules():
            assert rule.source
            assert {*rule.when} <= {*quantities()}
            for name in (*rule.evidence, *rule.harms_if):
                assert quantities()[name].title
                assert quantities()[name].metrics
            for name in rule.harms_if:
                assert quantities()[name].fact
        assert {one.group for one in quantities().values()} - {""} <= set(group_names())

    def test_every_rule_is_in_the_docs_with_its_thresholds(self) -> None:
        docs = (ROOT / "docs" / "diagnosis.md").read_text("utf-8")
        for rule in rules():
            (row,) = [line for line in docs.splitlines() if line.startswith(f"| {rule.id} |")]
            for name, limits in {**rule.when, **rule.harms_if, **rule.certain_if}.items():
                signs = {"at_least": "≥", "above": ">", "at_most": "≤", "below": "<"}
                for kind, limit in limits.items():
                    assert f"`{name}` {signs[kind]} {limit:g}" in row

    def test_texts_of_rules_give_existing_quantities(self) -> None:
        for entry in facts()["rule_text"]:
            assert set(entry["gives"]) <= set(quantities())


def kernels(*launches: Any) -> tuple[Any, list[Hotspot]]:
    made = table(*launches)
    return made, hotspots(made, ceilings_of(made, find_machine("a100-sxm4-40gb"))).rows


class TestQuantities:
    def test_are_ratios_of_sums_over_the_launches_of_a_kernel(self) -> None:
        load = "l1tex__t_{}_pipe_lsu_mem_global_op_ld.sum"
        made, rows = kernels(
            *(
                launch("k", {**sass(), load.format("sectors"): metric(sectors), load.format("requests"): metric(requests)},
                       ns=1e6, dram=1e6)
                for sectors, requests in ((320.0, 10.0), (480.0, 30.0))
            )
        )  # fmt: skip
        assert by_title(diagnoses(made, rows, "name"))["k"].text.startswith("uncoalesced: 20.0 sectors per load")

    def test_are_means_over_the_launches_that_have_them(self) -> None:
        few = {name: metric(value) for name, value in {**grid(8), SM_WHOLE: 5.0, MEMORY_WHOLE: 5.0}.items()}
        made, rows = kernels(launch("k", {**sass(), **few}, ns=1e6, dram=1e6), launch("k", sass(), ns=1e6, dram=1e6))
        assert (
            "few blocks: 8 for 80 SMs, so 90 % of the SMs have no work"
            in by_title(diagnoses(made, rows, "name"))["k"].text
        )


def half_gemm(name: str, fp16: float | None, **others: float) -> Any:
    """A launch far below every ceiling; `tensor` FLOPs of fp16 by tensor cores, None if not counted."""
    counted = {} if fp16 is None else tensor(fp16_dst_fp32=fp16)
    busy = {SM_WHOLE: metric(40.0), MEMORY_WHOLE: metric(20.0)}
    return launch(name, {**sass(**others), **counted, **busy}, ns=1e6, dram=1e6)


TENSOR_PIPE = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"


def hgemm_by_pipe(active: float, chip: str | None = "8.6", name: str = "naive_hgemm(const __half *)") -> Any:
    """A launch of which nothing of FLOPs was counted, but the activity of the tensor pipe in per cent."""
    busy = {SM_WHOLE: metric(40.0), MEMORY_WHOLE: metric(20.0)}
    return launch(name, {TENSOR_PIPE: metric(active), **busy}, ns=1e6, capability=chip)


class TestInputs:
    @pytest.mark.parametrize(
        ("name", "inputs"),
        [
            ("ampere_hgemm_128x64_tn", "fp16"),
            ("void gemmk1_kernel<int, float, 256, 5, __half, __half>(Params)", "fp16"),
            ("void cutlass::Kernel2<cutlass_80_simt_bf16gemm_128x64>(Params)", "bf16"),
            ("void implicit_convolve_hgemm<c10::Half>(int)", "fp16"),
        ],
    )
    def test_by_kernel_name_are_those_that_tensor_cores_should_have_used(self, name: str, inputs: str) -> None:
        made, rows = kernels(half_gemm(name, 0.0, ffma=1e6))
        (cause,) = by_title(diagnoses(made, rows, "name"))[name].causes
        assert cause.says == f"tensor cores idle though inputs are {inputs} (by the kernel's name): they did 0 FLOPs"
        assert cause.cost == pytest.approx(0.4)

    @pytest.mark.parametrize(
        ("name", "fp16"),
        [
            ("ampere_hgemm_128x64_tn", 1e6),
            ("ampere_hgemm_128x64_tn", None),
            ("ampere_sgemm_128x64_tn", 0.0),
            ("void gemvx::kernel<int, __half, __half>(Params)", 0.0),
            ("void vectorized_elementwise_kernel<4, c10::Half>(int)", 0.0),
            ("void convert_kernel<half, float>(int)", 0.0),
            ("main_graph_async_dispatch_78_matmul_1x1000x2048_f16xf16xf32", 0.0),
            ("void dequantize_mul_mat_vec_matmul<__half>(int)", 0.0),
            ("void flash_attn_vec_ext_f16<128, 1>(char const*)", 0.0),
            ("void vllm::paged_attention_v1_kernel<__half, __half, 128>(float*)", 0.0),
            ("void flash::flash_fwd_splitkv_combine_kernel<cutlass::bfloat16_t>(Params)", 0.0),
            ("void cutlass::reduction::kernel::ReduceSplitK<cutlass::half_t, LinearCombination>(Params)", 0.0),
            ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>(int)", 0.0),
            ("void at::native::upsample_linear1d_out_frame<c10::Half, float>(int)", 0.0),
            ("void at::native::conv_depthwise2d_forward_kernel<3, c10::Half, int>(int)", 0.0),
            ("void causal_conv1d_fwd_kernel<Traits<128, 4, c10::BFloat16> >(ConvParamsBase)", 0.0),
            ("triton_poi_fused_convolution_relu_3_bf16", 0.0),
            ("void __cuda_linear_fp32_fp16_kernel<256, 4>(float*, __half*, float*, __half*, int, int)", 0.0),
            ("void epilogue::impl::globalKernel<__half, __half, float, true, true>(int, int, long, __half*)", 0.0),
            ("void split_embedding_backward<c10::Half, fbgemm_gpu::enum_query>(int)", 0.0),
        ],
    )
    def test_are_no_cause_for_kernels_that_used_tensor_cores_were_not_counted_or_cannot_use_them(
        self, name: str, fp16: float | None
    ) -> None:
        made, rows = kernels(half_gemm(name, fp16, ffma=1e6))
        assert "tensor cores idle" not in by_title(diagnoses(made, rows, "name"))[name].text

    @pytest.mark.parametrize("chip", ["7.0", "8.6", "9.0", "12.0"])
    def test_are_a_cause_too_where_flops_were_not_counted_and_the_tensor_pipe_was_never_active(self, chip: str) -> None:
        made, rows = kernels(hgemm_by_pipe(0.0, chip))
        (cause,) = diagnoses(made, rows, "name")[rows[0].key].causes
        assert (cause.rule, cause.cost) == ("tensor cores idle", pytest.approx(0.4))
        (pipe,) = cause.evidence
        assert (pipe.quantity, pipe.value, pipe.unit, pipe.metrics) == ("tensor_pipe", 0.0, "fraction", [TENSOR_PIPE])

    @pytest.mark.parametrize(("active", "chip"), [(0.01, "8.6"), (0.0, "10.0"), (0.0, None)])
    def test_are_no_cause_where_the_pipe_may_have_worked(self, active: float, chip: str | None) -> None:
        """Also on data-centre Blackwell, whose tcgen05 has a pipe of its own."""
        made, rows = kernels(hgemm_by_pipe(active, chip))
        assert "tensor cores idle" not in diagnoses(made, rows, "name")[rows[0].key].text
        assert "flops" in diagnoses(made, rows, "name")[rows[0].key].collect

    def test_are_no_cause_where_the_pipe_was_idle_in_some_launches_alone(self) -> None:
        one, other = hgemm_by_pipe(0.0), hgemm_by_pipe(0.0)
        del other.metrics[TENSOR_PIPE]
        for launches in ([hgemm_by_pipe(0.0), hgemm_by_pipe(3.0)], [one, other]):
            made, rows = kernels(*launches)
            assert "tensor cores idle" not in diagnoses(made, rows, "name")[rows[0].key].text

    def test_that_keep_l1_busy_do_so_on_cuda_cores_alone_but_bytes_from_l2_and_dram_stay(self) -> None:
        l1, l2 = f"l1tex__throughput{ELAPSED}", f"lts__throughput{ELAPSED}"
        for busy, cost in (({l1: 99.0, l2: 20.0, DRAM: 9.0}, 0.8), ({l1: 99.0, l2: 20.0, DRAM: 97.0}, None)):
            made_up = hgemm_by_pipe(0.0)
            made_up.metrics |= {
                name: metric(value) for name, value in {**busy, MEMORY_WHOLE: max(busy.values())}.items()
            }
            made, rows = kernels(made_up)
            found = {cause.rule: cause.cost for cause in diagnoses(made, rows, "name")[rows[0].key].causes}
            assert found.get("tensor cores idle") == (None if cost is None else pytest.approx(cost))

    def test_by_an_operators_tensors_take_precedence_over_the_kernel_name(self) -> None:
        made, rows = kernels(half_gemm("gemm_kernel(int)", 0.0, ffma=1e6))
        typed = made.append_column("dtype", arrays.dictionary(['["c10::Half", "c10::Half"]']))
        assert (
            "inputs are fp16 (by the operator's tensors)"
            in by_title(diagnoses(typed, rows, "name"))["gemm_kernel(int)"].text
        )

    def test_of_half_precision_on_cuda_cores_are_no_cause_where_nothing_is_multiplied(self) -> None:
        made, rows = kernels(half_gemm("half_math", 0.0, hfma=1e10, hadd=1e9))
        assert rows[0].bound == "FP16"
        assert "tensor cores" not in by_title(diagnoses(made, rows, "name"))["half_math"].text


class TestHeadroom:
    def test_is_the_time_saved_at_the_ceiling_and_its_share_of_the_run(self) -> None:
        _, rows = kernels(
            launch("half", complete(), ns=1e6, dram=0.5 * 1555e9 * 1e-3),
            launch("full", complete(), ns=3e6, dram=3 * 1555e9 * 1e-3),
        )
        found = {row.kernel: row for row in rows}
        assert found["half"].headroom_ns == pytest.approx(0.5e6)
        assert found["half"].headroom_share == pytest.approx(0.125)
        assert found["full"].headroom_ns == pytest.approx(0, abs=1)

    def test_above_the_ceiling_is_zero_and_without_a_bound_unknown(self) -> None:
        _, rows = kernels(launch("above", complete(), ns=1e6, dram=2 * 1555e9 * 1e-3), launch("k", ns=1e6))
        found = {row.kernel: row for row in rows}
        assert (found["above"].headroom_ns, found["k"].headroom_ns) == (0, None)

    def test_sorts_kernels_by_what_they_could_save(self) -> None:
        result = CliRunner().invoke(
            cli, ["hotspots", str(SAMPLES / "d01-wide-raw.csv"), "--sort", "headroom", "--format", "csv"]
        )
        header, *lines = result.stdout.splitlines()
        place = header.split(",").index("headroom_ns")
        saved = [float(cells[place]) for cells in csv.reader(lines)]
        assert saved == sorted(saved, reverse=True)
        assert len(saved) == 6


class TestTheCommand:
    def test_prints_a_sentence_for_each_kernel(self) -> None:
        result = CliRunner().invoke(cli, ["hotspots", str(SAMPLES / "d01-wide-raw.csv"), "--diagnose", "--wide"])
        assert result.exit_code == 0, result.output
        assert "at the roof of DRAM, busy for 88" in result.stdout
        assert " saves " in result.stdout

    def test_leaves_the_table_unchanged_without_the_option(self) -> None:
        result = CliRunner().invoke(cli, ["hotspots", str(SAMPLES / "d01-wide-raw.csv"), "--format", "json"])
        assert '"diagnos' not in result.stdout


REAL = {
    "ncu_csv/eschnett__IndexSpaces.jl__317662.ncu2022.3.raw.base.csv": {
        "julia_bb_4477": "stalled: warps wait for a busy math pipe for 31 % of their time (3.3 cycles an instruction)",
        "julia__5_6739": "DRAM bound: at 96 % of its peak; ruled out, as DRAM at 96 % leaves no more to gain without fewer bytes: achieved",
    },
    "ncu_csv/josiahls__cuda_learning_mojo.ncu2022.3.raw.csv": {
        "mathKernel1": "few blocks: 1 for 24 SMs, so 96 % of the SMs have no work"
    },
    "ncu_csv/Olajide-Badejo__GPU-Roofline-Profiler__results_sample_run_ncu_gemm_naive.csv": {
        "unnamed>::gemm_naive_kernel": "SM bound: at 97 % of its peak"
    },
    "ncu_csv/Olajide-Badejo__GPU-Roofline-Profiler__results_sample_run_ncu_transpose_naive.csv": {
        "unnamed>::transpose_naive_kernel": "uncoalesced: 32.0 sectors per store, where 4-byte stores need 4; busiest of what was collected is SM"
    },
    "ncu_csv/brycelelbach__nsightful__tests_copy_blocked.csv": {
        "copy_blocked": "uncoalesced: 75 % of the sectors of global memory are more than coalesced accesses need"
    },
    "ncu_csv/CodeGandee__llm-perf-opt__dsocr-v2-kernel_0009-ncu.details.csv": {
        "fmha_cutlassF_bf16_aligned_64x": "occupancy: 33 % at most, limited by registers: 4 blocks of 128 threads an SM"
    },
    "ncu_csv/CodeGandee__llm-perf-opt__dsocr-v2-kernel_0001-ncu.details.csv": {
        "enable_if<!T7, void>::type kernel": "occupancy: 0.7 waves give an SM 1.4 blocks where 2 fit"
    },
    "ncu_csv/CodeGandee__llm-perf-opt__dsocr-v2-kernel_0016-ncu.details.csv": {
        "void Kernel2<cutlass_80_tensorop_bf16": "occupancy: 17 % at most, limited by registers and shared memory"
    },
    "ncu_csv/CodeGandee__llm-perf-opt__dsocr-v2-kernel_0004-ncu.details.csv": {
        "void unrolled_elementwise_kern": "achieved occupancy: 8 % where 100 % fit, 0.03 warps are ready to issue"
    },
    "ncu_csv/leonsuaudeau__HPC_Fluid_Solver__ncu-ui-summary-export_profiling.csv": {
        "..MDRangePolicy..Rank..": "memory system bound: at 89 % of its peak"
    },
    "ncu_rep/AveryClapp__ESMM-Research__profile_output.ncu-rep": {
        "void one_blocktiling": "tail: 1.6 waves, so the last of 2 is 60 % full; busiest is LSU requests to L1",
        "void two_blocktiling": "few blocks: 64 for 80 SMs, so 20 % of the SMs have no work",
    },
    "ncu_rep/bobschreiner__NuKEXC__profile.ncu-rep": {
        "void Kokkos::Impl::cuda_parallel": "L1 data pipe bound: at 100 % of its peak"
    },
    "ncu_rep_full/AlpriElse__cs599k__silu_CUDA_ncu-reports_2025-04-21-vector-based.ncu-rep": {
        "silu_kernel_vector": "DRAM bound: at 89 % of its peak; stalled: warps wait on global, local or texture memory"
    },
}  # fmt: skip
"""Reports of other people's GPUs -> start of a kernel name -> start of its diagnosis. The percentages are printed."""


@needs_shared_reports
@pytest.mark.parametrize("report", REAL)
def test_real_reports_have_the_diagnosis_that_their_numbers_imply(report: str) -> None:
    made = parse(find_sources([str(SHARED / "reports" / report)])).table
    assert made is not None
    said = by_title(diagnoses(made, hotspots(made, ceilings_of(made)).rows, "name"))
    for name, sentence in REAL[report].items():
        (found,) = [one.text for kernel, one in said.items() if kernel.startswith(name)]
        assert found.startswith(sentence)


@needs_shared_reports
def test_a_real_report_with_local_memory_at_zero_needs_no_group_of_spills() -> None:
    report = SHARED / "reports" / "ncu_csv" / "eschnett__IndexSpaces.jl__317662.ncu2022.3.raw.base.csv"
    made = parse(find_sources([str(report)])).table
    assert made is not None
    assert set(made.column("sass__inst_executed_local_loads").to_pylist()) == {0.0}
    said = diagnoses(made, hotspots(made, ceilings_of(made)).rows, "name")
    assert not any("spill" in one.text or "local memory" in one.text for one in said.values())


def test_rules_are_read_from_the_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rules.cache_clear()
    assert len(rules()) >= 8


def test_a_kernel_of_which_every_launch_failed_has_no_diagnosis() -> None:
    made = table(launch("k", {ALU: metric(90.0)}, failed=True), launch("ran", {ALU: metric(90.0)}))
    assert list(by_title(diagnoses(made, hotspots(made, ceilings_of(made)).rows, "name"))) == ["ran"]


def test_a_kernel_without_data_that_ncu_did_not_profile_is_left_out() -> None:
    made = table(launch("k", ns=1e5))
    (row,) = hotspots(made, ceilings_of(made)).rows
    assert diagnose({}, row, Inputs(), by_ncu=False).text == ""


@needs_shared_reports
def test_the_barrier_limit_of_a_details_page_is_found_by_its_metric() -> None:
    report = SHARED / "reports" / "ncu_csv" / "CodeGandee__llm-perf-opt__dsocr-v2-kernel_0001-ncu.details.csv"
    made = parse(find_sources([str(report)])).table
    assert made is not None
    assert made.column(LIMIT.format("barriers")).to_pylist() == [24.0]
