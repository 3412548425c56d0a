"""The plain text tables that ncu prints when no --csv was given: details, raw and summary pages of any version.

A kernel line opens a launch; below it, tables are fenced by lines of dashes whose runs are the columns. The layout
changed over the years (2020 left out the title row, summaries were left-aligned), the dashes did not.

Such pages are pasted into notes and issues: with other or no indentation, quoted, numbered, with long kernel lines
broken in two and remarks after values. A missed kernel line would give its launch's values to the previous launch.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from functools import lru_cache

from ncu_parsers.ncu.csv_pages import read_summary
from ncu_parsers.ncu.text_rules import BETWEEN_RULES, TextRules
from ncu_parsers.report_data import report
from ncu_parsers.report_data.cell_text import is_unit, triple, whole
from ncu_parsers.report_data.report import Launch, Page

_PROCESS = r"^\[(?P<pid>\d+)\] (?P<name>.*)@(?P<host>\S+)\s*$"
_KERNEL = r"""(?x)
        ^(?P<indent>\s*)(?:\[\s+)?
        (?P<name>[^\s",[].*?)(?=\s\(\d|,\s[\dA-Z]|\s*$)  # most characters of a name end here, and try nothing below
        (?:\s\((?P<grid>\d+,\s*\d+,\s*\d+)\)x\((?P<block>\d+,\s*\d+,\s*\d+)\))?
        (?:,\s(?P<time>\d{4}-\w{3}-\d{2}\s[\d:]+))?
        (?:,\sBlock\sSize\s(?P<threads>\d+),\sGrid\sSize\s(?P<blocks>\d+))?
        (?:,\sContext\s(?P<context>\d+))?
        (?:,\sStream\s(?P<stream>\S+?))?
        (?:,\sDevice\s(?P<device>\d+))?
        (?:,\sCC\s(?P<cc>\d+\.\d+))?
        (?:,\sInvocations\s(?P<invocations>\d+)|,\s(?P<old_invocations>\d+)\sinvocations)?
        \s*$"""
_DEVICE = r"^\s{2}Device (?P<device>\d+)(?:, CC (?P<cc>\d+\.\d+))?\s*$"
_DASHES = re.compile(r"\s*-{3,}(?: -{3,})+\s*$|\s+-{40,}\s*$")
_SECTION = re.compile(r"(?P<indent>\s*)Section: (?P<section>.+?)\s*$")
_WARNING = re.compile(r"\s+Warning: \S")
_NUMBER_LAST = re.compile(r".*\S\s+(?:[-+]?\d[\d.,]*(?:e[-+]?\d+)?|n/a)\s*$")
_WITHOUT_DASHES = re.compile(r"\s*(?P<name>\S+(?: \S+)*)(?:\s{2,}(?P<unit>\S+))?\s{2,}(?P<value>\S+)\s*$")
"""A row of a table without lines of dashes, with two or more spaces between cells."""
_ONE_SPACE_APART = re.compile(r"\s*(?P<name>\S+(?: \S+)*) (?P<unit>\S+) (?P<value>\S+)\s*$")
"""A row with single spaces between cells; it counts as a row only if its unit is known."""


_KERNEL_MARKS = (", Context ", ", Device ", ", Invocations ", " invocations")
_END_OF_A_KERNEL_LINE = re.compile(
    r"(?:Context \d+|Stream \S+|Device \d+|CC \d+\.\d+|Grid Size \d+|nvocations(?: \d+)?)\s*$"
)
_TORN = re.compile(r"\(?\d+, |(?:Context|Stream|Device|CC) \S+$")
_PARTS_OF_A_LINE = 24
"""Most lines that a kernel line may be broken into: template names have thousands of characters."""


def open_text_page(line: str, current: Page | None) -> Page | None:
    """The text page that the kernel line `line` belongs to; None if it is no kernel line."""
    if _kernel(line) is None:
        return None
    return current if isinstance(current, TextPage) else TextPage()


def _kernel(line: str) -> re.Match[str] | None:
    """The parts of a kernel line; without a stream it must be indented by two to four spaces, as ncu writes it."""
    if not any(mark in line for mark in _KERNEL_MARKS):
        return None
    match = re.match(_KERNEL, line)
    if match is None or (match["context"] and match["stream"]):
        return match
    marks = ("context", "device", "invocations", "old_invocations")
    return match if 2 <= len(match["indent"]) <= 4 and any(match[mark] for mark in marks) else None


def _mended(above: Sequence[str], line: str) -> re.Match[str] | None:
    """The kernel line that ends in `line`, joined with lines `above` if it was broken; None if none ends here."""
    match = _kernel(line)
    if match is not None and not _is_torn(match["name"]):
        return match
    whole_line = line
    for part in reversed(above):
        whole_line = f"{part.rstrip()} {whole_line.lstrip()}" if whole_line[:1].isspace() else part + whole_line
        mended = re.match(_KERNEL, whole_line) if ", Context " in whole_line else None
        if mended is not None and mended["stream"] and not _is_torn(mended["name"]):
            return mended
    return match


def _is_torn(name: str) -> bool:
    """True if a kernel name is incomplete: the end of a name, or text that follows the name in its line."""
    closed = name.count(">") - name.count("->")
    return (
        name.count(")") > name.count("(")
        or (closed > name.count("<") and "operator" not in name)
        or _TORN.match(name) is not None
    )


@lru_cache(maxsize=256)  # ncu repeats the tables of its sections in every launch
def _columns_below(fence: str) -> tuple[tuple[slice, ...], int]:
    """Cell positions below a line of dashes (the last up to the line's end), and the width of the last column."""
    runs = [run.span() for run in re.finditer(r"-+", fence)]
    first, last = runs[-1]
    return (*(slice(start, end) for start, end in runs[:-1]), slice(first, None)), last - first


def _is_aligned(line: str, columns: tuple[slice, ...]) -> bool:
    """True if a row has only spaces before its first column and between columns."""
    gaps = [line[: columns[0].start], *(line[column.stop : column.stop + 1] for column in columns[:-1])]
    return not any(gap.strip() for gap in gaps)


def _cells(line: str, columns: tuple[slice, ...], width: int) -> list[str]:
    """The cells of a row, by the columns of its table, or by the gaps if an editor indented the row.

    In a row shifted to the right, the name begins after its column's start, and the end of the unit is in the column of
    the value, with padding between the two. Text after the last column, `width` characters wide, is a remark.
    """
    end = columns[-1].start + width
    cells = [line[column].strip() for column in columns]
    if line[end : end + 1].isspace() and _is_aligned(line, columns):
        cells[-1] = line[columns[-1].start : end].strip()
    is_shifted = line[: columns[0].stop].startswith(" " * (columns[0].start + 1)) and "  " in cells[-1]
    if len(columns) == 1:  # a document shortened the dashes to one line for all columns
        by_gaps = re.split(r"\s{2,}", line.strip())
        return by_gaps if len(by_gaps) == 3 else cells
    if len(cells) != 3 or not cells[0] or not is_shifted:
        return cells
    name, *unit, value = re.split(r"\s{2,}", line.strip())
    return [name, " ".join(unit), value]


class TextPage:
    """All text tables of one file, with the process and device last named above them."""

    dialect = "text"

    def __init__(self) -> None:
        self._launches: list[Launch] = []
        self._summaries: dict[tuple[object, ...], Launch] = {}
        self.process: tuple[int | None, str, str] = (None, "", "")
        self.device: tuple[int | None, str | None] = (None, None)
        self._section = ""
        self._columns: tuple[slice, ...] = ()
        self._titles: list[str] = []
        self._value_width = 0
        self._rules = TextRules()
        self._may_begin_table = False
        self._is_below_title = False
        self._above: deque[str] = deque(maxlen=_PARTS_OF_A_LINE)

    def launches(self) -> list[Launch]:
        """The launches read so far, in file order."""
        self._rules.end()
        return self._launches

    def feed(self, line: str) -> str:
        """Take in one line: a kernel line, a section title, a table line, a metric row, or something else."""
        if not line.strip():
            self._leave_table()
            self._rules.end()
            self._above.clear()
            return report.BLANK
        kind = self._of_a_table(line) or self._of_a_launch(line) or self._of_no_table(line)
        if kind != report.RULE:
            self._rules.end()
        self._may_begin_table = kind in (report.HEADER, report.LAYOUT, report.METRICS)
        if kind in (report.LAYOUT, report.OUTPUT, report.RULE):  # may be a part of a kernel line
            self._above.append(line)
        else:
            self._above.clear()
        return kind

    def _of_a_table(self, line: str) -> str | None:
        """The kind of a line of dashes or of a table row; None for other lines."""
        if "---" in line and self._launches and BETWEEN_RULES.match(line):
            self._leave_table()
            return report.LAYOUT
        if "---" in line and _DASHES.match(line) and (line[0].isspace() or self._may_begin_table):
            return self._fence(line)
        if not self._columns:
            return None
        if line.startswith("  ") or (self._columns[0].start == 0 and _is_aligned(line, self._columns)):
            return self._row(line)
        self._leave_table()
        return None

    def _of_a_launch(self, line: str) -> str | None:
        """The kind of a line that names a kernel, device, section or columns; None for other lines."""
        end = (self._above[-1] if self._above else "")[-40:] + line[-80:]
        if _END_OF_A_KERNEL_LINE.search(end):
            kernel = _mended(self._above, line)
            if kernel is not None:
                self._open_launch(kernel)
                return report.HEADER
        device = re.match(_DEVICE, line)
        if device:
            self.device = (whole(device["device"], bits=31), device["cc"])
            return report.LAYOUT
        section = _SECTION.match(line) if self._launches else None
        if section:
            self._section, self._is_below_title = section["section"], True
            self._rules.open_section(section["indent"], self._section)
            return report.LAYOUT
        if line.split()[:2] == ["Metric", "Name"]:
            self._titles = re.split(r"\s{2,}| (?=Metric|Minimum|Maximum|Average)", line.strip())
            return report.LAYOUT
        return None

    def _of_no_table(self, line: str) -> str:
        """The kind of a line outside tables: a rule's text, a process, a message, program output."""
        if self._launches and self._rules.take(line, self._launches[-1].rules):
            return report.RULE
        if self._launches and _WARNING.match(line):
            return report.MESSAGE
        if self._is_below_title and _NUMBER_LAST.match(line):
            return self._row_without_dashes(line)
        if line.startswith("  "):
            return report.LAYOUT if self._launches and line.startswith("    ") else report.OUTPUT
        self._rules.close_section()
        process = re.match(_PROCESS, line)
        if process:
            self.process = (whole(process["pid"]), process["name"], process["host"])
            self.device = (None, None)
            return report.LAYOUT
        return report.MESSAGE if line.startswith("==") else report.OUTPUT

    def _open_launch(self, match: re.Match[str]) -> None:
        process_id, process, host = self.process
        launch = Launch(
            kernel_name=match["name"],
            process_id=process_id,
            context=whole(match["context"]),
            stream=None if match["stream"] in (None, "n/a") else match["stream"],
            device_id=whole(match["device"], bits=31) if match["device"] else self.device[0],
            compute_capability=match["cc"] or self.device[1],
            grid=triple(match["grid"]),
            block=triple(match["block"]),
            invocations=whole(match["invocations"] or match["old_invocations"]),
        )
        attributes = {"Process Name": process, "Host Name": host, "Kernel Time": match["time"] or ""}
        launch.attributes = {title: text for title, text in attributes.items() if text}
        known = self._summaries.get(launch.identity) if match["old_invocations"] else None
        if known is None:
            self._launches.append(launch)
            self._summaries[launch.identity] = launch
        else:  # summaries up to 2022.3 repeat the kernel line above every section
            self._launches.remove(known)
            self._launches.append(known)
        self._section, self._is_below_title = "", False
        self._rules.close_section()
        self._leave_table()

    def _fence(self, line: str) -> str:
        """Take in a line of dashes: it opens a table, separates titles from rows, or closes the table."""
        self._is_below_title = False
        if self._columns and self._titles:
            self._leave_table()
        else:
            self._columns, self._value_width = _columns_below(line)
        return report.LAYOUT

    def _leave_table(self) -> None:
        self._columns = ()
        self._titles = []

    def _row(self, line: str) -> str:
        cells = _cells(line, self._columns, self._value_width)
        if cells[0] == "Metric Name":
            self._titles = []  # else _fence mistakes the dashes below the titles for the end of the table
            return report.LAYOUT
        if not self._launches or len(cells) not in (3, 5):
            return report.OUTPUT
        if not cells[0]:
            return self._continued(cells) if not cells[1] else report.UNLABELLED
        self._titles = ["rows"]
        launch = self._launches[-1]
        if len(cells) == 5:
            read_summary(
                launch,
                cells[0],
                cells[1],
                self._section,
                dict(zip(("Minimum", "Maximum", "Average"), cells[2:], strict=True)),
            )
        else:
            launch.read(cells[0], cells[2], cells[1], self._section)
        return report.METRICS

    def _row_without_dashes(self, line: str) -> str:
        """Read a row below a section title without a line of dashes that marks the columns."""
        row = _WITHOUT_DASHES.match(line) or _ONE_SPACE_APART.match(line)
        if row is None or (row.re is _ONE_SPACE_APART and not is_unit(row["unit"])):
            return report.BROKEN
        self._launches[-1].read(row["name"], row["value"], row["unit"] or "", self._section)
        return report.METRICS

    def _continued(self, cells: list[str]) -> str:
        """Append a value's continuation from the next line; if the last piece filled the column, a word was cut."""
        readings = self._launches[-1].readings
        if len(cells) != 3 or not cells[2] or not readings:
            return report.OUTPUT
        name = next(reversed(readings))
        last = readings[name][-1]
        glue = "" if len(last.text) >= self._value_width else " "
        readings[name][-1] = last._replace(text=last.text + glue + cells[2])
        return report.METRICS
