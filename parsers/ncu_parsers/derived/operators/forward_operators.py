"""Which operator of the forward pass a node of PyTorch's backward pass belongs to: the one with its sequence number.

A node has the number that stood when its operator began. Of several that began with the same number, as `linear` around
`addmm`, the last is the node's. Each thread counts for itself: where operators of two threads have a number, none is
taken. Source: torch/csrc/autograd/function.h, "Sequence Number", and torch/csrc/autograd/profiler_kineto.cpp.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from ncu_parsers.derived.operators.work_from_shapes import RecordedInputs


class ForwardOperators:
    """The operators of the forward pass by their sequence numbers."""

    def __init__(self) -> None:
        self._last: dict[int, dict[Hashable, tuple[float, str, RecordedInputs]]] = {}

    def take(self, number: int, thread: Hashable, start: float, name: str, inputs: RecordedInputs) -> None:
        """Add an operator, in any order of start times."""
        of_threads = self._last.setdefault(number, {})
        if thread not in of_threads or start >= of_threads[thread][0]:
            of_threads[thread] = (start, name, inputs)

    def behind(self, around: Iterable[RecordedInputs]) -> tuple[str, RecordedInputs] | None:
        """Name and inputs of the forward operator of the innermost node among these ranges, outermost first."""
        numbers = [one.backward_of for one in around if one.backward_of is not None]
        found = self._last.get(numbers[-1], {}) if numbers else {}
        if len(found) != 1:
            return None
        ((_, name, inputs),) = found.values()
        return name, inputs
