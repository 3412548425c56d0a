"""How long each GPU of a timeline was busy between its first and its last operation.

Overlapping operations count once. In the rest of the time the GPU waited for the host, for data or for other GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from ncu_launch.notes import Note, NoteKind

from ncu_parsers.schema.tables import Floats

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

OVERLAP_NOTED = 1.01
GPUS_NAMED = 8
UNKNOWN = -1
"""A process or GPU without a number; any negative number means the same."""


@dataclass(frozen=True)
class Busy:
    """Time in ns during which at least one operation ran on a GPU (`busy`), between its first and last one (`span`).

    `with_kernels` is the part of `busy` in which a kernel ran; None if not computed.

    Each process numbers its GPUs, so a GPU is identified by process and device.
    """

    process: int
    device: int
    operations: int
    busy: float
    span: float
    with_kernels: float | None = None

    @property
    def share(self) -> float:
        """The fraction of the span in which the GPU was busy."""
        return self.busy / self.span


@dataclass
class _Running:
    """A GPU while operations are added in the order of their starts: until when it is busy, and what adds up."""

    begin: float
    reached: float
    operations: int = 0
    busy: float = 0.0

    def add(self, start: Floats, duration: Floats) -> None:
        """Add later operations; times in ns."""
        reached = np.maximum.accumulate(np.concatenate([[self.reached], start + duration]))
        self.busy += float(np.maximum(reached[1:] - np.maximum(start, reached[:-1]), 0).sum())
        self.reached = float(reached[-1])
        self.operations += len(start)


class BusyTimes:
    """Busy time per GPU of operations that come in parts, in the order of their starts."""

    def __init__(self) -> None:
        self._gpus: dict[tuple[int, int], _Running] = {}

    def add(self, process: Integers, device: Integers, start: Floats, duration: Floats) -> None:
        """Add operations. Arrays: int64 ids, float64 times in ns from any common origin, one entry per operation."""
        order = np.lexsort((start, device, process))
        changes = (np.diff(device[order]) != 0) | (np.diff(process[order]) != 0)
        for mine in np.split(order, np.flatnonzero(changes) + 1) if len(order) else []:
            first = float(start[mine[0]])
            gpu = self._gpus.setdefault((int(process[mine[0]]), int(device[mine[0]])), _Running(first, first))
            gpu.add(start[mine], duration[mine])

    def gpus(self) -> list[Busy]:
        """The busy time of each GPU, by process and device."""
        return [
            Busy(process, device, gpu.operations, gpu.busy, gpu.reached - gpu.begin)
            for (process, device), gpu in sorted(self._gpus.items())
        ]


class BusyAccount:
    """How busy the GPUs are, how much of it with kernels, and whether operations overlap."""

    def __init__(self) -> None:
        self._all, self._kernels, self._total = BusyTimes(), BusyTimes(), 0.0

    def add(self, process: Integers, device: Integers, start: Floats, duration: Floats, is_kernel: Mask) -> None:
        """Add operations that start later. Arrays as in `BusyTimes.add`; `is_kernel` (bool, one each) marks kernels."""
        self._all.add(process, device, start, duration)
        self._kernels.add(process[is_kernel], device[is_kernel], start[is_kernel], duration[is_kernel])
        self._total += float(duration.sum())

    def notes(self) -> list[str]:
        """Notes on all of that; the head line of a table has the busy share."""
        with_kernels = {(one.process, one.device): one.busy for one in self._kernels.gpus()}
        gpus = [replace(gpu, with_kernels=with_kernels.get((gpu.process, gpu.device), 0.0)) for gpu in self._all.gpus()]
        several = [gpu for gpu in gpus if gpu.operations > 1 and gpu.span > 0]
        notes: list[str] = [Note(_shares(several), NoteKind.IN_HEAD, _in_short(several))] if several else []
        busy = sum(gpu.busy for gpu in gpus)
        if self._total > busy * OVERLAP_NOTED:
            added = f"operations overlap: their times add up to {self._total / 1e6:,.1f} ms"
            notes.append(Note(f"{added}, in which the GPUs were busy for {busy / 1e6:,.1f} ms", NoteKind.METHOD))
        return notes


def busy_notes(process: Integers, device: Integers, start: Floats, duration: Floats, is_kernel: Mask) -> list[str]:
    """The notes of a `BusyAccount` of all operations."""
    account = BusyAccount()
    account.add(process, device, start, duration, is_kernel)
    return account.notes()


def _shares(gpus: Sequence[Busy]) -> str:
    if len(gpus) == 1:
        return f"the GPU was busy for {_share(gpus[0])} from its first operation to its last"
    of_process = len({gpu.process for gpu in gpus}) > 1
    named = [f"{_named(gpu, of_process)} for {_share(gpu)}" for gpu in gpus[:GPUS_NAMED]]
    if len(gpus) > GPUS_NAMED:
        shares = [gpu.share for gpu in gpus[GPUS_NAMED:]]
        named.append(f"{len(shares)} more for {100 * min(shares):.1f} to {100 * max(shares):.1f} %")
    return f"from its first operation to its last, each GPU was busy: {', '.join(named)}"


def _in_short(gpus: Sequence[Busy]) -> str:
    """The share of the one GPU, or the range of shares."""
    shares = sorted(f"{100 * gpu.share:.1f}" for gpu in gpus)
    shares.sort(key=float)
    return f"GPU busy {shares[0]} %" if len(gpus) == 1 else f"GPUs busy {shares[0]} to {shares[-1]} %"


def _named(gpu: Busy, of_process: bool) -> str:
    device = f"device {gpu.device}" if gpu.device >= 0 else "a device without a number"
    return f"{device} of process {gpu.process}" if of_process and gpu.process >= 0 else device


def _share(gpu: Busy) -> str:
    only_kernels = gpu.with_kernels is None or gpu.with_kernels == gpu.busy
    kernels = "" if only_kernels else f" ({100 * (gpu.with_kernels or 0.0) / gpu.span:.1f} % with kernels)"
    return f"{100 * gpu.share:.1f} %{kernels} of the {gpu.span / 1e6:,.3f} ms"
