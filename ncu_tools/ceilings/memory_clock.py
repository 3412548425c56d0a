"""The memory clock of a run: one value per report and device, from a launch long enough to show it.

ncu prints a memory clock per launch: cycles counted / time of the launch. The two cover different spans, so the
quotient is wrong for short launches: in real reports 11 to 30 % low at 2 us, and within 1 % from 100 us on
(docs/numbers.md, section 5). The longest launch is the most reliable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.tables import LONG_ENOUGH_NS, Floats

RUN_CLOCK = "dram_clock_hz of the run"
"""Temporary column that gives batches of a file the memory clock of the whole file. It is never written."""

NEEDED = ("report", "device_name", "compute_capability", "duration_ns", "dram_clock_hz")

Key = tuple[str | None, ...]


@dataclass
class MemoryClocks:
    """The longest launch of each report and device: (time in ns, memory clock in Hz)."""

    longest: dict[Key, tuple[float, float]] = field(default_factory=dict)

    def add(self, table: pa.Table) -> None:
        """Add launches; those without a time or a clock are ignored."""
        rows = longest_launches(table).tolist()
        if not rows:
            return
        times, clocks = tables.floats(table, "duration_ns"), tables.floats(table, "dram_clock_hz")
        codes, keys = _groups(table)
        for row in rows:
            key = keys[codes[row]]
            self.longest[key] = max(self.longest.get(key, (0.0, 0.0)), (float(times[row]), float(clocks[row])))

    def of(self, table: pa.Table) -> Floats:
        """The memory clock in Hz of each launch's report and device; NaN where no launch was long enough."""
        if not self.longest:
            return tables.unknown(len(table))
        codes, keys = _groups(table)
        return np.array([self.longest.get(key, (0.0, np.nan))[1] for key in keys], float)[codes]


def longest_launches(table: pa.Table) -> npt.NDArray[np.int64]:
    """Row indices of the longest launch of each report and device, among launches that show their memory clock."""
    times, clocks = tables.floats(table, "duration_ns"), tables.floats(table, "dram_clock_hz")
    shown = np.flatnonzero((times >= LONG_ENOUGH_NS) & (clocks > 0))
    if not shown.size:
        return shown
    groups = _groups(table)[0][shown]
    longest = np.zeros(int(groups.max()) + 1)
    np.maximum.at(longest, groups, times[shown])
    candidates = np.flatnonzero(times[shown] == longest[groups])  # few: sorting all launches is far slower
    order = candidates[np.lexsort((clocks[shown[candidates]], groups[candidates]))]
    return shown[order[np.flatnonzero(np.diff(groups[order], append=-1))]]


def _groups(table: pa.Table) -> tuple[npt.NDArray[np.int64], list[Key]]:
    """For each launch the index of its (report, device) pair, and the keys of these pairs."""
    columns = [tables.codes(table, name) for name in NEEDED[:3]]
    groups = np.zeros(len(table), np.int64)
    for codes, texts in columns:
        each = groups * len(texts) + codes
        found = np.flatnonzero(np.bincount(each))  # numpy.unique would sort the launches
        number_of = np.zeros(found[-1] + 1 if found.size else 0, np.int64)
        number_of[found] = np.arange(found.size)
        groups = number_of[each]
    first = np.zeros(int(groups.max(initial=-1)) + 1, np.int64)
    first[groups[::-1]] = np.arange(len(table))[::-1]
    keys: list[Key] = [tuple(texts[codes[row]] for codes, texts in columns) for row in first.tolist()]
    return groups, keys


def run_clock(table: pa.Table) -> Floats:
    """The memory clock in Hz of each launch's run, NaN where unknown.

    A batch of a file has it in the column `RUN_CLOCK`; any other table counts as a whole run.
    """
    if RUN_CLOCK in table.column_names:
        return tables.floats(table, RUN_CLOCK)
    clocks = MemoryClocks()
    clocks.add(table)
    return clocks.of(table)


def needed(names: Sequence[str], filled: Sequence[str]) -> list[str]:
    """The columns to read for the memory clocks of a file; [] if no launch has one."""
    return [name for name in NEEDED if name in names] if "dram_clock_hz" in filled else []


def with_clock_of(clocks: MemoryClocks, batch: pa.Table) -> pa.Table:
    """A batch of a file with the column `RUN_CLOCK` added, if the file shows any memory clock."""
    return batch.append_column(RUN_CLOCK, arrays.floats(clocks.of(batch))) if clocks.longest else batch
