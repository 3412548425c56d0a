"""What a history says of a change: that it is the code, the method, the machine or noise, by what moved with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from ncu_parsers.report_data.report import Launch
from ncu_parsers.schema.tables import Floats

from ncu_tools.history.causes import HistoryChange, changes_of
from ncu_tools.history.run_summary import RunFacts
from ncu_tools.history.series import KERNEL, Renamed, history_of
from tests.support.histories import GHZ, changes, counted, history, history_of_values, summary, times

Runs = list[Sequence[Launch]]
SLOWER = times(12, 110, 1, seed=2)


def before_and_after(before: Callable[[float], list[Launch]], after: Callable[[float], list[Launch]]) -> Runs:
    """Twelve runs of each, the later ones 10 % slower."""
    return [*map(before, times(12)), *map(after, SLOWER)]


def only(found: list[HistoryChange]) -> HistoryChange:
    (one,) = found
    assert (one.run, one.drift) == (12, False)
    return one


def plain(us: float) -> list[Launch]:
    return counted("gemm", us)


class TestTheCauseOfATime:
    def test_is_the_code_if_counts_moved_with_it(self) -> None:
        one = only(changes(*before_and_after(plain, lambda us: counted("gemm", us, instructions=1.2e6, registers=40))))
        assert one.cause == "code"
        assert one.evidence == ("instructions 1,000,000 -> 1,200,000 (+20.0 %)", "registers 32 -> 40 (+25.0 %)")
        assert one.change == pytest.approx(0.1, abs=0.02)

    def test_is_the_code_of_a_kernel_with_another_name(self) -> None:
        named = only(
            changes(*before_and_after(lambda us: counted("norm_v1", us), lambda us: counted("norm_float4", us)))
        )
        assert named.cause == "code"
        assert "renamed, was norm_v1" in named.evidence[0]

    def test_is_the_method_if_other_launches_were_measured(self) -> None:
        more = only(changes(*before_and_after(plain, lambda us: counted("gemm", us, us))))
        assert (more.cause, more.evidence) == ("method", ("launches 1 -> 2 (+100.0 %)",))
        grid = only(changes(*before_and_after(plain, lambda us: counted("gemm", us, grid=(16, 1, 1)))))
        assert (grid.cause, grid.evidence) == ("method", ("other grids, blocks or ranges, or another mix of them",))

    def test_is_the_method_if_versions_differ_though_counts_moved(self) -> None:
        runs = [
            summary(f"r{at}", counted("gemm", us), conditions={"version of torch": "2.8"})
            for at, us in enumerate(times(12))
        ]
        runs += [
            summary(f"s{at}", counted("gemm", us, registers=40), conditions={"version of torch": "2.9"})
            for at, us in enumerate(SLOWER)
        ]
        one = only([one for one in changes_of(history_of(runs)) if one.quantity == "time"])
        assert one.cause == "method"
        assert one.evidence == ("version of torch: 2.8 -> 2.9", "registers 32 -> 40 (+25.0 %)")

    def test_is_the_machine_if_only_the_clock_fell(self) -> None:
        runs = [counted("gemm", us) for us in times(12)]
        runs += [counted("gemm", us * 1.1, ghz=GHZ / 1.1) for us in times(12, seed=3)]
        one = only(changes(*runs))
        assert one.cause == "machine"
        assert one.evidence[0] == "SM clock 1.5 GHz -> 1.364 GHz"
        assert "instructions, registers as before" in one.evidence[1]
        assert changes(*runs, quantity="cycles") == []

    def test_is_not_the_clock_if_that_rose_while_the_kernel_became_slower(self) -> None:
        runs = [counted("gemm", us) for us in times(12)]
        runs += [counted("gemm", us, ghz=GHZ * 1.1) for us in SLOWER]
        assert only(changes(*runs)).cause == "noise"

    def test_is_the_machine_of_another_device_whatever_else_moved(self) -> None:
        runs = [summary(f"r{at}", plain(us), conditions={"GPU": "A100"}) for at, us in enumerate(times(12))]
        runs += [
            summary(f"s{at}", counted("gemm", us, registers=40), conditions={"GPU": "H100"})
            for at, us in enumerate(SLOWER)
        ]
        one = only([one for one in changes_of(history_of(runs)) if one.quantity == "time"])
        assert (one.cause, one.evidence[0]) == ("machine", "GPU: A100 -> H100")

    def test_is_noise_if_nothing_else_moved_and_says_what_was_seen(self) -> None:
        one = only(changes(*before_and_after(plain, plain)))
        assert one.cause == "noise"
        assert one.evidence[0] == "instructions, registers as before"
        assert one.evidence[1].endswith("times the spread of runs")

    @pytest.mark.parametrize(("metrics", "said"), [
        ((), "no counters were collected, so that a change of the code would not show"),
        (("launch__registers_per_thread",), "registers as before, but instructions were not counted"),
    ])  # fmt: skip
    def test_is_unknown_where_no_instructions_were_counted(self, metrics: tuple[str, ...], said: str) -> None:
        def bare(us: float) -> list[Launch]:
            (one,) = counted("gemm", us)
            kept = ("gpu__time_duration.sum", *metrics)
            one.metrics = {name: found for name, found in one.metrics.items() if name in kept}
            return [one]

        one = only(changes(*before_and_after(bare, bare)))
        assert (one.cause, one.evidence[0]) == ("unknown", said)


class TestACount:
    def test_that_moved_is_the_code_at_the_very_run(self) -> None:
        runs = [plain(100), plain(100.3), counted("gemm", 100.1, registers=40)]
        (one,) = changes(*runs, quantity="registers")
        assert (one.run, one.before, one.after, one.change, one.cause) == (2, 32, 40, 0.25, "code")

    def test_of_launches_is_the_method_even_beside_new_code(self) -> None:
        (one,) = changes(plain(100), counted("gemm", 100, 101, registers=40), quantity="launches")
        assert one.cause == "method"

    def test_with_another_grid_is_the_code_if_registers_moved_too(self) -> None:
        (one,) = changes(plain(100), counted("gemm", 50, registers=64, grid=(4, 1, 1)), quantity="registers")
        assert one.cause == "code"


class TestAShortHistory:
    def test_shows_the_time_of_a_run_in_which_counts_moved(self) -> None:
        (one,) = changes(counted("gemm", 100, 101), counted("gemm", 60, 61, registers=40))
        assert (one.run, one.cause, one.after) == (1, "code", 60500)

    def test_shows_no_time_of_one_run_in_which_nothing_moved(self) -> None:
        assert changes(plain(100), plain(101), plain(60)) == []


class TestAllKernels:
    def test_have_a_row_where_the_median_moves_and_none_where_one_wobbles(self) -> None:
        names = [f"k{number}" for number in range(40)]
        first = [one for name, us in zip(names, times(40, 100, 20), strict=True) for one in counted(name, us)]
        moved = [one for name, us in zip(names, times(40, 100, 20), strict=True) for one in counted(name, us * 1.05)]
        wobbling = [*first[:-1], *counted(names[-1], 300)]
        found = changes(first, first, moved, moved)
        everything = [one for one in found if one.series == -1]
        assert [(one.run, round(one.change, 3)) for one in everything] == [(2, 0.05)]
        assert history(first).name_of(everything[0].series) == "all kernels"
        assert changes(first, first, wobbling, first) == []


def test_changes_come_in_the_order_of_runs_and_counts_before_times() -> None:
    runs = before_and_after(plain, lambda us: counted("gemm", us, instructions=2e6, registers=40))
    assert [one.quantity for one in changes_of(history(*runs))] == ["instructions", "registers", "cycles", "time"]


def test_a_drift_says_over_how_many_runs() -> None:
    (one,) = changes(*(plain(us * 1.004 ** max(at - 20, 0)) for at, us in enumerate(times(50, 100, 0.5))))
    assert one.drift
    assert one.evidence[0] == f"drift over {one.end - one.run + 1} runs"
    assert 45 <= one.end <= 49


def around(*levels: float, runs: int = 12, w: float = 0.005) -> Floats:
    """So many runs around each level that go round in threes: at it, above and below, with a spread of 1.4826 w."""
    return np.concatenate([level * np.exp(np.resize([0, w, -w], runs)) for level in levels])


def both(before: float, after: float, runs: int = 12) -> Floats:
    """So many runs with each value."""
    return np.repeat([before, after], runs).astype(float)


def of_both(before: dict[str, str], after: dict[str, str]) -> list[RunFacts]:
    return [RunFacts(conditions=one) for one in (before, after) for _ in range(12)]


def time_change(
    counts: Mapping[str, tuple[float, float]], conditions: Sequence[dict[str, str]] = ({}, {})
) -> HistoryChange:
    """The change of a time by 10 % at run 12, with counts and conditions before and from there on."""
    known = {name: both(*values) for name, values in counts.items()}
    found = history_of_values(of_both(*conditions), (), KERNEL, time=around(100e3, 110e3), **known)
    return only([one for one in changes_of(found) if one.quantity == "time"])


MORE_REGISTERS, MORE_INSTRUCTIONS = "registers 32 -> 40 (+25.0 %)", "instructions 1,000 -> 1,200 (+20.0 %)"
OTHER_MIX = "other grids, blocks or ranges, or another mix of them"
VERSIONS, GPUS = ({"torch": "2.8"}, {"torch": "2.9"}), ({"GPU": "A100"}, {"GPU": "H100"})
NEW_CODE = {"registers": (32, 40)}
NEW_WORK = {"instructions": (1000, 1200)}
NEW_GRID = {"shapes": (0.1, 0.2)}


@pytest.mark.parametrize(
    ("conditions", "counts", "cause", "evidence"),
    [
        (({}, {}), NEW_CODE, "code", [MORE_REGISTERS]),
        (({}, {}), {**NEW_CODE, **NEW_GRID}, "code", [MORE_REGISTERS, OTHER_MIX]),
        (({}, {}), {**NEW_WORK, **NEW_GRID}, "method", [OTHER_MIX, MORE_INSTRUCTIONS]),
        (({}, {}), {**NEW_WORK, **NEW_GRID, "flops": (5e9, 5e9)}, "code", [MORE_INSTRUCTIONS, OTHER_MIX]),
        (({}, {}), {**NEW_GRID, "flops": (5e9, 6e9)}, "method", [OTHER_MIX, "FLOPs 5 GFLOP -> 6 GFLOP (+20.0 %)"]),
        (({}, {}), {**NEW_GRID, "flops": (np.nan, 6e9)}, "method", [OTHER_MIX]),
        (({}, {}), {**NEW_CODE, "launches": (1, 2)}, "code", [MORE_REGISTERS, "launches 1 -> 2 (+100.0 %)"]),
        (VERSIONS, NEW_CODE, "method", ["torch: 2.8 -> 2.9", MORE_REGISTERS]),
        (GPUS, NEW_CODE, "machine", ["GPU: A100 -> H100", MORE_REGISTERS]),
        (
            ({"host": "a", "torch": "2.8"}, {"host": "b", "torch": "2.9"}), NEW_CODE,
            "machine", ["host: a -> b", MORE_REGISTERS, "torch: 2.8 -> 2.9"],
        ),
    ],
)  # fmt: skip
def test_a_cause_follows_from_all_that_moved_and_its_evidence_names_that(
    conditions: Sequence[dict[str, str]], counts: dict[str, tuple[float, float]], cause: str, evidence: list[str]
) -> None:
    found = time_change(counts, conditions)
    assert (found.cause, list(found.evidence)) == (cause, evidence)


class TestTheEvidence:
    def test_names_at_most_four_counts_that_moved_or_did_not(self) -> None:
        names = ("instructions", "flops", "l1_bytes", "registers", "spills")
        moved, still = (time_change(dict.fromkeys(names, values)).evidence for values in ((1000, 2000), (1000, 1000)))
        assert [one.split(" 1")[0] for one in moved] == ["instructions", "FLOPs", "L1 bytes", "registers"]
        assert still[0] == "instructions, FLOPs, L1 bytes, registers as before"

    def test_of_noise_is_the_change_over_the_spread_of_runs(self) -> None:
        found = time_change({"instructions": (5, 5), "registers": (np.nan, 32), "spills": (3, np.nan)})
        spreads = math.log(1.1) / (1.4826 * 0.005)
        assert found.evidence == ("instructions as before", f"{spreads:.1f} times the spread of runs")
        fell = changes_of(history_of_values(time=around(110e3, 100e3)))
        assert fell[0].evidence[1] == f"{spreads:.1f} times the spread of runs"

    def test_shows_counts_as_they_are_and_means_with_decimals_up_to_a_thousand(self) -> None:
        def shown(before: float, after: float) -> str:
            (one,) = changes_of(history_of_values(instructions=np.array([before, after])))
            assert one.evidence == (one.in_words,)
            return one.in_words

        assert shown(1, 4 / 3) == "instructions 1 -> 1.333 (+33.3 %)"
        assert shown(998.5, 1000.7) == "instructions 998.5 -> 1,000 (+0.2 %)"
        assert shown(0, 3) == "instructions 0 -> 3 (from nothing)"

    def test_of_launches_that_vary_are_their_numbers(self) -> None:
        number = np.concatenate([np.resize([2.0, 3], 12), np.resize([8.0, 9], 12)])
        one = only(changes_of(history_of_values(launches=number, time=around(100e3, 100e3))))
        assert (one.quantity, one.cause, one.evidence) == ("launches", "method", (one.in_words,))

    def test_of_a_rename_is_that_of_the_kernel_in_the_run(self) -> None:
        names = Renamed(0, 12, "old", "similar name"), Renamed(1, 5, "older", "similar name")
        found = changes_of(history_of_values(None, names, time=np.stack([around(100e3, 110e3)] * 2, axis=1)))
        assert [(one.series, one.cause) for one in found] == [(0, "code"), (1, "unknown")]
        assert found[0].evidence == ("renamed, was old (similar name)",)
        slow = 100e3 * np.exp(0.004 * np.clip(np.arange(60) - 20, 0, 20)) * around(1, runs=60, w=0.003)
        for run, cause in ((20, "unknown"), (26, "code"), (50, "unknown")):
            (drift,) = changes_of(history_of_values(None, [Renamed(0, run, "old", "")], time=slow))
            assert (drift.drift, drift.cause) == (True, cause)
            assert 20 < drift.run < 26 < drift.end < 45


def test_a_change_from_nothing_has_no_percentage() -> None:
    (one,) = changes_of(history_of_values(spills=np.array([0.0, 3])))
    assert (one.change, one.growth_in_words) == (math.inf, "from nothing")
    (back,) = changes_of(history_of_values(spills=np.array([4.0, 3])))
    assert (back.change, back.growth_in_words) == (-0.25, "-25.0 %")


@pytest.mark.parametrize(("off", "is_cause"), [(-3, False), (-2, True), (2, True), (3, False)])
def test_dram_bytes_are_the_cause_of_a_time_that_moved_up_to_two_runs_before_or_after(off: int, is_cause: bool) -> None:
    dram = np.append(around(1000, runs=12 + off), around(2000, runs=12 - off))
    found = changes_of(history_of_values(time=around(100e3, 110e3), dram_bytes=dram))
    assert {one.quantity: one.run for one in found} == {"time": 12, "dram_bytes": 12 + off}
    assert [one.cause for one in found if one.quantity == "time"] == ["code" if is_cause else "unknown"]


def test_counts_that_moved_in_two_runs_each_explain_their_own() -> None:
    registers = np.repeat([32.0, 40, 48], [12, 2, 10])
    dram = np.append(around(1000, runs=14), around(2000, runs=10))
    found = changes_of(history_of_values(registers=registers, time=around(100e3, 110e3), dram_bytes=dram))
    assert [one.evidence for one in found if one.quantity == "time"] == [(MORE_REGISTERS,)]
    assert [one.evidence[0] for one in found if one.quantity == "dram_bytes"] == ["registers 40 -> 48 (+20.0 %)"]


def test_a_drift_behind_a_count_that_moved_is_no_cause_of_the_time_there() -> None:
    drifting = 1000 * np.exp(0.004 * np.clip(np.arange(60) - 20, 0, 20)) * around(1, runs=60, w=0.003)
    (drift,) = changes_of(history_of_values(dram_bytes=drifting))
    at = drift.run - 1
    times, registers = (
        np.append(around(100e3, runs=at), around(110e3, runs=60 - at)),
        np.repeat([32.0, 40], [at, 60 - at]),
    )
    found = changes_of(history_of_values(registers=registers, time=times, dram_bytes=drifting))
    assert [(one.run, one.evidence) for one in found if one.quantity == "time"] == [(at, (MORE_REGISTERS,))]


class TestTheClockOfAChange:
    @pytest.mark.parametrize(("quantity", "clock", "explains"), [
        ("time", 1.2e9, True), ("time", 1.8e9, False), ("cycles", 1.2e9, False), ("cycles", 1.8e9, True),
    ])  # fmt: skip
    def test_explains_a_time_that_rose_as_it_fell_and_cycles_that_rose_with_it(
        self, quantity: str, clock: float, explains: bool
    ) -> None:
        for levels, clocks in (((100e3, 110e3), (1.5e9, clock)), ((110e3, 100e3), (clock, 1.5e9))):
            facts = [RunFacts(clock=one) for one in clocks for _ in range(12)]
            one = only(changes_of(history_of_values(facts, (), KERNEL, **{quantity: around(*levels)})))
            assert one.cause == ("machine" if explains else "unknown")

    @pytest.mark.parametrize(("ratio", "cause"), [(1.019, "unknown"), (1.021, "machine")])
    def test_is_another_one_from_two_per_cent_on(self, ratio: float, cause: str) -> None:
        facts = [RunFacts(clock=one) for one in (ratio * 1e9, 1e9) for _ in range(12)]
        assert only(changes_of(history_of_values(facts, time=around(100e3, 110e3)))).cause == cause

    def test_is_that_of_the_kernel_or_of_its_run_the_last_that_is_known(self) -> None:
        def seen(facts: Sequence[RunFacts], cycles: Floats) -> str:
            found = changes_of(history_of_values(facts, time=around(100e3, 110e3), cycles=cycles))
            return only([one for one in found if one.quantity == "time"]).evidence[0]

        cycles = np.where(np.arange(24) % 12 == 5, np.nan, around(100e3, 110e3) * both(1.5, 1.3))
        assert seen([RunFacts(clock=9e9)] * 24, cycles) == "SM clock 1.5 GHz -> 1.3 GHz"
        runs = [
            RunFacts(clock={9: 1.5e9, 12: 1.3e9, 13: 1.1e9}.get(run, 9e9 if run < 9 else None)) for run in range(24)
        ]
        assert seen(runs, np.full(24, np.nan)) == "SM clock 1.5 GHz -> 1.3 GHz"
        assert seen([RunFacts()] * 12 + [RunFacts(clock=1e9)] * 12, np.full(24, np.nan)).startswith("no counters")
        assert seen([RunFacts(clock=1e9)] + [RunFacts()] * 23, np.full(24, np.nan)).startswith("no counters")

    def test_explains_no_count(self) -> None:
        facts = [RunFacts(clock=one) for one in (1.5e9, 1.2e9) for _ in range(12)]
        found = changes_of(history_of_values(facts, dram_bytes=around(1000, 1100)))
        assert (only(found).cause, len(only(found).evidence)) == ("code", 1)


def test_changes_of_a_run_come_with_that_of_all_first_then_by_quantity_then_the_largest() -> None:
    times = np.repeat([[100e3], [100e3], [110e3]], 12, axis=1)
    registers, instructions = np.full((3, 12), 32.0), np.full((3, 12), 1000.0)
    registers[2, :3], instructions[2, 5], instructions[1:, 7] = (40, 20, 48), 2000, 3000
    found = changes_of(history_of_values(time=times, registers=registers, instructions=instructions))
    rows = [(one.run, one.quantity, one.series) for one in found if one.quantity != "time" or one.series == -1]
    assert rows == [
        (1, "instructions", 7), (2, "time", -1), (2, "instructions", 5),
        (2, "registers", 2), (2, "registers", 1), (2, "registers", 0),
    ]  # fmt: skip


class TestTheMedianOfAll:
    @pytest.mark.parametrize(("moved", "cause"), [(7, "code"), (6, "noise")])
    def test_moved_by_the_code_if_counts_of_more_than_half_moved_with_it(self, moved: int, cause: str) -> None:
        times = np.repeat([[100e3], [100e3], [110e3]], 12, axis=1)
        counts = np.full((3, 12), 1000.0)
        counts[2, :moved], counts[1:, moved:] = 2000, 2000
        (every,) = [one for one in changes_of(history_of_values(time=times, instructions=counts)) if one.series == -1]
        assert every.cause == cause
        if cause == "noise":
            assert every.evidence[0] == "no count moved in most of them"

    def test_without_counters_says_that_there_were_none(self) -> None:
        times = np.repeat([[100e3], [110e3]], 12, axis=1)
        (every,) = [one for one in changes_of(history_of_values(time=times)) if one.series == -1]
        assert every.evidence[0].startswith("no counters were collected")

    def test_has_the_clock_of_the_run(self) -> None:
        times, facts = np.repeat([[100e3], [110e3]], 12, axis=1), [RunFacts(clock=1.5e9), RunFacts(clock=1.3e9)]
        found = changes_of(history_of_values(facts, time=times, cycles=times * 1.5))
        assert [one.evidence[0] for one in found if one.series == -1] == ["SM clock 1.5 GHz -> 1.3 GHz"]
