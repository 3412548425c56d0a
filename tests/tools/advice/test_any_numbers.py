"""Whatever a report says, advice has intervals in order and no error: numbers are untrusted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_tools.advice.advise import advice_on
from ncu_tools.advice.pulled_levers import change_of
from ncu_tools.advice.situation.code_facts import CodeFacts
from ncu_tools.advice.situation.measured import MeasuredKernel, quantities
from ncu_tools.advice.situation.utilisation import resources

LAUNCH = (
    "blocks", "threads", "warp_threads", "sm_count", "blocks_per_sm", "waves", "empty_sms", "tail", "idle", "slice_busy",
    "slice_mean", "dram_bytes", "dram_read_bytes", "excessive_sectors by rule", "conflicts by rule", "sm_clock_hz",
)  # fmt: skip
OPCODES = (
    "LDG.E",
    "LDG.E.128",
    "STG.E",
    "FFMA",
    "FADD",
    "IMAD",
    "LDS",
    "FCHK",
    "HMMA.16816",
    "RED.E.ADD",
    "LDL",
    "MOV",
)
amounts = st.one_of(st.sampled_from([0.0, 1.0, 1e300]), st.floats(0, 1e15))
shares = st.floats(0, 1)
names = st.sampled_from(["k", "sgemm", "reduce", "cutlass_x", "at::native::e", "range"])
codes = st.dictionaries(st.sampled_from(OPCODES), st.floats(0.1, 1e12), min_size=1)


@st.composite
def kernels(draw: st.DrawFn) -> MeasuredKernel:
    """A kernel with any of the numbers that levers look at."""
    return MeasuredKernel(
        draw(names),
        None,
        draw(st.sampled_from(["8.0", "6.1", ""])),
        None,
        None,
        1,
        draw(st.floats(1.0, 1e12)),
        numbers=draw(st.dictionaries(st.sampled_from([*quantities(), *LAUNCH]), amounts, max_size=30)),
        busy=draw(st.dictionaries(st.sampled_from(list(resources())), shares)),
        stalls=draw(st.dictionaries(st.sampled_from(["long_scoreboard", "barrier", "wait", "lg_throttle"]), shares)),
    )


@pytest.mark.parametrize("zero", ["threads", "waves", "blocks_per_sm", "most_warps", ""])
@pytest.mark.parametrize("threads", [8.0, 128.0])
def test_a_number_that_is_printed_as_zero_is_no_error(zero: str, threads: float) -> None:
    """ncu prints 0.00 waves of a grid that is far smaller than the GPU."""
    numbers = {
        "threads": threads,
        "waves": 0.5,
        "blocks": 4.0,
        "sm_count": 2.0,
        "blocks_per_sm": 2.0,
        "most_warps": 48.0,
    }
    numbers |= {zero: 0.0} if zero else {}
    tiny = MeasuredKernel("k", None, "8.0", None, None, 1, 1e9, numbers=numbers, busy={"dram": 0.1}, stalls={})
    assert all(lever.saves.low <= lever.saves.high for lever in advice_on(tiny, None).levers)


@given(kernels(), kernels(), st.none() | codes)
def test_intervals_are_in_order_whatever_the_numbers(
    one: MeasuredKernel, other: MeasuredKernel, executed: dict[str, float] | None
) -> None:
    code = None if executed is None else CodeFacts(executed, has_text=True)
    advice = advice_on(one, code)
    assert all(0 <= lever.saves.low <= lever.saves.middle <= lever.saves.high <= 1 for lever in advice.levers)
    change = change_of(advice, advice_on(other))
    assert all(pulled.strength >= 1 for pulled in change.pulled)
