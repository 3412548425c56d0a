"""What a history says of a change: that it is the code, the method, the machine or noise, by what moved with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from ncu_parsers.report_data.report import Launch

from ncu_tools.history.causes import HistoryChange, changes_of
from ncu_tools.history.series import history_of
from tests.support.histories import GHZ, changes, counted, history, summary, times

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

    def test_is_noise_without_counters_which_the_evidence_says(self) -> None:
        def bare(us: float) -> list[Launch]:
            (one,) = counted("gemm", us)
            one.metrics = {name: found for name, found in one.metrics.items() if name == "gpu__time_duration.sum"}
            return [one]

        one = only(changes(*before_and_after(bare, bare)))
        assert one.cause == "noise"
        assert one.evidence[0] == "no counters were collected, so that a change of the code would not show"


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
