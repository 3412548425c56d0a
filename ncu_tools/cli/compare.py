"""ncu-bench compare: what changed between runs, and gates that stop a pull request."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.manifest import read_manifest

from ncu_tools.cli.options import format_option, progress, show, terminal_width
from ncu_tools.report.table import Column, Table, printable, to_markdown

if TYPE_CHECKING:
    from ncu_tools.compare import ComparedKernel, Comparison
    from ncu_tools.conditions import Conditions
    from ncu_tools.gate import GateOutcome
    from ncu_tools.loading import Run

RUN = Column("run", "run")
IDENTITY = (Column("kernel", "kernel", wide=True), Column("was", "was", wide=True))
NUMBERS = (
    Column("base_launches", "launches", "count"),
    Column("new_launches", "new", "count"),
    Column("base_time_mean_ns", "mean", "time", "ns"),
    Column("new_time_mean_ns", "new", "time", "ns"),
    Column("base_time_ns", "time", "time", "ns"),
    Column("new_time_ns", "new", "time", "ns"),
)
FOR_PEOPLE = (
    Column("time_change", "time changed by [95 %]"),
    Column("verdict", "verdict"),
    Column("flops_change", "FLOPs"),
    Column("dram_bytes_change", "DRAM [95 %]"),
)
FOR_MACHINES = (
    Column("verdict", "verdict"),
    Column("matched_by", "matched by"),
    *(
        Column(f"{measure}_ratio{end}", f"{measure} ratio{end}", "number")
        for measure in ("time", "dram_bytes")
        for end in ("", "_low", "_high")
    ),
    Column("time_interval_of", "interval of"),
    Column("base_flops", "FLOPs", "flop", "FLOP"),
    Column("new_flops", "new", "flop", "FLOP"),
    Column("flops_ratio", "FLOPs ratio", "number"),
    Column("base_dram_bytes", "DRAM", "byte", "byte"),
    Column("new_dram_bytes", "new", "byte", "byte"),
    Column("launches_ratio", "launches ratio", "number"),
    Column("is_total", "total"),
)
GATE_COLUMNS = (RUN, Column("gate", "gate"), Column("outcome", "outcome"), Column("reason", "numbers"))
VERDICTS = {"more": "more time", "less": "less time"}


@click.command()
@click.argument("base", metavar="BASE")
@click.argument("new", nargs=-1, required=True, metavar="NEW [MORE]...")
@click.option(
    "--by", type=click.Choice(("change", "time")), default="change", show_default=True,
    help="What to sort by: how much the kernel changed the time of the run, or the time it takes.",
)  # fmt: skip
@click.option("--top", type=click.IntRange(min=1), default=20, show_default=True, help="How many kernels to show.")
@click.option(
    "--fail-on", "gates", multiple=True, metavar="GATE",
    help='Exit with 3 where a measure grew by more: "time>5%", "dram_bytes>1%", "flops>0%", "launches>0%", '
    '"kernel:REGEX:time>10%". May be repeated.',
)  # fmt: skip
@click.option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write the gates as JUnit XML too."
)
@click.option("--anyway", is_flag=True, help="Compare runs of different GPUs, sources or clock modes all the same.")
@click.option("--full-names", is_flag=True, help="Show kernel names whole, however long.")
@format_option
def command(
    base: str,
    new: tuple[str, ...],
    by: str,
    top: int,
    gates: tuple[str, ...],
    junit: Path | None,
    anyway: bool,
    full_names: bool,
    output_format: str,
) -> None:
    """Show what changed from the run BASE to the run NEW, kernel by kernel, and hold the change to limits.

    Each further run is compared with BASE too. Kernels are matched by their full name, and after a rename by short
    name, grid, block and NVTX range. Launches and FLOPs are exact. Times and bytes are noisy, so their change has a
    95 % interval; where it holds no change at all, none was shown. The last row is the sum over the whole run.

    A gate ends the command with 3 if its limit is exceeded, and with 1 if it could not be evaluated. A change within
    its own noise does not trip it.

    \b
    Example:
      ncu-bench compare before after
      ncu-bench compare before after --by time --top 10 --format markdown
      ncu-bench compare main.parquet branch.parquet --fail-on "time>5%" --junit gates.xml
    """
    from ncu_tools.gate import evaluate, exit_code, not_evaluated, parse_gate

    limits = [parse_gate(text) for text in gates]
    if junit is not None and not limits:
        raise WrongUsage("--junit has nothing to write.", "It writes how gates ended.", 'Add one: --fail-on "time>5%"')
    try:
        comparisons = _comparisons(base, new, anyway)
    except NcuBenchError as error:
        _write_junit(junit, {name: not_evaluated(limits, error.paragraph) for name in new})
        raise
    outcomes = {one.name: [evaluate(gate, one.comparison) for gate in limits] for one in comparisons}
    _write_junit(junit, outcomes)
    table = _table(base, comparisons, by, top, output_format)
    _show(table, outcomes, output_format, full_names=full_names)
    code = exit_code(outcome for ones in outcomes.values() for outcome in ones)
    if code:
        raise click.exceptions.Exit(code)


@dataclass(frozen=True)
class _Compared:
    """One comparison with the base, by the name of its new run, with the notes of reading both."""

    name: str
    comparison: Comparison
    notes: list[str]


def _comparisons(base: str, new: tuple[str, ...], anyway: bool) -> list[_Compared]:
    from ncu_tools.compare import compare, hold_comparable
    from ncu_tools.loading import load

    repeated = sorted({name for name in new if new.count(name) > 1})
    if repeated:
        raise WrongUsage(f"{', '.join(repeated)} is given twice.", advice="Name every run once.")
    with progress("Reading") as reading:
        runs = [load(path, reading=reading) for path in (base, *new)]
    conditions = [_conditions(path, run) for path, run in zip((base, *new), runs, strict=True)]
    found = []
    for path, run, theirs in zip(new, runs[1:], conditions[1:], strict=True):
        if not anyway:
            hold_comparable(conditions[0], theirs, (base, path))
        comparison = compare(runs[0].table, run.table, (conditions[0], theirs))
        found.append(_Compared(path, comparison, [*comparison.notes, *runs[0].notes, *run.notes]))
    return found


def _conditions(path: str, run: Run) -> Conditions:
    """The conditions of a run, with what its manifest says of them, where it has one that can be read."""
    from ncu_tools.conditions import conditions_of

    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    belongs = Path(path).is_dir() or Path(path).name == "launches.parquet"
    try:
        return conditions_of(run.table, read_manifest(folder) if belongs else None)
    except (OSError, ValueError, TypeError):
        return conditions_of(run.table)


# ---------------------------------------------------------------------------------------------------------- the table


def _table(base: str, comparisons: list[_Compared], by: str, top: int, output_format: str) -> Table:
    from ncu_tools.compare import ordered

    several = len(comparisons) > 1
    rows, notes = [], []
    for one in comparisons:
        kernels = ordered(one.comparison.kernels, by)
        rows += [{RUN.name: one.name, **_cells(kernel)} for kernel in kernels[:top]]
        rows.append({RUN.name: one.name, **_cells(one.comparison.total), "is_total": True})
        said = [f"{len(kernels) - top} more kernels; --top shows more"] if len(kernels) > top else []
        notes += [f"{one.name}: {note}" if several else note for note in [*said, *one.notes]]
    columns = (*IDENTITY, *NUMBERS, *(FOR_MACHINES if output_format in ("json", "csv") else FOR_PEOPLE))
    if several or output_format in ("json", "csv"):
        columns = (RUN, *columns)
    differing = [{RUN.name: one.name, **asdict(each)} for one in comparisons for each in one.comparison.differences]
    return Table("compare", columns, rows, notes, {"base": base, "differences": differing})


def _cells(kernel: ComparedKernel) -> dict[str, Any]:
    from ncu_tools.gate import growth_text

    cells: dict[str, Any] = {
        "kernel": kernel.pair.kernel,
        "was": kernel.pair.was if kernel.pair.was != kernel.pair.kernel else None,
        "matched_by": kernel.pair.matched_by,
        "verdict": _verdict(kernel),
        "time_interval_of": kernel.changes["time"].basis,
        "is_total": False,
    }
    for title, side in (("base", kernel.base), ("new", kernel.new)):
        if side is not None:
            cells |= {f"{title}_launches": side.launches, f"{title}_time_mean_ns": side.time_mean_ns}
            cells |= {f"{title}_time_ns": side.time_total_ns}
            cells |= {f"{title}_flops": side.flops, f"{title}_dram_bytes": side.dram_bytes}
    for measure, change in kernel.changes.items():
        cells |= {f"{measure}_ratio": change.ratio}
        cells |= {f"{measure}_ratio_low": change.low, f"{measure}_ratio_high": change.high}
        cells |= {f"{measure}_change": None if kernel.is_new or kernel.is_gone else growth_text(change)}
    return cells


def _verdict(kernel: ComparedKernel) -> str | None:
    if kernel.is_new or kernel.is_gone:
        return "new" if kernel.is_new else "gone"
    change = kernel.changes["time"]
    if change.growth is None:
        return None
    noise = "" if change.noise_is_known or change.outcome == "the same" else ", noise not known"
    return VERDICTS.get(change.outcome, change.outcome) + noise


# ---------------------------------------------------------------------------------------------------------- gates


def _show(table: Table, outcomes: dict[str, list[GateOutcome]], output_format: str, *, full_names: bool) -> None:
    """Write the comparison, and how the gates ended: in the JSON, below the text, above the Markdown, beside CSV."""
    rows = [
        {RUN.name: run, "gate": one.gate.text, "outcome": one.outcome, "reason": one.reason}
        for run, ones in outcomes.items()
        for one in ones
    ]
    table.extra["gates"] = rows
    gates = Table("gates", GATE_COLUMNS if len(outcomes) > 1 else GATE_COLUMNS[1:], rows)
    if rows and output_format == "markdown":
        click.echo(to_markdown(gates) + "\n")
    show(table, output_format, full_names=full_names)
    if rows and output_format == "text":
        from ncu_tools.report.text import to_text

        click.echo("\n" + to_text(gates, terminal_width(), full_names=True))
    if rows and output_format in ("csv", "json"):
        for row in rows:
            click.echo(printable(f"gate {row['gate']}: {row['outcome']}: {row['reason']} ({row[RUN.name]})"), err=True)


def _write_junit(path: Path | None, outcomes: dict[str, list[GateOutcome]]) -> None:
    if path is None:
        return
    from ncu_parsers.parquet import replacing

    from ncu_tools.report.junit import to_junit

    with replacing(path) as temporary:
        temporary.write_bytes(to_junit(outcomes))
