"""ncu-bench history: what changed over the runs of a history, when, by which commit, and why."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.notes import Note, NoteKind

from ncu_tools.cli.comparing.old_gates import RemovesOldGates
from ncu_tools.cli.comparing.shown_gates import require_gates, rows_of_gates, show_gates, table_of_gates, write_junit
from ncu_tools.cli.comparing.shown_on_github import (
    GITHUB,
    gate_format_options,
    lines_of_runs,
    require_github,
    show_on_github,
)
from ncu_tools.cli.option_kinds.list_option import list_option
from ncu_tools.cli.options import (
    FILE,
    MACHINE_FORMATS,
    dask_option,
    engine_of,
    first_rows,
    options_in,
    require_other_output,
    show_if_any,
    top_option,
)
from ncu_tools.cli.terminal_notes import picture_written
from ncu_tools.numbers.change import shortened
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.pictures import format_of
from ncu_tools.report.table import Column, Table, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from ncu_tools.history.causes import HistoryChange
    from ncu_tools.history.series import History

CHANGES = columns(
    "histories.run commit~3 histories.kernel histories.quantity~0 before~2 after~2 histories.change~0 "
    "histories.cause~0 histories.evidence"
)
FOR_PEOPLE = columns("histories.run commit~2 histories.kernel histories.changed~0 histories.cause~0 histories.evidence")
"""Columns of a row per run and kernel, with all that changed there together."""
SERIES = columns("histories.run commit~1 histories.kernel histories.quantity histories.value")
BY = ("kernel", "layer", "category", "step")
MOST_NAMED = 8
"""Most names listed if --kernel finds none."""
PAGE = "html"
MOST_PICTURES, MOST_ROWS_OF_PAGE = 12, 500


LEAST_RUNS = 4
"""Most runs of a history without a note on counts that change often."""


@dataclass(frozen=True)
class HistoryOptions:
    """What to show: series `by` kernel, layer, category or step whose name contains `kernel`; and `quantity`.

    `commits` are "RUN=COMMIT"; `series` shows values in place of changes; `size` is that of the picture.
    """

    by: str = "kernel"
    kernel: str | None = None
    quantity: tuple[str, ...] = ()
    cause: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    series: bool = False
    size: str | None = None
    top: int | None = None


@click.command(cls=RemovesOldGates)
@click.argument("runs", nargs=-1, required=True, metavar="FOLDER|DATASET|URL...")
@click.option(
    "--by", type=click.Choice(BY), default="kernel", show_default=True,
    help="What a series is of: a kernel, layer or category of kernels, or a whole step. Points of bench are their own.",
)  # fmt: skip
@click.option("--kernel", metavar="REGEX", help="Series whose name, now or before, holds a match.")
@list_option("--quantity", metavar="NAME,...", help="Only these quantities: time, cycles, instructions, registers ...")
@list_option("--cause", metavar="NAME,...", help="Only changes by these causes: code, method, machine, noise, unknown.")
@click.option(
    "--commit", "commits", multiple=True, metavar="RUN=COMMIT",
    help="The commit that a run is of, where its manifest does not say. Repeatable.",
)  # fmt: skip
@click.option(
    "--fail-on", "gates", multiple=True, metavar="GATE",
    help='Exit with 3 where the newest run grew by more than runs before it: "time>3% of window:20", '
    '"drift:time>5%", "any:instructions>1%", "kernel:REGEX:registers>0%". Repeatable.',
)  # fmt: skip
@click.option("--junit", type=FILE, metavar="FILE", help="Write the gates as JUnit XML too.")
@click.option("--anyway", is_flag=True, help="Judge times at different clocks as they are.")
@click.option("--series", is_flag=True, help="Show the series themselves: a row per run, kernel and quantity.")
@click.option(
    "-o", "--output", type=FILE, metavar="FILE",
    help="Draw the kernel that changed most, or that --kernel finds, over the runs (.svg, .png, .pdf), or write a page "
    "(.html).",
)  # fmt: skip
@click.option(
    "--size", metavar="SIZE",
    help="Size of the picture, as of roofline: column (of a paper), page, slide, WIDTHxHEIGHT in inches, 18x12cm.",
)  # fmt: skip
@top_option("changes")
@dask_option
@gate_format_options
@options_in(HistoryOptions, "how")
def command(
    runs: tuple[str, ...],
    how: HistoryOptions,
    gates: tuple[str, ...],
    junit: Path | None,
    anyway: bool,
    output: Path | None,
    dask: str | None,
    output_format: str,
    comment: bool,
) -> None:
    """Show what changed over many runs of one program: when, by which commit, and whether it is the code.

    FOLDER holds run folders, reports, or both, each of them a run; a dataset holds runs, too. They are ordered by the
    dates of their commits, else by their own dates, and where nothing says these by the times of files. Kernels are
    followed through renames.

    Counts come first (launches, instructions, FLOPs, bytes, registers, spills): any step of them is a change. Cycles
    and times change where the runs before and after differ by more than their spread; a drift adds up until they do.
    The fewer kernels are watched (--kernel), the sooner a change of time is found; hot ones sooner than cold ones.
    Each change has its likely cause, with what was seen: code (counts moved), method (launches, grids, versions),
    machine (only the clock or the device), noise (none of these), or unknown (none of these, where no instructions
    were counted).

    A gate holds the newest run against a window of those before it, or with drift: the last runs against the first. It
    ends the command with exit code 3 if its limit is exceeded, and 4 if it cannot tell: nothing to hold it against,
    another device, or a clock that decides.

    \b
    Example:
      ncu-bench history runs
      ncu-bench history runs --fail-on "time>3% of window:20" --fail-on "drift:time>5%"
      ncu-bench history runs --kernel gemm --format json
      ncu-bench history runs --by step --quantity time
      ncu-bench history runs --kernel gemm -o gemm.svg --size column
      ncu-bench history reports --series --quantity time --format csv
      ncu-bench history runs --commit monday=1f3a5c7 --commit tuesday=9e2b4d6
    """

    from ncu_tools.compare.gate import WINDOW, evaluate, exit_code, parse_gate
    from ncu_tools.history.causes import changes_of
    from ncu_tools.history.held import held
    from ncu_tools.history.runs_in_order import ordered_runs
    from ncu_tools.history.series import history_of
    from ncu_tools.report.plot.page_size import size_of

    _require_names(how)
    limits = [parse_gate(text) for text in gates]
    require_gates(junit, limits, runs)
    require_github(output_format, comment)
    file_format, size = format_of(output, PAGE), size_of(how.size) if how.size is not None else None
    if output is not None:
        require_other_output(output, runs)
    with engine_of(dask) as engine:
        found = ordered_runs(runs, how.commits, engine)
    history = history_of(found.runs, how.by)
    history.notes += found.notes
    asked = _asked(history, how.kernel)
    outcomes = [
        evaluate(gate, held(history, gate.measure, gate.window or WINDOW, drift=gate.drift), clocks_anyway=anyway)
        for gate in limits
    ]
    newest = history.runs[-1]
    write_junit(junit, {newest: outcomes})
    with_changes = not how.series or output is not None
    changes = [one for one in changes_of(history, asked) if _is_wanted(history, one, how)] if with_changes else []
    shown = _series(history, how, output_format) if how.series else _changes(history, changes, how, output_format)
    shown.extra["gates"] = rows_of_gates({newest: outcomes})
    if output is not None:
        pictured = _Pictured(history, changes, how, table_of_gates({newest: outcomes}), size)
        shown.notes = [*shown.notes, *_written(pictured, output, file_format)]
    head = _head(history, changes, told=not how.series)
    if output_format == GITHUB:
        show_on_github(shown, lines_of_runs({newest: outcomes}), [head], comment=comment)
    else:
        show_if_any(shown, output_format, head)  # the head says if nothing changed
        show_gates({newest: outcomes}, output_format)
    if code := exit_code(outcomes):
        raise click.exceptions.Exit(code)


@dataclass(frozen=True)
class _Pictured:
    """The content of a picture or page, and the size of pictures in inches, if given."""

    history: History
    changes: list[HistoryChange]
    how: HistoryOptions
    gates: Table
    size: tuple[float, float] | None

    def series(self) -> list[int]:
        """The requested series: the ones with the largest changes first, then those with most time."""
        import numpy as np

        from ncu_tools.history.quantities import TIME

        most: dict[int, tuple[bool, float]] = {}
        for one in self.changes:
            size = one.quantity == TIME, abs(math.log(one.after / one.before)) if one.before > 0 < one.after else 0.0
            most[one.series] = max(size, most.get(one.series, (False, 0.0)))
        times = self.history.values(TIME)
        with np.errstate(all="ignore"):
            level = np.nanmax(np.nan_to_num(times), axis=0, initial=0.0)
        wanted = [at for at in range(len(self.history.names)) if _is_named(self.history, at, self.how.kernel)]
        return sorted(wanted, key=lambda at: (most.get(at, (False, 0.0)), level[at]), reverse=True)


def _written(pictured: _Pictured, output: Path, file_format: str) -> list[str]:
    """Write the picture or the page; returns the notes on it."""
    from ncu_launch.files.atomic_files import write_bytes_atomically

    from ncu_tools.report.plot.history_plot import draw_history

    history, order = pictured.history, pictured.series()
    if not order:
        return ["there is nothing to draw: the runs have no kernels"]
    if file_format != PAGE:
        return [picture_written(draw_history(history, order[0], pictured.changes, file_format, pictured.size), output)]
    from ncu_tools.kernels.names.readable_names import readable_name
    from ncu_tools.report.html.still_page import still_page

    changed = {one.series for one in pictured.changes}
    drawn = [at for at in order if at in changed or pictured.how.kernel][:MOST_PICTURES] or order[:1]
    pictures = [
        (readable_name(history.names[at]), draw_history(history, at, pictured.changes, "svg", pictured.size))
        for at in drawn
    ]
    rows = _rows_for_people(history, pictured.changes)[:MOST_ROWS_OF_PAGE]
    table = Table("history", _titled(FOR_PEOPLE, history), rows, _notes(history, pictured.changes))
    head = _head(history, pictured.changes).line()
    text = still_page("History", head, [("", pictured.gates), ("", table)], pictures)
    write_bytes_atomically(output, text.encode("utf-8", "replace"))
    return [Note(f"the page is in {output}", NoteKind.WRITTEN)]


def _require_names(how: HistoryOptions) -> None:
    """Raise `WrongUsage` for an unknown quantity or cause, and for an invalid pattern."""
    from ncu_tools.history.quantities import CODE, MACHINE, METHOD, NOISE, UNKNOWN, quantities
    from ncu_tools.runs.selection import pattern_of

    for option, given, known in (
        ("--quantity", how.quantity, tuple(quantities())),
        ("--cause", how.cause, (CODE, METHOD, MACHINE, NOISE, UNKNOWN)),
    ):
        wrong = [name for name in given if name not in known]
        if wrong:
            raise WrongUsage(f"{option} {wrong[0]} is not known.", advice=f"Choose of {', '.join(known)}.")
    if how.kernel is not None:
        pattern_of(how.kernel)


def _asked(history: History, pattern: str | None) -> npt.NDArray[np.bool_]:
    """Mask of the series that `--kernel` matches. Raises `NcuBenchError` if it matches none."""
    import numpy as np

    asked = np.array([_is_named(history, series, pattern) for series in range(len(history.names))], np.bool_)
    if pattern is not None and len(asked) and not asked.any():
        raise NcuBenchError(
            f"No {history.noun} of the runs has a name with {pattern}.",
            f"There are {', '.join(shortened([printable(name) for name in history.names], MOST_NAMED))}.",
            "Name a part of one of these with --kernel; (?i) in front of a pattern takes large and small letters.",
        )
    return asked


def _is_named(history: History, series: int, pattern: str | None) -> bool:
    from ncu_tools.history.series import EVERY
    from ncu_tools.kernels.names.readable_names import is_called

    if pattern is None or series == EVERY:
        return True
    names = [history.names[series], *(one.was for one in history.renamed if one.series == series)]
    return any(is_called(name, [re.compile(pattern)]) for name in names)


def _is_wanted(history: History, change: HistoryChange, how: HistoryOptions) -> bool:
    return (
        (not how.quantity or change.quantity in how.quantity)
        and (not how.cause or change.cause in how.cause)
        and _is_named(history, change.series, how.kernel)
    )


def _changes(history: History, changes: list[HistoryChange], how: HistoryOptions, output_format: str) -> Table:
    for_people = output_format not in MACHINE_FORMATS
    every = _rows_for_people(history, changes) if for_people else [_row(history, one) for one in changes]
    rows, more = first_rows(every, how.top, output_format, "row")
    columns_of = _titled(FOR_PEOPLE if for_people else CHANGES, history)
    return Table("history", columns_of, rows, [*_notes(history, changes), *more])


def _titled(of: Sequence[Column], history: History) -> list[Column]:
    """Columns with the title of what the series are of, such as a category."""
    return [one._replace(title=history.noun) if one.name == "kernel" else one for one in of]


def _row(history: History, change: HistoryChange) -> dict[str, Any]:
    return {
        **_where(history, change),
        "quantity": change.quantity,
        "before": change.before,
        "after": change.after,
        "change": change.change if math.isfinite(change.change) else None,
        "cause": change.cause,
        "evidence": "; ".join(change.evidence),
    }


def _where(history: History, change: HistoryChange) -> dict[str, Any]:
    return {
        "run": history.runs[change.run],
        "commit": history.facts[change.run].commit,
        "kernel": history.name_of(change.series),
    }


def _rows_for_people(history: History, changes: list[HistoryChange]) -> list[dict[str, Any]]:
    """A row per kernel and run with all that changed there; the newest run first.

    Change and cause are those of the last quantity, which is the time if it changed.
    """
    from ncu_tools.history.quantities import quantities

    together: dict[tuple[int, int], list[HistoryChange]] = {}
    for one in changes:
        together.setdefault((-one.run, one.series), []).append(one)
    rows = []
    for key in sorted(together, key=lambda key: key[0]):
        ones = together[key]
        title = quantities()[ones[-1].quantity].title
        phrases = dict.fromkeys(
            (*(one.in_words for one in reversed(ones)), *(more for one in ones for more in one.evidence))
        )
        rows.append({
            **_where(history, ones[0]), "changed": f"{title} {ones[-1].growth_in_words}", "cause": ones[-1].cause,
            "evidence": "; ".join(phrases),
        })  # fmt: skip
    return rows


def _series(history: History, how: HistoryOptions, output_format: str) -> Table:
    from ncu_tools.history.quantities import quantities
    from ncu_tools.numbers.number_format import FORMATS

    in_words = output_format not in MACHINE_FORMATS
    wanted = [at for at in range(len(history.names)) if _is_named(history, at, how.kernel)]
    rows = []
    for name, known in quantities().items():
        if (how.quantity and name not in how.quantity) or not history.has(name):
            continue
        values = history.values(name)
        for series in wanted:
            for run, value in enumerate(values[:, series].tolist()):
                if value == value:
                    rows.append({
                        "run": history.runs[run], "commit": history.facts[run].commit, "kernel": history.names[series],
                        "quantity": known.title if in_words else name,
                        "value": FORMATS[known.kind](value) if in_words else value,
                    })  # fmt: skip
    rows, more = first_rows(rows, how.top, output_format, "value")
    return Table("history", _titled(SERIES, history), rows, [*history.notes, *more])


def _head(history: History, changes: list[HistoryChange], *, told: bool = True) -> Any:
    """The line above the table; with the number of changes if `told`."""
    from collections import Counter

    from ncu_tools.numbers.number_format import counted, plural
    from ncu_tools.report.head import Head

    commits = {one.commit for one in history.facts if one.commit}
    devices = tuple(dict.fromkeys(one.devices for one in history.facts if one.devices))
    causes = Counter(one.cause for one in changes)
    more = [
        *([counted(len(commits), "commit", "commits")] if commits else []),
        counted(len(history.names), history.noun, plural(history.noun)),
        *([f"{counted(len(changes), 'change', 'changes')}: {_listed(causes)}"] if changes else []),
        *(["no change found"] if told and not changes else []),
    ]
    return Head(tuple(history.runs), devices, more=tuple(more))


def _listed(causes: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {cause}" for cause, number in causes.items())


def _notes(history: History, changes: list[HistoryChange]) -> list[str]:
    notes = list(history.notes)
    if len(history.runs) < 2:
        notes.append("one run is no history: nothing can have changed")
    elif not changes:
        notes += _too_few_runs(history)
    return [*notes, *_often_changed(history, changes)]


def _too_few_runs(history: History) -> list[str]:
    """A note if there are too few runs to find a change of times alone, however large."""
    from ncu_tools.history.change_points import runs_needed
    from ncu_tools.history.quantities import TIME
    from ncu_tools.numbers.number_format import counted, plural

    needed = runs_needed(len(history.names))
    if not history.has(TIME) or len(history.runs) >= needed:
        return []
    watched = counted(len(history.names), history.noun, plural(history.noun))
    return [
        f"{len(history.runs)} runs are too few to find a change of times: with {watched}, it takes {needed}; gates on "
        'the newest run need fewer, as --fail-on "time>5% of window:5"'
    ]


def _often_changed(history: History, changes: list[HistoryChange]) -> list[str]:
    """A note on kernels whose counts change in more than a third of the runs, perhaps without a change of code."""
    from collections import Counter

    from ncu_tools.history.change_points import OFTEN
    from ncu_tools.history.quantities import quantities
    from ncu_tools.kernels.names.readable_names import readable_name

    known = quantities()
    moves = Counter(
        (one.series, one.quantity)
        for one in changes
        if known[one.quantity].exact and not known[one.quantity].is_of_a_launch
    )
    most = OFTEN * (len(history.runs) - 1)
    often = sorted({readable_name(history.names[at]) for (at, _), count in moves.items() if count > most})
    if not often or len(history.runs) <= LEAST_RUNS:
        return []
    names = ", ".join(often[:3]) + (" and others" if len(often) > 3 else "")
    return [
        f"counts of {names} move in more than a third of the runs: code that changed each time, or counts that vary by "
        "themselves, as with other data; two runs of one program tell"
    ]
