"""Why measured FLOPs differ from expected ones: the known causes, each with the evidence for or against it.

A cause can lower the measured count, raise it, or both. A cause fits if there is evidence for it and its effect could
explain a good part of the difference; the others state why they do not fit. Kernel names show which algorithm ran. If
they contain a tile, its padding for the operator's shapes is compared with the counters. A difference that no cause
explains has no known cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from ncu_parsers.schema.tables import Floats

from ncu_tools.model.expected.both_sides import Collection, Mask, MeasuredLaunches, Operators, Places
from ncu_tools.model.expected.padded_kernels import PaddedKernel, PaddedKernels
from ncu_tools.model.expected.tile_padding import ATTENTION, SLICE, TILES, padded_flops
from ncu_tools.numbers.number_format import counted, digits, scaled

LOW, HIGH = 0.97, 1.03
"""Ratios of measured to expected FLOPs that need no explanation."""

TELLING_SHARE = 0.1
"""Share of the difference above which a cause with a known effect fits."""

TILES_TOLD = 3
"""Most different tiles that a sentence lists; more are summed up."""

BELOW, ABOVE, EITHER = "below", "above", "either"

WINOGRAD = re.compile(r"winograd", re.IGNORECASE)
FFT = re.compile(r"fft\dd|(?<![a-z])fft|cgemm|(?<![a-z])cf32", re.IGNORECASE)
SPLIT_K = re.compile(r"split_?k(?!v)", re.IGNORECASE)
SPLIT_K_SUM = re.compile(r"split_?k(?!v)\w*reduce|reduce\w*split_?k(?!v)", re.IGNORECASE)
SPARSE = re.compile(r"sparse_|_sp_|spgemm|spmma|sptensor|cusparse", re.IGNORECASE)
ATTENTION_BACKWARD = re.compile(r"flash_bwd|flash_bprop|fmha\w*(?:bwd|cutlassB|backward)|AttentionBackward")
ELEMENTWISE = re.compile(
    r"elementwise|(?<!splitK)(?<!split_k)reduce_kernel|softmax|(?:layer|batch|group)_?norm|bn_[fb]w|pool|fused_dropout",
    re.IGNORECASE,
)
"""Families of kernels by their names in cuDNN, cuBLAS, CUTLASS, FlashAttention and PyTorch."""

WINOGRAD_SAVES = 7.7
"""Largest saving: 5x5 filters by F(5x5, 5x5) need 25 x 25 / 81 times fewer multiplications, 3x3 by F(4x4, 3x3) 4 times
(Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015)."""

FUSED_OVER_PLAIN_BACKWARD = 5 / 4
"""Matrix products of attention's backward pass: five if the scores are recomputed, four if they were kept."""


@dataclass(frozen=True)
class BothSides:
    """Both sides of a whole comparison."""

    launches: MeasuredLaunches
    operators: Operators
    collection: Collection
    iterations: int

    @cached_property
    def outside_formulas(self) -> Mask:
        """Mask of launches that no formula counts: in a module without expected FLOPs, or by kernel name."""
        expected = self.operators.flops_by_place
        nothing_expected = np.array([expected.get(place) == 0 for place in self.launches.places], dtype=bool)
        return nothing_expected | self.launches.named(ELEMENTWISE, short=True)  # template arguments name much else

    @cached_property
    def unmeasured(self) -> Mask:
        """Mask of operators with FLOPs in a phase and module without any measured launch."""
        measured = set(self.launches.places)
        elsewhere = np.array([place not in measured for place in self.operators.places], dtype=bool)
        return elsewhere & (np.nan_to_num(self.operators.flops) > 0)

    @cached_property
    def contractions(self) -> Mask:
        """Mask of launches that may compute contractions, and whose FLOPs are not in doubt."""
        other = self.outside_formulas | self.launches.named(SPLIT_K_SUM) | (self.launches.doubtful_flops > 0)
        return np.asarray(~other)

    @cached_property
    def kernels(self) -> PaddedKernels:
        """The launches with a tile in their name, beside their operators."""
        return PaddedKernels(self.launches, self.operators, self.iterations)

    @cached_property
    def padded(self) -> dict[int, Floats]:
        """Tile size -> FLOPs of each operator padded to it."""
        calls = list(zip(self.operators.names, self.operators.shapes, self.operators.flops.tolist(), strict=True))
        return {tile: np.array([padded_flops(*call, tile) for call in calls]) for tile in TILES}


@dataclass(frozen=True)
class Evidence:
    """One row of a comparison: its launches, its operators, and measured / expected FLOPs."""

    work: BothSides
    launches: Places
    operators: Places
    expected_flops: float
    ratio: float

    def count(self, where: Mask) -> int:
        """The number of launches of this row in `where`."""
        return int(np.count_nonzero(where[self.launches]))

    @cached_property
    def kernels(self) -> list[PaddedKernel]:
        """The launches of this row with a tile in their name, beside their operators."""
        mine = set(self.launches.tolist())
        places = dict.fromkeys(self.work.launches.places[row] for row in self.launches.tolist())
        found = [kernel for place in places for kernel in self.work.kernels.at(place) if kernel.launch in mine]
        return [kernel for kernel in found if self.work.contractions[kernel.launch]]

    def named(self, pattern: re.Pattern[str]) -> int:
        """The number of launches of this row whose kernel name matches."""
        return self.count(self.work.launches.named(pattern))

    def of_all(self, number: int) -> str:
        """ "3 of 62 launches"."""
        return f"{number:,} of {counted(len(self.launches), 'launch', 'launches')}"

    def measured(self, flops: Floats, where: Mask) -> float:
        """FLOPs per iteration of the launches of this row in `where`."""
        chosen = self.launches[where[self.launches]]
        return float(np.nansum(flops[chosen])) / self.work.iterations

    def expected(self, flops: Floats, where: Callable[[str], bool] = lambda name: True) -> float:
        """FLOPs of the operators of this row whose name satisfies `where`."""
        names = self.work.operators.names
        return sum(float(flops[row]) for row in self.operators.tolist() if where(names[row]))

    def explains(self, extra: float) -> bool:
        """True if `extra` FLOPs are a telling share of the difference."""
        return extra >= TELLING_SHARE * abs(self.ratio - 1) * self.expected_flops

    def share(self, flops: float) -> str:
        """FLOPs as text, with their share of the expected."""
        return f"{scaled(flops, 'FLOP')}, {digits(flops / self.expected_flops)} of the expected"


@dataclass(frozen=True)
class Verdict:
    """Whether a cause fits, with the evidence, and the FLOPs that it explains, None if unknown."""

    fits: bool
    reason: str
    flops: float | None = None


@dataclass(frozen=True)
class Cause:
    """A known cause: short and long name, whether it lowers or raises measured FLOPs, and its test."""

    name: str
    title: str
    direction: str
    judge: Callable[[Evidence], Verdict]


def _winograd(evidence: Evidence) -> Verdict:
    number = evidence.named(WINOGRAD)
    if not number:
        return Verdict(False, "no kernel of that name")
    convolutions = evidence.expected(evidence.work.operators.flops, lambda name: "convolution" in name)
    least = 1 - convolutions / evidence.expected_flops * (1 - 1 / WINOGRAD_SAVES)
    reason = f"{evidence.of_all(number)} are Winograd kernels"
    if evidence.ratio < least:
        return Verdict(False, f"{reason}, which cannot bring the ratio below {digits(least)}")
    return Verdict(True, f"{reason}, which multiply less: 2.25 to 4 times for 3x3 filters")


def _fft(evidence: Evidence) -> Verdict:
    number = evidence.named(FFT)
    if not number:
        return Verdict(False, "no FFT or complex kernel")
    return Verdict(True, f"{evidence.of_all(number)} are FFT or complex kernels")


def _not_collected(evidence: Evidence) -> Verdict:
    launches = evidence.work.launches
    number = evidence.count(launches.is_lower_bound)
    if not number:
        return Verdict(False, "every launch has them")
    missing = sorted({launches.bases[row].lacking for row in evidence.launches.tolist()} - {""})
    return Verdict(True, f"{' / '.join(missing)} in {evidence.of_all(number)}: the measured FLOPs are a lower bound")


def _filtered(evidence: Evidence) -> Verdict:
    collection = evidence.work.collection
    filters = list(collection.filters or ()) + ["the run ended early"] * collection.partial
    lost = evidence.operators[evidence.work.unmeasured[evidence.operators]]
    flops = float(np.nansum(evidence.work.operators.flops[lost]))
    without = f"modules without any launch hold {evidence.share(flops)}" if len(lost) else ""
    if filters:
        return Verdict(True, "; ".join(filter(None, (", ".join(filters), without))))
    unknown = "no manifest says whether any were" if collection.filters is None else "no filter was asked for"
    return Verdict(False, f"{unknown}, yet {without}" if without else unknown)


def _sparse(evidence: Evidence) -> Verdict:
    launches = evidence.work.launches
    number = evidence.count(launches.named(SPARSE) | launches.ran_sparse)
    if not number:
        return Verdict(False, "no sparse kernel or counter")
    return Verdict(True, f"{evidence.of_all(number)} are sparse; products with zeros may be left out")


def _causal_mask(evidence: Evidence) -> Verdict:
    skipping = [kernel for kernel in evidence.kernels if kernel.direction == ATTENTION and kernel.skips]
    if not skipping:
        return Verdict(False, "no attention kernel left out tiles")
    return Verdict(True, _tile_ratios_text(skipping))


def _padding(evidence: Evidence) -> Verdict:
    """By the tiles in kernel names; if none has one, by usual tiles."""
    if not evidence.kernels:
        return _padding_to_usual_tiles(evidence)
    more = sum(kernel.padded - kernel.expected for kernel in evidence.kernels if kernel.matches and not kernel.skips)
    more /= evidence.work.iterations
    return Verdict(evidence.explains(more), _tile_ratios_text(evidence.kernels), more)


def _tile_ratios_text(kernels: list[PaddedKernel]) -> str:
    """Tiles with computed and measured FLOPs, each as a ratio to the operator's FLOPs; their sums if many."""
    texts = list(dict.fromkeys(_tile_text(kernel) for kernel in kernels))
    if len(texts) <= TILES_TOLD:
        return "; ".join(texts)
    matching = [kernel for kernel in kernels if kernel.matches]
    words = []
    if matching:
        expected, padded, measured = np.array([(one.expected, one.padded, one.measured) for one in matching]).sum(
            axis=0
        )
        given = f"{padded / expected:.3f} of their operators' FLOPs, measured {measured / expected:.3f}"
        words.append(f"the tiles of {counted(len(matching), 'kernel', 'kernels')} give {given}")
    if others := len(kernels) - len(matching):
        words.append(f"{counted(others, 'kernel has', 'kernels have')} other FLOPs than their tile gives")
    return "; ".join(words)


def _tile_text(kernel: PaddedKernel) -> str:
    """ "the dgrad tile of 128x64x32 in clusters of 2x1 gives 1.020, measured 1.020"."""
    of_direction = f"{kernel.direction} " if kernel.direction else ""
    padded, measured = kernel.padded / kernel.expected, kernel.measured / kernel.expected
    but = "" if kernel.matches else "but "
    return f"the {of_direction}tile of {kernel.tile}{kernel.words} gives {padded:.3f}, {but}measured {measured:.3f}"


def _padding_to_usual_tiles(evidence: Evidence) -> Verdict:
    expected = evidence.expected_flops
    factors = {tile: evidence.expected(padded) / expected for tile, padded in evidence.work.padded.items()}
    products = evidence.measured(evidence.work.launches.product_flops, evidence.work.contractions)
    reason = " and ".join(f"tiles of {tile} would give {factor:.3f}" for tile, factor in factors.items())
    reason += f"; the contractions alone are at {products / expected:.3f}"
    return Verdict(evidence.explains(products - expected) and products <= max(factors.values()) * expected, reason)


def _beside_products(evidence: Evidence) -> Verdict:
    launches, contractions = evidence.work.launches, evidence.work.contractions
    flops = evidence.measured(launches.flops - launches.product_flops, contractions)
    return Verdict(evidence.explains(flops), evidence.share(flops) if flops else "none was counted", flops)


def _recomputation(evidence: Evidence) -> Verdict:
    number = evidence.named(ATTENTION_BACKWARD)
    if not number:
        return Verdict(False, "no fused attention backward kernel")
    operators = evidence.work.operators
    names = {operators.names[row] for row in evidence.operators.tolist()}
    if any(name.startswith("_scaled_dot_product") and name.endswith("_backward") for name in names):
        return Verdict(False, "the expected FLOPs already count it")
    reason = f"{evidence.of_all(number)} are fused attention backward kernels, which compute the scores again"
    backward = np.array([phase == "backward" for phase, _ in operators.places], dtype=bool)
    plain = evidence.expected(np.where(backward, operators.flops, 0.0), lambda name: name in ("bmm", "baddbmm"))
    extra = plain * (FUSED_OVER_PLAIN_BACKWARD - 1)
    if not extra:
        return Verdict(True, reason)
    return Verdict(evidence.explains(extra), f"{reason}: five products for four, {evidence.share(extra)}", extra)


def _split_k(evidence: Evidence) -> Verdict:
    launches = evidence.work.launches
    number = evidence.named(SPLIT_K)
    if not number:
        return Verdict(False, "no split-K kernel")
    sums = evidence.measured(launches.flops, launches.named(SPLIT_K_SUM))
    if sums:
        reason = f"{evidence.of_all(number)} are split-K kernels; adding up their parts took {evidence.share(sums)}"
        return Verdict(evidence.explains(sums), reason, sums)
    # One addition per result and part; a part is at least one slice of the inner dimension deep.
    most = evidence.measured(launches.flops, launches.named(SPLIT_K)) / (2 * SLICE)
    reason = (
        f"{evidence.of_all(number)} are split-K kernels; adding up their parts takes at most {evidence.share(most)}"
    )
    return Verdict(evidence.explains(most), reason)


def _elementwise(evidence: Evidence) -> Verdict:
    """Fits by the FLOPs of launches outside contractions, or if measured FLOPs equal all operators' by shapes."""
    work = evidence.work
    flops = evidence.measured(work.launches.cuda_core_flops, work.outside_formulas)
    reason = evidence.share(flops) if flops else "no launch outside the contractions has FLOPs"
    everything = evidence.expected(np.nan_to_num(work.operators.all_flops))
    if everything <= evidence.expected_flops:
        return Verdict(bool(flops) and evidence.explains(flops), reason, flops)
    ratio = evidence.ratio * evidence.expected_flops / everything
    reason += f"; with element-wise operators by their shapes the ratio is {ratio:.3f}"
    if LOW <= ratio <= HIGH:
        return Verdict(True, reason)
    return Verdict(bool(flops) and evidence.explains(flops), reason, flops)


def _constant_moves(evidence: Evidence) -> Verdict:
    launches = evidence.work.launches
    number = evidence.count(launches.doubtful_flops > 0)
    if not number:
        return Verdict(False, "no launch is in doubt")
    flops = evidence.measured(launches.doubtful_flops, launches.doubtful_flops > 0)
    return Verdict(
        evidence.explains(flops), f"{evidence.of_all(number)} may be such, with {evidence.share(flops)}", flops
    )


CAUSES = (
    Cause("Winograd", "Winograd convolution", BELOW, _winograd),
    Cause("FFT", "FFT convolution", EITHER, _fft),
    Cause("not collected", "tensor or other FLOP metrics not collected", BELOW, _not_collected),
    Cause("filtered out", "launches filtered out", BELOW, _filtered),
    Cause("sparse", "sparse kernels", BELOW, _sparse),
    Cause("causal mask", "attention under a causal mask", BELOW, _causal_mask),
    Cause("padding", "padding to tile size", ABOVE, _padding),
    Cause("recomputation", "recomputation", ABOVE, _recomputation),
    Cause("split-K", "split-K", ABOVE, _split_k),
    Cause("element-wise", "element-wise work beside contractions", ABOVE, _elementwise),
    Cause("beside products", "additions and scaling in addition to products", ABOVE, _beside_products),
    Cause("constant moves", "constant moves counted as FP16", ABOVE, _constant_moves),
)


@dataclass(frozen=True)
class Explanation:
    """The names of the causes that fit, a sentence on them, and one on the others."""

    fitting: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()


def _without_cause(evidence: Evidence, verdicts: list[Verdict]) -> str:
    """The share of a difference that no cause explains, as text: "" if small, or if a cause's share is unknown."""
    if any(verdict.fits and verdict.flops is None for verdict in verdicts):
        return ""
    known = sum(verdict.flops or 0.0 for verdict in verdicts)
    left = (evidence.ratio - 1) * evidence.expected_flops - known
    return f" No known cause for {evidence.share(left)}." if evidence.ratio > 1 and evidence.explains(left) else ""


def explain(evidence: Evidence) -> Explanation:
    """Explain a ratio outside `LOW` to `HIGH` by the known causes; empty for one inside."""
    if LOW <= evidence.ratio <= HIGH:
        return Explanation()
    direction, other = (BELOW, "raise") if evidence.ratio < LOW else (ABOVE, "lower")
    possible = [cause for cause in CAUSES if cause.direction in (direction, EITHER)]
    verdicts = [(cause, cause.judge(evidence)) for cause in possible]
    fits = [f"{cause.title} ({verdict.reason})" for cause, verdict in verdicts if verdict.fits]
    unknown = _without_cause(evidence, [verdict for _, verdict in verdicts])
    rest = [f"{cause.title} ({verdict.reason})" for cause, verdict in verdicts if not verdict.fits]
    opposite = ", ".join(cause.title for cause in CAUSES if cause not in possible)
    first = f"Fits: {'; '.join(fits)}.{unknown}" if fits else "No known cause fits."
    second = "; ".join([*rest, f"{opposite} ({'each' if ',' in opposite else 'it'} would {other} the ratio)"])
    return Explanation(
        tuple(cause.name for cause, verdict in verdicts if verdict.fits), (first, f"Does not fit: {second}.")
    )
