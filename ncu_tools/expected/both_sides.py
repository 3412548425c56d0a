"""The two sides of measured against expected: launches that hardware counted, operators that formulas count.

Both are read once into columns. A place is a phase with a module; what has none is under `NO_PHASE` or `NO_MODULE`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.counters.metrics import TENSOR_INTEGER_PRECISIONS
from ncu_launch.files.manifest import Manifest
from ncu_parsers.report_data.operator_records import INTEGER_OPERATIONS
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.tables import SHAPES_BASIS, Floats

from ncu_tools.layers.layers import NO_MODULE, NO_PHASE

Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]
Place = tuple[str, str]
"""Phase and module."""

_FILTERS = frozenset(
    (
        "-k", "--kernel", "--kernel-name", "--kernel-regex", "--kernel-regex-base", "--kernel-id",
        "-s", "--launch-skip", "--launch-skip-before-match", "-c", "--launch-count", "--filter-mode",
        "--nvtx-include", "--nvtx-exclude", "--range-filter",
    )
)  # fmt: skip
"""Options of ncu, and ours, that leave launches out."""


@dataclass(frozen=True)
class Collection:
    """How the measured side was collected.

    `filters` are the options that left launches out, None where nobody knows. `iterations` is how many were asked for;
    it counts only where the launches do not know theirs.
    """

    filters: tuple[str, ...] | None = None
    iterations: int = 1
    partial: bool = False


def collection_of(manifest: Manifest) -> Collection:
    """What a run folder's manifest says of how its launches were collected."""
    command = manifest.tool_runs[-1].command if manifest.tool_runs else manifest.asked
    return Collection(filters_in(command), int(manifest.workload.get("iterations") or 1), manifest.partial)


def filters_in(command: Sequence[str]) -> tuple[str, ...]:
    """The options of a command line that leave launches out, each with its value, as "--launch-count 5"."""
    found = []
    for number, word in enumerate(command):
        option, equals, _ = word.partition("=")
        if option in _FILTERS:
            found.append(word if equals else " ".join(command[number : number + 2]))
    return tuple(found)


@dataclass
class MeasuredLaunches:
    """The measured launches as columns; failed ones are left out."""

    table: pa.Table
    rows: int = field(init=False)
    places: list[Place] = field(init=False)
    flops: Floats = field(init=False)
    dram_bytes: Floats = field(init=False)
    is_lower_bound: Mask = field(init=False)
    _named: dict[tuple[re.Pattern[str], str], Mask] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if "failed" in self.table.column_names:
            failed = self.table.column("failed").to_pylist()
            if any(failed):
                self.table = arrays.kept(self.table, [not value for value in failed])
        self.rows = len(self.table)
        self.places = _places(self.table)
        self.dram_bytes = tables.floats(self.table, "dram_bytes")
        # A launch whose counted part is zero has no FLOPs in the table: "at least zero". In a sum it still counts.
        self.is_lower_bound = self._says("not collected") | self._says("not every")
        flops = tables.floats(self.table, "flops")
        nothing_counted = np.isnan(flops) & self.is_lower_bound & ~self._says("which was busy")
        self.flops = np.where(nothing_counted, 0.0, flops)
        self.flops[self._says(SHAPES_BASIS)] = np.nan  # an estimate is no measurement

    @cached_property
    def are_unattributed(self) -> bool:
        """Whether there are launches, and none of them knows its phase or module."""
        return set(self.places) == {(NO_PHASE, NO_MODULE)}

    @cached_property
    def basis(self) -> list[str | None]:
        """How the FLOPs of each launch were got."""
        return tables.words(self.table, "flops_basis")

    def _says(self, words: str) -> Mask:
        return np.array([words in (basis or "") for basis in self.basis], dtype=bool)

    @cached_property
    def cuda_core_flops(self) -> Floats:
        """FLOPs outside the tensor cores."""
        return np.asarray(self.flops - np.nan_to_num(tables.floats(self.table, "tensor_flops")))

    @cached_property
    def integer_operations(self) -> Floats:
        """Integer operations of the tensor cores; NaN where none of their counters was collected."""
        columns = [tables.floats(self.table, f"tensor_ops_{name}") for name in TENSOR_INTEGER_PRECISIONS]
        unknown = np.isnan(np.stack(columns)).all(axis=0)
        return np.where(unknown, np.nan, np.nansum(np.stack(columns), axis=0))

    @cached_property
    def doubtful_flops(self) -> Floats:
        """FP16 FLOPs that may be constant moves; 0 where there are none."""
        return np.where(
            self._says("may be constant moves"), np.nan_to_num(tables.floats(self.table, "flops_fp16")), 0.0
        )

    @cached_property
    def ran_sparse(self) -> Mask:
        """Where a counter of sparse tensor instructions is above zero."""
        names = [name for name in self.table.column_names if "sparsity_on" in name and "peak" not in name]
        found = np.zeros(self.rows, dtype=bool)
        for name in names:
            found |= np.nan_to_num(tables.floats(self.table, name)) > 0
        return found

    def named(self, pattern: re.Pattern[str], *, short: bool = False) -> Mask:
        """Where the kernel's name matches: the full one, or the one without template arguments."""
        column = "kernel_short" if short else "kernel_name"
        if (pattern, column) not in self._named:
            codes, names = tables.codes(self.table, column)
            matches = np.array([bool(name and pattern.search(name)) for name in names], dtype=bool)
            self._named[pattern, column] = np.asarray(matches[codes], dtype=bool)
        return self._named[pattern, column]

    def iterations(self, asked: int) -> int:
        """How many iterations the launches are of: those that they name, else as many as were asked for."""
        named = tables.floats(self.table, "iteration")
        return len(np.unique(named[~np.isnan(named)])) or asked


@dataclass
class Operators:
    """The expected operators of one iteration as columns; FLOPs are NaN where no formula is known."""

    table: pa.Table
    places: list[Place] = field(init=False)
    flops: Floats = field(init=False)
    bytes: Floats = field(init=False)
    integer_operations: Floats = field(init=False)
    names: list[str] = field(init=False)
    shapes: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.places = _places(self.table)
        self.flops = tables.floats(self.table, "flops")
        self.bytes = tables.floats(self.table, "dram_bytes")
        self.integer_operations = np.nan_to_num(tables.floats(self.table, INTEGER_OPERATIONS))
        self.names = [name or "" for name in tables.words(self.table, "kernel_short")]
        self.shapes = [shapes or "" for shapes in tables.words(self.table, "shapes")]

    @cached_property
    def flops_by_place(self) -> dict[Place, float]:
        """The sum of each phase and module; NaN where an operator of it is unknown."""
        sums: dict[Place, float] = {}
        for place, flops in zip(self.places, self.flops.tolist(), strict=True):
            sums[place] = sums.get(place, 0.0) + flops
        return sums


def _places(table: pa.Table) -> list[Place]:
    phases, modules = tables.words(table, "phase"), tables.words(table, "module")
    return [(phase or NO_PHASE, module or NO_MODULE) for phase, module in zip(phases, modules, strict=True)]
