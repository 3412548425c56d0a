"""The quantities that a diagnosis stands on, each against a figure worked out by hand; and the limits of what it costs."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ncu_tools.kernels.diagnosis.derived import derived
from ncu_tools.kernels.diagnosis.limits import (
    BusyResource,
    both_sides_are_known,
    busy_resources,
    cost,
    none_can_be_busier,
    shared_by_all_sms,
)
from ncu_tools.kernels.diagnosis.rules import CauseRule, failing, holds, rules, unknown
from ncu_tools.kernels.diagnosis.sums import DiagnosisSums, Inputs
from ncu_tools.kernels.kernel_row import Hotspot
from tests.support.launches import launch, metric, table


def kernel(**known: Any) -> Hotspot:
    """A row of hotspots of which nothing is known but what is given."""
    names = ("time_total_ns", "time_mean_ns", "time_min_ns", "time_max_ns", "time_std_ns", "time_share",
             "time_cumulative", "flops", "flops_per_s", "dram_bytes", "dram_bytes_per_s", "arithmetic_intensity",
             "bound", "bound_fraction")  # fmt: skip
    return Hotspot("k", 1, **{**dict.fromkeys(names), **known})


def follows(known: dict[str, float], row: Hotspot | None = None, inputs: Inputs | None = None) -> dict[str, float]:
    return derived(known, row or kernel(), inputs or Inputs())


def same(value: float, other: float) -> bool:
    return value == pytest.approx(other, nan_ok=True)


class TestAGrid:
    @pytest.mark.parametrize(
        ("known", "tail_cost", "uneven"),
        [
            ({"tail": 0.4}, 0.4, math.nan),
            ({"tail": 0.4, "idle": 0.3, "empty_sms": 0.1}, 0.2, 0.0),
            ({"tail": 0.1, "idle": 0.3, "empty_sms": 0.1}, 0.1, 0.1),
            ({"tail": 0.4, "idle": 0.3}, 0.3, 0.0),
            ({"tail": 0.4, "idle": 0.1, "empty_sms": 0.2}, 0.0, -0.1),
            ({"idle": 0.3}, 0.3, math.nan),
            ({"idle": 0.3, "waves": 0.5, "tail": 0.0}, 0.0, math.nan),
            ({"idle": 0.3, "waves": 1.0, "tail": 0.0}, 0.0, 0.3),
            ({"idle": 0.3, "waves": 0.5, "tail": 0.0, "empty_sms": 0.0}, 0.0, 0.3),
            ({}, math.nan, math.nan),
        ],
    )
    def test_costs_its_last_wave_as_far_as_sms_are_idle_and_leaves_the_rest_uneven(
        self, known: dict[str, float], tail_cost: float, uneven: float
    ) -> None:
        found = follows(known)
        assert same(found["tail_cost"], tail_cost)
        assert same(found["uneven"], uneven)

    @pytest.mark.parametrize(
        ("known", "occupancy"),
        [
            ({"waves": 0.5, "theoretical": 0.8, "empty_sms": 0.0}, 0.4),
            ({"waves": 1.0, "theoretical": 0.8, "empty_sms": 0.0}, 1.0),
            ({"waves": 2.0, "theoretical": 0.8}, 1.0),
            ({"waves": 0.25, "theoretical": 0.8, "empty_sms": 0.5}, 0.4),
            ({"waves": 0.25, "theoretical": 0.8, "empty_sms": 0.75}, 0.8),
            ({"waves": 0.5, "theoretical": 0.8}, math.nan),
            ({"waves": 0.0, "theoretical": 0.8, "empty_sms": 0.9}, math.nan),
        ],
    )
    def test_of_less_than_a_wave_leaves_that_part_of_the_occupancy_on_the_sms_with_a_block(
        self, known: dict[str, float], occupancy: float
    ) -> None:
        assert same(follows(known)["grid_occupancy"], occupancy)

    def test_lacks_the_difference_between_its_occupancies(self) -> None:
        found = follows({"waves": 0.5, "theoretical": 0.8, "achieved": 0.6, "empty_sms": 0.0})
        assert same(found["grid_occupancy_missing"], 0.6)
        assert same(found["theoretical_missing"], 0.2)
        assert same(found["achieved_gap"], 0.2)
        assert same(found["achieved_missing"], 0.25)
        assert math.isnan(follows({"waves": 1.0, "theoretical": 0.8, "empty_sms": 0.0})["grid_occupancy_missing"])
        assert math.isnan(follows({"theoretical": 0.0, "achieved": 0.0})["achieved_missing"])


PIPE = "l1/L1 data pipe/l1tex__data_pipe_lsu_wavefronts"


class TestAccesses:
    @pytest.mark.parametrize(
        ("known", "unused"),
        [
            ({"used_load_bytes": 8.0}, 0.75),
            ({"used_load_bytes": 1.0}, 31 / 32),
            ({"used_load_bytes": 32.0, "sectors_per_load": 32.0}, 0.0),
            ({"used_load_bytes": 64.0}, 0.0),
            ({"used_load_bytes": 0.0, "sectors_per_load": 32.0}, 31 / 32),
            ({"sectors_per_load": 20.0}, 0.95),
            ({"sectors_per_load": 16.5}, 1 - 1 / 16.5),
            ({"sectors_per_load": 16.0}, math.nan),
            ({}, math.nan),
        ],
    )
    def test_leave_bytes_of_sectors_unused_or_at_most_all_but_the_one_sector_that_32_threads_need(
        self, known: dict[str, float], unused: float
    ) -> None:
        assert same(follows(known)["unused_load_bytes"], unused)
        assert same(follows(known)["unused_bytes"], unused)

    def test_waste_as_much_as_the_worse_of_loads_and_stores(self) -> None:
        assert follows({"used_load_bytes": 24.0, "used_store_bytes": 8.0})["unused_bytes"] == 0.75
        assert follows({"used_store_bytes": 8.0})["unused_bytes"] == 0.75

    @pytest.mark.parametrize(
        ("parts", "shared", "unused", "conflicts"),
        [
            ({PIPE: 0.8}, 0.75, 0.125, 0.3),
            ({PIPE: 0.8, "l1/L1 data banks/l1tex__data_bank_reads": 0.81}, 0.75, 0.125, 0.3),
            ({PIPE: 0.4, "l1/L1/l1tex__throughput": 0.8}, math.nan, 0.5, 0.4),
            ({"l1/unknown/x": math.nan, PIPE: 0.4, "l1/L1/l1tex__throughput": 0.8}, math.nan, 0.5, 0.4),
            ({"l1/L1 data banks/l1tex__data_bank_reads": 0.5, PIPE: 0.8}, 0.75, 0.125, 0.3),
            ({PIPE: 0.5}, 1.0, 0.0, 0.4),
            ({PIPE: 0.0}, math.nan, 0.5, 0.4),
            ({}, math.nan, 0.5, 0.4),
        ],
    )
    def test_to_global_and_to_shared_memory_divide_the_data_pipe_where_it_is_the_busiest_part_of_l1(
        self, parts: dict[str, float], shared: float, unused: float, conflicts: float
    ) -> None:
        found = follows({**parts, "shared_wavefronts": 0.6, "used_load_bytes": 16.0, "conflicts": 0.4})
        assert same(found["shared_of_l1"], shared)
        assert same(found["unused_of_l1"], unused)
        assert same(found["conflicts_of_l1"], conflicts)

    def test_to_shared_memory_are_an_unknown_share_of_the_data_pipe_where_they_were_not_counted(self) -> None:
        found = follows({PIPE: 0.8, "used_load_bytes": 16.0, "conflicts": 0.4})
        assert math.isnan(found["shared_of_l1"])
        assert (found["unused_of_l1"], found["conflicts_of_l1"]) == (0.5, 0.4)

    def test_waste_of_l1_no_more_than_their_excessive_sectors_and_of_l2_what_was_asked_of_it(self) -> None:
        """Of 2.2 million sectors of a transform on an H100, 3,072 are excessive, though its few loads use 5.3 of 32 bytes."""
        found = follows({"used_load_bytes": 5.33, "used_store_bytes": 32.0, "excessive_sectors": 0.0014})
        assert (found["unused_of_l1"], found["excessive_of_l2"]) == (0.0014, 0.0014)
        found = follows({"used_load_bytes": 16.0, "excessive_sectors": 0.6, "l2_overfetch": 0.002})
        assert (found["unused_of_l1"], found["excessive_of_l2"]) == (0.5, 0.002)

    def test_of_warps_leave_lanes_inactive(self) -> None:
        assert follows({"lanes": 24.0})["inactive_lanes"] == 0.25

    def test_of_warps_that_a_block_fills_in_part_leave_only_lanes_with_a_thread_inactive(self) -> None:
        found = follows({"lanes": 12.0, "warp_threads": 24.0})
        assert (found["inactive_lanes"], found["partial_warps"]) == (0.5, 0.25)
        assert math.isnan(follows({})["inactive_lanes"])

    def test_of_local_memory_are_its_sectors_else_its_instructions(self) -> None:
        assert follows({"local": 0.1, "local_sectors": 0.3})["local_traffic"] == 0.3
        assert follows({"local": 0.1})["local_traffic"] == 0.1

    def test_of_one_l2_slice_cost_what_it_is_busy_beyond_the_mean_one(self) -> None:
        found = follows({"slice_busy": 0.8, "slice_mean": 0.2})
        assert found["slice_uneven"] == pytest.approx(0.75)
        assert found["slice_cost"] == pytest.approx(0.6)


class TestStalls:
    def test_cost_the_share_of_the_longest_wait_and_at_most_the_empty_slots(self) -> None:
        waits = {"stall long_scoreboard": 6.0, "stall barrier": 2.0}
        assert follows({**waits, "latency": 12.0})["top_stall_share"] == 0.5
        assert follows(waits)["top_stall_share"] == pytest.approx(6 / 9)
        assert follows({**waits, "latency": 12.0, "issue": 0.8})["top_stall_cost"] == pytest.approx(0.2)
        assert follows({**waits, "latency": 12.0})["top_stall_cost"] == 0.5
        assert math.isnan(follows({})["top_stall_cost"])

    @pytest.mark.parametrize(
        ("known", "share"),
        [
            ({"stall barrier": 0.0, "latency": 10.0}, 0.0),
            ({"stall barrier": 0.4, "latency": 0.8}, 0.5),
            ({"stall barrier": 0.5}, 0.5 / 1.5),
            ({"stall barrier": 12.0, "latency": 10.0}, 1.0),
            ({"stall barrier": 0.0, "latency": 0.0}, math.nan),
            ({"latency": 10.0}, math.nan),
            ({"issue": 0.2}, math.nan),
        ],
    )
    def test_are_a_share_of_the_time_between_two_instructions(self, known: dict[str, float], share: float) -> None:
        assert same(follows(known)["top_stall_share"], share)
        assert same(follows(known)["top_stall_cost"], share)

    def test_are_no_waits_of_warps_that_are_ready_and_not_chosen(self) -> None:
        found = follows({"stall not_selected": 9.0, "stall barrier": 2.0, "stall drain": 3.0, "latency": 20.0})
        assert found["top_stall"] == 3.0


class TestInputs:
    def test_are_multiplied_by_the_tensor_cores_that_their_type_has_else_by_any(self) -> None:
        row = kernel(flops=10.0, work={"tensor_fp16": 4.0, "tensor_bf16": 3.0, "fp32": 3.0})
        of_type = follows({"tensor_flops_fp16": 4.0}, row, Inputs("fp16"))
        assert (of_type["tensor_flops"], of_type["tensor_flops_of_inputs"]) == (7.0, 4.0)
        assert follows({}, row, Inputs("fp16"))["tensor_flops_of_inputs"] == 7.0

    def test_did_no_tensor_work_where_the_pipe_was_idle_and_nothing_was_counted(self) -> None:
        assert follows({"tensor_pipe": 0.0})["tensor_work"] == 0.0
        assert math.isnan(follows({"tensor_pipe": 0.1})["tensor_work"])
        assert follows({"tensor_pipe": 0.0, "tensor_flops_fp16": 4.0}, None, Inputs("fp16"))["tensor_work"] == 4.0

    def test_of_another_type_than_the_name_says_are_tensor_work_all_the_same(self) -> None:
        """cuDNN calls an attention of bf16 wgmma_f16: on an H100 it did 1.4e11 tensor FLOPs of bf16, and none of fp16."""
        counted = {"tensor_flops_fp16": 0.0, "tensor_flops_bf16": 1.4e11}
        found = follows(counted, kernel(flops=1.4e11, work={"tensor_bf16": 1.4e11}), Inputs("fp16"))
        assert (found["tensor_flops_of_inputs"], found["tensor_work"]) == (0.0, 1.4e11)
        tf32 = follows(
            {"tensor_flops_fp16": 0.0}, kernel(work={"tensor_tf32": 8.0, "tensor_fp8": None}), Inputs("fp16")
        )
        assert tf32["tensor_work"] == 8.0, "counted, however incomplete the count is"
        assert follows({"tensor_flops_fp16": 0.0}, None, Inputs("fp16"))["tensor_work"] == 0.0

    def test_that_tensor_cores_take_over_are_all_of_their_work_and_operands(self) -> None:
        found = follows({})
        assert (found["all_compute"], found["all_operands"]) == (1.0, 1.0)

    @pytest.mark.parametrize(
        ("row", "tensor"),
        [
            ({"flops": 10.0, "work": {"tensor_fp16": 4.0, "tensor_int8": 1.0, "fp32": 6.0}}, 5.0),
            ({"flops": 10.0, "work": {"fp32": 10.0}}, 0.0),
            ({"flops": 10.0, "work": {"tensor_fp16": 4.0, "tensor_bf16": None}}, math.nan),
            ({"flops": 10.0, "work": {"tensor_fp16": 4.0}, "flops_lower_bound": True}, math.nan),
            ({"work": {"tensor_fp16": 4.0}}, math.nan),
        ],
    )
    def test_have_tensor_flops_where_the_count_is_complete(self, row: dict[str, Any], tensor: float) -> None:
        assert same(follows({}, kernel(**row))["tensor_flops"], tensor)

    def test_say_what_the_kernel_multiplies(self) -> None:
        found = follows({}, None, Inputs("bf16", "x", is_product=True))
        assert (found["half_inputs"], found["matrix_product"], found["vector_product"]) == (1.0, 1.0, 0.0)
        found = follows({}, None, Inputs(is_vector=True))
        assert (found["half_inputs"], found["matrix_product"], found["vector_product"]) == (0.0, 0.0, 1.0)


class TestBusyResources:
    def test_are_each_as_busy_as_their_busiest_part_and_the_busiest_is_first(self) -> None:
        parts = {"dram/DRAM/a": 0.3, "dram/DRAM/b": 0.5, "l2/L2/c": 0.4, "l1/L1/d": math.nan}
        found = busy_resources(parts, kernel())
        assert [(one.resource, one.share, one.metric) for one in found] == [("dram", 0.5, "b"), ("l2", 0.4, "c")]

    def test_are_named_by_the_busier_part_however_little_it_is_and_by_the_first_of_equal_ones(self) -> None:
        (found,) = busy_resources({"l2/L2/a": 0.5, "l2/L2/b": 0.505, "l2/L2/c": 0.505}, kernel())
        assert (found.share, found.metric) == (0.505, "b")

    @pytest.mark.parametrize(("whole", "named"), [(0.52, True), (0.51, False), (0.505, False)])
    def test_are_the_whole_memory_system_where_it_is_above_every_part(self, whole: float, named: bool) -> None:
        found = busy_resources({"dram/DRAM/a": 0.5, "memory_busy": whole}, kernel())
        assert ("memory" in {one.resource for one in found}) == named

    def test_are_a_small_whole_without_any_part(self) -> None:
        assert [one.share for one in busy_resources({"sm_busy": 0.02}, kernel())] == [0.02]

    def test_are_the_roof_that_is_known(self) -> None:
        (roof,) = busy_resources({}, kernel(bound="FP32", bound_fraction=0.6))
        assert (roof.resource, roof.title, roof.share, roof.metric) == ("roof", "FP32", 0.6, "roofline")
        (dram,) = busy_resources({}, kernel(bound="DRAM", bound_fraction=0.6))
        assert dram.resource == "dram"

    def test_of_l1_are_its_active_cycles_as_a_share_of_all_and_no_more_than_the_memory_system(self) -> None:
        def of_l1(**known: float) -> float | None:
            return next((one.share for one in busy_resources(known, kernel()) if one.resource == "l1"), None)

        assert of_l1(l1_busy_while_active=0.8, idle=0.25) == pytest.approx(0.6)
        assert of_l1(l1_busy_while_active=0.8, idle=0.25, memory_busy=0.5) == 0.5
        assert of_l1(l1_busy_while_active=0.4, memory_busy=0.5) == 0.4
        assert of_l1(l1_busy_while_active=0.8) is None
        assert of_l1(memory_busy=0.5) is None

    @pytest.mark.parametrize(
        ("known", "row", "certain"),
        [
            ({"memory_busy": 0.5, "sm_busy": 0.5}, {}, True),
            ({"memory_busy": 0.5, "sm_busy": 0.0}, {}, True),
            ({"memory_busy": 0.0, "sm_busy": 0.5}, {}, True),
            ({"memory_busy": 0.5}, {}, False),
            ({"sm_busy": 0.5}, {}, False),
            ({"dram/DRAM/a": 0.5, "sm/ALU/b": 0.2}, {}, True),
            ({}, {"bound": "FP32", "bound_fraction": 0.1}, True),
        ],
    )
    def test_of_both_sides_are_known_by_a_counter_of_each_or_by_the_roof(
        self, known: dict[str, float], row: dict[str, Any], certain: bool
    ) -> None:
        one = kernel(**row)
        assert both_sides_are_known(known, busy_resources(known, one), one) is certain

    @pytest.mark.parametrize(
        ("known", "certain"),
        [
            ({"memory_busy": 0.5, "sm_busy": 0.0}, True),
            ({"memory_busy": 0.5}, False),
            ({"dram/DRAM/a": 0.1, "sm_busy": 0.4}, False),
            ({"dram/DRAM/a": 0.1, "l2/L2/b": 0.1, "sm_busy": 0.4}, False),
            ({"dram/DRAM/a": 0.1, "l2/L2/b": 0.1, "l1/L1/c": 0.1, "sm/ALU/d": 0.4}, True),
        ],
    )
    def test_can_be_busier_than_the_busiest_as_long_as_a_level_of_memory_is_not_known(
        self, known: dict[str, float], certain: bool
    ) -> None:
        row = kernel(bound="DRAM", bound_fraction=0.5)
        assert none_can_be_busier(known, busy_resources(known, row)) is certain

    @pytest.mark.parametrize(("whole", "title"), [(0.835, "LSU"), (0.85, "L1")])
    def test_name_the_whole_unit_only_where_it_is_busier_than_each_of_its_parts(self, whole: float, title: str) -> None:
        (found,) = busy_resources({"l1/L1/l1tex__throughput": whole, "l1/LSU/l1tex__data_pipe": 0.83}, kernel())
        assert found.title == title

    def test_that_all_sms_share_are_dram_and_l2_and_without_them_the_memory_system(self) -> None:
        dram, l1 = BusyResource("dram", "DRAM", 0.3, "m"), BusyResource("l1", "L1", 0.9, "m")
        assert shared_by_all_sms({"memory_busy": 0.9}, [l1, dram]) == dram
        found = shared_by_all_sms({"memory_busy": 0.9}, [l1])
        assert found is not None
        assert (found.title, found.share) == ("memory system", 0.9)
        assert shared_by_all_sms({}, [l1]) is None

    def test_are_requests_to_l1_apart_from_what_it_does_with_them(self) -> None:
        """The throughput of L1 as a whole is the larger of both, so it tells of L1 only where it is above the requests."""
        requests = {"lsu/LSU/l1tex__lsuin_requests": 0.83}
        (found,) = busy_resources({"l1/L1/l1tex__throughput": 0.835, **requests}, kernel())
        assert found.resource == "lsu"
        found, _ = busy_resources({"l1/L1/l1tex__throughput": 0.9, **requests}, kernel())
        assert found.resource == "l1"
        parts = {**requests, "l1/L1 data pipe/l1tex__data_pipe": 0.5, "dram/DRAM/dram__throughput": 0.4}
        assert [one.resource for one in busy_resources(parts, kernel())] == ["lsu", "l1", "dram"]
        known = {"dram/DRAM/a": 0.1, "l2/L2/b": 0.1, "sm/ALU/d": 0.4, **requests}
        assert none_can_be_busier(known, busy_resources(known, kernel()))


def rule(**fields: Any) -> CauseRule:
    return CauseRule(**{"id": "r", "label": "t", "when": {}, "says": "", "source": "", **fields})


BUSY = {"dram/DRAM/a": 0.8, "l2/L2/b": 0.5}


class TestCosts:
    """new time / time >= max over resources of u (1 - w)."""

    def of(self, one: CauseRule, **known: float) -> Any:
        return cost(one, {**BUSY, **known}, busy_resources({**BUSY, **known}, kernel()))

    def test_are_at_most_what_other_resources_leave(self) -> None:
        found = self.of(rule(costs="own"), own=0.9)
        assert (found.own, found.left, found.at_most) == (0.9, pytest.approx(0.2), pytest.approx(0.2))
        assert self.of(rule(costs="own"), own=0.1).at_most == 0.1
        assert self.of(rule(costs="own")).at_most is None

    def test_name_the_resource_that_leaves_least_which_need_not_be_the_busiest(self) -> None:
        """Of DRAM, busy 0.8 of the time, three quarters go: 0.2 stay, less than the 0.5 of L2."""
        found = self.of(rule(frees={"dram": "waste"}), waste=0.75)
        assert (found.kept_by.title, found.left) == ("L2", 0.5)
        assert self.of(rule(costs="own"), own=0.9).kept_by.title == "DRAM"

    def test_of_waste_are_the_time_that_a_resource_is_busy_with_it(self) -> None:
        """Of DRAM, busy 0.8 of the time, a quarter goes: 0.2 own; 1 - max(0.8 x 0.75, 0.5) = 0.4 left."""
        found = self.of(rule(frees={"dram": "waste"}), waste=0.25)
        assert (found.own, found.left) == (pytest.approx(0.2), pytest.approx(0.4))

    def test_of_waste_in_a_level_that_nobody_measured_are_bounded_by_the_memory_system_or_by_what_waits_for_it(
        self,
    ) -> None:
        assert self.of(rule(frees={"l1": "waste"}), waste=0.25, memory_busy=0.6).own == pytest.approx(0.15)
        assert self.of(rule(frees={"l1": "waste"}), waste=0.25, **{"waits l1": 0.4}).own == pytest.approx(0.1)
        assert self.of(rule(frees={"l1": "waste"}), waste=0.25, l1_busy_while_active=0.8).own == pytest.approx(0.2)
        assert math.isnan(self.of(rule(frees={"sm": "waste"}), waste=0.25).own)

    def test_are_not_known_where_nothing_bounds_the_level_that_is_wasted(self) -> None:
        assert math.isnan(self.of(rule(frees={"l1": "waste"}), waste=0.25).own)
        assert math.isnan(cost(rule(frees={"l2": "waste"}), {"waste": 0.25}, []).own)
        little = rule(frees={"dram": "waste", "l1": "waste"})
        assert math.isnan(self.of(little, waste=0.06).own), "L1 may cost more than the 4.8 % of DRAM"
        assert self.of(little, waste=0.01).own == pytest.approx(0.008), "as L1 can cost no more than 1 %"
        assert self.of(little, waste=0.5).own == pytest.approx(0.4), "and what DRAM costs is known"

    def test_of_a_quantity_beside_freed_resources_are_known_only_if_one_of_these_was_measured(self) -> None:
        both = rule(costs="waste", costs_where_busy=True, frees={"sm": "waste"})
        assert math.isnan(self.of(both, waste=0.25).own)
        assert cost(both, {"waste": 0.25}, [BusyResource("sm", "SM", 0.1, "m")]).own == 0.25

    def test_within_an_sm_are_not_known_of_a_few_blocks_on_nobody_knows_how_many_sms(self) -> None:
        waste = {"waste": 0.5, "blocks": 1.0}
        on_l1 = [BusyResource("l1", "L1", 0.001, "m")]
        assert math.isnan(cost(rule(frees={"l1": "waste"}), waste, on_l1).own)
        assert cost(rule(frees={"l1": "waste"}), {**waste, "blocks": 300.0}, on_l1).own == 0.0005
        assert cost(rule(frees={"l1": "waste"}), {**waste, "idle": 0.99}, on_l1).own == pytest.approx(0.05)

    @pytest.mark.parametrize(
        ("resource", "known", "own"),
        [
            ("l1", {"empty_sms": 0.9}, 0.25),
            ("l1", {"empty_sms": 0.9, "idle": 0.95}, 0.5),
            ("l1", {"idle": 0.99}, 0.5),
            ("l1", {"idle": 1.0}, 0.5),
            ("l1", {}, 0.025),
            ("sm", {"empty_sms": 0.9}, 0.25),
            ("dram", {"empty_sms": 0.9}, 0.4),
        ],
    )
    def test_of_waste_within_an_sm_are_the_time_of_the_sms_that_have_work(
        self, resource: str, known: dict[str, float], own: float
    ) -> None:
        """L1 is busy 0.05 of all SMs' time, which is half of the time of the tenth of them that has a block."""
        busy = {"l1/L1/c": 0.05, "sm/ALU/d": 0.05}
        found = self.of(rule(frees={resource: "waste"}), waste=0.5, **busy, **known)
        assert found.own == pytest.approx(own)

    def test_of_waste_in_the_memory_system_are_held_to_the_whole_of_it_and_of_waste_in_the_sms_are_not(self) -> None:
        whole = {"waste": 0.5, "memory_busy": 0.95}
        assert self.of(rule(frees={"dram": "waste"}), **whole).left == pytest.approx(1 - 0.5)
        assert self.of(rule(frees={"sm": "waste"}), **whole).left == pytest.approx(1 - 0.95)

    def test_of_waste_that_is_just_worth_naming_are_known_though_another_level_was_not_collected(self) -> None:
        both = rule(frees={"sm": "waste", "dram": "waste"})
        on_sm = [BusyResource("sm", "SM", 0.2, "m")]
        assert cost(both, {"waste": 0.25, "idle": 0.0}, on_sm).own == 0.05
        assert math.isnan(cost(both, {"waste": 0.24, "idle": 0.0}, on_sm).own)

    def test_of_unknown_waste_are_unknown_and_of_half_known_waste_the_larger(self) -> None:
        assert self.of(rule(frees={"dram": "waste"})).at_most is None
        found = self.of(rule(frees={"dram": "waste", "l2": "not known"}), waste=0.5)
        assert found.left == pytest.approx(1 - 0.8 * 0.5)


class TestConditions:
    @pytest.mark.parametrize(
        ("limits", "inside", "outside"),
        [
            ({"at_least": 0.5}, [0.5, 1.0], [0.4]),
            ({"above": 0.5}, [0.6], [0.5, 0.4]),
            ({"at_most": 0.5}, [0.5, 0.0], [0.6]),
            ({"below": 0.5}, [0.4], [0.5, 0.6]),
            ({"above": 0.0, "below": 1.0}, [0.5], [0.0, 1.0]),
        ],
    )
    def test_hold_inside_their_limits(
        self, limits: dict[str, float], inside: list[float], outside: list[float]
    ) -> None:
        for value in inside:
            assert holds({"q": value}, {"q": limits})
            assert failing({"q": value}, {"q": limits}) == []
        for value in outside:
            assert not holds({"q": value}, {"q": limits})
            assert failing({"q": value}, {"q": limits}) == ["q"]

    def test_neither_hold_nor_fail_on_unknown_quantities(self) -> None:
        conditions = {"q": {"at_least": 0.5}}
        for known in ({}, {"q": math.nan}):
            assert (holds(known, conditions), failing(known, conditions), unknown(known, conditions)) == (
                False,
                [],
                ["q"],
            )

    def test_of_the_rules_are_of_known_kinds(self) -> None:
        kinds = {kind for one in rules() for limits in (*one.when.values(), *one.harms_if.values()) for kind in limits}
        assert kinds <= {"at_least", "above", "at_most", "below"}


def quantities_of(*launches: tuple[float, dict[str, float]]) -> dict[str, float]:
    """The quantities of one kernel, by the times and metrics of its launches."""
    made = table(*(launch("k", {name: metric(value) for name, value in some.items()}, ns=ns) for ns, some in launches))
    sums = DiagnosisSums("name")
    sums.add(made)
    return {name: float(values[0]) for name, values in sums.quantities().items()}


IDEAL, THEORETICAL = "memory_l2_theoretical_sectors_global_ideal", "memory_l2_theoretical_sectors_global"
LOCAL_LOADS, LOCAL_STORES = (f"smsp__sass_inst_executed_op_local_{way}.sum" for way in ("ld", "st"))
LANES = "smsp__thread_inst_executed_per_inst_executed.ratio"


class TestSums:
    def test_are_weighted_with_time(self) -> None:
        assert quantities_of((100, {LANES: 32.0}), (300, {LANES: 16.0}))["lanes"] == 20

    def test_are_of_launches_that_have_the_metric(self) -> None:
        assert quantities_of((100, {LANES: 32.0}), (300, {}))["lanes"] == 32

    def test_of_sectors_are_the_share_beyond_the_ideal_ones(self) -> None:
        assert quantities_of((1, {IDEAL: 30.0, THEORETICAL: 40.0}))["excessive_sectors"] == 0.25
        assert quantities_of((1, {IDEAL: 0.0, THEORETICAL: 0.0}))["excessive_sectors"] == 0

    def test_of_local_instructions_are_their_share_and_nothing_where_there_are_none(self) -> None:
        some = {LOCAL_LOADS: 10.0, LOCAL_STORES: 30.0, "smsp__inst_executed.sum": 400.0}
        assert quantities_of((1, some))["local"] == 0.1
        assert quantities_of((1, {LOCAL_LOADS: 0.0, LOCAL_STORES: 0.0}))["local"] == 0
        one = {LOCAL_LOADS: 1.0, LOCAL_STORES: 0.0, "smsp__inst_executed.sum": 4.0}
        assert quantities_of((1, one))["local"] == 0.25

    def test_of_a_grid_say_how_it_fills_the_sms(self) -> None:
        """250 blocks, 10 SMs of 10 blocks each: 2.5 waves, of whose three the last is half empty."""
        limits = {f"launch__occupancy_limit_{name}": 10.0 for name in ("registers", "shared_mem", "blocks", "warps")}
        many = {**limits, "launch__grid_size": 250.0, "device__attribute_multiprocessor_count": 10.0}
        found = quantities_of((1, many))
        assert (found["waves"], found["blocks_per_sm"], found["empty_sms"]) == (2.5, 25, 0)
        assert found["tail"] == pytest.approx(0.5 / 3)
        few = quantities_of((1, {**many, "launch__grid_size": 5.0}))
        assert (few["waves"], few["empty_sms"], few["tail"]) == (0.05, 0.5, 0)

    def test_of_grids_that_leave_sms_empty_are_those_of_such_launches_alone(self) -> None:
        """Of 10 SMs, 4 and 8 blocks leave 6 and 2 empty; 10 blocks leave none, for half of the time."""
        sms = {"device__attribute_multiprocessor_count": 10.0}
        found = quantities_of(*((time, {**sms, "launch__grid_size": blocks}) for time, blocks in
                                ((100, 4.0), (100, 8.0), (200, 10.0))))  # fmt: skip
        assert (found["small"], found["blocks_of_small"], found["empty_of_small"]) == (0.5, 6, pytest.approx(0.4))
        assert found["blocks_spread"] == 4  # the variance of 4 and 8
        unknown = quantities_of((100, {"launch__grid_size": 4.0}))
        assert all(math.isnan(unknown.get(name, math.nan)) for name in ("small", "blocks_of_small", "empty_of_small"))

    def test_of_l2_slices_are_the_busy_time_of_the_busiest_and_of_the_mean_one(self) -> None:
        cycles = {"lts__cycles_elapsed.max": 1000.0, "lts__cycles_active.max": 800.0, "lts__cycles_active.avg": 200.0}
        found = quantities_of((100, cycles))
        assert (found["slice_busy"], found["slice_mean"]) == (0.8, 0.2)
        assert quantities_of((100, {**cycles, "lts__cycles_active.max": 1001.0}))["slice_busy"] == 1
