"""Which metrics to collect next where a report leaves levers undecided: those that decide most levers per pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ncu_launch.counters.chips import chip_of
from ncu_launch.counters.metric_groups import select
from ncu_launch.counters.pass_counts import passes_of

from ncu_tools.advice.advise import Advice, KernelAdvice
from ncu_tools.advice.situation.kernel_situation import Situation
from ncu_tools.numbers.number_format import counted

WORTH_COLLECTING = 0.05
"""Least share of the run's time of a kernel for which more counters are proposed."""


def _no_bound(one: Situation) -> bool:
    return not one.busy("sm") >= 0 and not one.busy("issue") >= 0


DECIDES: dict[str, tuple[Callable[[Situation], bool], Sequence[str]]] = {
    "speed-of-light": (_no_bound, ("more-in-flight", "occupancy", "fewer-instructions", "fuse", "lower-precision")),
    "coalescing": (lambda one: math.isnan(one.excess[0]), ("coalesce", "widen-accesses", "constant-memory")),
    "stalls": (lambda one: not one.has_stalls, ("more-in-flight", "pad-shared-memory", "tile-registers")),
    "occupancy": (lambda one: math.isnan(one.get("theoretical")), ("occupancy", "block-size", "grid-size")),
    "hit-rates": (lambda one: math.isnan(one.get("l1_hit")), ("tile-shared-memory",)),
    "spills": (lambda one: math.isnan(one.local_share), ("local-memory",)),
}
"""Group of `ncu-bench machines --metrics` -> whether a kernel lacks it, and the levers that it decides."""


@dataclass(frozen=True)
class NextMetrics:
    """A group of metrics that a kernel lacks, the levers that it decides, and the passes that ncu needs for it.

    `passes` is None for a GPU whose passes are unknown.
    """

    group: str
    levers: Sequence[str]
    passes: int | None

    @property
    def text(self) -> str:
        """The group with its passes and levers."""
        runs = "" if self.passes is None else f", {counted(self.passes, 'run', 'runs')} of each kernel"
        return f"{self.group} ({', '.join(self.levers)}{runs})"


def next_metrics(advice: Advice) -> list[NextMetrics]:
    """The groups that the longest kernel without instructions lacks, those that decide most levers per pass first."""
    worth = (one for one in advice.kernels if one.kernel.total_ns >= WORTH_COLLECTING * advice.total_ns)
    kernel = next((one for one in worth if one.situation is not None and one.situation.code is None), None)
    if kernel is None or kernel.situation is None:
        return []
    found = [_group(name, levers, kernel) for name, (lacks, levers) in DECIDES.items() if lacks(kernel.situation)]
    return sorted(found, key=lambda one: -len(one.levers) / (one.passes or len(DECIDES)))


def _group(name: str, levers: Sequence[str], kernel: KernelAdvice) -> NextMetrics:
    chip = chip_of(kernel.kernel.capability or None, kernel.kernel.device)
    return NextMetrics(name, levers, passes_of(select([name], chip), chip).in_ncu)


def in_a_sentence(found: Sequence[NextMetrics]) -> list[str]:
    """A note with the command that collects the first group; [] if none is missing."""
    if not found:
        return []
    others = f"; then {', '.join(one.text for one in found[1:])}" if len(found) > 1 else ""
    return [
        f"to decide more levers, collect {found[0].text}: ncu-bench profile --metrics {found[0].group} -- "
        f"PROGRAM{others}; ncu --set full --import-source yes decides all"
    ]
