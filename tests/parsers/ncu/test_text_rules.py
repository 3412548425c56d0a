"""Results of NVIDIA's rules in text pages: what `text_rules` reads of them, and what it leaves to others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.detect.text_reader import read_report
from ncu_parsers.ncu.text_page import TextPage
from ncu_parsers.report_data import report
from ncu_parsers.schema.tables import Rule
from ncu_parsers.sources.sources import Source

from sample_reports import dialects
from sample_reports.dialects import Cell, Printed, Style
from tests.support.reports import needs_shared_reports, shared_reports, table_of

KERNEL = "  gemm(float *) (4, 2, 1)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 8.0"
SECTION = "    Section: Occupancy"
TABLE = (
    "    ------------------ ----------- ------------",
    "    Metric Name        Metric Unit Metric Value",
    "    ------------------ ----------- ------------",
    "    Achieved Occupancy           %        60.94",
    "    ------------------ ----------- ------------",
)
BETWEEN = f"    ----- {'-' * 110}"


def rules_of(*lines: str) -> list[Rule]:
    page = TextPage()
    for line in (KERNEL, SECTION, *lines):
        page.feed(line)
    (launch,) = page.launches()
    return launch.rules


def said(*lines: str) -> list[tuple[str, str, str, str]]:
    return [(one.kind, one.description, one.speedup_type, one.speedup) for one in rules_of(*lines)]


def test_a_message_over_several_lines_is_one_with_its_estimate_and_section() -> None:
    found = rules_of(
        *TABLE, "",
        "    OPT   Est. Local Speedup: 39.06%                    ",
        "          Achieved occupancy (60.9%) is below the       ",
        "          theoretical one (100.0%).                     ",
    )  # fmt: skip
    assert found == [
        Rule(
            "Occupancy",
            "",
            "OPT",
            "Achieved occupancy (60.9%) is below the theoretical one (100.0%).",
            "local",
            "39.06",
        )
    ]


@pytest.mark.parametrize(
    ("words", "of_what", "percent"),
    [
        ("Est. Speedup: 5.513%", "global", "5.513"), ("Est. Local Speedup: 0.01363%", "local", "0.01363"),
        ("Est. Speedup: 1e-05%", "global", "1e-05"), ("Estimated Speedup: 60.03%", "", "60.03"),
    ],
)  # fmt: skip
def test_an_estimate_is_local_or_global_only_where_that_is_said(words: str, of_what: str, percent: str) -> None:
    assert said(f"    OPT   {words}", "          Do less.") == [("OPT", "Do less.", of_what, percent)]


def test_rules_are_told_apart_by_dashes_empty_lines_and_their_kinds() -> None:
    found = said(
        *TABLE,  # no empty line behind a table until 2020
        "    WRN   One", "          two.", BETWEEN, "    OPT   Est. Speedup: 10%", "          Three.", "",
        "    INF   Four.", "    ERR   Five.", BETWEEN, "    OK    Six.",
    )  # fmt: skip
    assert found == [
        ("WRN", "One two.", "", ""), ("OPT", "Three.", "global", "10"), ("INF", "Four.", "", ""),
        ("ERR", "Five.", "", ""), ("INF", "Six.", "", ""),
    ]  # fmt: skip


def test_a_rule_below_the_title_of_a_section_without_a_table_is_of_this_section() -> None:
    (found,) = rules_of("    Section: GPU Speed Of Light Roofline Chart", "    INF   The ratio is 64:1.")
    assert (found.section, found.description) == ("SpeedOfLight_RooflineChart", "The ratio is 64:1.")
    (found,) = rules_of("    Section: My Own", "    INF   It is mine.")
    assert found.section == "My Own"


def test_every_launch_keeps_its_own_rules_and_metrics_behind_them() -> None:
    page = TextPage()
    for name, text in (("gemm", "One."), ("copy", "Two.")):
        for line in (KERNEL.replace("gemm", name), SECTION, "    WRN   Of", f"          {text}", BETWEEN,
                     "    INF   Too.", "    Section: S", *TABLE):  # fmt: skip
            page.feed(line)
    assert [[rule.description for rule in one.rules] for one in page.launches()] == [
        ["Of One.", "Too."],
        ["Of Two.", "Too."],
    ]
    assert all(len(one.readings) == 1 for one in page.launches())


@pytest.mark.parametrize(
    "line",
    [
        "    OPT step 3", "    INFO   server started", "  INF   started", "      INF   started", "INF   started",
        "    WARN  late", "    OPT", "    opt   lower case", "          No pipeline is over-utilized.",
    ],
)  # fmt: skip
def test_other_lines_are_no_rules(line: str) -> None:
    assert rules_of(*TABLE, "", line) == []


@pytest.mark.parametrize(
    "line", ["", "step 4", "  step 4", "    step 4", "            step 4", "==PROF== Disconnected", "[4711] app@host"]
)
def test_a_message_ends_at_a_line_that_stands_elsewhere(line: str) -> None:
    assert said("    WRN   One", "          two.", line, "          three") == [("WRN", "One two.", "", "")]


@pytest.mark.parametrize("line", ["step 4", "==PROF== Disconnected from process 1", "[4711] app@host"])
def test_what_a_program_prints_below_the_launches_is_no_rule(line: str) -> None:
    assert rules_of(*TABLE, "", line, "    INF   started") == []


def test_no_rule_is_read_before_the_title_of_a_section() -> None:
    page = TextPage()
    assert [page.feed(line) for line in (KERNEL, "    INF   started")] == [report.HEADER, report.LAYOUT]
    assert page.launches()[0].rules == []


@pytest.mark.parametrize(
    "pasted", [str.strip, lambda line: f"\t{line}", lambda line: f"> {line}", lambda line: line[2:]],
    ids=["without indent", "by a tab", "quoted", "from the name on"],
)  # fmt: skip
def test_rules_are_read_however_they_were_pasted(pasted: Callable[[str], str], tmp_path: Path) -> None:
    lines = (KERNEL, SECTION, *TABLE, "", "    OPT   Est. Speedup: 25%", "          Do", "          less.", BETWEEN,
             "    WRN   Stop.", "", "done in 3 s")  # fmt: skip
    (tmp_path / "pasted.txt").write_text("\n".join(map(pasted, lines)))
    (launch,) = read_report(Source(str(tmp_path / "pasted.txt"))).launches
    assert [(one.description, one.speedup) for one in launch.rules] == [("Do less.", "25"), ("Stop.", "")]


WORDS = st.text("abcXYZ019.,:%()/'", min_size=1, max_size=40).filter(lambda word: not word.startswith("Est"))
MESSAGES = st.lists(WORDS, min_size=1, max_size=60).map(" ".join)


@given(st.lists(st.tuples(st.sampled_from(["OPT", "WRN", "INF", "ERR"]), MESSAGES), max_size=5), st.data())
def test_what_is_printed_is_read_back(messages: list[tuple[str, str]], data: st.DataObject) -> None:
    words = {"": ("", ""), "Est. Speedup: 12.5%": ("global", "12.5"), "Est. Local Speedup: 7%": ("local", "7")}
    printed = [("Launch Statistics", kind, data.draw(st.sampled_from(list(words))), text) for kind, text in messages]
    launch = Printed(0, "k", [Cell("Registers Per Thread", 16, section="Launch Statistics")])
    page = TextPage()
    for line in dialects.text([launch, launch], Style(), printed).splitlines():
        page.feed(line)
    expected = [Rule("LaunchStats", "", kind, text, *words[estimate]) for _, kind, estimate, text in printed]
    assert [one.rules for one in page.launches()] == [expected, expected]
    assert all(len(one.readings) == 1 for one in page.launches())


@needs_shared_reports
def test_every_message_in_real_binary_reports_reads_back_from_text() -> None:
    read = 0
    for path in (*shared_reports("ncu_rep"), *shared_reports("ncu_rep_full")):
        table = table_of(path)
        for rules in [] if table is None else table.column("rules").to_pylist():
            kept = [rule for rule in rules or [] if rule["kind"]]
            estimates = {"global": "Est. Speedup", "local": "Est. Local Speedup"}
            printed = [
                (
                    "Occupancy", rule["kind"], f"{estimates[rule['speedup_type']]}: {float(rule['speedup']):.4g}%"
                    if rule["speedup"] else "", rule["description"],
                )
                for rule in kept
            ]  # fmt: skip
            page = TextPage()
            for line in dialects.text(
                [Printed(0, "k", [Cell("a", 1, section="Occupancy")])], Style(), printed
            ).splitlines():
                page.feed(line)
            found = page.launches()[0].rules
            assert [(one.kind, one.description, one.speedup_type) for one in found] == [
                (rule["kind"], rule["description"].strip(), rule["speedup_type"]) for rule in kept
            ]
            assert [float(one.speedup or 0) for one in found] == pytest.approx(
                [float(rule["speedup"] or 0) for rule in kept], rel=1e-3
            )
            read += len(found)
    assert read > 50
