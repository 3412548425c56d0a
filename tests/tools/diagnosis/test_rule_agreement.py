"""Our diagnoses compared with NVIDIA's own rule results: no unexplained contradiction, and the published table."""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from ncu_parsers.parse.parse import parse
from ncu_parsers.parse.report_files import find_sources

from benchmarks.rule_agreement import Result, markdown, reports_in, results
from ncu_tools.ceilings.ceilings import ceilings_of
from ncu_tools.kernels.diagnosis.agreement import (
    AGREED,
    FINER,
    OUTCOMES,
    SILENT,
    WITH_REASON,
    WITHOUT,
    Agreement,
    agreement,
)
from ncu_tools.kernels.diagnosis.diagnose import (
    AT_ITS_LIMIT,
    CauseEvidence,
    Diagnosis,
    KernelCause,
    RuledOut,
    diagnoses,
)
from ncu_tools.kernels.diagnosis.limits import BusyResource
from ncu_tools.kernels.diagnosis.rules import rules, stall_reasons
from ncu_tools.kernels.hotspots import hotspots
from tests.conftest import ROOT, SAMPLES, SHARED
from tests.support.reports import needs_shared_reports

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@cache
def found_in(folder: Path) -> list[Result]:
    return [one for report in reports_in([str(folder)]) for one in results(report)]


def rule(name: str, text: str, kind: str = "OPT", speedup: str = "") -> dict[str, str]:
    return {"name": name, "kind": kind, "description": text, "speedup": speedup}


def with_cause(name: str, says: str = "", cost: float | None = 0.5, resource: str = "dram") -> Diagnosis:
    return Diagnosis(
        BusyResource(resource, resource.upper(), 0.9, "metric"), [KernelCause(name, says, cost, [], "source")]
    )


def outcome_of(result: dict[str, str], ours: Diagnosis) -> str:
    return agreement(result, ours).outcome


class TestAContradiction:
    def test_about_the_busiest_unit_is_detected(self) -> None:
        dram = rule("SOLBottleneck", "greater than 80.0%. Start by analyzing DRAM in the Memory section.", "INF")
        assert outcome_of(dram, with_cause(AT_ITS_LIMIT)) == AGREED
        assert outcome_of(dram, with_cause(AT_ITS_LIMIT, resource="sm")) == WITHOUT
        assert outcome_of(dram, with_cause("tail", resource="l2")) == WITHOUT

    def test_needs_that_all_units_were_measured(self) -> None:
        """Without L2 nothing contradicts that L2 is the busiest."""
        ours = replace(with_cause("tail", resource="sm"), busiest_is_certain=False)
        l2 = rule("SOLBottleneck", "Memory is more heavily utilized than Compute: ... to identify the L2 bottleneck.")
        assert outcome_of(l2, ours) == SILENT
        assert outcome_of(l2, replace(ours, busiest_is_certain=True)) == WITHOUT
        dram = rule("SOLBottleneck", "Start by analyzing DRAM in the Memory section.")
        assert outcome_of(dram, replace(with_cause(AT_ITS_LIMIT), busiest_is_certain=False)) == AGREED

    @pytest.mark.parametrize("level", ["L1", "L2"])
    def test_about_l1_or_l2_as_a_whole_has_its_share_as_the_reason(self, level: str) -> None:
        """Their own throughputs have parts that NVIDIA's throughput of the memory system has not."""
        says = f"{level} bound: at 90 % of its peak"
        ours = with_cause(AT_ITS_LIMIT, says, resource=level.lower())
        for text in (
            "Start by analyzing DRAM in the Memory section.",
            "below 60.0% of peak typically indicate latency",
        ):
            assert agreement(rule("SOLBottleneck", text), ours) == Agreement(WITH_REASON, says)

    def test_about_the_busiest_unit_is_none_where_ours_does_not_know_the_busiest(self) -> None:
        ours = replace(with_cause(AT_ITS_LIMIT), busiest=None, busiest_is_certain=False)
        assert outcome_of(rule("SOLBottleneck", "Start by analyzing DRAM in the Memory section."), ours) == SILENT

    def test_about_lsu_requests_is_none_as_both_compute_and_memory_count_them(self) -> None:
        ours = replace(
            with_cause(AT_ITS_LIMIT, resource="l1"), busiest=BusyResource("l1", "LSU requests to L1", 0.9, "m")
        )
        text = "Start by analyzing workloads in the {} Workload Analysis section."
        for section in ("Compute", "Memory"):
            assert outcome_of(rule("SOLBottleneck", text.format(section)), ours) == AGREED
        assert outcome_of(rule("SOLBottleneck", text.format("Compute")), with_cause(AT_ITS_LIMIT)) == WITHOUT

    @pytest.mark.parametrize(
        ("title", "outcome"),
        [
            ("ALU pipe", AGREED),
            ("FMA pipe", WITHOUT),
            ("heavy FMA pipe", FINER),
            ("issue slots", FINER),
            ("SM", SILENT),
        ],
    )
    def test_about_the_busiest_pipe_is_detected_among_those_that_the_rule_looks_at(
        self, title: str, outcome: str
    ) -> None:
        ours = Diagnosis(BusyResource("sm", title, 0.5, "metric"), [])
        assert outcome_of(rule("HighPipeUtilization", "ALU is the highest-utilized pipeline (45.4%)."), ours) == outcome

    def test_is_none_where_bank_conflicts_are_the_latency_that_the_rules_see(self) -> None:
        """The transpose of the H100 whose columns lie in one bank: 57 % of memory, an instruction every 8.2 cycles."""
        latency = rule("SOLBottleneck", "below 60.0% of peak typically indicate latency issues.")
        assert outcome_of(latency, with_cause("bank conflicts")) == FINER
        slots = rule("IssueSlotUtilization", "each scheduler only issues an instruction every 8.2 cycles.")
        assert outcome_of(slots, with_cause("bank conflicts")) == AGREED

    def test_is_none_where_threads_are_missing_as_blocks_have_no_more(self) -> None:
        threads = rule("ThreadDivergence", "This kernel achieves an average of 9.0 threads being active per cycle.")
        assert outcome_of(threads, with_cause("partial warps")) == FINER

    def test_about_the_limiter_of_the_occupancy_is_detected(self) -> None:
        text = "This kernel's theoretical occupancy (50.0%) is limited by the number of required registers."
        registers, shared = (
            with_cause("theoretical occupancy", f"occupancy: 50 % at most, limited by {what}: 1 block")
            for what in ("registers", "shared memory")
        )
        assert outcome_of(rule("TheoreticalOccupancy", text), registers) == AGREED
        assert outcome_of(rule("TheoreticalOccupancy", text), shared) == WITHOUT

    def test_is_explained_by_a_reason_that_the_sentence_shows(self) -> None:
        ruled_out = RuledOut("stalled", "stalls (at a barrier)", "85 % of the issue slots are used")
        ours = Diagnosis(None, [], [ruled_out])
        text = (
            "spends 9.0 cycles being stalled waiting for sibling warps at a CTA barrier. represents about 60.0% of the"
        )
        assert outcome_of(rule("CPIStall", text), ours) == WITH_REASON
        assert f"ruled out, as {ruled_out.reason}: {ruled_out.label}" in ours.text


class TestOurs:
    """What is said beside a result: the cause with its number."""

    UNCOALESCED = rule("UncoalescedGlobalAccess", "This kernel has uncoalesced global accesses.", speedup="59.1")

    def test_is_finer_where_it_holds_the_cost_to_less(self) -> None:
        ours = with_cause("uncoalesced", "uncoalesced: 60 % of the sectors", cost=0.11)
        assert agreement(self.UNCOALESCED, ours) == Agreement(FINER, "uncoalesced: 60 % of the sectors")

    @pytest.mark.parametrize(
        ("name", "cause"),
        [
            ("SharedMemoryConflicts", "bank conflicts"),
            ("UncoalescedSharedAccess", "bank conflicts"),
            ("ThreadDivergence", "divergence"),
        ],
    )
    def test_of_conflicts_and_divergence_agrees_or_holds_the_cost_to_less(self, name: str, cause: str) -> None:
        assert outcome_of(rule(name, "", speedup="37"), with_cause(cause, cost=0.32)) == AGREED
        assert outcome_of(rule(name, "", speedup="40"), with_cause(cause, cost=0.32)) == FINER
        assert outcome_of(rule(name, "", speedup="40"), with_cause("tail")) == SILENT

    def test_of_blocks_with_partial_warps_agrees_or_holds_the_cost_to_less(self) -> None:
        text = "Threads are executed in groups of 32 threads called warps. This kernel launch has 1 threads per block."
        one = rule("LaunchConfiguration", text, speedup="96.9")
        assert outcome_of(one, with_cause("partial warps", cost=0.97)) == AGREED
        assert outcome_of(one, with_cause("partial warps", cost=0.47)) == FINER

    @pytest.mark.parametrize(
        ("units", "cause", "outcome"),
        [
            ("SMs", "uneven", AGREED),
            ("SMSPs", "uneven", AGREED),
            ("L1 Slices", "few blocks", FINER),
            ("SMs", "tail", FINER),
            ("L2 Slices", "uneven", SILENT),
        ],
    )
    def test_of_unequal_units_agrees_only_on_those_of_an_sm(self, units: str, cause: str, outcome: str) -> None:
        text = (
            f"One or more {units} have a much lower number of active cycles than the average number of active cycles."
        )
        assert outcome_of(rule("WorkloadImbalance", text), with_cause(cause)) == outcome

    def test_of_a_grid_below_a_wave_is_finer_than_the_limiter_of_its_blocks(self) -> None:
        text = "This kernel's theoretical occupancy (83.3%) is limited by the required amount of shared memory."
        assert outcome_of(rule("Occupancy", text), with_cause("partial wave", "occupancy: 0.81 waves")) == FINER

    def test_agrees_where_it_costs_as_much(self) -> None:
        assert agreement(self.UNCOALESCED, with_cause("uncoalesced", cost=0.55)).outcome == AGREED
        assert agreement({**self.UNCOALESCED, "speedup": "40"}, with_cause("uncoalesced", cost=0.347)).outcome == FINER

    @pytest.mark.parametrize(
        ("title", "outcome"),
        [("pipe shared by FP64, FP16 and tensor", AGREED), ("tensor pipe", FINER), ("ALU pipe", WITHOUT)],
    )
    def test_of_the_shared_pipe_is_of_the_tensor_pipe_too(self, title: str, outcome: str) -> None:
        text = "Shared is the highest-utilized pipeline (71.8%). It is the logical sum of several other pipelines"
        ours = Diagnosis(BusyResource("sm", title, 0.72, "metric"), [], busiest_is_certain=True)
        assert outcome_of(rule("HighPipeUtilization", text), ours) == outcome

    @pytest.mark.parametrize("access", ["local loads from L2", "local stores to L1TEX"])
    def test_of_local_accesses_is_spilling_and_never_uncoalesced(self, access: str) -> None:
        text = f"The memory access pattern for {access} might not be optimal. On average, only 1.0 of the 32 bytes"
        found = rule("MemoryCacheAccessPattern", text, speedup="62.63")
        assert outcome_of(found, with_cause("spilling", cost=0.68)) == AGREED
        assert outcome_of(found, with_cause("local memory", cost=0.4)) == FINER
        assert outcome_of(found, with_cause("uncoalesced", cost=0.9)) == SILENT

    @pytest.mark.parametrize(("speedup", "cost"), [("", 0.05), ("59.1", None)])
    def test_agrees_where_one_of_both_gives_no_cost(self, speedup: str, cost: float | None) -> None:
        one = {**self.UNCOALESCED, "speedup": speedup}
        assert agreement(one, with_cause("uncoalesced", cost=cost)).outcome == AGREED

    def test_of_the_busiest_resource_alone_names_it_with_its_share(self) -> None:
        ours = Diagnosis(BusyResource("dram", "DRAM", 0.4, "metric"), [])
        balanced = rule("SOLBottleneck", "Compute and Memory are well-balanced.")
        assert agreement(balanced, ours) == Agreement(FINER, "busiest is DRAM, at 40 %")

    def test_is_silent_on_a_rule_without_a_cause(self) -> None:
        assert agreement(rule("SOLFPRoofline", "The ratio is 64:1."), with_cause("tail")) == Agreement(SILENT)

    def stalled(self, stall: str, per_cent: float, kind: str = "OPT", ours: float = 0.6) -> Agreement:
        """What ours, a barrier for 60 % of the time and a full queue for 34 %, makes of NVIDIA's stall with its share."""
        waits = stall_reasons()
        says = f"stalled: warps wait {waits['barrier']} for 60 % of their time, and 34 % {waits['lg_throttle']}"
        evidence = [
            CauseEvidence("issue", "slots", 0.3, "fraction", []),
            CauseEvidence("top_stall_share", "share", ours, "fraction", []),
        ]
        diagnosis = Diagnosis(None, [KernelCause("stalled", says, 0.6, evidence, "source")])
        text = f"spends 9.0 cycles being stalled waiting for {stall}. This represents about {per_cent}% of the total"
        return agreement(rule("CPIStall", text, kind), diagnosis)

    @pytest.mark.parametrize(
        ("stall", "per_cent", "outcome"),
        [
            ("sibling warps at a CTA barrier", 60.0, AGREED),
            ("sibling warps at a CTA barrier", 64.9, AGREED),
            ("sibling warps at a CTA barrier", 55.2, AGREED),
            ("sibling warps at a CTA barrier", 30.0, WITHOUT),
            ("sibling warps at a CTA barrier", 65.2, WITHOUT),
            ("the L1 instruction queue for local and global (LG) memory operations", 33.6, AGREED),
            ("the L1 instruction queue for local and global (LG) memory operations", 40.0, SILENT),
            ("an immediate constant cache (IMC) miss", 30.0, SILENT),
            ("an immediate constant cache (IMC) miss", 60.0, SILENT),
            ("an immediate constant cache (IMC) miss", 65.2, WITHOUT),
            ("something of another year", 60.0, SILENT),
            ("something of another year", 75.0, WITHOUT),
        ],
    )
    def test_of_a_stall_has_to_name_the_same_stall_with_the_same_share_of_the_time(
        self, stall: str, per_cent: float, outcome: str
    ) -> None:
        found = self.stalled(stall, per_cent)
        assert found.outcome == outcome
        assert found.ours.startswith("stalled: warps wait" if outcome != SILENT else "")
        assert bool(found.ours) == (outcome != SILENT)

    def test_of_a_stall_may_differ_by_five_points(self) -> None:
        assert self.stalled("sibling warps at a CTA barrier", 0.0, ours=0.05).outcome == AGREED
        assert self.stalled("an immediate constant cache (IMC) miss", 5.0, ours=0.0).outcome == SILENT

    def test_is_silent_on_a_stall_that_is_told_as_information(self) -> None:
        assert self.stalled("sibling warps at a CTA barrier", 60.0, "INF") == Agreement(SILENT)

    def test_is_silent_on_a_rule_without_a_text(self) -> None:
        without = {"name": "CPIStall", "kind": "OPT", "description": None, "speedup": None}
        assert agreement(without, with_cause("stalled")) == Agreement(SILENT)

    def test_names_what_is_possible_as_finer(self) -> None:
        text = "The 4.00 theoretical warps per scheduler this kernel can issue are below the maximum of 16."
        ours = Diagnosis(None, [], possible=["occupancy (25 % at most by registers)"])
        found = agreement(rule("TheoreticalOccupancy", text), ours)
        assert found == Agreement(FINER, "perhaps occupancy (25 % at most by registers)")
        assert agreement(self.UNCOALESCED, ours) == Agreement(SILENT), "of another cause"
        assert outcome_of(rule("TheoreticalOccupancy", text), replace(ours, possible=["bank conflicts"])) == SILENT

    def test_is_silent_where_it_rules_out_something_else(self) -> None:
        ours = Diagnosis(None, [], [RuledOut("tail", "tail", "DRAM is at 75 % all the same")])
        assert outcome_of(self.UNCOALESCED, ours) == SILENT


def test_the_mapping_names_only_causes_that_exist() -> None:
    known = {AT_ITS_LIMIT, *(one.id for one in rules())}
    table = tomllib.loads((ROOT / "ncu_tools/kernels/diagnosis/agreement.toml").read_text("utf-8"))
    for finding in table["finding"]:
        named = {cause for case in finding["cases"] for cause in case.get("causes", ())}
        assert named | set(finding.get("ruled_out", ())) <= known
        assert {case["outcome"] for case in finding["cases"]} <= set(OUTCOMES)


@pytest.mark.slow
def test_the_samples_have_no_unexplained_contradiction() -> None:
    found = found_in(SAMPLES)
    assert found
    assert [one for one in found if one.outcome == WITHOUT] == []


@needs_shared_reports
@pytest.mark.slow
def test_real_reports_have_no_unexplained_contradiction() -> None:
    found = found_in(SHARED / "reports")
    assert [one for one in found if one.outcome == WITHOUT] == []
    for one in found:
        if one.outcome == WITH_REASON:
            assert "ruled out, as " in one.ours
    told = Counter(one.outcome for one in found)
    assert told[AGREED] > told[WITH_REASON] * 3


@needs_shared_reports
@pytest.mark.slow
def test_the_table_of_agreement_in_the_docs_is_what_the_script_prints() -> None:
    docs = (ROOT / "docs" / "dev" / "evidence" / "diagnosis.md").read_text("utf-8")
    table = markdown([*found_in(SAMPLES), *found_in(SHARED / "reports")])
    assert table in docs
    assert table.splitlines()[0] == "| rule | results | " + " | ".join(OUTCOMES) + " |"


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_outcome_is_explained_in_the_docs(outcome: str) -> None:
    docs = (ROOT / "docs" / "diagnosis.md").read_text("utf-8")
    assert re.search(rf"\* \*\*{re.escape(outcome)}\*\*", docs)


@needs_shared_reports
@pytest.mark.slow
def test_the_examples_of_the_docs_are_the_diagnoses_of_real_reports() -> None:
    page = (ROOT / "docs" / "diagnosis.md").read_text("utf-8").partition("The parts of a sentence")[0]
    blocks = [re.sub(r"\s+", " ", block).strip() for block in re.findall(r"(?:^ {4}.+\n)+", page, re.M)]
    examples = [block.removesuffix("...").rstrip(", ") for block in blocks if "ncu-bench" not in block]
    assert len(examples) == 3
    said = set()
    for name in ("ncu_rep_full/AlpriElse*CUDA*", "ncu_rep/AveryClapp*", "ncu_rep/eschnett*"):
        (report,) = (SHARED / "reports").glob(name)
        table = parse(find_sources([str(report)])).table
        assert table is not None
        said |= {one.text for one in diagnoses(table, hotspots(table, ceilings_of(table)).rows, "name").values()}
    assert [example for example in examples if not any(text.startswith(example) for text in said)] == []
