"""How often what samples can see names the same bound as all counters, on reports that have them.

    python -m benchmarks.hidden_counters ../shared/reports/ncu_rep ../shared/reports/ncu_rep_full sample_reports/h100
    python -m benchmarks.hidden_counters --levers ../shared/histories

Of each kernel with known shares of DRAM and issue slots, everything but these and the tensor pipe is hidden: that is
what GPU metrics of a timeline say where counters are refused, if a kernel runs alone and long enough. Kernels count
once for each grid; shares of the SM's resources are means over all SMs, as samples are. Shapes of operators are in no
report of ncu, so what they add is not measured here.

With `--levers` the same is hidden in the reports before known changes, and `advise` of what is left is held against
what the changes brought: the figures of `benchmarks.advice`, beside those with all counters.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from ncu_launch.errors import NcuBenchError
from ncu_parsers.parse.parse import parse
from ncu_parsers.sources.sources import Source

from benchmarks.advice import Judged, figures, judged, levers_of_change, pairs_in
from ncu_tools.advice.advise import KernelAdvice, advice_on
from ncu_tools.advice.situation.known_facts import BOUND, bound_of
from ncu_tools.advice.situation.measured import MeasuredKernel, measured_kernels

SEEN = {"dram": "DRAM", "tensor": "tensor pipe", "issue": "issue slots"}
NEEDED = {"dram", "issue"}
"""Shares without which a kernel is left out; one that collected nothing of the tensor pipe may not use it."""
RECORDED = {
    "blocks", "threads", "warp_threads", "blocks_per_sm", "waves", "sm_count", "theoretical", "registers",
    "limit_registers", "limit_shared", "limit_blocks", "limit_warps",
}  # fmt: skip
"""Quantities that a trace has of each launch, or that follow from them."""
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


def only_sampled(kernel: MeasuredKernel) -> MeasuredKernel:
    """The kernel as samples and a trace show it: three shares, its launch, and what limits its blocks."""
    at_work = min(1.0, kernel.get("blocks_per_sm", 1.0))
    busy = {name: share * (1.0 if name == "dram" else at_work) for name, share in kernel.busy.items() if name in SEEN}
    numbers = {name: value for name, value in kernel.numbers.items() if name in RECORDED}
    return replace(kernel, busy=busy, numbers=numbers, stalls={})


def with_advice(found: Judged, advice: KernelAdvice) -> Judged:
    """The same change, judged by other advice on its kernel."""
    wanted = levers_of_change()[found.pair["change_class"]]
    place = next((place for place, one in enumerate(advice.levers) if one.lever in wanted), None)
    return Judged(found.pair, advice, found.real, None if place is None else advice.levers[place], place)


def print_levers(folder: Path) -> None:
    """Print the figures of levers with everything but samples hidden, and with all counters, on the same changes."""
    pairs = [
        (found, with_advice(found, advice_on(only_sampled(found.kernel.kernel))))
        for pair in pairs_in(folder)
        if (found := judged(pair, folder)) is not None and found.kernel.kernel.busy.keys() >= NEEDED
    ]
    every, sampled = (figures([one[side] for one in pairs]) for side in (0, 1))
    of_sampled = {title: value for title, value, _ in sampled}
    print("| figure | by samples | all counters |\n|---|--:|--:|")
    for title, value, _ in every:
        if title in of_sampled:
            print(f"| {title} | {of_sampled[title]} | {value} |")
    same = sum(
        bool(one.kernel.levers and other.kernel.levers) and one.kernel.levers[0].lever == other.kernel.levers[0].lever
        for one, other in pairs
    )
    print(f"\nthe first lever is the same: {same} of {len(pairs)}")


def main() -> None:
    """Print how many kernels of each class samples put into which, or how right levers are by samples."""
    if sys.argv[1:2] == ["--levers"]:
        print_levers(Path(sys.argv[2]))
        return
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
