"""ncu-bench kernel: everything on one kernel, in seven parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import NcuBenchError, WrongUsage

from ncu_tools.cli.option_kinds.list_option import list_option
from ncu_tools.cli.option_kinds.selection_options import selection_options
from ncu_tools.cli.options import (
    FILE,
    MACHINE_FORMATS,
    echo_notes,
    echo_page,
    format_option,
    machine_option,
    page_width,
    progress,
    show,
)
from ncu_tools.cli.terminal_notes import WrittenFile
from ncu_tools.cli.views import Verb
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from ncu_tools.advice.advise import KernelAdvice
    from ncu_tools.ceilings.machine_files import Machine
    from ncu_tools.kernels.view.kernel_view import KernelView
    from ncu_tools.kernels.view.next_step import NextStep
    from ncu_tools.runs.selection import Selection

PART_NAMES = ("identity", "limits", "occupancy", "scheduler", "memory", "pipes", "verdict")
COLUMNS = (*columns("part title"), column("value", kind="text"), *columns("against kernel.spread"))
MACHINE_READABLE = columns("part key title value value.unit kernel.low kernel.high kernel.of share metric")

Row = dict[str, Any]


def _names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names that --explain takes, for tab completion."""
    from ncu_tools.kernels.view.explain import names

    return [name for name in names() if name.startswith(incomplete.lower().replace("_", "-").replace(" ", "-"))]


@click.command(cls=Verb)
@click.argument("run")
@click.argument("name", required=False)
@click.option("--launch", type=click.IntRange(min=0), help="Only this launch; else the median of all of the kernel.")
@list_option(
    "--part",
    "chosen",
    type=click.Choice(PART_NAMES),
    metavar="PART,...",
    help=f"Of {', '.join(PART_NAMES)}; or samples or balance alone.",
)
@click.option("--against", "new", metavar="NEW", help="Show what changed to the same kernel of this run, and why.")
@click.option("--pair", metavar="OLD=NEW", help="With --against: this kernel of RUN is that one of NEW.")
@click.option(
    "--explain", metavar="RULE", shell_complete=_names,
    help="Explain a rule of the diagnosis, or a number: formula, limit, source, and its values for this kernel.",
)  # fmt: skip
@click.option(
    "--chart", type=FILE, metavar="FILE.svg",
    help="Write its memory chart: bytes, hit rates and busy shares from the SM to DRAM.",
)  # fmt: skip
@machine_option
@selection_options
@format_option
def command(
    run: str,
    name: str | None,
    launch: int | None,
    chosen: tuple[str, ...],
    new: str | None,
    pair: str | None,
    explain: str | None,
    chart: Path | None,
    machine: Machine | None,
    output_format: str,
    only: Selection | None,
) -> None:
    """Show one kernel whole: what it is, what limits it, its occupancy, stalls, memory, pipes, and what to try first.

    RUN is a report, or what parse or profile made of one. NAME is searched in full kernel names, then in the short
    names of tables; the default is the hottest kernel. Values of several launches are medians. For a part that the
    report lacks, the option that collects it is named. JSON has every value under its key with unit and metric, causes
    with their evidence, and NVIDIA's rules. A rule's "est." is a share of the kernel's time, "local" a share of the
    time of the unit that the rule examines.

    \b
    Example:
      ncu-bench kernel report.ncu-rep
      ncu-bench kernel report.ncu-rep softmax --format markdown
      ncu-bench kernel report.ncu-rep --part occupancy,scheduler
      ncu-bench kernel report.ncu-rep softmax --explain few-blocks
      ncu-bench kernel report.ncu-rep softmax --chart memory.svg
      ncu-bench kernel before.ncu-rep softmax --against after.ncu-rep
    """
    from ncu_tools.advice.nvidia_levers import with_answers
    from ncu_tools.cli.tables.advice.levers_of_kernel import advice_on_view
    from ncu_tools.cli.tables.part_text import WIDTH
    from ncu_tools.kernels.source.inside_of_run import OVER_TIME
    from ncu_tools.kernels.view.kernel_view import kernel_view
    from ncu_tools.kernels.view.next_step import next_step
    from ncu_tools.kernels.view.part_rows import notes_of
    from ncu_tools.kernels.view.places import hottest_places, instructions_of
    from ncu_tools.report.head import head_of
    from ncu_tools.runs.loading import load_only, points_summed
    from ncu_tools.runs.selection import ids_apart, pattern_of, pattern_of_ids

    patterns: tuple[re.Pattern[str], ...] = () if name is None else (pattern_of(name),)
    ids, only = ids_apart(only)
    if pair is not None and new is None:
        raise WrongUsage("--pair goes with --against.", advice="Name the other run: --against NEW")
    if pair is not None and name is not None:
        raise WrongUsage("--pair names the kernel already.", advice="Leave the name out.")
    if explain is not None and new is not None:
        raise WrongUsage("--explain goes with one run.", advice="Leave --against out.")
    if chart is not None and (new is not None or explain is not None or chart.suffix.lower() != ".svg"):
        raise WrongUsage("--chart writes an SVG file of one kernel.", advice="Say --chart FILE.svg, without --against.")
    if new is not None:
        _compare((run, new), (patterns, ids), pair, launch, machine, chosen or PART_NAMES, output_format, only)
        return
    with progress("Reading") as reading:
        loaded = load_only(run, only, reading=reading)
        patterns = pattern_of_ids(loaded.table, ids) or patterns
        loaded.notes = [*points_summed(run, only), *loaded.notes]
        view = kernel_view(loaded.table, patterns, launch, machine, alike=launch is None)
        if explain is not None:
            _explain(view, explain, loaded.notes, output_format)
            return
        view.conditions, view.of_selection = _conditions(run, loaded.table), only is not None
        inside = None
        if only is None:  # samples of all launches say nothing of some
            inside = instructions_of(run, loaded.table.column_names, reading)
            view.places = hottest_places(inside, view, launch)
        levers = advice_on_view(view, loaded.table, inside, launch)
        view.rules = with_answers(view.rules, loaded.table, levers)
    if chart is not None:
        _write_chart(view, chart)
    parts = chosen or PART_NAMES
    step = next_step(view, run, over_time=any(name.startswith(OVER_TIME) for name in loaded.table.column_names))
    notes = [*notes_of(view, parts), *loaded.notes]
    head = head_of([run], loaded.table, loaded.notes, only=only)
    if output_format in MACHINE_FORMATS:
        rows = [row for row in _values(view) if row["part"] in parts]
        show(Table("kernel", MACHINE_READABLE, rows, notes, _extra(view, step, levers)), output_format, head=head)
    elif output_format == "markdown":
        show(
            Table("kernel", COLUMNS, list(_rows(view, parts, _step_rows(step), levers)), notes),
            output_format,
            head=head,
        )
    else:
        name, *others = notes
        if len(head.devices) < 2:  # the line above names the only one
            name = name.removesuffix(f" on {view.device}")
        lines = _lines(name, view, parts, _step_rows(step), levers)
        echo_page(lines, others, head, widest=WIDTH)


def _write_chart(view: KernelView, path: Path) -> None:
    """Write the memory chart of a kernel. Raises `NcuBenchError` if nothing is known of its memory."""
    from ncu_launch.files.atomic_files import write_bytes_atomically

    from ncu_tools.report.plot.memory_chart import has_chart, memory_chart

    if not has_chart(view):
        raise NcuBenchError(
            "Nothing is known of what the kernel moved.",
            "Its launches have no counters of memory.",
            "Collect them with: ncu --section MemoryWorkloadAnalysis --section SpeedOfLight -o REPORT PROGRAM",
        )
    write_bytes_atomically(path, memory_chart(view).encode())
    echo_notes([WrittenFile(f"the memory chart is {path}")])


def _conditions(run: str, launches: pa.Table) -> dict[str, str]:
    """Clock and cache control, from the manifest of a run folder or the session of a report."""
    from ncu_launch.files.manifest import folder_of, manifest_in

    from ncu_tools.compare.run_conditions import conditions_of_run

    known = conditions_of_run(launches, manifest_in(folder_of(run)))
    return {title: known[title] for title in ("clock control", "cache control") if title in known}


def _compare(
    names: tuple[str, str],
    wanted: tuple[tuple[re.Pattern[str], ...], tuple[str, ...]],
    pair: str | None,
    launch: int | None,
    machine: Machine | None,
    parts: Sequence[str],
    output_format: str,
    only: Selection | None,
) -> None:
    from ncu_tools.cli.tables.kernel.against_table import compared, show_against
    from ncu_tools.report.head import head_of, told_apart
    from ncu_tools.runs.loading import load_only, points_summed
    from ncu_tools.runs.selection import pattern_of_ids

    with progress("Reading") as reading:
        base, new = (load_only(name, only, reading=reading) for name in names)
        patterns = pattern_of_ids(base.table, wanted[1]) or wanted[0]
        change = compared((base, new), patterns, pair, launch, machine)
    summed = [note for name in names for note in points_summed(name, only)]
    heads = [head_of([name], run.table, run.notes, only=only) for name, run in zip(names, (base, new), strict=True)]
    show_against(change, names, parts, [*summed, *base.notes, *new.notes], output_format, told_apart(heads))


def _explain(view: KernelView, name: str, notes: list[str], output_format: str) -> None:
    from ncu_tools.cli.tables.kernel.explanation_table import show_explanation
    from ncu_tools.kernels.view.explain import explain

    show_explanation(view, explain(view, name), notes, output_format)


# --------------------------------------------------------------------------------------------------- for people


def _lines(
    name: str, view: KernelView, parts: Sequence[str], steps: list[Row], levers: KernelAdvice | None
) -> list[str]:
    """The note that names the kernel, and the seven parts one below the other."""
    from ncu_tools.cli.tables.advice.levers_of_kernel import levers_in_words
    from ncu_tools.cli.tables.part_text import WIDTH, of_sentences, of_values, paragraph
    from ncu_tools.kernels.view.part_rows import PARTS, rows_of_part, verdict_of

    width = page_width(WIDTH)
    lines = paragraph(name, width)
    for sentence in [*levers_in_words(levers), *verdict_of(view)] if set(parts) > {"verdict"} else ():
        lines += paragraph(sentence, width)
    for part in (part for part in PARTS if part in parts):
        rows = rows_of_part(view, part)
        if part == "verdict":
            lines += [
                "",
                PARTS[part],
                *of_sentences(rows, width),
                *(f"  {one['value']}: {one['title']}" for one in steps),
            ]
        elif rows:
            lines += ["", PARTS[part], *of_values(rows, width)]
    return lines


def _step_rows(step: NextStep | None) -> list[Row]:
    """The next command, after the command that collects its input; commands are never wrapped."""
    if step is None:
        return []
    commands = [step.collect, step.command] if step.collect else [step.command]
    return [{"title": one, "value": "then" if place else "next"} for place, one in enumerate(commands)]


def _rows(view: KernelView, parts: Sequence[str], steps: list[Row], levers: KernelAdvice | None) -> Iterator[Row]:
    """The rows of all parts as a table; the name of a part is in its first row."""
    from ncu_tools.cli.tables.advice.levers_of_kernel import levers_in_words
    from ncu_tools.kernels.view.part_rows import PARTS, rows_of_part, verdict_of

    first = [*levers_in_words(levers), *verdict_of(view)] if set(parts) > {"verdict"} else []
    for place, sentence in enumerate(first):
        yield {"part": None if place else "first", "title": sentence}
    for part, title in ((part, title) for part, title in PARTS.items() if part in parts):
        for place, row in enumerate(rows_of_part(view, part) + (steps if part == "verdict" else [])):
            yield {**row, "part": title if place == 0 else None}


# ------------------------------------------------------------------------------------------------- for programs


def _values(view: KernelView) -> Iterator[Row]:
    for fact in view.facts:
        yield {column.name: getattr(fact, column.name) for column in MACHINE_READABLE}
    for stall in view.stalls:
        key = f"stall_{stall.reason.replace(' ', '_')}"
        yield {
            "part": "scheduler", "key": key, "title": f"stalled: {stall.reason}", "value": stall.per_issue,
            "unit": "cycle/issue", "share": stall.share,
        }  # fmt: skip
    for kind, count in view.mix.of_a_launch.items() if view.mix else ():
        share = view.mix.share(kind) if view.mix else None
        yield {"part": "pipes", "key": f"mix_{kind}", "title": kind, "value": count, "unit": "inst", "share": share}


def _extra(view: KernelView, step: NextStep | None, levers: KernelAdvice | None) -> Row:
    from ncu_tools.advice.lever_sentences import rows_of_levers
    from ncu_tools.kernels.names.kernel_ids import kernel_id

    return {
        "kernel": view.kernel_name,
        "kernel_id": kernel_id(view.kernel_name),
        "launches": view.launched,
        "grids": view.grids,
        "blocks": view.blocks,
        "device": view.device,
        "conditions": dict(view.conditions),
        "hotspot": asdict(view.hotspot),
        "occupancy": {**asdict(view.occupancy), "limiters": view.occupancy.limiters},
        "causes": view.diagnosis.as_json() if view.diagnosis else None,
        "places": [asdict(place) for place in view.places],
        "next": asdict(step) if step else None,
        "rules": [asdict(rule) for rule in view.rules],
        "missing": view.missing,
        "levers": rows_of_levers(levers),
    }
