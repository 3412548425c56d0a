"""The table of `parse --contents`: the contents of a binary report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_parsers.ncu_rep.contents import Contents, contents_of
from ncu_parsers.parse.file_kinds import is_binary_report
from ncu_parsers.report_data.report import shortened
from ncu_parsers.schema.instance_table import ADDRESS, NUMBER, OPCODE, TIME
from ncu_parsers.sources.sources import Source

from ncu_tools.numbers.number_format import counted
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

CONTENTS = columns("what count launches which")
KINDS = {
    "instructions with values": ADDRESS,
    "opcodes with counts": OPCODE,
    "samples over time": TIME,
    "units and points of curves": NUMBER,
}
"""Lines on instances, and their kind."""
NAMED = 4
"""The most names that a line of text has."""


def require_binary(source: Source) -> None:
    """Raise `NcuBenchError` for a report that is not binary."""
    if not is_binary_report(source):
        raise NcuBenchError(
            f"{source.name} is no binary report of ncu.",
            advice="Name a .ncu-rep file; for a page in text, ncu-bench parse says what it read.",
        )


def contents_table(source: Source, output_format: str) -> Table:
    """The contents of one binary report. Raises `NcuBenchError` if it cannot be read."""
    require_binary(source)
    found = contents_of(source)
    rows = [
        {"what": what, "count": count, "launches": launches, "which": "; ".join(words) or None}
        for what, count, launches, words in _lines(found, NAMED if output_format in ("text", "markdown") else None)
    ]
    extra = {
        "report": found.report, "tool_version": found.tool_version, "session": found.session,
        "instances": _of_kinds(found),
        "rules": {rule: sorted(found.focus.get(rule, ())) for rule in found.rules.names},
    }  # fmt: skip
    return Table("contents", CONTENTS, rows, found.losses, extra)


def _lines(found: Contents, most: int | None) -> Iterator[tuple[str, int, int | None, list[str]]]:
    """Ten lines: title, count, number of launches with it, and words on it, with `most` names at most."""
    version = [f"ncu {found.tool_version}"] if found.tool_version else []
    parts = (
        (len(found.kernels), "kernel", "kernels"),
        (found.ranges, "range", "ranges"),
        (found.graphs, "graph", "graphs"),
    )
    profiled = [counted(*part) for part in parts if part[0]]
    yield "launches", found.launches, None, [*profiled, *found.processes, *found.devices, *version]
    yield "metrics", len(found.metrics), None, []
    sets = [f"sets {', '.join(found.sets)}"] if found.sets else []
    sections = found.sections
    yield "sections", len(sections.names), sections.launches, [*sets, *_names(sections.names, most)]
    speedups = [f"{found.speedups} estimates of a speedup"] if found.speedups else []
    rules = found.rules
    yield "rules that say something", len(rules.names), rules.launches, [*speedups, *_names(rules.names, most)]
    yield "NVTX ranges", found.nvtx.most, found.nvtx.launches, []
    for what, kind in KINDS.items():
        held = found.instances[kind]
        metrics = [counted(len(held.names), "metric", "metrics")] if held.names else []
        yield what, held.most, held.launches, metrics
    yield "cubins", found.cubins, None, [*_code(found), *_names(found.source_files, most)]


def _code(found: Contents) -> list[str]:
    words = [f"{found.cubin_bytes / 1000:,.0f} kB", *sorted(found.architectures)] if found.cubins else []
    words += [f"{found.with_lines} with lines of source"] if found.with_lines else []
    words += [f"{found.with_ptx} with PTX"] if found.with_ptx else []
    count = len(found.source_files)
    return [*words, *([counted(count, "source file", "source files")] if count else [])]


def _names(names: Iterable[str], most: int | None) -> list[str]:
    named = list(names)
    return [shortened(named, len(named) if most is None else most)] if named else []


def _of_kinds(found: Contents) -> dict[str, Any]:
    return {
        kind: {"launches": held.launches, "most": held.most, "metrics": sorted(held.names)}
        for kind, held in found.instances.items()
    }
