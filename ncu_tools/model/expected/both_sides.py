"""The two sides of measured against expected: launches counted by hardware, operators counted by formulas.

Both are read once into columns. A place is a phase with a module; missing ones are `NO_PHASE` or `NO_MODULE`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.counters.metrics import CUDA_CORE_PRECISIONS, TENSOR_INTEGER_PRECISIONS, flop_weights
from ncu_launch.files.manifest import Manifest
from ncu_parsers.schema import tables
from ncu_parsers.schema.flops_basis import COLUMN, BasisMark, FlopsBasis, basis_of, in_part, marked
from ncu_parsers.schema.operator_columns import CONTRACTION_FLOPS, CONTRACTIONS_ONLY, INTEGER_OPERATIONS
from ncu_parsers.schema.tables import SHAPES_BASIS, Floats, drop_failed

from ncu_tools.kernels.grouping import NO_MODULE, NO_PHASE

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
"""Options of ncu, and ours, that filter launches."""


@dataclass(frozen=True)
class Collection:
    """How the measured side was collected.

    `filters` are the options that filtered launches, None if unknown. `iterations` is the requested number; it counts
    only if launches have no iteration numbers.
    """

    filters: tuple[str, ...] | None = None
    iterations: int = 1
    partial: bool = False


def collection_of(manifest: Manifest) -> Collection:
    """Read from a run folder's manifest how its launches were collected."""
    command = manifest.tool_runs[-1].command if manifest.tool_runs else manifest.asked
    return Collection(filters_in(command), int(manifest.workload.get("iterations") or 1), manifest.partial)


def filters_in(command: Sequence[str]) -> tuple[str, ...]:
    """The options of a command line that filter launches, each with its value, as "--launch-count 5"."""
    found = []
    for number, word in enumerate(command):
        option, equals, _ = word.partition("=")
        if option in _FILTERS:
            found.append(word if equals else " ".join(command[number : number + 2]))
    return tuple(found)


def total(values: Floats, times: int = 1) -> float | None:
    """The sum over work that ran `times` times, per time; None if there are no values or one is unknown."""
    found = float(values.sum()) if len(values) else np.nan
    return None if np.isnan(found) else found / times


def ratio(measured: float | None, expected: float | None) -> float | None:
    """Measured / expected; None if one is unknown, or nothing is expected."""
    return measured / expected if measured is not None and expected else None


@dataclass
class MeasuredLaunches:
    """The measured launches as columns (one value per launch); failed ones are left out."""

    table: pa.Table
    rows: int = field(init=False)
    places: list[Place] = field(init=False)
    flops: Floats = field(init=False)
    dram_bytes: Floats = field(init=False)
    is_lower_bound: Mask = field(init=False)
    _named: dict[tuple[re.Pattern[str], str], Mask] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.table = drop_failed(self.table)
        self.rows = len(self.table)
        self.places = _places(self.table)
        self.dram_bytes = tables.floats(self.table, "dram_bytes")
        # A launch whose counted part is zero has no FLOPs in the table ("at least zero"). It still counts in sums.
        self.is_lower_bound = in_part(self.table)
        flops = tables.floats(self.table, "flops")
        nothing_counted = np.isnan(flops) & self.is_lower_bound & ~marked(self.table, BasisMark.UNCOUNTED)
        self.flops = np.where(nothing_counted, 0.0, flops)
        estimated = np.array([text == SHAPES_BASIS for text in tables.words(self.table, COLUMN)], dtype=bool)
        self.flops[estimated] = np.nan  # an estimate is no measurement

    def flops_of(self, rows: Mask | Places, times: int) -> tuple[float | None, bool]:
        """FLOPs of launches that ran `times` times, per time, and whether they are a lower bound."""
        is_lower_bound, flops = bool(self.is_lower_bound[rows].any()), total(self.flops[rows], times)
        if is_lower_bound and not flops:
            return None, False  # "at least zero" bounds nothing
        return flops, is_lower_bound

    @cached_property
    def are_unattributed(self) -> bool:
        """True if there are launches, and none has a phase or module."""
        return set(self.places) == {(NO_PHASE, NO_MODULE)}

    @cached_property
    def bases(self) -> list[FlopsBasis]:
        """The basis of each launch's FLOPs."""
        return [basis_of(text) for text in tables.words(self.table, COLUMN)]

    @cached_property
    def cuda_core_flops(self) -> Floats:
        """FLOPs outside the tensor cores, one per launch."""
        return np.asarray(self.flops - np.nan_to_num(tables.floats(self.table, "tensor_flops")))

    @cached_property
    def on_tensor_cores(self) -> Mask:
        """Mask of launches that computed on tensor cores."""
        return np.asarray(np.nan_to_num(tables.floats(self.table, "tensor_flops")) > 0)

    @cached_property
    def product_flops(self) -> Floats:
        """FLOPs of products, one per launch: tensor cores, else CUDA cores without single operations.

        Matrix products are multiply-adds; separate additions and multiplications scale, convert or reduce.
        """
        single = np.zeros(self.rows)
        moves = marked(self.table, BasisMark.LEFT_OUT)
        for precision in CUDA_CORE_PRECISIONS:
            in_flops = ~moves if precision == "fp16" else True
            for opcode, weight in flop_weights(precision).items():
                if "fma" not in opcode:
                    counter = f"smsp__sass_thread_inst_executed_op_{opcode}_pred_on.sum"
                    single += in_flops * weight * np.nan_to_num(tables.floats(self.table, counter))
        cores = np.maximum(self.cuda_core_flops - single, 0.0)
        return np.where(self.on_tensor_cores, tables.floats(self.table, "tensor_flops"), cores)

    @cached_property
    def integer_operations(self) -> Floats:
        """Integer operations of the tensor cores, one per launch; NaN if no counter of them was collected."""
        columns = [tables.floats(self.table, f"tensor_ops_{name}") for name in TENSOR_INTEGER_PRECISIONS]
        unknown = np.isnan(np.stack(columns)).all(axis=0)
        return np.where(unknown, np.nan, np.nansum(np.stack(columns), axis=0))

    @cached_property
    def doubtful_flops(self) -> Floats:
        """FP16 FLOPs that may all be constant moves, one per launch; 0 for none."""
        return np.where(
            marked(self.table, BasisMark.HFMA_ALONE),
            np.nan_to_num(tables.floats(self.table, "flops_fp16")),
            0.0,
        )

    @cached_property
    def ran_sparse(self) -> Mask:
        """Mask of launches with a nonzero counter of sparse tensor instructions."""
        names = [name for name in self.table.column_names if "sparsity_on" in name and "peak" not in name]
        found = np.zeros(self.rows, dtype=bool)
        for name in names:
            found |= np.nan_to_num(tables.floats(self.table, name)) > 0
        return found

    def named(self, pattern: re.Pattern[str], *, short: bool = False) -> Mask:
        """Mask of launches whose kernel name matches: the full one, or the one without template arguments."""
        column = "kernel_short" if short else "kernel_name"
        if (pattern, column) not in self._named:
            codes, names = tables.codes(self.table, column)
            matches = np.array([bool(name and pattern.search(name)) for name in names], dtype=bool)
            self._named[pattern, column] = np.asarray(matches[codes], dtype=bool)
        return self._named[pattern, column]

    def iterations(self, requested: int) -> int:
        """The number of iterations of the launches, or `requested` if they have none."""
        named = tables.floats(self.table, "iteration")
        return len(np.unique(named[~np.isnan(named)])) or requested


@dataclass
class Operators:
    """The expected operators of one iteration as columns.

    `flops` are the FLOPs of contractions, NaN for operators that may hold one and have no formula. `all_flops` are all
    FLOPs of an operator, NaN without a formula.
    """

    table: pa.Table
    places: list[Place] = field(init=False)
    flops: Floats = field(init=False)
    all_flops: Floats = field(init=False)
    bytes: Floats = field(init=False)
    integer_operations: Floats = field(init=False)
    names: list[str] = field(init=False)
    shapes: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.places = _places(self.table)
        self.flops = tables.floats(self.table, CONTRACTION_FLOPS)
        contractions_only = [text in CONTRACTIONS_ONLY for text in tables.words(self.table, COLUMN)]
        self.all_flops = np.where(contractions_only, np.nan, tables.floats(self.table, "flops"))
        self.bytes = tables.floats(self.table, "dram_bytes")
        self.integer_operations = np.nan_to_num(tables.floats(self.table, INTEGER_OPERATIONS))
        self.names = [name or "" for name in tables.words(self.table, "kernel_short")]
        self.shapes = [shapes or "" for shapes in tables.words(self.table, "shapes")]

    @cached_property
    def flops_by_place(self) -> dict[Place, float]:
        """The sum of each phase and module; NaN if an operator there has no formula."""
        sums: dict[Place, float] = {}
        for place, flops in zip(self.places, self.flops.tolist(), strict=True):
            sums[place] = sums.get(place, 0.0) + flops
        return sums


def _places(table: pa.Table) -> list[Place]:
    phases, modules = tables.words(table, "phase"), tables.words(table, "module")
    return [(phase or NO_PHASE, module or NO_MODULE) for phase, module in zip(phases, modules, strict=True)]
