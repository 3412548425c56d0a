"""Which kernels of one run are which of another: by their full name, and after a rename by what they are launched with.

A library that was updated gives its kernels new template arguments, or new names. The launches that no full name brings
together are tried by short name, grid, block and NVTX range, and then without any name, where one kernel of each run
is launched with that shape in that range. Ranges are compared only where both runs have any.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from ncu_parsers.tables import short_name

from ncu_tools.kernel_names import spelled_alike
from ncu_tools.signatures import Codes, Signatures

BY_NAME = "name"
BY_SHORT_NAME = "short name, grid, block, range"
BY_SHORT_NAME_ALONE = "short name, grid, block"
BY_PLACE = "grid, block, range"
BETWEEN_NAMES = " / "


@dataclass(frozen=True)
class Pair:
    """A kernel of one run or of both: its name, its name before if that was another, and what brought them together.

    `matched_by` is None where only one run has it.
    """

    kernel: str
    was: str | None
    matched_by: str | None


@dataclass
class Pairing:
    """Pairs, and of each signature of both runs the number of its pair and the number of its work.

    What is of one work has the pair, grid, block and NVTX range in common; numbers of iterations do not count.
    """

    pairs: list[Pair]
    base: Codes
    new: Codes
    base_work: Codes
    new_work: Codes


def pair_kernels(base: Signatures, new: Signatures) -> Pairing:
    """The kernels of two runs, brought together where they are the same; every signature of both is in one pair.

    Signatures stand in the order of their first launches.
    """
    pairing = _paired_by_name(base, new)
    _pair_renamed(pairing, base, new)
    for side, codes, is_base in ((base, pairing.base, True), (new, pairing.new, False)):
        _add_unpaired(pairing, side, codes, is_base=is_base)
    works: dict[Hashable, int] = {}
    pairing.base_work = _works(pairing.base, base, works)
    pairing.new_work = _works(pairing.new, new, works)
    return pairing


def _paired_by_name(base: Signatures, new: Signatures) -> Pairing:
    none = np.empty(0, np.int64)
    names = [{spelled_alike(side.names[code]): side.names[code] for code in _used(side)} for side in (base, new)]
    shared = [spelling for spelling in names[1] if spelling in names[0]]
    number = {spelling: place for place, spelling in enumerate(shared)}
    ours, theirs = (
        np.array([number.get(spelled_alike(name), -1) for name in side.names], np.int64)[side.name_codes]
        for side in (base, new)
    )
    return Pairing([Pair(names[1][spelling], None, BY_NAME) for spelling in shared], ours, theirs, none, none)


def _used(side: Signatures) -> list[int]:
    """The codes of names that launches have, in the order of their first launch."""
    codes, first = np.unique(side.name_codes, return_index=True)
    found: list[int] = codes[np.argsort(first)].tolist()
    return found


def _pair_renamed(pairing: Pairing, base: Signatures, new: Signatures) -> None:
    """Give launches whose name only one run has the pair of a key that both have, in place."""
    with_ranges = all(any(side.ranges) for side in (base, new))
    by_short = BY_SHORT_NAME if with_ranges else BY_SHORT_NAME_ALONE
    for title in (by_short, BY_PLACE) if with_ranges else (by_short,):
        ours = _open_by_key(pairing.base, base, with_ranges, named=title != BY_PLACE)
        theirs = _open_by_key(pairing.new, new, with_ranges, named=title != BY_PLACE)
        numbers: dict[Pair, int] = {}
        for key in theirs:
            if key not in ours:
                continue
            before, after = _names(base, ours[key]), _names(new, theirs[key])
            if title == BY_PLACE and BETWEEN_NAMES in before + after:
                continue
            pair = Pair(after, before, title)
            number = numbers.setdefault(pair, len(pairing.pairs))
            if number == len(pairing.pairs):
                pairing.pairs.append(pair)
            pairing.base[ours[key]] = number
            pairing.new[theirs[key]] = number


def _open_by_key(codes: Codes, side: Signatures, with_ranges: bool, *, named: bool) -> dict[Hashable, list[int]]:
    """The launches without a pair by what they are launched with, where that is known."""
    found: dict[Hashable, list[int]] = {}
    for row in np.flatnonzero(codes < 0).tolist():
        shape, path = side.shapes[row], side.ranges[row]
        if shape is None or (with_ranges and not named and not path):
            continue
        name = short_name(side.names[side.name_codes[row]]) if named else None
        found.setdefault((name, shape, path if with_ranges else None), []).append(row)
    return found


def _names(side: Signatures, rows: list[int]) -> str:
    return BETWEEN_NAMES.join(sorted({side.names[side.name_codes[row]] for row in rows}))


def _add_unpaired(pairing: Pairing, side: Signatures, codes: Codes, *, is_base: bool) -> None:
    """Make a pair of one side for each kernel that the other run lacks, in place."""
    for code in _used(side):
        rows = (side.name_codes == code) & (codes < 0)
        if rows.any():
            codes[rows] = len(pairing.pairs)
            name = side.names[code]
            pairing.pairs.append(Pair(name, name if is_base else None, None))


def _works(codes: Codes, side: Signatures, known: dict[Hashable, int]) -> Codes:
    works = zip(codes.tolist(), side.shapes, side.ranges, strict=True)
    return np.array([known.setdefault(work, len(known)) for work in works], np.int64)
