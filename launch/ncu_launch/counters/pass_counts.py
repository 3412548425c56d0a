"""How often ncu will run each kernel: passes per chip and group of counters.

Hardware counters are scheduled into passes by NVIDIA's library; the numbers in `metrics/passes.toml` were counted with
it for every combination of groups. Counters of the code (SASS) need one pass of their own, whatever they are. ncu runs
a kernel once where that is one pass in all, and once more than there are passes otherwise (seen in every real report
looked at, and not documented).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ncu_launch.counters.chips import Chip
from ncu_launch.counters.metric_groups import MetricSelection
from ncu_launch.counters.metrics import table


@dataclass(frozen=True)
class Passes:
    """Passes of the hardware counters (None where not known) and of the SASS counters (0 or 1)."""

    of_hardware: int | None
    of_sass: int

    @property
    def in_library(self) -> int | None:
        """Sets of counters that cannot be collected together."""
        return None if self.of_hardware is None else self.of_hardware + self.of_sass

    @property
    def in_ncu(self) -> int | None:
        """How often ncu runs each kernel when all is collected in one run."""
        return _replays(self.in_library)

    @property
    def hardware_in_ncu(self) -> int | None:
        """The same for a run of the hardware counters alone."""
        return _replays(self.of_hardware)

    @property
    def sass_in_ncu(self) -> int:
        """The same for a run of the SASS counters alone."""
        return self.of_sass


def _replays(passes: int | None) -> int | None:
    return passes if passes is None or passes <= 1 else passes + 1


def passes_of(selection: MetricSelection, chip: Chip | None) -> Passes:
    """The passes that a selection takes on a chip.

    Those of the hardware counters are None where the chip is not known or was not counted, and where metrics were asked
    for by name.
    """
    sass = int(any(counter.is_sass for counter in selection.counters))
    counted = table("passes")["family"]
    if chip is None or chip.family not in counted or any(not _is_free(name) for name in selection.others):
        return Passes(None, sass)
    return Passes(_of_hardware(chip.family, selection.features), sass)


def _is_free(metric: str) -> bool:
    return metric.startswith(("launch__", "device__"))


def _of_hardware(family: str, features: frozenset[str]) -> int:
    """The most that any listed combination within `features` needs; one pass where none is listed."""
    return max((count for count, needed in _listed(family) if needed <= features), default=1)


@cache
def _listed(family: str) -> list[tuple[int, frozenset[str]]]:
    listed = table("passes")["family"][family]
    return [(int(count), frozenset(entry.split())) for count, entries in listed.items() for entry in entries]
