"""Operators and model lines of kernels that torch.compile generated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ncu_parsers.derived.operators.inductor_sources import GENERATED, CompiledKernel, compiled_in, compiled_name

from ncu_tools.numbers.number_format import counted
from ncu_tools.report.columns.registry import column
from ncu_tools.report.table import Table

MADE_OF = column("made_of")


def with_sources(table: Table, inductor: str) -> Table:
    """The table with a column on the origin of generated kernels, from the folder or file `inductor`.

    JSON has their operators and lines under "compiled".
    """
    compiled = compiled_in(inductor)
    found = {row["kernel"]: kernel for row in table.rows if (kernel := compiled.get(compiled_name(row["kernel"])))}
    titles = [str(row["kernel"]) for row in table.rows]
    unknown = [one for one in titles if one not in found and GENERATED.fullmatch(compiled_name(one))]
    several = sum(kernel.definitions > 1 for kernel in found.values())
    notes = list(table.notes)
    if unknown:
        notes.append(
            f"{counted(len(unknown), 'generated kernel is', 'generated kernels are')} not in {inductor}, "
            f"which is from another compilation: {unknown[0]}"
        )
    if several:
        names = counted(several, "name stands", "names stand")
        notes.append(f"{names} for different kernels of several graphs: made of is what any of them is made of")
    first, *others = table.columns
    rows = [{**row, "made_of": found[row["kernel"]].title if row["kernel"] in found else None} for row in table.rows]
    extra = {**table.extra, "compiled": {name: _as_json(kernel) for name, kernel in found.items()}}
    return replace(table, columns=[first, MADE_OF, *others], rows=rows, notes=notes, extra=extra)


def _as_json(kernel: CompiledKernel) -> dict[str, Any]:
    return {
        "operators": list(kernel.operators),
        "lines": [one._asdict() for one in kernel.lines],
        "definitions": kernel.definitions,
    }
