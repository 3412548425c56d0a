"""Check whether two runs did the same work, so that their sums can be compared: the same launches, equally often."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
from ncu_parsers.schema.tables import short_name

from ncu_tools.compare.comparison_sums import SignatureSums
from ncu_tools.kernels.matching.kernel_pairs import BY_NAME, Pairing
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.numbers.change import Refusal, shortened

NOT_THE_SAME_WORK = "not the same work"
MOST_NAMED = 3


@dataclass(frozen=True)
class OtherWork:
    """Kernels in which two runs did not do the same work, one phrase each, and the kernels that both ran."""

    kernels: list[str] = field(default_factory=list)
    in_both: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.kernels)

    def __str__(self) -> str:
        """The kernels in words, as in "not the same work: 3 -> 4 launches of silu_kernel"."""
        return f"{NOT_THE_SAME_WORK}: {', '.join(shortened(self.kernels, MOST_NAMED))}" if self.kernels else ""

    @property
    def refusal(self) -> Refusal:
        """The refusal of gates on the sums, with a kernel of both runs to gate instead."""
        return Refusal(str(self), f"kernel:{re.escape(self.in_both[0]) if self.in_both else 'NAME'}:")


def other_work(pairing: Pairing, base: SignatureSums, new: SignatureSums) -> OtherWork:
    """The kernels in which the launches of two runs differ.

    A kernel with the same full name in both must have the same signatures (grid, block, NVTX range) equally often. A
    kernel that was renamed, or paired by the user, may have another grid, as rewritten kernels do, but must be launched
    equally often.
    """
    pairs = len(pairing.pairs)
    sides = ((pairing.base, pairing.base_strata, base), (pairing.new, pairing.new_strata, new))
    strata = 1 + max((int(own.max(initial=-1)) for _, own, _ in sides), default=-1)
    launches = [run.launches.values for _, _, run in sides]
    before, after = (np.bincount(codes, count, pairs) for (codes, _, _), count in zip(sides, launches, strict=True))
    ours, theirs = (np.bincount(own, count, strata) for (_, own, _), count in zip(sides, launches, strict=True))
    differs = np.zeros(pairs, bool)
    for codes, own, _ in sides:
        differs[codes[ours[own] != theirs[own]]] = True
    of_calls = base.are_calls or new.are_calls
    other, times = ("inputs of other shapes", "calls") if of_calls else ("another grid, block or range", "launches")
    found: list[tuple[int, str]] = []
    for number, pair in enumerate(pairing.pairs):
        name = readable_name(pair.kernel)
        if before[number] != after[number]:
            found.append((number, f"{before[number]:,.0f} -> {after[number]:,.0f} {times} of {name}"))
        elif differs[number] and pair.matched_by == BY_NAME:
            found.append((number, f"{other} of {name}"))
    in_both = [number for number, _ in found if before[number] and after[number]] or np.flatnonzero(before * after)
    return OtherWork([phrase for _, phrase in found], [short_name(pairing.pairs[number].kernel) for number in in_both])
