"""The hottest places of a kernel: source lines, instructions, PTX lines or functions, with the stall of each.

Shares are of the kernel's sum of the ranked measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.instructions_table import ptx_file
from ncu_parsers.schema.tables import Floats

from ncu_tools.kernels.source.dependencies import Flow, flow_of, live_registers, producers
from ncu_tools.kernels.source.kernel_code import KernelCode
from ncu_tools.kernels.source.stalls import REASONS, dominant, stall_counts, stalls
from ncu_tools.numbers.row_sums import or_none

LINES, SASS, PTX, FUNCTIONS = VIEWS = ("lines", "sass", "ptx", "functions")

MEASURE_OF = {
    "samples": "samples",
    "executed": "inst_executed",
    "sectors": "l2_sectors",
    "conflicts": "shared_wavefronts",
}
"""Value of --sort -> its column; for conflicts the column minus its ideal."""

Ranks = npt.NDArray[np.int64]


@dataclass(frozen=True)
class HotPlace:
    """One line, instruction or function. Counts are None if not collected.

    `stall_share` is of the samples that are stalls. `waits_for` is the instruction whose value is waited for and its
    line, as text; for a line or function, that of its instruction with the most samples of that stall. `inline_of` is
    the call at which its function was inlined; of several, the one with the largest ranked measure.
    """

    rank: int
    place: str
    file: str | None
    line: int | None
    inline_of: str | None
    function: str | None
    offset: int | None
    sass: str | None
    instructions: int
    share: float | None
    samples: int | None
    samples_not_issued: int | None
    stall: str | None
    stall_share: float | None
    executed: int | None
    sectors: int | None
    sectors_ideal: int | None
    shared_wavefronts: int | None
    shared_wavefronts_ideal: int | None
    live_registers: int | None
    waits_for: str | None


def hottest(code: KernelCode, view: str, by: str, top: int | None) -> tuple[list[HotPlace], int]:
    """The places of a kernel ranked by a measure of `MEASURE_OF`, and their number.

    Only the first `top` are returned; all if it is None.
    """
    groups = _groups(code, view)
    weights = ranked_by(code, by)
    sums = _sums(groups, weights)
    order = np.argsort(-np.nan_to_num(sums), kind="stable")[:top]
    return places(code, view, groups, weights, order), len(sums)


def around(code: KernelCode, offset: int, by: str, most: int) -> list[HotPlace]:
    """At most this many instructions around the one at `offset`, in program order: as many before it as behind it.

    The nearest one is used if there is none at the offset.
    """
    groups = _groups(code, SASS)
    offsets = np.array([-1 if one is None else one for one in code.table["offset"].to_pylist()], np.int64)
    middle = int(np.abs(offsets - offset).argmin())
    order = np.arange(max(middle - (most - 1) // 2, 0), min(middle + most // 2 + 1, len(offsets)))
    return places(code, SASS, groups, ranked_by(code, by), order)


def nearest_offset(code: KernelCode, offset: int) -> int | None:
    """The offset of the instruction that `around` centres on; None if no instruction has an offset."""
    known = [one for one in code.table["offset"].to_pylist() if one is not None]
    return min(known, key=lambda one: abs(one - offset), default=None)


def ranked_by(code: KernelCode, by: str) -> Floats:
    """The ranked measure of instructions, float64, one per instruction; NaN if not collected."""
    values = code.counts(MEASURE_OF[by])
    return values - code.counts("shared_wavefronts_ideal") if by == "conflicts" else values


def _groups(code: KernelCode, view: str) -> Ranks:
    """The index of each instruction's place; -1 if unknown."""
    if view == SASS:
        return np.arange(len(code.table))
    if view == FUNCTIONS:
        codes, names = tables.codes(code.table, "function")
        keys = np.where(codes == len(names) - 1, -1, codes).astype(np.int64)
    else:
        keys = _numbers(code, "line" if view == LINES else "ptx_line")
    files = tables.codes(code.table, "file")[0].astype(np.int64) if view == LINES else np.zeros(len(keys), np.int64)
    keys = np.where(keys < 0, -1, keys + (files << 32))
    _, firsts, groups = np.unique(keys, return_index=True, return_inverse=True)
    unknown = int((keys < 0).any())  # the least key, so its group is the first
    numbers = np.full(len(firsts), -1, np.int64)
    numbers[np.argsort(firsts[unknown:]) + unknown] = np.arange(len(firsts) - unknown)
    return numbers[groups]


def _numbers(code: KernelCode, column: str) -> Ranks:
    """The integers of a column; -1 if missing."""
    values = arrays.one(arrays.cast(code.table[column], pa.int64()))
    return np.where(arrays.present(values), arrays.values_of(values, np.int64), -1)


def _sums(groups: Ranks, values: Floats) -> Floats:
    """Values summed by place; NaN if no instruction of the place has one."""
    known, count = (groups >= 0) & ~np.isnan(values), int(groups.max(initial=-1)) + 1
    if not known.all():  # copies take longer than sums
        groups, values = groups[known], values[known]
    sums = np.bincount(groups, values, minlength=count)
    return np.where(np.bincount(groups, minlength=count) > 0, sums, np.nan)


SUMMED = {
    "samples": "samples",
    "samples_not_issued": "samples_not_issued",
    "executed": "inst_executed",
    "sectors": "l2_sectors",
    "sectors_ideal": "l2_sectors_ideal",
    "shared_wavefronts": "shared_wavefronts",
    "shared_wavefronts_ideal": "shared_wavefronts_ideal",
}
"""Sum of a place over its instructions -> its column."""

MEASURES_SHOWN = frozenset({*SUMMED.values(), *(f"stall_{reason}" for reason in REASONS)})
"""The columns of counts that rows use."""


def places(code: KernelCode, view: str, groups: Ranks, weights: Floats, order: Ranks) -> list[HotPlace]:
    """Rows for the places numbered in `order`; `groups` maps instructions to places. Other instructions are skipped."""
    whole, (shown, groups) = np.nansum(weights), _shown(groups, order)
    inside, weights = replace(code, table=arrays.take(code.table, arrays.whole(shown))), weights[shown]
    sums = {name: _sums(groups, inside.counts(column)) for name, column in SUMMED.items()}
    shares = _sums(groups, weights) / (whole or np.nan)
    stalled = stall_counts(inside)
    reasons, stall_shares = dominant(np.nan_to_num(np.stack([_sums(groups, one) for one in stalled.T], 1)))
    flow = flow_of(code)
    live = live_registers(flow) if flow is not None and view == SASS else None
    begins = np.searchsorted(groups, np.arange(len(order) + 1))
    calls, weighed = inside.table["inline_of"].to_pylist(), np.nan_to_num(weights).tolist()
    result = []
    for place, names in enumerate(_naming_fields(inside, begins[:-1])):
        begin, end = begins[place : place + 2].tolist()
        stall = None if np.isnan(stall_shares[place]) else REASONS[reasons[place]]
        waiting = int(shown[begin + stalled[begin:end, reasons[place]].argmax()])
        result.append(
            HotPlace(
                rank=place + 1,
                place=_place(view, names),
                file=ptx_file(code.kernel_name) if view == PTX else names["file"],
                line=names["ptx_line"] if view == PTX else names["line"],
                inline_of=_inline_of(calls[begin:end], weighed[begin:end]) if view in (LINES, SASS) else None,
                function=names["function"],
                offset=names["offset"] if view == SASS else None,
                sass=names["sass"] if view == SASS else None,
                instructions=end - begin,
                share=or_none(shares[place]),
                stall=stalls()[stall].title if stall else None,
                stall_share=or_none(stall_shares[place]),
                live_registers=None if live is None else live[int(shown[begin])],
                waits_for=_waits_for(code, flow, waiting, stall),
                **{name: _rounded(values[place]) for name, values in sums.items()},
            )
        )
    return result


def _shown(groups: Ranks, order: Ranks) -> tuple[Ranks, Ranks]:
    """The instructions of the places numbered in `order`, place by place, and the index of each one's place there."""
    ranks = np.full(int(groups.max(initial=-1)) + 2, -1)  # the last one is for instructions without a place
    ranks[order] = np.arange(len(order))
    shown = np.flatnonzero(ranks[groups] >= 0)
    shown = shown[np.argsort(ranks[groups[shown]], kind="stable")]
    return shown, ranks[groups[shown]]


def _naming_fields(code: KernelCode, rows: Ranks) -> list[dict[str, Any]]:
    """The fields that name the instructions in these rows."""
    columns = code.table.select(["file", "line", "function", "offset", "sass", "ptx_line"])
    return list(arrays.take(columns, arrays.whole(rows)).to_pylist())


def _inline_of(calls: Sequence[str | None], weights: Sequence[float]) -> str | None:
    """The call with the greatest weight among those that instructions were inlined at, and the number of others."""
    sums: dict[str, float] = {}
    for call, weight in zip(calls, weights, strict=True):
        if call is not None:
            sums[call] = sums.get(call, 0.0) + weight
    if not sums:
        return None
    more = f" and {len(sums) - 1} more" if len(sums) > 1 else ""
    return max(sums, key=lambda call: sums[call]) + more


def _place(view: str, found: dict[str, Any]) -> str:
    if view == SASS:
        return f"{found['offset']:#06x}" if found["offset"] is not None else "?"
    if view == PTX:
        return f"PTX line {found['ptx_line']}"
    if view == FUNCTIONS:
        return str(found["function"])
    return _line(found)


def _line(found: dict[str, Any]) -> str:
    file = (found["file"] or "?").replace("\\", "/").rsplit("/", 1)[-1]
    return f"{file}:{found['line']}"


def _waits_for(code: KernelCode, flow: Flow | None, place: int, stall: str | None) -> str | None:
    """The nearest instruction whose result the stalled one needs, as "0x0150 LDG.E R4, [R2.64] (row_max.cu:14)"."""
    if flow is None or stall is None or not stalls()[stall].waits_for:
        return None
    for found in _naming_fields(code, np.array(producers(flow, place, stalls()[stall].waits_for)[:1], np.int64)):
        line = "" if found["line"] is None else f" ({_line(found)})"
        return f"{found['offset']:#06x} {' '.join(found['sass'].split())}{line}"
    return None


def _rounded(value: float) -> int | None:
    return None if np.isnan(value) else round(value)
