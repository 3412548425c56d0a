"""Pair the kernels of two runs: by full name, and after a rename by other common properties.

An updated library gives its kernels new template arguments, and a rewritten kernel has a new name, grid and block. The
rules are tried from certain to likely, each on the kernels left by earlier rules: pairs that the user names; full
names; short name, grid, block and NVTX range; grid, block and range alone; grid and block of the only kernel left in
each run; names that begin alike. If two candidates are equally good, nothing is paired. Ranges are compared only if
both runs have any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from ncu_parsers.schema.tables import short_name

from ncu_tools.kernels.matching.asked_pairs import AskedPair
from ncu_tools.kernels.matching.launch_signatures import Codes, Signatures
from ncu_tools.kernels.matching.similar_names import argument_words, shared_words, words_of
from ncu_tools.kernels.names.kernel_name_spelling import normalised_name

ASKED = "--pair"
BY_NAME = "name"
BY_SHORT_NAME = "short name, grid, block, range"
BY_SHORT_NAME_ALONE = "short name, grid, block"
BY_PLACE = "grid, block, range"
THE_ONLY_ONES = "grid, block, the only kernel left in each run"
BETWEEN_NAMES = " / "
MOST_ALIKE = 50
"""If more kernels have names that begin alike, they are not paired by name."""


@dataclass(frozen=True)
class Pair:
    """A kernel of one run or of both: its name, its name in the base if that differs, and the evidence for the pair.

    `matched_by` is None if only one run has it.
    """

    kernel: str
    was: str | None
    matched_by: str | None


@dataclass
class Pairing:
    """The pairs, and for each signature of both runs the index of its pair (`base`, `new`) and of its stratum.

    A stratum shares pair, grid, block and NVTX range, without numbers of iterations.
    """

    pairs: list[Pair]
    base: Codes
    new: Codes
    base_strata: Codes
    new_strata: Codes


def pair_kernels(base: Signatures, new: Signatures, asked: Sequence[AskedPair] = ()) -> Pairing:
    """Pair the kernels of two runs; every signature of both belongs to one pair.

    Signatures are in the order of their first launches. `asked` pairs come first.
    """
    empty = np.empty(0, np.int64)
    pairing = Pairing(
        [], np.full(len(base.name_codes), -1, np.int64), np.full(len(new.name_codes), -1, np.int64), empty, empty
    )
    with_ranges = all(any(side.ranges) for side in (base, new))
    _pair_asked(pairing, base, new, asked)
    _pair_by_name(pairing, base, new)
    _pair_by_launch(pairing, base, new, with_ranges)
    _pair_the_only_ones(pairing, base, new, with_ranges)
    _pair_similar(pairing, base, new, with_ranges)
    for side, codes, is_base in ((base, pairing.base, True), (new, pairing.new, False)):
        _add_unpaired(pairing, side, codes, is_base=is_base)
    strata: dict[Hashable, int] = {}
    with_shapes = all(any(side.shapes) for side in (base, new))
    pairing.base_strata = _strata(pairing.base, base, strata, with_shapes, with_ranges)
    pairing.new_strata = _strata(pairing.new, new, strata, with_shapes, with_ranges)
    return pairing


def _pair_asked(pairing: Pairing, base: Signatures, new: Signatures, asked: Sequence[AskedPair]) -> None:
    for pair in asked:
        ours, theirs = (
            [row for row, code in enumerate(side.name_codes.tolist()) if side.names[code] in names]
            for side, names in ((base, pair.old), (new, pair.new))
        )
        if ours and theirs:
            _add(pairing, Pair(_names(new, theirs), _names(base, ours), ASKED), ours, theirs)


def _add(pairing: Pairing, pair: Pair, ours: list[int], theirs: list[int]) -> None:
    pairing.base[ours] = pairing.new[theirs] = len(pairing.pairs)
    pairing.pairs.append(pair)


def _pair_by_name(pairing: Pairing, base: Signatures, new: Signatures) -> None:
    ours, theirs = (
        {normalised_name(side.names[code]): code for code in _used(side, codes)}
        for side, codes in ((base, pairing.base), (new, pairing.new))
    )
    shared = [spelling for spelling in theirs if spelling in ours]
    number = {spelling: len(pairing.pairs) + place for place, spelling in enumerate(shared)}
    pairing.pairs += [Pair(new.names[theirs[spelling]], None, BY_NAME) for spelling in shared]
    for side, codes in ((base, pairing.base), (new, pairing.new)):
        by_code = np.array([number.get(normalised_name(name), -1) for name in side.names], np.int64)
        open_rows = codes < 0
        codes[open_rows] = by_code[side.name_codes[open_rows]]


def _used(side: Signatures, pairs: Codes) -> list[int]:
    """The name codes of launches without a pair, in the order of their first launch."""
    codes, first = np.unique(side.name_codes[pairs < 0], return_index=True)
    found: list[int] = codes[np.argsort(first)].tolist()
    return found


def _pair_by_launch(pairing: Pairing, base: Signatures, new: Signatures, with_ranges: bool) -> None:
    """Pair launches with unpaired names by a key that exactly one kernel of each run has, in place."""
    by_short = BY_SHORT_NAME if with_ranges else BY_SHORT_NAME_ALONE
    for title in (by_short, BY_PLACE) if with_ranges else (by_short,):
        ours = _open_by_key(pairing.base, base, with_ranges, named=title != BY_PLACE)
        theirs = _open_by_key(pairing.new, new, with_ranges, named=title != BY_PLACE)
        numbers: dict[Pair, int] = {}
        for key in theirs:
            if key not in ours:
                continue
            before, after = _names(base, ours[key]), _names(new, theirs[key])
            if BETWEEN_NAMES in before + after:
                continue
            pair = Pair(after, before, title)
            number = numbers.setdefault(pair, len(pairing.pairs))
            if number == len(pairing.pairs):
                pairing.pairs.append(pair)
            pairing.base[ours[key]] = number
            pairing.new[theirs[key]] = number


def _open_by_key(codes: Codes, side: Signatures, with_ranges: bool, *, named: bool) -> dict[Hashable, list[int]]:
    """The launches without a pair, by short name, shape and range as far as these are known."""
    found: dict[Hashable, list[int]] = {}
    for row in np.flatnonzero(codes < 0).tolist():
        shape, path = side.shapes[row], side.ranges[row]
        if shape is None or (with_ranges and not named and not path):
            continue
        name = side.names[side.name_codes[row]]
        called = (short_name(name), None if with_ranges else argument_words(name)) if named else None
        found.setdefault((called, shape, path if with_ranges else None), []).append(row)
    return found


@dataclass(frozen=True)
class _Unpaired:
    """The launches of a kernel that have no pair yet."""

    name: str
    rows: list[int]
    shapes: frozenset[Hashable]
    ranges: frozenset[Hashable]


def _unpaired(codes: Codes, side: Signatures) -> list[_Unpaired]:
    found: dict[str, list[int]] = {}
    for row in np.flatnonzero(codes < 0).tolist():
        found.setdefault(side.names[side.name_codes[row]], []).append(row)
    return [
        _Unpaired(name, rows, frozenset(side.shapes[row] for row in rows), frozenset(side.ranges[row] for row in rows))
        for name, rows in found.items()
    ]


def _pair_the_only_ones(pairing: Pairing, base: Signatures, new: Signatures, with_ranges: bool) -> None:
    ours, theirs = _unpaired(pairing.base, base), _unpaired(pairing.new, new)
    if len(ours) == len(theirs) == 1 and not shared_words(ours[0].name, theirs[0].name):
        one, other = ours[0], theirs[0]
        if one.shapes == other.shapes and None not in one.shapes and (one.ranges == other.ranges or not with_ranges):
            _add(pairing, Pair(other.name, one.name, THE_ONLY_ONES), one.rows, other.rows)


def _pair_similar(pairing: Pairing, base: Signatures, new: Signatures, with_ranges: bool) -> None:
    """Pair kernels whose names begin alike, if each is the best candidate of the other and no other is as good."""
    ours, theirs = _unpaired(pairing.base, base), _unpaired(pairing.new, new)
    likeness = _likenesses(ours, theirs, with_ranges)
    rivals = [Counter(pair[side] for pair in likeness) for side in (0, 1)]
    while best := _mutual_best(likeness):
        for at, to in best:
            one, other = ours[at], theirs[to]
            alone = rivals[0][at] == rivals[1][to] == 1
            _add(pairing, Pair(other.name, one.name, _evidence(one, other, alone)), one.rows, other.rows)
        taken = [{pair[side] for pair in best} for side in (0, 1)]
        likeness = {pair: how for pair, how in likeness.items() if pair[0] not in taken[0] and pair[1] not in taken[1]}


def _evidence(one: _Unpaired, other: _Unpaired, alone: bool) -> str:
    same = "short name" if short_name(one.name) == short_name(other.name) else ""
    alike = same or f"similar name ({'_'.join(shared_words(one.name, other.name))})"
    found = [alike, *(["grid, block"] if one.shapes == other.shapes else [])]
    return ", ".join([*found, "only candidate" if alone else "closest"])


def _likenesses(
    ours: list[_Unpaired], theirs: list[_Unpaired], with_ranges: bool
) -> dict[tuple[int, int], tuple[int, bool]]:
    """Index pairs of candidates -> the number of words they share, and whether grids and blocks are equal."""
    alike: dict[str, tuple[list[int], list[int]]] = {}
    for side, kernels in enumerate((ours, theirs)):
        for place, one in enumerate(kernels):
            for first in words_of(one.name)[:1]:
                alike.setdefault(first, ([], []))[side].append(place)
    counts = [Counter(word for one in side for word in set(words_of(one.name))) for side in (ours, theirs)]
    found = {}
    for before, after in alike.values():
        for at, to in ((at, to) for at in before for to in after if max(len(before), len(after)) <= MOST_ALIKE):
            one, other = ours[at], theirs[to]
            shared = shared_words(one.name, other.name)
            apart = with_ranges and not one.ranges & other.ranges
            if shared and not apart and not _may_be_of_several(one.name, other.name, counts):
                found[at, to] = len(shared), one.shapes == other.shapes
    return found


def _may_be_of_several(one: str, other: str, counts: list[Counter[str]]) -> bool:
    """True if a name has a word of another kernel left in the other run: `add_relu` of `add` and `relu`."""
    ours, theirs = set(words_of(one)), set(words_of(other))
    return any(counts[0][word] for word in theirs - ours) or any(counts[1][word] for word in ours - theirs)


def _mutual_best(likeness: dict[tuple[int, int], tuple[int, bool]]) -> list[tuple[int, int]]:
    """The pairs that are more alike than any other pair with one of their two kernels."""
    best: tuple[dict[int, list[tuple[int, int]]], ...] = ({}, {})
    for pair, how in likeness.items():
        for side, of_side in enumerate(best):
            known = of_side.setdefault(pair[side], [pair])
            if how > likeness[known[0]]:
                of_side[pair[side]] = [pair]
            elif how == likeness[known[0]] and pair != known[0]:
                known.append(pair)
    return [pair for pair in likeness if best[0][pair[0]] == best[1][pair[1]] == [pair]]


def _names(side: Signatures, rows: list[int]) -> str:
    return BETWEEN_NAMES.join(sorted({side.names[side.name_codes[row]] for row in rows}))


def _add_unpaired(pairing: Pairing, side: Signatures, codes: Codes, *, is_base: bool) -> None:
    """Make a pair of one side for each kernel that the other run lacks, in place."""
    for code in _used(side, codes):
        codes[(side.name_codes == code) & (codes < 0)] = len(pairing.pairs)
        name = side.names[code]
        pairing.pairs.append(Pair(name, name if is_base else None, None))


def _strata(codes: Codes, side: Signatures, known: dict[Hashable, int], with_shapes: bool, with_ranges: bool) -> Codes:
    """The index of each signature's stratum; shapes and ranges that only one run knows are ignored."""
    none = [None] * len(codes)
    keys = zip(codes.tolist(), side.shapes if with_shapes else none, side.ranges if with_ranges else none, strict=True)
    return np.array([known.setdefault(key, len(known)) for key in keys], np.int64)
