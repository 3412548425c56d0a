"""The explanation of a rule, a quantity or a fact: `ncu-bench kernel RUN --explain RULE`."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from ncu_tools.cli.options import MACHINE_FORMATS, echo_page, page_width, show
from ncu_tools.cli.tables.part_text import WIDTH, hanging, paragraph
from ncu_tools.kernels.view.explain import COSTS, ExplainedName, ExplainedNumber
from ncu_tools.kernels.view.kernel_view import KernelView
from ncu_tools.kernels.view.part_rows import name_of_view
from ncu_tools.numbers.number_format import digits, percent
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

COLUMNS = columns("role key condition shown title from_metrics")
MACHINE_READABLE = columns("role key title condition value value.unit holds from_metrics")

Row = dict[str, Any]


def show_explanation(view: KernelView, found: ExplainedName, notes: list[str], output_format: str) -> None:
    """Write the meaning of a name and its value for the kernel."""
    about = [name_of_view(view), _headline(found), *_endings(found)]
    rows = [_row(one) for one in found.numbers]
    if output_format in MACHINE_FORMATS:
        extra = {
            "name": found.name, "kind": found.kind, "kernel": view.kernel_name, "outcome": found.outcome,
            "says": found.says, "formulas": found.formulas, "source": found.source,
        }  # fmt: skip
        show(Table("kernel", MACHINE_READABLE, rows, [*about, *notes], extra), output_format)
    elif output_format == "markdown":
        show(Table("kernel", COLUMNS, rows, [*about, *notes]), output_format)
    else:
        _show_text(view, found, notes)


def _show_text(view: KernelView, found: ExplainedName, notes: list[str]) -> None:
    width = page_width(WIDTH)
    lines = [*paragraph(name_of_view(view), width), "", *paragraph(_headline(found), width)]
    explained = set[str]()
    for role, numbers in groupby(found.numbers, key=lambda one: one.role):
        formulas = "; ".join(found.formulas) if role == COSTS else ""
        lines += ["", *hanging(role, formulas, width)]
        for one in numbers:
            lines += hanging(f"  {one.condition or one.key}", f"{_shown(one)}{_holds(one)}", width)
            if one.key not in explained:
                lines += hanging("  ", one.title, width)
                lines += hanging("  ", f"from {', '.join(one.metrics)}", width) if one.metrics else []
            explained.add(one.key)
    shown = any(one.role == COSTS for one in found.numbers)
    for ending in _endings(found)[shown:]:
        lines += ["", *paragraph(ending, width)]
    echo_page(lines, notes)


def _headline(found: ExplainedName) -> str:
    said = f": {found.outcome}." if found.outcome else "."
    return f"{found.name}, a {found.kind}{said}" + (f" {found.says}." if found.says else "")


def _endings(found: ExplainedName) -> list[str]:
    word = "costs about" if found.kind == "rule" else "taken from"
    formulas = [f"{word} {', '.join(found.formulas)}"] if found.formulas else []
    return [*formulas, f"source: {found.source}"]


def _row(one: ExplainedNumber) -> Row:
    return {
        "role": one.role, "key": one.key, "title": one.title, "condition": one.condition or None, "value": one.value,
        "unit": one.unit, "holds": one.holds, "from_metrics": ", ".join(one.metrics), "shown": _shown(one),
    }  # fmt: skip


def _shown(one: ExplainedNumber) -> str:
    if one.value is None:
        return "not collected"
    if one.unit == "fraction":
        return percent(one.value)
    return f"{digits(one.value)} {one.unit}".rstrip()


def _holds(one: ExplainedNumber) -> str:
    return {True: ", holds", False: ", does not hold", None: ""}[one.holds]
