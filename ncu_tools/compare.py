"""What changed between two runs, kernel by kernel: launches and FLOPs exactly, times and bytes with their noise.

A change of times or bytes stands beside its 95 % interval (`ncu_tools.intervals`). Where that holds 1, no change was
shown. Runs of other GPUs, sources or clock modes are not compared unless that is wanted anyway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from ncu_launch.errors import NcuBenchError

from ncu_tools.changes import Change, Subject, Subjects
from ncu_tools.conditions import Conditions, Difference, Observed, clock_note, differences, known_of_one
from ncu_tools.hotspots import OPERATORS, Hotspot, kernels_of, run_total
from ncu_tools.intervals import Codes, Moments, Totals, ratio_interval, totals
from ncu_tools.kernel_pairs import Pair, Pairing, pair_kernels
from ncu_tools.report.units import counted
from ncu_tools.run_works import Works

MEASURES = {"launches": "launches", "time": "time_total_ns", "flops": "flops", "dram_bytes": "dram_bytes"}
"""What is compared, and the field of `Hotspot` that holds it: sums over the launches of a kernel."""
VALUES = {"time": "duration_ns", "dram_bytes": "dram_bytes"}

WITHIN_WORKS, OF_ALL = "launches of the same shape and range", "all launches of the kernel"
"""Whose scatter the interval rests on. Of all launches it holds the difference between works too, so it is wider."""

COUNTED_DIFFERENTLY = "the two runs counted the FLOPs of different units"
HAS_LEFT = "has left the new run, perhaps under another name"
NOT_OF_LAUNCHES = {
    **dict.fromkeys(("memory", "allocated"), "launches say nothing of the memory that a program allocates"),
    "parameters": "launches say nothing of parameters",
    "bytes": "launches have dram_bytes; bytes are those of measured points",
}


@dataclass(frozen=True)
class ComparedKernel:
    """A kernel in both runs, or in one of them (the other is None), with the change of each of `MEASURES`."""

    pair: Pair
    base: Hotspot | None
    new: Hotspot | None
    changes: dict[str, Change]

    @property
    def is_new(self) -> bool:
        """Whether only the new run has it."""
        return self.base is None

    @property
    def is_gone(self) -> bool:
        """Whether only the base has it."""
        return self.new is None


@dataclass
class Comparison:
    """Two runs: every kernel, the sum over all of them, in what their conditions differ, and what a reader must know.

    Kernels are in the order of how much the change of their time changed that of the run.
    """

    kernels: list[ComparedKernel]
    total: ComparedKernel
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def subjects(self) -> Subjects:
        """What gates are held against: the kernels by their names, before and after, and the run."""
        every = [
            Subject((one.pair.kernel, one.pair.was or ""), one.changes, unheld=HAS_LEFT if one.is_gone else "")
            for one in self.kernels
        ]
        return Subjects("kernel", every, Subject(("the run",), self.total.changes), NOT_OF_LAUNCHES)


def hold_comparable(base: Conditions, new: Conditions, names: tuple[str, str]) -> None:
    """Raise `NcuBenchError` where two runs, called `names`, differ in what must agree."""
    hold_alike(differences(base, new), names)


def hold_alike(found: Sequence[Difference], names: tuple[str, str], meant: str = "") -> None:
    """Raise `NcuBenchError` where one of these differences is refused; `meant` is how to say that it is wanted."""
    refused = [difference for difference in found if difference.refused]
    if refused:
        raise NcuBenchError(
            f"{names[1]} is not compared with {names[0]}, because they differ in " + "; ".join(map(str, refused)) + ".",
            "A change could not be told from an effect of that.",
            f"To compare them all the same, add --anyway{meant}",
        )


def compare(base: Works, new: Works, conditions: tuple[Conditions, Conditions]) -> Comparison:
    """What changed from the works of one run to those of another, with the conditions of both."""
    pairing = pair_kernels(base.signatures, new.signatures)
    hotspots_of = _hotspots(base, pairing.base), _hotspots(new, pairing.new)
    intervals = {measure: _intervals(pairing, base, new, column) for measure, column in VALUES.items()}
    kernels = []
    for number, pair in enumerate(pairing.pairs):
        ours, theirs = (rows.get(number) for rows in hotspots_of)
        found = {measure: by_pair.get(number) for measure, by_pair in intervals.items()}
        kernels.append(ComparedKernel(pair, ours, theirs, _changes(ours, theirs, found)))
    before, after = (run_total(list(rows.values())) for rows in hotspots_of)
    whole = {measure: _interval_of_runs(pairing, base, new, column) for measure, column in VALUES.items()}
    total = ComparedKernel(Pair("all kernels", None, None), before, after, _changes(before, after, whole))
    result = Comparison(ordered(kernels, "change"), total, differences(*conditions))
    observed = base.observed, new.observed
    result.notes = [*notes_on_conditions(result.differences, observed, conditions), *_notes_on_noise(result)]
    return result


def ordered(kernels: list[ComparedKernel], by: str) -> list[ComparedKernel]:
    """The kernels by how much their time changed, or by the time they take in the run in which they take more."""

    def key(kernel: ComparedKernel) -> tuple[float, str]:
        before, after = kernel.changes["time"].base, kernel.changes["time"].new
        if before is None or after is None:
            return 1.0, kernel.pair.kernel
        return -(abs(after - before) if by == "change" else max(before, after)), kernel.pair.kernel

    return sorted(kernels, key=key)


def _hotspots(side: Works, pairs: Codes) -> dict[int, Hotspot]:
    """The works of each pair as one kernel, by the number of the pair."""
    return {int(row.kernel): row for row in kernels_of(side.sums.titled([str(pair) for pair in pairs.tolist()]))}


def _changes(
    base: Hotspot | None, new: Hotspot | None, intervals: dict[str, tuple[float, float, str] | None]
) -> dict[str, Change]:
    """The change of each measure. A kernel that only one run has takes nothing in the other."""
    found = {}
    for measure, name in MEASURES.items():
        before, after = (0.0 if side is None else getattr(side, name) for side in (base, new))
        low, high, basis = intervals.get(measure) or (None, None, None)
        unlike = COUNTED_DIFFERENTLY if measure == "flops" and _counted_differently(base, new) else ""
        found[measure] = Change(measure, before, after, low, high, basis, unlike)
    return found


def _counted_differently(base: Hotspot | None, new: Hotspot | None) -> bool:
    """Whether FLOPs are a lower bound on a side and rest on other counters on the other."""
    if base is None or new is None:
        return False
    return (base.flops_lower_bound or new.flops_lower_bound) and base.flops_basis != new.flops_basis


# ------------------------------------------------------------------------------------------------------ intervals


def _intervals(pairing: Pairing, base: Works, new: Works, column: str) -> dict[int, tuple[float, float, str]]:
    """The interval of the ratio of each pair, with what it rests on, where it is known."""
    count = len(pairing.pairs)
    sides = _strata(pairing, base, new, column)
    within, over_all = (
        tuple(totals(strata, pairs, count) for strata, pairs in sides[basis]) for basis in (WITHIN_WORKS, OF_ALL)
    )
    found = {}
    for number in range(count):
        known = all(math.isfinite(side.variance[number]) for side in within)
        (before, after), basis = (within, WITHIN_WORKS) if known else (over_all, OF_ALL)
        interval = _interval((before, after), number)
        if interval is not None:
            found[number] = (*interval, basis)
    return found


def _interval_of_runs(pairing: Pairing, base: Works, new: Works, column: str) -> tuple[float, float, str] | None:
    """The interval of the ratio of two runs as a whole; None where any kernel of either has no known scatter."""
    for basis, sides in _strata(pairing, base, new, column).items():
        before, after = (totals(strata, np.zeros_like(pairs), 1) for strata, pairs in sides)
        if math.isfinite(before.variance[0]) and math.isfinite(after.variance[0]):
            interval = _interval((before, after), 0)
            return None if interval is None else (*interval, basis)
    return None


def _strata(pairing: Pairing, base: Works, new: Works, column: str) -> dict[str, list[tuple[Moments, Codes]]]:
    """For each basis the strata of both runs, with the pair of each."""
    sides = ((base, pairing.base, pairing.base_work), (new, pairing.new, pairing.new_work))
    works = 1 + max((int(codes.max(initial=-1)) for _, _, codes in sides), default=-1)
    within, over_all = [], []
    for side, pairs, codes in sides:
        pair_of = np.zeros(works, np.int64)
        pair_of[codes] = pairs
        moments = side.moments[column]
        within.append((moments.joined(codes, works), pair_of))
        over_all.append((moments.joined(pairs, len(pairing.pairs)), np.arange(len(pairing.pairs))))
    return {WITHIN_WORKS: within, OF_ALL: over_all}


def _interval(sides: tuple[Totals, Totals], number: int) -> tuple[float, float] | None:
    before, after = (
        (float(one.total[number]), float(one.variance[number]), float(one.freedom[number])) for one in sides
    )
    return ratio_interval(before, after)


# ---------------------------------------------------------------------------------------------------------- notes


def notes_on_conditions(
    found: Sequence[Difference], observed: tuple[Observed, Observed], conditions: tuple[Conditions, Conditions]
) -> list[str]:
    """In what two runs differ, what is known of one only, and what of their launches is left out or means less."""
    notes = [f"the runs differ in {difference}" for difference in found]
    unsure = known_of_one(*conditions)
    if unsure:
        notes.append(f"known of one of the runs only, so perhaps not alike: {', '.join(unsure)}")
    notes += [note for note in (clock_note(*observed),) if note]
    for title, side in zip(("base", "new run"), observed, strict=True):
        if side.failed:
            notes.append(f"{counted(side.failed, 'failed launch', 'failed launches')} of the {title} left out")
    if any("operators" in side.words["source"] for side in observed):
        notes.append(OPERATORS)
    return notes


def _notes_on_noise(result: Comparison) -> list[str]:
    both = [kernel for kernel in result.kernels if not kernel.is_new and not kernel.is_gone]
    notes = []
    silent = sum(not kernel.changes["time"].noise_is_known for kernel in both)
    if silent:
        notes.append(
            f"{silent} of {counted(len(both), 'matched kernel has', 'matched kernels have')} no interval: it takes two "
            "launches of a kernel in each run, and times that differ; profile more iterations"
        )
    if any(kernel.changes["flops"].unlike for kernel in both):
        notes.append(f"FLOPs of some kernels are not compared: {COUNTED_DIFFERENTLY}")
    return notes
