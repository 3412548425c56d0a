"""ncu-bench hotspots --mix: what the instructions of each kernel do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ncu_tools.cli.option_kinds.rows_and_order import KERNEL_ORDER, rows_and_order
from ncu_tools.cli.option_kinds.selection_options import selection_options
from ncu_tools.cli.options import (
    MACHINE_FORMATS,
    format_option,
    machine_option,
    rows_shown,
    settings_options,
    show,
    top_option,
)
from ncu_tools.cli.tables.hotspots.kernels_of_runs import (
    head_of_kernels,
    hidden_kernels,
    load_runs,
    note_on_pooling,
    require_one_point,
)
from ncu_tools.cli.tables.hotspots.places import PLACES, differing_places, for_people
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Column, Table

if TYPE_CHECKING:
    from ncu_parsers.sources.settings import Settings

    from ncu_tools.ceilings.machine_files import Machine
    from ncu_tools.kernels.kernel_row import Hotspot
    from ncu_tools.runs.run import Run
    from ncu_tools.runs.selection import Selection

COLUMNS = columns("kernel time_share~0 launches~3 counted_launches~3 instructions~2")


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--mix", is_flag=True, required=True, expose_value=False,
    help="Show what the instructions of each kernel do: shares by kind of opcode.",
)  # fmt: skip
@rows_and_order(orders=KERNEL_ORDER)
@top_option("kernels")
@machine_option
@settings_options
@selection_options
@format_option
def command(
    runs: tuple[str, ...],
    order: str,
    top: int | None,
    machine: Machine | None,
    output_format: str,
    only: Selection | None,
    settings: Settings,
) -> None:
    """Show what the instructions of each kernel do: the share of each kind of opcode.

    \b
    Example:
      ncu-bench hotspots report.ncu-rep --mix
    """
    from ncu_tools.kernels.kernel_cache import hotspots_of

    top = rows_shown(top, output_format)
    ranges = only is not None and bool(only.phases or only.layers)
    found = load_runs(runs, only, settings, ranges=ranges)
    kernels = hotspots_of(found, machine, by=order)
    require_one_point(runs, kernels)
    table = mix_table(found, kernels.rows, top, is_for_people=output_format not in MACHINE_FORMATS)
    table.notes = [*note_on_pooling(runs), *table.notes]
    show(table, output_format, head=head_of_kernels(runs, kernels, only))


def mix_table(found: Run, kernels: list[Hotspot], top: int | None, *, is_for_people: bool) -> Table:
    """The instruction mix of each kernel, with kernels in the order of the other tables.

    For people, kinds that no kernel has are left out, and columns of places in which kernels do not differ.
    """
    from ncu_tools.kernels.grouping import with_keys_for_names
    from ncu_tools.kernels.source.instruction_mix import COLUMNS as COUNTS
    from ncu_tools.kernels.source.instruction_mix import kinds, mix_notes, mixes
    from ncu_tools.runs.partition_sums import OF_DEVICES

    needed = ("kernel_name", *OF_DEVICES, *COUNTS)
    by_key = {mix.kernel: mix for mix in mixes(with_keys_for_names(found.read(needed)))}
    shown = [(row, by_key[row.key]) for row in kernels[:top] if row.key in by_key]
    rows = [
        {
            "kernel": row.kernel,
            "device": row.device,
            "report": row.report,
            "time_share": row.time_share,
            "launches": row.launches,
            "counted_launches": mix.counted_launches,
            "instructions": mix.total or None,
            **{kind: mix.share(kind) or (None if mix.total == 0 else 0.0) for kind in kinds()},
        }
        for row, mix in shown
    ]
    used = [kind for kind in kinds() if not is_for_people or any(row[kind] for row in rows)]
    shares = [Column(kind, kind.replace("_", "/"), "fraction", spare=1) for kind in used]
    differing = differing_places(rows, "name") if is_for_people else []
    columns = [COLUMNS[0], *differing, *COLUMNS[1:], *shares, *(() if is_for_people else PLACES)]
    rows = for_people(rows, "name") if is_for_people else rows
    return Table("mix", columns, rows, [*hidden_kernels(kernels, top), *mix_notes([mix for _, mix in shown])])
