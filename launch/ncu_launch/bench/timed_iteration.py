"""One timed iteration of a model, per phase: preparation, timed work, clean-up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_launch.workload.workload import TORCH_DTYPES, Step, differentiable


@dataclass(frozen=True)
class Iteration:
    """One iteration in three parts. Only `work` is timed; it receives the result of `prepare`."""

    prepare: Callable[[], Any]
    work: Callable[[Any], None]
    finish: Callable[[], None]


Timer = Callable[[Callable[[Any], None], Any], float]
"""Calls a function with an argument, and returns its duration in ns."""


def iteration_of(step: Step) -> Iteration:
    """The iteration for the step's phase. Raises `NcuBenchError` for the backward pass alone with a CUDA graph."""
    workload = step.workload
    if step.generation is not None:
        return _generated(step, workload.phases[0])
    whole = {"forward": _forward, "backward": _backward, "step": _whole_step}[workload.phases[0]](step)
    if workload.mode != "cudagraph":
        return whole
    if "backward" in workload.phases:
        raise NcuBenchError(
            "The backward pass of a CUDA graph cannot be timed alone.", advice="Use --phase forward or step."
        )
    return Iteration(_nothing, _captured(partial(whole.work, None)), _nothing)


def _generated(step: Step, phase: str) -> Iteration:
    """Prefill or decode. The cache is restored before each iteration, outside the timing."""
    if step.workload.mode != "cudagraph":
        return Iteration(lambda: step.cache(phase), lambda cache: step.generate(phase, cache), _nothing)
    cache = step.cache(phase)
    replay = _captured(lambda: step.generate(phase, cache), before=lambda: step.cache(phase))
    return Iteration(lambda: step.cache(phase), replay, _nothing)


def _nothing() -> None:
    return None


def _model_call(step: Step) -> Callable[[], Any]:
    """A function that runs the forward pass. It enters autocast per call, so weights are converted each time."""
    import torch

    if not step.workload.autocast:
        return partial(step.model, *step.arguments, **step.keywords)
    entered = partial(torch.autocast, step.device, dtype=getattr(torch, TORCH_DTYPES[step.workload.dtype]))

    def call() -> Any:
        with entered():
            return step.model(*step.arguments, **step.keywords)

    return call


def _forward(step: Step) -> Iteration:
    call = _model_call(step)
    return Iteration(_nothing, lambda _: (call(), None)[1], _nothing)


def _backward(step: Step) -> Iteration:
    import torch

    call, leaves = _model_call(step), list(step.leaves())

    def prepare() -> tuple[list[Any], list[Any]]:
        return differentiable(call())

    def finish() -> None:
        for leaf in leaves:
            leaf.grad = None

    return Iteration(prepare, lambda made: torch.autograd.backward(*made), finish)


def _whole_step(step: Step) -> Iteration:
    import torch

    call, parameters = _model_call(step), list(step.watched.parameters())

    def work(_: Any) -> None:
        torch.autograd.backward(*differentiable(call()))
        step.optimizer.step()
        for parameter in parameters:
            parameter.grad = None

    return Iteration(_nothing, work, _nothing)


def _captured(work: Callable[[], None], before: Callable[[], Any] = _nothing) -> Callable[[Any], None]:
    """A function that replays a CUDA graph of `work`; capturing requires three runs on a side stream first.

    `before` resets the state before each run, and is not in the graph.
    """
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            before()
            work()
        before()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return lambda _: graph.replay()


def untimed(iteration: Iteration) -> None:
    """Run one iteration, all three parts, without timing it."""
    iteration.work(iteration.prepare())
    iteration.finish()


def timed_once(iteration: Iteration, timed: Timer) -> float:
    """Run one iteration; returns the duration of its `work` alone, in ns."""
    prepared = iteration.prepare()
    nanoseconds = timed(iteration.work, prepared)
    del prepared
    iteration.finish()
    return nanoseconds


def wait_for(device: str) -> None:
    """Wait until the device (cuda; nothing to do for cpu) has done its work."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
