"""Launches of a trace with the work of their operator calls, and the share of the time with known work.

FLOPs of a trace are estimates from the shapes of operators. A launch has FLOPs if it clearly did the work of its call;
sums over operators, modules or phases use the call's own FLOPs, stored on its first kernel, so that every call counts
once.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from ncu_launch.notes import Note, NoteKind
from ncu_parsers.parse.file_kinds import OF_OPERATORS, TIMELINES
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.operator_columns import (
    OPERATOR_BYTES,
    OPERATOR_CALL,
    OPERATOR_FLOPS,
    OPERATOR_UNIT,
    UNIT_COLUMN,
)
from ncu_parsers.schema.tables import LEAST_BYTES, SHAPES_BASIS, Floats

from ncu_tools.ceilings.work_by_unit import FLOAT_UNITS
from ncu_tools.kernels.names.categories import COMMUNICATION, category_of
from ncu_tools.numbers.number_format import percent
from ncu_tools.numbers.row_sums import RowSums, Sum

OPERATOR, OPERATION, SHAPES = "operator", "operation", "shapes"
OF_INPUTS = "inputs "
"""Prefix of a call's range in which `calls_of_operators` puts the shapes of its inputs."""

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]

OF_OPERATOR_WORK = (OPERATOR_FLOPS, OPERATOR_BYTES, OPERATOR_UNIT)
"""The columns of launches that `with_work_of_operators` takes."""

FLOPS_BY_SHAPES, BYTES_BY_SHAPES = "flops_by_shapes", "bytes_by_shapes"
"""The same FLOPs and least bytes in a trace that was joined with counts; no sum uses them."""

NO_OPERATOR = "(no operator)"
WITHOUT_OPERATOR = "kernels without an operator in the trace"
MOST_NAMED = 4
"""Most operators without known work that a note names."""


def has_operators(table: pa.Table) -> bool:
    """True if launches know the work of their operator calls."""
    return OPERATOR_FLOPS in table.column_names or OPERATOR_BYTES in table.column_names


def with_work_of_operators(table: pa.Table) -> pa.Table:
    """The launches with FLOPs, least bytes and units of their operator calls; unchanged if none are known."""
    if not has_operators(table):
        return table
    flops, least = tables.floats(table, OPERATOR_FLOPS), tables.floats(table, OPERATOR_BYTES)
    known = ~np.isnan(flops)
    units, names = tables.codes(table, OPERATOR_UNIT)
    columns: dict[str, pa.Array] = {
        "flops": arrays.floats(flops),
        "flops_basis": arrays.dictionary([SHAPES_BASIS if one else None for one in known.tolist()]),
        LEAST_BYTES: arrays.floats(least),
    }
    for unit in FLOAT_UNITS:
        column = UNIT_COLUMN.get(unit) or FLOAT_UNITS[unit]
        if unit in names or column in table.column_names:
            mine = np.array([name == unit for name in names], bool)[units]
            columns[column] = arrays.floats(np.where(mine, flops, np.nan))
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        table = table.append_column(name, values) if place < 0 else table.set_column(place, name, values)
    return table


def operator_titles(table: pa.Table) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], list[str]]:
    """Index of each launch's operator, and the operators' names; rows of the collector are operators."""
    codes, names = tables.codes(table, OPERATOR)
    own, kernels = tables.codes(table, "kernel_name")
    sources, kinds = tables.codes(table, "source")
    are_operators = np.array([kind in ("operators", "estimate", "bench") for kind in kinds], bool)[sources]
    titles = [name or NO_OPERATOR for name in names] + [name or NO_OPERATOR for name in kernels]
    return np.where(are_operators, len(names) + own, codes).astype(np.int64), titles


def knows_operators(table: pa.Table) -> bool:
    """True if any launch knows its operator, or is one."""
    numbers, titles = operator_titles(table)
    return any(titles[number] != NO_OPERATOR for number in np.unique(numbers).tolist())


def calls_of_operators(table: pa.Table) -> pa.Table:
    """A row per operator call in place of its launches: the operator's name, the sum of their times, its work.

    The row is the launch that stores the call's work. Launches without a known call stay separate rows. Grids and
    blocks, which belong to launches, are null; ranges are replaced by what distinguishes calls of one operator.
    """
    table = with_work_of_operators(table)
    numbers, titles = operator_titles(table)
    calls = tables.floats(table, OPERATOR_CALL)
    alone = np.isnan(calls)
    reports, _ = tables.codes(table, "report")  # calls are numbered in each trace
    keys = np.stack([np.where(alone, -1, reports), np.where(alone, np.arange(len(table)), calls)])
    holds_work = (tables.floats(table, "flops") > 0) | (tables.floats(table, LEAST_BYTES) > 0)
    holders_first = np.argsort(~holds_work, kind="stable")
    _, index, groups = np.unique(keys[:, holders_first], axis=1, return_index=True, return_inverse=True)
    first = holders_first[index]
    order = np.argsort(first)
    result = arrays.take(table, arrays.whole(first[order]))
    durations = tables.floats(table, "duration_ns")[holders_first]
    time = np.bincount(groups.ravel(), durations, len(first))[order].astype(np.float64)
    names = arrays.dictionary([titles[number] for number in numbers[first[order]].tolist()])
    replaced = {"duration_ns": arrays.floats(time), "kernel_name": names, "kernel_short": names}
    kind = result.schema.field("nvtx_path").type
    replaced["nvtx_path"] = arrays.text_lists(_alike_calls(table, numbers, titles, first[order])).cast(kind)
    for name in ("grid", "block"):
        replaced[name] = pa.nulls(len(result), result.schema.field(name).type)
    for name, values in replaced.items():
        result = result.set_column(result.schema.get_field_index(name), name, values)
    return result


def _alike_calls(table: pa.Table, numbers: Rows, titles: list[str], rows: Rows) -> list[list[str] | None]:
    """Common properties of calls of one operator with the same work: shapes and types of the inputs, None if unknown.

    For launches without an operator: kernel, grid and block.
    """
    (of_grids, grids), (of_blocks, blocks) = (tables.list_codes(table, name) for name in ("grid", "block"))
    shapes, types, kernels = (tables.words(table, name) for name in (SHAPES, "dtype", "kernel_name"))
    found: list[list[str] | None] = []
    for row in rows.tolist():
        if titles[numbers[row]] == NO_OPERATOR:
            found.append([kernels[row] or "?", f"{grids[of_grids[row]]} {blocks[of_blocks[row]]}"])
        else:
            shape = shapes[row]
            found.append(None if shape is None else [f"{OF_INPUTS}{shape} {types[row] or ''}"])
    return found


class WorkCoverage(RowSums[str]):
    """Share of the time of a trace's kernels with FLOPs, and by operator the time without; added in batches.

    Kernels of collectives are communication: they have no FLOPs to miss.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds = self.known = self.communication = 0.0
        self.estimated = self.counted = self.apart = 0
        self.is_joined = False
        self._unknown = Sum(self.rows)

    def add(self, table: pa.Table, seconds: Floats) -> None:
        """Add launches, with the time of each row in seconds."""
        bases, texts = tables.codes(table, "flops_basis")
        of_shapes = np.array([text == SHAPES_BASIS for text in texts], bool)[bases]
        has_flops = ~np.isnan(tables.floats(table, "flops"))
        self.counted += int((has_flops & ~of_shapes).sum())
        self.estimated += int((has_flops & of_shapes).sum())
        sources, kinds = tables.codes(table, "source")
        self.is_joined |= any((kind or "").startswith("ncu+") for kind in kinds)
        operations, words = tables.codes(table, OPERATION)
        traced = TIMELINES if OPERATOR_CALL in table.column_names else OF_OPERATORS
        is_trace = np.array([kind in traced for kind in kinds], bool)[sources]
        is_work = np.array([word in ("kernel", "cpu_op") for word in words], bool)[operations]
        timed = is_trace & is_work & ~np.isnan(seconds)
        known = timed & ~np.isnan(tables.floats(table, OPERATOR_FLOPS))
        self.seconds += float(seconds[timed].sum())
        self.known += float(seconds[known].sum())
        self.apart += int((known & (tables.floats(table, OPERATOR_FLOPS) > 0) & ~has_flops).sum())
        codes, names = tables.codes(table, OPERATOR)
        kernels, kernel_names = tables.codes(table, "kernel_name")
        communicates = np.array([category_of(name or "") == COMMUNICATION for name in kernel_names], bool)[kernels]
        self.communication += float(seconds[timed & ~known & communicates].sum())
        missing = timed & ~known & ~communicates
        titles = [WITHOUT_OPERATOR, *(name or WITHOUT_OPERATOR for name in names)]
        self.rows.use(titles, np.where(np.isnan(tables.floats(table, OPERATOR_CALL)), 0, codes + 1))
        self._unknown.add(seconds, missing)

    def notes(self) -> list[str]:
        """The notes; none for runs without a trace, and for traces that were joined with counts."""
        if not self.seconds or self.is_joined:
            return []
        if not self.known:
            return [Note(f"no kernel time has FLOPs{self._missing()}", NoteKind.NOT_KNOWN, "FLOPs")]
        estimated = "FLOPs and least bytes follow from the shapes of operators and are estimates, not counted; "
        known = f"{percent(self.known / self.seconds)} of kernel time has FLOPs{self._missing()}"
        notes: list[str] = [Note(estimated + known, NoteKind.ESTIMATE)]
        if self.apart:
            calls = "calls of operators ran" if self.apart > 1 else "call of an operator ran"
            notes.append(
                f"{self.apart} {calls} several kernels that may have done the work: --by operator has those FLOPs"
            )
        if self.counted and self.estimated:
            notes.append(
                f"FLOPs of {self.counted} launches were counted and those of {self.estimated} are estimates: a sum of "
                "both is neither"
            )
        return notes

    def _missing(self) -> str:
        """The share of communication, and operators of unknown FLOPs with their shares, the longest first."""
        apart = f", {percent(self.communication / self.seconds)} is communication" if self.communication else ""
        amounts = zip(self._unknown.values.tolist(), self.titles, strict=True)
        found = sorted((-amount, name) for amount, name in amounts if amount > 0)
        if not found:
            return apart
        named = [f"{name} {percent(-amount / self.seconds)}" for amount, name in found[:MOST_NAMED]]
        rest = -sum(amount for amount, _ in found[MOST_NAMED:])
        if rest:
            named.append(f"{len(found) - MOST_NAMED} more {percent(rest / self.seconds)}")
        return f"{apart}; not known: {', '.join(named)}"
