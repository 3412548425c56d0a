"""Inside a kernel: hottest places, stalls, the instruction that is waited for, live registers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError
from ncu_parsers.ncu.instructions.read import read_instructions
from ncu_parsers.ncu_rep.sass.sass_text import parse_instruction
from ncu_parsers.schema.instructions_table import STALLS, instructions_table
from ncu_parsers.sources.sources import Source

from ncu_tools.kernels.source.dependencies import Flow, flow_of, live_registers, producers
from ncu_tools.kernels.source.hot_places import around, hottest, nearest_offset, ranked_by
from ncu_tools.kernels.source.kernel_code import KernelCode, kernel_code
from ncu_tools.kernels.source.load_instructions import load_instructions
from ncu_tools.kernels.source.source_text import source_text
from ncu_tools.kernels.source.stalls import REASONS, dominant, stalls
from sample_reports import source_page
from tests.conftest import SAMPLES
from tests.support.ran import ran


@pytest.fixture(scope="module")
def instructions() -> pa.Table:
    table = read_instructions(Source(str(SAMPLES / "d20-source-page.csv")))
    assert table is not None
    return table


@pytest.fixture(scope="module")
def code(instructions: pa.Table) -> KernelCode:
    return kernel_code(instructions)


def made(texts: list[str], **columns: list[float]) -> KernelCode:
    """A kernel of these instructions."""
    count = len(texts)
    parsed = [parse_instruction(text) for text in texts]
    table = instructions_table({
        "report": ["r"] * count, "launch_id": [0] * count, "kernel_name": ["k"] * count, "kernel_short": ["k"] * count,
        "offset": [16 * place for place in range(count)], "address": [0x1000 + 16 * place for place in range(count)],
        "sass": texts, "opcode": [one.opcode if one else None for one in parsed], **columns,
    })  # fmt: skip
    return kernel_code(table)


def test_the_line_of_the_loop_has_the_most_samples_and_waits_for_memory(code: KernelCode) -> None:
    rows, count = hottest(code, "lines", "samples", 1)
    assert count == len({line.line for line in source_page.LINES})
    of_loop = [line for line in source_page.LINES if line.line == 14]
    assert rows[0].place == "row_max.cu:14"
    assert rows[0].samples == sum(sum(line.samples.values()) for line in of_loop)
    assert rows[0].stall == "long scoreboard"
    assert rows[0].instructions == len(of_loop)


def test_shares_of_all_lines_add_up_to_the_kernel(code: KernelCode) -> None:
    rows, _ = hottest(code, "lines", "samples", None)
    assert sum(row.share or 0 for row in rows) == pytest.approx(1)
    assert sum(row.samples or 0 for row in rows) == code.total("samples")


def test_lines_and_instructions_have_the_same_sums(code: KernelCode) -> None:
    lines, sass = (hottest(code, view, "executed", None)[0] for view in ("lines", "sass"))
    assert sum(row.executed or 0 for row in lines) == sum(row.executed or 0 for row in sass)


def test_the_instruction_that_waits_names_the_load_it_waits_for(code: KernelCode) -> None:
    rows, _ = hottest(code, "sass", "samples", 1)
    assert rows[0].sass == "FMNMX R6, R4, R6, !PT"
    assert rows[0].waits_for == "0x0070 LDG.E R4, [R2.64] (row_max.cu:14)"


def test_a_line_that_waits_names_what_its_most_stalled_instruction_waits_for(code: KernelCode) -> None:
    rows, _ = hottest(code, "lines", "samples", 1)
    assert (rows[0].place, rows[0].waits_for) == ("row_max.cu:14", "0x0070 LDG.E R4, [R2.64] (row_max.cu:14)")


def test_around_shows_neighbours_in_program_order(code: KernelCode) -> None:
    rows = around(code, 0x90, "samples", 5)
    assert [row.offset for row in rows] == [0x70, 0x80, 0x90, 0xA0, 0xB0]
    assert [nearest_offset(code, one) for one in (0x90, 0x91, 0xFFF0)] == [0x90, 0x90, 0x140]


def test_launches_of_a_kernel_are_summed(instructions: pa.Table) -> None:
    second = instructions.set_column(1, "launch_id", pa.array([1] * len(instructions)))
    both = kernel_code(pa.concat_tables([instructions, second]))
    one = kernel_code(instructions)
    assert both.launches == 2
    assert len(both.table) == len(one.table)
    assert both.total("samples") == 2 * (one.total("samples") or 0)
    assert both.counts("avg_threads").tolist() == one.counts("avg_threads").tolist()


def test_instructions_of_several_reports_in_a_folder_are_one_table(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_bytes((SAMPLES / "d20-source-page.csv").read_bytes())
    assert len(load_instructions(str(tmp_path)).table) == 2 * len(source_page.LINES)


def test_a_kernel_that_is_not_there_is_refused_with_those_that_are(instructions: pa.Table) -> None:
    with pytest.raises(NcuBenchError, match="row_max"):
        kernel_code(instructions, (re.compile("softmax"),))


def test_what_was_not_collected_stays_unknown() -> None:
    kernel = made(["NOP", "EXIT"])
    rows, _ = hottest(kernel, "sass", "samples", None)
    assert [row.samples for row in rows] == [None, None]
    assert [row.share for row in rows] == [None, None]
    assert kernel.share is None


def test_bank_conflicts_are_the_wavefronts_beyond_the_ideal() -> None:
    kernel = made(["LDS R0, [R1]", "LDS R2, [R1]"], shared_wavefronts=[8, 4], shared_wavefronts_ideal=[2, 4])
    assert ranked_by(kernel, "conflicts").tolist() == [6, 0]


def test_a_kernel_without_shared_memory_is_not_said_to_lack_the_counter_of_its_conflicts() -> None:
    found = ran("source", str(SAMPLES / "h100" / "starved-full.ncu-rep.gz"), "--sort", "conflicts")
    assert (
        "This kernel has no wavefronts of bank conflicts beyond the ideal, or they were not collected." in found.stderr
    )


def test_every_reason_has_a_meaning() -> None:
    assert set(stalls()) == set(STALLS)
    assert all(stall.meaning for stall in stalls().values())


def test_the_dominating_stall_is_the_most_frequent_and_rows_without_one_have_no_share() -> None:
    counts = np.zeros((2, len(REASONS)))
    counts[0, 3], counts[0, 5] = 1, 3
    top, share = dominant(counts)
    assert (top[0], share[0]) == (5, 0.75)
    assert np.isnan(share[1])


# ------------------------------------------------------------------------------------------- where values come from


def flow(*texts: str) -> Flow:
    found = flow_of(made(list(texts)))
    assert found is not None
    return found


def test_a_value_comes_from_the_last_instruction_that_set_its_register() -> None:
    found = flow("LDG.E R4, [R2.64]", "MOV R4, R5", "LDG.E R4, [R6.64]", "FADD R0, R4, R4", "EXIT")
    assert producers(found, 3, ("LDG",)) == [2]


def test_a_value_that_an_instruction_under_a_predicate_may_have_set_can_come_from_before_too() -> None:
    found = flow("LDG.E R4, [R2.64]", "@P0 LDG.E R4, [R6.64]", "FADD R0, R4, R4", "EXIT")
    assert producers(found, 2, ("LDG",)) == [1, 0]


def test_a_value_of_the_iteration_before_is_found_around_the_loop() -> None:
    found = flow("MOV R4, RZ", "FADD R0, R4, R4", "LDG.E R4, [R2.64]", "@P0 BRA 0x1010", "EXIT")
    assert producers(found, 1, ("LDG",)) == [2]


def test_nothing_is_claimed_across_a_call() -> None:
    assert producers(flow("LDG.E R4, [R2.64]", "CALL.REL.NOINC 0x1000", "FADD R0, R4, R4"), 2, ("LDG",)) == []


def test_registers_are_live_from_where_they_are_set_to_their_last_use() -> None:
    assert live_registers(flow("MOV R0, 0x1", "MOV R1, 0x2", "FADD R2, R0, R1", "STG.E [R4.64], R2", "EXIT")) == [
        2, 3, 4, 3, 0,
    ]  # fmt: skip


def test_registers_needed_in_the_next_iteration_stay_live_around_the_loop() -> None:
    found = live_registers(flow("MOV R0, 0x1", "IADD3 R0, R0, 0x1, RZ", "@P0 BRA 0x1010", "EXIT"))
    assert found == [0, 1, 1, 0]


def test_live_registers_are_not_counted_where_a_jump_is_computed() -> None:
    assert live_registers(flow("MOV R0, 0x1", "BRX R2 -0x10", "EXIT")) is None


@given(st.lists(st.sampled_from([
    "FADD R0, R1, R2", "MOV R1, R0", "@P0 MOV R2, R1", "STG.E [R4.64], R0", "@!P0 BRA 0x1000", "EXIT", "LDG.E R4, [R0.64]",
]), min_size=1, max_size=12))  # fmt: skip
def test_live_registers_are_those_of_following_every_way_step_by_step(texts: list[str]) -> None:
    found = flow(*texts)
    counted = live_registers(found)
    assert counted is not None
    for place in range(len(texts)):
        names = {name for one in range(len(texts)) for name in found.read(one) if name.startswith("R")}
        assert counted[place] == sum(_is_needed(found, place, name) for name in names)


def _is_needed(found: Flow, place: int, register: str) -> bool:
    """Whether some way from `place` reads a register before it is set for certain."""
    seen, waiting = set[int](), [place]
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        if register in found.read(one):
            return True
        instruction = found.instruction(one)
        if register in found.written(one) and instruction is not None and not instruction.predicate:
            continue
        waiting += found.follows(one) or ()
    return False


# --------------------------------------------------------------------------------------------------- source text


def test_source_lines_are_found_below_a_folder_by_the_end_of_their_path(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "row_max.cu").write_text("one\n  two\n")
    found = source_text([source_page.FILE], {}, tmp_path)
    assert found.of(source_page.FILE, 2) == "two"
    assert found.of(source_page.FILE, 3) is None


def test_nothing_outside_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret.cu").write_text("x")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "secret.cu").symlink_to(tmp_path / "secret.cu")
    assert source_text(["../secret.cu"], {}, inside).of("../secret.cu", 1) is None


def test_a_file_that_differs_from_what_was_compiled_is_said_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text("changed\n")
    found = source_text(["a.cu"], {"a.cu": "compiled\n"}, tmp_path)
    assert found.of("a.cu", 1) == "compiled"
    assert "differs from what was compiled" in found.notes[0]


def test_a_file_of_which_the_report_holds_some_lines_differs_where_one_of_these_does(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text("int x;\n  return x;\n")
    assert source_text(["a.cu"], {"a.cu": "\nreturn x;"}, tmp_path).notes == []
    assert "differs" in source_text(["a.cu"], {"a.cu": "\nreturn y;"}, tmp_path).notes[0]


def test_a_file_of_another_size_than_when_compiled_is_shown_and_said(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_bytes(b"int x;\n")
    assert source_text(["a.cu"], {}, tmp_path, {"a.cu": 7}).notes == []
    found = source_text(["a.cu"], {}, tmp_path, {"a.cu": 1234})
    assert found.of("a.cu", 1) == "int x;"
    assert "it has 7 bytes and had 1,234" in found.notes[0]


def test_a_url_is_to_be_fetched_first_and_is_no_missing_folder() -> None:
    with pytest.raises(NcuBenchError, match=r"https://x\.y/z\.ncu-rep is a URL.*Fetch it, and name the file"):
        load_instructions("https://x.y/z.ncu-rep")


def test_what_a_stall_means_is_said_of_the_warp_by_name() -> None:
    """The sentence stands behind "22.3 % of stalls are drain:", where nothing was named that "it" could be."""
    assert not [stall.title for stall in stalls().values() if stall.meaning.startswith("it ")]
