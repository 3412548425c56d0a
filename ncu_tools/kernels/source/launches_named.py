"""Restrict the inside of a run to the launches of a selection.

Instructions and samples over time know only the number of their launch. Its phase, layer, device and rank are in the
table of launches of the same run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_parsers.schema import arrays
from ncu_parsers.schema.instructions_table import launches_beside
from ncu_parsers.schema.tables import words
from ncu_parsers.sources.sources import Source

from ncu_tools.kernels.source.load_instructions import RunInstructions
from ncu_tools.kernels.source.source_pages_alone import run_of_source_pages
from ncu_tools.runs.loading import load
from ncu_tools.runs.run import Run
from ncu_tools.runs.selection import Selection

Reading = Callable[[Source], None]


@dataclass(frozen=True)
class LaunchesNamed:
    """Launches by report and number, and the note that describes them."""

    numbers: frozenset[tuple[str | None, int | None]]
    note: str

    def of(self, reports: list[str | None], numbers: list[int | None]) -> list[bool]:
        """Which entries belong to the launches, given the report and the number of each."""
        return [one in self.numbers for one in zip(reports, numbers, strict=True)]


def launches_named(path: str, only: Selection, reading: Reading) -> LaunchesNamed:
    """The selected launches of a run. Raises `NcuBenchError` if there are none, for example because they know no phase,
    or if the run cannot be read."""
    left = _selected_run(path, only, reading)
    numbers = zip(words(left.table, "report"), left.table["launch_id"].to_pylist(), strict=True)
    return LaunchesNamed(frozenset(numbers), left.notes[-1])


def _selected_run(path: str, only: Selection, reading: Reading) -> Run:
    try:
        run = load(str(launches_beside(Path(path)) or path), reading=reading)
    except NcuBenchError:
        alone = run_of_source_pages(path, reading)
        if alone is None:
            raise
        run = alone[0]
    return only.of(run)


def instructions_named(loaded: RunInstructions, path: str, only: Selection, reading: Reading) -> RunInstructions:
    """The instructions of a run that belong to the selected launches.

    Kernel names are not considered here: instructions have them. Raises `NcuBenchError` as `launches_named`, and if no
    selected launch has instructions.
    """
    launches = launches_named(path, only, reading)
    kept = np.array(launches.of(words(loaded.table, "report"), loaded.table["launch_id"].to_pylist()), bool)
    if not kept.any():
        raise NcuBenchError(
            f"No instructions of {path} belong to {only.title}.",
            "They belong to other launches, or come from a source page, which numbers launches by itself.",
            "Leave the selection out, or name a kernel or a launch: --kernel, --launch.",
        )
    table: pa.Table = arrays.kept(loaded.table, kept)
    return replace(loaded, table=table, notes=[*loaded.notes, launches.note])
