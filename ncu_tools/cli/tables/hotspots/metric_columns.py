"""--columns of `hotspots`: the metrics that a user names, as columns beside the kernels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ncu_tools.cli.options import terminal_width
from ncu_tools.kernels.names.distinct_names import fitted_names
from ncu_tools.numbers.number_format import percent
from ncu_tools.report.table import Column, Table

if TYPE_CHECKING:
    from ncu_tools.kernels.view.columns.column_names import ChosenColumn
    from ncu_tools.kernels.view.columns.column_sums import ColumnSums
    from ncu_tools.runs.run import Run

KINDS = {
    "%": "percent", "ns": "time", "FLOP": "flop", "OP": "op", "FLOP/s": "flop/s", "byte": "byte", "byte/s": "byte/s",
    "hz": "hz",
}  # fmt: skip
"""Unit of a metric in a report -> its number format."""
BESIDE = {"kernel": None, "device": 1, "report": 1, "launches": 3, "time_total_ns": 2, "time_share": 1}
"""Columns kept beside the requested ones -> the order in which they are dropped if space is short."""
WIDEST_TITLE = 20
SAMPLES = "sampled_samples"
"""The column that every run with sampled activity has."""
TOO_SHORT = "every launch is too short for it; ncu-bench timeline RUN --part samples --by name has means over many"
LIKE_A_METRIC = 0.85
"""Least similarity of a metric name to a missing one for being suggested."""


def _completions(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Completions of the last name after a comma: sets, short names, and full names of metrics."""
    from ncu_tools.kernels.view.columns.column_names import FROM_NAMES, sets, short_names

    before, comma, begun = incomplete.rpartition(",")
    known = {name: f"set: {', '.join(columns)}" for name, columns in sets().items()}
    known |= {name: column.title for name, column in short_names().items()} | FROM_NAMES
    if "__" in begun:
        known = {metric: column.title for column in short_names().values() for metric in column.metrics}
    return [
        CompletionItem(f"{before}{comma}{name}", help=title) for name, title in known.items() if name.startswith(begun)
    ]


columns_option = click.option(
    "--columns", metavar="LIST", multiple=True, shell_complete=_completions,
    help="Show these metrics: short names, sets, or names in full, with commas between (docs/hotspots.md).",
)  # fmt: skip
"""--columns: metrics as columns, by full name, short name or set."""


@dataclass
class KernelsWithColumns(Table):
    """A table that shows every requested (`asked`) column, even if no kernel has a value in it."""

    asked: Collection[str] = ()

    def shown_columns(self) -> list[Column]:
        """The columns with any value, and the requested ones."""
        kept = {column.name for column in super().shown_columns()}.union(self.asked)
        return [column for column in self.columns if column.name in kept]


@dataclass
class MetricColumns:
    """The requested columns, in order, with cells by `Hotspot.key`, notes, and JSON metadata of each."""

    columns: list[Column]
    cells: dict[str, dict[str, Any]]
    notes: list[str]
    described: list[dict[str, Any]]

    def beside(self, table: Table, *, machine_readable: bool) -> Table:
        """The table of kernels with these columns: replacing its own for people, appended for programs."""
        from ncu_tools.kernels.kernel_row import row_key

        names = {column.name for column in self.columns}
        own = [column for column in table.columns if machine_readable or column.name in BESIDE]
        kept = [one if machine_readable else one._replace(spare=BESIDE[one.name]) for one in own]
        kept = [column for column in kept if machine_readable or column.name not in names]
        kept_names = {column.name for column in kept}
        columns = [*kept, *(column for column in self.columns if column.name not in kept_names)]
        columns += [column for column in table.columns if column.prose and column.name not in kept_names]
        rows = [{**row, **self.cells.get(row_key(row["kernel"], row.get("device")), {})} for row in table.rows]
        several = any((row["launches"] or 0) > 1 for row in table.rows)
        filled = [one for one in self.described if one["metrics"]]
        notes = [*self.notes, *([combined_note(filled)] if several and filled else []), *table.notes]
        extra = {**table.extra, "metric_columns": self.described}
        return KernelsWithColumns(table.command, columns, rows, notes, extra, asked=names)


def metric_columns(run: Run, wanted: Sequence[str], group: str, own: Sequence[Column]) -> MetricColumns:
    """The columns that `wanted` names for the kernels of a run; columns in `own` are passed through.

    Raises `WrongUsage` for an unknown name.
    """
    from ncu_parsers.schema.vendors import VENDOR_COLUMN, why_no_ncu_for

    from ncu_tools.kernels.view.columns.column_names import FROM_NAMES, chosen
    from ncu_tools.kernels.view.columns.column_sums import column_sums

    of_run = run.contents().filled
    own_by_name = {column.name: column for column in own}
    asked = chosen(wanted, of_run, own_by_name)
    new = [one for one in asked if not isinstance(one, str)]
    sums = column_sums(run, new, group)
    values = {one.name: sums.values(one) for one in new}
    cells: dict[str, dict[str, Any]] = {}
    for name, by_kernel in values.items():
        for kernel, value in by_kernel.items():
            cells.setdefault(kernel, {})[name] = value
    titles = _titles(new)
    columns = [
        own_by_name[one] if isinstance(one, str) else _column(one, titles[one.name], sums, values[one.name])
        for one in asked
    ]
    missing = _missing(new, [*of_run, *FROM_NAMES], why_no_ncu_for(run.read([VENDOR_COLUMN])))
    notes = [*missing, *_partly_summed(new, values, of_run), *_rare([one for one in new if sums.leaves_out(one)])]
    notes += _shortened(columns, own_by_name)
    return MetricColumns(columns, cells, notes, [_described(one, sums) for one in new])


def _column(one: ChosenColumn, title: str, sums: ColumnSums, values: dict[str, Any]) -> Column:
    unit = _unit(one, sums)
    is_text = any(isinstance(value, str) for value in values.values())
    kind = "text" if is_text else _kind(one.kind, unit)
    return Column(one.name, title, kind, unit, wide=is_text)


def _kind(kind: str, unit: str) -> str:
    if kind:
        return "number" if kind == "count" else kind
    return KINDS.get(unit, "number")


def _unit(one: ChosenColumn, sums: ColumnSums) -> str:
    if one.unit or one.over or one.gives:
        return one.unit
    return next((sums.units[metric] for metric in sums.metrics_in_run(one)), "")


def _titles(columns: Sequence[ChosenColumn]) -> dict[str, str]:
    """The title of each column by its name: its heading, or its name, cut if it stays unique."""
    if terminal_width() is None:
        return {one.name: one.name for one in columns}
    fitted = fitted_names([one.name for one in columns], WIDEST_TITLE)
    return {one.name: one.heading or fitted[one.name] for one in columns}


def _described(one: ChosenColumn, sums: ColumnSums) -> dict[str, Any]:
    from ncu_tools.kernels.view.columns.column_names import COMBINED

    return {
        "name": one.name,
        "title": one.title,
        "unit": _unit(one, sums),
        "metrics": sums.metrics_in_run(one),
        "combined": COMBINED[one.by],
        "meaning": one.means or None,
        "source": one.source or None,
    }


def combined_note(asked: Sequence[dict[str, Any]]) -> str:
    """The note on how the launches of a kernel are combined."""
    ways: dict[str, list[str]] = {}
    for one in asked:
        ways.setdefault(one["combined"], []).append(one["name"])
    return "several launches of a kernel are combined: " + "; ".join(
        f"{', '.join(names)} by {way}" for way, names in ways.items()
    )


def _missing(columns: Sequence[ChosenColumn], in_run: Collection[str], why_no_ncu: str) -> list[str]:
    """Notes on columns whose metric is missing from the report, with what collects them; [] if there are none."""
    from ncu_launch.counters.metric_groups import doubt_of

    from ncu_tools.kernels.view.columns.column_names import METRIC_NAME, near

    lacking = [one for one in columns if not _is_there(one, in_run)]
    if lacking and why_no_ncu:
        return [f"not in the run, so empty: {', '.join(one.name for one in lacking)}; {why_no_ncu}"]
    by_command: dict[str, list[str]] = {}
    for one in lacking:
        if one.collect:
            by_command.setdefault(one.collect, []).append(one.name)
    too_short = f"empty, since {{}} is not among the samples, or {TOO_SHORT}"
    notes = [
        too_short.format(" or ".join(names)) if SAMPLES in in_run else
        f"not in the run, so empty: {', '.join(names)}; collect with: {way}"
        for way, names in by_command.items()
    ]  # fmt: skip
    lacking = [one for one in lacking if not one.collect]
    if not lacking:
        return notes
    sections = dict.fromkeys(one.section for one in lacking if one.section)
    metrics = [one.name for one in lacking if not one.section and METRIC_NAME.fullmatch(one.name)]
    asks = [*(f"--section {section}" for section in sections), *([f"--metrics {','.join(metrics)}"] * bool(metrics))]
    command = f"ncu {' '.join(asks) or '--set full'} -o REPORT PROGRAM"
    alike = [name for metric in metrics for name in near(metric, in_run, LIKE_A_METRIC)]
    names = ", ".join(one.name for one in lacking)
    has = f" (it has {', '.join(dict.fromkeys(alike))})" if alike else ""
    doubts = [doubt for doubt in map(doubt_of, metrics) if doubt]
    return [*notes, f"not in the report{has}, so empty: {names}; collect with: {command}", *doubts]


def _is_there(one: ChosenColumn, in_run: Collection[str]) -> bool:
    needed = [name for name in in_run if one.needs(name)]
    return len(needed) > 1 if one.over else bool(needed)


def _partly_summed(
    columns: Sequence[ChosenColumn], values: dict[str, dict[str, Any]], in_run: Collection[str]
) -> list[str]:
    from ncu_tools.kernels.view.columns.column_names import SUM

    partly = [
        one.name for one in columns if one.by == SUM and _is_there(one, in_run) and None in values[one.name].values()
    ]
    return [f"no sum of {', '.join(partly)} for kernels with a launch that lacks it"] if partly else []


def _rare(columns: Sequence[ChosenColumn]) -> list[str]:
    from ncu_tools.numbers.row_sums import MOSTLY_KNOWN

    names = ", ".join(one.name for one in columns)
    why = f"for rows where launches with less than {percent(MOSTLY_KNOWN)} of the time have it"
    return [f"no {names} {why}; --by name has it by kernel"] if columns else []


def _shortened(columns: Sequence[Column], own: Collection[str]) -> list[str]:
    return [f"{one.title} is {one.name}" for one in columns if one.name not in own and "…" in one.title]
