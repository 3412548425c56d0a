"""Means per launch of a kernel in two runs, over the same mix of launches on both sides.

Launches of one kernel that differ in grid, block or NVTX range do different work. With plain means, a run with one more
of the large launches would look slower though every launch became faster. So each signature s has the same weight on
both sides, its number of launches n_s in the base, with the means b_s and w_s of its launches in the two runs:

    base = sum_s n_s b_s / sum_s n_s        new = sum_s n_s w_s / sum_s n_s

If both runs have signatures of a kernel that the other run lacks, as with a kernel whose grid changed, these are
merged into one more s; if only one run has some, they are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ncu_parsers.schema.tables import Floats

from ncu_tools.compare.comparison_sums import LAUNCHES, SignatureSums
from ncu_tools.kernels.matching.kernel_pairs import Pairing
from ncu_tools.numbers.statistics import (
    CONFIDENCE,
    Codes,
    Estimate,
    Totals,
    mean_of,
    paired_ratio_interval,
    ratio_interval,
    totals,
    totals_with_single_launches,
)

PER_LAUNCH = "per launch"
OF_COMMON_SIGNATURES = "per launch, of the grids, blocks and ranges in both runs"
OF_OTHER_SIGNATURES = "per launch, of another grid, block or range than before"
PER_CALL = "per call"
OF_COMMON_INPUTS = "per call, of the shapes and types in both runs"
OF_OTHER_INPUTS = "per call, of other shapes or types than before"
"""As those per launch, where operators are compared by their calls."""

WITHIN_SIGNATURES, OF_ALL = "launches of the same shape and range", "all launches of the kernel"
BETWEEN_SIGNATURES = "how the changes of its shapes and ranges differ"
SINGLE_AS_OTHERS = "launches of the same shape and range; one launched once is taken to scatter as the others"
"""Launches whose scatter the interval uses. The scatter of all launches includes differences between signatures, which
are noise only where the two runs drew other ones: then it is used if single launches take most of the time."""
OF_ITERATIONS = "iterations"
"""The scatter with priority if all launches of both runs know their iterations."""


@dataclass(frozen=True)
class _Side:
    """The signatures of a run: their pair, stratum and number of launches, and the weight of each launch.

    `work` numbers units of equal work: strata of both runs, and the other strata of a pair as one.
    """

    run: SignatureSums
    pair: Codes
    strata: Codes
    work: Codes
    launches: Floats
    weight: Floats

    def mean(self, sums: Floats, pairs: int) -> Floats:
        """The weighted mean per launch (float64, one per pair); NaN if one of its launches has no value."""
        weighed = np.where(self.weight > 0, sums * self.weight, 0.0)
        launches = np.bincount(self.pair, self.launches * self.weight, pairs)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.bincount(self.pair, weighed, pairs) / launches

    def of_works(self, sums: Floats, works: int) -> Floats:
        """The weighted sum of each work; float64, one per work."""
        return np.bincount(self.work, np.where(self.weight > 0, sums * self.weight, 0.0), works).astype(np.float64)

    def by_iteration(self, column: str, pairs: int) -> Floats | None:
        """The weighted means per launch of each pair in each iteration, shape (iterations, pairs); None if unknown.

        NaN for pairs whose number of launches varies between iterations, which changes their means, too.
        """
        sums, launches = (
            self.run.iterations.of_groups(name, self.pair, pairs, self.weight) for name in (column, LAUNCHES)
        )
        if sums is None or launches is None:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(np.isclose(launches, launches[0]).all(axis=0), sums / launches, np.nan)

    def scatter(self, column: str, pairs: int, strata: int) -> dict[str, Totals]:
        """The weighted sum of each pair with its variance, from the scatter within strata, or of all its launches."""
        moments = self.run.scatter[column].moments.only(self.weight > 0)
        pair_of, weight_of = np.zeros(strata, np.int64), np.zeros(strata)
        pair_of[self.strata], weight_of[self.strata] = self.pair, self.weight
        within = moments.joined(self.strata, strata)
        return {
            WITHIN_SIGNATURES: totals(within, pair_of, pairs, weight_of),
            SINGLE_AS_OTHERS: totals_with_single_launches(within, pair_of, pairs, weight_of),
            OF_ALL: totals(moments.joined(self.pair, pairs), np.arange(pairs), pairs),
        }


@dataclass(frozen=True)
class Mix:
    """The compared launches of two runs; `compares` describes them for each pair."""

    compares: list[str]
    _sides: tuple[_Side, _Side]
    _strata: int
    each: str
    """What the mean of a pair is of, where one run alone has it."""

    def means(self, measure: str) -> list[Floats]:
        """The mean per launch, one per pair, in the base and in the new run; NaN if unknown."""
        return [side.mean(side.run.totals(measure), len(self.compares)) for side in self._sides]

    def steps(self, column: str) -> Floats:
        """The largest effect of printed digits on the difference of each pair's means; float64, one per pair."""
        found = [side.mean(side.run.steps[column].values * side.launches, len(self.compares)) for side in self._sides]
        return np.nan_to_num((found[0] + found[1]) / 2)

    def intervals(
        self, measure: str, column: str, confidence: float = CONFIDENCE
    ) -> dict[int, tuple[float, float, str]]:
        """Pair index -> interval of the ratio of its means, and its basis; pairs without one are absent."""
        sides = [side.scatter(column, len(self.compares), self._strata) for side in self._sides]
        means, works = self.means(measure), self._works(measure)
        found = self._of_iterations(column, confidence)
        for number, compares in enumerate(self.compares):
            if number in found:
                continue
            others = (
                (SINGLE_AS_OTHERS, OF_ALL)
                if compares in (OF_OTHER_SIGNATURES, OF_OTHER_INPUTS)
                else (SINGLE_AS_OTHERS,)
            )
            for basis in (WITHIN_SIGNATURES, *others):
                base, new = (
                    _estimate(float(mean[number]), side[basis], number) for mean, side in zip(means, sides, strict=True)
                )
                interval = ratio_interval(base, new, confidence)
                if np.isfinite([base[1], new[1]]).all() and (interval or basis == WITHIN_SIGNATURES):
                    break
            else:
                interval = None
            if basis != WITHIN_SIGNATURES and (paired := paired_ratio_interval(*works[number], confidence)):
                basis, interval = BETWEEN_SIGNATURES, paired
            if interval is not None:
                found[number] = (*interval, basis)
        return found

    def _works(self, measure: str) -> list[tuple[Floats, Floats]]:
        """For each pair the sums of its works in the base and in the new run."""
        pairs = len(self.compares)
        count = self._strata + pairs
        base, new = (side.of_works(side.run.totals(measure), count) for side in self._sides)
        pair_of = np.full(count, pairs)
        for side in self._sides:
            pair_of[side.work] = side.pair
        order = np.argsort(pair_of, kind="stable")
        cuts = np.searchsorted(pair_of[order], np.arange(1, pairs + 1))
        return list(zip(np.split(base[order], cuts)[:pairs], np.split(new[order], cuts)[:pairs], strict=True))

    def _of_iterations(self, column: str, confidence: float) -> dict[int, tuple[float, float, str]]:
        """The intervals of pairs by the scatter of whole iterations, if known."""
        ours, theirs = (side.by_iteration(column, len(self.compares)) for side in self._sides)
        found: dict[int, tuple[float, float, str]] = {}
        if ours is None or theirs is None:
            return found
        for number in range(len(self.compares)):
            interval = ratio_interval(mean_of(ours[:, number]), mean_of(theirs[:, number]), confidence)
            if interval is not None:
                found[number] = (*interval, OF_ITERATIONS)
        return found


def _estimate(mean: float, scatter: Totals, number: int) -> Estimate:
    """A mean with the relative variance of a sum."""
    total, variance = float(scatter.total[number]), float(scatter.variance[number])
    return mean, variance / total**2 * mean**2 if total else np.nan, float(scatter.freedom[number])


def mix_of(pairing: Pairing, base: SignatureSums, new: SignatureSums) -> Mix:
    """Weight the launches of two runs so that both sides have the same mix of signatures."""
    pairs = len(pairing.pairs)
    strata_count = 1 + max(int(codes.max(initial=-1)) for codes in (pairing.base_strata, pairing.new_strata))
    common = np.zeros(strata_count, bool)
    common[np.intersect1d(pairing.base_strata, pairing.new_strata)] = True
    sides = (base, pairing.base, pairing.base_strata), (new, pairing.new, pairing.new_strata)
    strata = [np.where(common[own], own, strata_count + pair) for _, pair, own in sides]
    launches = [run.launches.values for run, _, _ in sides]
    before, after = (np.bincount(of, count, strata_count + pairs) for of, count in zip(strata, launches, strict=True))
    weights = (after > 0).astype(np.float64), before / np.maximum(after, 1)
    weighed = [
        _Side(run, pair, own, of, count, weight[of])
        for (run, pair, own), count, weight, of in zip(sides, launches, weights, strata, strict=True)
    ]
    rest = before[strata_count:] > 0, after[strata_count:] > 0
    each, of_common, of_other = (
        (PER_CALL, OF_COMMON_INPUTS, OF_OTHER_INPUTS)
        if base.are_calls or new.are_calls
        else (PER_LAUNCH, OF_COMMON_SIGNATURES, OF_OTHER_SIGNATURES)
    )
    words = np.where(rest[0] | rest[1], of_common, each)
    words = np.where(rest[0] & rest[1], of_other, words)
    return Mix(words.tolist(), (weighed[0], weighed[1]), strata_count, each)
