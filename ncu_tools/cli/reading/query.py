"""ncu-bench query: SQL over a run."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import WrongUsage
from ncu_launch.notes import Note, NoteKind

from ncu_tools.cli.option_kinds.selection_options import selection_options
from ncu_tools.cli.options import format_option, machine_option, progress, show, terminal_width
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.table import Column, Table, left_out

if TYPE_CHECKING:
    import pyarrow as pa

    from ncu_tools.ceilings.machine_files import Machine
    from ncu_tools.runs.run import Run
    from ncu_tools.runs.selection import Selection
    from ncu_tools.runs.sql_query import QueryTable


class AnswerTable(Table):
    """A table that shows every requested column, even if all of it is NULL."""

    def shown_columns(self) -> list[Column]:
        """All columns."""
        return list(self.columns)


@click.command()
@click.argument("run")
@click.argument("sql")
@machine_option
@selection_options
@format_option
def command(run: str, sql: str, machine: Machine | None, output_format: str, only: Selection | None) -> None:
    """Answer a question in SQL about a run, through DuckDB (pip install '.[query]').

    The tables are launches, a row per launch with its category and every metric of the report under its name, and
    kernels, a row per kernel name with its category and what bounds it, rules, a row per message of NVIDIA's rules, and
    metrics, what is known of each metric; of a sweep of ncu-bench bench there is points, a row per point; of a trace
    from inside kernels there is ranges, a row per range of a warp. Units are in the names; NULL is unknown and shown as
    nothing. Names with dots take double quotes. A query reads these tables and nothing else: no files, no network, no
    changes.

    \b
    Example:
      ncu-bench query report.csv "SELECT kernel_short, sum(duration_ns) FROM launches GROUP BY ALL ORDER BY 2 DESC"
      ncu-bench query report.csv "SELECT kernel, bound FROM kernels WHERE bound_fraction < 0.5" --format csv
      ncu-bench query trace.json "SELECT category, sum(duration_ns) FROM launches GROUP BY ALL ORDER BY 2 DESC"
      ncu-bench query report.csv "DESCRIBE launches"
      ncu-bench query report.ncu-rep "SELECT rule, message, metrics FROM rules WHERE speedup_type = 'global'"
      ncu-bench query report.ncu-rep "SELECT metric, unit, description FROM metrics WHERE in_run"
      ncu-bench query sweep "SELECT target, batch_size, latency_mean_ns, throughput FROM points WHERE outcome = 'ok'"
    """
    from ncu_parsers.parse.warp_trace_files import is_warp_trace

    from ncu_tools.bench.bench_runs import is_bench
    from ncu_tools.runs.sql_query import query

    read = _points if is_bench(run) else _ranges if is_warp_trace(run) else _of_launches
    tables, notes = read(run, machine, only)
    answer = query(sql, tables)
    asked = zip(answer.columns, answer.numbers, strict=True)
    columns = [_column(place, name, number) for place, (name, number) in enumerate(asked)]
    nested = output_format == "json"
    rows = [
        {name: _plain(value, nested) for name, value in zip(answer.columns, row, strict=True)} for row in answer.rows
    ]
    table = AnswerTable("query", columns, rows, notes)
    if output_format == "text" and (more := left_out(table, terminal_width())):
        has = counted(more, "more column has", "more columns have")
        table.notes = [*notes, Note(f"{has} no room; --wide shows all", NoteKind.MORE, "columns")]
    show(table, output_format)


def _of_launches(run: str, machine: Machine | None, only: Selection | None) -> tuple[dict[str, QueryTable], list[str]]:
    """The tables of a run of launches, or of selected launches, and notes on reading it."""
    from ncu_tools.runs.loading import load

    with progress("Reading") as reading:
        located = load(run, reading=reading)
        located = located if only is None else only.of(located)
    launches, notes = _launches(located)
    return {
        "launches": launches,
        "kernels": _kernels(located, machine),
        "rules": _rules(located),
        "metrics": _metrics(launches),
    }, notes


def _points(run: str, machine: Machine | None, only: Selection | None) -> tuple[dict[str, QueryTable], list[str]]:
    """The table of a sweep, and its notes."""
    from ncu_tools.bench.bench_runs import load_bench, points_of
    from ncu_tools.runs.sql_query import held_in_memory

    if only is not None:
        raise WrongUsage(
            f"{run} is a sweep, which holds points and no launches.",
            advice="Choose points in SQL: WHERE phase = 'step'",
        )
    if machine is not None:
        raise WrongUsage(
            f"{run} is a sweep, whose points have no ceilings.",
            advice="Leave out --machine, or draw it: ncu-bench roofline",
        )
    return {"points": held_in_memory(points_of(run))}, load_bench(run).notes


def _ranges(trace: str, machine: Machine | None, only: Selection | None) -> tuple[dict[str, QueryTable], list[str]]:
    """The table of a trace from inside kernels, and its notes."""
    import pyarrow as pa
    from ncu_parsers.parse.warp_trace_files import read_warp_trace
    from ncu_parsers.schema.warp_range_table import schema
    from ncu_parsers.warp_ranges.trace_table import tables_of

    from ncu_tools.runs.sql_query import held_in_memory

    if only is not None or machine is not None:
        raise WrongUsage(
            f"{trace} holds ranges of warps, which have no ceilings and are not selected as launches are.",
            advice="Choose ranges in SQL: WHERE launch = 0 AND role = 'mma'",
        )
    with progress("Reading"):
        found, lines = read_warp_trace(trace)
        table = pa.concat_tables([schema().empty_table(), *tables_of(found, lines)], promote_options="permissive")
    return {"ranges": held_in_memory(table)}, [*found.damage, *found.notes]


def _launches(run: Run) -> tuple[QueryTable, list[str]]:
    """The launches, which DuckDB reads itself if they are in Parquet, and notes on reading them."""
    from ncu_tools.kernels.names.categories import CATEGORY, category_of_rows
    from ncu_tools.runs.sql_query import ComputedColumn, QueryTable

    of_name = ComputedColumn(CATEGORY, ("kernel_name", "operator"), category_of_rows)
    launches, notes = run.scanned()
    return QueryTable(launches, lambda: [*run.contents().filled, CATEGORY], of_name), notes


def _kernels(run: Run, machine: Machine | None) -> QueryTable:
    """The kernels of a run, summed when a query needs them."""
    from ncu_parsers.schema import arrays

    from ncu_tools.kernels.kernel_cache import hotspots_of
    from ncu_tools.kernels.kernel_row import CATEGORY, kernels_table
    from ncu_tools.kernels.view.columns.column_sums import categories_of_kernels
    from ncu_tools.runs.sql_query import QueryTable, held_in_memory

    @cache
    def table() -> QueryTable:
        rows = hotspots_of(run, machine).rows
        of_kernels = categories_of_kernels(run)
        categories = arrays.dictionary([of_kernels.get(row.key) for row in rows])
        return held_in_memory(kernels_table(rows).append_column(CATEGORY, categories))

    return QueryTable(lambda: table().rows(), lambda: table().held())


def _rules(run: Run) -> QueryTable:
    """The messages of NVIDIA's rules, read when a query needs them."""
    from ncu_tools.kernels.view.nvidia_rules import OF_TABLE, TABLE_COLUMNS, rules_table
    from ncu_tools.runs.sql_query import QueryTable

    return QueryTable(lambda: rules_table(run.read(OF_TABLE)), lambda: list(TABLE_COLUMNS))


def _metrics(launches: QueryTable) -> QueryTable:
    """Known facts on the metrics of a run and others, created when a query needs them."""
    from ncu_tools.runs.sql_query import QueryTable

    def table() -> pa.Table:
        from ncu_tools.kernels.view.columns.metric_table import metrics_table

        return metrics_table(launches.rows().schema, launches.held())

    return QueryTable(table, lambda: table().column_names)


def _column(place: int, name: str, number: bool) -> Column:
    """A column titled by its name, as the meaning of a computed column is unknown; the last ones are dropped first."""
    return Column(name, name, "number" if number else "text", wide=not number, spare=place)


def _plain(value: Any, nested: bool) -> Any:
    """A value of DuckDB as a number, a text, or with `nested` a list or an object of these."""
    if isinstance(value, Decimal):
        value = int(value) if value == value.to_integral_value() else float(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, (list, tuple, dict)):
        plain = _inside(value)
        return plain if nested else json.dumps(plain, ensure_ascii=False)
    return str(value)


def _inside(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _inside(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_inside(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return _plain(value, True)
