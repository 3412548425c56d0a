"""Rules, quantities and facts explained for a kernel: limits, numbers, outcome and source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ncu_launch.errors import WrongUsage

from ncu_tools.cli.tables.kernel.explanation_table import COLUMNS
from ncu_tools.kernels.diagnosis.rules import quantities, rules
from ncu_tools.kernels.view.explain import ExplainedName, explain, names
from ncu_tools.kernels.view.facts import parts
from ncu_tools.kernels.view.kernel_view import kernel_view
from tests.conftest import SAMPLES, SHARED
from tests.support.launches import launch, metric, table
from tests.support.ran import ran
from tests.support.reports import needs_shared_reports

SAMPLE = str(SAMPLES / "d02-long-rules.csv")
SILU = SHARED / "reports" / "ncu_rep_full" / "AlpriElse__cs599k__silu_CUDA_ncu-reports_2025-04-21-vector-based.ncu-rep"
THEORETICAL, ISSUE = "sm__maximum_warps_per_active_cycle_pct", "smsp__issue_active.avg.per_cycle_active"
ELIGIBLE = "smsp__warps_eligible.avg.per_cycle_active"
SM_WHOLE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY_WHOLE = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"


def explained(name: str, **metrics: float) -> ExplainedName:
    made = {key: metric(value) for key, value in {SM_WHOLE: 30.0, MEMORY_WHOLE: 10.0, **metrics}.items()}
    return explain(kernel_view(table(launch("k", made, ns=1e5))), name)


@pytest.mark.slow
def test_everything_that_has_a_name_can_be_explained() -> None:
    known, view = names(), kernel_view(table(launch("k", {}, ns=1e5)))
    assert {"few-blocks", "near-its-limit", "top_stall_share", "l1_hit_rate"} <= set(known)
    for name in known:
        found = explain(view, name)
        assert found.numbers or found.name == "near its limit"
        assert found.source


@pytest.mark.parametrize(
    ("metrics", "outcome"),
    [
        ({THEORETICAL: 50.0, ISSUE: 0.1, ELIGIBLE: 0.2}, "here a cause"),
        ({THEORETICAL: 50.0, ISSUE: 0.7, ELIGIBLE: 2.4}, "here ruled out, as 70 % of the issue slots are used"),
        ({THEORETICAL: 50.0}, "possible here and not certain, as issue, eligible was not collected"),
        ({THEORETICAL: 90.0}, "not found here, as theoretical < 0.8 does not hold"),
        ({}, "not known here, as theoretical was not collected"),
    ],
)
def test_a_rule_says_what_becomes_of_it_here_and_why(metrics: dict[str, float], outcome: str) -> None:
    assert explained("theoretical occupancy", **metrics).outcome == outcome


def test_a_rule_that_stands_behind_another_one_says_so() -> None:
    found = explained(
        "uncoalesced loads",
        memory_l2_theoretical_sectors_global=100.0,
        memory_l2_theoretical_sectors_global_ideal=50.0,
        **{
            "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 320.0,
            "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 10.0,
        },
    )
    assert found.outcome == "not tried here, as uncoalesced is found"


def test_a_rule_that_costs_too_little_to_be_named_says_so() -> None:
    found = explained("bank-conflicts", **{"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 11.0,
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 100.0})  # fmt: skip
    assert found.outcome == "found here and not named, as it can cost 1 %, below 5 %"


def test_the_limit_of_the_busiest_resource_is_explained_with_every_resource() -> None:
    found = explained("near its limit")
    assert found.outcome == "not found here: the busiest is SM, at 30 %"
    assert next((one.key, one.condition, one.holds) for one in found.numbers) == ("sm", "sm >= 0.8", False)


def test_conditions_have_their_limit_value_unit_and_metrics() -> None:
    found = explained("few_blocks", launch__grid_size=64.0, device__attribute_multiprocessor_count=80.0)
    first = found.numbers[0]
    assert (first.role, first.condition, first.unit, first.holds) == ("found when", "empty_sms > 0", "fraction", True)
    assert first.value == pytest.approx(0.2)
    assert "launch__grid_size" in first.metrics
    assert found.says == "few blocks: 64 for 80 SMs, so 20 % of the SMs have no work"


@needs_shared_reports
def test_a_number_that_only_a_rules_message_prints_names_that_rule() -> None:
    report = SHARED / "reports" / "ncu_csv" / "brycelelbach__nsightful__tests_copy_blocked.csv"
    result = ran("kernel", str(report), "--explain", "excessive_sectors")
    assert "from NVIDIA's rule UncoalescedGlobalAccess" in result.stdout


def test_an_unknown_name_is_refused_with_those_that_are_like_it() -> None:
    with pytest.raises(
        WrongUsage, match=r"No rule, quantity, fact or stall is called coalesced\. Names like it: uncoalesced"
    ):
        explained("coalesced")
    with pytest.raises(WrongUsage, match="The rules are: near its limit, few blocks"):
        explained("zzzz")


def test_every_quantity_that_a_rule_looks_at_has_a_title_and_a_unit() -> None:
    for rule in rules():
        for key in {*rule.when, *rule.harms_if, *rule.evidence, *rule.frees.values(), *filter(None, [rule.costs])}:
            assert quantities()[key].title
            assert quantities()[key].unit


def test_a_rule_comes_before_a_fact_of_the_same_name_and_facts_have_names_of_their_own() -> None:
    keys = [key for part in parts().values() for key in part]
    assert len(keys) == len(set(keys))
    assert explained("bank_conflicts").kind == "rule"
    assert explained("l1_hit_rate").kind == "fact"
    assert explained("top_stall_share").kind == "quantity"


@pytest.mark.parametrize("name", ["long scoreboard", "stall_long_scoreboard", "Long-Scoreboard"])
def test_a_stall_is_explained_by_the_name_that_the_kernel_shows_it_by(name: str) -> None:
    stalled = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
    found = explained(name, **{stalled.format("long_scoreboard"): 6.0, stalled.format("wait"): 2.0})
    assert (found.name, found.kind) == ("long scoreboard", "stall")
    assert [(one.key, one.value) for one in found.numbers] == [("share", 0.75), ("per_issue", 6.0)]
    assert "has not arrived" in found.says
    assert explained(name).numbers[0].value is None
    assert explained("barrier", **{stalled.format("wait"): 2.0}).numbers[0].value == 0.0
    assert explained("no_instruction").name == "no instructions"


@needs_shared_reports
@pytest.mark.slow
def test_the_command_prints_formula_threshold_source_and_this_kernels_numbers() -> None:
    result = ran("kernel", str(SILU), "--explain", "uncoalesced")
    assert result.exit_code == 0, result.stderr
    assert "excessive_sectors > 0  60.0 %, holds" in result.stdout
    assert "costs about  the most of l1_busy x unused_of_l1, l2_busy x excessive_of_l2," in result.stdout
    assert "source: NVIDIA's uncoalesced access rule" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    found: dict[str, Any] = json.loads(ran("kernel", str(SILU), "--explain", "uncoalesced", "--format", "json").stdout)
    assert found["outcome"] == "here a cause"
    assert found["rows"][0]["value"] == pytest.approx(0.6, abs=0.001)


def test_markdown_has_a_row_for_each_number() -> None:
    result = ran("kernel", SAMPLE, "--explain", "stalled", "--format", "markdown")
    assert result.stdout.splitlines()[0] == f"| {' | '.join(column.title for column in COLUMNS)} |"
    assert "| found when | top\\_stall\\_share | top\\_stall\\_share \\>= 0.3 |" in result.stdout


def test_a_fact_says_what_it_counts() -> None:
    assert (
        explain(kernel_view(table(launch("k", {}, ns=1e5))), "l1_hit_rate").says
        == "Sectors that are found in the L1 cache"
    )


def test_an_unknown_name_and_two_runs_are_wrong_usage() -> None:
    assert ran("kernel", SAMPLE, "--explain", "zzzz").exit_code == 2
    assert "--explain goes with one run" in ran("kernel", SAMPLE, "--explain", "tail", "--against", SAMPLE).stderr


@pytest.mark.slow
def test_names_are_completed_by_the_shell() -> None:
    words = {
        "_NCU_BENCH_COMPLETE": "bash_complete",
        "COMP_WORDS": "ncu-bench kernel x --explain few",
        "COMP_CWORD": "4",
    }
    program = Path(sys.executable).with_name("ncu-bench")
    done = subprocess.run([program], env={**os.environ, **words}, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["plain,few-blocks"]


def test_every_kind_of_the_mix_is_explained_by_its_opcodes_with_its_count_of_a_launch() -> None:
    counts = {"sass__inst_executed_per_opcode (instances)": metric("FFMA: 30; IMAD: 60; BRA: 10")}
    view = kernel_view(table(*(launch("k", counts, ns=1e3 * at) for at in (1, 2, 3))))
    found = explain(view, "mix_fp32")
    assert [(one.key, one.value) for one in found.numbers] == [("mix_fp32", 30), ("share", 0.3)]
    assert "FADD, FADD32I" in found.says
    assert [one.value for one in explain(view, "mix load store").numbers] == [0, 0]
    assert {"mix_fp32", "mix_load_store", "mix_other"} <= {name.replace("-", "_") for name in names()}
    uncounted = explain(kernel_view(table(launch("k", {ISSUE: metric(0.5)}, ns=1e3))), "mix_fp32")
    assert (uncounted.outcome, uncounted.numbers[0].value) == ("not collected here", None)


@needs_shared_reports
def test_instructions_by_kind_add_up_to_those_of_a_launch_in_json_too() -> None:
    rows = json.loads(ran("kernel", str(SILU), "--part", "pipes", "--format", "json").stdout)["rows"]
    values = {row["key"]: row["value"] for row in rows}
    assert sum(value for key, value in values.items() if key.startswith("mix_")) == pytest.approx(values["executed"])
