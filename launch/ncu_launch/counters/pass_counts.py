"""How often ncu runs each kernel: passes per chip and group of counters.

NVIDIA's library schedules hardware counters into passes; `tables/passes.toml` lists its result for every combination
of groups. SASS counters take one separate pass, whichever are requested. ncu runs a kernel once for one pass, and
otherwise once more than there are passes (seen in every real report examined; not documented).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ncu_launch.counters.chips import Chip
from ncu_launch.counters.metric_groups import MetricSelection
from ncu_launch.counters.metrics import table


@dataclass(frozen=True)
class Passes:
    """Passes of the hardware counters (None if unknown) and of the SASS counters (0 or 1)."""

    of_hardware: int | None
    of_sass: int

    @property
    def in_library(self) -> int | None:
        """Number of counter sets that cannot be collected together."""
        return None if self.of_hardware is None else self.of_hardware + self.of_sass

    @property
    def in_ncu(self) -> int | None:
        """How often ncu runs each kernel if everything is collected in one run."""
        return _replays(self.in_library)

    @property
    def hardware_in_ncu(self) -> int | None:
        """How often ncu runs each kernel in a run with hardware counters only."""
        return _replays(self.of_hardware)

    @property
    def sass_in_ncu(self) -> int:
        """How often ncu runs each kernel in a run with SASS counters only."""
        return self.of_sass


def _replays(passes: int | None) -> int | None:
    return passes if passes is None or passes <= 1 else passes + 1


def passes_of(selection: MetricSelection, chip: Chip | None) -> Passes:
    """The passes of a selection on a chip.

    `of_hardware` is None if the chip is unknown or not in the table, or if counters were requested by name.
    """
    sass = int(any(counter.is_sass for counter in selection.counters))
    counted = table("passes")["family"]
    if chip is None or chip.family not in counted or any(not _is_free(name) for name in selection.others):
        return Passes(None, sass)
    return Passes(_of_hardware(chip.family, selection.features), sass)


def _is_free(metric: str) -> bool:
    return metric.startswith(("launch__", "device__"))


def _of_hardware(family: str, features: frozenset[str]) -> int:
    """The largest pass count listed for any subset of `features`; 1 if none is listed."""
    return max((count for count, needed in _listed(family) if needed <= features), default=1)


@cache
def _listed(family: str) -> list[tuple[int, frozenset[str]]]:
    listed = table("passes")["family"][family]
    return [(int(count), frozenset(entry.split())) for count, entries in listed.items() for entry in entries]
