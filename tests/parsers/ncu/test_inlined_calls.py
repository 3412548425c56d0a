"""Lines of inlined functions in cubins name the calls that lead there (line_programs.py), as nvdisasm -gi prints them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_parsers.ncu.instructions.read import read_instructions
from ncu_parsers.ncu_rep.instructions.debug_lines import kernel_debug
from ncu_parsers.ncu_rep.instructions.line_programs import MOST_CALLS, LinePlace
from ncu_parsers.sources.sources import Source

from tests.support import cubins
from tests.support.binary_reports import Kernel, field, report_of
from tests.support.ran import ran

MATH, SUM, OTHER = "/src/math.cuh", "/src/sum.cu", "/src/other.cu"
SECOND = "_Z6secondPf"
AS_NVDISASM_PRINTS = {
    "_Z5firstPf": {
        0x00: LinePlace(SUM, 3),
        0x60: LinePlace(MATH, 3, ((MATH, 8), (SUM, 3))),
        0x70: LinePlace(MATH, 9, ((SUM, 3),)),
        0x80: LinePlace(SUM, 3),
    },
    SECOND: {
        0x00: LinePlace(SUM, 4),
        0x10: LinePlace(SUM, 7),
        0x80: LinePlace(MATH, 3, ((MATH, 8), (SUM, 7))),
        0x90: LinePlace(MATH, 9, ((SUM, 7),)),
        0xA0: LinePlace(MATH, 3, ((SUM, 6),)),
        0xB0: LinePlace(SUM, 7),
        0xF0: LinePlace(SUM, 6),
        0x100: LinePlace(SUM, 8),
    },
    "_Z5otherf": {0x00: LinePlace(MATH, 3), 0x10: LinePlace(OTHER, 2)},
}
"""Offset of an instruction -> its line and calls, of nvdisasm 13.5 -c -gi on the cubin that nvcc and nvlink made."""
ADDRESS = 0x7F0000000000


@pytest.mark.parametrize("function", AS_NVDISASM_PRINTS)
def test_lines_and_calls_of_a_real_cubin_are_those_that_nvdisasm_prints(function: str) -> None:
    debug = kernel_debug(cubins.cubin_of_nvcc(), function)
    assert debug is not None
    assert debug.lines == AS_NVDISASM_PRINTS[function]


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A report of the kernel `second`, every instruction of it executed four times, sampled three times each."""
    addresses: dict[str | int, float] = {ADDRESS + 16 * place: 4 for place in range(17)}
    kernel = Kernel(
        SECOND,
        {"inst_executed": (68, addresses), "smsp__pcsamp_sample_count": (51, dict.fromkeys(addresses, 3.0))},
        more=field(5, SECOND.encode()) + field(15, field(1, 9)),
    )
    path = tmp_path / "inlined.ncu-rep"
    path.write_bytes(report_of([kernel], sources=[field(1, 9) + field(4, cubins.cubin_of_nvcc())]))
    return path


def test_instructions_of_a_report_name_the_calls_from_the_innermost_out(report: Path) -> None:
    table = read_instructions(Source(str(report)))
    assert table is not None
    calls = dict(zip(table["offset"].to_pylist(), table["inline_of"].to_pylist(), strict=True))
    assert calls[0x80] == "/src/math.cuh:8 < /src/sum.cu:7"
    assert calls[0x90] == "/src/sum.cu:7"
    assert calls[0xA0] == "/src/sum.cu:6"
    assert [calls[offset] for offset in (0x00, 0x70, 0xB0)] == [None] * 3


def test_the_hottest_lines_say_where_their_function_was_called(report: Path) -> None:
    rows = json.loads(ran("source", str(report), "--format", "json").stdout)["rows"]
    calls = {row["place"]: row["inline_of"] for row in rows}
    assert calls == {
        "sum.cu:7": None, "sum.cu:4": None, "sum.cu:6": None, "sum.cu:8": None,
        "math.cuh:3": "/src/math.cuh:8 < /src/sum.cu:7 and 1 more", "math.cuh:9": "/src/sum.cu:7",
    }  # fmt: skip
    assert "inlined at" in ran("source", str(report), "--view", "sass").stdout


def test_a_call_inside_itself_ends() -> None:
    own = bytes.fromhex(cubins.LINES_OF_NVCC).replace(bytes([3, 0x90, 4, 12]), bytes([3, 0x90, 5, 12]))
    whole = cubins.cubin_of_nvcc().replace(bytes.fromhex(cubins.LINES_OF_NVCC), own)
    debug = kernel_debug(whole, SECOND)
    assert debug is not None
    assert max(len(place.calls) for place in debug.lines.values()) == MOST_CALLS


@given(st.integers(0, 290), st.binary(min_size=1, max_size=6))
def test_damaged_lines_end_in_no_traceback(place: int, damage: bytes) -> None:
    lines = bytes.fromhex(cubins.LINES_OF_NVCC)
    broken = lines[:place] + damage + lines[place + len(damage) :]
    kernel_debug(cubins.cubin_of_nvcc().replace(lines, broken), SECOND)
