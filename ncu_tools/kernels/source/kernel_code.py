"""The instructions of one kernel, summed over launches: the input of every view inside a kernel."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.instructions_table import MEASURES
from ncu_parsers.schema.tables import Floats, floats

from ncu_tools.kernels.names.readable_names import called
from ncu_tools.numbers.number_format import counted

MOST_LISTED = 8

_PLACES = ("offset", "line", "file")
_AVERAGED = ("avg_threads", "avg_threads_true", "shared_conflict_ways")
_NOT_SUMMED = (*_AVERAGED, "access_bits", "l2_evict_policies")
_SUMMED = tuple(one.name for one in MEASURES if one.words is None and one.name not in _NOT_SUMMED)


@dataclass
class KernelCode:
    """Instructions of one kernel in program order, counts summed over `launches` of it.

    `table` has the columns of the table of instructions, without `launch_id`. `of_kernels` is the number of kernels
    with instructions in the run, and `share` this kernel's share of their samples, None without samples.
    """

    kernel_name: str
    launches: int
    table: pa.Table
    of_kernels: int
    share: float | None

    def counts(self, name: str) -> Floats:
        """A column of counts as float64, one per instruction; NaN if not collected."""
        return floats(self.table, name)

    def total(self, name: str) -> float | None:
        """The sum of a column over the kernel; None if not collected."""
        values = self.counts(name)
        return None if np.isnan(values).all() else float(np.nansum(values))

    @property
    def has_lines(self) -> bool:
        """True if any instruction is known to come from a source line."""
        return bool(self.table["line"].null_count < len(self.table))

    @property
    def has_text(self) -> bool:
        """True if any instruction is known as text."""
        return bool(self.table["sass"].null_count < len(self.table))


def kernel_code(
    instructions: pa.Table, patterns: Sequence[re.Pattern[str]] = (), launch: int | None = None
) -> KernelCode:
    """The kernel with the most samples (else executed instructions) among those matching patterns and launch.

    Raises `NcuBenchError` if there is none.
    """
    left = _selected(instructions, patterns, launch)
    weights = _weights(left)
    name = max(weights, key=lambda one: weights[one])
    whole = sum(weights.values())
    table = left if len(weights) == 1 else _of_kernels(left, lambda one: one == name)
    launches = len(arrays.encoded(arrays.one(table["launch_id"])).dictionary)
    return KernelCode(name, launches, _summed(table, launches), len(weights), weights[name] / whole if whole else None)


def _selected(instructions: pa.Table, patterns: Sequence[re.Pattern[str]], launch: int | None) -> pa.Table:
    left = instructions
    if patterns:
        wanted = called((name or "" for name in tables.codes(left, "kernel_name")[1]), patterns)
        left = _of_kernels(left, wanted.__contains__)
    if launch is not None:
        left = arrays.kept(left, floats(left, "launch_id") == launch)
    if not len(left):
        found = list(dict.fromkeys(tables.words(instructions, "kernel_name")))
        more = "" if len(found) <= MOST_LISTED else f" and {len(found) - MOST_LISTED} more"
        launches = len(set(instructions["launch_id"].to_pylist()))
        raise NcuBenchError(
            "The report has no instructions of the kernel or launch that was named.",
            f"There are instructions of {counted(launches, 'launch', 'launches')} of: "
            f"{', '.join(name or '' for name in found[:MOST_LISTED])}{more}.",
            "Name one of these with --kernel, or leave --kernel and --launch out for the one with the most samples.",
        )
    return left


def _of_kernels(table: pa.Table, is_wanted: Callable[[str], bool]) -> pa.Table:
    """The rows of the wanted kernels."""
    codes, names = tables.codes(table, "kernel_name")
    return arrays.kept(table, np.array([is_wanted(name or "") for name in names])[codes])


def _weights(table: pa.Table) -> dict[str, float]:
    """Samples of each kernel; executed instructions if there are no samples, else 0."""
    codes, names = tables.codes(table, "kernel_name")  # not group_by(), which would import pandas
    there = np.flatnonzero(np.bincount(codes)).tolist()
    for column in ("samples", "inst_executed"):
        sums = np.bincount(codes, np.nan_to_num(floats(table, column)), minlength=len(names))
        if sums[there].any():
            return {names[code] or "": float(sums[code]) for code in there}
    return dict.fromkeys((names[code] or "" for code in there), 0.0)


def _summed(table: pa.Table, launches: int) -> pa.Table:
    """Rows of one kernel with launches summed, in program order; rows of lines without instructions by file and line.

    Columns other than counts (text, line, access) come from the first launch that has them.
    """
    if launches == 1 and not table["offset"].null_count:  # nothing to sum, and every instruction is there once
        offsets = arrays.values_of(arrays.one(table["offset"]), np.int64)
        ordered = table if (np.diff(offsets) >= 0).all() else table.sort_by([("offset", "ascending")])
        return ordered.drop_columns(["launch_id"])
    plain = pa.table({
        name: table[name].cast(pa.string()) if pa.types.is_dictionary(table.schema.field(name).type) else table[name]
        for name in table.column_names
    })  # fmt: skip
    words = [name for name in plain.column_names if name not in (*_SUMMED, *_AVERAGED, "launch_id", *_PLACES)]
    keys = list(_PLACES)
    aggregated = plain.group_by(keys, use_threads=False).aggregate(
        [
            *((name, "first") for name in words),
            *((name, "sum") for name in _SUMMED),
            *((name, "mean") for name in _AVERAGED),
        ]
    )
    behind = re.compile(r"_(first|sum|mean)$")
    renamed = aggregated.rename_columns([behind.sub("", name) for name in aggregated.column_names])
    return renamed.sort_by([("offset", "ascending"), ("file", "ascending"), ("line", "ascending")])
