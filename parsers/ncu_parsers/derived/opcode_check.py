"""Counters compared with counts per opcode, where a launch has both: the counter is used, a difference is noted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from ncu_launch.counters import metrics as known

from ncu_parsers.derived.flops import counted_operations
from ncu_parsers.derived.measures import TENSOR_PRECISIONS, Counters, Mask, tensor_column
from ncu_parsers.derived.tensor_opcodes import tensor_operations
from ncu_parsers.schema.tables import Floats

NOTED = 0.02
"""Relative difference of two counts above which a note mentions it."""


class OpcodeDifference(NamedTuple):
    """For one quantity: how many launches differ, how many have both counts, and the launch that differs most.

    `by` is the relative difference in that launch, `counter` and `opcodes` are its two counts.
    """

    quantity: str
    launches: int
    compared: int
    by: float
    launch: str
    counter: float
    opcodes: float


class IncompleteLists(NamedTuple):
    """How many launches have opcode lists that do not add up to their total, and the first such launch."""

    launches: int
    launch: str


Disagreement = OpcodeDifference | IncompleteLists


def disagreements(counters: Counters, identity: Mapping[str, Any]) -> Iterator[Disagreement]:
    """Yield disagreements between opcode counts and counters of a table; `identity` has the launches' names and ids."""
    incomplete = counters.lists.incomplete
    if incomplete:
        yield IncompleteLists(len(incomplete), _name_of(identity, incomplete[0]))
    for quantity, counted, by_opcode in _pairs(counters):
        difference = _difference(quantity, counted, by_opcode, identity)
        if difference is not None:
            yield difference


def notes_on(found: Iterable[Disagreement]) -> list[str]:
    """One sentence per quantity that differs in any table of a report, and one on incomplete lists."""
    by_quantity: dict[str, list[OpcodeDifference]] = {}
    incomplete: list[IncompleteLists] = []
    for one in found:
        if isinstance(one, IncompleteLists):
            incomplete.append(one)
        else:
            by_quantity.setdefault(one.quantity, []).append(one)
    notes = [_note(same) for _, same in sorted(by_quantity.items()) if any(one.launches for one in same)]
    if incomplete:
        launches = sum(one.launches for one in incomplete)
        notes.append(
            f"the counts per opcode of {launches} launch{'es' * (launches > 1)} do not add up to their total and "
            f"are not used: {min(one.launch for one in incomplete)}"
        )
    return notes


def _pairs(counters: Counters) -> Iterable[tuple[str, Floats, Floats]]:
    """Quantities that were counted both ways: instructions per counter, and tensor operations per type."""
    for counter in dict.fromkeys(known.opcode_counters().values()):
        by_opcode = counters.opcode_threads(counter)
        if by_opcode is not counters.nothing:
            yield f"{counter} instructions", counters.thread_instructions(counter), by_opcode
    if counters.lists.warps:
        counted, complete = counted_operations(counters)
        by_shape = _by_shape(counters, complete)
        for precision in TENSOR_PRECISIONS:
            yield f"tensor operations on {precision}", counted[tensor_column(precision)], by_shape[precision]


def _by_shape(counters: Counters, complete: Mask) -> dict[str, Floats]:
    """Tensor operations by the shapes of opcodes, of launches whose counters are complete."""
    result = {precision: np.full(counters.rows, np.nan) for precision in TENSOR_PRECISIONS}
    for row, executed in enumerate(counters.lists.warps):
        found = tensor_operations(executed) if executed and complete[row] else None
        for precision, amount in (found.amounts if found else {}).items():
            result[precision][row] = amount
    return result


def _difference(
    quantity: str, counted: Floats, by_opcode: Floats, identity: Mapping[str, Any]
) -> OpcodeDifference | None:
    """The largest difference over launches with both counts; None if there are none."""
    both = ~np.isnan(counted) & ~np.isnan(by_opcode)
    if not both.any():
        return None
    larger = np.maximum(np.abs(counted), np.abs(by_opcode))
    share = np.where(both & (larger > 0), np.abs(counted - by_opcode) / np.where(larger > 0, larger, 1.0), 0.0)
    most = int(np.argmax(share))
    launches = int((share > NOTED).sum())
    named = _name_of(identity, most)
    return OpcodeDifference(
        quantity, launches, int(both.sum()), float(share[most]), named, float(counted[most]), float(by_opcode[most])
    )


def _note(found: Sequence[OpcodeDifference]) -> str:
    launches, compared = sum(one.launches for one in found), sum(one.compared for one in found)
    most = max(found, key=lambda one: (one.by, one.launch))
    return (
        f"{most.quantity}: in {launches} of {compared} launches the counter, which is used, and the opcodes differ by "
        f"more than {NOTED:.0%}; most in {most.launch}, {most.counter:.6g} by counter and {most.opcodes:.6g} by opcodes"
    )


def _name_of(identity: Mapping[str, Any], row: int) -> str:
    """A launch's id and kernel, as notes show them."""
    launch, kernel = (_item(identity.get(column), row) for column in ("launch_id", "kernel_short"))
    return f"launch {launch} ({kernel})" if launch is not None else f"{kernel}"


def _item(values: Any, row: int) -> Any:
    if values is None:
        return None
    return values[row].as_py() if isinstance(values, pa.Array) else values[row]
