"""Two functions timed in turns: the ratio does not follow a machine that slows down, and its interval holds the truth."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from ncu_launch.bench.against.paired_rounds import in_turns, times_ratio
from ncu_launch.bench.latency_statistics import Effort
from ncu_launch.bench.timed_iteration import Iteration

EFFORT = Effort(precision=0.01, least_s=0.0, max_s=5.0)


class Machine:
    """A machine whose every sample takes 1 % longer than the one before, with noise of 2 %."""

    def __init__(self, drift: float = 1.01) -> None:
        self.drift, self.slowness = drift, 1.0
        self.order: list[str] = []
        self.random = random.Random(1)  # noqa: S311

    def iteration(self, name: str, nanoseconds: float) -> Iteration:
        return Iteration(lambda: (name, nanoseconds), lambda _: None, lambda: None)

    def timed(self, work: Callable[[Any], None], prepared: Any) -> float:
        name, nanoseconds = prepared
        self.order.append(name)
        self.slowness *= self.drift
        return float(nanoseconds * self.slowness * self.random.gauss(1, 0.02))


def measured(machine: Machine, mine: float, reference: float) -> Any:
    sides = machine.iteration("mine", mine), machine.iteration("reference", reference)
    return in_turns(*sides, machine.timed, EFFORT)


def test_a_machine_that_slows_down_does_not_change_the_ratio() -> None:
    """20 ms samples: one in a block, and a drift that makes the last a multiple of the first."""
    machine = Machine()
    found = measured(machine, 20e6, 30e6)
    assert found.mine[-1] > 1.2 * found.mine[0]
    ratio = times_ratio([found.logs])
    assert ratio.ratio == pytest.approx(1.5, rel=0.02)
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low < 1.5 < ratio.high


def test_either_function_comes_first_in_turns() -> None:
    machine = Machine(drift=1.0)
    measured(machine, 20e6, 30e6)
    assert machine.order[2:10] == ["mine", "reference", "reference", "mine"] * 2


def test_short_functions_are_timed_in_blocks_whose_first_iteration_does_not_count() -> None:
    machine = Machine(drift=1.0)
    found = measured(machine, 3e6, 9e6)
    rounds = len(found.logs)
    calls = {name: machine.order.count(name) - 1 for name in ("mine", "reference")}  # one to size the block
    assert len(found.mine) == calls["mine"] - rounds
    assert len(found.reference) == calls["reference"] - rounds
    assert len(found.mine) > 2 * len(found.reference)


def test_a_sample_that_another_process_interrupted_hardly_moves_the_ratio() -> None:
    machine = Machine(drift=1.0)
    plain = machine.timed

    def interrupted(work: Callable[[Any], None], prepared: Any) -> float:
        return plain(work, prepared) * (100 if len(machine.order) % 37 == 0 else 1)

    sides = machine.iteration("mine", 1e6), machine.iteration("reference", 2e6)
    found = in_turns(*sides, interrupted, EFFORT)
    assert times_ratio([found.logs]).ratio == pytest.approx(2, rel=0.05)


def test_the_interval_of_several_processes_is_that_between_them() -> None:
    logs = [[(math.log(10), math.log(10 * times))] * 50 for times in (2.0, 2.2, 1.8)]
    one, three = times_ratio(logs[:1]), times_ratio(logs)
    assert (one.ratio, one.low, one.high) == (pytest.approx(2), pytest.approx(2), pytest.approx(2))
    assert (one.mine_ns, one.reference_ns) == (pytest.approx(10), pytest.approx(20))
    assert three.ratio == pytest.approx((2.0 * 2.2 * 1.8) ** (1 / 3))
    assert three.low is not None
    assert three.high is not None
    assert three.low < 1.7
    assert three.high > 2.3


def test_a_single_round_has_no_interval() -> None:
    found = times_ratio([[(1.0, 1.0)]])
    assert (found.ratio, found.low, found.high) == (1.0, None, None)
