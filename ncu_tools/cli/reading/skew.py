"""ncu-bench timeline RANKS: kernels and layers across ranks, the slowest rank, and where it loses its time."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ncu_tools.cli.option_kinds.selection_options import selection_options
from ncu_tools.cli.options import first_rows, format_option, progress, show, top_option
from ncu_tools.cli.tables.time_titles import with_time_title
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.table import KERNEL, Table

if TYPE_CHECKING:
    from ncu_tools.runs.selection import Selection

RANKS = (
    *columns("rank host"),
    column("device", wide=True),
    *columns("launches time_ns collective_ns work_ns excess_ns"),
)
ACROSS = columns("name ranks launches min_ns~1 median_ns max_ns slowest~0 skew_ns~0 excess_ns~2")
COLLECTIVE = column("is_collective")


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RANKS...")
@click.option(
    "--by",
    type=click.Choice(("kernel", "layer", "category", "rank")),
    default="kernel",
    show_default=True,
    help="A row per kernel, layer, category of kernels, or rank.",
)
@click.option("--depth", type=click.IntRange(min=0), help="With --by layer, how many levels below the model.")
@top_option("rows")
@selection_options
@format_option
def command(
    runs: tuple[str, ...], by: str, depth: int | None, top: int | None, output_format: str, only: Selection | None
) -> None:
    """Show how unevenly the ranks of a run work: the slowest rank, and the kernels or layers where it loses its time.

    Minimum, median and maximum are over ranks, of the time that a rank spends in a kernel or layer in all. The slowest
    rank is the one with the most time outside collectives: inside them, ranks wait for it. Where it waits longer than
    the median rank, none is named. RANKS is a run folder of several ranks, or one report of each, as PyTorch's profiler
    writes them. With --by it is any run whose launches know their rank.

    \b
    Example:
      ncu-bench timeline rank0.json.gz rank1.json.gz
      ncu-bench timeline run
      ncu-bench timeline run --by layer --depth 1
      ncu-bench timeline launches.parquet --by rank
    """
    from ncu_tools.kernels.operator_times import clocks_of, operator_notes, time_title
    from ncu_tools.model.layers.rank_skew import NEEDED, expect_own_ranks, skew
    from ncu_tools.report.head import head_of
    from ncu_tools.runs.loading import load_only, points_summed
    from ncu_tools.runs.run import pooled

    with progress("Reading") as reading:
        each = [load_only(run, only, reading=reading, columns=NEEDED) for run in runs]
    expect_own_ranks([(run.name, run.table) for run in each])
    loaded = pooled(each)
    result = skew(loaded.table, by="kernel" if by == "rank" else by, depth=depth)
    clocks = clocks_of(loaded.table)
    title = time_title(clocks)
    summed = [note for run in runs for note in points_summed(run, only)]
    notes = [*summed, *result.notes, *loaded.notes, *operator_notes(clocks)]
    ranked = (counted(len(result.ranks), "rank", "ranks"),)
    head = head_of(runs, loaded.table, only=only, time_title=title, more=ranked)
    if by == "rank" or len(result.ranks) < 2:
        ranks = Table("ranks", RANKS, [asdict(row) for row in result.ranks], notes)
        show(with_time_title(ranks, title), output_format, head=head)
        return
    found, hidden = first_rows(result.rows, top, output_format, "row")
    notes += hidden
    rows = [asdict(row) for row in found]
    across = [ACROSS[0]._replace(kind=KERNEL) if by == "kernel" else ACROSS[0], *ACROSS[1:]]
    table = Table("skew", across, rows, notes, more=[COLLECTIVE])
    show(with_time_title(table, title), output_format, head=head)
