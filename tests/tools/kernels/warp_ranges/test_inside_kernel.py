"""Answers on simulated pipelines equal the simulation: nesting, who waits for whom, chains, what-ifs, levers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_parsers.warp_ranges.warp_trace import TracedLaunch, WarpRanges, Warps, WarpTrace

from ncu_tools.kernels.warp_ranges.block_phases import block_phases, unit_spread
from ncu_tools.kernels.warp_ranges.inside_kernel import InsideKernel, inside_kernel
from ncu_tools.kernels.warp_ranges.lanes import blocks_to_draw, lanes_of, own_pieces
from ncu_tools.kernels.warp_ranges.launch_ranges import launch_ranges, roles_in
from ncu_tools.kernels.warp_ranges.range_kinds import RangeKind, kind_of_range
from ncu_tools.kernels.warp_ranges.releases import Order
from ncu_tools.kernels.warp_ranges.wait_graph import ShorterRanges, replay, wait_graph
from ncu_tools.kernels.warp_ranges.warp_levers import warp_levers
from ncu_tools.kernels.warp_ranges.what_if import NOTHING, kernel_times, savings, shorter_in
from ncu_tools.report.warp_tables import facts
from tests.support.nightly import FEWER
from tests.support.warp_pipelines import (
    ACQUIRE,
    ISSUE,
    LEAST_WAIT,
    MMA,
    SYNC,
    WAIT,
    Kernel,
    PingPong,
    Simulated,
    drawn,
    ping_pong,
    played,
    simulated,
)

SIZES = {"blocks": st.integers(1, 5), "steps": st.integers(6, 20), "consumers": st.integers(1, 3)}
KERNELS = st.builds(
    drawn, st.integers(0, 10**6), **SIZES, depth=st.integers(1, 4), latency=st.integers(0, 900),
    sms=st.integers(1, 3), barrier=st.booleans(),
)  # fmt: skip
APART = st.builds(
    drawn, st.integers(0, 10**6), **SIZES, depth=st.integers(1, 4), latency=st.integers(0, 900), sms=st.just(5),
    barrier=st.booleans(),
)  # fmt: skip
"""Kernels with an SM for each block, so that what-ifs do not change where a block runs."""


def inside(kernel: Kernel) -> tuple[Simulated, InsideKernel]:
    ran = simulated(kernel, origin=5_000)
    return ran, inside_kernel(ran.trace(), 0)


@FEWER
@given(kernel=KERNELS)
def test_waits_are_ended_by_the_range_and_the_round_that_the_pipeline_has(kernel: Kernel) -> None:
    _, found = inside(kernel)
    names = found.ranges.names
    rules = {names[one.wait]: one for one in found.releases}
    if WAIT in rules:
        full = rules[WAIT]
        assert (names[full.by], full.depth, full.lag) == (ISSUE, 0, kernel.latency)
    if ACQUIRE in rules:  # unless hardly a copy waited for a stage
        free = rules[ACQUIRE]
        assert (names[free.by], free.depth, free.lag) == (MMA, kernel.depth, 0)
    if kernel.barrier:
        assert rules[SYNC].order is Order.ARRIVAL
    if {ACQUIRE, WAIT} <= set(rules):
        assert found.graph.explained_share == pytest.approx(1)


@FEWER
@given(kernel=KERNELS)
def test_a_replay_without_a_change_gives_the_recorded_times(kernel: Kernel) -> None:
    ran, found = inside(kernel)
    again = replay(found.graph, [NOTHING])
    assert np.array_equal(again.reached[0], found.graph.end - found.ranges.begin.min())
    assert kernel_times(found.graph, again)[0] == ran.duration


@FEWER
@given(kernel=APART, name=st.sampled_from([ISSUE, MMA]), factor=st.sampled_from([0.0, 0.5, 0.75]))
def test_a_what_if_equals_the_simulation_of_the_shorter_range(kernel: Kernel, name: str, factor: float) -> None:
    ran, found = inside(kernel)
    assume({ACQUIRE, WAIT} <= {found.ranges.names[one.wait] for one in found.releases})  # others may wait then
    (saving,) = savings(found.graph, [shorter_in(f"{name}={factor}x", found.ranges)])
    truth = 1 - simulated(kernel.scaled(name, factor)).duration / ran.duration
    for value in (saving.likely, saving.low, saving.high):
        assert value == pytest.approx(truth, abs=10 / ran.duration)  # waits of a step more than the least


@FEWER
@given(kernel=APART, more=st.integers(1, 3))
def test_a_deeper_ring_saves_what_the_simulation_of_it_does(kernel: Kernel, more: int) -> None:
    _, found = inside(kernel)
    names = [found.ranges.names[one.wait] for one in found.releases]
    assume({ACQUIRE, WAIT} <= set(names))  # of a few waits it is not told who ends them, and they stay as they are
    deeper = wait_graph(
        found.ranges, found.instances, found.releases, {names.index(ACQUIRE): kernel.depth + more}
    )  # fmt: skip
    truth = simulated(replace(kernel, depth=kernel.depth + more)).duration
    assert kernel_times(deeper, replay(deeper, [NOTHING]))[0] == pytest.approx(truth, abs=5)  # waits of a step more


@FEWER
@given(kernel=KERNELS)
def test_the_longest_chain_is_as_long_as_the_launch(kernel: Kernel) -> None:
    ran, found = inside(kernel)
    assert sum(one.time for one in found.chain) == ran.duration
    assert sum(one.share for one in found.chain) == pytest.approx(1)


@FEWER
@given(kernel=KERNELS)
def test_shares_of_lives_and_waits_equal_the_simulation(kernel: Kernel) -> None:
    ran, found = inside(kernel)
    life = sum(end - begin for (_, warp), (begin, end) in ran.lives.items() if warp > 0)
    shares = {(one.role, one.range): one for one in found.times}
    assert shares["mma", MMA].share == pytest.approx(ran.total(MMA) / life)
    assert shares["mma", WAIT].share == pytest.approx(ran.total(WAIT) / life)
    assert shares["mma", MMA].count == kernel.blocks * kernel.steps * kernel.consumers
    for role in found.roles:
        assert role.working + role.waiting + role.unmarked == pytest.approx(1)
    waited = sum(one.waited for one in found.waits if one.range == WAIT)
    waits = kernel.blocks * kernel.steps * kernel.consumers
    assert waited == pytest.approx(ran.total(WAIT) - LEAST_WAIT * waits, abs=waits)  # one of a step more is no wait
    assert {one.waits_for for one in found.waits if one.range == WAIT} <= {"tma", None}


@FEWER
@given(kernel=KERNELS)
def test_fill_drain_and_overlap_equal_those_counted_a_nanosecond_at_a_time(kernel: Kernel) -> None:
    ran, found = inside(kernel)
    fills, drains, time = [], [], np.zeros(3)
    told = [one.lag for one in found.releases if found.ranges.names[one.wait] == WAIT]
    flight = kernel.latency if told else 0  # with few waits, who ends them and when copies land is not known
    for block in range(kernel.blocks):
        begin = min(start for (one, _), (start, _) in ran.lives.items() if one == block)
        end = max(stop for (one, _), (_, stop) in ran.lives.items() if one == block)
        copying, computing = (np.zeros(int(end - begin) + 1, np.bool_) for _ in range(2))
        for one, _, name, start, stop in ran.records:
            if one == block and name == ISSUE:
                copying[int(start - begin) : int(min(stop + flight, end) - begin)] = True
            if one == block and name == MMA:
                computing[int(start - begin) : int(stop - begin)] = True
        fills.append(int(computing.argmax()))
        drains.append(end - begin - 1 - np.flatnonzero(copying)[-1])
        time += [copying.sum(), computing.sum(), (copying & computing).sum()]
    phases = block_phases(found.ranges, found.releases)
    assert phases.fill == pytest.approx(np.mean(fills))
    assert phases.drain == pytest.approx(np.mean(drains))
    assert phases.overlap == pytest.approx(time[2] / min(time[:2]))


@FEWER
@given(kernel=KERNELS)
def test_blocks_lie_over_sms_as_in_the_simulation(kernel: Kernel) -> None:
    ran, found = inside(kernel)
    begin, end = defaultdict(list), defaultdict(list)
    for (block, _), (start, stop) in ran.lives.items():
        begin[ran.sm[block]].append(start)
        end[ran.sm[block]].append(stop)
    spread = next(one for one in unit_spread(found.ranges) if one.level == "SM")
    ends = [max(some) for some in end.values()]
    assert spread.units == len(begin)
    assert spread.start_skew == np.ptp([min(some) for some in begin.values()])
    assert spread.end_skew == np.ptp(ends)
    assert spread.idle_end == pytest.approx(np.mean([max(ends) - one for one in ends]) / ran.duration)
    assert found.tiles is not None
    assert found.tiles.most == -(-kernel.steps // kernel.steps_of_tile)


# ------------------------------------------------------------------------------------------------------------ nesting


def of_one_warp(spans: Iterable[tuple[str, int, int]], warps: int = 1) -> WarpTrace:
    """A trace of one block whose warps have these ranges."""
    names = list(dict.fromkeys(name for name, _, _ in spans)) or ["none"]
    rows = [(warp, names.index(name), start, end) for warp in range(warps) for name, start, end in spans]
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    return WarpTrace("test", [TracedLaunch("k")], Warps.of([0] * warps, [0] * warps, range(warps)),
                     WarpRanges(columns[0].astype(np.int32), columns[1].astype(np.int32), columns[2], columns[3]), names)  # fmt: skip


@st.composite
def nested(draw: st.DrawFn, low: int = 0, high: int = 64, depth: int = 0) -> list[tuple[str, int, int]]:
    """Ranges that nest, of any lengths and none, as a program with push and pop makes them."""
    found: list[tuple[str, int, int]] = []
    at = low
    while at < high and depth < 4 and len(found) < 12:
        start = draw(st.integers(at, high))
        end = draw(st.integers(start, high))
        found.append((draw(st.sampled_from("abcd")) + str(depth), start, end))
        if end - start > 1 and draw(st.booleans()):
            found += draw(nested(start, end, depth + 1))
        at = end + draw(st.integers(0, 3))
    return found


@given(spans=nested())
def test_own_time_of_nested_ranges_is_what_no_inner_one_has(spans: list[tuple[str, int, int]]) -> None:
    if not spans:
        return
    ranges = launch_ranges(of_one_warp(spans), 0)
    assert not ranges.is_async.any()
    owner: list[str | None] = [None] * 65
    for name, start, end in sorted(spans, key=lambda one: (one[1], -one[2])):
        owner[start:end] = [name] * (end - start)
    for at, name in enumerate(ranges.names):
        assert ranges.own[ranges.name == at].sum() == owner.count(name)
    pieces = own_pieces(ranges, 0)
    assert int((pieces.end - pieces.start).sum()) == 65 - owner.count(None)
    for start, end, name in zip(pieces.start.tolist(), pieces.end.tolist(), pieces.name.tolist(), strict=True):
        assert set(owner[ranges.origin + start : ranges.origin + end]) == {ranges.names[name]}


def test_a_range_that_crosses_iterations_counts_beside_the_life_of_its_warp() -> None:
    steps = [("step", at * 10, at * 10 + 10) for at in range(6)]
    flight = [("flight", at * 10 + 5, at * 10 + 15) for at in range(5)]
    ranges = launch_ranges(of_one_warp([*steps, *flight]), 0)
    assert ranges.crossing == ("flight",)
    assert ranges.own.sum() == 60
    assert ranges.own[ranges.is_async].sum() == 0


def test_the_lanes_of_a_block_show_what_each_warp_is_in() -> None:
    ranges = launch_ranges(of_one_warp([("load", 0, 50), ("mma", 50, 80), ("mma", 90, 100)]), 0)
    ((_, block),) = blocks_to_draw(ranges)
    (lane,) = lanes_of(ranges, block, 10)
    assert [ranges.names[one] if one >= 0 else "" for one in lane.names.tolist()] == [
        *["load"] * 5,
        *["mma"] * 3,
        "",
        "mma",
    ]


# ------------------------------------------------------------------------------------------------------------- roles


@pytest.mark.parametrize(("name", "kind"), [
    ("ab_wait", RangeKind.WAIT), ("tma_acquire", RangeKind.WAIT), ("waitRow", RangeKind.WAIT),
    ("epi_barrier", RangeKind.BARRIER), ("ar_bar_sync", RangeKind.BARRIER), ("tma_issue", RangeKind.COPY),
    ("TMALoad", RangeKind.COPY), ("mma_k_tile", RangeKind.COMPUTE), ("softmax0", RangeKind.OTHER),
    ("softmax", RangeKind.COMPUTE), ("epilogue", RangeKind.STORE), ("setup", RangeKind.OTHER),
])  # fmt: skip
def test_a_range_is_of_the_kind_that_its_words_say(name: str, kind: RangeKind) -> None:
    assert kind_of_range(name) is kind


def test_roles_are_of_warps_with_the_same_names_or_as_given() -> None:
    _, found = inside(drawn(1, 1, 8, 3))
    assert [found.ranges.roles[one] for one in found.ranges.role] == ["tma", "mma", "mma", "mma"]
    named = launch_ranges(simulated(drawn(1, 1, 8, 3)).trace(), 0, roles_in("0=load,1-2+3=math"))
    assert [named.roles[one] for one in named.role] == ["load", "math", "math", "math"]
    with pytest.raises(WrongUsage, match="is no role"):
        roles_in("0-3")


def test_waits_that_nobody_ends_make_an_interval_that_holds_the_truth() -> None:
    """Without the producer's ranges, who frees and fills stages is not known."""
    kernel = drawn(2, 3, 16, 2, sms=3)
    ran = simulated(kernel)
    trace = ran.trace()
    kept = trace.ranges.at(np.isin(trace.ranges.name, [trace.names.index(one) for one in (WAIT, MMA)]))
    found = inside_kernel(replace(trace, ranges=kept), 0)
    assert found.graph.explained_share < 0.5
    assert any("not known" in note for note in found.notes)
    (saving,) = savings(found.graph, [ShorterRanges(frozenset([found.ranges.names.index(MMA)]), 0.5)])
    truth = 1 - simulated(kernel.scaled(MMA, 0.5)).duration / ran.duration
    assert saving.low <= truth <= saving.high
    assert saving.low < saving.high


def test_an_unknown_range_of_a_what_if_is_refused_with_near_names() -> None:
    _, found = inside(drawn(1))
    with pytest.raises(WrongUsage, match="mma_issue"):
        shorter_in("mma_isue=0.5x", found.ranges)
    with pytest.raises(WrongUsage, match="cannot be read"):
        shorter_in("mma_issue", found.ranges)


def test_blocks_that_recorded_no_range_are_no_part_of_the_shares() -> None:
    trace = simulated(drawn(4)).trace()
    one = trace.warps.block[trace.ranges.warp] == 2
    some = inside_kernel(replace(trace, ranges=trace.ranges.at(one)), 0)
    alone = np.flatnonzero(trace.warps.block == 2)
    assert some.ranges.warp.tolist() == trace.warps.warp[alone].tolist()
    assert all(role.unmarked == pytest.approx(0, abs=0.01) for role in some.roles)
    assert "3 blocks without a range are left out" in some.notes
    assert "1 of 4 blocks" in facts(some)


def test_of_a_sample_of_blocks_no_tail_and_no_late_start_is_concluded() -> None:
    trace = simulated(drawn(4, 5, sms=4)).trace()
    assert "tile-tail" in {one.lever for one in warp_levers(inside_kernel(trace, 0))}
    found = inside_kernel(replace(trace, launches=[TracedLaunch("gemm", (64, 1, 1))]), 0)
    assert {one.lever for one in warp_levers(found)} <= {"deeper-pipeline", "split-roles", "barrier-straggler"}
    assert any("most blocks of the grid are not in the trace" in note for note in found.notes)


def test_a_trace_of_markers_alone_is_refused() -> None:
    trace = of_one_warp([("a", 0, 9)])
    with pytest.raises(NcuBenchError, match="no range with a begin and an end"):
        inside_kernel(replace(trace, ranges=replace(trace.ranges, end=np.full(1, -(2**62)))), 0)


# ------------------------------------------------------------------------------------------------------------ levers


def levers(kernel: Kernel) -> dict[str, tuple[float, float, float]]:
    _, found = inside(kernel)
    return {one.lever: (one.saving.likely, one.saving.low, one.saving.high) for one in warp_levers(found)}


def test_a_shallow_ring_is_named_with_what_another_stage_brings_and_a_deep_one_is_not() -> None:
    shallow = drawn(3, 3, 24, 1, sms=3, latency=500, depth=1, barrier=False)
    likely, low, high = levers(shallow)["deeper-pipeline"]
    ran, deeper = simulated(shallow).duration, simulated(replace(shallow, depth=2)).duration
    assert likely == pytest.approx(1 - deeper / ran, abs=0.001)
    assert low <= likely <= high
    assert "deeper-pipeline" not in levers(replace(shallow, depth=8))


def test_a_tail_of_blocks_is_named_and_an_even_launch_has_none() -> None:
    found = levers(drawn(4, 5, 12, 1, sms=4))
    assert 0 < found["tile-tail"][0] < found["tile-tail"][2]
    assert "tile-tail" not in levers(drawn(4, 4, 12, 1, sms=4))


def test_blocks_that_start_late_are_named_with_what_an_early_start_brings() -> None:
    kernel = drawn(5, 3, 12, 1, sms=3, late=(0, 0, 4_000))
    _, _, high = levers(kernel)["late-blocks"]
    assert high == pytest.approx(1 - simulated(replace(kernel, late=())).duration / simulated(kernel).duration)
    assert "late-blocks" not in levers(replace(kernel, late=()))


def test_a_role_that_works_alone_is_named() -> None:
    kernel = drawn(6, 2, 24, 1, sms=2, depth=4, latency=0)
    slow = replace(kernel, computes=kernel.computes * 6)
    assert levers(slow)["split-roles"][2] > 0.2
    balanced = replace(kernel, computes=np.repeat(kernel.copies[:, :, None], 1, 2))
    assert "split-roles" not in levers(balanced)


def test_a_barrier_where_all_wait_for_one_role_is_named_if_work_is_behind_it() -> None:
    """The producer stores for 2 us behind the barrier at the end of a block, at which consumers arrive 3 us late."""
    kernel = drawn(7, 2, 6, 2, sms=2, epilogue=3_000)
    assert "barrier-straggler" not in levers(kernel)
    ran = simulated(kernel)
    arrived = {(one[0], one[1]): one[3] for one in ran.records if one[2] == SYNC}
    for (block, warp), (begin, end) in list(ran.lives.items()):
        if warp == 0:
            ran.records.append((block, warp, "tma_store", end, end + 2_000))
            ran.lives[block, warp] = begin, end + 2_000
    early = max(
        max(at + (warp == 0) * 2_000 for (place, warp), at in arrived.items() if place == block) for block in range(2)
    )
    found = {one.lever: one.saving for one in warp_levers(inside_kernel(ran.trace(), 0))}
    assert found["barrier-straggler"].high == pytest.approx(1 - early / ran.duration, abs=0.01)
    assert "barrier-straggler" not in levers(drawn(7, 2, 6, 2, sms=2, barrier=False))


def test_blocks_left_out_of_a_large_graph_take_the_mean_of_the_others() -> None:
    ran = simulated(drawn(8, 5, 12, 2, sms=5))
    whole = inside_kernel(ran.trace(), 0)
    some = wait_graph(whole.ranges, whole.instances, whole.releases, most=100)
    assert 0 < len(some.blocks) < 5
    change: Sequence[ShorterRanges] = [shorter_in("mma_issue=0.5x", whole.ranges)]
    (part,), (all_of_them,) = savings(some, change), savings(whole.graph, change)
    assert part.likely == pytest.approx(all_of_them.likely, abs=0.1)


# ------------------------------------------------------------------------------------------------------- taking turns


@FEWER
@given(kernel=st.builds(ping_pong, st.integers(0, 10**6), st.integers(1, 4), st.integers(8, 16)),
       name=st.sampled_from(["mma", "epilogue"]))  # fmt: skip
def test_warps_of_one_role_that_take_turns_wait_for_their_own_kind(kernel: PingPong, name: str) -> None:
    ran = played(kernel)
    found = inside_kernel(ran.trace(), 0)
    (rule,) = found.releases
    assert (rule.order, found.ranges.names[rule.by]) == (Order.LAST_BEFORE, "mma")
    assert {one.waits_for for one in found.waits} <= {*found.ranges.roles, None}
    halved = {"mma": {"products": kernel.products / 2}, "epilogue": {"epilogues": kernel.epilogues / 2}}[name]
    (saving,) = savings(found.graph, [shorter_in(f"{name}=0.5x", found.ranges)])
    truth = 1 - played(replace(kernel, **halved)).duration / ran.duration
    assert saving.likely == pytest.approx(truth, abs=0.01)
