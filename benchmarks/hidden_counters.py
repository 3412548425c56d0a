"""How often what samples can see names the same bound as all counters, on reports that have them.

    python -m benchmarks.hidden_counters ../shared/reports/ncu_rep ../shared/reports/ncu_rep_full sample_reports/h100

Of each kernel with known shares of DRAM and issue slots, everything but these and the tensor pipe is hidden: that is
what GPU metrics of a timeline say where counters are refused, if a kernel runs alone and long enough. Kernels count
once for each grid; shares of the SM's resources are means over all SMs, as samples are. Shapes of operators are in no
report of ncu, so what they add is not measured here.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from ncu_launch.errors import NcuBenchError
from ncu_parsers.parse.parse import parse
from ncu_parsers.sources.sources import Source

from ncu_tools.advice.situation.known_facts import BOUND, bound_of
from ncu_tools.advice.situation.measured import MeasuredKernel, measured_kernels

SEEN = {"dram": "DRAM", "tensor": "tensor pipe", "issue": "issue slots"}
NEEDED = {"dram", "issue"}
"""Shares without which a kernel is left out; one that collected nothing of the tensor pipe may not use it."""
MEMORY = ("l2", "l1", "xbar", "lsu")
NOTHING = "nothing (below 60 %)"
CLASSES = ("DRAM", "computing", "caches and shared memory", NOTHING)


def kernels_in(paths: list[str]) -> Iterator[MeasuredKernel]:
    """The kernels of all reports below some paths whose three shares are known."""
    for path in paths:
        for file in sorted(one for one in Path(path).rglob("*") if one.is_file()):
            try:
                table = parse([Source(str(file))], join=False).table
            except NcuBenchError:
                continue
            if table is not None and len(table):
                yield from (one for one in measured_kernels(table) if one.busy.keys() >= NEEDED)


def by_counters(kernel: MeasuredKernel) -> str:
    """The class of what bounds a kernel by everything that was counted."""
    name, share = kernel.bound
    if share < BOUND:
        return NOTHING
    return "DRAM" if name == "dram" else "caches and shared memory" if name in MEMORY else "computing"


def by_samples(kernel: MeasuredKernel) -> str:
    """The class of what bounds it by the three shares that samples have."""
    at_work = min(1.0, kernel.get("blocks_per_sm", 1.0))
    shares = {
        name: kernel.busy[resource] * (1.0 if resource == "dram" else at_work)
        for resource, name in SEEN.items()
        if resource in kernel.busy
    }
    found = bound_of(shares)
    return "DRAM" if found == "DRAM" else "computing" if found else NOTHING


def main() -> None:
    """Print how many kernels of each class samples put into which."""
    kernels = list(kernels_in(sys.argv[1:]))
    pairs = Counter((by_counters(one), by_samples(one)) for one in kernels)
    said = [name for name in CLASSES if name != "caches and shared memory"]
    titles = " | ".join(f"{one} by samples" for one in said)
    print(f"{len(kernels)} kernels\n\n| bound by all counters | kernels | {titles} |")
    print("|---|---|" + "---|" * len(said))
    for name in CLASSES:
        row = [pairs[name, other] for other in said]
        print(f"| {name} | {sum(row)} | {' | '.join(map(str, row))} |")
    agreed = sum(count for (one, other), count in pairs.items() if one == other)
    named = sum(count for (_, other), count in pairs.items() if other != NOTHING)
    right = sum(count for (one, other), count in pairs.items() if one == other != NOTHING)
    print(f"\nagreed: {agreed} of {len(kernels)}; of those for which samples name a bound: {right} of {named}")


if __name__ == "__main__":
    main()
