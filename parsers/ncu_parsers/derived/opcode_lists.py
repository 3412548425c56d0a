"""Executed instructions by opcode, from the lists that ncu prints or stores with a metric.

A list holds every opcode that a launch executed with its count: of thread instructions whose predicate was true, or of
warp instructions. It is not used if it does not add up to its metric: a truncated list proves nothing. Binary reports
have the names; text has them with --print-metric-instances details (ncu 2024.1 and newer). Without such a list, counts
per instruction of a binary report are summed by opcode, if the disassembly is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from ncu_launch.counters import metrics as known

from ncu_parsers.schema.tables import Floats

WARPS_BY_FULL_NAME = "sass__inst_executed_per_opcode_with_modifier_all"
THREADS_BY_FULL_NAME = "sass__thread_inst_executed_true_per_opcode_with_modifier_all"
THREADS = (
    "sass__thread_inst_executed_true_per_opcode", "sass__thread_inst_executed_true_per_opcode_with_modifier_selective",
)  # fmt: skip
THREADS_BY_INSTRUCTION, WARPS_BY_INSTRUCTION = "thread_inst_executed_true", "inst_executed"
BY_INSTRUCTION = (THREADS_BY_INSTRUCTION, WARPS_BY_INSTRUCTION)
"""Metrics that are counted per instruction; their lists are summed by opcode with all modifiers."""
WARPS = (
    WARPS_BY_FULL_NAME, "sass__inst_executed_per_opcode", "sass__inst_executed_per_opcode_with_modifier_selective",
    WARPS_BY_INSTRUCTION,
)  # fmt: skip
"""Metrics whose lists count warp instructions by opcode, with all, selected or no modifiers."""
COLUMN_OF_LIST = {
    metric: f"{metric} (instances)"
    for metric in dict.fromkeys((THREADS_BY_FULL_NAME, THREADS_BY_INSTRUCTION, *THREADS, *WARPS))
}
"""Metric -> the column that holds its list, the best list first."""
MOVES, SURE_FMAS = "constant moves", "certain FMAs"
"""Keys for the thread instructions of `hfma` that may move a constant, and for certain FMAs."""
UNNOTICED = 1e-3
"""Relative difference between a list's sum and its metric up to which the list is complete."""

OpcodeCounts = Mapping[str, float]


class OpcodeLists(NamedTuple):
    """Instructions of some launches, by opcode and by counter.

    `warps` has the warp instructions by opcode with all modifiers, None for a launch without, [] if none has them.
    `threads` has thread instructions (float64, one per launch; NaN if unknown) by counter ("ffma"), with the keys
    `MOVES` and `SURE_FMAS` too. `incomplete` has the indices of launches with a list that does not add up, and
    `by_instruction` the indices of launches whose counts are sums over instructions.
    """

    warps: Sequence[OpcodeCounts | None]
    threads: Mapping[str, Floats]
    incomplete: Sequence[int]
    by_instruction: Sequence[int]


NO_LISTS = OpcodeLists((), {}, (), ())


def named_instances(text: str) -> dict[str, float]:
    """Parse the counts listed for a metric, such as "HMMA.16816.F32: 128; FADD: 5"; {} if they have no names.

    An opcode begins with a letter; addresses and unit numbers do not, and are skipped.
    """
    result: dict[str, float] = {}
    for part in text.strip(" (){}").split(";"):
        name, _, count = part.rpartition(":")
        try:
            number = float(count.replace(",", ""))
        except ValueError:
            continue
        if name.strip()[:1].isalpha() and math.isfinite(number):
            result[name.strip()] = result.get(name.strip(), 0.0) + number
    return result


def opcode_lists(numbers: Mapping[str, Floats], texts: Mapping[str, Any], rows: int) -> OpcodeLists:
    """Per launch, the (opcode, count) list: counts from metric columns, opcodes from their text."""
    metrics = [name for name, column in COLUMN_OF_LIST.items() if column in texts]
    read = _Reading(numbers, texts)
    warps = [read.list_of(WARPS_BY_FULL_NAME, row) or read.list_of(WARPS_BY_INSTRUCTION, row) for row in range(rows)]
    told = [_instructions_of_launch(read, metrics, row) for row in range(rows)]
    threads = {counter: np.array([counts.get(counter, np.nan) for counts, _ in told]) for counter in _keys()}
    by_instruction = [row for row, (_, best) in enumerate(told) if best in BY_INSTRUCTION]
    return OpcodeLists(warps if any(warps) else [], threads, sorted(read.incomplete), by_instruction)


def _instructions_of_launch(read: _Reading, metrics: Sequence[str], row: int) -> tuple[dict[str, float], str]:
    """Thread instructions of a launch by counter, from its best list and then others; and the best list's metric."""
    result: dict[str, float] = {}
    best = ""
    for metric in metrics:
        executed = read.list_of(metric, row)
        if executed is not None:
            result, best = {**_instructions_proved_by(metric, executed), **result}, best or metric
        if len(result) == len(_keys()):
            break
    return result, best


def thread_instructions(executed: OpcodeCounts) -> dict[str, float]:
    """Thread instructions by counter, `MOVES` and `SURE_FMAS` (0 if none), from counts by opcode with all modifiers.

    A counter is left out if an opcode ran that may or may not belong to it.
    """
    result = dict.fromkeys(_keys(), 0.0)
    for opcode, count in executed.items():
        counter = known.opcode_counters().get(opcode.partition(".")[0])
        if counter is not None and not known.is_conversion(opcode):
            result[counter] += count
        is_move = known.constant_move_by_opcode(opcode)
        if is_move is not None:
            result[MOVES if is_move else SURE_FMAS] += count
    ran = {opcode.partition(".")[0] for opcode, count in executed.items() if count}
    untold = {counter for opcode, counter in known.unplaced_opcodes().items() if opcode in ran}
    return {counter: count for counter, count in result.items() if counter not in untold}


def _keys() -> tuple[str, ...]:
    return (*dict.fromkeys(known.opcode_counters().values()), MOVES, SURE_FMAS)


def _instructions_proved_by(metric: str, executed: OpcodeCounts) -> dict[str, float]:
    """Thread instructions by counter that the list of `metric` proves.

    A list without modifiers cannot tell conversions and possible moves; warp instructions only prove zeros.
    """
    counts = thread_instructions(executed)
    if metric in (THREADS_BY_FULL_NAME, THREADS_BY_INSTRUCTION):
        return counts
    if metric in WARPS:
        return {counter: count for counter, count in counts.items() if count == 0 and counter not in (MOVES, SURE_FMAS)}
    untold = ({"hadd"} if counts["hadd"] else set()) | ({MOVES, SURE_FMAS} if counts["hfma"] else set())
    return {counter: count for counter, count in counts.items() if counter not in untold}


class _Reading:
    """Lists of launches by metric, each checked against its metric."""

    def __init__(self, numbers: Mapping[str, Floats], texts: Mapping[str, Any]) -> None:
        self.incomplete: set[int] = set()
        self._numbers, self._texts = numbers, texts

    def list_of(self, metric: str, row: int) -> OpcodeCounts | None:
        """The list of one launch; None if it has no complete one."""
        texts = self._texts.get(COLUMN_OF_LIST[metric])
        executed = named_instances(texts[row]) if texts is not None and texts[row] else {}
        if not executed:
            return None
        total = self._numbers[metric][row] if metric in self._numbers else np.nan
        if abs(sum(executed.values()) - total) > UNNOTICED * abs(total):
            self.incomplete.add(row)
            return None
        return executed
