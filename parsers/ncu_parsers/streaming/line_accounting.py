"""The lines of a big report one after another: what each was, and the reader of the page that they belong to."""

from __future__ import annotations

import codecs
import io
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, Protocol, cast

from ncu_parsers.detect.text_reader import TextReading, before_any_page, open_page
from ncu_parsers.ncu.csv_pages import LongPage, WidePage
from ncu_parsers.report_data import report as kinds
from ncu_parsers.report_data.report import Page, Report
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import encoding_of

BUFFER_BYTES = 1 << 18
LINE_BYTES = 1 << 13
"""Few lines are longer."""
BYTES_BETWEEN_CHECKS = 1 << 22
"""Of memory: asking for it takes some time."""

IDENTITY_TITLES = frozenset({
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream", "Block Size",
    "Grid Size", "Device", "CC",
})  # fmt: skip
"""Identity columns that `columns.py` knows; a page with another one is for the plain reader."""


class NotCertain(Exception):
    """What the plain reader would make of a file cannot be known before its end; the message says why."""


def may_open_a_page(text: bytes) -> bool:
    """Whether a line with this text may be a header."""
    return b"Kernel Name" in text or b"Function Name" in text


class LineAccount:
    """The account of a report's lines, with the pages that they opened; `number` is that of the latest line."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.reading = TextReading(report, [], deque(maxlen=50))
        self.number = 0
        self.replaced = 0

    def text(self, line: bytes) -> str:
        """The next line as text, without its line end."""
        self.number += 1
        text = line.decode("utf-8", "replace")
        if "\ufffd" in text:
            self.replaced += 1
        return text.removesuffix("\n").rstrip("\r")

    def opened_by(self, text: str) -> Page | None:
        """The page that a line opens, which is the current one from then on."""
        page = open_page(text, self.reading.current)
        if page is not None:
            if not isinstance(page, LongPage | WidePage):
                raise NotCertain(f"it holds a {page.dialect}")
            self.reading.pages.append(page)
            self.reading.note(kinds.HEADER, self.number, text)
        return page

    def note(self, kind: str, text: str) -> None:
        """Account for a line that was looked at."""
        self.reading.note(kind, self.number, text)


class PageReader(Protocol):
    """What reads a report from its first page on."""

    def read(self, stream: io.BufferedIOBase) -> bool:
        """Read all that follows; whether the last line was complete."""


def read_lines(account: LineAccount, stream: BinaryIO, reader_of: Callable[[LongPage | WidePage], PageReader]) -> bool:
    """Read a report with the reader of its first page; whether the last line was complete.

    Raises `NotCertain` for a file that is for the plain reader.
    """
    lines: io.BufferedReader[io.RawIOBase] = io.BufferedReader(_Held(stream, account.report.source), BUFFER_BYTES)
    encoding = encoding_of(lines.peek(4096)[:4096])
    if encoding not in ("utf-8", "utf-8-sig"):
        lines = io.BufferedReader(_InUtf8(lines, encoding), BUFFER_BYTES)
    elif encoding == "utf-8-sig":
        lines.read(3)
    return reader_of(_first_page(account, lines)).read(lines)


def _first_page(account: LineAccount, lines: Iterable[bytes]) -> LongPage | WidePage:
    """The first page; the lines up to its header are taken."""
    for line in lines:
        text = account.text(line)
        page = account.opened_by(text)
        if isinstance(page, LongPage | WidePage):
            return page
        account.note(before_any_page(text), text)
    raise NotCertain("it has no page")


class _InUtf8(io.RawIOBase):
    """A UTF-16 file as the bytes of its text in UTF-8, without a byte order mark.

    Raises `NotCertain` at bytes that are no text, or at the character that stands for such: the plain reader counts the
    lines with them.
    """

    def __init__(self, stream: io.BufferedIOBase, encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            block = self._stream.read1(BUFFER_BYTES)
            text = self._decoder.decode(block, final=not block)
            if "\ufffd" in text:
                raise NotCertain("it holds bytes that are no text")
            self._left = text.encode("utf-8")
            if not block:
                break
        count = min(len(self._left), len(buffer))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


class _Held(io.RawIOBase):
    """A file that raises `NotCertain` at a line that is too long, and `memory.TooBig` when memory runs out."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = cast(io.RawIOBase, stream)
        self._name = name
        self._line = 0
        self._unheld = 0
        self._longest = memory.longest_line()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._stream.readinto(buffer) or 0
        tail = max(count - LINE_BYTES, 0)
        end = bytes(buffer[tail:count]).rfind(b"\n")
        if end < 0:
            tail, end = 0, bytes(buffer[:count]).rfind(b"\n")
        self._line = self._line + count if end < 0 else count - tail - end
        if self._line > self._longest:
            raise NotCertain("a line of it is too long")
        self._unheld += count
        if self._unheld > BYTES_BETWEEN_CHECKS:
            self._unheld = 0
            memory.require_memory(self._name, streaming=True)
        return count
