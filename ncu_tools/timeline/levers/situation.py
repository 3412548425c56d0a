"""A recorded step as input of levers: its graph, the category of each operation, and operators around calls."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from ncu_launch.files.toml_tables import table_beside
from ncu_parsers.schema.vendors import Vendor
from ncu_parsers.timelines.activity.activity import MISSING, Activity, GpuOperations, Integers

from ncu_tools.ceilings.machine_files import DRAM, Machine, machine_of_device
from ncu_tools.kernels.names.categories import category_of
from ncu_tools.timeline.graph.asked import AskedWhatIfs
from ncu_tools.timeline.graph.build import step_graph
from ncu_tools.timeline.graph.critical_path import CriticalPath, critical_path, operation_kinds
from ncu_tools.timeline.graph.evidence import GraphEvidence, evidence
from ncu_tools.timeline.graph.operators import OperatorsAround
from ncu_tools.timeline.graph.step_graph import Mask, StepGraph
from ncu_tools.timeline.graph.what_if import WhatIf, all_of, without, without_gaps_before
from ncu_tools.timeline.launch_links import launch_links


def lever_facts() -> dict[str, Any]:
    """The contents of levers.toml: constants of the levers."""
    return table_beside(__file__, "levers")


def step_lever_texts() -> dict[str, dict[str, Any]]:
    """Lever -> its title, remedy, model, source, unknowns and check (step_levers.toml)."""
    return table_beside(__file__, "step_levers")


class StepSituation:
    """One recording with derived data that several levers need, computed on first use.

    `since` (ns) is where its steps begin, if the recording was cut to them: until then the GPU ran earlier work.
    `moves` are pages of managed memory that moved at faults, which are no operations of the step.
    """

    def __init__(
        self, activity: Activity, machine: Machine | None = None, since: int | None = None,
        moves: GpuOperations | None = None,
    ) -> None:  # fmt: skip
        self.activity = activity
        self.moves = activity.operations.at(slice(0, 0)) if moves is None else moves
        links = launch_links(activity)
        self.call, self.doubts = links.call, links.notes
        self.graph: StepGraph = step_graph(activity, self.call)
        since_ns = 0.0 if since is None else float(since - self.graph.origin)
        self.path: CriticalPath = critical_path(self.graph, activity, since_ns=since_ns)
        lost = sum(map(len, links.lost.values()))
        self.evidence: GraphEvidence = evidence(self.graph, activity, self.path, lost)
        self.kinds = operation_kinds(activity)
        self.lasts: Integers = activity.operations.end - activity.operations.start
        self._shapes: dict[int, list[list[int]] | None] = {}
        names = [one for one in activity.devices.values() if one]
        self.machine = machine or (machine_of_device(names[0]) if names else None)

    @cached_property
    def operators(self) -> OperatorsAround:
        """The nesting of the host's operators."""
        return OperatorsAround(self.activity)

    @cached_property
    def asked(self) -> AskedWhatIfs:
        """The parser of the user's what-ifs."""
        return AskedWhatIfs(self.activity, self.graph, self.call, self.operators)

    @cached_property
    def around(self) -> Integers:
        """The row of the innermost operator around the call of each operation, -1 for none."""
        return self.operators.around(self.call)

    @cached_property
    def category(self) -> npt.NDArray[np.object_]:
        """The category of each operation, from the names of its kernel and operator."""
        operations, ranges = self.activity.operations, self.activity.ranges
        names = [*ranges.names, None]
        operator = np.append(ranges.name, len(names) - 1)[self.around] if len(ranges) else np.zeros(0, np.int64)
        if not len(ranges):
            operator = np.full(len(operations), len(names) - 1)
        operator = np.where(self.around >= 0, operator, len(names) - 1)
        pairs, code = np.unique(operations.name * len(names) + operator, return_inverse=True)
        known = [category_of(operations.names[one // len(names)], names[one % len(names)]) for one in pairs.tolist()]
        return np.array(known, np.object_)[code.reshape(-1)]

    def named(self, pattern: Any) -> Mask:
        """Mask of the operations with a kernel name that matches a compiled pattern (bool, one per operation)."""
        operations = self.activity.operations
        found = np.array([pattern.search(one) is not None for one in operations.names], np.bool_)
        return found[operations.name]

    def operator_named(self, pattern: Any) -> Mask:
        """Mask of the operations whose innermost operator has a name that a pattern finds (bool, one per operation)."""
        ranges = self.activity.ranges
        if not len(ranges):
            return np.zeros(len(self.call), np.bool_)
        found = np.array([pattern.search(one) is not None for one in ranges.names], np.bool_)
        return found[ranges.name[self.around]] & (self.around >= 0)

    @cached_property
    def label(self) -> Integers:
        """Index in the labels of ranges of each operation's innermost operator, -1 for none."""
        ranges = self.activity.ranges
        label = ranges.label[self.around].astype(np.int64) if len(ranges) else np.full(len(self.around), -1)
        return np.where(self.around >= 0, label, -1)

    def shapes(self, label: int) -> list[list[int]] | None:
        """The shapes of a label's inputs: a list of sizes each, [] if it is no tensor; None if not recorded."""
        if label not in self._shapes:
            inputs = self.activity.ranges.labels[label].inputs if label >= 0 else None
            shapes = None if inputs is None else inputs.shapes
            self._shapes[label] = _sizes(shapes) if isinstance(shapes, list) else None
        return self._shapes[label]

    def types(self, label: int) -> list[str]:
        """The types of a label's inputs as PyTorch writes them, "" if unknown."""
        inputs = self.activity.ranges.labels[label].inputs if label >= 0 else None
        types = None if inputs is None else inputs.types
        return [str(one) for one in types] if isinstance(types, list) else []

    @cached_property
    def bandwidth(self) -> float | None:
        """The peak of the device's memory in B/s; None if no machine file has it."""
        rate = self.machine.rates.get(DRAM) if self.machine is not None else None
        return None if rate is None else rate.value

    @property
    def software(self) -> str:
        """The software for which a lever needs other words: "jax" for XLA, "amd" if all GPUs are AMD's, else ""."""
        from ncu_parsers.timelines.formats.xplane import TOOL

        if self.activity.tool == TOOL:
            return "jax"
        return "amd" if set(self.activity.vendors.values()) == {Vendor.AMD} else ""

    @property
    def launch_order(self) -> Integers:
        """The operations with known calls, ordered by thread and begin of the call."""
        known = np.flatnonzero(self.call >= 0)
        calls = self.activity.calls
        by = self.call[known]
        return known[np.lexsort((self.activity.operations.start[known], calls.start[by], calls.thread[by]))]

    def gone(self, title: str, rows: Integers, least: Integers | None = None, *, is_likely: bool = True) -> WhatIf:
        """Remove operations with their calls; in the likely reading also their operators, at most also the gaps before.

        If `least` is given, the least and likely readings remove only these. Without `is_likely` there is no likely
        reading.
        """
        few = rows if least is None else least
        calls = without(self.graph, few)
        likely = all_of(calls, self.asked.without_operators(few)) if is_likely else None
        most = all_of(without(self.graph, rows), self.asked.without_operators(rows),
                      without_gaps_before(self.graph, rows, lever_facts()["graphs"]["short_gap_ns"]))  # fmt: skip
        return WhatIf(title, calls, likely, most)


def _sizes(shapes: list[Any]) -> list[list[int]]:
    return [one if isinstance(one, list) and all(isinstance(size, int) for size in one) else [] for one in shapes]


def processes_of(activity: Activity) -> list[int]:
    """The processes that used GPUs."""
    return [one for one in np.unique(activity.operations.process).tolist() if one != MISSING]
