"""Which operator of the forward pass a node of PyTorch's backward pass belongs to: the one with its sequence number.

A node has the number that stood when its operator began. Of several that began with the same number, as `linear` around
`addmm`, the last is the node's. Each thread counts for itself: where operators of two threads have a number, none is
taken. Source: torch/csrc/autograd/function.h, "Sequence Number", and torch/csrc/autograd/profiler_kineto.cpp.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.integer]


class ForwardOperators:
    """The operators of the forward pass by their sequence numbers.

    `number`: of each operator, negative for what is none of the forward pass; `thread` as a number; `start` in any
    unit. Of operators that began at the same time, the one listed last counts as the last.
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
        """For the sequence number of each node the place of its operator; -1 where that is not known."""
        if not len(self._numbers):
            return np.full(len(numbers), -1)
        at = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        return np.where(self._numbers[at] == numbers, self._operators[at], -1)
