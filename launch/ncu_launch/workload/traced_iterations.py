"""PyTorch's profiler around the iterations of a model, with ranges of iterations, phases and modules in its trace."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_launch.nvtx_ranges import DOMAIN
from ncu_launch.profilers.traced_program import SAMPLE, SecondProfiler, no_second_profiler, started

TRACE = "--trace"
"""Option of a model's process that names the trace to write."""


@dataclass(frozen=True)
class Trace:
    """The trace to write; `sample` is the interval and the GPU metrics to sample (MS, "METRIC,..."), () for none."""

    path: Path
    sample: tuple[str, ...] = ()

    @classmethod
    def asked(cls, words: list[str]) -> Trace | None:
        """The trace that the arguments `--trace PATH [--sample MS METRIC,...]` request; None for other arguments."""
        if words[:1] != [TRACE]:
            return None
        return cls(Path(words[1]), tuple(words[3:5]) if words[2:3] == [SAMPLE] else ())

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the block, and write the trace, also after an error.

        Raises `NcuBenchError` if PyTorch's profiler is started in the block.
        """
        profiler = started(list(self.sample))
        try:
            with no_second_profiler():
                yield
        except SecondProfiler as error:
            raise NcuBenchError(str(error)) from None
        finally:
            profiler.stop()
            profiler.export_chrome_trace(str(self.path))


class TraceRanges:
    """The ranges of `nvtx_ranges.Ranges` as annotations of PyTorch's profiler.

    An iteration is named `ProfilerStep#N`, as by PyTorch itself, and readers apply it to every thread. A module is
    named `ncu_bench:` and its dotted path. The backward pass on a GPU runs on threads without a phase's range: readers
    recognise it by the names of autograd's nodes.
    """

    missing = ""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    def entered(self, name: str) -> None:
        """Begin the range of a module on this thread."""
        self._begin(f"{DOMAIN}:{name}")

    def left(self, name: str) -> None:
        """End the innermost range of this thread."""
        self._of_thread.open.pop().__exit__(None, None, None)

    def iteration(self, number: int) -> AbstractContextManager[None]:
        """Mark the block as iteration `number`."""
        return self.during(f"ProfilerStep#{number}")

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Mark the block as a phase or iteration on this thread."""
        self._begin(name)
        try:
            yield
        finally:
            self.left(name)

    def _begin(self, name: str) -> None:
        from torch.profiler import record_function

        open_ranges: list[Any] = self._of_thread.__dict__.setdefault("open", [])
        open_ranges.append(record_function(name))
        open_ranges[-1].__enter__()
