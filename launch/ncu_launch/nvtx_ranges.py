"""NVTX ranges: iteration, phase and module, in one domain, so that a profiler can tell kernels apart.

Push/pop ranges belong to the thread that pushed them. Autograd launches backward kernels of a GPU from threads of its
own, where module ranges are pushed by the graph's nodes themselves; the phase is a start/end range as well, which holds
for the whole process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

DOMAIN = "ncu_bench"
RUN_PHASES = ("forward", "backward", "optimizer")
"""Ranges of this domain with other names are `iteration N`, or the dotted path of a module."""


class Ranges:
    """Pushes and pops ranges through the nvtx package; without it, does nothing and says so in `missing`."""

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
        """A module begins."""
        if self._nvtx is not None:
            self._nvtx.push_range(name, domain=DOMAIN)

    def left(self, name: str) -> None:
        """The module begun last ends."""
        if self._nvtx is not None:
            self._nvtx.pop_range(domain=DOMAIN)

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """An iteration or a phase: a push/pop range on this thread, a start/end range for the whole process."""
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
