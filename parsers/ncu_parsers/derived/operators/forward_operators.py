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
        nodes = [one for one in around if one.backward_of is not None]
        found = self._of(nodes[-1]) if nodes else None
        return None if found is None else found[1][1:]

    def call_behind(self, node: RecordedInputs) -> tuple[Hashable, float] | None:
        """Thread and start of the forward operator of a node of the backward pass; None where it is not known."""
        found = self._of(node)
        return None if found is None else (found[0], found[1][0])

    def _of(self, node: RecordedInputs) -> tuple[Hashable, tuple[float, str, RecordedInputs]] | None:
        """Thread, and start, name and inputs of the forward operator of a node."""
        found = self._last.get(-1 if node.backward_of is None else node.backward_of, {})
        return next(iter(found.items())) if len(found) == 1 else None
