"""Match counted launches to launches of a timeline by their signatures.

A signature is the kernel's name, grid, block and NVTX range. Not every report has all of these and not every tool
spells names alike, so keys are tried from strict to loose, and a launch takes the first key that it shares with any
counted launch. A bare function name stands for every instance of a template, so short names are compared only if one of
the two is already bare, and names without shapes only if one side has no shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import Floats, short_name

from ncu_tools.kernels.names.kernel_name_spelling import drop_parameters, is_bare, normalised_name

Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

COPIES = ("memcpy", "memset")
_ITERATION = re.compile(r"iteration \d+|ProfilerStep#\d+")


@dataclass(frozen=True)
class Key:
    """The parts of signatures to compare; with `bare` or `shapeless`, one of the two sides must be so."""

    title: str
    parts: tuple[str, ...]
    bare: bool = False
    shapeless: bool = False


KEYS = (
    Key("name, grid, block, range", ("name", "shape", "range")),
    Key("name, grid, block", ("name", "shape")),
    Key("name without parameters, grid, block", ("function", "shape")),
    Key("short name, grid, block", ("short", "shape"), bare=True),
    Key("name", ("name",), shapeless=True),
    Key("name without parameters", ("function",), shapeless=True),
    Key("short name", ("short",), bare=True, shapeless=True),
)
_SPELLINGS: dict[str, Callable[[str], str]] = {
    "name": normalised_name,
    "function": drop_parameters,
    "short": short_name,
}


@dataclass(frozen=True)
class Signatures:
    """Signatures as columns; a shape or range is None if unknown."""

    name_codes: Codes
    names: list[str]
    shapes: list[Hashable]
    ranges: list[Hashable]


@dataclass(frozen=True)
class LaunchSignatures(Signatures):
    """The launches of one side as columns: their signatures, and where they ran."""

    table: pa.Table
    lanes: Codes
    weight: Floats
    is_kernel: Mask
    start: Floats

    @property
    def bare(self) -> Mask:
        """Mask of launches whose kernel name is a bare function name."""
        return np.array([is_bare(name) for name in self.names], dtype=bool)[self.name_codes]

    @property
    def shapeless(self) -> Mask:
        """Mask of launches without grid or block."""
        return np.array([shape is None for shape in self.shapes], dtype=bool)


def launches_of(table: pa.Table) -> LaunchSignatures:
    """The signatures of a table of launches.

    Ranges that number iterations are left out, since they differ between launches of the same work. `lanes` are
    process, rank and device as one number, within which launches are ordered; `start` is NaN for launches without a
    start.
    """
    codes, names = tables.codes(table, "kernel_name")
    grids, blocks, paths = (table.column(name).to_pylist() for name in ("grid", "block", "nvtx_path"))
    lanes = (table.column(name).to_pylist() for name in ("process_id", "rank", "device_id"))
    return LaunchSignatures(
        codes.astype(np.int64),
        [name or "?" for name in names],
        [_shape(grid, block) for grid, block in zip(grids, blocks, strict=True)],
        [None if path is None else _drop_iterations(path) for path in paths],
        table,
        _numbered(zip(*lanes, strict=True)),
        tables.launch_counts(table),
        ~is_one_of(table, "operation", COPIES),
        tables.floats(table, "start_ns"),
    )


class LaunchSignature(NamedTuple):
    """Kernel, grid and block, and NVTX range of launches, whatever their iteration."""

    name: str
    shape: Hashable
    range: Hashable


def signatures_in(table: pa.Table) -> tuple[Codes, list[LaunchSignature]]:
    """For each launch the index of its signature, and the signatures in the order of their first launches."""
    name_codes, names = tables.codes(table, "kernel_name")
    columns = [name_codes.astype(np.int64)]
    lists: list[list[tuple[Any, ...] | None]] = []
    for column in ("grid", "block", "nvtx_path"):
        codes, values = tables.list_codes(table, column)
        columns.append(codes)
        lists.append(values)
    grids, blocks, paths = lists
    combined, _ = _combined(columns, len(table))
    _, first, codes = np.unique(combined, return_index=True, return_inverse=True)
    order = np.argsort(first)
    places = first[order]
    without: list[Hashable] = [None if path is None else _drop_iterations(path) for path in paths]
    rows = zip(*(column[places].tolist() for column in columns), strict=True)
    signatures = [
        LaunchSignature(names[name] or "?", _shape(grids[grid], blocks[block]), without[path])
        for name, grid, block, path in rows
    ]
    known: dict[LaunchSignature, int] = {}
    numbers = np.empty(len(first), np.int64)
    numbers[order] = [known.setdefault(signature, len(known)) for signature in signatures]
    return numbers[codes], list(known)


def signatures_of(distinct: Sequence[LaunchSignature]) -> Signatures:
    """Distinct signatures as columns."""
    names: dict[str, int] = {}
    codes = np.array([names.setdefault(one.name, len(names)) for one in distinct], np.int64)
    return Signatures(codes, list(names), [one.shape for one in distinct], [one.range for one in distinct])


def is_one_of(table: pa.Table, name: str, words: Collection[str]) -> Mask:
    """Mask of the rows whose text is one of `words`."""
    codes, values = tables.codes(table, name)
    wanted: Mask = np.array([value in words for value in values], dtype=bool)[codes]
    return wanted


def _shape(grid: Sequence[int] | None, block: Sequence[int] | None) -> Hashable:
    """Grid and block as one tuple, None if either is unknown."""
    return (*grid, *block) if grid and block else None


def _drop_iterations(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in path if not _ITERATION.fullmatch(name))


@dataclass
class Matching:
    """Groups of launches that share a key.

    For each launch of the timeline: `group` is the index of its group, `key` the index of the key in `KEYS`, `partner`
    the index of the counted launch of the same order; -1 for none. `members` are counted launches and `member_group`
    the group of each; a counted launch can be in several.
    """

    group: Codes
    key: Codes
    partner: Codes
    members: Codes = field(default_factory=lambda: np.empty(0, np.int64))
    member_group: Codes = field(default_factory=lambda: np.empty(0, np.int64))
    groups: int = 0


def match(counted: LaunchSignatures, timed: LaunchSignatures) -> Matching:
    """Match each launch of the timeline to the counted launches with the strictest key that it shares with any."""
    none = np.full(len(timed.table), -1, np.int64)
    result = Matching(none, none.copy(), none.copy())
    parts = _parts(counted, timed)
    for place, key in enumerate(KEYS):
        ours, theirs = _combined([parts[name] for name in key.parts], len(counted.table))
        for counted_wanted, timed_wanted in _wanted(key, counted, timed):
            _take(
                result, place, counted, timed,
                np.where(counted_wanted & counted.is_kernel, ours, -1),
                np.where(timed_wanted & timed.is_kernel, theirs, -1),
            )  # fmt: skip
    return result


def _wanted(key: Key, counted: LaunchSignatures, timed: LaunchSignatures) -> Iterable[tuple[Mask, Mask]]:
    """Masks of the launches of both sides that a key may match, once per side that may be bare or shapeless."""
    of_counted, of_timed = np.ones(len(counted.table), dtype=bool), np.ones(len(timed.table), dtype=bool)
    if not key.bare and not key.shapeless:
        return [(of_counted, of_timed)]
    asked_counted = (counted.bare if key.bare else of_counted) & (counted.shapeless if key.shapeless else of_counted)
    asked_timed = (timed.bare if key.bare else of_timed) & (timed.shapeless if key.shapeless else of_timed)
    return [(asked_counted, of_timed), (of_counted, asked_timed)]


def _parts(counted: LaunchSignatures, timed: LaunchSignatures) -> dict[str, Codes]:
    """Part of keys -> codes of the counted launches followed by those of the timeline; -1 if unknown."""
    sides = (counted, timed)
    found = {}
    for name, spelling in _SPELLINGS.items():
        known: dict[Hashable, int] = {}
        numbers = [np.array([_number(known, spelling(one)) for one in side.names], np.int64) for side in sides]
        found[name] = np.concatenate([one[side.name_codes] for one, side in zip(numbers, sides, strict=True)])
    found["shape"] = _numbered([*counted.shapes, *timed.shapes])
    found["range"] = _numbered([*counted.ranges, *timed.ranges])
    return found


def _numbered(values: Iterable[Hashable]) -> Codes:
    known: dict[Hashable, int] = {}
    return np.array([_number(known, value) for value in values], np.int64)


def _number(known: dict[Hashable, int], value: Hashable) -> int:
    return -1 if value is None else known.setdefault(value, len(known))


def _combined(parts: Sequence[Codes], first: int) -> tuple[Codes, Codes]:
    """Several codes per launch combined into one, split after the `first` launches; -1 if any is unknown."""
    combined, unknown = parts[0], parts[0] < 0
    for part in parts[1:]:
        unknown = unknown | (part < 0)
        wide = combined * (part.max(initial=0) + 1) + part
        combined = np.unique(np.where(unknown, 0, wide), return_inverse=True)[1].astype(np.int64)
    combined = np.where(unknown, -1, combined)
    return combined[:first], combined[first:]


def _take(
    result: Matching, place: int, counted: LaunchSignatures, timed: LaunchSignatures, ours: Codes, theirs: Codes
) -> None:
    """Assign the groups of one key to launches without a group, in place."""
    open_rows = (result.group < 0) & (theirs >= 0)
    shared = np.intersect1d(ours[ours >= 0], theirs[open_rows])
    if not len(shared):
        return
    counted_rows = np.flatnonzero(np.isin(ours, shared))
    timed_rows = np.flatnonzero(np.isin(theirs, shared))
    member_group = np.searchsorted(shared, ours[counted_rows])
    timed_group = np.searchsorted(shared, theirs[timed_rows])
    equals = _equals(counted, timed, counted_rows, member_group, timed_rows, timed_group, len(shared))
    fresh = open_rows[timed_rows]
    rows = timed_rows[fresh]
    result.partner[rows] = equals[fresh]
    result.group[rows] = result.groups + timed_group[fresh]
    result.key[rows] = place
    result.members = np.concatenate([result.members, counted_rows])
    result.member_group = np.concatenate([result.member_group, result.groups + member_group])
    result.groups += len(shared)


def _equals(
    counted: LaunchSignatures,
    timed: LaunchSignatures,
    counted_rows: Codes,
    counted_group: Codes,
    timed_rows: Codes,
    timed_group: Codes,
    groups: int,
) -> Codes:
    """For each of `timed_rows` the counted launch at the same position in its group, else -1.

    Positions are compared in groups with equally many single launches on both sides, all in one process and on one
    device.
    """
    same = np.bincount(counted_group, minlength=groups) == np.bincount(timed_group, minlength=groups)
    for side, rows, group in ((counted, counted_rows, counted_group), (timed, timed_rows, timed_group)):
        same[group[side.weight[rows] != 1]] = False
        lanes = side.lanes[rows]
        least, most = np.full(groups, lanes.max(initial=0)), np.zeros(groups, np.int64)
        np.minimum.at(least, group, lanes)
        np.maximum.at(most, group, lanes)
        same &= least == most
    ours, theirs = np.flatnonzero(same[counted_group]), np.flatnonzero(same[timed_group])
    ours = ours[np.argsort(counted_group[ours], kind="stable")]
    start = np.nan_to_num(timed.start[timed_rows[theirs]])
    theirs = theirs[np.lexsort((start, timed_group[theirs]))]
    result = np.full(len(timed_rows), -1, np.int64)
    result[theirs] = counted_rows[ours]
    return result
