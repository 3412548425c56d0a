"""ncu-bench advise: levers on the time of a run's kernels, and what they will bring."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ncu_tools.cli.option_kinds.selection_options import selection_options
from ncu_tools.cli.options import (
    MACHINE_FORMATS,
    echo_page,
    first_rows,
    format_option,
    page_width,
    progress,
    rows_shown,
    show,
    top_option,
)
from ncu_tools.cli.views import Verb
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    from ncu_launch.errors import NcuBenchError
    from ncu_parsers.sources.sources import Source

    from ncu_tools.advice.advise import Advice
    from ncu_tools.runs.run import Run
    from ncu_tools.runs.selection import Selection

LEVERS_SHOWN = 8
NAMES_TOLD = 3
SILENT_SHOWN = 5
WIDEST = 100
COLUMNS = columns(
    "kernel lever advice.title saves_share saves_low saves_high saves_ns saves_low_ns saves_high_ns share_of_run "
    "advice.evidence remedy advice.basis advice.confidence kernel_time_ns launches time_share advice.grid advice.block "
    "limits_next advice.roof advice.reason advice.says is_apart nothing advice.command kernel_id device"
)
SHOWN = (
    *columns("kernel"), column("advice.title", kind="text"),
    *columns("saves_share saves_low saves_high saves_ns share_of_run remedy"),
)  # fmt: skip

Row = dict[str, Any]
SAMPLES = "sampled_samples"
"""A column of launches in runs with sampled GPU activity."""


def _lever_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names that --explain takes, for tab completion."""
    from ncu_tools.cli.tables.advice.explained_lever import lever_names

    return [name for name in lever_names() if name.startswith(incomplete)]


@click.command(cls=Verb)
@click.argument("run", required=False)
@top_option("levers", LEVERS_SHOWN)
@click.option(
    "--explain", metavar="LEVER", shell_complete=_lever_names,
    help="Explain a lever: what to do, its model, numbers and source, and how often it was right.",
)  # fmt: skip
@click.option(
    "--against", "new", metavar="NEW", help="Which lever was pulled from RUN to NEW, what it brought, what is next."
)
@click.option("--pair", "pairs", multiple=True, metavar="OLD=NEW", help="With --against: this kernel became that one.")
@click.option(
    "--log", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.md",
    help="With --against: append what was found to a history, a Markdown table.",
)  # fmt: skip
@selection_options
@format_option
def command(
    run: str | None,
    top: int | None,
    explain: str | None,
    new: str | None,
    pairs: tuple[str, ...],
    log: Path | None,
    output_format: str,
    only: Selection | None,
) -> None:
    """Say what can be done about the time of a run's kernels, and what it will bring.

    RUN is a report, or what parse or profile made of one. Levers are changes that a programmer can make, ranked by the
    time that they save; each has an interval, the numbers that it stands on, and what to do. Those that change the
    numerics, replace a kernel or join it with others stand behind. Intervals are as wide as such predictions were off
    on known optimisation histories. JSON has every lever that was looked at, also those that bring nothing, with the
    reason. Of a recording of nsys or PyTorch's profiler, levers are about its steps.

    \b
    Example:
      ncu-bench advise report.ncu-rep
      ncu-bench advise trace.json.gz --what-if "aten::mm=0.7x"
      ncu-bench advise report.ncu-rep --kernel softmax --top 3
      ncu-bench advise --explain coalesce
      ncu-bench advise before.ncu-rep --against after.ncu-rep --log history.md
    """
    from ncu_launch.errors import WrongUsage
    from ncu_launch.notes import Note, NoteKind

    from ncu_tools.advice.next_metrics import in_a_sentence, next_metrics
    from ncu_tools.advice.nvidia_levers import answered_rules
    from ncu_tools.cli.tables.advice.advice_text import advice_lines, joined_silent
    from ncu_tools.cli.tables.advice.explained_lever import lever_here
    from ncu_tools.cli.tables.advice.lever_commands import with_commands
    from ncu_tools.cli.tables.advice.nvidia_text import rows_of_rules, rule_lines
    from ncu_tools.report.head import head_of

    if explain is not None:
        _explain(explain, run, output_format)
    if run is None:
        if explain is not None:
            return
        raise WrongUsage("advise needs a run.", "No report was named.", "ncu-bench advise REPORT.ncu-rep")
    if new is None and (pairs or log is not None):
        raise WrongUsage("--pair and --log go with --against.", advice="Name the other run: --against NEW")
    if new is not None:
        _compare(run, new, pairs, log, output_format, only, rows_shown(top, output_format, LEVERS_SHOWN))
        return
    with progress("Reading") as reading:
        loaded, advice = _advice_of(run, only, reading)
    rows = with_commands(_rows(advice, explain), advice, run, loaded.table.column_names, is_whole=only is None)
    head = head_of([run], loaded.table, loaded.notes, only=only)
    notes = [*advice.notes, *loaded.notes]
    answered, lacking = answered_rules(loaded.table, advice), next_metrics(advice)
    notes = [*(Note(one, NoteKind.NOT_KNOWN, "advice") for one in in_a_sentence(lacking)), *notes]
    if output_format in MACHINE_FORMATS:
        extra = (
            _extra(advice) | {"nvidia_rules": rows_of_rules(answered)} | {"collect": [asdict(one) for one in lacking]}
        )
        show(Table("advise", COLUMNS, rows[:top], notes, extra), output_format, head=head)
        return
    worth = [row for row in rows if row["lever"] is not None and row["is_worth_it"]]
    worth, hidden = first_rows(worth, top, output_format, "lever", LEVERS_SHOWN)
    notes = [*hidden, *notes]
    if output_format == "markdown":
        show(Table("advise", SHOWN, worth, notes), output_format, head=head)
        return
    if explain is not None:
        lines = list(lever_here(advice, rows, LEVERS_SHOWN if top is None else top, page_width(WIDEST)))
    else:
        silent = joined_silent([row for row in rows if row["lever"] is None])[:SILENT_SHOWN]
        lines = list(advice_lines(worth, silent, _together(advice), page_width(WIDEST)))
        lines += rule_lines(answered, page_width(WIDEST))
    echo_page(lines[1:] if lines and not lines[0] else lines, notes, head, widest=WIDEST)


# ---------------------------------------------------------------------------------------------------- kinds of runs


def _advice_of(run: str, only: Selection | None, reading: Callable[[Source], None]) -> tuple[Run, Advice]:
    """The run and the advice on it, from counters if it has any, else from times."""
    from ncu_tools.kernels.view.kernel_view import has_counters
    from ncu_tools.runs.loading import load_only

    loaded = load_only(run, only, reading=reading)
    if has_counters(loaded.table):
        return loaded, _of_counters(run, loaded, reading)
    return loaded, _of_times(run, loaded)


def _of_counters(run: str, loaded: Run, reading: Callable[[Source], None]) -> Advice:
    """Levers on kernels with ncu's counters, using the instructions in the run."""
    from ncu_tools.advice.advise import advise
    from ncu_tools.advice.code_of_run import instructions_for_levers

    instructions, notes = instructions_for_levers(run, loaded.table.column_names, reading)
    advice = advise(loaded.table, instructions)
    advice.notes += notes
    return advice


def _of_times(run: str, loaded: Run) -> Advice:
    """Advice from a timeline or trace: times, and for each kernel that no counters were collected."""
    from ncu_tools.advice.without_counters import without_counters
    from ncu_tools.timeline.load_activity import sampled_timeline_in

    source = sampled_timeline_in(run) if SAMPLES in loaded.table.column_names else None
    if source is None:
        advice = without_counters(loaded.table)
        advice.notes += _on_several_recordings(run, loaded)
        return advice
    from ncu_parsers.parse.sampled_timeline import read_sampled_timeline

    return without_counters(loaded.table, read_sampled_timeline(source))


def _on_several_recordings(run: str, loaded: Run) -> list[str]:
    """A note on a folder with several recordings, such as ranks, which have no common steps."""
    from ncu_launch.notes import Note, NoteKind
    from ncu_parsers.schema import tables

    from ncu_tools.timeline.load_activity import is_recording

    found = sorted({one for one in tables.words(loaded.table, "report") if one is not None})
    if not Path(run).is_dir() or len(found) < 2 or not all(map(is_recording, found[:2])):
        return []
    named = shlex.join(found[:2]) + (" ..." if len(found) > 2 else "")
    said = f"{len(found)} recordings: levers of steps are of one, and which rank arrives last is said of all"
    return [Note(f"{said}: ncu-bench advise {named}", NoteKind.ASKED)]


# ------------------------------------------------------------------------------------------------- after the change


def _compare(
    run: str,
    new: str,
    pairs: tuple[str, ...],
    log: Path | None,
    output_format: str,
    only: Selection | None,
    shown: int | None,
) -> None:
    """Show the levers pulled from one run to another. Raises `NcuBenchError` if they have no kernel in common."""
    from ncu_tools.advice.pulled_levers import paired
    from ncu_tools.cli.tables.advice.change_text import COLUMNS as OF_CHANGES
    from ncu_tools.cli.tables.advice.change_text import change_lines, logged, rows_of_changes
    from ncu_tools.report.head import head_of

    with progress("Reading") as reading:
        (base, before), (after_run, after) = _advice_of(run, only, reading), _advice_of(new, None, reading)
    changes = paired(before.kernels, after.kernels, _naming(pairs, before, after))[:shown]
    if not changes:
        raise _nothing_in_common((run, before), (new, after))
    notes = [*base.notes, *after_run.notes]
    if log is not None:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M")
        from ncu_tools.advice.history import append

        notes += append(log, logged(changes, run, new, now))
    head = head_of([run], base.table, base.notes, only=only)
    if output_format != "text":
        show(Table("advise", OF_CHANGES, rows_of_changes(changes), notes), output_format, head=head)
        return
    echo_page(list(change_lines(changes, page_width(WIDEST)))[1:], notes, head, widest=WIDEST)


def _nothing_in_common(*sides: tuple[str, Advice]) -> NcuBenchError:
    """The error for two runs without a kernel in common: an empty run, or the names of both."""
    from ncu_launch.errors import NcuBenchError

    from ncu_tools.kernels.names.name_patterns import word_of
    from ncu_tools.kernels.names.readable_names import readable_name
    from ncu_tools.report.table import printable

    for run, advice in sides:
        if not advice.kernels:
            return NcuBenchError(f"{run} has no launch that ran.", "It is empty, or every launch failed.")
    names = [list(dict.fromkeys(one.kernel.name for one in advice.kernels)) for _, advice in sides]
    kernels_of_runs = [
        f"{run} has {', '.join(printable(readable_name(name)) for name in of_run[:NAMES_TOLD])}"
        + (f" and {len(of_run) - NAMES_TOLD} more" if len(of_run) > NAMES_TOLD else "")
        for (run, _), of_run in zip(sides, names, strict=True)
    ]
    pair = shlex.quote("=".join(word_of(of_run[0]) for of_run in names))
    return NcuBenchError(
        "No kernel of the one run has its name in the other.",
        f"{'; '.join(kernels_of_runs)}.",
        f"Name the pair: --pair {pair}",
    )


def _naming(pairs: tuple[str, ...], before: Advice, after: Advice) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """For each run a function from a kernel's name to its identity: the normalised name, or one per user's pair."""
    from ncu_tools.kernels.matching.asked_pairs import asked_pairs
    from ncu_tools.kernels.names.kernel_name_spelling import normalised_name

    names = [{one.kernel.name for one in advice.kernels} for advice in (before, after)]
    asked = asked_pairs(pairs, names[0], [names[1]])
    old = {name: pair.text for pair in asked for name in pair.old}
    new = {name: pair.text for pair in asked for name in pair.new}
    return (lambda name: old.get(name) or normalised_name(name)), (lambda name: new.get(name) or normalised_name(name))


# ------------------------------------------------------------------------------------------------------------ output


def _rows(advice: Advice, only: str | None) -> list[Row]:
    from ncu_tools.advice.advise import rows_of

    return [row for row in rows_of(advice) if only is None or row["lever"] == only]


def _extra(advice: Advice) -> Row:
    """JSON of the best two levers of each kernel, with their joint saving."""
    from ncu_tools.kernels.names.kernel_ids import kernel_id

    return {
        "together": [
            {
                "kernel": one.kernel.name, "kernel_id": kernel_id(one.kernel.name), "levers": list(one.together.levers),
                "saves_share": one.together.saves.middle, "saves_low": one.together.saves.low,
                "saves_high": one.together.saves.high, "kernel_time_ns": one.kernel.time_ns,
            }
            for one in advice.kernels if one.together is not None
        ]
    }  # fmt: skip


def _together(advice: Advice) -> list[str]:
    """A sentence on the joint saving of two levers, for the hottest kernel that has two."""
    from ncu_tools.advice.lever_sentences import interval
    from ncu_tools.cli.tables.advice.advice_text import shown_name

    one = next((one for one in advice.kernels if one.together is not None), None)
    if one is None or one.together is None:
        return []
    both, kernel = " and ".join(one.together.levers), shown_name(one.kernel.name)
    return [f"Together, {both} save {interval(one.together.saves, f' of {kernel}')}: not their sum."]


def _explain(name: str, run: str | None, output_format: str) -> None:
    """Explain a lever as text. Raises `WrongUsage` for an unknown one, and for machine formats."""
    from ncu_launch.errors import WrongUsage

    from ncu_tools.cli.tables.advice.explained_lever import explained

    lines = list(explained(name, page_width(WIDEST)))
    if output_format not in MACHINE_FORMATS:
        click.echo("\n".join(lines) + "\n")
    elif run is None:
        raise WrongUsage("--explain alone is text.", advice="Name a run, of which --format has the lever's rows.")
