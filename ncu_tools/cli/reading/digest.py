"""ncu-bench report --format digest: the most important facts on a run, in few words."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import WrongUsage

from ncu_tools.cli.options import FILE, echo_notes, machine_option, progress, require_other_output
from ncu_tools.cli.options import show as show_table
from ncu_tools.cli.terminal_notes import WrittenFile
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table, to_json

if TYPE_CHECKING:
    from ncu_parsers.sources.sources import Source

    from ncu_tools.ceilings.machine_files import Machine
    from ncu_tools.report.digest.statements import Digest
    from ncu_tools.runs.run import Run

DEFAULT_BUDGET = 1500
COLUMNS = columns("section kernel_id kind text tokens values")


@click.command()
@click.argument("run")
@click.option(
    "--budget", type=click.IntRange(min=150), default=DEFAULT_BUDGET, show_default=True, metavar="TOKENS",
    help="The most tokens, estimated as characters / 4.",
)  # fmt: skip
@click.option(
    "--kernel", "name", metavar="REGEX", help="Digest of one kernel: the longest-running one whose name matches."
)
@click.option("--id", "identity", metavar="ID", help="Digest of one kernel, by its key.")
@click.option("--against", "base", metavar="BASE", help="What changed from this run to RUN.")
@click.option("--anyway", is_flag=True, help="With --against: also if GPUs, sources or clock modes differ.")
@machine_option
@click.option("-o", "--output", type=FILE, help="Write it to this .md or .json file.")
@click.option(
    "--format", "output_format", type=click.Choice(("digest", "markdown", "json")),
    help="digest and markdown are the same; json has the statements with their numbers.  [default: by -o, else digest]",
)  # fmt: skip
def command(
    run: str,
    output: Path | None,
    budget: int,
    name: str | None,
    identity: str | None,
    base: str | None,
    anyway: bool,
    machine: Machine | None,
    output_format: str | None,
) -> None:
    """Say what a reader must know of a run first, in few words: for programs, assistants and pull requests.

    What the run is and under which conditions, its sums, the kernels of the most time with bound, headroom, levers and
    evidence, which of NVIDIA's rules agree, what was not collected, and what to type next. The most important is told
    first if the budget is small; a statement is told whole or left out, and the last line says what was. Keys of
    kernels (k and ten digits) are taken by --id of every command that selects kernels.

    \b
    Example:
      ncu-bench report report.ncu-rep --format digest
      ncu-bench report report.ncu-rep -o digest.md --budget 500 --kernel softmax
      ncu-bench report after --against before --format json
    """
    from ncu_launch.files.atomic_files import write_bytes_atomically

    from ncu_tools.kernels.names.kernel_ids import require_ids
    from ncu_tools.runs.selection import pattern_of

    if name is not None and identity is not None:
        raise WrongUsage("--kernel and --id both name a kernel.", advice="Leave one of them out.")
    if identity is not None:
        require_ids([identity])
    if base is not None and machine is not None:
        raise WrongUsage("--machine gives ceilings, and a comparison shows none.", advice="Leave --machine out.")
    if anyway and base is None:
        raise WrongUsage("--anyway goes with --against.", advice="Name the run to compare with: --against BASE")
    patterns = () if name is None else (pattern_of(name),)
    with progress("Reading") as reading:
        if base is not None:
            found = _of_change((base, run), patterns, identity, budget, reading, anyway=anyway)
        elif name is None and identity is None:
            found = _of_run(run, budget, machine, reading)
        else:
            found = _of_kernel(run, patterns, identity, budget, machine, reading)
    as_json = output_format == "json" or (output_format is None and output is not None and output.suffix == ".json")
    if output is None:
        _show(found, as_json=as_json)
        return
    require_other_output(output, [run, base or ""])
    write_bytes_atomically(output, ("".join(to_json(_table(found))) if as_json else found.markdown).encode() + b"\n")
    echo_notes([WrittenFile(f"the digest is {output}")])


def _of_run(run: str, budget: int, machine: Machine | None, reading: Callable[[Source], None]) -> Digest:
    from ncu_tools.advice.code_of_run import instructions_for_levers
    from ncu_tools.report.digest.run_digest import run_digest
    from ncu_tools.report.head import manifest_of
    from ncu_tools.runs.loading import load
    from ncu_tools.timeline.headline import timeline_of

    loaded = load(run, reading=reading)
    code, notes = instructions_for_levers(run, loaded.table.column_names, reading)
    loaded.notes += notes
    return run_digest(
        loaded, budget, machine=machine, manifest=manifest_of(run), timeline=timeline_of(run, loaded.table),
        instructions=code,
    )  # fmt: skip


def _of_kernel(
    run: str,
    patterns: tuple[re.Pattern[str], ...],
    identity: str | None,
    budget: int,
    machine: Machine | None,
    reading: Callable[[Source], None],
) -> Digest:
    from ncu_tools.advice.advise import Advice
    from ncu_tools.advice.nvidia_levers import answered_rules
    from ncu_tools.cli.tables.advice.levers_of_kernel import advice_on_view
    from ncu_tools.kernels.view.kernel_view import kernel_view
    from ncu_tools.kernels.view.places import hottest_places, instructions_of
    from ncu_tools.report.digest.kernel_digest import kernel_digest
    from ncu_tools.runs.loading import load

    loaded = load(run, reading=reading)
    view = kernel_view(loaded.table, _wanted(loaded, patterns, identity), None, machine, alike=True)
    instructions = instructions_of(run, loaded.table.column_names, reading)
    view.places = hottest_places(instructions, view, None)
    advice = advice_on_view(view, loaded.table, instructions)
    answered = answered_rules(loaded.table, Advice([advice], advice.kernel.total_ns)) if advice is not None else []
    return kernel_digest(view, run, budget, loaded.notes, advice, answered)


def _of_change(
    names: tuple[str, str],
    patterns: tuple[re.Pattern[str], ...],
    identity: str | None,
    budget: int,
    reading: Callable[[Source], None],
    *,
    anyway: bool,
) -> Digest:
    """The digest of a change between two runs, or of a kernel in both.

    Raises `NcuBenchError` for runs under incomparable conditions, unless `anyway`.
    """
    from ncu_tools.cli.tables.kernel.against_table import compared, note_on_renamed
    from ncu_tools.compare.compare_kernels import compare, require_comparable
    from ncu_tools.compare.comparison_sums import signature_sums_of_run
    from ncu_tools.compare.run_conditions import conditions_of
    from ncu_tools.kernels.source.inside_of_run import has_instructions
    from ncu_tools.kernels.view.kernel_view import has_counters
    from ncu_tools.report.digest.change_digest import change_digest, kernel_change_digest
    from ncu_tools.report.head import manifest_of
    from ncu_tools.runs.loading import load

    base, new = (load(name, reading=reading) for name in names)
    notes = [*base.notes, *new.notes]
    sums = [signature_sums_of_run(one) for one in (base, new)]
    known = [conditions_of(one.observed, manifest_of(name)) for one, name in zip(sums, names, strict=True)]
    if not anyway:
        require_comparable(known[0], known[1], names)
    if patterns or identity is not None:
        change = compared((base, new), _wanted(base, patterns, identity), None, None, None)
        inside = all(
            has_instructions(name, run.table.column_names) for name, run in zip(names, (base, new), strict=True)
        )
        notes += note_on_renamed(change)
        return kernel_change_digest(change, names, budget, notes, with_instructions=inside)
    found = compare(sums[0], sums[1], (known[0], known[1]))
    return change_digest(found, names, budget, notes, counted_by_ncu=has_counters(base.table))


def _wanted(run: Run, patterns: tuple[re.Pattern[str], ...], identity: str | None) -> tuple[re.Pattern[str], ...]:
    from ncu_tools.runs.selection import pattern_of_ids

    return patterns if identity is None else pattern_of_ids(run.table, (identity,))


def _show(found: Digest, *, as_json: bool) -> None:
    if as_json:
        show_table(_table(found), "json")
    else:
        click.echo(found.markdown)


def _table(found: Digest) -> Table:
    """The statements as rows, with their values."""
    rows: list[dict[str, Any]] = [
        {
            "section": one.section, "kernel_id": one.kernel_id, "kind": one.kind or one.section, "text": one.text,
            "tokens": one.tokens, "values": dict(one.values),
        }
        for one in found.statements
    ]  # fmt: skip
    more = {"title": found.title, "budget_tokens": found.budget, "tokens": found.tokens, "left_out": found.left_out}
    return Table("digest", COLUMNS, rows, [], more)
