"""A kernel of one run compared with another run's: `ncu-bench kernel BASE --against NEW`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from difflib import get_close_matches
from textwrap import wrap
from typing import Any

import pyarrow as pa
from ncu_launch.errors import NcuBenchError
from ncu_parsers.schema.tables import short_name

from ncu_tools.ceilings.machine_files import Machine
from ncu_tools.cli.options import MACHINE_FORMATS, echo_heads, echo_page, page_width, show
from ncu_tools.cli.tables.part_text import WIDTH, paragraph
from ncu_tools.compare.comparison_sums import signature_sums_of_run
from ncu_tools.kernels.matching.asked_pairs import asked_pairs
from ncu_tools.kernels.matching.kernel_pairs import pair_kernels
from ncu_tools.kernels.names.distinct_names import distinct_names
from ncu_tools.kernels.names.kernel_name_spelling import normalised_name
from ncu_tools.kernels.view.against import EXACT_PART, CauseChange, KernelChange, ValueChange, common_shape
from ncu_tools.kernels.view.against import against as changes_of
from ncu_tools.kernels.view.kernel_view import kernel_view
from ncu_tools.kernels.view.part_rows import PARTS, written
from ncu_tools.numbers.number_format import counted, percent
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.head import Head
from ncu_tools.report.table import Table, printable
from ncu_tools.runs.run import Run

NEAR_NAMES, NAMED = 5, 6
NUMBER = 13
"""Width of a number in text."""

COLUMNS = (*columns("part title"), column("base", kind="text"), column("new", kind="text"), column("change"))
MACHINE_READABLE = columns("part key title value.unit base new base_least base_most new_least new_most growth changed")

Row = dict[str, Any]
Patterns = tuple[re.Pattern[str], ...]


def compared(
    runs: tuple[Run, Run], patterns: Patterns, pair: str | None, launch: int | None, machine: Machine | None
) -> KernelChange:
    """The kernel of the base and the matching one of the new run, by name, as compare does, or by `pair` ("OLD=NEW").

    Raises `NcuBenchError` if the new run has no such kernel, or several.
    """
    base, new = runs
    matched_by = None
    if pair is not None:
        (asked,) = asked_pairs([pair], _names(base.table), [_names(new.table)])
        before = kernel_view(base.table, (_any_of(asked.old),), launch, machine)
        found = sorted(asked.new)
    else:
        before = kernel_view(base.table, patterns, launch, machine)
        found = _same_kernel(before.kernel_name, new)
        if not found:
            found, matched_by = _renamed(before.kernel_name, base, new)
    after = kernel_view(new.table, (_any_of(found),), None, machine)
    shape = None if launch is not None else common_shape(before, after)
    if shape is not None:
        before = kernel_view(base.table, (_any_of([before.kernel_name]),), None, machine, shape)
        after = kernel_view(new.table, (_any_of([after.kernel_name]),), None, machine, shape)
    return replace(changes_of(before, after), matched_by=matched_by)


def _same_kernel(name: str, new: Run) -> list[str]:
    """The kernel's name in the new run: the same full name, however spelled, else the only one with its short name.

    [] if there is none, or several.
    """
    names = _names(new.table)
    for spelling in (str, normalised_name, short_name):
        found = sorted(one for one in names if spelling(one) == spelling(name))
        if len(found) == 1:
            return found
        if found:
            raise NcuBenchError(
                f"{new.name} has {len(found)} kernels called {spelling(name)}, and none with exactly that full name.",
                f"They are: {', '.join(found[:NEAR_NAMES])}.",
                'Say which one it is: --pair "OLD=NEW".',
            )
    return []


def _renamed(name: str, base: Run, new: Run) -> tuple[list[str], str | None]:
    """The new names of a renamed kernel, and the evidence. Raises `NcuBenchError` if no kernel matches."""
    before, after = (signature_sums_of_run(run).signatures for run in (base, new))
    for pair in pair_kernels(before, after).pairs:
        if pair.was == name and pair.matched_by is not None:
            return [pair.kernel], pair.matched_by
    names = sorted(_names(new.table))
    near = get_close_matches(name, names, NEAR_NAMES, 0.3) or names[:NEAR_NAMES]
    raise NcuBenchError(
        f"{new.name} has no kernel {name}, which is in {base.name}.",
        f"Kernels there, the likest first: {', '.join(near)}.",
        'If it was renamed, say what it is called: --pair "OLD=NEW". Or name a kernel that both have.',
    )


def _names(table: pa.Table) -> set[str]:
    return {name for name in table["kernel_name"].cast(pa.string()).unique().to_pylist() if name}


def _any_of(names: Sequence[str] | frozenset[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"^{re.escape(name)}$" for name in sorted(names)))


# ------------------------------------------------------------------------------------------------------ output


def show_against(
    change: KernelChange,
    names: tuple[str, str],
    parts: Sequence[str],
    notes: Sequence[str],
    output_format: str,
    heads: Sequence[Head],
) -> None:
    """Write the changes in these parts of a kernel between two runs, called `names`, below the head lines of both."""
    echo_heads(heads, output_format, widest=WIDTH)
    every = [*_notes(change, names), *notes]
    if output_format in MACHINE_FORMATS:
        table = Table(
            "kernel", MACHINE_READABLE, list(_values(change, parts)), [change.why, *every], _extra(change, names)
        )
        show(table, output_format)
    elif output_format == "markdown":
        show(Table("kernel", COLUMNS, list(_rows(change, parts)), [change.why, *every]), output_format)
    else:
        _show_text(change, parts, every)


def _show_text(change: KernelChange, parts: Sequence[str], notes: list[str]) -> None:
    width = page_width(WIDTH)
    titles = width - 3 * (NUMBER + 2) - 2
    lines = [*paragraph(_title(change), width), "", *paragraph(change.why, width)]
    for part in (part for part in PARTS if part in parts):
        rows = _rows_of(change, part)
        if rows:
            lines += ["", f"{PARTS[part]:<{titles + 2}}  {'base':>{NUMBER}}  {'new':>{NUMBER}}  {'change':>{NUMBER}}"]
        for row in rows:
            first, *more = wrap(printable(row["title"]), titles)
            numbers = "  ".join(f"{row[name]:>{NUMBER}}" for name in ("base", "new", "change"))
            lines += [f"  {first:<{titles}}  {numbers}", *(f"    {line}" for line in more)]
    echo_page((line.rstrip() for line in lines), notes)


def _title(change: KernelChange) -> str:
    names = distinct_names((change.base.kernel_name, change.new.kernel_name))
    return " -> ".join(names.values())


def _rows_of(change: KernelChange, part: str) -> list[Row]:
    """The changes in a part."""
    rows = [_row(one) for one in change.values if one.part == part and one.changed]
    return [*rows, *(_cause_row(one) for one in change.causes if one.changed)] if part == "verdict" else rows


def _cause_row(one: CauseChange) -> Row:
    before, after = ("no cause" if cost is None else percent(cost) for cost in (one.base, one.new))
    known = one.base is not None and one.new is not None
    difference = f"{100 * (one.new or 0) - 100 * (one.base or 0):+.1f} points" if known else ""
    return {"title": f"{one.rule}, costs about", "base": before, "new": after, "change": difference}


def _row(one: ValueChange) -> Row:
    if one.part == EXACT_PART and one.kind == "count":
        difference = f"{one.new - one.base:+,.0f}"
    elif one.kind == "percent":
        difference = f"{one.new - one.base:+.1f} points"
    elif one.growth is None:
        difference = "from 0"
    else:
        difference = f"{100 * one.growth:+.1f} %" if abs(one.growth) < 10 else f"{1 + one.growth:,.3g} x"
    return {
        "title": one.title, "base": written(one.kind, one.base), "new": written(one.kind, one.new),
        "change": difference,
    }  # fmt: skip


def _rows(change: KernelChange, parts: Sequence[str]) -> Iterator[Row]:
    """The rows of Markdown; the name of a part is in its first row."""
    for part in (part for part in PARTS if part in parts):
        for place, row in enumerate(_rows_of(change, part)):
            yield {**row, "part": PARTS[part] if place == 0 else None}


def note_on_renamed(change: KernelChange) -> list[str]:
    """A note that a kernel has another name in the new run, with the evidence; [] for the same name."""
    if change.matched_by is None:
        return []
    renamed = " was ".join(short_name(view.kernel_name) for view in (change.new, change.base))
    return [f"{renamed}, by {change.matched_by}; if not, --pair OLD=NEW"]


def _notes(change: KernelChange, names: tuple[str, str]) -> list[str]:
    same = sum(not one.changed for one in change.values)
    notes = [
        f"base is {names[0]}, new is {names[1]}: {counted(len(change.values), 'value', 'values')} in both, "
        f"{same} of them without a change beyond 2 % (1 point of per cents) and the spread of their launches"
    ]
    notes = [*note_on_renamed(change), *notes]
    if change.base.other_shapes or change.new.other_shapes:
        grid, block = (" x ".join(map(str, shapes[0])) for shapes in (change.base.grids, change.base.blocks))
        left = counted(change.base.other_shapes + change.new.other_shapes, "launch", "launches")
        notes.append(f"compared are launches of grid {grid} and block {block}; {left} of other shapes left out")
    for titles, name in ((change.lost, names[0]), (change.gained, names[1])):
        if titles:
            more = f" and {len(titles) - NAMED} more" if len(titles) > NAMED else ""
            notes.append(f"only in {name}: {', '.join(titles[:NAMED])}{more}")
    return notes


def _values(change: KernelChange, parts: Sequence[str]) -> Iterator[Row]:
    for one in (one for one in change.values if one.part in parts):
        yield {
            "part": one.part, "key": one.key, "title": one.title, "unit": one.unit, "base": one.base, "new": one.new,
            "base_least": one.base_range[0], "base_most": one.base_range[1],
            "new_least": one.new_range[0], "new_most": one.new_range[1],
            "growth": one.growth, "changed": one.changed,
        }  # fmt: skip


def _extra(change: KernelChange, names: tuple[str, str]) -> Row:
    def side(name: str, view: Any) -> Row:
        causes = view.diagnosis.as_json() if view.diagnosis else None
        return {"run": name, "kernel": view.kernel_name, "launches": view.launches, "causes": causes}

    return {
        "base": side(names[0], change.base),
        "new": side(names[1], change.new),
        "why": change.why,
        "causes": [asdict(one) for one in change.causes],
        "factors": [asdict(one) for one in change.factors],
        "only_in_base": change.lost,
        "only_in_new": change.gained,
    }
