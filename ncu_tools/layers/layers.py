"""Launches by the layer that caused them, as a tree: time of each phase, FLOPs, bytes, arithmetic intensity.

A layer has everything below it in its sums, so the root is the model. All sums are means over the iterations of the
run. What is not known for every launch of a layer is not known for the layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.nvtx_ranges import RUN_PHASES
from ncu_parsers.report_data.operator_records import BY_OPERATOR
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.tables import SHAPES_BASIS, Floats

from ncu_tools.kernels import operator_times
from ncu_tools.kernels.operator_work import OF_OPERATOR_WORK, with_work_of_operators
from ncu_tools.numbers.statistics import of_single_launches

NO_MODULE, NO_PHASE = "(no module)", "(no phase)"
WHOLE = "(all launches)"
"""Values of `source` whose bytes are those of operators."""

Rows = npt.NDArray[np.int64]

NEEDED = (
    "source", "kernel_name", "phase", "module", "iteration", "failed", "duration_ns", "flops", "flops_basis",
    "dram_bytes", "invocations", *operator_times.NEEDED, *OF_OPERATOR_WORK,
)  # fmt: skip
"""The columns of launches that the layers are made of."""
TOLD_APART = ("source", "kernel_name", "phase", "module", "flops_basis")
COUNT = "launches"
"""The column of a condensed table that says how many launches a row stands for."""


@dataclass(frozen=True)
class Layer:
    """One module with everything below it, of one iteration. Times in ns; None where a launch of it lacks a value.

    `name` is the last part of `module`, `depth` how far below the root it is, `is_leaf` whether nothing is below it.
    `kernels` counts the distinct names of its launches.
    `flops_lower_bound` says that some of its FLOPs were not collected.
    """

    module: str
    name: str
    depth: int
    is_leaf: bool
    launches: float
    kernels: int
    time_ns: float | None
    forward_ns: float | None
    backward_ns: float | None
    optimizer_ns: float | None
    time_share: float | None
    flops: float | None
    flops_lower_bound: bool
    dram_bytes: float | None
    arithmetic_intensity: float | None


@dataclass
class Layers:
    """The layers of a run in the order in which they first ran, parents before their children.

    `clocks` are the kinds of their times (`ncu_tools.kernels.operator_times`).
    """

    rows: list[Layer]
    iterations: int
    notes: list[str] = field(default_factory=list)
    depth: int | None = None
    by_operator: bool = False
    clocks: frozenset[str] = frozenset()

    @property
    def deepest(self) -> list[Layer]:
        """The layers that nothing shown is below: together they are the model, except for its own launches."""
        return [row for row in self.rows if row.is_leaf or row.depth == self.depth]

    @property
    def share_above(self) -> float | None:
        """The share of all time that is of no layer in `deepest`: launches of layers that have others below them."""
        shares = [row.time_share for row in self.rows if row.depth == 0]
        deepest = [row.time_share for row in self.deepest]
        if None in shares or None in deepest:
            return None
        return max(0.0, sum(filter(None, shares)) - sum(filter(None, deepest)))

    @property
    def bytes_title(self) -> str:
        """Which bytes `dram_bytes` are: those of operators are no DRAM bytes."""
        return "bytes of operators" if self.by_operator else "DRAM bytes"


def layers(table: pa.Table, *, depth: int | None = None, phase: str | None = None) -> Layers:
    """The layers of `table`, at most `depth` levels below the root. A table without modules has none, and a note.

    With `phase`, those that ran in it, in its order, with its launches alone; "" are launches without a phase.
    """
    table = _counted(table)
    launches = _Launches(table)
    result = Layers(
        [],
        launches.iterations,
        depth=depth,
        by_operator=not BY_OPERATOR.isdisjoint(tables.words(table, "source")),
        clocks=operator_times.clocks_of(table),
    )
    if SHAPES_BASIS in tables.codes(table, "flops_basis")[1]:
        result.notes.append("FLOPs follow from the shapes of operators and are estimates, not counted")
    if all(module is None for module in launches.modules):
        result.notes.append("no launch knows its module: profile a model target, or use NVTX ranges")
        return result
    groups = launches.below(phase)
    whole = launches.sum(launches.nanoseconds, np.arange(launches.rows))
    inner = {module.rpartition(".")[0] for module in groups}
    result.rows = [
        launches.layer(module, found, whole, is_leaf=module not in inner)
        for module, found in groups.items()
        if depth is None or module.count(".") <= depth
    ]
    return result


def whole_run(table: pa.Table, phase: str | None = None) -> Layer:
    """All launches of `table`, or of a phase, as one layer called `WHOLE`; failed launches are left out."""
    launches = _Launches(_counted(table))
    chosen = launches.of_phase(phase)
    return launches.layer(WHOLE, chosen, launches.sum(launches.nanoseconds, chosen), is_leaf=False)


def sums_by_iteration(table: pa.Table, column: str, phase: str | None = None) -> dict[str, Floats]:
    """For each layer, and `WHOLE`, the sum of a column over its launches in each iteration; shape (iterations,).

    NaN in an iteration where a launch has no value, is an average of several, or does not know its iteration.
    """
    table = _counted(table)
    launches = _Launches(table)
    values = of_single_launches(table, column)
    named = tables.floats(table, "iteration")
    if np.isnan(named).any():
        values = np.full(len(values), np.nan)
    _, numbers = np.unique(named, return_inverse=True)
    groups = {**launches.below(phase), WHOLE: launches.of_phase(phase)}
    return {
        name: np.bincount(numbers[rows], values[rows], launches.iterations).astype(np.float64)
        for name, rows in groups.items()
    }


def _counted(table: pa.Table) -> pa.Table:
    """The launches that did not fail; those of a trace with the work of the operator calls that they belong to."""
    return with_work_of_operators(without_failed(table))


def without_failed(table: pa.Table) -> pa.Table:
    """The launches that did not fail."""
    failed = table.column("failed").to_pylist() if "failed" in table.column_names else []
    return arrays.kept(table, [not value for value in failed]) if any(failed) else table


def condensed(table: pa.Table) -> pa.Table:
    """Launches of which the layers are the same: one row for those of one kernel in one module, phase and iteration.

    Failed launches are left out. Rows are in the order of their first launches, and may be condensed again with others
    behind them.
    """
    table = _counted(table)
    named = np.unique(np.nan_to_num(tables.floats(table, "iteration"), nan=-1.0), return_inverse=True)[1]
    columns: list[Rows] = [named, *(tables.codes(table, name)[0].astype(np.int64) for name in TOLD_APART)]
    groups, count = np.zeros(len(table), np.int64), 1
    for codes in columns:
        groups, count = _renumbered(groups * (int(codes.max(initial=0)) + 1) + codes)
    first = np.full(count, len(table), np.int64)
    np.minimum.at(first, groups, np.arange(len(table)))

    weights = _weights(table)

    def summed(name: str) -> pa.Array:
        return arrays.floats(np.bincount(groups, tables.floats(table, name) * weights, count).astype(np.float64))

    def kept(name: str) -> pa.Array | pa.ChunkedArray:
        return arrays.taken(table.column(name), arrays.whole(first)) if name in table.column_names else pa.nulls(count)

    most = np.full(count, np.nan)
    np.fmax.at(most, groups, tables.floats(table, "invocations"))
    return pa.table({
        **{name: kept(name) for name in (*TOLD_APART, "iteration")},
        **{name: summed(name) for name in ("duration_ns", "flops", "dram_bytes")},
        "invocations": arrays.floats(most),
        COUNT: arrays.floats(np.bincount(groups, _counts(table), count).astype(np.float64)),
    })  # fmt: skip


def _renumbered(keys: Rows) -> tuple[Rows, int]:
    """The same groups numbered from 0 in the order in which they are first met, and how many they are."""
    _, first, groups = np.unique(keys, return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[groups], len(first)


def _counts(table: pa.Table) -> Floats:
    """How many launches each row stands for."""
    return tables.floats(table, COUNT) if COUNT in table.column_names else _weights(table)


def _weights(table: pa.Table) -> Floats:
    """How many launches each row is the average of; those of a condensed table are sums already."""
    return np.ones(len(table)) if COUNT in table.column_names else tables.launch_counts(table)


def layers_table(rows: Sequence[Layer]) -> pa.Table:
    """The layers as a table, a column for each field of `Layer`."""
    make: dict[str, Callable[[list[Any]], pa.Array]] = {
        "str": arrays.texts,
        "int": lambda values: arrays.integers(values, pa.int64()),
        "bool": arrays.booleans,
    }
    columns = {}
    for column in fields(Layer):
        values = [getattr(row, column.name) for row in rows]
        columns[column.name] = make.get(str(column.type), _floats)(values)
    return pa.table(columns)


def _floats(values: list[Any]) -> pa.Array:
    return arrays.floats(np.array([np.nan if value is None else value for value in values], np.float64))


class _Launches:
    """The columns of a table that the layers need."""

    def __init__(self, table: pa.Table) -> None:
        self.rows = len(table)
        self.counts = _counts(table)
        self.modules = tables.words(table, "module")
        self.kernels = tables.codes(table, "kernel_name")[0]
        self.phases = np.array([phase or "" for phase in tables.words(table, "phase")], dtype=object)
        weights = _weights(table)
        self.nanoseconds, self.flops, self.dram = (
            tables.floats(table, name) * weights for name in ("duration_ns", "flops", "dram_bytes")
        )
        basis = tables.words(table, "flops_basis")
        self.partial = np.array(
            ["not collected" in (text or "") or "not every" in (text or "") for text in basis], bool
        )
        named = tables.floats(table, "iteration")
        self.iterations = max(1, len(np.unique(named[~np.isnan(named)])))

    def of_phase(self, phase: str | None) -> Rows:
        """The launches of a phase, or all of them."""
        return np.arange(self.rows) if phase is None else np.flatnonzero(self.phases == phase)

    def below(self, phase: str | None) -> dict[str, Rows]:
        """For each module and each that contains it the launches of both, in the order in which they first ran."""
        own: dict[str, list[int]] = {}
        for row in self.of_phase(phase).tolist():
            own.setdefault(self.modules[row] or NO_MODULE, []).append(row)
        found: dict[str, list[int]] = {}
        for module, rows in own.items():
            for ancestor in _ancestors(module):
                found.setdefault(ancestor, []).extend(rows)
        return {module: np.array(found[module], np.int64) for module in _parents_first(found)}

    def sum(self, values: Floats, rows: Rows) -> float | None:
        """The sum over some launches in one iteration; None when one of them is not known, 0 of none."""
        chosen = values[rows]
        return None if np.isnan(chosen).any() else float(chosen.sum()) / self.iterations

    def layer(self, module: str, rows: Rows, whole: float | None, *, is_leaf: bool) -> Layer:
        time, flops, dram = (self.sum(values, rows) for values in (self.nanoseconds, self.flops, self.dram))
        of_phase = {phase: rows[self.phases[rows] == phase] for phase in RUN_PHASES}
        times = {phase: self.sum(self.nanoseconds, found) if found.size else None for phase, found in of_phase.items()}
        return Layer(
            module=module,
            name=module if module in (NO_MODULE, WHOLE) else module.rpartition(".")[2],
            depth=0 if module in (NO_MODULE, WHOLE) else module.count("."),
            is_leaf=is_leaf,
            launches=float(self.counts[rows].sum()) / self.iterations,
            kernels=len(np.unique(self.kernels[rows])),
            time_ns=time,
            forward_ns=times["forward"],
            backward_ns=times["backward"],
            optimizer_ns=times["optimizer"],
            time_share=time / whole if time is not None and whole else None,
            flops=flops,
            flops_lower_bound=flops is not None and bool(self.partial[rows].any()),
            dram_bytes=dram,
            arithmetic_intensity=flops / dram if flops is not None and dram else None,
        )


def _ancestors(module: str) -> Iterable[str]:
    """The module and all that contain it, outermost first."""
    if module == NO_MODULE:
        return (module,)
    parts = module.split(".")
    return (".".join(parts[: count + 1]) for count in range(len(parts)))


def _parents_first(found: Iterable[str]) -> list[str]:
    """Modules so that each is followed by what is below it, and siblings stay in their order."""
    children: dict[str | None, list[str]] = {}
    for module in found:
        parent, dot, _ = module.rpartition(".")
        children.setdefault(parent if dot else None, []).append(module)  # the parent of ".net" is called ""
    ordered: list[str] = []
    waiting = list(reversed(children.get(None, [])))
    while waiting:
        module = waiting.pop()
        ordered.append(module)
        waiting += reversed(children.get(module, []))
    return ordered
