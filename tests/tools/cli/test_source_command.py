"""ncu-bench source and parse --instructions, as typed."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from ncu_parsers.parquet.reader import read_instructions_table

from ncu_tools.kernels.source.hot_places import HotPlace
from ncu_tools.report.source_table import text_notes
from sample_reports import source_page
from tests.conftest import SAMPLES
from tests.support.ran import below_head, ran

SAMPLE = str(SAMPLES / "d20-source-page.csv")


def test_source_shows_the_hottest_lines_with_their_stalls() -> None:
    result = ran("source", SAMPLE, "--top", "2")
    assert result.exit_code == 0
    assert "row_max.cu:14" in result.stdout
    assert "long scoreboard" in result.stdout
    assert "first: 80.9 % of stalls are long scoreboard: a value from global, local or texture memory" in result.stdout
    assert "8 more places; --top shows more" in result.stderr


def test_source_as_json_has_every_line_and_the_kernel() -> None:
    found = json.loads(ran("source", SAMPLE, "--format", "json").stdout)
    assert found["kernel"] == source_page.KERNEL
    assert len(found["rows"]) == len({line.line for line in source_page.LINES})
    assert found["rows"][0]["file"] == source_page.FILE


def test_source_text_comes_from_the_folder_named(tmp_path: Path) -> None:
    (tmp_path / "row_max.cu").write_text("\n" * 13 + "for (; i < n; i += 256) best = max(best, row[i]);\n")
    result = ran("source", SAMPLE, "--top", "1", "--source-root", str(tmp_path), "--wide")
    assert "for (; i < n; i += 256) best = max(best, row[i]);" in result.stdout


def test_around_shows_the_neighbours_of_an_instruction() -> None:
    lines = below_head(ran("source", SAMPLE, "--around", "0x90").stdout).splitlines()
    assert "LDG.E R4, [R2.64]" in "".join(lines)
    assert lines[2].split()[0] == "0x0010"


def test_around_what_is_no_instruction_says_which_one_is_nearest() -> None:
    assert "there is no instruction at" not in ran("source", SAMPLE, "--around", "0x90").stderr
    told = ran("source", SAMPLE, "--around", "0xfff0", "--format", "json").stdout
    assert "there is no instruction at 0xfff0: these are around the nearest one, at 0x0140" in json.loads(told)["notes"]


def test_instructions_are_shown_where_no_line_is_known(tmp_path: Path) -> None:
    page = tmp_path / "sass.csv"
    page.write_text('"Kernel Name","k"\n"Address","Source","# Samples"\n"0x10","EXIT ","3"\n')
    result = ran("source", str(page))
    assert "EXIT" in result.stdout
    assert "compile with -lineinfo to see lines" in result.stderr


def test_top_says_how_many_instructions_are_shown_around_one_and_that_one_is_among_them() -> None:
    for top in (1, 2, 3, 6):
        result = ran("source", SAMPLE, "--around", "0x0100", "--top", str(top), "--format", "json")
        offsets = [row["offset"] for row in json.loads(result.stdout)["rows"]]
        assert len(offsets) == top
        assert 0x100 in offsets


def test_instructions_without_text_say_what_gives_it() -> None:
    unknown: dict[str, Any] = dict.fromkeys(field.name for field in fields(HotPlace))
    place = HotPlace(**unknown)
    (note,) = text_notes([replace(place, offset=16)])
    assert "pip install '.[ncu-rep]'" in note
    assert text_notes([replace(place, offset=16, sass="NOP")]) == text_notes([place]) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--view", "ptx"], "The report has nothing for --view ptx."),
        (["--around", "here"], "here is no offset."),
        (["--around", "0x10", "--view", "lines"], "--around shows instructions, and --view asks for lines."),
        (["--kernel", "softmax"], "The report has no instructions of the kernel or launch that was named."),
        (["--launch", "7"], "The report has no instructions of the kernel or launch that was named."),
    ],
)
def test_what_the_report_does_not_hold_is_refused(arguments: list[str], message: str) -> None:
    result = ran("source", SAMPLE, *arguments)
    assert result.exit_code in (1, 2)
    assert message in result.stderr


def test_a_report_without_instructions_says_what_to_collect() -> None:
    result = ran("source", str(SAMPLES / "d01-wide-raw.csv"))
    assert result.exit_code == 1
    assert "ncu --set full --import-source yes" in result.stderr


def test_ranking_by_what_was_not_collected_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "sass.csv"
    page.write_text('"Kernel Name","k"\n"Address","Source","# Samples"\n"0x10","EXIT ","3"\n')
    result = ran("source", str(page), "--sort", "sectors")
    assert result.exit_code == 2
    assert "There are: samples." in result.stderr


def test_parse_writes_instructions_beside_the_launches_and_source_reads_them(tmp_path: Path) -> None:
    output = tmp_path / "launches.parquet"
    result = ran("parse", SAMPLE, "-o", str(output), "--instructions")
    assert result.exit_code == 0, result.stderr
    table = read_instructions_table(tmp_path / "instructions.parquet")
    assert len(table) == len(source_page.LINES)
    for named in (output, tmp_path, tmp_path / "instructions.parquet"):
        assert below_head(ran("source", str(named)).stdout) == below_head(ran("source", SAMPLE).stdout)


def test_a_table_of_instructions_is_no_table_of_launches(tmp_path: Path) -> None:
    ran("parse", SAMPLE, "-o", str(tmp_path / "launches.parquet"), "--instructions")
    result = ran("hotspots", str(tmp_path / "instructions.parquet"))
    assert result.exit_code == 1
    assert "ncu-bench source" in result.stderr


def test_parse_says_where_reports_hold_no_instructions(tmp_path: Path) -> None:
    result = ran("parse", str(SAMPLES / "d01-wide-raw.csv"), "-o", str(tmp_path / "launches.parquet"), "--instructions")
    assert result.exit_code == 0
    assert "the reports hold no counts of single instructions" in result.stderr
    assert not (tmp_path / "instructions.parquet").exists()
