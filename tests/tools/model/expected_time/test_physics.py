"""The physics of GEMMs: arithmetic by hand, and what must hold whatever the sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncu_tools.ceilings.machine_files import find_machine, machines
from ncu_tools.model.expected_time.gemm_time import GEMM, gemm_work, least_bytes
from ncu_tools.model.expected_time.hardware import Hardware, family_of, hardware_of, types
from ncu_tools.model.expected_time.kinds import KINDS
from ncu_tools.model.expected_time.physics import TimedOperators, fitted, fitted_from_several, robust

H100 = Hardware(989.4e6, 3.35e6, 132, 50 * 2**20)
SIZE = st.integers(1, 40_000)


def time_of(m: int, n: int, k: int, dtype: str = "bf16", hardware: Hardware = H100) -> float:
    work = gemm_work(np.array([m]), np.array([n]), np.array([k]), types()[dtype])
    return float(GEMM.best(hardware, work, GEMM.start)[0][0])


def test_bytes_of_a_gemm_are_both_operands_and_the_result_once() -> None:
    work = gemm_work(np.array([2]), np.array([3]), np.array([5]), types()["fp8"])
    assert least_bytes(work)[0] == 2 * 5 * 1 + 5 * 3 * 1 + 2 * 3 * 2


def test_a_large_product_takes_its_flops_over_the_reached_peak() -> None:
    at_best = 2 * 16384.0**3 / H100.flops
    assert time_of(16384, 16384, 16384) == pytest.approx(at_best / 0.85, rel=0.03)


def test_a_wide_product_of_one_row_takes_its_bytes_over_the_reached_bandwidth() -> None:
    weights = 16384 * 16384 * 2
    assert time_of(1, 16384, 16384) == pytest.approx(weights / (H100.dram * 0.85), rel=0.06)


def test_a_tiny_product_takes_the_launch_and_little_more() -> None:
    assert 2 < time_of(8, 32, 32) < 3


def test_one_tile_is_split_along_k_where_that_takes_less_than_one_sm() -> None:
    work = gemm_work(np.array([16]), np.array([64]), np.array([65536]), types()["bf16"])
    choice = GEMM.best(H100, work, GEMM.start)[1]
    assert GEMM.choices[choice[0]][2] > 1


@given(SIZE, SIZE, SIZE, st.sampled_from("mnk"), st.floats(1, 4))
def test_more_of_any_size_never_takes_less_time(m: int, n: int, k: int, which: str, factor: float) -> None:
    more = {"m": m, "n": n, "k": k}
    more[which] = int(more[which] * factor)
    assert time_of(more["m"], more["n"], more["k"]) >= time_of(m, n, k) * (1 - 1e-5)


@given(SIZE, SIZE, SIZE)
def test_a_gpu_with_more_of_everything_never_takes_more_time(m: int, n: int, k: int) -> None:
    better = Hardware(H100.flops * 2, H100.dram * 2, H100.sms, H100.l2 * 2)
    assert time_of(m, n, k, hardware=better) <= time_of(m, n, k) * (1 + 1e-5)


@given(SIZE, SIZE, SIZE)
def test_physics_without_l2_and_at_the_rates_of_the_sheet_is_not_below_the_roof(m: int, n: int, k: int) -> None:
    work = gemm_work(np.array([m]), np.array([n]), np.array([k]), types()["bf16"])
    without = H100._replace(l2=0)
    logs = GEMM.start.copy()
    logs[:2] = 0
    assert GEMM.best(without, work, logs)[0][0] >= KINDS["gemm"].at_best(without, work)[0] * (1 - 1e-4)


class TestAFit:
    @pytest.fixture
    def measured(self) -> TimedOperators:
        """MeasuredTimes that the physics itself gives with other numbers."""
        drawn = np.random.default_rng(1)
        m, n, k = (np.round(2 ** drawn.uniform(low, 14, 300)) for low in (0, 5, 5))
        work = gemm_work(m, n, k, types()["bf16"])
        logs = GEMM.start.copy()
        logs[[0, 1, 2]] = np.log([0.6, 0.7, 4])
        return TimedOperators(H100, work, GEMM.best(H100, work, logs)[0])

    def test_finds_the_numbers_that_the_times_were_made_with(self, measured: TimedOperators) -> None:
        found = np.exp(fitted(GEMM, measured, GEMM.start)[0])
        assert found[:3] == pytest.approx([0.6, 0.7, 4], rel=0.05)

    @pytest.mark.parametrize("off", [0.0, -0.4])
    def test_goes_on_until_it_is_as_good_as_the_numbers_that_the_times_were_made_with(
        self, measured: TimedOperators, off: float
    ) -> None:
        """These have no errors, and differ from those that are typical by 0.6 / 0.85, 0.7 / 0.85 and 4 / 2."""
        of_the_truth = 0.02 * sum(np.log(ratio) ** 2 for ratio in (0.6 / 0.85, 0.7 / 0.85, 2.0))
        assert fitted(GEMM, measured, GEMM.start + off)[1] <= 1.01 * of_the_truth

    def test_from_several_starts_is_at_least_as_good(self, measured: TimedOperators) -> None:
        hardware, work, times = measured
        found = fitted_from_several(GEMM, measured, starts=2)
        assert np.median(np.abs(GEMM.best(hardware, work, found)[0] / times - 1)) < 0.01

    def test_from_one_start_is_that_from_the_usual_one_and_more_starts_can_only_be_better(
        self, measured: TimedOperators
    ) -> None:
        hardware, work, times = measured
        noise = np.exp(np.random.default_rng(2).normal(0, 0.3, 40))
        few = TimedOperators(hardware, {name: column[:40] for name, column in work.items()}, times[:40] * noise)
        usual, loss = fitted(GEMM, few, GEMM.start)
        assert fitted_from_several(GEMM, few, starts=1).tolist() == usual.tolist()
        by_seed = [fitted_from_several(GEMM, few, seed=seed) for seed in (0, 1)]
        assert by_seed[0].tolist() != by_seed[1].tolist()
        assert all(fitted(GEMM, few, found, steps=0)[1] < loss for found in by_seed)

    def test_stays_near_its_prior_where_that_weighs_more_than_the_times(self, measured: TimedOperators) -> None:
        found = fitted(GEMM, measured, GEMM.start, weight=1e9)[0]
        assert found == pytest.approx(GEMM.start, abs=1e-3)

    def test_has_the_loss_of_its_errors_and_of_how_far_it_is_from_its_prior(self, measured: TimedOperators) -> None:
        hardware, work, times = measured
        few = TimedOperators(hardware, {name: column[:40] for name, column in work.items()}, times[:40] * 1.5)
        prior = GEMM.start + 0.1
        for asked, weight in ((None, 0.02), (0.3, 0.3)):
            logs, loss = fitted(GEMM, few, GEMM.start, prior, asked, steps=3)
            errors = np.log(GEMM.best(hardware, few.work, logs)[0]) - np.log(few.time_us)
            of_errors = (np.sqrt(1 + (errors / 0.1) ** 2) - 1).sum()
            assert loss == pytest.approx(of_errors + weight * ((logs - prior) ** 2).sum(), rel=1e-3)
            before = np.log(GEMM.best(hardware, few.work, GEMM.start)[0]) - np.log(few.time_us)
            assert loss < (np.sqrt(1 + (before / 0.1) ** 2) - 1).sum() + weight * 0.01 * len(prior)

    def test_keeps_each_number_within_its_bounds(self, measured: TimedOperators) -> None:
        least, most = GEMM.bounds()
        for factor, bound in ((1e4, most), (1e-4, least)):
            found = fitted(GEMM, measured._replace(time_us=measured.time_us * factor), GEMM.start)[0]
            assert (least <= found).all()
            assert (found <= most).all()
            assert found[2] == pytest.approx(bound[2])  # the launch
        assert fitted(GEMM, measured, most + 1, steps=0)[0] == pytest.approx(most)


def test_errors_count_by_their_size_from_a_tenth_on() -> None:
    assert robust(np.array([0, 0.1, -0.1, 0.3])) == pytest.approx([1, 0.5**0.5, 0.5**0.5, 0.1**0.5])


def test_the_best_choice_of_many_operators_is_that_of_each_alone() -> None:
    m, n, k = np.round(2 ** np.random.default_rng(0).uniform(0, 13, (3, 401)))
    work = gemm_work(m, n, k, types()["bf16"])
    times, choice = GEMM.best(H100, work, GEMM.start)
    every = np.stack([GEMM.at(H100, work, GEMM.start, np.full(401, one)) for one in range(len(GEMM.choices))])
    assert times == pytest.approx(every.min(0))
    assert every[choice, np.arange(401)] == pytest.approx(every.min(0))
    for row in (0, 399, 400):
        alone = {name: column[[row]] for name, column in work.items()}
        assert GEMM.best(H100, alone, GEMM.start)[0] == pytest.approx(times[row])


class TestHardware:
    def test_of_a_machine_without_a_type_is_a_reason(self) -> None:
        assert hardware_of(find_machine("t4"), "bf16") == "no peak for bf16 is known of t4"

    def test_of_a_machine_without_its_number_of_sms_is_a_reason(self) -> None:
        assert hardware_of(find_machine("mi300x"), "bf16") == "the number of SMs of mi300x is not known"

    def test_has_rates_per_microsecond(self) -> None:
        found = hardware_of(find_machine("h100-sxm"), "fp8")
        assert found == (1978.9e6, 3.35e6, 132, 50 * 2**20)

    @pytest.mark.parametrize("pair", [("h100-sxm", "h200"), ("b200", "gb300"), ("l40s", "rtx-4090")])
    def test_of_one_family_are_kin(self, pair: tuple[str, str]) -> None:
        assert family_of(find_machine(pair[0])) == family_of(find_machine(pair[1]))

    def test_every_gpu_of_nvidia_with_an_l2_has_a_plausible_one(self) -> None:
        known = [one.l2_bytes for one in machines().values() if one.l2_bytes is not None]
        assert len(known) > 60
        assert all(2e6 <= size <= 140e6 for size in known)
