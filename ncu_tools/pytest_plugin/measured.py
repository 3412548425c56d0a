"""Measure a call in this process: by CUDA events on a GPU, by the clock on a CPU; count its operators by formulas."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ncu_launch.bench.gpu.device_locks import turn, visible_gpus
from ncu_launch.bench.latency_statistics import BLOCKS, Effort, half_width
from ncu_launch.bench.point_process import sampled
from ncu_launch.bench.timed_iteration import Iteration, wait_for

from ncu_tools.numbers.number_format import FORMATS, duration, percent
from ncu_tools.pytest_plugin.baselines import Baseline

BY_NCU, BY_EVENTS, BY_CLOCK = HOW = ("ncu", "CUDA events", "the CPU's clock")
EFFORT = Effort(precision=0.005, least=20, least_s=0.2, max_s=1.0, warmup=3, warm_s=0.05)
"""At most a second per measurement, which is also pytest-benchmark's default."""
OPERATORS, FLOPS, BYTES = "operators", "flops", "bytes"
KINDS = {FLOPS: "flop", BYTES: "byte", "l1_bytes": "byte", "shared_bytes": "byte"}

Call = Callable[[], object]


@dataclass(frozen=True)
class KernelProfile:
    """A measured call: `samples_ns` are its times in ns, `counts` its exact counts, both per call.

    `how` is one of `HOW`. `device` is the name that the driver or the system gives it. `unknown` says why counts are
    missing. `folder` is the run folder under ncu, for `ncu_tools.load` and every command; None without ncu.
    """

    how: str
    device: str
    samples_ns: tuple[float, ...]
    counts: Mapping[str, float] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    threads: int | None = None
    folder: Path | None = None

    @property
    def block_medians_ns(self) -> tuple[float, ...]:
        """The medians of up to `BLOCKS` blocks of calls, in order: another process that takes the processor or the GPU
        for a moment hardly moves them."""
        count = min(BLOCKS, len(self.samples_ns))
        ends = [len(self.samples_ns) * block // count for block in range(count + 1)]
        return tuple(statistics.median(self.samples_ns[start:end]) for start, end in pairwise(ends))

    @property
    def time_ns(self) -> float:
        """The time of a call in ns: the mean of the block medians."""
        return statistics.fmean(self.block_medians_ns)

    @property
    def noise(self) -> float | None:
        """Half the 95 % interval of the time, as a fraction of the time; None for a single sample."""
        reach = half_width(self.block_medians_ns)
        return None if reach is None else reach / self.time_ns

    @property
    def baseline(self) -> Baseline:
        """The baseline to keep of this measurement, with times rounded to 0.1 ns."""
        blocks = tuple(round(one, 1) for one in self.block_medians_ns)
        return Baseline(self.how, round(self.time_ns, 1), blocks, dict(self.counts), self.threads)

    def __str__(self) -> str:
        noise = f" ± {percent(self.noise)}" if self.noise else ""
        counts = "".join(f", {in_words(name, value)}" for name, value in self.counts.items())
        return f"{duration(self.time_ns)}{noise} by {self.how} on {self.device}{counts}"


def in_words(name: str, value: float) -> str:
    """A count after its name: "flops 2.147 GFLOP"."""
    return f"{name} {FORMATS[KINDS[name]](value)}" if name in KINDS else f"{name} {value:,.15g}"


def measured_here(call: Call, device: str) -> KernelProfile:
    """Time the call repeatedly for about a second, then call it once more to count its operators.

    `device` is cuda or cpu. Tests of other processes that measure on the device wait meanwhile.
    """
    import torch
    from ncu_launch.workload.workload import cpu_name

    on_gpu = device == "cuda"
    with turn(_own_gpu() if on_gpu else [], lambda: False):
        samples = tuple(sampled(Iteration(_nothing, lambda _: _done(call), _nothing), EFFORT, device))
        counts, unknown = _operators(call, device)
    name = str(torch.cuda.get_device_name()) if on_gpu else cpu_name()
    threads = None if on_gpu else int(torch.get_num_threads())
    return KernelProfile(BY_EVENTS if on_gpu else BY_CLOCK, name, samples, counts, unknown, threads)


def _own_gpu() -> list[str]:
    import torch

    visible, here = visible_gpus(), int(torch.cuda.current_device())
    return visible[here : here + 1]


def _nothing() -> None:
    return None


def _done(call: Call) -> None:
    call()


class _Place:
    """The phase and module in which the operator collector sees the call: none."""

    phase = None
    module = None
    iteration = 0


def _operators(call: Call, device: str) -> tuple[dict[str, float], dict[str, str]]:
    """PyTorch operators of a call with their FLOPs and least bytes by formulas, and why counts are missing.

    A call that runs kernels without PyTorch has no counts.
    """
    from ncu_launch.workload.operator_collector import collector_class

    place: Any = _Place()
    collector = collector_class()(place, device, (None,))
    with collector:
        call()
    wait_for(device)
    records = collector.records
    if not records:
        why = "the call ran no operator of PyTorch, and only ncu counts other kernels"
        return {}, dict.fromkeys((OPERATORS, FLOPS, BYTES), why)
    counts = {OPERATORS: float(len(records)), BYTES: float(sum(one["read"] + one["written"] for one in records))}
    without = sorted({one["operator"] for one in records if one["flops"] is None} | set(collector.unknown))
    if without:
        return counts, {FLOPS: f"there is no formula for {', '.join(without)}"}
    return {**counts, FLOPS: float(sum(one["flops"] for one in records))}, {}
