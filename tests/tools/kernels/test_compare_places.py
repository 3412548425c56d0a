"""Lines, opcodes and functions of one kernel compared between two runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from ncu_parsers.schema.instructions_table import instructions_table

from ncu_tools.kernels.source.compare_places import ComparedPlace, compare_places
from ncu_tools.kernels.source.kernel_code import KernelCode, kernel_code
from ncu_tools.kernels.source.source_text import SourceText
from tests.conftest import SAMPLES
from tests.support.ran import below_head, ran

SAMPLE = str(SAMPLES / "d20-source-page.csv")


def kernel(
    lines: list[int], samples: list[float] | None, executed: list[float], opcodes: list[str] | None = None,
    *, name: str = "k", functions: list[str] | None = None,
) -> KernelCode:  # fmt: skip
    """A kernel with an instruction for each line."""
    count = len(lines)
    return kernel_code(instructions_table({
        "report": ["r"] * count, "launch_id": [0] * count, "kernel_name": [name] * count, "kernel_short": [name] * count,
        **({"function": functions} if functions else {}),
        "offset": [16 * place for place in range(count)], "file": ["src/a.cu"] * count, "line": lines,
        "opcode": opcodes or ["NOP"] * count, "samples": samples, "inst_executed": executed,
    }))  # fmt: skip


def text(*lines: str) -> SourceText:
    return SourceText({"src/a.cu": list(lines)})


def by_place(rows: list[ComparedPlace]) -> dict[str, ComparedPlace]:
    return {row.place: row for row in rows}


def test_samples_are_compared_as_shares_so_that_longer_sampling_is_no_change() -> None:
    rows = compare_places(kernel([1, 2], [10, 30], [1, 1]), kernel([1, 2], [100, 300], [1, 1]), "line")
    assert [row.share_change for row in rows] == [0, 0]


def test_the_line_that_gained_most_samples_comes_first() -> None:
    rows = compare_places(kernel([1, 2, 3], [50, 40, 10], [1, 1, 1]), kernel([1, 2, 3], [20, 75, 5], [1, 1, 1]), "line")
    assert rows[0].place == "a.cu:2"
    assert rows[0].share_change == pytest.approx(0.35)


def test_a_line_that_moved_is_found_by_its_text() -> None:
    base, new = kernel([1, 2], [10, 30], [4, 8]), kernel([1, 3], [10, 30], [4, 16])
    rows = by_place(compare_places(base, new, "line", (text("a = 1;", "b = a;"), text("a = 1;", "", "b = a;"))))
    assert rows["a.cu:2 → a.cu:3"].executed_ratio == 2
    assert set(rows) == {"a.cu:1", "a.cu:2 → a.cu:3"}


def test_lines_of_the_same_text_are_told_apart_by_their_order() -> None:
    base, new = kernel([1, 2], [10, 30], [1, 1]), kernel([2, 3], [10, 30], [1, 1])
    rows = compare_places(base, new, "line", (text("x++;", "x++;"), text("", "x++;", "x++;")))
    assert {row.place for row in rows} == {"a.cu:1 → a.cu:2", "a.cu:2 → a.cu:3"}


def test_without_text_lines_are_matched_by_number() -> None:
    rows = by_place(compare_places(kernel([1, 2], [1, 1], [1, 1]), kernel([1, 3], [1, 1], [1, 1]), "line"))
    assert (rows["a.cu:2"].is_in_base, rows["a.cu:2"].is_in_new) == (True, False)
    assert (rows["a.cu:3"].is_in_base, rows["a.cu:3"].is_in_new) == (False, True)


def test_the_share_of_a_place_that_a_run_does_not_have_is_unknown_and_its_change_known() -> None:
    rows = by_place(compare_places(kernel([1, 2], [1, 3], [1, 1]), kernel([1], [4], [1]), "line"))
    assert (rows["a.cu:2"].new_share, rows["a.cu:2"].share_change) == (None, -0.75)


def test_instructions_by_opcode_are_per_launch() -> None:
    base = kernel([1, 1], [5, 5], [4, 8], ["FFMA", "LDG"])
    rows = by_place(compare_places(base, kernel([1, 1], [5, 5], [8, 8], ["FFMA", "LDG"]), "opcode"))
    assert (rows["FFMA"].executed_ratio, rows["LDG"].executed_ratio) == (2, 1)


def test_a_kernels_own_function_and_its_helpers_are_the_same_in_both_runs_by_other_names() -> None:
    base = kernel([1, 2], [3, 1], [1, 1], name="softmax_v1(int)", functions=["_Z10softmax_v1i", "$__internal_7_$div"])
    new = kernel([1, 2], [1, 1], [1, 1], name="softmax_v2(int)", functions=["_Z10softmax_v2i", "$__internal_5_$div"])
    rows = by_place(compare_places(base, new, "function"))
    assert rows["softmax_v1 → softmax_v2"].share_change == -0.25
    assert rows["$__internal_7_$div → $__internal_5_$div"].share_change == 0.25


def test_shares_stay_unknown_where_a_run_was_not_sampled() -> None:
    base = kernel([1], [5], [4])
    row = compare_places(base, kernel([1], None, [4]), "line")[0]
    assert (row.new_share, row.share_change) == (None, None)


def test_compare_by_line_on_the_command_line(tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text(Path(SAMPLE).read_text().replace('"9120"', '"1120"').replace('"9382"', '"1382"'))
    result = ran("compare", SAMPLE, str(other), "--by", "line", "--top", "2")
    assert result.exit_code == 0, result.stderr
    assert below_head(result.stdout).splitlines()[2].split()[0] == "row_max.cu:14"
    assert "points" in result.stdout


def test_inside_a_kernel_more_than_two_runs_are_refused() -> None:
    assert ran("compare", SAMPLE, "--by", "line").exit_code == 2


def test_what_no_run_knows_is_refused_with_what_is_needed() -> None:
    result = ran("compare", SAMPLE, str(Path(SAMPLE).parent / "." / "d20-source-page.csv"), "--by", "function")
    assert result.exit_code == 2
    assert "Neither run knows the functions of its instructions." in result.stderr
    assert "Compare by another: line, opcode." in result.stderr
