"""The diagnosis of one kernel from its quantities: what is a cause, in which order, and what the sentence says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ncu_tools.kernels.diagnosis.diagnose import (
    AT_ITS_LIMIT,
    WITHOUT_CEILING,
    Diagnosis,
    KernelCause,
    RuledOut,
    diagnose,
)
from ncu_tools.kernels.diagnosis.limits import BusyResource
from ncu_tools.kernels.diagnosis.sums import Inputs
from ncu_tools.kernels.kernel_row import Hotspot
from tests.tools.diagnosis.test_quantities import kernel

BUSY = {"dram/DRAM/dram__throughput": 0.3, "sm/ALU pipe/sm__pipe_alu_cycles_active": 0.4}
WAITING = {"issue": 0.1, "eligible": 0.2}


def of(known: dict[str, float], row: Hotspot | None = None, metrics: tuple[str, ...] = (), **options: Any) -> Diagnosis:
    return diagnose(known, row or kernel(), Inputs(), metrics, **options)


def costs(found: Diagnosis) -> dict[str, float | None]:
    return {cause.rule: None if cause.cost is None else round(cause.cost, 9) for cause in found.causes}


class TestTheLimit:
    @pytest.mark.parametrize(("share", "near"), [(0.79, False), (0.8, True), (0.95, True)])
    def test_of_the_busiest_resource_is_a_cause_from_eighty_per_cent_on(self, share: float, near: bool) -> None:
        found = of({"l2/L2/lts__throughput": share, **BUSY})
        assert (AT_ITS_LIMIT in costs(found)) == near
        assert found.busiest == BusyResource("l2", "L2", share, "lts__throughput")

    def test_is_not_that_of_l2_by_a_part_that_the_memory_system_leaves_out(self) -> None:
        """A ReLU on an H100: L2 at 81 %, the memory system at 57 %, and no part of L2 above 47 %."""
        whole = {"l2/L2/lts__throughput": 0.811, "l2/L2 input/lts__xbar2lts_cycles_active": 0.466}
        found = of({**BUSY, **whole, "memory_busy": 0.57})
        assert AT_ITS_LIMIT not in costs(found)
        assert found.text.startswith(
            "not explained by what was collected: busiest is L2, at 81 %; the memory system's throughput leaves out the"
        )
        assert "lts__ltcfabric2lts_cycles_active would tell" in found.unexplained
        found = of({**BUSY, **whole, "memory_busy": 0.57, "l2/L2 fabric/lts__ltcfabric2lts_cycles_active": 0.811})
        assert found.text == "L2 fabric bound: at 81 % of its peak", "collected, it is proven"
        assert of({**BUSY, **whole, "memory_busy": 0.811}).text == "L2 bound: at 81 % of its peak"
        lower = of({**BUSY, "l2/L2/lts__throughput": 0.7, "memory_busy": 0.57}, by_ncu=False)
        assert lower.text == "no cause stands out: busiest is L2, at 70 %"

    def test_is_the_busiest_resource_that_a_page_of_the_report_names(self) -> None:
        """Strided reads on an H100 keep DRAM at 84 %, and L2 at 93 % by a part that no page shows."""
        found = of({**BUSY, "l2/L2/lts__throughput": 0.93, "dram/DRAM/dram__throughput": 0.84, "memory_busy": 0.84})
        assert found.text == "DRAM bound: at 84 % of its peak"
        assert found.busiest == BusyResource("dram", "DRAM", 0.84, "dram__throughput")

    def test_says_which_resource_and_how_near_with_the_metric_as_evidence(self) -> None:
        (cause,) = of({"l2/L2/lts__throughput": 0.875, **BUSY}).causes
        assert (cause.says, cause.cost) == ("L2 bound: at 88 % of its peak", 0.125)
        (evidence,) = cause.evidence
        assert (evidence.title, evidence.value, evidence.unit, list(evidence.metrics)) == (
            "L2 busy", 0.875, "fraction", ["lts__throughput"],
        )  # fmt: skip

    def test_of_a_roof_is_its_ceiling(self) -> None:
        (cause,) = of({}, kernel(bound="FP32", bound_fraction=0.9)).causes
        assert cause.says == "FP32 bound: at 90 % of its ceiling"

    def test_that_is_exceeded_costs_nothing(self) -> None:
        assert costs(of({"l2/L2/lts__throughput": 1.04, **BUSY})) == {AT_ITS_LIMIT: 0.0}

    def test_leaves_nothing_to_collect_and_no_possible_causes(self) -> None:
        half_known = {"theoretical": 0.5, **BUSY}
        found = of(half_known)
        assert found.possible == ["occupancy (50 % at most by what was not collected)"]
        assert {"issue", "stalls"} <= set(found.collect)
        near = of({**half_known, "l2/L2/lts__throughput": 0.9})
        assert (near.possible, near.collect) == ([], [])


class TestGroupsToCollect:
    def test_are_named_unless_ncu_did_not_profile_the_kernel(self) -> None:
        assert of({}).collect == of({}, by_ncu=True).collect
        assert {"issue", "stalls", "dram", "flops"} <= set(of({}).collect)
        assert of({}, by_ncu=False).collect == []

    @pytest.mark.parametrize(
        ("row", "groups"),
        [
            ({}, {"dram", "flops"}),
            ({"dram_bytes": 1.0}, {"flops"}),
            ({"flops": 1.0}, {"dram"}),
            ({"flops": 1.0, "flops_lower_bound": True}, {"dram", "flops"}),
            ({"flops": 1.0, "dram_bytes": 1.0}, set()),
            ({"bound": "FP32", "flops": 1.0}, {"dram"}),
            ({"bound": "FP32", "flops": 1.0, "flops_lower_bound": True}, {"dram", "flops"}),
            ({"bound": "FP32", "bound_fraction": 0.1}, set()),
        ],
    )
    def test_are_dram_and_flops_where_a_roofline_would_tell_the_busiest_resource(
        self, row: dict[str, Any], groups: set[str]
    ) -> None:
        assert set(of({}, kernel(**row)).collect) & {"dram", "flops"} == groups

    def test_lack_a_ceiling_where_time_and_bytes_are_known_and_the_busiest_resource_is_not(self) -> None:
        measured = {"time_total_ns": 1e6, "dram_bytes": 1.0, "flops": 0.0}
        assert of({}, kernel(**measured)).lacks_a_ceiling
        assert not of({}, kernel(**{**measured, "time_total_ns": 0.0})).lacks_a_ceiling
        assert not of({}, kernel(time_total_ns=1e6)).lacks_a_ceiling
        assert not of({}, kernel(time_total_ns=1e6, flops=1.0)).lacks_a_ceiling
        assert not of({"sm_busy": 0.1, "memory_busy": 0.1}, kernel(**measured)).lacks_a_ceiling
        assert not of({"sm_busy": 0.9}, kernel(**measured)).lacks_a_ceiling

    @pytest.mark.parametrize("flops", [{"flops": None}, {"flops": 1.0, "flops_lower_bound": True}])
    def test_are_what_lacks_and_not_a_ceiling_where_flops_were_not_counted(self, flops: dict[str, Any]) -> None:
        found = of({}, kernel(**{"time_total_ns": 1e6, "dram_bytes": 1.0, **flops}))
        assert not found.lacks_a_ceiling
        assert "flops" in found.collect


class TestCauses:
    EMPTY = {"empty_sms": 0.2, "blocks": 64.0, **BUSY}  # noqa: RUF012
    PARTIAL = {  # noqa: RUF012
        "theoretical": 0.9, "empty_sms": 0.0, "blocks_per_sm": 2.0, "fitting": 4.0, **WAITING, **BUSY,
    }  # fmt: skip

    @pytest.mark.parametrize(("empty", "named"), [(0.049, False), (0.05, True), (0.051, True)])
    def test_are_named_if_they_can_cost_five_per_cent(self, empty: float, named: bool) -> None:
        found = of({**self.EMPTY, "empty_sms": empty})
        assert ("few blocks" in costs(found)) == named
        assert found.ruled_out == []

    def test_are_ruled_out_by_a_busy_resource_that_leaves_less_than_they_explain(self) -> None:
        tail = {"waves": 1.25, "tail": 0.375}
        assert costs(of({**BUSY, **tail})) == {"tail": 0.375}
        found = of({**BUSY, **tail, "l2/L2/lts__throughput": 0.96})
        assert found.ruled_out == [
            RuledOut("tail", "tail (1.25 waves)", "L2 at 96 % leaves no more to gain without fewer sectors")
        ]
        found = of({**BUSY, "waves": 1.9, "tail": 0.05, "l2/L2/lts__throughput": 0.96})
        assert [one.rule for one in found.ruled_out] == ["tail"]
        found = of({**BUSY, **tail, "l2/L2/lts__throughput": 0.95})
        assert found.ruled_out == []
        assert costs(found)["tail"] == pytest.approx(0.05)

    def test_that_cost_most_come_first_and_of_unknown_cost_last(self) -> None:
        """What idle lanes cost is the time that the SMs are busy with them, which only their use tells."""
        known = {"empty_sms": 0.2, "blocks": 64.0, "waves": 1.25, "tail": 0.375, "lanes": 10.0}
        first, *rest = costs(of({**known, "dram/DRAM/x": 0.3})).items()
        assert first == ("tail", 0.375)
        assert rest == [("few blocks", 0.2), ("divergence", None)]
        assert list(costs(of({**known, **BUSY})).items()) == [
            ("tail", 0.375),
            ("divergence", 0.34375),
            ("few blocks", 0.2),
        ]

    def test_with_the_same_cost_are_ordered_by_what_they_explain_themselves(self) -> None:
        """The busiest resource leaves 0.3 to both; the tail explains 0.5, the stall 0.9."""
        found = of({
            "l2/L2/lts__throughput": 0.7, "waves": 1.1, "tail": 0.45, "issue": 0.1, "stall barrier": 9.0, "latency": 10.0,
        })  # fmt: skip
        assert costs(found) == {"stalled": pytest.approx(0.3), "tail": pytest.approx(0.3)}
        assert list(costs(found)) == ["stalled", "tail"]

    def test_of_unknown_cost_do_not_change_the_order_of_the_others(self) -> None:
        """L2 leaves 0.3 to both; tensor cores would do all that L1 is busy with, the tail explains 0.45."""
        known = {
            "l2/L2/lts__throughput": 0.7,
            "l1/L1/l1tex__data_pipe": 0.6,
            "waves": 1.1,
            "tail": 0.45,
            "lanes": 10.0,
            "tensor_pipe": 0.0,
        }
        found = diagnose(known, kernel(), Inputs("fp16", is_product=True))
        assert list(costs(found).items()) == [
            ("tensor cores idle", pytest.approx(0.3)),
            ("tail", pytest.approx(0.3)),
            ("divergence", None),
        ]

    def test_have_the_known_quantities_as_evidence_with_the_metrics_of_the_report(self) -> None:
        metrics = ("device__attribute_multiprocessor_count",)
        (cause,) = of(self.EMPTY, metrics=metrics).causes
        assert [(one.quantity, one.value) for one in cause.evidence] == [("blocks", 64.0), ("empty_sms", 0.2)]
        blocks, empty = cause.evidence
        assert list(blocks.metrics) == ["launch__grid_size"], "of a report with none of them, all"
        assert list(empty.metrics) == ["device__attribute_multiprocessor_count"]

    def test_keep_patterns_of_metrics_as_evidence(self) -> None:
        inputs, row = Inputs("fp16", is_product=True), kernel(flops=10.0, work={"fp32": 10.0})
        found = diagnose({"sm_busy": 0.4, "memory_busy": 0.1}, row, inputs, ("x",))
        (cause,) = [cause for cause in found.causes if cause.rule == "tensor cores idle"]
        assert [list(one.metrics) for one in cause.evidence] == [["sm__ops_path_tensor_*.sum"]]
        latency = "smsp__average_warp_latency_per_inst_issued.ratio"
        (cause,) = of({"stall barrier": 8.0, "latency": 10.0, "issue": 0.1, **BUSY}, metrics=(latency,)).causes
        (share,) = [one for one in cause.evidence if one.quantity == "top_stall_share"]
        assert list(share.metrics) == ["smsp__average_warps_issue_stalled_*_per_issue_active.ratio", latency]

    def test_that_stand_on_a_rules_text_name_the_rule(self) -> None:
        found = of({"waves by a rule": 0.5, **self.PARTIAL})
        (cause,) = [cause for cause in found.causes if cause.rule == "partial wave"]
        assert list(cause.evidence[0].metrics) == ["NVIDIA's rule SOLBottleneck"]

    def test_of_a_partial_wave_replace_the_causes_that_follow_from_it(self) -> None:
        """What a partial wave leaves of the occupancy is achieved occupancy that lacks, too."""
        known = {"waves": 0.5, "achieved": 0.4, **self.PARTIAL}
        assert set(costs(of(known))) == {"partial wave"}
        assert set(costs(of({**known, "waves": 4.0, "tail": 0.0}))) == {"achieved occupancy"}

    def test_are_possible_if_what_decides_them_was_not_collected(self) -> None:
        found = of({"theoretical": 0.5, "issue": 0.1, **BUSY})
        assert found.possible == ["occupancy (50 % at most by what was not collected)"]
        assert "issue" in found.collect
        assert of({"theoretical": 0.5, **WAITING, **BUSY}).possible == []

    def test_that_fail_a_condition_are_ruled_out_with_its_value(self) -> None:
        found = of({"theoretical": 0.5, "issue": 0.7, "eligible": 0.4, **BUSY})
        (one,) = found.ruled_out
        assert (one.rule, one.reason) == ("theoretical occupancy", "70 % of the issue slots are used")

    def test_that_are_not_certain_are_possible_and_ask_for_no_more_metrics(self) -> None:
        found = of({"theoretical": 0.5, "issue": 0.1, "eligible": 2.4, **BUSY})
        assert (found.causes, found.ruled_out) == ([], [])
        (one,) = found.possible
        assert one.startswith("occupancy (50 % at most")
        assert found.collect == of({"theoretical": 0.5, "issue": 0.1, "eligible": 0.4, **BUSY}).collect


def cause(rule: str, cost: float | None = 0.2) -> KernelCause:
    return KernelCause(rule, rule, cost, [], "")


SM = BusyResource("sm", "SM", 0.424, "m")


class TestTheSentence:
    def test_names_three_causes_besides_the_limit(self) -> None:
        five = [cause(f"c{number}") for number in range(5)]
        assert Diagnosis(None, five).text == "c0; c1; c2"
        limited = Diagnosis(SM, [cause(AT_ITS_LIMIT), *five]).text
        assert limited == f"{AT_ITS_LIMIT}; c0; c1; c2"

    def test_names_the_busiest_resource_unless_its_limit_is_named(self) -> None:
        assert Diagnosis(SM, [cause("c")]).text == "c; busiest is SM, at 42 %"
        assert Diagnosis(SM, [cause("c")], busiest_is_certain=False).text.endswith(
            "; busiest of what was collected is SM, at 42 %"
        )
        assert Diagnosis(SM, [cause("c"), cause(AT_ITS_LIMIT)]).text == f"c; {AT_ITS_LIMIT}"
        hidden = Diagnosis(SM, [*(cause(f"c{number}") for number in range(3)), cause(AT_ITS_LIMIT)]).text
        assert hidden.endswith("c2; busiest is SM, at 42 %")

    def test_has_a_bound_where_the_first_cause_is_not_the_limit_itself(self) -> None:
        assert Diagnosis(SM, []).bound == Diagnosis(None, [cause("c")]).bound == ""
        assert Diagnosis(SM, [cause(AT_ITS_LIMIT), cause("c")]).bound == ""
        assert Diagnosis(SM, [cause("c")]).bound == "busiest is SM, at 42 %"
        assert Diagnosis(SM, [cause("c"), cause(AT_ITS_LIMIT)]).bound == AT_ITS_LIMIT

    def test_says_that_nothing_explains_the_kernel_and_whether_something_was_not_collected(self) -> None:
        assert Diagnosis(SM, []).text == "no cause stands out: busiest is SM, at 42 %"
        assert Diagnosis(SM, [], collect=["x"]).text == (
            "not explained by what was collected: busiest is SM, at 42 %; x would say more"
        )
        assert Diagnosis(None, [], collect=["x"]).text == "not explained by what was collected; x would say more"
        assert Diagnosis(None, []).text == ""

    def test_of_a_kernel_without_a_cause_leaves_out_what_was_ruled_out(self) -> None:
        ruled_out = [RuledOut("a", "A", "busy")]
        assert Diagnosis(SM, [], ruled_out).unexplained == "no cause stands out: busiest is SM, at 42 %"
        assert Diagnosis(None, [], lacks_a_ceiling=True).unexplained == WITHOUT_CEILING
        assert Diagnosis(None, []).unexplained == ""

    def test_asks_for_a_ceiling_before_it_asks_for_metrics(self) -> None:
        assert Diagnosis(None, [], collect=["x"], lacks_a_ceiling=True).text == f"{WITHOUT_CEILING}; x would say more"

    def test_puts_together_what_was_ruled_out_for_the_same_reason(self) -> None:
        ruled_out = [RuledOut("a", "A", "busy"), RuledOut("b", "B", "idle"), RuledOut("c", "C", "busy")]
        assert Diagnosis(SM, [cause(AT_ITS_LIMIT)], ruled_out, possible=["D", "E"]).text == (
            f"{AT_ITS_LIMIT}; ruled out, as busy: A, C; ruled out, as idle: B; perhaps D, E"
        )

    def test_is_plain_values_in_json(self) -> None:
        as_json = Diagnosis(SM, [cause("c")]).as_json()
        assert as_json["busiest"]["share"] == 0.424
        assert as_json["causes"][0]["rule"] == "c"


def kernel_named(name: str) -> Hotspot:
    return replace(kernel(), kernel=name)
