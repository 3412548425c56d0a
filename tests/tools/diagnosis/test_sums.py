"""The sums of a diagnosis: which metric counts, how launches are weighted, and how a grid fills the GPU."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import with_metadata

from ncu_tools.kernels.diagnosis.sums import DiagnosisSums, Inputs
from tests.support.launches import launch, metric, number_of, taken
from tests.support.launches import table as launches_table
from tests.tools.ceilings.test_ceiling_sources import keep
from tests.tools.diagnosis.test_wording import WAVES as WAVES_TEXT
from tests.tools.diagnosis.test_wording import rule

ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
SECTORS, REQUESTS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum", "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
IDEAL, THEORETICAL = "memory_l2_theoretical_sectors_global_ideal", "memory_l2_theoretical_sectors_global"
EXCESSIVE = "derived__memory_l2_theoretical_sectors_global_excessive"
ASKED = "lts__t_sectors_srcunit_tex.sum"
SPILLS = "sass__inst_executed_register_spilling"
LANES = "smsp__thread_inst_executed_per_inst_executed.ratio"
WAVES, BLOCKS, SMS = "launch__waves_per_multiprocessor", "launch__grid_size", "device__attribute_multiprocessor_count"


def one(metrics: dict[str, float], ns: float | None = 1.0, **more: Any) -> Launch:
    return launch("k", {name: metric(value) for name, value in metrics.items()}, ns=ns, **more)


def summed(*launches: Launch) -> dict[str, float]:
    """The quantities of the first kernel of these launches."""
    sums = taken(lambda: DiagnosisSums("name"), launches_table(*launches))
    return {name: float(values[0]) for name, values in sums.quantities().items()}


def of(metrics: dict[str, float], **more: Any) -> dict[str, float]:
    return summed(one(metrics, **more))


class TestMeans:
    @pytest.mark.parametrize(
        ("metrics", "quantity", "value"),
        [
            ({"sm__maximum_warps_per_active_cycle_pct": 50.0}, "theoretical", 0.5),
            ({"sm__warps_active.avg.pct_of_peak_sustained_active": 25.0}, "achieved", 0.25),
            ({"smsp__issue_active.avg.per_cycle_active": 0.5}, "issue", 0.5),
            ({"smsp__issue_active.avg.pct_of_peak_sustained_active": 50.0}, "issue", 0.5),
            ({"sm__inst_issued.avg.pct_of_peak_sustained_active": 50.0}, "issue", 0.5),
            ({"sm__inst_issued.avg.per_cycle_active": 2.0}, "issue", 0.5),
            ({"smsp__warps_eligible.avg.per_cycle_active": 1.5}, "eligible", 1.5),
            ({"smsp__average_warp_latency_per_inst_issued.ratio": 12.0}, "latency", 12.0),
            ({"smsp__thread_inst_executed_per_inst_executed.ratio": 24.0}, "lanes", 24.0),
            ({"launch__registers_per_thread": 64.0}, "registers", 64.0),
            ({"smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": 8.0}, "used_load_bytes", 8.0),
            ({"smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio": 8.0}, "used_store_bytes", 8.0),
            ({"smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": 25.0}, "used_load_bytes", 8.0),
            ({"smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct": 25.0}, "used_store_bytes", 8.0),
            ({f"sm__throughput{ELAPSED}": 40.0}, "sm_busy", 0.4),
            ({f"gpu__compute_memory_throughput{ELAPSED}": 40.0}, "memory_busy", 0.4),
            ({"l1tex__throughput.avg.pct_of_peak_sustained_active": 40.0}, "l1_busy_while_active", 0.4),
            ({f"dram__throughput{ELAPSED}": 40.0}, "dram/DRAM/dram__throughput", 0.4),
            ({"launch__occupancy_limit_registers": 4.0}, "limit registers", 4.0),
            ({STALL.format("barrier"): 2.5}, "stall barrier", 2.5),
            ({STALL.format("drain"): 2.5}, "stall drain", 2.5),
            ({f"sm__pipe_tensor_cycles_active{ELAPSED}": 25.0}, "tensor_pipe", 0.25),
        ],
    )
    def test_are_fractions_of_one_and_counts(self, metrics: dict[str, float], quantity: str, value: float) -> None:
        assert of(metrics)[quantity] == pytest.approx(value)
        assert math.isnan(of({})[quantity])

    def test_are_of_the_first_metric_that_the_report_has(self) -> None:
        both = {
            "smsp__issue_active.avg.per_cycle_active": 0.5,
            "sm__inst_issued.avg.pct_of_peak_sustained_active": 90.0,
        }
        assert of(both)["issue"] == 0.5

    def test_count_each_launch_once_where_no_time_is_known(self) -> None:
        assert summed(one({LANES: 32.0}, None), one({LANES: 16.0}, None))["lanes"] == 24.0
        assert summed(one({LANES: 32.0}, None, invocations=3), one({LANES: 16.0}, None))["lanes"] == 28.0

    def test_are_weighted_by_time_however_short(self) -> None:
        assert summed(one({LANES: 32.0}, 0.5), one({LANES: 8.0}, 0.25))["lanes"] == pytest.approx(24.0)

    def test_leave_out_launches_without_a_time_beside_others_that_have_one(self) -> None:
        assert summed(one({LANES: 32.0}, 10.0), one({LANES: 16.0}, None))["lanes"] == 32.0

    @pytest.mark.parametrize("group", ["nvtx", "name"])
    def test_of_several_kernels_are_known_where_they_are_for_nine_tenths_of_the_time(self, group: str) -> None:
        def lanes(*times_and_lanes: tuple[float | None, float | None]) -> float:
            metrics = [(ns, {} if value is None else {LANES: value}) for ns, value in times_and_lanes]
            made = launches_table(*(one(some, ns) for ns, some in metrics))
            return float(taken(lambda: DiagnosisSums(group), made).quantities()["lanes"][0])

        assert lanes((91.0, 32.0), (9.0, None)) == 32.0
        assert lanes((None, 32.0), *[(None, 16.0)] * 8, (None, None)) == pytest.approx((32 + 8 * 16) / 9)
        less = [lanes((89.0, 32.0), (11.0, None)), lanes(*[(None, 32.0)] * 8, *[(None, None)] * 2)]
        assert all(math.isnan(found) for found in less) if group == "nvtx" else less == [32.0, 32.0]


class TestRatiosOfSums:
    @pytest.mark.parametrize("access", ["ld", "st"])
    def test_are_sectors_for_each_request(self, access: str) -> None:
        quantity = {"ld": "sectors_per_load", "st": "sectors_per_store"}[access]
        sectors, requests = SECTORS.format(access), REQUESTS.format(access)
        assert summed(one({sectors: 320.0, requests: 10.0}), one({sectors: 480.0, requests: 30.0}))[quantity] == 20.0

    def test_are_not_known_unless_every_launch_has_the_metric(self) -> None:
        sectors, requests = SECTORS.format("ld"), REQUESTS.format("ld")
        assert math.isnan(summed(one({sectors: 320.0, requests: 10.0}), one({}))["sectors_per_load"])

    def test_are_excessive_sectors_of_all_by_either_metric(self) -> None:
        assert of({EXCESSIVE: 10.0, THEORETICAL: 40.0})["excessive_sectors"] == 0.25
        assert of({IDEAL: 10.0, THEORETICAL: 40.0})["excessive_sectors"] == 0.75
        assert of({EXCESSIVE: 10.0, IDEAL: 10.0, THEORETICAL: 40.0})["excessive_sectors"] == 0.25
        assert of({EXCESSIVE: 0.0, THEORETICAL: 0.0})["excessive_sectors"] == 0.0
        assert math.isnan(of({THEORETICAL: 40.0})["excessive_sectors"])
        assert math.isnan(of({EXCESSIVE: 10.0})["excessive_sectors"])

    def test_of_a_launch_that_failed_are_no_blocks_of_its_grid_of_zero(self) -> None:
        assert math.isnan(of({}, grid=(0, 0, 0))["blocks"])
        assert of({}, grid=(3, 2, 1))["blocks"] == 6.0

    def test_are_totals_of_dram_bytes(self) -> None:
        found = summed(one({}, dram=10.0), one({}, dram=20.0))
        assert found["dram_bytes"] == 30.0

    def test_are_dram_bytes_beyond_those_of_the_ideal_sectors(self) -> None:
        assert of({IDEAL: 10.0}, dram=640.0)["dram_overfetch"] == 0.5
        assert of({IDEAL: 100.0}, dram=640.0)["dram_overfetch"] == 0.0, "caches served some"
        assert of({IDEAL: 0.0}, dram=1.0)["dram_overfetch"] == 1.0
        assert math.isnan(of({IDEAL: 10.0}, dram=0.0)["dram_overfetch"])
        assert math.isnan(of({}, dram=640.0)["dram_overfetch"])

    def test_are_none_too_many_where_a_kernel_has_no_accesses_to_global_memory(self) -> None:
        """The tail kernel of the H100 loads nothing: "coalescing would say more" asked for what it has."""
        none = {SECTORS.format("ld"): 0.0, REQUESTS.format("ld"): 0.0}
        assert of(none)["sectors_per_load"] == 0.0
        assert math.isnan(of(none)["sectors_per_store"])

    def test_are_wasted_on_l2_only_as_far_as_l1_asked_it_for_more_than_coalesced_ones_would(self) -> None:
        """Two loads of 16 bytes of 32 a thread on an H100: 1,310,720 sectors in L1, 786,432 asked of L2, all needed."""
        cast = {IDEAL: 786432.0, THEORETICAL: 1310720.0, ASKED: 786432.0}
        found = of(cast, dram=16777216.0)
        assert (found["excessive_sectors"], found["l2_overfetch"], found["dram_overfetch"]) == (0.4, 0.0, 0.0)
        strided = of({IDEAL: 16777216.0, THEORETICAL: 75497472.0, ASKED: 75497472.0}, dram=4564288.0e3)
        assert strided["l2_overfetch"] == strided["excessive_sectors"] == pytest.approx(7 / 9)
        assert strided["dram_overfetch"] == pytest.approx(1 - 16777216 * 32 / 4564288.0e3)
        spilled = of({IDEAL: 10.0, THEORETICAL: 20.0, ASKED: 100.0}, dram=1920.0)
        assert (spilled["l2_overfetch"], spilled["dram_overfetch"]) == (0.1, 0.5), "the others are local memory's"
        assert math.isnan(of({IDEAL: 10.0, THEORETICAL: 20.0}, dram=640.0)["l2_overfetch"])

    @pytest.mark.parametrize(
        ("added", "every"),
        [
            ("derived__memory_l1_wavefronts_shared_excessive", "memory_l1_wavefronts_shared"),
            ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"),
        ],
    )
    def test_are_wavefronts_added_by_bank_conflicts(self, added: str, every: str) -> None:
        assert of({added: 10.0, every: 40.0})["conflicts"] == 0.25
        assert of({added: 0.0, every: 0.0})["conflicts"] == 0.0
        assert of({added: 1.0, every: 1.0})["conflicts"] == 1.0
        assert math.isnan(of({every: 40.0})["conflicts"])
        assert math.isnan(of({added: 10.0})["conflicts"]), "of how many is not known"
        assert of({added: 0.0})["conflicts"] == 0.0, "of however many"
        assert math.isnan(of({added: 1.0, every: 0.0})["conflicts"]), "no count of either can be right"

    def test_are_local_sectors_of_all_in_l1(self) -> None:
        local = {
            f"l1tex__t_sectors_pipe_lsu_mem_local_op_{access}.sum": n for access, n in (("ld", 10.0), ("st", 30.0))
        }
        assert of({**local, "l1tex__t_sectors.sum": 400.0})["local_sectors"] == 0.1

    def test_are_local_sectors_of_those_asked_of_l2_where_l1_did_not_count_all(self) -> None:
        """Full reports of an H100 hold no count of all sectors of L1."""
        asked = {"memory_l2_theoretical_sectors_local": 96.0, "memory_l2_theoretical_sectors_global": 4.0}
        assert of(asked)["local_sectors"] == 0.96
        l1 = {f"l1tex__t_sectors_pipe_lsu_mem_local_op_{one}.sum": 10.0 for one in ("ld", "st")}
        assert of({**asked, **l1, "l1tex__t_sectors.sum": 400.0})["local_sectors"] == 0.05
        assert math.isnan(of({"memory_l2_theoretical_sectors_local": 96.0})["local_sectors"])

    @pytest.mark.parametrize("instructions", ["smsp__inst_executed.sum", "sm__inst_executed.sum"])
    def test_are_spilling_instructions_of_all(self, instructions: str) -> None:
        found = of({SPILLS: 10.0, instructions: 40.0})
        assert (found["spills"], found["spill_instructions"]) == (0.25, 10.0)
        assert of({SPILLS: 0.0})["spills"] == 0.0
        assert math.isnan(of({instructions: 40.0})["spills"])
        assert math.isnan(of({SPILLS: 1.0})["spills"])

    def test_are_local_instructions_by_the_first_pair_of_counters(self) -> None:
        first = {f"smsp__sass_inst_executed_op_local_{way}.sum": 1.0 for way in ("ld", "st")}
        last = {f"l1tex__t_requests_pipe_lsu_mem_local_op_{way}.sum": 5.0 for way in ("ld", "st")}
        assert of({**first, **last})["local_instructions"] == 2.0
        assert of(last)["local_instructions"] == 10.0


class TestAGrid:
    FIT = {"launch__occupancy_limit_registers": 4.0, "launch__occupancy_limit_warps": 16.0}  # noqa: RUF012

    def of(self, blocks: float, sms: float | None = 80.0, **more: float) -> dict[str, float]:
        named = {WAVES: more["waves"]} if "waves" in more else {}
        return of({**self.FIT, BLOCKS: blocks, **({} if sms is None else {SMS: sms}), **named})

    def test_takes_the_lowest_limit_of_blocks_on_an_sm(self) -> None:
        found = self.of(160.0)
        assert (found["fitting"], found["waves"], found["blocks_per_sm"]) == (4.0, 0.5, 2.0)

    @pytest.mark.parametrize(("printed", "waves"), [(0.5, 0.5015625), (0.506, 0.5015625), (0.51, 0.51), (0.49, 0.49)])
    def test_has_the_exact_waves_where_the_printed_ones_are_those_rounded(self, printed: float, waves: float) -> None:
        assert self.of(160.5, waves=printed)["waves"] == waves

    def test_without_sms_has_the_printed_waves_which_tell_blocks_per_sm_from_a_tenth_of_a_wave_on(self) -> None:
        assert self.of(64.0, None, waves=0.2)["blocks_per_sm"] == pytest.approx(0.8)
        assert self.of(64.0, None, waves=0.1)["blocks_per_sm"] == pytest.approx(0.4)
        assert math.isnan(self.of(64.0, None, waves=0.09)["blocks_per_sm"])

    def test_has_the_waves_of_a_rules_text_only_without_others(self) -> None:
        rules = [rule("SOLBottleneck", WAVES_TEXT)]
        assert of(self.FIT, rules=rules)["waves"] == 0.4
        assert of({**self.FIT, WAVES: 0.7}, rules=rules)["waves"] == 0.7

    @pytest.mark.parametrize(
        ("blocks", "empty", "tail"),
        [(20, 0.75, 0.0), (80, 0.0, 0.0), (320, 0.0, 0.0), (400, 0.0, 0.375), (640, 0.0, 0.0), (720, 0.0, 0.25)],
    )
    def test_leaves_sms_empty_and_its_last_wave(self, blocks: float, empty: float, tail: float) -> None:
        found = self.of(blocks)
        assert (found["empty_sms"], found["tail"]) == (pytest.approx(empty), pytest.approx(tail))

    def test_of_one_sm_that_holds_one_block_has_a_wave_for_each_block(self) -> None:
        found = of({BLOCKS: 3.0, SMS: 1.0, "launch__occupancy_limit_warps": 1.0})
        assert (found["waves"], found["blocks_per_sm"], found["tail"]) == (3.0, 3.0, 0.0)
        assert of({BLOCKS: 3.0, SMS: 1.0})["blocks_per_sm"] == 3.0

    def test_of_an_unknown_number_of_blocks_leaves_no_sm_empty_and_without_waves_has_no_tail(self) -> None:
        found = of({**self.FIT, WAVES: 0.2})
        assert found["blocks_per_sm"] == pytest.approx(0.8)
        assert math.isnan(found["empty_sms"])
        assert math.isnan(of({BLOCKS: 3.0})["tail"])

    def test_may_be_missing_in_a_table(self) -> None:
        made = launches_table(one({BLOCKS: 3.0})).drop_columns(["grid", "block", "device_name"])
        found = taken(lambda: DiagnosisSums("name"), made).quantities()
        assert found["blocks"][0] == 3.0
        assert math.isnan(found["threads"][0])

    def test_of_zero_sms_or_no_fitting_block_is_not_known(self) -> None:
        assert math.isnan(self.of(64.0, 0.0)["waves"])
        assert math.isnan(self.of(64.0, 0.0)["empty_sms"])
        assert math.isnan(of({BLOCKS: 64.0, SMS: 80.0, "launch__occupancy_limit_warps": 0.0})["waves"])

    def test_is_told_by_its_shape_and_the_data_sheet_where_no_metric_is(self) -> None:
        made = one({}, grid=(8, 2, 3), block=(32, 4, 1), attributes={"Device Name": "Tesla T4"})
        found = summed(made)
        assert (found["blocks"], found["threads"], found["sm_count"]) == (48.0, 128.0, 40.0)
        assert found["blocks_per_sm"] == 1.2
        own = summed(one({BLOCKS: 5.0, "launch__block_size": 64.0, SMS: 10.0}, grid=(8, 2, 3), block=(32, 4, 1)))
        assert (own["blocks"], own["threads"], own["sm_count"]) == (5.0, 64.0, 10.0)
        assert math.isnan(of({}, attributes={"Device Name": "A GPU of 2030"})["sm_count"])
        keep("without-sms", device="A GPU with a machine file")
        assert math.isnan(of({}, attributes={"Device Name": "A GPU with a machine file"})["sm_count"])

    @pytest.mark.parametrize("elapsed", ["sm__cycles_elapsed.max", "gpc__cycles_elapsed.max", "sm__cycles_elapsed.avg"])
    def test_leaves_sms_idle_for_the_cycles_without_a_warp(self, elapsed: str) -> None:
        assert of({"sm__cycles_active.avg": 75.0, elapsed: 100.0})["idle"] == 0.25
        assert of({"sm__cycles_active.avg": 120.0, elapsed: 100.0})["idle"] == 0.0
        assert math.isnan(of({elapsed: 100.0})["idle"])

    def test_takes_the_mean_time_of_its_launches(self) -> None:
        assert summed(one({}, 100.0), one({}, 100.0))["launch_ns"] == 100.0


class TestSumsOfSeveralTables:
    def sums(self, *launches: Launch) -> DiagnosisSums:
        return taken(lambda: DiagnosisSums("name"), launches_table(*launches))

    def test_are_merged_kernel_by_kernel(self) -> None:
        first = self.sums(launch("a", {SPILLS: metric(1.0)}), launch("b", {SPILLS: metric(2.0)}))
        first.merge(self.sums(launch("c", {SPILLS: metric(8.0)}), launch("b", {SPILLS: metric(4.0)})))
        spilled = first.quantities()["spill_instructions"]
        assert [spilled[number_of(first, name)] for name in "abc"] == [1.0, 6.0, 8.0]
        with pytest.raises(KeyError):
            number_of(first, "d")

    def test_keep_the_notes_on_reading_their_reports(self) -> None:
        first, other = (
            taken(lambda: DiagnosisSums("name"), with_metadata(launches_table(launch()), {"notes": [note, "both"]}))
            for note in ("one", "other")
        )
        first.merge(other)
        assert list(first.reports) == ["one", "both", "other"]

    def test_know_the_metrics_that_some_launch_has(self) -> None:
        unknown = pa.array([None], pa.float64())
        made = launches_table(launch("k", {SPILLS: metric(1.0)})).append_column(LANES, unknown)
        assert {SPILLS, LANES} & set(taken(lambda: DiagnosisSums("name"), made).metrics()) == {SPILLS}

    def test_know_which_kernels_ncu_profiled(self) -> None:
        of_nsys = launches_table(launch("timed"))
        of_nsys = of_nsys.set_column(of_nsys.column_names.index("source"), "source", pa.array(["nsys"]))
        timed = taken(lambda: DiagnosisSums("name"), of_nsys)
        assert not timed.is_of_ncu(number_of(timed, "timed"))
        both = self.sums(launch("counted"))
        both.merge(timed)
        assert [both.is_of_ncu(number_of(both, name)) for name in ("counted", "timed")] == [True, False]
        timed.merge(self.sums(launch("counted")))
        assert [timed.is_of_ncu(number_of(timed, name)) for name in ("counted", "timed")] == [True, False]

    def test_have_inputs_if_all_launches_have_the_same_type(self) -> None:
        def inputs(*kinds: str | None) -> Inputs:
            made = launches_table(*(launch("gemm") for _ in kinds)).append_column(
                "dtype", pa.array(list(kinds)).dictionary_encode()
            )
            sums = taken(lambda: DiagnosisSums("name"), made)
            return sums.inputs(number_of(sums, "gemm"))

        assert inputs("c10::Half", "c10::Half") == Inputs("fp16", "the operator's tensors", is_product=True)
        assert inputs("c10::Half", "c10::BFloat16") == Inputs()
        assert inputs("float") == Inputs("", "the kernel's name", is_product=True)
        assert inputs(None, "c10::BFloat16") == Inputs()

    def test_have_no_inputs_of_a_kernel_that_nobody_launched(self) -> None:
        assert DiagnosisSums("name").inputs(0) == Inputs()
