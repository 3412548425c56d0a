"""A GPU left out by benchmarks: its times are in no fit that judges it, nor in the corrections that GPUs share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.fit_expected import machines_left_out
from ncu_tools.ceilings.machine_files import find_machine
from ncu_tools.model.expected_time.gemm_time import gemm_work
from ncu_tools.model.expected_time.hardware import Hardware, hardware_of, types
from ncu_tools.model.expected_time.kinds import KINDS
from ncu_tools.model.expected_time.learning import MeasuredTimes, entries, fit_corrections
from ncu_tools.model.expected_time.learnt_times import FAMILIES, KIN, Learnt
from ncu_tools.model.expected_time.physics import TimedOperators

START = KINDS["gemm"].physics.start
GPUS = {"h100-sxm": 1.1, "h200": 1.2, "l40s": 1.5}
"""Measured time of a small product there, in times of the physics."""


def products(machine: str, slower: float) -> MeasuredTimes:
    """Some products that take longer than the physics says, the more rows the longer."""
    hardware = hardware_of(find_machine(machine), "bf16")
    assert isinstance(hardware, Hardware)
    m, n, k = 2.0 ** np.random.default_rng(0).integers(7, 13, (3, 60))
    work = gemm_work(m, n, k, types()["bf16"])
    time_us = KINDS["gemm"].physics.best(hardware, work, START)[0] * slower * (1 + m / 8192)
    return MeasuredTimes("gemm", machine, "bf16", TimedOperators(hardware, work, time_us), np.arange(60))


def expected_left_out(everything: Sequence[MeasuredTimes]) -> dict[tuple[str, str], list[float]]:
    """The expected times by basis and machine; the numbers of the physics are the same for all GPUs."""
    fits = fit_corrections(everything, [START] * len(everything))
    learnt = Learnt(tuple(entries(everything, fits, [one.measured.time_us for one in everything])))
    return {(basis, one.machine): us.tolist() for basis, one, us in machines_left_out(learnt, everything)}


@pytest.fixture(scope="module")
def judged() -> dict[tuple[str, str], list[float]]:
    return expected_left_out([products(machine, slower) for machine, slower in GPUS.items()])


def test_each_gpu_is_left_out_alone_and_with_its_family(judged: dict[tuple[str, str], list[float]]) -> None:
    assert set(judged) == {
        (KIN, "h100-sxm"), (KIN, "h200"), (FAMILIES, "h100-sxm"), (FAMILIES, "h200"), (FAMILIES, "l40s"),
    }  # fmt: skip


@pytest.mark.parametrize("slow", GPUS)
def test_its_own_times_change_nothing_that_it_is_judged_by(
    slow: str, judged: dict[tuple[str, str], list[float]]
) -> None:
    after = expected_left_out([products(one, slower * (3 if one == slow else 1)) for one, slower in GPUS.items()])
    unchanged = {key for key, us in after.items() if us == judged[key]}
    assert {key for key in after if key[1] == slow} <= unchanged < set(after)
