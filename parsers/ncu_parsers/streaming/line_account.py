"""What each line of a streamed report was, and which pages the report has."""

from __future__ import annotations

from collections import deque

from ncu_parsers.detect.text_reader import TextReading, before_any_page, open_page
from ncu_parsers.ncu.csv_pages import LongPage, WidePage
from ncu_parsers.report_data import report as kinds
from ncu_parsers.report_data.report import Report
from ncu_parsers.streaming.cells.rows import NotStreamed


class LineAccount:
    """Counts the lines of a report by what they were; `number` is that of the line looked at last."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.reading = TextReading(report, [], deque(maxlen=50))
        self.number = 0
        self.replaced = 0
        self.is_complete = True

    def text(self, line: bytes) -> str:
        """The next line as text, without its line end; `is_complete` says whether it had one."""
        self.number += 1
        self.is_complete = line.endswith(b"\n")
        text = line.decode("utf-8", "replace")
        if "\ufffd" in text:
            self.replaced += 1
        return text.removesuffix("\n").rstrip("\r")

    def opened_by(self, text: str) -> LongPage | WidePage | None:
        """The page that a line opens. Raises `NotStreamed` for pages that are not streamed."""
        page = open_page(text, self.reading.current)
        if page is None:
            return None
        if not isinstance(page, LongPage | WidePage):
            raise NotStreamed(f"it holds a {page.dialect.removesuffix(' page')} page")
        self.reading.pages.append(page)
        self.note(kinds.HEADER, text)
        return page

    def note(self, kind: str, text: str) -> None:
        """Count a line under what it was."""
        self.reading.note(kind, self.number, text)

    def judge(self, page: LongPage | WidePage | None, text: str) -> tuple[str, list[str]]:
        """Count a line that opens no page; what it was, and the cells of a row."""
        kind, cells = (before_any_page(text), []) if page is None else page.judge(text)
        self.note(kind, text)
        return kind, cells

    def count_rows(self, metrics: int, rules: int) -> None:
        """Count rows that were not looked at one by one."""
        self.number += metrics + rules
        self.is_complete = True
        if metrics:
            self.report.lines[kinds.METRICS] += metrics
        if rules:
            self.report.lines[kinds.RULE] += rules
