"""What other programs take of the CPU while something is timed, and whether its clock fell."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
from ncu_launch.workload import cpu_load
from ncu_launch.workload.cpu_load import CpuLoad, clock_hz, cpu_count, on_clock


class Machine:
    """A machine of two CPUs whose counts are set: seconds on the clock, busy and idle ones of each CPU, our own."""

    def __init__(self) -> None:
        self.now, self.busy, self.own = 100.0, [0.0, 0.0], 0.0

    def cpu_times(self, *, percpu: bool) -> list[Any]:
        assert percpu
        fields = ("user", "nice", "idle", "iowait")
        return [_Times(**dict(zip(fields, (busy, 0.0, self.now - busy, 0.0), strict=True))) for busy in self.busy]

    def after(self, seconds: float, busy: tuple[float, float], own: float) -> None:
        self.now += seconds
        self.busy = [before + more for before, more in zip(self.busy, busy, strict=True)]
        self.own += own


class _Times(SimpleNamespace):
    def __iter__(self) -> Any:
        return iter(vars(self).values())


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.delenv(cpu_load.SETTING, raising=False)
    made = Machine()
    monkeypatch.setattr("psutil.cpu_times", made.cpu_times)
    monkeypatch.setattr("time.monotonic", lambda: made.now)
    monkeypatch.setattr(cpu_load, "_own_seconds", lambda: made.own)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1}, raising=False)
    return made


def test_others_take_what_the_cpus_were_busy_with_beside_this_process(machine: Machine) -> None:
    load = CpuLoad()
    machine.after(2.0, (2.0, 1.0), own=2.0)
    assert load.others() == pytest.approx(1.0 / 4.0)
    machine.after(1.0, (0.5, 0.5), own=1.0)
    assert load.others() == 0.0  # since it was last asked


def test_only_cpus_on_which_this_process_may_run_count(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {1}, raising=False)
    load = CpuLoad()
    machine.after(1.0, (1.0, 0.25), own=0.0)
    assert load.others() == pytest.approx(0.25)
    assert cpu_count() == 1


def test_a_share_is_never_negative_nor_above_one(machine: Machine) -> None:
    load = CpuLoad()
    machine.after(1.0, (0.5, 0.5), own=1.2)  # both are counted in steps of 10 ms
    assert load.others() == 0.0
    machine.after(1.0, (1.1, 1.1), own=0.0)
    assert load.others() == 1.0


def test_the_share_of_a_time_too_short_to_count_is_unknown_and_goes_on_counting(machine: Machine) -> None:
    load = CpuLoad()
    machine.after(0.04, (0.04, 0.0), own=0.0)
    assert load.others() is None
    machine.after(0.06, (0.06, 0.0), own=0.0)
    assert load.others() == pytest.approx(0.5)


def test_nothing_is_known_where_the_system_does_not_count(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: bool) -> None:
        raise PermissionError

    monkeypatch.setattr("psutil.cpu_times", refused)
    assert CpuLoad().others() is None


def test_nothing_is_known_where_the_load_is_to_be_ignored(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    load = CpuLoad()
    machine.after(1.0, (1.0, 1.0), own=0.0)
    monkeypatch.setenv(cpu_load.SETTING, "1")
    assert load.others() is None


def test_children_that_still_run_are_not_others() -> None:
    before = cpu_load._own_seconds()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        time.sleep(0.5)
        while_it_runs = cpu_load._own_seconds()
        child.kill()
    assert while_it_runs - before > 0.01
    assert cpu_load._own_seconds() >= while_it_runs - 0.02  # now as a child that ended
    assert sum(os.times()[:4]) <= cpu_load._own_seconds()


def test_a_fallen_clock_is_noted_and_a_risen_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clock_hz() is None
    monkeypatch.delenv(cpu_load.SETTING)
    assert on_clock(3.5e9, 2.8e9) == ["the CPU's clock fell from 3.50 to 2.80 GHz during the run"]
    assert on_clock(3.5e9, 3.3e9) == on_clock(2.0e9, 3.0e9) == on_clock(None, 1e9) == on_clock(1e9, None) == []
    clock = clock_hz()
    assert clock is None or 1e8 < clock < 1e10
