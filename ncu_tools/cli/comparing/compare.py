"""ncu-bench compare: what changed between runs, and gates that stop a pull request."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import click
from ncu_launch.errors import NcuBenchError, WrongUsage

from ncu_tools.cli.comparing.code_of_runs import code_of_runs
from ncu_tools.cli.comparing.old_gates import RemovesOldGates
from ncu_tools.cli.comparing.shown_gates import require_gates, show_gates, table_of_gates, write_junit
from ncu_tools.cli.comparing.shown_on_github import (
    GITHUB,
    gate_format_options,
    lines_of_runs,
    require_github,
    show_on_github,
)
from ncu_tools.cli.option_kinds.list_option import list_option
from ncu_tools.cli.option_kinds.rows_and_order import Words, rows_and_order
from ncu_tools.cli.option_kinds.selection_options import require_no_dask, selection_options
from ncu_tools.cli.options import (
    FILE,
    MACHINE_FORMATS,
    ROWS_SHOWN,
    dask_option,
    echo_heads,
    echo_markdown,
    options_in,
    show,
    terminal_width,
)
from ncu_tools.cli.tables.compare.shared import (
    CATEGORY,
    KERNEL,
    LAYER,
    OPERATOR,
    PLACES,
    Compared,
    CompareOptions,
    CompareRequest,
)
from ncu_tools.report.columns.registry import column
from ncu_tools.report.table import Table, printable

if TYPE_CHECKING:
    from ncu_tools.compare.gate import GateOutcome
    from ncu_tools.runs.selection import Selection

SUMMARY = column("sentence")
ROWS = Words(
    (KERNEL, LAYER, OPERATOR, CATEGORY, *PLACES),
    "What a row is: a kernel, layer, call of an operator or category of kernels, or in one kernel a line, opcode or "
    "function.",
    KERNEL,
)
ORDER = Words(
    ("change", "time"),
    "What rows are ordered by: the change of time, or time.  [default: change; points keep the order of the sweep]",
)


@click.command(cls=RemovesOldGates)
@click.argument("runs", nargs=-1, required=True, metavar="BASE NEW [MORE]...")
@click.option("--layers", is_flag=True, help="The same as --by layer: forward and backward apart.")
@click.option("--operators", is_flag=True, help="The same as --by operator, of traces.")
@click.option("--depth", type=click.IntRange(min=0), help="With --by layer, how many levels below the model.")
@list_option(
    "--across",
    metavar="WHAT,...",
    help="Of runs of bench: compare all their points across machine, dtype, mode, channels-last, phase, torch, threads "
    "or an argument, as quantize. One run is enough; the first value is the base.",
)
@rows_and_order(ROWS, ORDER)
@click.option(
    "--top", type=click.IntRange(min=1),
    help=f"How many rows to show.  [default: {ROWS_SHOWN} kernels or layers, all points; JSON, CSV: all]",
)  # fmt: skip
@click.option(
    "--fail-on", "gates", multiple=True, metavar="GATE",
    help='Exit with 3 where a measure grew by more: "time>5%", "dram_bytes>1%", "memory>2%", "flops>0%", '
    '"any:time>10%", "kernel:REGEX:time>10%", "layer:REGEX:time>5%", "category:GEMM:time>5%", '
    '"point:REGEX:memory>2%". Repeatable.',
)  # fmt: skip
@click.option("--junit", type=FILE, metavar="FILE", help="Write the gates as JUnit XML too.")
@click.option(
    "--pair", "pairs", multiple=True, metavar="OLD=NEW",
    help="This kernel of BASE is that one of NEW, by full or short names. May be repeated.",
)  # fmt: skip
@click.option(
    "--anyway", is_flag=True,
    help="Compare runs of different GPUs, sources, versions or clock modes too, and sums of runs that did other work; "
    "judge times at different clocks as they are.",
)  # fmt: skip
@selection_options
@dask_option
@gate_format_options
@options_in(CompareOptions, "how")
def command(
    runs: tuple[str, ...],
    how: CompareOptions,
    gates: tuple[str, ...],
    junit: Path | None,
    dask: str | None,
    output_format: str,
    comment: bool,
    only: Selection | None,
) -> None:
    """Show what changed from the run BASE to the run NEW, and check it against limits. More runs may follow.

    Runs of a profiler are compared kernel by kernel, per launch. Renamed kernels are matched by grid, block, NVTX range
    and similar names, or by --pair. --by layer compares layers and phases, --by operator the operators of traces, per
    call. Runs of ncu-bench bench are compared point by point across the setting in which they differ (dtype, mode,
    machine), with a sentence for each model. Counts are exact. Times are noisy, so their change has a 95 % interval; if
    it includes 0, no change was shown.

    A gate ends the command with exit code 3 if its limit is exceeded, and 4 if it could not be evaluated. A change
    within its own noise does not trip it. A gate on the sums of two runs that did not do the same work is refused, with
    2; gates on kernels, per launch, are still judged. With several gates a tripped one counts first, then a refused
    one.

    \b
    Three gates to copy:
      --fail-on "time>5%"                 the run, if both runs did the same work
      --fail-on "any:time>10%"            any kernel, per launch
      --fail-on "kernel:gemm:flops>0%"    the kernels whose name holds gemm

    \b
    Example:
      ncu-bench compare before after --sort time --top 10 --format markdown
      ncu-bench compare before.csv after.csv --pair rms_norm=norm_v2 --fail-on "kernel:norm:time>5%"
      ncu-bench compare before after --layers --fail-on "time>5%" --junit gates.xml
      ncu-bench compare before after --fail-on "any:time>5%" --format github --comment
      ncu-bench compare before.ncu-rep after.ncu-rep --by line --kernel softmax
      ncu-bench compare sweep --across dtype
      ncu-bench compare t4 l4 a100
    """
    from ncu_tools.compare.compare_kernels import NotComparable
    from ncu_tools.compare.gate import EXIT_CODES, NOT_EVALUATED, evaluate, exit_code, gates_of_two_runs, not_evaluated

    how = how.with_group_of_flags()
    limits = gates_of_two_runs(gates)
    require_gates(junit, limits, runs)
    require_github(output_format, comment)
    if how.depth is not None and how.group != LAYER:
        raise WrongUsage("--depth goes with layers.", advice="Add --by layer.")
    require_no_dask(only, dask)
    machine_readable = output_format in MACHINE_FORMATS
    try:
        compared = _compared(CompareRequest(runs, how, bool(limits), dask, machine_readable, only))
    except NcuBenchError as error:
        if not isinstance(error, WrongUsage):
            write_junit(junit, {name: not_evaluated(limits, error.paragraph) for name in runs[1:] or runs})
        if limits and isinstance(error, NotComparable):
            error.exit_code = EXIT_CODES[NOT_EVALUATED]
        raise
    code_change = code_of_runs(*runs) if len(runs) == 2 else None
    compared.first = "; ".join(filter(None, (code_change, compared.first))) or None
    code_notes = [code_change] if code_change and output_format != "text" else []
    compared.table.notes = [*([] if how.pairs else _same_runs(runs)), *code_notes, *compared.table.notes]
    if output_format == "text" and only is None and dask is None and how == CompareOptions():
        _add_lever_pulled(compared, runs)
    outcomes = {
        name: [evaluate(gate, subjects, clocks_anyway=how.anyway) for gate in limits]
        for name, subjects in compared.subjects.items()
    }
    write_junit(junit, outcomes)
    try:
        if output_format == GITHUB:
            show_on_github(compared.table, lines_of_runs(outcomes), compared.heads, comment=comment)
        else:
            _show(compared, outcomes, output_format)
    except BrokenPipeError:
        if not limits:  # with gates, the exit code is the verdict, whoever reads the table
            raise
    every = [outcome for ones in outcomes.values() for outcome in ones]
    code = exit_code(every)
    refused = next((one for one in every if one.refusal is not None), None)
    sentence = refused.refusal.slower if refused is not None and refused.refusal is not None else ""
    if code == WrongUsage.exit_code and refused is not None and refused.refusal is not None:
        raise WrongUsage(
            f'--fail-on "{refused.gate.text}" is refused: {refused.refusal.reason}.',
            f"The sums of two runs that did other work do not say whether anything became slower. {sentence}".rstrip(),
            refused.refusal.advice(refused.gate.growth),
        )
    if code:
        raise click.exceptions.Exit(code)


def _add_lever_pulled(compared: Compared, runs: tuple[str, ...]) -> None:
    """Add the line on the lever pulled between two reports of ncu, and the command that says more."""
    from ncu_tools.cli.tables.advice.lever_of_change import lever_of_change

    base, *new = runs
    found = lever_of_change(base, new[0]) if len(new) == 1 else None
    if found is not None:
        compared.sentences.append(found[0])
        compared.more = found[1]


def _same_runs(runs: tuple[str, ...]) -> list[str]:
    """The note on runs that equal the base, by another name or the same; [] if none does."""
    base, *new = runs
    same = [name for name in new if name.rstrip("/") == base.rstrip("/") or _is_one_file(Path(name), Path(base))]
    return [f"{', '.join(same)} is the base itself: no change can show"] if same else []


def _is_one_file(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _compared(request: CompareRequest) -> Compared:
    base, *new = request.runs
    base_is_read_once = request.how.across or base == "-"
    repeated = {name for name in new if new.count(name) > 1} | ({base} & set(new) if base_is_read_once else set())
    if repeated:
        raise WrongUsage(f"{', '.join(sorted(repeated))} is given twice.", advice="Name every run once.")
    if request.how.group in PLACES:
        from ncu_tools.cli.tables.compare.places import compared_places

        return compared_places(request)
    from ncu_tools.cli.tables.compare.bench_points import are_bench_runs, compared_points

    of_bench = are_bench_runs(request.runs, request.how.across)
    if request.how.pairs and (of_bench or request.how.group in (LAYER, CATEGORY)):
        raise WrongUsage("--pair goes with kernels.", advice="Leave it out: whatever else is compared keeps its name.")
    if not of_bench:
        from ncu_tools.cli.tables.compare import kernels_and_layers as by

        is_of_sums = request.how.group in (LAYER, CATEGORY)
        return by.compared_layers(request) if is_of_sums else by.compared_kernels(request)
    if request.how.group != KERNEL:
        raise WrongUsage(
            f"A measured point has no {request.how.group}.",
            "A sweep of ncu-bench bench holds times of whole points.",
            f"Leave --by {request.how.group} out, or compare runs of profile.",
        )
    if request.dask:
        raise WrongUsage("Measured points are compared here.", advice="Leave --dask out.")
    if request.only is not None:
        raise WrongUsage(
            "Measured points have no launches to choose from.",
            advice="Leave out --kernel, --phase, --layer, --device, --rank and --point.",
        )
    return compared_points(request)


# -------------------------------------------------------------------------------------------------- what is shown


def _show(compared: Compared, outcomes: dict[str, list[GateOutcome]], output_format: str) -> None:
    """Write the comparison and the outcomes of gates: inside JSON, below text, above Markdown, on stderr for CSV."""
    gates = table_of_gates(outcomes)
    compared.table.extra["gates"] = gates.rows
    echo_heads(compared.heads, output_format, compared.first)
    summaries = Table("summaries", [SUMMARY], [{SUMMARY.name: one} for one in compared.sentences])
    for above in (gates, summaries) if output_format == "markdown" else ():
        if above.rows:
            echo_markdown(above)
            click.echo()
    show(compared.table, output_format)
    if output_format == "text":
        _show_below(compared)
    if output_format == "csv":
        for one in compared.sentences:
            click.echo(printable(one), err=True)
    if output_format != "markdown":
        show_gates(outcomes, output_format)


def _show_below(compared: Compared) -> None:
    width = terminal_width()
    for number, line in enumerate(map(printable, compared.sentences)):
        click.echo(("" if number else "\n") + (line if width is None else fill(line, width)))
    if compared.more:
        click.echo(f"  {printable(compared.more)}")
