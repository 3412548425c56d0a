"""NVTX ranges that mark iteration, phase and module, all in the domain `ncu_bench`.

Push/pop ranges belong to the thread that pushed them. Autograd launches backward kernels on a GPU from its own threads:
nodes of the graph push the module ranges there. Iterations and phases are also start/end ranges, which cover the whole
process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

DOMAIN = "ncu_bench"
TRAINING_PHASES = ("forward", "backward", "optimizer")
RUN_PHASES = (*TRAINING_PHASES, "prefill", "decode")
"""Range names of phases. All other ranges in this domain are named `iteration N`, or by the dotted path of a module."""


class Ranges:
    """Push and pop ranges through the nvtx package. If it cannot be imported, do nothing; `missing` says why."""

    def __init__(self) -> None:
        self.missing = ""
        self._nvtx: Any = None
        try:
            import nvtx
        except ImportError as error:
            self.missing = f"nvtx could not be imported ({error}), so there are no ranges"
            return
        self._nvtx = nvtx

    def entered(self, name: str) -> None:
        """Push a range on this thread; for a module, `name` is its dotted path."""
        if self._nvtx is not None:
            self._nvtx.push_range(name, domain=DOMAIN)

    def left(self, name: str) -> None:
        """Pop the innermost range of this thread."""
        if self._nvtx is not None:
            self._nvtx.pop_range(domain=DOMAIN)

    def iteration(self, number: int) -> AbstractContextManager[None]:
        """Mark the block as iteration `number`, in the way of `during`."""
        return self.during(f"iteration {number}")

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Mark the block with a push/pop range on this thread and a start/end range for the process, both `name`."""
        if self._nvtx is None:
            yield
            return
        handle = self._nvtx.start_range(name, domain=DOMAIN)
        self.entered(name)
        try:
            yield
        finally:
            self.left(name)
            self._nvtx.end_range(handle)
