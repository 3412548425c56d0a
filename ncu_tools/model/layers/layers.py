"""Launches by the layer that caused them, as a tree: time of each phase, FLOPs, bytes, arithmetic intensity.

The sums of a layer include everything below it, so the root is the model. All sums are means over the iterations of the
run; if only some launches have an iteration, the others are left out. A value that any launch of a layer lacks is
unknown for the layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_launch.nvtx_ranges import RUN_PHASES
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.flops_basis import in_part
from ncu_parsers.schema.operator_columns import BY_OPERATOR
from ncu_parsers.schema.tables import SHAPES_BASIS, Floats, drop_failed

from ncu_tools.kernels import operator_times
from ncu_tools.kernels.estimated_flops import estimate_notes, estimates_in
from ncu_tools.kernels.grouping import NO_MODULE
from ncu_tools.kernels.operator_work import OF_OPERATOR_WORK, with_work_of_operators
from ncu_tools.numbers.number_format import counted, duration
from ncu_tools.numbers.row_sums import Chosen, RowSums, Sum
from ncu_tools.numbers.statistics import of_single_launches

WHOLE = "(all launches)"

Rows = npt.NDArray[np.int64]

NEEDED = (
    "source", "kernel_name", "phase", "module", "iteration", "failed", "duration_ns", "flops", "flops_basis",
    "dram_bytes", "invocations", *operator_times.NEEDED, *OF_OPERATOR_WORK,
)  # fmt: skip
"""The columns of launches that layers are computed from."""
KEY_COLUMNS = ("source", "kernel_name", "phase", "module", "flops_basis")
COUNT = "launches"
"""The column of `LayerRows.table` with the number of launches per row."""


@dataclass(frozen=True)
class Layer:
    """One module with everything below it, per iteration. Times in ns; None if a launch lacks the value.

    `name` is the last part of `module`, `depth` the levels below the root, `is_leaf` True if nothing is below it.
    `kernels` counts distinct kernel names. `flops_lower_bound` is True if some FLOPs were not collected.
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
    prefill_ns: float | None
    decode_ns: float | None
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
        """The layers with nothing shown below them: together the whole model, except for its own launches."""
        return [row for row in self.rows if row.is_leaf or row.depth == self.depth]

    @property
    def share_above(self) -> float | None:
        """The share of all time outside `deepest`: launches of layers that have others below them; None if unknown."""
        shares = [row.time_share for row in self.rows if row.depth == 0]
        deepest = [row.time_share for row in self.deepest]
        if None in shares or None in deepest:
            return None
        return max(0.0, sum(filter(None, shares)) - sum(filter(None, deepest)))

    @property
    def bytes_title(self) -> str:
        """The title of `dram_bytes`: bytes of operators are not DRAM bytes."""
        return "bytes of operators" if self.by_operator else "DRAM bytes"


def layers(table: pa.Table, *, depth: int | None = None, phase: str | None = None) -> Layers:
    """The layers of `table`, at most `depth` levels below the root; none, with a note, if it has no modules.

    With `phase`, only launches of that phase, in its order; "" means launches without a phase.
    """
    every = _counted(table)
    table = in_iterations(every)
    launches = _Launches(table)
    result = Layers(
        [],
        launches.iterations,
        depth=depth,
        by_operator=not BY_OPERATOR.isdisjoint(tables.words(table, "source")),
        clocks=operator_times.clocks_of(table),
    )
    if all(module is None for module in tables.words(every, "module")):
        result.notes.append("no launch knows its module: profile a model target, or use NVTX ranges")
        return result
    if SHAPES_BASIS in tables.codes(table, "flops_basis")[1]:
        result.notes.append("FLOPs follow from the shapes of operators and are estimates, not counted")
    result.notes += [*estimate_notes(estimates_in(table)), *outside_iterations(every)]
    groups = launches.below(phase)
    whole = launches.sum(launches.nanoseconds, np.arange(launches.rows))
    inner = {module.rpartition(".")[0] for module in groups}
    result.rows = [
        launches.layer(module, found, whole, is_leaf=module not in inner)
        for module, found in groups.items()
        if depth is None or module.count(".") <= depth
    ]
    return result


def why_no_layers(notes: Sequence[str]) -> str:
    """The reason why there are no layers, as a sentence: the first of the notes on them."""
    return "".join(f"{note[:1].upper()}{note[1:]}." for note in notes[:1])


def whole_run(table: pa.Table, phase: str | None = None) -> Layer:
    """All launches of `table`, or of a phase, as one layer named `WHOLE`.

    Failed launches, and those outside any iteration, are left out.
    """
    launches = _Launches(in_iterations(_counted(table)))
    chosen = launches.of_phase(phase)
    return launches.layer(WHOLE, chosen, launches.sum(launches.nanoseconds, chosen), is_leaf=False)


def sums_by_iteration(table: pa.Table, column: str, phase: str | None = None) -> dict[str, Floats]:
    """For each layer, and `WHOLE`, the sum of a column per iteration: float64, shape (iterations,).

    NaN in an iteration in which a launch has no value or averages several, and without launches.
    """
    table = in_iterations(_counted(table))
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
    """The launches that did not fail; for a trace, with the work of their operator calls."""
    return with_work_of_operators(drop_failed(table))


def in_iterations(table: pa.Table) -> pa.Table:
    """The launches that belong to an iteration; all of them if none does, as in a report without iterations.

    Means over iterations exclude warm-up work: the number of iterations does not count it.
    """
    inside = ~np.isnan(tables.floats(table, "iteration"))
    return table if inside.all() or not inside.any() else arrays.kept(table, inside)


def outside_iterations(table: pa.Table) -> list[str]:
    """The note on launches that `in_iterations` leaves out, with their time if known; [] without any."""
    outside = np.isnan(tables.floats(table, "iteration"))
    if outside.all() or not outside.any():
        return []
    launches = counted(int(_counts(table)[outside].sum()), "launch", "launches")
    time = float((tables.floats(table, "duration_ns") * _weights(table))[outside].sum())
    took = "" if np.isnan(time) else f" ({duration(time)})"
    return [f"{launches}{took} outside any iteration, or of one that is not known: left out of the means"]


class LaunchesAlike(NamedTuple):
    """The common values of launches in one row; `iteration` is -1 if unknown."""

    iteration: float
    source: str | None
    kernel_name: str | None
    phase: str | None
    module: str | None
    flops_basis: str | None


class LayerRows(RowSums[LaunchesAlike]):
    """Launches of the same kernel, module, phase and iteration as one row, with the same layers as the launches.

    Failed launches are left out. Rows are in the order of first launches. Times, FLOPs and bytes are sums; NaN if a
    launch lacks the value.
    """

    def __init__(self) -> None:
        super().__init__()
        self._launches, self._times, self._flops, self._dram = (Sum(self.rows) for _ in range(4))
        self._most_averaged = Chosen(self.rows, np.fmax.at)

    def add(self, table: pa.Table) -> None:
        """Add launches, or the `table` of other rows."""
        table = _counted(table)
        iterations, named = np.unique(np.nan_to_num(tables.floats(table, "iteration"), nan=-1.0), return_inverse=True)
        words = [tables.codes(table, name) for name in KEY_COLUMNS]
        codes: list[Rows] = [named, *(own.astype(np.int64) for own, _ in words)]
        groups, count = np.zeros(len(table), np.int64), 1
        for own in codes:
            groups, count = _renumbered(groups * (int(own.max(initial=0)) + 1) + own)
        first = np.full(count, len(table), np.int64)
        np.minimum.at(first, groups, np.arange(len(table)))
        each = [[texts[code] for code in own[first].tolist()] for own, texts in words]
        titles = list(map(LaunchesAlike, iterations[named[first]].tolist(), *each))
        numbers = self.rows.use(titles, groups)
        weights = _weights(table)
        self._launches.count(_counts(table))
        for found, name in ((self._times, "duration_ns"), (self._flops, "flops"), (self._dram, "dram_bytes")):
            found.add(tables.floats(table, name) * weights)
        self._most_averaged.add(numbers, tables.floats(table, "invocations"))

    def table(self) -> pa.Table:
        """The rows as a table of launches, with the number of launches of each in `COUNT`."""
        iterations = np.array([row.iteration for row in self.titles], np.float64)
        return pa.table({
            **{name: arrays.dictionary([getattr(row, name) for row in self.titles]) for name in KEY_COLUMNS},
            "iteration": arrays.floats(np.where(iterations < 0, np.nan, iterations)),
            "duration_ns": arrays.floats(self._times.values),
            "flops": arrays.floats(self._flops.values),
            "dram_bytes": arrays.floats(self._dram.values),
            "invocations": arrays.floats(self._most_averaged.values),
            COUNT: arrays.floats(self._launches.values),
        })  # fmt: skip


def _renumbered(keys: Rows) -> tuple[Rows, int]:
    """Renumber groups from 0 in the order of first occurrence; also returns their number."""
    _, first, groups = np.unique(keys, return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[groups], len(first)


def _counts(table: pa.Table) -> Floats:
    """The number of launches of each row."""
    return tables.floats(table, COUNT) if COUNT in table.column_names else _weights(table)


def _weights(table: pa.Table) -> Floats:
    """The number of launches that each row averages; 1 for rows of `LayerRows`, which are sums."""
    return np.ones(len(table)) if COUNT in table.column_names else tables.launch_counts(table)


def layers_table(rows: Sequence[Layer]) -> pa.Table:
    """The layers as a table, one column per field of `Layer`."""
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
    """The columns of a table that layers are computed from."""

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
        self.partial = in_part(table)
        named = tables.floats(table, "iteration")
        self.iterations = max(1, len(np.unique(named[~np.isnan(named)])))

    def of_phase(self, phase: str | None) -> Rows:
        """The row indices of a phase's launches, or of all."""
        return np.arange(self.rows) if phase is None else np.flatnonzero(self.phases == phase)

    def below(self, phase: str | None) -> dict[str, Rows]:
        """For each module, the rows of its launches and of modules below it, in the order in which they first ran."""
        own: dict[str, list[int]] = {}
        for row in self.of_phase(phase).tolist():
            own.setdefault(self.modules[row] or NO_MODULE, []).append(row)
        found: dict[str, list[int]] = {}
        for module, rows in own.items():
            for ancestor in _ancestors(module):
                found.setdefault(ancestor, []).extend(rows)
        return {module: np.array(found[module], np.int64) for module in _parents_first(found)}

    def sum(self, values: Floats, rows: Rows) -> float | None:
        """The sum over some launches per iteration; None if a value is unknown, 0 for no launches."""
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
            prefill_ns=times["prefill"],
            decode_ns=times["decode"],
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
    """Modules ordered so that each is followed by its descendants, with siblings in their order."""
    children: dict[str | None, list[str]] = {}
    for module in found:
        parent, dot, _ = module.rpartition(".")
        children.setdefault(parent if dot else None, []).append(module)  # the parent of ".net" is ""
    ordered: list[str] = []
    waiting = list(reversed(children.get(None, [])))
    while waiting:
        module = waiting.pop()
        ordered.append(module)
        waiting += reversed(children.get(module, []))
    return ordered
