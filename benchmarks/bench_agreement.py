"""Agreement of `ncu-bench bench` with torch.utils.benchmark: ratio of the latencies that both measure for a model.

    OMP_NUM_THREADS=1 python benchmarks/bench_agreement.py [PAIRS]

Both time the same model in this process, in short alternating turns, so that other load on the machine slows both. Ours
runs the code of a point's process (`ncu_launch.bench.point_process.sampled`), the other `Timer.timeit`. Prints the
median ratio of the pairs' means with its 95 % interval (from order statistics). Target: within 3 % of 1.

PyTorch 2.13.0, one thread of an otherwise idle 2-core Intel Xeon, 200 pairs: squeezenet1_1 at batch 1 and 64 x 64 1.003
[1.000, 1.007], resnet18 at batch 4 and 64 x 64 1.002 [1.000, 1.005], mobilenet_v2 at batch 1 1.012 [1.008, 1.014]. Not
measured on a GPU.
"""

from __future__ import annotations

import statistics
import sys

import torch
from ncu_launch.bench.latency_statistics import Effort
from ncu_launch.bench.point_process import sampled
from ncu_launch.bench.sweep import Sweep, points
from ncu_launch.bench.timed_iteration import iteration_of
from ncu_launch.workload.workload import prepared
from torch.utils.benchmark import Timer

TURN_S = 0.3
CASES = (("squeezenet1_1", 1, 64), ("resnet18", 4, 64), ("mobilenet_v2", 1, 224))


def main(pairs: int) -> None:
    """Measure every case in turns and print its ratio."""
    effort = Effort(precision=1e-9, max_s=TURN_S)
    for target, batch, size in CASES:
        (point,) = points(Sweep((target,), (batch,), (size,)))
        step = prepared(point.workload)
        names = {"model": step.model, "arguments": step.arguments}
        timer = Timer("model(*arguments)", globals=names, num_threads=torch.get_num_threads())
        found = []
        with torch.no_grad():
            timer.timeit(10)
            for _ in range(pairs):
                ours = sampled(iteration_of(step), effort, step.device)
                found.append((statistics.fmean(ours), timer.timeit(len(ours)).mean * 1e9))
        ratios = sorted(ours / theirs for ours, theirs in found)
        away = round(0.98 * pairs**0.5)  # ranks of the 95 % interval of a median: binomial, normal approximation
        low, high = ratios[max(0, pairs // 2 - away)], ratios[min(pairs - 1, pairs // 2 + away)]
        theirs = statistics.median(pair[1] for pair in found)
        ratio = statistics.median(ratios)
        print(f"{point.name}: {theirs / 1e6:.3f} ms, ratio {ratio:.3f} [{low:.3f}, {high:.3f}], {pairs} pairs")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
