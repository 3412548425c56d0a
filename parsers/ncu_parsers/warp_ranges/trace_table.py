"""A trace as the table of `schema.warp_range_table`, in parts, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ncu_parsers.schema import arrays
from ncu_parsers.schema.tables import codes
from ncu_parsers.schema.warp_range_table import KINDS, LIFE, MARKER, RANGE, SUM, schema
from ncu_parsers.warp_ranges.warp_trace import (
    MISSING,
    NO_RANGES,
    Clock,
    Codes,
    Integers,
    RangeSum,
    TracedLaunch,
    WarpRanges,
    Warps,
    WarpTrace,
)

ROWS = 1 << 17
"""Rows of a part."""
Lines = Mapping[str, tuple[str, int]]
"""Name of a range -> the file and the line where it begins."""
NO_LINES: Lines = {}
_LIFE, _RANGE, _MARKER, _SUM = (KINDS.index(kind) for kind in (LIFE, RANGE, MARKER, SUM))


def tables_of(trace: WarpTrace, lines: Lines = NO_LINES) -> Iterator[pa.Table]:
    """The rows of a trace: lives of warps, ranges and markers, sums."""
    warps, ranges = trace.warps, trace.ranges
    alive = np.flatnonzero(warps.start != MISSING)
    nameless = np.full(len(alive), -1, np.int32)
    yield from _parts(trace, lines, alive, nameless, warps.start[alive], warps.end[alive])
    yield from _parts(trace, lines, ranges.warp, ranges.name, ranges.start, ranges.end)
    if trace.sums:
        yield _sums(trace)


def facts_of(trace: WarpTrace) -> dict[str, Any]:
    """The facts on a trace that the file's metadata holds beside the rows."""
    return {
        "tool": trace.tool, "clock": trace.clock.value, "lane": trace.lane, "is_aligned": trace.is_aligned,
        "launches": [
            {"kernel": one.kernel, "grid": list(one.grid), "block": list(one.block), "graph": one.graph}
            for one in trace.launches
        ],
        "files": list(trace.files), "notes": list(trace.notes), "damage": list(trace.damage),
    }  # fmt: skip


def _parts(
    trace: WarpTrace, lines: Lines, warp: Codes, name: Codes, start: Integers, end: Integers
) -> Iterator[pa.Table]:
    kernels = [one.kernel for one in trace.launches]
    places = [lines.get(one) for one in trace.names]
    files = [None if one is None else one[0] for one in places]
    line_of = np.array([-1 if one is None else one[1] for one in places] + [-1], np.int64)
    for low in range(0, len(warp), ROWS):
        row, named = warp[low : low + ROWS], name[low : low + ROWS]
        begin, until = start[low : low + ROWS], end[low : low + ROWS]
        launch = trace.warps.launch[row]
        kind = np.where(named < 0, _LIFE, np.where(until == MISSING, _MARKER, _RANGE)).astype(np.int32)
        of_warp = {field: getattr(trace.warps, field)[row] for field in ("sm", "tpc", "gpc")}
        yield pa.Table.from_arrays(
            [
                arrays.wholes(launch, pa.int32()), arrays.recoded(launch, kernels),
                arrays.wholes(trace.warps.block[row], pa.int64()), arrays.wholes(trace.warps.warp[row], pa.int32()),
                arrays.recoded(trace.warps.role[row], trace.roles), arrays.recoded(named, trace.names),
                arrays.recoded(kind, KINDS), arrays.wholes(begin, pa.int64()), arrays.wholes(until, pa.int64()),
                arrays.floats(np.full(len(row), np.nan)),
                *(arrays.wholes(np.maximum(of_warp[one], -1), pa.int32()) for one in ("sm", "tpc", "gpc")),
                arrays.recoded(named, files), arrays.wholes(line_of[named], pa.int32()),
            ],
            schema=schema(),
        )  # fmt: skip


def _sums(trace: WarpTrace) -> pa.Table:
    rows = len(trace.sums)
    nothing = np.full(rows, -1)
    launch = np.array([one.launch for one in trace.sums], np.int32)
    unknown, no_text = arrays.wholes(nothing, pa.int32()), arrays.recoded(nothing, [])
    return pa.Table.from_arrays(
        [
            arrays.wholes(launch, pa.int32()), arrays.recoded(launch, [one.kernel for one in trace.launches]),
            arrays.wholes(nothing, pa.int64()), unknown, no_text,
            arrays.dictionary(["/".join(one.path) for one in trace.sums]),
            arrays.recoded(np.full(rows, _SUM), KINDS), arrays.wholes(nothing, pa.int64()),
            arrays.wholes(nothing, pa.int64()), arrays.floats(np.array([one.cycles for one in trace.sums])),
            unknown, unknown, unknown, no_text, unknown,
        ],
        schema=schema(),
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- and back


def trace_of(facts: Mapping[str, Any], parts: Iterable[pa.Table]) -> tuple[WarpTrace, dict[str, tuple[str, int]]]:
    """The trace from `facts_of` and `tables_of`, and the lines of its ranges; column types must be checked before."""
    names: dict[str, int] = {}
    roles: dict[str, int] = {}
    lines: dict[str, tuple[str, int]] = {}
    sums: list[RangeSum] = []
    warps = _WarpsOfParts()
    columns: list[tuple[Codes, Codes, Integers, Integers]] = []
    for part in parts:
        if not len(part):
            continue
        kind = _numbered(part, "kind", {one: at for at, one in enumerate(KINDS)})
        named = _numbered(part, "range", names)
        _take_lines(part, lines)
        is_sum = kind == _SUM
        if is_sum.any():
            sums += _sums_in(part, is_sum)
        launch, block, warp, start, end = (_wholes(part, one) for one in ("launch", "block", "warp", "start", "end"))
        kept = ~is_sum & (kind >= 0) & (np.minimum.reduce([launch, block, warp]) >= 0) & (start != MISSING)
        places = [_numbered(part, "role", roles), *(_wholes(part, one) for one in ("sm", "tpc", "gpc"))]
        row = warps.rows([one[kept] for one in (launch, block, warp)], [one[kept] for one in places])
        kind, named, start, end = (one[kept] for one in (kind, named, start, end))
        is_life = kind == _LIFE
        warps.lives.update(zip(row[is_life].tolist(), zip(start[is_life].tolist(), end[is_life].tolist(), strict=True),
                               strict=True))  # fmt: skip
        kept = ~is_life & (named >= 0)
        columns.append((row[kept], named[kept].astype(np.int32), start[kept], end[kept]))
    found, number = warps.sorted()
    ranges = NO_RANGES
    if columns:
        row, named, start, end = (np.concatenate(one) for one in zip(*columns, strict=True))
        ranges = WarpRanges(number[row], named, start, end)
    last = max(int(found.launch.max(initial=-1)), max((one.launch for one in sums), default=-1))
    launches = _launches(facts, last + 1)
    trace = WarpTrace(
        str(facts.get("tool", "?")), launches, found, ranges, list(names), list(roles), sums,
        Clock.CYCLES if facts.get("clock") == Clock.CYCLES.value else Clock.NANOSECONDS,
        str(facts.get("lane", "warp")), facts.get("is_aligned") is not False,
        *(_texts(facts.get(key)) for key in ("files", "damage", "notes")),
    )  # fmt: skip
    return trace, lines


class _WarpsOfParts:
    """The warps of the parts so far, numbered by first appearance: role and place by their first row, and lives."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}
        self._places: list[tuple[int, ...]] = []
        self.lives: dict[int, tuple[int, int]] = {}

    def rows(self, keys: Sequence[Integers], places: Sequence[Integers]) -> Codes:
        """The numbers of warps by launch, block and warp; places are roles, SMs, TPCs and GPCs."""
        first, row = _distinct(keys)
        numbers = []
        whose = zip(*(one[first].tolist() for one in keys), strict=True)
        for key, place in zip(whose, zip(*(one[first].tolist() for one in places), strict=True), strict=True):
            number = self._numbers.setdefault(key, len(self._numbers))
            if number == len(self._places):
                self._places.append(place)
            numbers.append(number)
        return np.array(numbers, np.int32)[row]

    def sorted(self) -> tuple[Warps, Codes]:
        """The warps ordered by launch, block and warp, and the row of each by its number here."""
        keys = np.array(list(self._numbers), np.int64).reshape(-1, 3)
        places = np.array(self._places, np.int64).reshape(-1, 4)
        lives = np.full((len(keys), 2), MISSING)
        for number, life in self.lives.items():
            lives[number] = life
        order = np.lexsort(keys.T[::-1])
        known = dict(zip(("role", "sm", "tpc", "gpc"), places[order].T, strict=True))
        start, end = lives[order].T
        row_of = np.empty(len(order), np.int32)
        row_of[order] = np.arange(len(order), dtype=np.int32)
        return Warps.of(*keys[order].T, **known, start=start, end=end), row_of


def _distinct(columns: Sequence[Integers]) -> tuple[Integers, Integers]:
    """The first row of each combination of values, and the number of each row's combination."""
    keys = columns[0]
    for more in columns[1:]:
        keys = np.unique(keys, return_inverse=True)[1].reshape(-1) * np.int64(int(more.max(initial=0)) + 1) + more
    _, first, row = np.unique(keys, return_index=True, return_inverse=True)
    return first, row.reshape(-1)


def _numbered(part: pa.Table, name: str, known: dict[str, int]) -> Integers:
    """The number of each text in `known`, which grows; -1 for null."""
    found, values = codes(part, name)
    numbers = np.array([-1 if one is None else known.setdefault(one, len(known)) for one in values] + [-1], np.int64)
    return numbers[found]


def _wholes(part: pa.Table, name: str) -> Integers:
    """A column of integers of any width; `MISSING` for null."""
    column = arrays.cast(arrays.one(part.column(name)), pa.int64())
    return np.where(arrays.present(column), arrays.values_of(column, np.int64), MISSING)


def _take_lines(part: pa.Table, lines: dict[str, tuple[str, int]]) -> None:
    names, known = codes(part, "range")
    line = _wholes(part, "line")
    at, files = codes(part, "file")
    for row in np.unique(np.where(line >= 0, names, -1), return_index=True)[1].tolist():
        name, file = known[names[row]] if len(known) else None, files[at[row]] if len(files) else None
        if line[row] >= 0 and name is not None and file is not None:
            lines.setdefault(name, (file, int(line[row])))


def _sums_in(part: pa.Table, rows: Any) -> list[RangeSum]:
    some = arrays.kept(part, rows)
    columns = (some.column(one).to_pylist() for one in ("launch", "range", "total"))
    return [
        RangeSum(launch, tuple(path.split("/")), total) for launch, path, total in zip(*columns, strict=True)
        if launch is not None and launch >= 0 and path and total is not None
    ]  # fmt: skip


def _launches(facts: Mapping[str, Any], count: int) -> list[TracedLaunch]:
    listed = facts.get("launches")
    found = []
    for one in listed if isinstance(listed, list) else []:
        values = one if isinstance(one, dict) else {}
        grid, block = (tuple(size for size in _list(values.get(key)) if type(size) is int) for key in ("grid", "block"))
        found.append(TracedLaunch(str(values.get("kernel", "?")), grid, block, str(values.get("graph", ""))))
    return found + [TracedLaunch("?")] * (count - len(found))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    return [one for one in _list(value) if isinstance(one, str)]
