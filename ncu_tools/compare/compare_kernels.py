"""What changed between two runs, kernel by kernel: launches and FLOPs exactly, times and bytes with their noise.

Samples of a kernel are launches, so times, FLOPs and bytes are compared per launch (`ncu_tools.compare.per_launch`),
and the number of launches is a separate measure. Sums over all kernels are compared if both runs did the same work
(`ncu_tools.compare.same_work`). A change of times or bytes has a 95 % interval (`ncu_tools.numbers.statistics`). If
that includes 1, no change was shown. Runs of different GPUs, sources or clock modes are compared only with --anyway.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from ncu_launch.errors import NcuBenchError
from ncu_launch.notes import Note, NoteKind
from ncu_parsers.parse.file_kinds import TIMELINES
from ncu_parsers.schema.flops_basis import basis_of
from ncu_parsers.schema.operator_columns import TRACE
from ncu_parsers.schema.tables import short_name

from ncu_tools.compare.comparison_sums import SignatureSums
from ncu_tools.compare.per_launch import (
    OF_COMMON_INPUTS,
    OF_COMMON_SIGNATURES,
    OF_ITERATIONS,
    OF_OTHER_INPUTS,
    OF_OTHER_SIGNATURES,
    SINGLE_AS_OTHERS,
    WITHIN_SIGNATURES,
    Mix,
    mix_of,
)
from ncu_tools.compare.run_conditions import Conditions, Observed, clock_note, differences, known_of_one
from ncu_tools.compare.same_work import OtherWork, other_work
from ncu_tools.kernels.hotspots import kernels_of
from ncu_tools.kernels.kernel_row import Hotspot, run_total
from ncu_tools.kernels.matching.asked_pairs import AskedPair
from ncu_tools.kernels.matching.kernel_pairs import ASKED, BY_NAME, Pair, Pairing, pair_kernels
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.kernels.operator_times import operator_notes
from ncu_tools.numbers.change import (
    MORE,
    Change,
    Difference,
    Refusal,
    Subject,
    Subjects,
    clock_ratio,
    sentence,
    shortened,
)
from ncu_tools.numbers.number_format import counted
from ncu_tools.numbers.row_sums import or_none
from ncu_tools.numbers.statistics import (
    CONFIDENCE,
    Codes,
    Estimate,
    Moments,
    ratio_interval,
    totals,
    totals_with_single_launches,
)

MEASURES = {"launches": "launches", "time": "time_total_ns", "flops": "flops", "dram_bytes": "dram_bytes"}
"""Measure -> the field of `Hotspot` with its sum over the launches of a kernel."""
VALUES = {"time": "duration_ns", "dram_bytes": "dram_bytes"}
"""Measure that scatters from launch to launch -> its column."""
MOST_RENAMED = 3
"""Most renamed kernels that a note lists."""
JITTER_NS = 160.0
"""Time by which two launches of one short kernel differ in 95 of 100 pairs, in five ticks of the clock: 154 ns of 2.4
us on a V100, 146 ns of 2.8 us on an H100. ncu's times are multiples of 32 ns, from Volta to Hopper."""
LITTLE = 0.01
"""Largest share of a run taken by kernels launched once for which its sum still gets an interval."""

COUNTED_DIFFERENTLY = "the two runs counted the FLOPs of different units"
HAS_LEFT = "has left the new run, perhaps under another name"
NOT_OF_LAUNCHES = {
    **dict.fromkeys(("memory", "allocated"), "launches say nothing of the memory that a program allocates"),
    "parameters": "launches say nothing of parameters",
    "bytes": "launches have dram_bytes; bytes are those of measured points",
}


@dataclass(frozen=True)
class ComparedKernel:
    """A kernel of both runs, or of one of them (the other is None), with the change of each of `MEASURES`.

    The change of `launches` is of their number; the others are per launch, except in the total of all kernels, where
    they are sums.
    """

    pair: Pair
    base: Hotspot | None
    new: Hotspot | None
    changes: dict[str, Change]

    @property
    def is_new(self) -> bool:
        """True if only the new run has it."""
        return self.base is None

    @property
    def is_gone(self) -> bool:
        """True if only the base has it."""
        return self.new is None


@dataclass
class Comparison:
    """Two runs compared: every kernel, the total, differences of conditions, and notes.

    Kernels are sorted by their contribution to the change of the run's time. `other_work` lists the kernels in which
    the runs did not do the same work; with `sums_anyway` their sums are compared nevertheless.
    """

    kernels: list[ComparedKernel]
    total: ComparedKernel
    other_work: OtherWork
    sums_anyway: bool = False
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def subjects(self) -> Subjects:
        """The subjects of gates: the kernels by their names in both runs, and the run."""
        every = [
            Subject((one.pair.kernel, one.pair.was or ""), one.changes, missing=HAS_LEFT if one.is_gone else "")
            for one in self.kernels
        ]
        other = self.other_work
        refusal = self._refusal(other) if other and not self.sums_anyway else None
        return Subjects("kernel", every, Subject(("the run",), self.total.changes, refusal=refusal), NOT_OF_LAUNCHES)

    def _refusal(self, other: OtherWork) -> Refusal:
        """The refusal of gates on sums, with the kernels that became slower per launch."""
        slower = [one for one in self.kernels if one.base and one.new and one.changes["time"].outcome == MORE]
        if not slower:
            return replace(other.refusal, slower="Per launch, no kernel is shown to be slower.")
        words = [f"{readable_name(one.pair.kernel)} is slower: {sentence(one.changes['time'])}" for one in slower]
        gate = f"kernel:{re.escape(short_name(slower[0].pair.kernel))}:"
        return replace(other.refusal, instead=gate, slower=f"{'; '.join(shortened(words, MOST_RENAMED))}.")


def require_comparable(base: Conditions, new: Conditions, names: tuple[str, str]) -> None:
    """Raise `NotComparable` if two runs, called `names`, differ in a condition that must agree."""
    require_alike(differences(base, new), names)


class NotComparable(NcuBenchError):
    """Two runs differ in a condition whose effect could not be told from a change."""


def require_alike(found: Sequence[Difference], names: tuple[str, str], meant: str = "") -> None:
    """Raise `NotComparable` if one of these differences is refused; `meant` is what to type if it is intended."""
    refused = [difference for difference in found if difference.refused]
    if refused:
        raise NotComparable(
            f"{names[1]} is not compared with {names[0]}, because they differ in " + "; ".join(map(str, refused)) + ".",
            "These differences could cause a change by themselves.",
            f"To compare them all the same, add --anyway{meant}",
        )


def compare(
    base: SignatureSums,
    new: SignatureSums,
    conditions: tuple[Conditions, Conditions],
    *,
    asked: Sequence[AskedPair] = (),
    sums_anyway: bool = False,
) -> Comparison:
    """Compare the launch signatures of two runs, with the conditions of both.

    `asked` are pairs of kernels that the user names. With `sums_anyway`, sums over all kernels are compared even if the
    runs did not do the same work.
    """
    pairing = pair_kernels(base.signatures, new.signatures, asked)
    hotspots_of = _hotspots(base, pairing.base), _hotspots(new, pairing.new)
    other = other_work(pairing, base, new)
    kernels = _kernels(pairing, hotspots_of, mix_of(pairing, base, new))
    total = _total(hotspots_of, pairing, base, new, "" if sums_anyway else str(other))
    if len(kernels) == 1:
        _take_interval(total, kernels[0])
    clock = clock_ratio(base.observed.median_clock, new.observed.median_clock)
    for one in (*kernels, total):
        one.changes["time"] = replace(one.changes["time"], clock=clock)
    result = Comparison(ordered(kernels, "change"), total, other, sums_anyway, differences(*conditions))
    observed = base.observed, new.observed
    result.notes = [
        *notes_on_conditions(result.differences, observed, conditions), *_notes_on_pairs(result),
        *_notes_on_noise(result),
    ]  # fmt: skip
    return result


def ordered(kernels: list[ComparedKernel], by: str) -> list[ComparedKernel]:
    """The kernels sorted by how much their time changed, then by the larger of their two times, or by that alone."""

    def key(kernel: ComparedKernel) -> tuple[float, float, str]:
        before, after = (0.0 if side is None else side.time_total_ns for side in (kernel.base, kernel.new))
        if before is None or after is None:
            return 1.0, 0.0, kernel.pair.kernel
        return -abs(after - before) if by == "change" else 0.0, -max(before, after), kernel.pair.kernel

    return sorted(kernels, key=key)


def _hotspots(side: SignatureSums, pairs: Codes) -> dict[int, Hotspot]:
    """The signatures of each pair summed to one kernel, by the index of the pair."""
    return {int(row.kernel): row for row in kernels_of(side.titled([str(pair) for pair in pairs.tolist()]))}


def _kernels(
    pairing: Pairing, hotspots_of: tuple[dict[int, Hotspot], dict[int, Hotspot]], mix: Mix
) -> list[ComparedKernel]:
    """All pairs with their changes. A kernel of only one run takes 0 in the other."""
    means = {measure: mix.means(measure) for measure in MEASURES if measure != "launches"}
    intervals = {measure: mix.intervals(measure, column) for measure, column in VALUES.items()}
    of_many = 1 - (1 - CONFIDENCE) / max(1, sum(len(rows) for rows in intervals.values()))
    wider = {measure: mix.intervals(measure, column, of_many) for measure, column in VALUES.items()}
    steps = {measure: mix.steps(column) for measure, column in VALUES.items()}
    kernels = []
    for number, pair in enumerate(pairing.pairs):
        base, new = (rows.get(number) for rows in hotspots_of)
        counts = [0.0 if side is None else float(side.launches) for side in (base, new)]
        changes = {"launches": Change("launches", counts[0], counts[1])}
        for measure, of_pairs in means.items():
            compares = mix.compares[number]
            before, after = (or_none(float(mean[number])) for mean in of_pairs)
            if base is None or new is None:
                before, after, compares = _own_mean(base, measure), _own_mean(new, measure), mix.each
            low, high, basis = intervals.get(measure, {}).get(number, (None, None, None))
            unlike = COUNTED_DIFFERENTLY if measure == "flops" and _counted_differently(base, new) else ""
            step = float(steps[measure][number]) if measure in steps else 0.0
            lowest = wider.get(measure, {}).get(number, (None,))[0]
            jitter = JITTER_NS / math.sqrt(max(1.0, min(counts))) if measure == "time" else 0.0
            changes[measure] = Change(
                measure, before, after, low, high, basis, unlike, compares, step, jitter=jitter, low_of_many=lowest
            )
        kernels.append(ComparedKernel(pair, base, new, changes))
    return kernels


def _own_mean(kernel: Hotspot | None, measure: str) -> float | None:
    """The mean per launch of a kernel that one run has; 0 in the other run."""
    if kernel is None:
        return 0.0
    total: float | None = getattr(kernel, MEASURES[measure])
    return None if total is None else total / kernel.launches


def _total(
    hotspots_of: tuple[dict[int, Hotspot], dict[int, Hotspot]],
    pairing: Pairing,
    base: SignatureSums,
    new: SignatureSums,
    unlike: str,
) -> ComparedKernel:
    """The sums over all kernels; `unlike` is the reason why they cannot be compared."""
    before, after = (run_total(list(rows.values())) for rows in hotspots_of)
    changes = {}
    for measure, name in MEASURES.items():
        interval = None if unlike or measure not in VALUES else _interval_of_runs(pairing, base, new, VALUES[measure])
        low, high, basis = interval or (None, None, None)
        why = COUNTED_DIFFERENTLY if measure == "flops" and _counted_differently(before, after) else unlike
        if measure == "launches":
            why = ""
        step = sum(_step_of_sum(run, VALUES[measure]) for run in (base, new)) / 2 if measure in VALUES else 0.0
        sums = getattr(before, name), getattr(after, name)
        jitter = JITTER_NS * math.sqrt(max(before.launches, after.launches)) if measure == "time" else 0.0
        changes[measure] = Change(measure, *sums, low, high, basis, why, step=step, jitter=jitter)
    return ComparedKernel(Pair("all kernels", None, None), before, after, changes)


def _take_interval(total: ComparedKernel, alone: ComparedKernel) -> None:
    """Give the sum over a kernel that is alone in both runs the interval of the kernel."""
    for measure in VALUES:
        of_kernel, of_sum = alone.changes[measure], total.changes[measure]
        if not of_sum.unlike:
            total.changes[measure] = replace(of_sum, low=of_kernel.low, high=of_kernel.high, basis=of_kernel.basis)


def _counted_differently(base: Hotspot | None, new: Hotspot | None) -> bool:
    """True if FLOPs are a lower bound on one side and come from other counters on the other side."""
    if base is None or new is None:
        return False
    return (base.flops_lower_bound or new.flops_lower_bound) and base.flops_basis != new.flops_basis


def _step_of_sum(run: SignatureSums, column: str) -> float:
    return float((run.steps[column].values * run.launches.values).sum())


def _interval_of_runs(
    pairing: Pairing, base: SignatureSums, new: SignatureSums, column: str
) -> tuple[float, float, str] | None:
    """The interval of the ratio of two runs' sums, by the scatter of whole iterations or else of launches.

    None if kernels without a known scatter take much of either.
    """
    ours, theirs = (run.iterations.total(column, len(run.rows)) for run in (base, new))
    if ours is not None and theirs is not None:
        interval = ratio_interval(ours, theirs)
        return None if interval is None else (*interval, OF_ITERATIONS)
    codes = (base, pairing.base_strata), (new, pairing.new_strata)
    strata_count = 1 + max((int(of_strata.max(initial=-1)) for _, of_strata in codes), default=-1)
    for basis in (WITHIN_SIGNATURES, SINGLE_AS_OTHERS):
        moments = [run.scatter[column].moments.joined(of_strata, strata_count) for run, of_strata in codes]
        sums = list(map(_as_others if basis == SINGLE_AS_OTHERS else _sum_of_run, moments))
        if all(math.isfinite(variance) for _, variance, _ in sums):
            interval = ratio_interval(sums[0], sums[1])
            return None if interval is None else (*interval, basis)
    return None


def _sum_of_run(moments: Moments) -> Estimate:
    """The sum of a run with its variance, NaN if single launches of their kind take more than `LITTLE` of it."""
    lone = moments.size == 1
    alone = moments.total[lone]
    if alone.sum() > LITTLE * moments.total.sum():
        lone, alone = np.zeros(len(lone), bool), alone[:0]
    found = totals(moments.only(~lone), np.zeros(len(lone), np.int64), 1)
    variance = float(found.variance[0] + (alone**2).sum())
    return float(found.total[0] + alone.sum()), variance, float(found.freedom[0])


def _as_others(moments: Moments) -> Estimate:
    """The sum of a run whose kernels launched once are assumed to scatter like the others, if these have half of it."""
    count = len(moments.size)
    found = totals_with_single_launches(moments, np.zeros(count, np.int64), 1, np.ones(count))
    return float(found.total[0]), float(found.variance[0]), float(found.freedom[0])


# ---------------------------------------------------------------------------------------------------------- notes


def notes_on_conditions(
    found: Sequence[Difference], observed: tuple[Observed, Observed], conditions: tuple[Conditions, Conditions]
) -> list[str]:
    """Notes on differing conditions, on conditions known of one run only, and on launches left out or less exact."""
    notes: list[str] = [f"the runs differ in {difference}" for difference in found]
    unsure = known_of_one(*conditions)
    if unsure:
        notes.append(f"known for only one of the runs, so they may differ: {', '.join(unsure)}")
    notes += [note for note in (clock_note(*observed),) if note]
    if any(len(side.texts["device_name"]) > 1 for side in observed):
        notes.append(Note("launches of several GPUs are compared as one kernel; --device N takes one", NoteKind.METHOD))
    for title, side in zip(("base", "new run"), observed, strict=True):
        if side.failed:
            failed = f"{counted(side.failed, 'failed launch', 'failed launches')} of the {title} left out"
            notes.append(Note(failed, NoteKind.LOST))
    if any(TIMELINES & side.texts["source"] for side in observed):
        gaps = "times are of kernels and copies, without the gaps between them; ncu-bench timeline shows gaps"
        notes.append(Note(gaps, NoteKind.METHOD))
    if any(TRACE in side.texts["source"] for side in observed):
        by_shapes = "FLOPs of traces follow from the shapes of operators and are estimates, not counted"
        notes.append(Note(by_shapes, NoteKind.ESTIMATE))
    estimates = {basis_of(text).estimate for side in observed for text in side.texts["flops_basis"]}
    words = [f"FLOPs of some launches hold an estimate: {one}" for one in sorted(filter(None, estimates))]
    notes += [Note(one, NoteKind.ESTIMATE) for one in words]
    notes += operator_notes(observed[0].times | observed[1].times)
    return notes


def _notes_on_pairs(result: Comparison) -> list[str]:
    """Notes on renamed kernels with the evidence, on possible renames, and on what means leave out."""
    renamed = [one.pair for one in result.kernels if one.pair.matched_by not in (None, BY_NAME, ASKED)]
    notes: list[str] = [
        f"{short_name(pair.kernel)} was {short_name(pair.was or '')}, by {pair.matched_by}; if not, --pair OLD=NEW"
        for pair in renamed[:MOST_RENAMED]
    ]
    if len(renamed) > MOST_RENAMED:
        more = counted(len(renamed) - MOST_RENAMED, "more kernel was", "more kernels were")
        notes.append(f"{more} renamed: matched_by in --format json says by what each was found")
    gone, new = (sum(getattr(one, name) for one in result.kernels) for name in ("is_gone", "is_new"))
    if gone and new:
        notes.append(f"{gone} gone and {new} new: where one is the other, say so with --pair OLD=NEW")
    for words in (OF_COMMON_SIGNATURES, OF_OTHER_SIGNATURES, OF_COMMON_INPUTS, OF_OTHER_INPUTS):
        some = [one for one in result.kernels if one.changes["time"].compares == words and one.base and one.new]
        if some:
            noun = "operator" if words in (OF_COMMON_INPUTS, OF_OTHER_INPUTS) else "kernel"
            notes.append(Note(f"{counted(len(some), f'{noun} is', f'{noun}s are')} compared {words}", NoteKind.METHOD))
    return notes


def _notes_on_noise(result: Comparison) -> list[str]:
    both = [kernel for kernel in result.kernels if not kernel.is_new and not kernel.is_gone]
    notes: list[str] = []
    silent = sum(not kernel.changes["time"].noise_is_known for kernel in both)
    if silent:
        without = f"{silent} of {counted(len(both), 'matched kernel has', 'matched kernels have')} no interval"
        needed = "it takes two launches of a kernel and grid in each run, each with its own time, and times that differ"
        notes.append(Note(f"{without}: {needed}; profile more iterations", NoteKind.METHOD))
    if any(kernel.changes["flops"].unlike for kernel in both):
        notes.append(f"FLOPs of some kernels are not compared: {COUNTED_DIFFERENTLY}")
    return notes
