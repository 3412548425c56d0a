"""The tables of `parse --contents` and `parse --check`: what a binary report holds, and what NVIDIA's package reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_parsers.ncu_rep.contents import Contents, contents_of
from ncu_parsers.ncu_rep.package_check import Checked, check
from ncu_parsers.parse.file_kinds import is_binary_report
from ncu_parsers.report_data.report import shortened
from ncu_parsers.schema.instance_table import ADDRESS, NUMBER, OPCODE, TIME
from ncu_parsers.sources.sources import Source

from ncu_tools.numbers.number_format import counted
from ncu_tools.report.columns.registry import column, columns
from ncu_tools.report.table import Table

CONTENTS = columns("what count launches which")
CHECK = (column("report", wide=True), *columns("launch_id what here package why"))
KINDS = {
    "instructions with values": ADDRESS,
    "opcodes with counts": OPCODE,
    "samples over time": TIME,
    "units and points of curves": NUMBER,
}
"""Lines on instances, and their kind."""
NAMED = 4
"""The most names that a line of text has."""
DIFFERENCES_SHOWN = 40


def require_binary(source: Source) -> None:
    """Raise `NcuBenchError` for a report that is not binary."""
    if not is_binary_report(source):
        raise NcuBenchError(
            f"{source.name} is no binary report of ncu.",
            advice="Name a .ncu-rep; what a page in text holds, ncu-bench parse says when it reads it.",
        )


def contents_table(source: Source, output_format: str) -> Table:
    """What one binary report holds. Raises `NcuBenchError` if it cannot be read."""
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
    """Ten lines: what it is, how many, how many launches have it, and words on it, with `most` names at most."""
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


def check_table(sources: list[Source], output_format: str) -> tuple[Table, int]:
    """What differs between what is read here and by NVIDIA's package, and how much of it is not explained.

    Raises `NcuBenchError` if a report cannot be read, or if the package is missing or too old.
    """
    rows: list[dict[str, Any]] = []
    notes, unexplained = [], 0
    for source in sources:
        require_binary(source)
        checked = check(source)
        rows += [_row(source, difference) for difference in checked.differences]
        unknown = sum(not difference.why for difference in checked.differences)
        unexplained += unknown
        notes.append(_summary(source, checked, unknown))
    rows.sort(key=lambda row: row["why"] is not None)
    shown = rows[:DIFFERENCES_SHOWN] if output_format == "text" else rows
    if len(shown) < len(rows):
        notes.append(f"{len(rows) - len(shown)} more differences; --format json shows all of them")
    return Table("check", CHECK, shown, notes, {"unexplained": unexplained}), unexplained


def _row(source: Source, difference: Any) -> dict[str, Any]:
    here, there = (None if value is None else str(value) for value in (difference.here, difference.there))
    return {
        "report": source.name, "launch_id": difference.launch_id, "what": difference.what, "here": here,
        "package": there, "why": difference.why or None,
    }  # fmt: skip


def _summary(source: Source, checked: Checked, unknown: int) -> str:
    explained = len(checked.differences) - unknown
    told = (
        f"{source.name}: {checked.agreeing:,} values of {counted(checked.launches, 'launch', 'launches')} agree with "
    )
    told += f"ncu_report {checked.version}"
    told += f", {explained} differ for a known reason" if explained else ""
    return told + (f", {unknown} differ and it is not known why" if unknown else "")
