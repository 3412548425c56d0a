"""Bytes allocated by an iteration and between iterations, and its self times, all queried after the timing."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from typing import Any

from ncu_launch.bench.timed_iteration import Iteration, untimed, wait_for
from ncu_launch.workload.module_attribution import tensors_in
from ncu_launch.workload.quantised_weights import stored_in
from ncu_launch.workload.workload import Step

MEMORY_EVENT = "[memory]"
BY_ALLOCATOR, BY_PROFILER = "CUDA allocator", "tensors, by PyTorch's profiler"

Row = dict[str, Any]


def allocated_bytes(step: Step) -> int:
    """Bytes allocated between iterations: on a CPU parameters, buffers, inputs, optimizer state and KV caches."""
    import torch

    if step.device == "cuda":
        return int(torch.cuda.memory_allocated())
    inputs = tensors_in((step.arguments, step.keywords))
    state = tensors_in([] if step.optimizer is None else list(step.optimizer.state.values()))
    cached = [] if step.generation is None else step.generation.tensors()
    tensors = [*step.watched.parameters(), *step.watched.buffers(), *inputs, *state, *cached]
    parts = (part for tensor in tensors for part in stored_in(tensor))
    storages = {part.untyped_storage()._cdata: part.untyped_storage().nbytes() for part in parts}
    return sum(map(int, storages.values()))


def peak_memory(iteration: Iteration, allocated: int, device: str) -> Row:
    """Peak bytes allocated during an iteration, allocations between iterations included; None if unknown."""
    import torch

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        untimed(iteration)
        torch.cuda.synchronize()
        return {"memory_peak_bytes": int(torch.cuda.max_memory_allocated()), "memory_basis": BY_ALLOCATOR}
    with suppress(Exception):  # the profiler's events are not a public interface
        with _profiler(profile_memory=True) as profiler:
            untimed(iteration)
        events = [event for event in profiler.kineto_results.events() if event.name() == MEMORY_EVENT]
        changes = [event.nbytes() for event in sorted(events, key=lambda event: int(event.start_ns()))]
        if changes:
            return {"memory_peak_bytes": allocated + peak_of(changes), "memory_basis": BY_PROFILER}
    return {"memory_peak_bytes": None, "memory_basis": None}


def peak_of(changes: list[int]) -> int:
    """The largest running sum of allocations (positive) and releases (negative), at least 0, in bytes."""
    highest = now = 0
    for change in changes:
        now += change
        highest = max(highest, now)
    return highest


def self_times(iteration: Iteration, device: str) -> Row:
    """Self time on CPU and GPU in ns, summed over operators, by PyTorch's profiler, which slows the CPU down.

    None if it recorded no operator, as for work in numpy, or if another profiler uses the device.
    """
    prepared = iteration.prepare()
    wait_for(device)
    try:
        with _profiler() as profiler:
            iteration.work(prepared)
            wait_for(device)
        totals = profiler.key_averages()
    except RuntimeError:  # another profiler uses the device
        return {"self_cpu_time_ns": None, "self_gpu_time_ns": None}
    finally:
        iteration.finish()
    on_gpu = [event.self_device_time_total for event in totals if _is_of_gpu(event)]
    return {
        "self_cpu_time_ns": 1e3 * sum(event.self_cpu_time_total for event in totals) if totals else None,
        "self_gpu_time_ns": 1e3 * sum(on_gpu) if on_gpu else None,
    }


def _is_of_gpu(event: Any) -> bool:
    return event.device_type.name == "CUDA" and not getattr(event, "is_user_annotation", False)


def _profiler(**options: Any) -> AbstractContextManager[Any]:
    """The class behind torch.profiler.profile(), which would import PyTorch's compiler first: over 1 s per point."""
    import torch

    device = "cuda" if torch.cuda.is_available() else None
    profiler: AbstractContextManager[Any] = torch.autograd.profiler.profile(
        use_device=device, use_kineto=True, **options
    )
    return profiler
