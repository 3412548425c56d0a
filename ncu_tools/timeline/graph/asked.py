"""What-ifs as users write them: "aten::mm=0.7x", "copies=0", "gap:launch=0", "softmax=10us"."""

from __future__ import annotations

import re

import numpy as np
from ncu_launch.errors import WrongUsage
from ncu_parsers.timelines.activity.activity import MEMSET, OPERATOR, Activity, Integers

from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.timeline.graph.critical_path import COMMUNICATION, COPIES, KERNELS, operation_kinds
from ncu_tools.timeline.graph.operators import OperatorsAround
from ncu_tools.timeline.graph.replay import Change
from ncu_tools.timeline.graph.step_graph import Mask, StepGraph
from ncu_tools.timeline.graph.what_if import (
    WhatIf,
    all_of,
    api_calls,
    host_code,
    launch_gaps,
    scaled,
    without,
    without_host_time,
)
from ncu_tools.timeline.intervals import IntervalSet

GAPS = ("gap:launch", "gap:call", "gap:host")
KINDS = {"kernels": KERNELS, "copies": COPIES, "communication": COMMUNICATION}
_VALUE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(x|s|ms|us|µs|ns)?", re.IGNORECASE)
_NS = {"s": 1e9, "ms": 1e6, "us": 1e3, "µs": 1e3, "ns": 1.0}
MOST_NAMED = 3
EXAMPLES = '--what-if "aten::mm=0.7x", "softmax=10us", "copies=0" or "gap:launch=0"'


class AskedWhatIfs:
    """Parses what-ifs on one recording. `call` is the row of the API call of each operation, -1 for none."""

    def __init__(self, activity: Activity, graph: StepGraph, call: Integers, operators: OperatorsAround) -> None:
        self._activity, self._graph, self._call, self._operators = activity, graph, call, operators
        self._around = operators.around(call)

    def what_if(self, text: str) -> WhatIf:
        """Parse a what-if. Raises `WrongUsage` if it has another form, or names nothing in the recording."""
        name, sign, value = text.rpartition("=")
        found = _VALUE.fullmatch(value.strip())
        if not sign or not name.strip() or found is None:
            raise WrongUsage(
                f"--what-if {text} cannot be read.",
                "A what-if is a name, =, and a factor, a time of each operation, or 0 to remove them.",
                f"As in: {EXAMPLES}",
            )  # fmt: skip
        number, unit = float(found[1]), (found[2] or "").lower()
        if unit not in ("", "x") or (not unit and number):
            if not unit:
                raise WrongUsage(
                    f"--what-if {text}: {value} has no unit.", "It may be a factor or a time of each operation.",
                    f"Write {name}={value}x or {name}={value}us.",
                )  # fmt: skip
            return self._timed(name.strip(), text, number * _NS[unit])
        return self._factor(name.strip(), text, number)

    def _factor(self, name: str, text: str, factor: float) -> WhatIf:
        graph = self._graph
        if name == "gap:launch":
            return WhatIf.of(text, launch_gaps(graph, factor))
        if name == "gap:call":
            return WhatIf.of(text, api_calls(graph, factor))
        if name == "gap:host":
            return WhatIf.of(text, host_code(graph, factor))
        rows = np.flatnonzero(self.chosen(name, text))
        if factor:
            return WhatIf.of(text, scaled(graph, rows, factor))
        gone = without(graph, rows)
        with_operators = all_of(gone, self.without_operators(rows))
        return WhatIf(text, gone, with_operators, with_operators)

    def _timed(self, name: str, text: str, lasts: float) -> WhatIf:
        if name in GAPS:
            raise WrongUsage(
                f"--what-if {text}: gaps take a factor, not a time.", "They are of many lengths.",
                f"As in: {name}=0.5x",
            )  # fmt: skip
        rows = np.flatnonzero(self.chosen(name, text))
        work = self._graph.work[self._graph.operation_node[rows]]
        return WhatIf.of(text, scaled(self._graph, rows, lasts / np.maximum(work, 1.0)))

    def chosen(self, name: str, text: str) -> Mask:
        """Mask of the operations meant by a name: a kind, memsets, or part of the name of their kernel or operator."""
        operations = self._activity.operations
        found: Mask
        if name in KINDS:
            found = operation_kinds(self._activity) == KINDS[name]
        elif name == "memsets":
            found = operations.kind == MEMSET
        else:
            found = self._operations_named(_pattern(name))
        if not found.any():
            named, without = "kind, kernel or operator", ""
            if not (self._activity.ranges.kind == OPERATOR).any():
                named, without = "kind or kernel", " Operators are known of traces of PyTorch alone, and not here."
            raise WrongUsage(
                f"--what-if {text} names no operation.",
                f"No {named} of what is replayed has {name} in its name; the longest are: "
                f"{', '.join(self._longest())}.{without}",
                f"As in: {EXAMPLES}",
            )
        return found

    def _operations_named(self, pattern: re.Pattern[str]) -> Mask:
        """The operations that have a pattern in the name of kernel or operator; if none has, in the readable name."""
        operations = self._activity.operations
        named = np.array([pattern.search(one) is not None for one in self._activity.ranges.names], np.bool_)
        inside = self._operators.within(self._around, named) if named.any() else np.zeros(len(operations), np.bool_)
        for read in (str, readable_name):
            by_name = np.array([pattern.search(read(one)) is not None for one in operations.names], np.bool_)
            found: Mask = by_name[operations.name] | inside
            if found.any():
                break
        return found

    def _longest(self) -> list[str]:
        """The readable names of the operations that took the most time together."""
        operations = self._activity.operations
        time = np.bincount(operations.name, operations.end - operations.start, len(operations.names))
        names = [readable_name(operations.names[at]) for at in np.argsort(-time).tolist()]
        return list(dict.fromkeys(names))[:MOST_NAMED]

    def without_operators(self, rows: Integers) -> Change:
        """Remove also the host time of the innermost operators around these operations' calls."""
        around = self._around[rows]
        return self.without_ranges(np.unique(around[around >= 0]))

    def without_ranges(self, ranges: Integers) -> Change:
        """Remove the host time in these ranges (rows)."""
        table, spans = self._activity.ranges, []
        for thread in np.unique(table.thread[ranges]).tolist():
            mine = ranges[table.thread[ranges] == thread]
            spans.append((thread, IntervalSet.union_of(table.start[mine], table.end[mine])))
        return without_host_time(self._graph, self._activity, spans)


def _pattern(name: str) -> re.Pattern[str]:
    """A name as a regular expression; escaped if it is not a valid one."""
    try:
        return re.compile(name)
    except re.error:
        return re.compile(re.escape(name))
