"""Find the forward operator of each node of PyTorch's backward pass by its sequence number.

A node has the sequence number that was current when its operator began. If several operators began with the same
number, as `linear` around `addmm`, the node belongs to the last. Each thread counts for itself: a number used by two
threads is ambiguous and matches none. Source: torch/csrc/autograd/function.h, "Sequence Number", and
torch/csrc/autograd/profiler_kineto.cpp.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.integer]


class ForwardOperators:
    """Forward operators by sequence number.

    `number`, `thread` and `start` have one entry per operator; a negative number marks an operator outside the forward
    pass; `start` has any unit. If operators began at the same time, the one listed last counts as the last.
    """

    def __init__(self, number: Integers, thread: Integers, start: npt.NDArray[Any]) -> None:
        of_forward = np.flatnonzero(number >= 0)
        order = of_forward[np.lexsort((start[of_forward], number[of_forward]))]
        sorted_numbers = number[order]
        begins = np.flatnonzero(np.diff(sorted_numbers, prepend=-1))
        last = np.append(begins[1:], len(order))[: len(begins)] - 1
        threads = thread[order]
        alone = np.minimum.reduceat(threads, begins) == np.maximum.reduceat(threads, begins) if len(begins) else begins
        self._numbers = sorted_numbers[begins]
        self._operators = np.where(alone, order[last], -1)

    def behind(self, numbers: Integers) -> npt.NDArray[np.int64]:
        """Index of the forward operator for each sequence number; -1 if unknown."""
        if not len(self._numbers):
            return np.full(len(numbers), -1)
        at = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        return np.where(self._numbers[at] == numbers, self._operators[at], -1)
