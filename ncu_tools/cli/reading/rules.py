"""ncu-bench hotspots --rules: NVIDIA's rules over a whole run, ranked by the time that they could save."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ncu_tools.cli.option_kinds.rows_and_order import KERNEL_ROWS, rows_and_order
from ncu_tools.cli.option_kinds.selection_options import require_no_dask, selection_options
from ncu_tools.cli.options import (
    dask_option,
    engine_of,
    format_option,
    machine_option,
    rows_shown,
    settings_options,
    show,
    top_option,
)
from ncu_tools.cli.tables.hotspots.kernels_of_runs import head_of_kernels, load_runs, notes_on_runs

if TYPE_CHECKING:
    from ncu_parsers.sources.settings import Settings

    from ncu_tools.ceilings.machine_files import Machine
    from ncu_tools.runs.selection import Selection


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--rules", is_flag=True, required=True, expose_value=False,
    help="Rank what NVIDIA's rules say over the run by the time it could save.",
)  # fmt: skip
@rows_and_order(KERNEL_ROWS)
@top_option("messages")
@machine_option
@settings_options
@selection_options
@dask_option
@format_option
def command(
    runs: tuple[str, ...],
    group: str,
    top: int | None,
    machine: Machine | None,
    dask: str | None,
    output_format: str,
    only: Selection | None,
    settings: Settings,
) -> None:
    """Rank what NVIDIA's rules say over the run by the time it could save, each message once for a kernel's launches.

    \b
    Example:
      ncu-bench hotspots report.ncu-rep --rules
    """
    from ncu_tools.cli.tables.hotspots.rules_of_run import rules_of_run
    from ncu_tools.kernels.kernel_cache import hotspots_of

    require_no_dask(only, dask)
    top = rows_shown(top, output_format)
    with engine_of(dask) as engine:
        found = load_runs(runs, only, settings, ranges=True, engine=engine)
        kernels = hotspots_of(found, machine, group=group)
        table = rules_of_run(found, group, top, output_format)
    table.notes = [*notes_on_runs(runs, only), *table.notes]
    show(table, output_format, head=head_of_kernels(runs, kernels, only))
