"""ncu-bench hotspots: the kernels that take the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import WrongUsage
from ncu_parsers.schema.flops_basis import BasisMark, basis_of
from ncu_parsers.schema.own_columns import values_apart

from ncu_tools.cli.option_kinds.rows_and_order import KERNEL_ORDER, KERNEL_ROWS, Words, rows_and_order
from ncu_tools.cli.option_kinds.selection_options import require_no_dask, selection_options
from ncu_tools.cli.options import (
    MACHINE_FORMATS,
    dask_option,
    engine_of,
    format_option,
    inductor_option,
    machine_option,
    options_in,
    progress,
    rows_shown,
    settings_options,
    show,
    terminal_width,
    top_option,
)
from ncu_tools.cli.program_options import program_options
from ncu_tools.cli.tables.hotspots.kernels_of_runs import (
    head_of_kernels,
    hidden_kernels,
    load_runs,
    notes_on_runs,
    require_one_point,
)
from ncu_tools.cli.tables.hotspots.locations import LOCATION, OF_LOCATIONS, with_short_paths
from ncu_tools.cli.tables.hotspots.metric_columns import MetricColumns, columns_option, metric_columns
from ncu_tools.cli.tables.hotspots.places import PLACES, differing_places, for_people
from ncu_tools.cli.tables.time_titles import with_time_title
from ncu_tools.cli.views import Verb
from ncu_tools.report.columns.registry import column, columns, table_columns
from ncu_tools.report.table import Column, Table, columns_of_arguments

if TYPE_CHECKING:
    from ncu_parsers.sources.settings import Settings

    from ncu_tools.advice.advise import KernelAdvice
    from ncu_tools.ceilings.machine_files import Machine
    from ncu_tools.kernels.kernel_row import Hotspot
    from ncu_tools.runs.run import Run
    from ncu_tools.runs.selection import Selection

LOWER = "flops_lower_bound"
COLUMNS = table_columns("hotspots")
MACHINE_READABLE = (*columns("kernel_id unit flops_basis flops_lower_bound flag"), *PLACES)
BEFORE_UNITS = ("kernel", "launches", "time_total_ns", "time_share", "flops")
DIAGNOSIS = column("diagnosis")
BESIDE_DIAGNOSES = (
    "kernel",
    "device",
    "report",
    "launches",
    "time_total_ns",
    "time_share",
    "headroom_ns",
    "headroom_share",
)
BASIS = column("flops_basis", spare=2, wide=True)
LOWER_BOUNDS_OF_UNITS = {"fp32_lower_bound": BasisMark.NO_PACKED, "tensor_lower_bound": BasisMark.SOME_TYPES}
"""Lower bound of a unit -> its mark."""
IS_TOTAL = column("is_total")
ROWS = Words(
    (*KERNEL_ROWS.words, "layer"),
    f"{KERNEL_ROWS.means} The layers of a model are a tree, with options of its own below.",
    KERNEL_ROWS.default,
)
SORTED_BY = {"headroom": "headroom_ns", "flops": "flops", "dram": "dram_bytes"}
"""Order -> its column, which stays on narrow terminals; the time column always stays."""


@dataclass(frozen=True)
class AskedTable:
    """Options on the columns of the table: --units, --diagnose and --columns."""

    units: bool
    diagnose: bool
    columns: tuple[str, ...]

    def needs_ranges(self, group: str, only: Selection | None) -> bool:
        """True if NVTX ranges, or columns derived from them, are shown or select launches."""
        from ncu_tools.kernels.kernel_row import NAMES_OF_KERNELS

        selects = only is not None and (only.phases or only.layers)
        return bool(selects or self.diagnose or self.columns or group not in NAMES_OF_KERNELS)


@click.command(cls=Verb)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@rows_and_order(ROWS, KERNEL_ORDER)
@top_option("kernels")
@machine_option
@click.option("--units", is_flag=True, help="Show which units did the FLOPs: FP64, FP32, FP16, tensor cores by type.")
@click.option("--diagnose", is_flag=True, help="Say of each kernel which changes (levers) save time, and how much.")
@columns_option
@settings_options
@inductor_option
@selection_options
@dask_option
@format_option
@options_in(AskedTable, "asked")
def command(
    runs: tuple[str, ...],
    group: str,
    order: str,
    top: int | None,
    machine: Machine | None,
    dask: str | None,
    output_format: str,
    only: Selection | None,
    settings: Settings,
    inductor: str,
    asked: AskedTable,
) -> None:
    """Show which kernels take the time, what bounds each, and how near it is to that bound.

    RUN is a report of ncu (.ncu-rep, CSV, text), a Parquet file or a dataset made by parse, also behind a URL, a folder
    of reports, or - for standard input. Text shows the columns that there is room for; --wide, CSV and JSON have all.
    Headroom is the time saved if a kernel reached its roof; its share of the run is the most that could be gained. With
    --units the last row is the sum over all kernels of the run, shown or not. With --diagnose JSON has each lever and
    each cause with its evidence: the numbers, their units and the metrics they come from. --columns takes metrics by
    full name, short names such as occupancy, l1_hit or top_stall, and sets of these such as memory.

    \b
    Example:
      ncu-bench hotspots report.csv --top 10
      ncu-bench hotspots launches.parquet --by grid --sort dram --format csv
      ncu-bench hotspots report.csv --units
      ncu-bench hotspots run --phase backward --kernel gemm
      ncu-bench hotspots report.csv --sort headroom --diagnose
      ncu-bench hotspots report.ncu-rep --columns occupancy,registers,l1_hit,top_stall
      ncu-bench hotspots report.ncu-rep --columns memory --format csv
      ncu-bench hotspots s3://bucket/fleet --dask tcp://scheduler:8786
    """
    from ncu_tools.kernels.kernel_cache import hotspots_of
    from ncu_tools.kernels.kernel_row import GROUPS

    require_no_dask(only, dask)
    if asked.columns and asked.units:
        raise WrongUsage("--units chooses the columns, as --columns does.", advice="Leave one of them out.")
    top = rows_shown(top, output_format)
    with engine_of(dask) as engine:
        found_runs = load_runs(runs, only, settings, ranges=asked.needs_ranges(group, only), engine=engine)
        if inductor and group == LOCATION:
            from ncu_tools.runs.loading import with_compiled_lines

            found_runs = with_compiled_lines(found_runs, inductor)
        result = hotspots_of(found_runs, machine, by=order, group=group)
        chosen = _chosen_columns(found_runs, asked.columns, group)
        shown, for_machines = result.rows[:top], output_format in MACHINE_FORMATS
        advice, why_not = _advice(found_runs, shown, group, runs) if asked.diagnose else ({}, [])
        causes = _causes(found_runs, shown, group) if asked.diagnose and for_machines else {}
    if asked.units or asked.diagnose or asked.columns:
        require_one_point(runs, result)
    head = head_of_kernels(runs, result, only, group)
    notes = [
        *(notes_on_runs(runs, only) if dask is not None or len(runs) > 1 else ()),
        *hidden_kernels(result.rows, top, noun=GROUPS[group]),
        *result.notes,
    ]
    notes += why_not
    rows = [{**_varied(row), **asdict(row), "diagnosis": _sentence(group, advice.get(row.key))} for row in shown]
    columns: Sequence[Column] = [
        one
        for one in _columns(result.rows, order, group, output_format, diagnose=asked.diagnose)
        if output_format in MACHINE_FORMATS or one not in PLACES or len({row[one.name] for row in rows}) > 1
    ]
    if asked.units:
        columns, rows = _by_unit(result.rows, group, top, columns, for_machines=output_format in MACHINE_FORMATS)
    for row in rows:
        row["kernel_id"] = _id_of(row, group)
    table = with_time_title(Table("hotspots", columns, rows, notes), result.time_title)
    if asked.diagnose and for_machines:
        from ncu_tools.advice.lever_sentences import rows_of_levers

        table.extra["diagnoses"] = [
            {
                "kernel": row.kernel,
                "device": row.device,
                **causes[row.key],
                "levers": rows_of_levers(advice.get(row.key)),
            }
            for row in shown
            if row.key in causes
        ]
    if inductor and group not in ("operator", LOCATION):
        from ncu_tools.cli.tables.hotspots.compiled_kernels import with_sources  # slow to import

        table = with_sources(table, inductor)
    if chosen is not None:
        table = chosen.beside(table, machine_readable=output_format in MACHINE_FORMATS)
    if group == LOCATION and output_format == "text" and not program_options().full_names:
        table = with_short_paths(table, terminal_width())
    if output_format not in MACHINE_FORMATS and not program_options().full_names:
        table.rows = for_people(table.rows, group)
    show(table, output_format, head=head)


def _id_of(row: dict[str, Any], group: str) -> str | None:
    """The key of a row's kernel, which --id takes; None for rows other than single kernels by full name."""
    from ncu_tools.kernels.names.kernel_ids import kernel_id

    return kernel_id(row["kernel"]) if group == "name" and not row.get(IS_TOTAL.name) else None


def _varied(row: Hotspot) -> dict[str, Any]:
    """The varied values at the point of a row, by column."""
    own = {column.name for column in (*COLUMNS, *MACHINE_READABLE, DIAGNOSIS, *OF_LOCATIONS)}
    return values_apart(row.point, own.union(one.name for one in fields(row)))


def _columns(
    rows: Sequence[Hotspot], order: str, group: str, output_format: str, *, diagnose: bool
) -> Sequence[Column]:
    """The columns of the table of kernels."""
    columns = [one._replace(spare=0) if one.name == SORTED_BY.get(order) else one for one in COLUMNS]
    points = [_varied(row) for row in rows]
    arguments = columns_of_arguments(
        dict.fromkeys(name for point in points for name in point), points, columns, spare=0
    )
    places = [] if output_format in MACHINE_FORMATS else differing_places([asdict(row) for row in rows], group)
    columns = [_first_column(group), *places, *arguments, *columns[1:]]
    if group == LOCATION:
        at = len(places) + 5
        columns = [*columns[:at], *OF_LOCATIONS, *columns[at:]]
    if output_format in MACHINE_FORMATS:
        return (*columns, *MACHINE_READABLE, *([DIAGNOSIS] if diagnose else []))
    if diagnose:
        return [*(column for column in columns if column.name in BESIDE_DIAGNOSES), DIAGNOSIS]
    return [one for one in columns if one.name not in _unused(rows)]


def _first_column(group: str) -> Column:
    """The column of names: of kernels, or of whatever the rows are grouped by."""
    from ncu_tools.kernels.kernel_row import GROUPS, NAMES_OF_KERNELS

    first = COLUMNS[0]._replace(title=GROUPS[group])
    return first if group in NAMES_OF_KERNELS else first._replace(kind="text", wide=True)


def _chosen_columns(found: Run, wanted: Sequence[str], group: str) -> MetricColumns | None:
    """The columns of --columns; None without it."""
    if not wanted:
        return None

    return metric_columns(found, wanted, group, (*COLUMNS[1:], *MACHINE_READABLE))


def _sentence(group: str, advice: KernelAdvice | None) -> str | None:
    """The levers of a row in words, after the kernel's name if the row has another; None without advice."""
    from ncu_tools.advice.lever_sentences import advice_in_words
    from ncu_tools.kernels.kernel_row import NAMES_OF_KERNELS
    from ncu_tools.kernels.names.readable_names import readable_name

    if advice is None:
        return None
    name = "" if group in NAMES_OF_KERNELS else f"{readable_name(advice.kernel.name)}: "
    return name + advice_in_words(advice)


def _unused(rows: Sequence[Hotspot]) -> set[str]:
    """Uninformative columns: unknown bytes if other bytes are known, and per-launch times of single launches."""
    estimated = any(row.least_bytes is not None or row.least_bytes_per_s is not None for row in rows)
    counted = any(row.dram_bytes is not None or row.dram_bytes_per_s is not None for row in rows)
    unused = set() if estimated else {"least_bytes", "least_bytes_per_s"}
    if all(row.launches <= 1 for row in rows):
        unused |= {"time_mean_ns", "time_min_ns", "time_max_ns"}
    if len(rows) == 1:
        unused |= {"time_cumulative"}
    return unused | ({"dram_bytes", "dram_bytes_per_s"} if estimated and not counted else set())


def _advice(
    found: Run, kernels: list[Hotspot], group: str, runs: Sequence[str]
) -> tuple[dict[str, KernelAdvice], list[str]]:
    """The advice on kernels by their keys, with the code that a single run has; and notes on kernels without advice."""
    from ncu_tools.advice.advice_on_rows import heaviest_kernels, without_advice
    from ncu_tools.advice.code_of_run import instructions_for_levers

    with progress("Reading") as reading:
        heaviest = heaviest_kernels(found, group)
        code, notes = instructions_for_levers(runs[0], heaviest.columns, reading) if len(runs) == 1 else (None, [])
    advice = heaviest.advice(kernels, code)
    return advice, [*without_advice(kernels, advice), *notes]


def _causes(found: Run, kernels: list[Hotspot], group: str) -> dict[str, dict[str, Any]]:
    """The causes of kernels by their keys, as in JSON."""
    from ncu_tools.kernels.diagnosis.diagnose import diagnoses_of
    from ncu_tools.kernels.diagnosis.sums import sums_to_diagnose

    found_of = diagnoses_of(sums_to_diagnose(found, group), kernels)
    return {key: one.as_json() for key, one in found_of.items()}


def _by_unit(
    kernels: list[Hotspot], group: str, top: int | None, columns: Sequence[Column], *, for_machines: bool
) -> tuple[Sequence[Column], list[dict[str, Any]]]:
    """The columns and rows of --units: operations of each used unit, share of the FLOPs, and a last row for the run.

    All `columns` of the table stay if `for_machines`.
    """
    from ncu_tools.ceilings.ceilings import unit_title
    from ncu_tools.ceilings.work_by_unit import FLOAT_UNITS, UNIT_COLUMNS
    from ncu_tools.kernels.kernel_row import run_total, used_units

    used = used_units(kernels)
    found: list[Column] = []
    for unit in used:
        name, title = UNIT_COLUMNS[unit], unit_title(unit)
        if unit in FLOAT_UNITS:
            found.append(Column(name, title, "flop", "FLOP", lower_bound_if=_lower_bound_of(unit), spare=0))
            found.append(Column(f"{name}_share", f"{title} share", "fraction", spare=1))
        else:
            found.append(Column(name, title, "op", "OP", spare=0))
    rows = []
    for row in [*kernels[:top], run_total(kernels)]:
        amounts = {UNIT_COLUMNS[unit]: row.work.get(unit) for unit in used}
        shares = {f"{UNIT_COLUMNS[unit]}_share": row.share_of_flops(unit) for unit in used}
        marks = basis_of(row.flops_basis).marks
        bounds = {name: mark in marks for name, mark in LOWER_BOUNDS_OF_UNITS.items()}
        rows.append({**asdict(row), **amounts, **shares, **bounds, IS_TOTAL.name: False})
    rows[-1][IS_TOTAL.name] = True
    if for_machines:
        return (*columns, *found, IS_TOTAL), rows
    first, *others = (column for column in columns if column.name in BEFORE_UNITS)
    return [first, *differing_places(rows[:-1], group), *others, *found, BASIS], rows


def _lower_bound_of(unit: str) -> str:
    name = f"{unit.partition('_')[0]}_lower_bound"
    return name if name in LOWER_BOUNDS_OF_UNITS else ""
