"""The command: its rows and keys, its text in narrow and wide terminals, and what it refuses."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.schema.tables import SCHEMA_VERSION, with_metadata

from ncu_tools.advice.nvidia_levers import SILENT, AnsweredRule
from ncu_tools.cli.tables.advice.nvidia_text import rule_lines
from ncu_tools.kernels.view.nvidia_rules import RankedRule
from tests.conftest import SAMPLES
from tests.support.called_here import called_here
from tests.support.launches import launch, table
from tests.tools.cli.test_cli import Result

CONFLICTS = str(SAMPLES / "h100" / "conflicts.ncu-rep")
KEYS = {
    "kernel", "kernel_id", "lever", "saves_share", "saves_low", "saves_high", "saves_ns", "saves_low_ns", "saves_high_ns",
    "share_of_run", "evidence", "remedy", "basis", "confidence", "kernel_time_ns",
}  # fmt: skip


@cache
def called(*words: str, command: str = "advise", width: int = 120) -> Result:
    """What a command gives: the same is asked once, by whichever test is the first."""
    return called_here(command, *words, cwd=SAMPLES, environment={**os.environ, "COLUMNS": str(width)})


def answer(*words: str, command: str = "advise") -> dict[str, Any]:
    found = called(*words, "--format", "json", command=command)
    assert found.code == 0, found.err
    result: dict[str, Any] = json.loads(found.out)
    return result


def test_each_row_of_json_is_a_lever_with_its_interval_and_evidence() -> None:
    rows = answer(CONFLICTS)["rows"]
    assert all(row.keys() >= KEYS for row in rows)
    first = rows[0]
    assert first["lever"] == "pad-shared-memory"
    assert first["saves_low"] <= first["saves_share"] <= first["saves_high"]
    assert first["saves_ns"] == pytest.approx(first["saves_share"] * first["kernel_time_ns"])
    assert first["basis"] in ("counters", "counters and code")
    assert {"quantity", "value", "unit", "metrics"} == first["evidence"][0].keys()
    assert first["evidence"][0]["metrics"]
    assert 0 < first["confidence"]["held"] <= 1
    assert first["confidence"]["histories"] > 0


def test_levers_that_save_2_percent_stand_first_those_apart_behind_and_each_is_ranked_by_its_time() -> None:
    rows = [row for row in answer(CONFLICTS)["rows"] if row["lever"] and not row["nothing"]]
    groups = [(row["saves_share"] < 0.02, row["is_apart"]) for row in rows]
    assert groups == sorted(groups)
    assert (False, True) in groups
    for group in set(groups):
        times = [row["saves_ns"] for row, own in zip(rows, groups, strict=True) if own == group]
        assert times == sorted(times, reverse=True)


def test_a_lever_that_brings_nothing_is_in_json_with_the_reason_and_not_in_text() -> None:
    rows = answer(CONFLICTS)["rows"]
    idle = [row["title"] for row in rows if row["nothing"]]
    assert idle
    text = called(CONFLICTS).out
    assert [title for title in idle if f"{title}: conflicts" in text] == []


def test_kernels_and_rows_can_be_chosen() -> None:
    rows = answer(CONFLICTS, "--kernel", "conflicts", "--top", "2")["rows"]
    assert len(rows) == 2


@pytest.mark.parametrize("width", [80, 120])
def test_text_fits_the_width_but_for_commands_and_says_what_each_lever_saves(
    width: int,
) -> None:
    lines = called(CONFLICTS, width=width).out.splitlines()
    assert [line for line in lines if len(line) > width and "ncu-bench " not in line] == []
    assert any("saves" in line and "% of the kernel" in line for line in lines)
    assert any("Together" in line for line in lines)


def test_markdown_has_a_row_for_each_lever_that_counts() -> None:
    out = called(CONFLICTS, "--format", "markdown").out
    assert "| avoid bank conflicts |" in out


def test_csv_has_plain_values() -> None:
    lines = called(CONFLICTS, "--format", "csv").out.splitlines()
    assert lines[0].startswith("kernel,lever,")
    assert len(lines) > 5


def test_a_lever_is_explained_with_its_model_and_how_often_it_held() -> None:
    out = called("--explain", "coalesce").out
    assert "model" in out
    assert "source" in out
    assert "the real saving lay inside in" in out
    assert "changes, of all levers" in out
    assert "no known history pulled it" in called("--explain", "fuse").out
    assert called(CONFLICTS, "--explain", "pad-shared-memory").out.count("saves") == 1


def test_a_lever_of_steps_is_explained_and_one_of_both_twice() -> None:
    assert "not known  whether shapes and control flow stay the same" in called("--explain", "cuda-graphs").out
    both = called("--explain", "fuse").out
    assert both.startswith("fuse, of kernels: ")
    assert "\nfuse, of steps: " in both


def test_a_lever_that_is_explained_says_why_a_kernel_does_not_gain_by_it() -> None:
    row = next(row for row in answer(CONFLICTS)["rows"] if row["nothing"])
    out = " ".join(called(CONFLICTS, "--explain", row["lever"]).out.split())
    assert f"Not worth it for: conflicts: it brings nothing, as {row['nothing']}" in out
    assert "NVIDIA's rules" not in out


def test_a_lever_that_no_counter_decides_says_so() -> None:
    assert (
        "No kernel of the run has counters that decide this lever."
        in called("d08-print-fp.csv", "--explain", "divergence").out
    )


def test_a_kernel_that_prepares_inputs_is_not_said_to_lack_the_counters_of_a_lever(tmp_path: Path) -> None:
    fill = table(launch("void fill_kernel(float *)", {}, ns=1e5), launch("mine", {}, ns=1e5))
    write_table(with_metadata(fill, {"schema_version": SCHEMA_VERSION}), tmp_path / "run.parquet")
    every = " ".join(called(str(tmp_path / "run.parquet"), "--explain", "divergence").out.split())
    assert "fill_kernel: no lever counts, as it prepares inputs" in every
    assert "No other kernel of the run has counters that decide this lever." in every
    alone = called(str(tmp_path / "run.parquet"), "--explain", "divergence", "--kernel", "fill").out
    assert "prepares inputs" in alone
    assert "counters that decide" not in alone


def test_launches_of_other_lengths_without_a_lever_are_one_line_with_the_share_of_all(tmp_path: Path) -> None:
    times = table(*(launch("norm", {}, ns=ns) for ns in (1e6, 1e6, 5e6)), launch("other", {}, ns=3e6))
    write_table(with_metadata(times, {"schema_version": SCHEMA_VERSION}), tmp_path / "times.parquet")
    text = called(str(tmp_path / "times.parquet")).out
    assert [line.split(":")[0] for line in text.splitlines() if "of the time)" in line] == [
        "  norm (70.0 % of the time)", "  other (30.0 % of the time)",
    ]  # fmt: skip


def test_two_reports_of_ncu_that_are_named_at_once_are_told_to_stand_against_each_other() -> None:
    told = called(CONFLICTS, "d08-print-fp.csv").err
    assert "no times of a timeline" in told
    assert f"Of two reports of ncu: ncu-bench advise {CONFLICTS} --against d08-print-fp.csv" in told


def test_a_program_is_given_the_rows_of_a_lever_without_its_explanation() -> None:
    rows = answer(CONFLICTS, "--explain", "pad-shared-memory")["rows"]
    assert {row["lever"] for row in rows} == {"pad-shared-memory"}
    assert "--explain alone is text" in called("--explain", "coalesce", "--format", "json").err


@pytest.mark.parametrize(
    ("words", "says"),
    [((), "needs a run"), (("--explain", "coalesc"), "no lever"), (("missing.ncu-rep",), "missing.ncu-rep")],
)
def test_what_cannot_be_done_is_refused_with_what_to_type(words: tuple[str, ...], says: str) -> None:
    found = called(*words)
    assert found.code in (1, 2)
    assert says in found.err
    assert "Traceback" not in found.err


def test_a_report_of_which_only_times_are_known_says_what_to_collect() -> None:
    row = answer(str(SAMPLES / "d09-units-per-row.csv"))["rows"]
    assert row  # whatever was collected gives rows


def test_a_kernel_of_which_little_was_collected_names_what_to_ask_for() -> None:
    rows = answer(str(SAMPLES / "d04-long-metrics.csv"))["rows"]
    silent = [row for row in rows if row["reason"] == "not collected"]
    assert silent
    assert "ncu --set full" in silent[0]["says"]


@pytest.mark.parametrize(
    "report", sorted(path.name for path in SAMPLES.glob("d*.*") if path.suffix in (".csv", ".txt"))
)
def test_no_report_ends_in_a_traceback(report: str) -> None:
    found = called(str(SAMPLES / report), "--format", "json")
    assert "Traceback" not in found.err
    assert found.code in (0, 1)
    rows = json.loads(found.out)["rows"] if found.code == 0 else []
    assert all(
        row["lever"] is None or 0 <= row["saves_low"] <= row["saves_share"] <= row["saves_high"] <= 1 for row in rows
    )


def test_nvidias_rules_with_an_estimate_stand_beside_ours_and_none_is_answered_by_silence() -> None:
    rules = answer(CONFLICTS)["nvidia_rules"]
    assert {rule["lever"] for rule in rules if rule["rule"] == "UncoalescedSharedAccess"} == {"pad-shared-memory"}
    assert all(rule["estimated_speedup"] >= 10 for rule in rules)
    assert "silent" not in {rule["ours"] for rule in rules}
    assert "NVIDIA's rules that estimate" in called(CONFLICTS).out


def test_a_rule_for_which_no_lever_does_anything_is_answered_by_why() -> None:
    (rule,) = (one for one in answer(CONFLICTS)["nvidia_rules"] if one["rule"] == "MemoryL2Compression")
    assert (rule["ours"], rule["lever"]) == ("no lever", None)
    assert "ours: no lever; memory that is allocated as compressible" in " ".join(called(CONFLICTS).out.split())


def test_messages_of_a_rule_that_read_alike_are_one_line() -> None:
    loads, stores, others = (
        RankedRule("copy", "AccessPattern", "", "OPT", words, speedup, "global", None, None, 1, None, None, ())
        for words, speedup in (("loads are not optimal", 39.1), ("stores are not optimal", 38.9), ("L2", 12.0))
    )
    lines = list(rule_lines([AnsweredRule(one, SILENT, None) for one in (loads, stores, others)], 80))
    assert [line.strip() for line in lines[2:]] == [
        "AccessPattern on copy: 39 % of the kernel; ours is silent",
        "AccessPattern on copy: 12 % of the kernel; ours is silent",
    ]


def test_the_smallest_next_set_of_metrics_is_named_with_its_passes_where_levers_are_undecided() -> None:
    lacking = answer(str(SAMPLES / "d10-details-all.csv"))["collect"]
    assert lacking
    assert {"group", "levers", "passes"} == lacking[0].keys()
    gains = [len(one["levers"]) / one["passes"] for one in lacking]
    assert gains == sorted(gains, reverse=True)
    assert answer(CONFLICTS)["collect"] == []


def test_kernel_says_the_levers_before_the_causes() -> None:
    found = called(CONFLICTS, command="kernel")
    assert found.code == 0, found.err
    assert found.out.index("levers: avoid bank conflicts saves") < found.out.index("bank conflicts: 94 %")
    rows = answer(CONFLICTS, command="kernel")["levers"]
    assert rows[0]["lever"] == "pad-shared-memory"


def test_the_digest_of_a_kernel_has_its_levers() -> None:
    found = called(CONFLICTS, "--format", "digest", "--kernel", "conflicts", command="report")
    assert found.code == 0, found.err
    assert "levers: avoid bank conflicts saves" in found.out


def test_kernel_answers_nvidias_rules_with_the_levers_of_advise() -> None:
    rules = {rule["name"]: rule["answer"] for rule in answer(CONFLICTS, command="kernel")["rules"]}
    assert rules["UncoalescedSharedAccess"].startswith("ours: pad-shared-memory 20 to 55 %")
    assert rules["SOLBottleneck"] == ""  # has no estimate
