"""Advice on a run in a notebook: levers on its kernels, or on the steps of a recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ncu_tools.advice.advise import advise, rows_of
from ncu_tools.advice.without_counters import without_counters
from ncu_tools.ceilings.machine_files import Machine
from ncu_tools.kernels.names.distinct_names import distinct_names
from ncu_tools.kernels.view.kernel_view import has_counters
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.notebook.views import TableView
from ncu_tools.report.step_advice_table import SHOWN, lever_rows
from ncu_tools.report.table import Table
from ncu_tools.timeline.levers.step_advice import advice_on_recording
from ncu_tools.timeline.load_activity import is_recording, load_activity

OF_KERNELS = (
    column("kernel", kind="text", wide=True), column("advice.title", kind="text"),
    *columns("saves_share saves_low saves_high saves_ns share_of_run remedy~0"),
)  # fmt: skip

Row = dict[str, Any]


def advice_on_run(launches: pa.Table, code: pa.Table | None, path: str, machine: Machine | None, top: int) -> TableView:
    """The levers, largest saving first, of which `top` are shown; `table` also has those that bring nothing, and why.

    `code` are the instructions of the run's kernels; `path` is the run's path: recordings get levers on their steps.
    """
    if not has_counters(launches) and is_recording(path):
        found = advice_on_recording(load_activity(path), machine)
        rows = lever_rows(found, path)
        return TableView(rows, Table("levers", SHOWN, rows[:top], [*_note_on_more_levers(rows, top), *found.notes]))
    advice = advise(launches, code) if has_counters(launches) else without_counters(launches)
    rows = rows_of(advice)
    worth = [row for row in rows if row["lever"] is not None and row["is_worth_it"]]
    names = distinct_names(list(dict.fromkeys(row["kernel"] for row in rows)))
    shown = [{**row, "kernel": names[row["kernel"]]} for row in worth[:top]]
    without = [f"{names[row['kernel']]}: {row['says']}" for row in rows if row["lever"] is None]
    notes = [*_note_on_more_levers(worth, top), *without[:top], *advice.notes]
    return TableView(rows, Table("advise", OF_KERNELS, shown, notes))


def _note_on_more_levers(rows: Sequence[Row], top: int) -> list[str]:
    left = len(rows) - top
    return [f"{left:,} more lever{'s' * (left > 1)} in .table"] if left > 0 else []
