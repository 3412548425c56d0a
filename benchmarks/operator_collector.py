"""The overhead of the embedded operator collector: a step of ResNet-18 with and without it, in turns.

    OMP_NUM_THREADS=1 python benchmarks/operator_collector.py [BATCH]

Prints both medians and the median ratio. Target: at most 1.3 at batch 8.
"""

from __future__ import annotations

import io
import statistics
import sys
import time
from contextlib import nullcontext

from ncu_launch.workload.module_attribution import Attribution
from ncu_launch.workload.operator_collector import collector_class
from ncu_launch.workload.workload import Step, prepared
from ncu_launch.workload_spec import Workload

ROUNDS = 15


def plain(step: Step) -> float:
    """Seconds of a step without the collector."""
    began = time.perf_counter()
    step.run(lambda phase: nullcontext())
    return time.perf_counter() - began


def collected(step: Step) -> float:
    """Seconds of a step with the collector, including the writing of its records."""
    attribution = Attribution()
    attribution.attach(step.watched, step.root)
    collector = collector_class()(attribution, step.device, step.workload.profiled_phases)
    began = time.perf_counter()
    with collector:
        step.run(attribution.during)
    collector.flush(io.StringIO())
    seconds = time.perf_counter() - began
    attribution.detach()
    return seconds


def main(batch_size: int) -> None:
    """Run both in turns, and print their times and the ratio."""
    step = prepared(Workload("resnet18", batch_size=batch_size, device="cpu", phases=("step",)))
    for run in (plain, collected):
        run(step)
    pairs = [(plain(step), collected(step)) for _ in range(ROUNDS)]
    without, under = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(second / first for first, second in pairs)
    print(f"batch {batch_size}: plain {without * 1e3:.0f} ms, collected {under * 1e3:.0f} ms, ratio {ratio:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
