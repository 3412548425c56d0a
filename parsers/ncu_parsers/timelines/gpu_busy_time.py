"""Whether the operations of a timeline overlap: how long its GPUs were busy, and what the times add up to.

Overlapping operations count once. What bounds the time that a GPU waits is said by `ncu_tools.timeline`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ncu_parsers.schema.tables import Floats

Integers = npt.NDArray[np.int64]

OVERLAP_NOTED = 1.01


@dataclass
class _Running:
    """A GPU while operations are added in the order of their starts: until when it is busy, and what adds up, in ns."""

    reached: float
    busy: float = 0.0

    def add(self, start: Floats, duration: Floats) -> None:
        """Add later operations; times in ns."""
        reached = np.maximum.accumulate(np.concatenate([[self.reached], start + duration]))
        self.busy += float(np.maximum(reached[1:] - np.maximum(start, reached[:-1]), 0).sum())
        self.reached = float(reached[-1])


class BusyAccount:
    """How long GPUs were busy with operations that come in parts, in the order of their starts.

    Each process numbers its GPUs, so a GPU is a process and a device.
    """

    def __init__(self) -> None:
        self._gpus: dict[tuple[int, int], _Running] = {}
        self._total = 0.0

    def add(self, process: Integers, device: Integers, start: Floats, duration: Floats) -> None:
        """Add operations. Arrays: int64 ids, float64 times in ns from any common origin, one entry per operation."""
        order = np.lexsort((start, device, process))
        changes = (np.diff(device[order]) != 0) | (np.diff(process[order]) != 0)
        for mine in np.split(order, np.flatnonzero(changes) + 1) if len(order) else []:
            key = (int(process[mine[0]]), int(device[mine[0]]))
            self._gpus.setdefault(key, _Running(float(start[mine[0]]))).add(start[mine], duration[mine])
        self._total += float(duration.sum())

    def busy(self) -> dict[tuple[int, int], float]:
        """The busy time in ns of each GPU, by process and device."""
        return {key: gpu.busy for key, gpu in sorted(self._gpus.items())}

    def notes(self) -> list[str]:
        """The note on operations that overlap, so that sums of their times are more than time."""
        busy = sum(self.busy().values())
        if self._total <= busy * OVERLAP_NOTED:
            return []
        return [
            f"operations overlap: their times add up to {self._total / 1e6:,.1f} ms, in which the GPUs were busy for "
            f"{busy / 1e6:,.1f} ms"
        ]
