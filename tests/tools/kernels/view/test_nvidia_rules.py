"""`hotspots --rules`: what NVIDIA's rules say over a run, ranked by the time that their estimates would save."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.parquet.writer import write_table
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import SCHEMA_VERSION, Rule, with_metadata

from ncu_tools.cli.tables.hotspots.rules_of_run import NO_RULES, rules_of_run
from ncu_tools.kernels.view.nvidia_rules import (
    TABLE_COLUMNS,
    RankedRule,
    RuleSums,
    first_sentence,
    rule_messages,
    rules_table,
)
from ncu_tools.report.table import to_text
from ncu_tools.runs.loading import load
from sample_reports import dialects
from sample_reports.dialects import Cell, Printed, Style
from tests.conftest import SAMPLES, SHARED
from tests.support.launches import launch, table, taken
from tests.support.ran import below_head, ran
from tests.support.reports import needs_shared_reports, shared_reports, table_of

REPORT = str(SAMPLES / "d02-long-rules.csv")
TRITON = SHARED / "reports" / "ncu_rep_full" / "AlpriElse__cs599k__silu_triton_silu-2025-04-18-v7.ncu-rep"


def rule(name: str = "Rule", speedup: str = "", kind: str = "global", text: str = "Do less.", **fields: str) -> Rule:
    return Rule(
        "Section", name, fields.get("level", "OPT"), text, kind if speedup else "", speedup, fields.get("on", "")
    )


def with_rules(name: str, ns: float | None, *rules: Rule, **attributes: Any) -> Launch:
    return launch(name, ns=ns, rules=list(rules), **attributes)


def ranked(*launches: Launch, group: str = "name") -> list[RankedRule]:
    return taken(partial(RuleSums, group), table(*launches)).ranked()


# ------------------------------------------------------------------------------------------------- what could be saved


def test_a_global_speedup_is_the_share_of_the_launches_time_that_could_be_saved() -> None:
    (one,) = ranked(with_rules("k", 200.0, rule(speedup="25.00")), with_rules("other", 800.0))
    assert one.estimated_speedup == 25.0
    assert one.estimated_saving_ns == pytest.approx(50.0)
    assert one.estimated_saving_share == pytest.approx(0.05)
    assert one.time_share == pytest.approx(0.2)


def test_a_local_speedup_saves_no_time_that_is_known_and_is_ranked_behind_every_global_one() -> None:
    first, second, third = ranked(
        with_rules("hot", 1000.0, rule("Local", "90.00", "local"), rule("Warning", level="WRN")),
        with_rules("cold", 1.0, rule("Global", "1.00")),
    )
    assert [one.rule for one in (first, second, third)] == ["Global", "Local", "Warning"]
    assert second.estimated_saving_ns is None
    assert second.estimated_speedup == 90.0
    assert third.estimated_speedup is None


def test_launches_of_a_kernel_are_one_line_by_time_whatever_numbers_the_message_has() -> None:
    (one,) = ranked(
        with_rules("k", 100.0, rule(speedup="10.00", text="Only 8.0 of 32 bytes are used. See loads.")),
        with_rules("k", 300.0, rule(speedup="50.00", text="Only 16.0 of 32 bytes are used.")),
        with_rules("k", 600.0),
    )
    assert one.launches == 2
    assert one.estimated_saving_ns == pytest.approx(0.1 * 100 + 0.5 * 300)
    assert one.estimated_speedup == pytest.approx(100 * 160 / 400)
    assert one.time_share == pytest.approx(0.4)
    assert one.message == "Only 16.0 of 32 bytes are used."


def test_two_messages_of_a_rule_stay_two_lines() -> None:
    loads, stores = rule(speedup="45.00", text="loads are bad."), rule(speedup="43.00", text="stores are bad.")
    assert [one.message for one in ranked(with_rules("k", 10.0, stores, loads))] == [
        "loads are bad.",
        "stores are bad.",
    ]


def test_a_message_that_a_launch_has_twice_counts_once_with_its_larger_estimate() -> None:
    (one,) = ranked(with_rules("k", 100.0, rule(speedup="10.00", text="a 1"), rule(speedup="30.00", text="a 2")))
    assert (one.launches, one.estimated_saving_ns) == (1, pytest.approx(30.0))


def test_no_time_is_saved_where_a_time_is_not_known_but_the_estimate_stays() -> None:
    (one,) = ranked(with_rules("k", 100.0, rule(speedup="10.00")), with_rules("k", None, rule(speedup="30.00")))
    assert (one.estimated_saving_ns, one.time_ns, one.time_share) == (None, None, None)
    assert one.estimated_speedup == 20.0
    assert one.launches == 2


def test_failed_launches_are_left_out_and_averages_count_as_many() -> None:
    (one,) = ranked(
        with_rules("k", 10.0, rule(speedup="50.00"), invocations=4),
        with_rules("k", 1000.0, rule(speedup="50.00"), failed=True),
    )
    assert (one.launches, one.estimated_saving_ns) == (4, pytest.approx(20.0))


def test_messages_that_only_inform_are_counted_and_not_ranked() -> None:
    sums = taken(partial(RuleSums, "name"), table(with_rules("k", 1.0, rule(level="INF"), rule("W", level="WRN"))))
    assert [one.rule for one in sums.ranked()] == ["W"]
    assert sums.informing == 1


def test_a_speedup_that_is_no_number_is_none() -> None:
    (one,) = ranked(with_rules("k", 1.0, rule(speedup="n/a")))
    assert one.estimated_speedup is None


def test_the_metrics_that_a_message_stands_on_come_with_it() -> None:
    (one,) = ranked(with_rules("k", 1.0, rule(speedup="5.00", on="a__b.sum; Sectors per Request")))
    assert one.metrics == ("a__b.sum", "Sectors per Request")


def test_kernels_are_grouped_as_those_of_hotspots() -> None:
    launches = [with_rules(f"f<{at}>(int)", 10.0, rule(speedup="10.00")) for at in (1, 2)]
    (one,) = ranked(*launches, group="short")
    assert (one.kernel, one.launches) == ("f", 2)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 90), st.sampled_from(["5.00", "40.00", ""])), min_size=1))
def test_sums_in_batches_or_merged_are_those_of_the_whole_table(made: list[tuple[int, int, str]]) -> None:
    launches = [with_rules(f"k{kernel}", float(ns), rule(speedup=speedup)) for kernel, ns, speedup in made]
    half = len(launches) // 2
    batches = [table(*some) for some in (launches[:half], launches[half:]) if some]
    new = partial(RuleSums, "name")
    merged = taken(new, batches[0])
    for batch in batches[1:]:
        merged.merge(taken(new, batch))
    for sums in (taken(new, *batches), merged):
        assert [(one.kernel, one.estimated_speedup, one.launches) for one in sums.ranked()] == [
            (one.kernel, pytest.approx(one.estimated_speedup), one.launches) for one in ranked(*launches)
        ]


def test_the_first_sentence_of_a_message_ends_at_a_full_stop_before_a_space() -> None:
    assert first_sentence("Only 8.0 of 32 bytes\nare used. Look there.") == "Only 8.0 of 32 bytes are used"


# -------------------------------------------------------------------------------------------------------- real reports


def real_tables() -> list[pa.Table]:
    tables = [table_of(path) for folder in ("ncu_rep", "ncu_rep_full", "ncu_csv") for path in shared_reports(folder)]
    return [one for one in tables if one is not None]


@pytest.mark.slow
@needs_shared_reports
def test_savings_on_every_real_report_are_the_sum_of_time_by_global_estimate() -> None:
    with_estimates = 0
    for launches in real_tables():
        expected: dict[tuple[str, str], float] = defaultdict(float)
        for row in launches.to_pylist():
            for one in row["rules"] or []:
                if one["speedup_type"] == "global" and row["duration_ns"] is not None:
                    expected[row["kernel_name"], one["name"]] += row["duration_ns"] * float(one["speedup"]) / 100
        found: dict[tuple[str, str], float] = defaultdict(float)
        for line in taken(partial(RuleSums, "name"), launches).ranked():
            if line.estimated_saving_ns is not None:
                found[line.kernel, line.rule] += line.estimated_saving_ns
        assert found == pytest.approx(expected)
        with_estimates += bool(expected)
    assert with_estimates >= 5


@pytest.mark.slow
@needs_shared_reports
def test_the_table_of_rules_has_every_message_of_a_real_report_with_the_metrics_it_stands_on() -> None:
    launches = table_of(TRITON)
    assert launches is not None
    rows = rules_table(launches).to_pylist()
    assert len(rows) == sum(map(len, launches["rules"].to_pylist())) == 14
    (occupancy,) = (row for row in rows if row["rule"] == "TheoreticalOccupancy")
    assert occupancy["metrics"] == ["smsp__maximum_warps_avg_per_active_cycle"]
    assert (occupancy["estimated_speedup_percent"], occupancy["speedup_type"]) == (50.0, "local")


def test_launches_without_rules_give_an_empty_table_with_its_columns() -> None:
    assert list(rule_messages(pa.table({"kernel_name": ["k"]}))) == []
    empty = rules_table(table(launch(ns=1)))
    assert len(empty) == 0
    assert set(empty.column_names) == set(TABLE_COLUMNS) - {"run"}


# ---------------------------------------------------------------------------------------------------- on the terminal


@pytest.fixture
def estimates(tmp_path: Path) -> str:
    """A file of launches with a global and a local estimate."""
    launches = table(
        with_rules("void copy<float>(float*)", 100.0, rule("Coalescing", "25.00", text="Only 8 of 32. See.")),
        with_rules("gemm", 300.0, rule("Occupancy", "50.00", "local"), rule("Note", level="INF")),
        with_rules("other", 600.0),
    )
    write_table(with_metadata(launches, {"schema_version": SCHEMA_VERSION}), tmp_path / "launches.parquet")
    return str(tmp_path / "launches.parquet")


def test_json_has_the_whole_message_and_says_that_speedups_are_nvidias_estimates(estimates: str) -> None:
    answer = json.loads(ran("hotspots", estimates, "--rules", "--format", "json").stdout)
    assert answer["command"] == "rules"
    assert answer["columns"]["estimated_saving_ns"] == "ns"
    assert answer["columns"]["estimated_speedup"] == "%"
    assert {"kernel", "rule", "section", "message", "speedup_type", "launches", "time_share"} <= answer["rows"][
        0
    ].keys()
    assert [row["estimated_saving_ns"] for row in answer["rows"]] == [25.0, None]
    assert answer["rows"][0]["message"] == "Only 8 of 32. See."
    notes = "\n".join(answer["notes"])
    assert "speed-ups are NVIDIA's estimates" in notes
    assert "a local speed-up is of the hardware" in notes
    assert "1 of 3 launches have no results of rules" in notes
    assert "1 message that only informs left out" in notes


def test_a_terminal_of_80_columns_has_a_line_for_each_message(estimates: str) -> None:
    shown = rules_of_run(load(estimates), "name", None, "text")
    lines = to_text(shown, 80).splitlines()
    assert len(lines) == 2 + 2
    assert all(len(line) <= 80 for line in lines)
    assert "25 ns" in lines[2]
    assert "copy" in lines[2]
    assert "Coalescing: Only 8 of 32" in lines[2]
    assert "local" in lines[3]


def test_a_line_of_text_and_markdown_has_the_rule_with_its_first_sentence() -> None:
    lines = below_head(ran("hotspots", REPORT, "--rules", "--wide").stdout).splitlines()
    assert "est. saving" not in lines[0]
    rows = json.loads(ran("hotspots", REPORT, "--rules", "--format", "json").stdout)["rows"]
    assert len(lines) == 2 + len(rows)
    assert f"{rows[0]['rule']}: {first_sentence(rows[0]['message'])}" in lines[2]
    markdown = ran("hotspots", REPORT, "--rules", "--format", "markdown").stdout
    assert len([line for line in markdown.splitlines() if line.startswith("|")]) == 2 + len(rows)
    table_rows = list(csv.DictReader(io.StringIO(ran("hotspots", REPORT, "--rules", "--format", "csv").stdout)))
    assert [row["rule"] for row in table_rows] == [row["rule"] for row in rows]


def test_top_shows_the_first_lines_and_says_how_many_are_left() -> None:
    done = ran("hotspots", REPORT, "--rules", "--top", "1")
    assert len(below_head(done.stdout).splitlines()) == 3
    assert "--top shows more" in done.stderr


def test_a_report_without_rules_says_what_has_them() -> None:
    done = ran("hotspots", str(SAMPLES / "d01-wide-raw.csv"), "--rules")
    assert done.exit_code == 0
    assert NO_RULES in done.stderr


@pytest.mark.parametrize("other", [["--units"], ["--diagnose"], ["--mix"], ["--sort", "dram"]])
def test_rules_are_a_table_of_their_own(other: list[str]) -> None:
    done = ran("hotspots", REPORT, "--rules", *other)
    assert done.exit_code == 2
    assert "--rules" in done.stderr


def test_rules_of_a_text_report_are_shown_without_a_name(tmp_path: Path) -> None:
    page = tmp_path / "page.txt"
    text = dialects.text([Printed(0, "k", [Cell("gpu__time_duration.sum", 1000, "ns")])], Style())
    page.write_text(text.rstrip() + "\n\n    OPT   Est. Speedup: 25%\n          A message.\n")
    shown = ran("hotspots", str(page), "--rules")
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.splitlines()[-1].split()[-2:] == ["A", "message"]
    (row,) = json.loads(ran("hotspots", str(page), "--rules", "--format", "json").stdout)["rows"]
    assert (row["rule"], row["message"], row["estimated_speedup"], row["estimated_saving_ns"]) == (
        None, "A message.", 25.0, 250.0,
    )  # fmt: skip
