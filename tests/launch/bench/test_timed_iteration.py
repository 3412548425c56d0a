"""The timed part of an iteration: the requested phase, with everything it needs outside the timing."""

from __future__ import annotations

from typing import Any

import pytest
from ncu_launch.bench.timed_iteration import iteration_of
from ncu_launch.errors import NcuBenchError
from ncu_launch.workload.workload import Step
from ncu_launch.workload_spec import Workload

from tests.support.installed import WITHOUT_TORCH

torch = pytest.importorskip("torch", reason=WITHOUT_TORCH)

pytestmark = pytest.mark.slow


def step_of(phase: str, *, mode: str = "eager", **more: Any) -> Step:
    """A linear layer on one row of ones, with weights of 2 and stochastic gradient descent."""
    layer = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.constant_(layer.weight, 2.0)
    workload = Workload("layer", phases=(phase,), mode=mode, **more)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    return Step(workload, layer, layer, (torch.ones(1, 3),), {}, optimizer, "cpu", "layer")


def gradient(step: Step) -> Any:
    """The gradient of the weights; None if there is none."""
    return step.watched.weight.grad


def test_a_forward_pass_computes_no_gradient() -> None:
    step = step_of("forward")
    iteration = iteration_of(step)
    iteration.work(iteration.prepare())
    iteration.finish()
    assert gradient(step) is None
    assert step.watched.weight.tolist() == [[2.0, 2.0, 2.0]]


def test_a_backward_pass_runs_after_an_untimed_forward_pass_and_drops_gradients() -> None:
    step = step_of("backward")
    iteration = iteration_of(step)
    prepared = iteration.prepare()
    assert gradient(step) is None
    iteration.work(prepared)
    assert gradient(step).tolist() == [[1.0, 1.0, 1.0]]
    iteration.finish()
    assert gradient(step) is None


def test_a_whole_step_changes_the_weights_by_its_gradients_and_keeps_none() -> None:
    step = step_of("step")
    iteration = iteration_of(step)
    iteration.work(iteration.prepare())
    assert step.watched.weight.tolist() == [[1.5, 1.5, 1.5]]
    assert gradient(step) is None


def test_with_autocast_the_operators_run_in_the_smaller_type_and_the_weights_stay() -> None:
    step = step_of("forward", dtype="bf16", autocast=True)
    types = []
    step.watched.register_forward_hook(lambda module, arguments, output: types.append(output.dtype))
    iteration_of(step).work(None)
    assert types == [torch.bfloat16]
    assert step.watched.weight.dtype == torch.float32


def test_the_backward_pass_of_a_cuda_graph_is_refused() -> None:
    with pytest.raises(NcuBenchError, match="cannot be timed alone"):
        iteration_of(step_of("backward", mode="cudagraph"))


@pytest.mark.parametrize("phase", ["backward", "step"])
def test_a_model_without_a_gradient_is_refused(phase: str) -> None:
    step = step_of(phase)
    for parameter in step.watched.parameters():
        parameter.requires_grad = False
    iteration = iteration_of(step)
    with pytest.raises(NcuBenchError, match="no output that can be differentiated"):
        iteration.work(iteration.prepare())
