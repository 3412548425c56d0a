"""The inside of kernels as plain values for the HTML report: lines, instructions, stalls, counters over time.

It includes as many kernels and instructions as keep the page small; notes list omissions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ncu_parsers.ncu_rep.instructions.time_series import TimeSeries
from ncu_parsers.schema.tables import Floats, table_metadata, words

from ncu_tools.kernels.grouping import rows_of
from ncu_tools.kernels.kernel_row import row_key
from ncu_tools.kernels.source.dependencies import flow_of, live_registers
from ncu_tools.kernels.source.hot_places import LINES, MEASURE_OF, SASS, HotPlace, hottest
from ncu_tools.kernels.source.inside_of_run import Inside
from ncu_tools.kernels.source.kernel_code import KernelCode, kernel_code
from ncu_tools.kernels.source.source_text import SourceText
from ncu_tools.kernels.source.spread.over_time import counter_over_time, means_over_time
from ncu_tools.kernels.source.stalls import ISSUED, REASONS, stall_counts, stalls
from ncu_tools.report.html.html_page import embedded

INSIDE_LETTERS = 400_000
"""Most characters of JSON that the insides of all kernels take on a page."""
MOST_INSTRUCTIONS, LEAST_INSTRUCTIONS = 3_000, 50
"""Most instructions of a kernel, and the fewest worth showing if there is little room left."""
MOST_LINES = 1_500
EXPLAINED = 20
"""Instructions of a kernel for which the page shows the awaited instruction."""
CONTEXT = 3
"""Lines shown before and after a line with instructions."""
LONGEST_TEXT = 200
POINTS_OVER_TIME = 120

COUNTS = ("executed", "sectors", "sectors_ideal", "shared_wavefronts", "shared_wavefronts_ideal")
LINE_FIELDS = ("file", "line", "text", "weight", "stalls", "instructions", *COUNTS)
INSTRUCTION_FIELDS = ("offset", "text", "line", "weight", "stalls", "live", *COUNTS)
_COUNT_COLUMNS = ("inst_executed", "l2_sectors", "l2_sectors_ideal", "shared_wavefronts", "shared_wavefronts_ideal")

Row = list[Any]
Launch = tuple[str, int | None]


@dataclass(frozen=True)
class _Launches:
    """The launches of one kernel of the page: their reports and numbers, and the full names of their kernels."""

    named: frozenset[Launch]
    kernels: frozenset[str]


@dataclass
class InsideContent:
    """Inside of kernels by their row in the page's table of kernels, and notes on omissions."""

    kernels: dict[int, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def as_values(self) -> dict[str, Any]:
        """The content for JSON: stalls with their meaning, the order of values in rows, and the kernels."""
        reasons = [stalls()[reason] for reason in (*REASONS, ISSUED)]
        return {
            "stalls": [
                {"name": one.reason, "title": one.title, "meaning": one.meaning, "advice": one.advice}
                for one in reasons
            ],
            "line_fields": LINE_FIELDS,
            "instruction_fields": INSTRUCTION_FIELDS,
            "kernels": {str(number): one for number, one in self.kernels.items()},
            "notes": list(dict.fromkeys(self.notes)),
        }


def inside_content(
    insides: Sequence[tuple[str, pa.Table, Inside, SourceText]],
    rows: Sequence[Mapping[str, Any]],
    group: str,
    room: int,
) -> InsideContent:
    """The inside of the page's kernels (`rows` with run, kernel and device), hottest first, in `room` characters of
    JSON.

    Each run is its label, its launches, its inside and the text of its source lines.
    """
    result = InsideContent()
    runs = {label: _RunInside(launches, inside, text, group) for label, launches, inside, text in insides}
    for number, row in enumerate(rows):
        run = runs.get(row["run"])
        made = run.kernel(row_key(row["kernel"], row["device"]), room) if run is not None else None
        if made is None:
            continue
        room -= len(embedded(made))
        if room < 0:
            result.notes.append("the inside of more kernels is known than there is room for; ncu-bench source shows it")
            break
        result.kernels[number] = made
    return result


class _RunInside:
    """The inside of one run's kernels."""

    def __init__(self, launches: pa.Table, inside: Inside, text: SourceText, group: str) -> None:
        self._inside, self._text = inside, text
        self._launches = _launches_by_title(launches, group)
        self._reports = _reports_with_launches(launches)
        self._numbers, self._of_instructions = _launches_of(inside)

    def kernel(self, title: str, room: int) -> dict[str, Any] | None:
        """The inside of a kernel in at most about `room` characters; None if nothing is known."""
        wanted = self._launches.get(title)
        if wanted is None:
            return None
        code, over_time = self._code(wanted), self._over_time(wanted)
        if code is None and not over_time:
            return None
        found: dict[str, Any] = {"over_time": over_time, "lines": [], "instructions": [], "files": [], "notes": []}
        if code is not None:
            most = MOST_INSTRUCTIONS
            found |= _code_content(code, self._text, most)
            while (letters := len(embedded(found))) > room and most >= LEAST_INSTRUCTIONS:
                most = min(most // 2, int(most * room / letters))
                found |= _code_content(code, self._text, most)
            found["notes"] = [*self._notes(code), *found["notes"]]
        return found

    def _code(self, wanted: _Launches) -> KernelCode | None:
        loaded = self._inside.instructions
        if loaded is None:
            return None
        numbers = [
            number
            for number, (report, launch, kernel) in enumerate(self._of_instructions)
            if kernel in wanted.kernels and self._belongs(report, launch, kernel, wanted)
        ]
        if not numbers:
            return None
        return kernel_code(loaded.table.filter(pa.array(np.isin(self._numbers, numbers))))

    def _notes(self, code: KernelCode) -> list[str]:
        """A note if launches of a source page are shown, which a selection of launches does not affect."""
        if set(words(code.table, "report")) <= self._reports:
            return []
        return ["from a source page, which numbers launches anew: all launches of this kernel on it"]

    def _belongs(self, report: str, launch: int, kernel: str, wanted: _Launches) -> bool:
        """True if a launch with instructions is one of a kernel: by its number, or on a source page by its name.

        Pages number launches anew, so the name decides, if only one kernel of the page has it.
        """
        if report in self._reports:
            return (report, launch) in wanted.named
        return sum(kernel in one.kernels for one in self._launches.values()) == 1

    def _over_time(self, wanted: _Launches) -> list[dict[str, Any]]:
        """The counters over time of the kernel's longest launch with counters."""
        numbers = {number for _, number in wanted.named}
        found = [one for one in self._inside.series if one.launch_id in numbers and one.kernel_name in wanted.kernels]
        if not found:
            return []
        longest = max(found, key=lambda one: one.duration_ns).launch_id
        result = []
        for series in found:
            if series.launch_id != longest or not series.duration_ns:
                continue
            counter = counter_over_time(series)
            times, values = _thinned(series)
            names = ("title", "metric", "unit", "mean", "peak", "ramp_up_ns", "tail_ns", "duration_ns")
            result.append({
                **{name: getattr(counter, name) for name in names}, "launch": longest,
                "times": [_short(round(time)) for time in times.tolist()],
                "values": [_short(value) for value in values.tolist()],
            })  # fmt: skip
        return result


def _thinned(series: TimeSeries) -> tuple[Floats, Floats]:
    """Times in ns and values of a counter as sampled; above `POINTS_OVER_TIME` samples, means over equal intervals."""
    if len(series.values) <= POINTS_OVER_TIME:
        return series.times_ns, series.values
    means = means_over_time(series.times_ns, series.values, series.duration_ns, POINTS_OVER_TIME)
    middles = (np.arange(POINTS_OVER_TIME) + 0.5) / POINTS_OVER_TIME * series.duration_ns
    known = ~np.isnan(means)
    return middles[known], means[known]


def _reports_with_launches(launches: pa.Table) -> set[str | None]:
    """The reports of a run's launches, including reports whose launches a selection left out."""
    told = (one.get("report") for one in table_metadata(launches).get("reports", ()) if one.get("launches"))
    return {*told, *words(launches, "report")}


def _launches_by_title(launches: pa.Table, group: str) -> dict[str, _Launches]:
    numbers, titles = rows_of(launches, group)
    ids, kernels = launches["launch_id"].to_pylist(), words(launches, "kernel_name")
    named: dict[int, set[Launch]] = {}
    names: dict[int, set[str]] = {}
    for number, report, launch, kernel in zip(numbers.tolist(), words(launches, "report"), ids, kernels, strict=True):
        named.setdefault(number, set()).add((report or "", launch))
        names.setdefault(number, set()).add(kernel or "")
    return {titles[number]: _Launches(frozenset(named[number]), frozenset(names[number])) for number in named}


def _launches_of(inside: Inside) -> tuple[npt.NDArray[np.int64], list[tuple[str, int, str]]]:
    """Index of each instruction's launch (int64), and report, launch and kernel of each index."""
    if inside.instructions is None:
        return np.empty(0, np.int64), []
    known: dict[tuple[str, int, str], int] = {}
    table = inside.instructions.table
    keys = zip(
        words(table, "report"), table["launch_id"].to_pylist(), words(table, "kernel_name"), strict=True,
    )  # fmt: skip
    numbers = [known.setdefault((report or "", launch, name or ""), len(known)) for report, launch, name in keys]
    return np.array(numbers, np.int64), list(known)


# ------------------------------------------------------------------------------------------------------- one kernel


def _code_content(code: KernelCode, text: SourceText, most: int) -> dict[str, Any]:
    """Lines and the `most` hottest instructions of a kernel, with notes on their origin."""
    by = next((name for name in ("samples", "executed") if code.total(MEASURE_OF[name])), "samples")
    weights = np.nan_to_num(code.counts(MEASURE_OF[by]))
    places = np.array([offset is not None for offset in code.table["offset"].to_pylist()], bool)
    lines, of_lines = hottest(code, LINES, by, min(MOST_LINES, most)) if code.has_lines else ([], 0)
    files = list(dict.fromkeys(line.file or "?" for line in lines))
    counts = _stalls_with_issued(code)
    shown = np.sort(np.argsort(np.where(places, -weights, np.inf), kind="stable")[: min(most, int(places.sum()))])
    notes = []
    if code.launches > 1:
        notes.append(f"sums over {code.launches} launches")
    if code.of_kernels > 1:
        notes.append(f"of {code.of_kernels} kernels here, the one with the most {by}: {code.kernel_name}")
    if len(shown) < places.sum():
        notes.append(f"the {len(shown):,} hottest of {int(places.sum()):,} instructions; ncu-bench source shows all")
    if len(lines) < of_lines:
        notes.append(f"the {len(lines):,} hottest of {of_lines:,} lines; ncu-bench source shows all")
    if not code.has_text and places.any():
        notes.append("the text of instructions is not known: the extra ncu-rep reads it, or export the source page")
    if not code.has_lines:
        notes.append("no instruction is known to come from a source line: compile with -lineinfo")
    elif not any(file in text.lines for file in files):
        notes.append("the text of lines is not known: ncu --import-source yes keeps it, --source-root DIR finds it")
    return {
        "by": by,
        "total": float(weights.sum()) or None,
        "launches": code.launches,
        "files": files,
        "lines": _lines(code, lines, files, text, counts, by),
        "instructions": _instructions(code, shown, weights, counts, files),
        "waits": _waits(code, by),
        "stalls": _sparse(counts.sum(axis=0)),
        "notes": [*notes, *text.notes],
    }


def _stalls_with_issued(code: KernelCode) -> Floats:
    """Samples by reason and of warps that issued, float64, instructions x (`REASONS` and issued)."""
    return np.column_stack([stall_counts(code), np.nan_to_num(code.counts(f"stall_{ISSUED}"))])


def _lines(
    code: KernelCode, lines: Sequence[HotPlace], files: list[str], text: SourceText, counts: Floats, by: str
) -> list[Row]:
    """Rows of `LINE_FIELDS` by file and line, with the lines around lines with instructions, if known."""
    of_place: dict[tuple[str, int], list[int]] = {}
    for place, key in enumerate(zip(code.table["file"].to_pylist(), code.table["line"].to_pylist(), strict=True)):
        of_place.setdefault((key[0] or "?", key[1]), []).append(place)
    rows: dict[tuple[int, int], Row] = {}
    for one in lines:
        file, line = one.file or "?", one.line or 0
        summed = _sparse(counts[of_place[file, line]].sum(axis=0))
        weight = one.samples if by == "samples" else one.executed
        rows[files.index(file), line] = [
            files.index(file), line, _text(text, file, line), weight, summed, one.instructions,
            *(getattr(one, name) for name in COUNTS),
        ]  # fmt: skip
        for near in range(max(line - CONTEXT, 1), line + CONTEXT + 1):
            found = _text(text, file, near)
            if found is not None and (files.index(file), near) not in rows and (file, near) not in of_place:
                rows[files.index(file), near] = [files.index(file), near, found, *[None] * (len(LINE_FIELDS) - 3)]
    return [rows[place] for place in sorted(rows)]


def _text(text: SourceText, file: str, line: int) -> str | None:
    """A source line with its indentation, cut if very long; None if unknown."""
    if text.of(file, line) is None:
        return None
    found = text.lines[file][line - 1].expandtabs(4).rstrip()
    return found if len(found) <= LONGEST_TEXT else found[: LONGEST_TEXT - 1] + "…"


def _instructions(
    code: KernelCode, shown: npt.NDArray[np.int64], weights: Floats, counts: Floats, files: list[str]
) -> list[Row]:
    """Rows of `INSTRUCTION_FIELDS` in program order; a line is its file's index and its number."""
    names = {name: code.table[name].to_pylist() for name in ("offset", "sass", "opcode", "file", "line")}
    flow = flow_of(code) if len(code.table) <= MOST_INSTRUCTIONS else None
    live = live_registers(flow) if flow is not None else None
    columns = [code.counts(name) for name in _COUNT_COLUMNS]
    number = {file: place for place, file in enumerate(files)}
    rows = []
    for place in shown.tolist():
        file, line = names["file"][place] or "?", names["line"][place]
        rows.append([
            names["offset"][place], _spaced(names["sass"][place]),
            None if line is None or file not in number else [number[file], line], _short(weights[place]),
            _sparse(counts[place]), None if live is None else live[place], *(_short(one[place]) for one in columns),
        ])  # fmt: skip
    return rows


def _spaced(sass: str | None) -> str | None:
    return None if sass is None else re.sub(r"\s+", " ", sass).strip()[:LONGEST_TEXT]


def _waits(code: KernelCode, by: str) -> dict[str, str]:
    """What the hottest instructions wait for, by their offset."""
    if not code.has_text or len(code.table) > MOST_INSTRUCTIONS:
        return {}
    rows, _ = hottest(code, SASS, by, EXPLAINED)
    return {str(one.offset): one.waits_for for one in rows if one.waits_for}


def _sparse(counts: Floats) -> list[int]:
    """Alternating index of a reason and its samples, for reasons with samples."""
    return [value for reason, count in enumerate(counts.tolist()) if count for value in (reason, round(count))]


def _short(value: float) -> float | None:
    """A number of six digits, an integer if possible; None for NaN."""
    if not math.isfinite(value):
        return None
    return int(value) if float(value).is_integer() else float(f"{value:.6g}")
