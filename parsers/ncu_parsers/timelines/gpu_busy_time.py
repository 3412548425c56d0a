"""How long each GPU of a timeline was busy between its first and its last operation.

Overlapping operations count once. In the rest of the time the GPU waited for the host, for data or for other GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

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


def busy_times(process: Integers, device: Integers, start: Floats, duration: Floats) -> list[Busy]:
    """Busy time per GPU. Arrays hold one entry per operation: int64 ids, float64 times in ns from any common origin."""
    if not len(start):
        return []
    order = np.lexsort((start, device, process))
    changes = (np.diff(device[order]) != 0) | (np.diff(process[order]) != 0)
    result = []
    for mine in np.split(order, np.flatnonzero(changes) + 1):
        reached = np.maximum.accumulate(start[mine] + duration[mine])
        begun = np.maximum(start[mine], np.concatenate([start[mine][:1], reached[:-1]]))
        busy = np.maximum(reached - begun, 0).sum()
        span = reached[-1] - start[mine[0]]
        result.append(Busy(int(process[mine[0]]), int(device[mine[0]]), len(mine), float(busy), float(span)))
    return result


def busy_notes(process: Integers, device: Integers, start: Floats, duration: Floats, is_kernel: Mask) -> list[str]:
    """Notes on how busy the GPUs were, how much of it with kernels, and whether operations overlap.

    Arrays as in `busy_times`; `is_kernel` (bool, one per operation) marks kernels.
    """
    gpus, total = busy_times(process, device, start, duration), float(duration.sum())
    kernels = busy_times(process[is_kernel], device[is_kernel], start[is_kernel], duration[is_kernel])
    with_kernels = {(one.process, one.device): one.busy for one in kernels}
    gpus = [replace(gpu, with_kernels=with_kernels.get((gpu.process, gpu.device), 0.0)) for gpu in gpus]
    several = [gpu for gpu in gpus if gpu.operations > 1 and gpu.span > 0]
    notes = [_shares(several)] if several else []
    busy = sum(gpu.busy for gpu in gpus)
    if total > busy * OVERLAP_NOTED:
        notes.append(
            f"operations overlap: their times add up to {total / 1e6:,.1f} ms, in which the GPUs were busy for "
            f"{busy / 1e6:,.1f} ms"
        )
    return notes


def _shares(gpus: Sequence[Busy]) -> str:
    if len(gpus) == 1:
        return f"the GPU was busy for {_share(gpus[0])} from its first operation to its last"
    of_process = len({gpu.process for gpu in gpus}) > 1
    named = [f"{_named(gpu, of_process)} for {_share(gpu)}" for gpu in gpus[:GPUS_NAMED]]
    if len(gpus) > GPUS_NAMED:
        shares = [gpu.share for gpu in gpus[GPUS_NAMED:]]
        named.append(f"{len(shares)} more for {100 * min(shares):.1f} to {100 * max(shares):.1f} %")
    return f"from its first operation to its last, each GPU was busy: {', '.join(named)}"


def _named(gpu: Busy, of_process: bool) -> str:
    device = f"device {gpu.device}" if gpu.device >= 0 else "a device without a number"
    return f"{device} of process {gpu.process}" if of_process and gpu.process >= 0 else device


def _share(gpu: Busy) -> str:
    only_kernels = gpu.with_kernels is None or gpu.with_kernels == gpu.busy
    kernels = "" if only_kernels else f" ({100 * (gpu.with_kernels or 0.0) / gpu.span:.1f} % with kernels)"
    return f"{100 * gpu.share:.1f} %{kernels} of the {gpu.span / 1e6:,.3f} ms"
