"""Measure a machine in a child process: its result, or its error."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ncu_launch.bench import machine_measurement, machine_process
from ncu_launch.bench.machine_process import SIDES, Pace
from ncu_launch.errors import NcuBenchError


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A fake child process: the file it writes and how it ends; `commands` records the commands run."""
    wanted = SimpleNamespace(result=None, exit_code=0, interrupted=False, timed_out=False, commands=[])

    def run(command: list[str], log: Path, **options: Any) -> SimpleNamespace:
        wanted.commands.append(command)
        log.write_text("", "utf-8")
        if wanted.result is not None:
            Path(command[-1]).write_text(json.dumps(wanted.result), "utf-8")
        return wanted

    monkeypatch.setattr(machine_measurement, "run", run)
    return wanted


def test_returns_the_result_of_the_process_and_leaves_no_file(process: SimpleNamespace) -> None:
    process.result = {"device": "cpu"}
    assert machine_measurement.measured(0.1, "cpu") == {"device": "cpu"}
    assert process.commands[0][-3:-1] == ["0.1", "cpu"]
    assert not Path(process.commands[0][-1]).exists()


@pytest.mark.parametrize(("result", "exit_code"), [(None, 0), ({"device": "cpu"}, 1)], ids=["no result", "failed"])
def test_the_error_for_a_process_without_a_message_gives_its_exit_code(
    process: SimpleNamespace, result: Any, exit_code: int
) -> None:
    process.result, process.exit_code = result, exit_code
    with pytest.raises(NcuBenchError, match=f"It was exit code {exit_code}."):
        machine_measurement.measured(0.1, "cpu")


def test_ctrl_c_in_the_process_raises_keyboard_interrupt(process: SimpleNamespace) -> None:
    process.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        machine_measurement.measured(0.1, "cpu")


OVERHEAD_S = 1e-5


class Gpu:
    """A fake GPU with its own clock: a product takes its operations over the rate, starting any work 10 us."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rate: float = 1.0) -> None:
        self.now, self.rate, self.tf32_of_convolutions = 0.0, rate, True
        clock = SimpleNamespace(perf_counter=lambda: self.now, monotonic=lambda: self.now)
        monkeypatch.setattr(machine_process, "time", clock)
        monkeypatch.setattr(machine_process, "_synchronizer", lambda device: lambda: self.takes(OVERHEAD_S))
        monkeypatch.setattr(machine_process, "_matrix", lambda name, side, device: side)
        monkeypatch.setattr(machine_process, "_operators", self.operators)

    def takes(self, seconds: float) -> None:
        self.now += seconds

    def operators(self, name: str, side: int, other: int) -> dict[str, Any]:
        import torch

        self.tf32_of_convolutions = torch.backends.cudnn.allow_tf32
        return {f"operator {n}": lambda n=n: self.takes(2 * side**3 / self.rate * (1 + n / 100)) for n in range(6)}


@pytest.mark.parametrize("seconds", [0.15, 0.5])
@pytest.mark.parametrize("tera", [50, 60, 400, 700])
def test_products_on_a_gpu_take_the_time_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, tera: int, seconds: float
) -> None:
    gpu = Gpu(monkeypatch, tera * 1e12)
    samples = list(machine_process._products_of("fp16", "cuda", Pace(seconds)))
    assert gpu.now == pytest.approx(seconds * len(samples), rel=0.25)
    assert [sample.size for sample in samples] == list(SIDES[: len(samples)])
    assert samples[-1].size >= 4096
    assert max(sample.burst for sample in samples) == pytest.approx(tera * 1e12, rel=0.01)


def test_a_convolution_that_stands_for_a_product_in_fp32_is_not_computed_in_tf32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = Gpu(monkeypatch, 60e12)
    list(machine_process._products_of("fp32", "cuda", Pace(0.1)))
    assert not gpu.tf32_of_convolutions
    list(machine_process._products_of("tf32", "cuda", Pace(0.1)))
    assert gpu.tf32_of_convolutions


def test_a_work_that_is_hardly_more_than_its_start_is_not_measured_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch)
    assert machine_process._is_start_alone(lambda: gpu.takes(1e-5))
    assert not machine_process._is_start_alone(lambda: gpu.takes(1e-4))
    assert gpu.now < 0.02
