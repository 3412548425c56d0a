"""Pages of ncu without launches: the session page, whose attributes are kept, and the source page."""

from __future__ import annotations

import re

from ncu_parsers.report_data import report
from ncu_parsers.report_data.cell_text import split_row
from ncu_parsers.report_data.report import Launch, Page

opens_session_page = re.compile(r"""(?x)\s*(?:
    (?:Launch\ Settings|Session\ Info|Processes|Device\ Attributes)\s*\Z
    | "(?:Launch|Session)\ Attribute","Value" | "Process\ Id","Process\ Name" | "Device\ Attribute","Device\ \s*\S
    )""").match
"""Whether a line is the title or CSV header of a table of `--page session`."""

may_open_source_page = re.compile('"(?:Kernel Name"|File Path"|Address",|#","Address"|Line No","Source")').match
"""Whether a line begins like a table of `--page source --csv`."""
_VERSION_IN_PATH = r"nsight-compute/(\d{4}\.\d+\.\d+)"


def opens_source_page(line: str) -> bool:
    """Whether `line` begins a table of `--page source --csv`: it names a kernel or file, or has the title "Source"."""
    cells = split_row(line.rstrip(), ",") if may_open_source_page(line) else None
    return cells is not None and (len(cells) == 2 or "Source" in cells)


def open_source_page(line: str, current: Page | None) -> Page | None:
    """The source page that `line` begins or goes on with; None if it begins no table of a source page."""
    if not opens_source_page(line):
        return None
    return current if isinstance(current, SourcePage) else SourcePage()


def open_session_page(line: str, current: Page | None) -> Page:
    """The current session page, or a new one that `line` opens."""
    if isinstance(current, SessionPage):
        return current
    session = SessionPage()
    session.feed(line)
    return session


class SessionPage:
    """Tables with `attributes` of the session and its devices, by title, such as "Device 0: display_name"."""

    dialect = "session page"

    def __init__(self) -> None:
        self.attributes: dict[str, str] = {}
        self._devices: list[str] = []
        self._second_column = 0

    def launches(self) -> list[Launch]:
        """Always []."""
        return []

    def feed(self, line: str) -> str:
        """Take in one line: an attribute, a table's title or header, or something else."""
        stripped = line.strip()
        if not stripped:
            self._second_column = 0
            return report.BLANK
        if opens_session_page(stripped):
            header = split_row(stripped, ",") or []
            self._devices = header[1:] if header and header[0] == "Device Attribute" else []
            return report.HEADER
        if stripped.startswith("---"):
            self._second_column = stripped.find(" -") + 1
            return report.UNITS
        cells = split_row(stripped, ",") if stripped.startswith('"') else self._text_cells(line)
        if cells is None or len(cells) < 2:
            return report.MESSAGE if stripped.startswith("==") else report.OUTPUT
        if cells[0].endswith(("Attribute", "Process Id")):
            self._devices = cells[1:] if cells[0] == "Device Attribute" else []
            return report.HEADER
        if self._devices:
            for device, value in zip(self._devices, cells[1:], strict=False):
                self.attributes[f"{device}: {cells[0]}"] = value
        else:
            self.attributes[cells[0]] = cells[1]
        return report.SESSION

    def _text_cells(self, line: str) -> list[str] | None:
        """The two columns of a row of plain text, as wide as the dashes above them; None without dashes."""
        if not self._second_column or line.startswith("=="):
            return None
        return [line[: self._second_column].strip(), line[self._second_column :].strip()]

    @property
    def tool_version(self) -> str | None:
        """The version of ncu that made the session, such as "2024.1.1"; None if no attribute has it."""
        for title in ("Nsight Compute Target", "Nsight Compute", "Profiler Command Line"):
            value = self.attributes.get(title, "")
            match = re.search(_VERSION_IN_PATH, value) or re.match(r"(\d{4}\.\d+(?:\.\d+)*)", value)
            if match:
                return match[1]
        return None


class SourcePage:
    """SASS or source lines with counters per instruction; recognised, but not read here."""

    dialect = "source page"

    def launches(self) -> list[Launch]:
        """Always []."""
        return []

    def feed(self, line: str) -> str:
        """Skip one line."""
        return report.SOURCE if line.strip() else report.BLANK
