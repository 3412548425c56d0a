"""Long pages by the line beginnings that repeat: all rows of a launch begin with the same bytes, up to the section.

A line that begins with the current launch's bytes and ends like a metric row gives its tail; what other lines are is
asked of the page. The tails of some thousand launches are a stretch, which is parsed elsewhere and checked there: if
one of them is no row after all, the file is read again with every tail looked at (`careful`).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence

from ncu_parsers.ncu.csv_pages import LongPage
from ncu_parsers.report_data import report as kinds
from ncu_parsers.report_data.csv_text import split_row
from ncu_parsers.streaming.line_accounting import LineAccount, NotCertain, may_open_a_page
from ncu_parsers.streaming.row_batch import Layout, RuleLines, Stretch, ids_of

LINES_KEPT = 5000
"""Rules say the same of many launches, and programs print the same again: so many of either are known again."""
NO_LAUNCH = -1
NOISE = (kinds.OUTPUT, kinds.MESSAGE, kinds.BLANK)
NOWHERE = b"\n\n"
"""No line begins or ends so."""
MAY_END_A_ROW = (b"\n", b",\n", b"\r\n", b",\r\n")
_SIMPLE_CELL = rb'"[^"\r\0\x80-\xff]*"'


class LongLines:
    """Long pages of a file, read line by line; `take` gets each stretch."""

    def __init__(self, account: LineAccount, page: LongPage, careful: bool, take: Callable[[Stretch], None]) -> None:
        self.account = account
        self.careful = careful
        self.page = page
        self.layout = Layout.of(page)
        self._take = take
        self._end = self._other_end = NOWHERE
        self._prefix = NOWHERE
        self._line = account.number + 1
        self._latest: int | None = None  # see _latest_place
        self._forget()
        self._begin_stretch()
        self._compile()

    @property
    def _page_number(self) -> int:
        """That of the page that is being read."""
        return len(self.account.reading.pages) - 1

    def _compile(self) -> None:
        others = len(self.layout.identity) - 2
        cell = _SIMPLE_CELL if self.careful else rb'"[^"]*"'
        self._identity = re.compile(rb'"\d+","\d+",(?:%b,){%d}' % (cell, others))
        named = [
            _SIMPLE_CELL.replace(b"*", b"+") if title == "Metric Name" else _SIMPLE_CELL for title in self.layout.tail
        ]
        self._tail = re.compile(b",".join(named))

    def _forget(self) -> None:
        """Know no lines again."""
        self._codes: dict[bytes, int] = {}
        self._rules: list[dict[str, str]] = []
        self._noise: dict[bytes, tuple[str, str]] = {}

    def read(self, stream: io.BufferedIOBase) -> bool:
        """Read all that follows; whether the last line was complete."""
        complete = self._read_lines(stream)
        self.account.number = self._line - 1
        self._end_stretch()
        return complete

    def _code_of(self, tail: bytes) -> int | None:
        """The number of what a tail says; None where it is no rule, or so many are known that it cannot be another."""
        code = self._codes.get(tail)
        if code is not None or len(self._rules) == LINES_KEPT or (rule := self._rule_of(tail)) is None:
            return code
        return self._keep(tail, rule)

    def _keep(self, tail: bytes, rule: dict[str, str]) -> int | None:
        """Know a tail again by what it says; the number of that, or None where there is no room."""
        self._rules.append(rule)
        return self._codes.setdefault(tail, len(self._codes))

    def _read_lines(self, stream: io.BufferedIOBase) -> bool:
        """The same, without the end."""
        number, line = self._line - 1, b"\n"
        prefix, append, identity = self._prefix, self._stretch.tails.write, self._identity.match
        for number, line in enumerate(stream, self._line):
            tail = line.removeprefix(prefix)
            if tail is not line:  # what does not begin so is returned as it is
                if self._ends_a_row(tail):
                    append(tail)
                    continue
            elif (
                line.endswith(self._end)
                and (found := identity(line))
                and self._ends_a_row(line[found.end() :])
                and self._turn_to_launch(number, found.group())
            ):
                prefix, append = self._prefix, self._stretch.tails.write
                append(line[found.end() :])
                continue
            self._other(number, line)
            prefix, append, identity = self._prefix, self._stretch.tails.write, self._identity.match
        self._line = number + 1
        return line.endswith(b"\n")

    def _ends_a_row(self, tail: bytes) -> bool:
        """Whether a line of this tail is to be taken for a row."""
        if not self.careful:
            return tail.endswith(self._end)
        named = self._tail.fullmatch(tail, 0, len(tail) + 1 - len(self._end))
        return named is not None and tail.endswith(self._end) and b" Name" not in tail

    # ---------------------------------------------------------------------------------------------------- lines

    @property
    def _rows(self) -> int:
        """How many rows of the stretch stand before the line that is looked at.

        `_line` counts lines, and `_first` moves on with each that is no row, so that their distance counts rows alone.
        """
        return self._line - self._first

    def _turn_to_launch(self, number: int, prefix: bytes) -> bool:
        """Go on with the launch whose rows begin with `prefix`; False when such a line may be a header."""
        if self.careful and may_open_a_page(prefix):
            return False
        self._line = number
        self._begin_run(prefix)
        self._prefix = prefix
        return True

    def _begin_run(self, prefix: bytes) -> None:
        place = self._place_of(prefix)
        self._stretch.run_launches.append(place)
        self._stretch.run_starts.append(self._rows)

    def _place_of(self, prefix: bytes) -> int:
        self._latest = None
        place = self._stretch.places.get(prefix)
        if place is None:
            if self._stretch.room <= 0 and self._is_another_launch(prefix):
                self._end_stretch()
            stretch = self._stretch
            place = stretch.places[prefix] = len(stretch.prefixes)
            stretch.prefixes.append(prefix)
        return place

    def _is_another_launch(self, prefix: bytes) -> bool:
        """Whether a prefix is not that of the launch met last, of which a row may be printed otherwise."""
        return ids_of(prefix) != ids_of(self._stretch.prefixes[-1])

    def _other(self, number: int, line: bytes) -> None:
        """Take in a line that is not recognised by its beginning and end."""
        self._line = number
        if not self._is_row(line):
            self._first += 1

    def _is_row(self, line: bytes) -> bool:
        """Take in such a line; whether it was a row of a metric."""
        if line.startswith(self._prefix):
            if self._is_rule(line[len(self._prefix) :]):
                return False
            if self._ends_otherwise(line):
                return True
        elif (found := self._identity.match(line)) and self._is_rule_of(found.group(), line[found.end() :]):
            return False
        if line in self._noise:
            self.account.number = self._line
            self.account.note(*self._noise[line])
            return False
        self.account.number = self._line - 1
        text = self.account.text(line)
        opened = self.account.opened_by(text)
        if opened is not None:
            if not isinstance(opened, LongPage):
                raise NotCertain("it holds pages of several kinds")
            self._open(opened, line)
            return False
        kind, cells = self.page.judge(text)
        self.account.note(kind, text)
        if kind == kinds.METRICS:
            self._take_row(cells, line)
        elif kind == kinds.RULE:
            self._take_rule(cells)
        elif kind in NOISE and "\ufffd" not in text and len(self._noise) < LINES_KEPT:
            self._noise[line] = kind, text
        return kind == kinds.METRICS

    def _ends_otherwise(self, line: bytes) -> bool:
        """Take in a row of the current launch that has another end than those before; where there are rules, the end
        may be all that tells them from rows.
        """
        if self.careful or self.page.rule_at is not None:
            return False
        ending = next((ending for ending in MAY_END_A_ROW if line.endswith(b'"' + ending)), None)
        if ending is None:
            return False
        self._end_with(ending)
        self._stretch.tails.write(line[len(self._prefix) :])
        return True

    def _end_with(self, ending: bytes) -> None:
        """Know rows by this ending; by the one before as well, unless there are rules."""
        end = b'"' + ending
        if end != self._end:
            self._end, self._other_end = end, self._end if self.page.rule_at is None else NOWHERE
        self._stretch.endings.add(ending)

    def _is_rule(self, tail: bytes) -> bool:
        """Take in a rule row of the current launch, if a line of this tail is one."""
        rule = self._rule(tail)
        if rule is None:
            return False
        self._stretch.rules.add(self._latest_place, rule)
        return True

    def _is_rule_of(self, prefix: bytes, tail: bytes) -> bool:
        """The same of another launch, whose rows begin with this prefix."""
        rule = self._rule(tail) if self._may_repeat(prefix) else None
        if rule is None:
            return False
        place = self._place_of_ids(prefix)
        self._stretch.rules.add(place, rule)
        return True

    def _place_of_ids(self, prefix: bytes) -> int:
        """The place of the launch with the ids of this prefix that was met last; it is there then."""
        place = self._stretch.latest_of(ids_of(prefix))
        return self._place_of(prefix) if place is None else place

    def _rule(self, tail: bytes) -> dict[str, str] | None:
        """The rule that a line of this tail is, which is counted; None for any other line."""
        code = self._code_of(tail)
        rule = self._rule_of(tail) if code is None else self._rules[code]
        if rule is not None:
            self.account.report.lines[kinds.RULE] += 1
        return rule

    @property
    def _latest_place(self) -> int:
        """Of the launches with the ids of the current one, the place of that which was met last."""
        if self._prefix is NOWHERE:
            return NO_LAUNCH
        if self._latest is None:
            place: int | None = self._stretch.run_launches[-1] if self._stretch.run_launches else NO_LAUNCH
            if place not in (NO_LAUNCH, len(self._stretch.prefixes) - 1):
                place = self._stretch.latest_of(ids_of(self._prefix))
            assert place is not None  # noqa: S101 - the launch has a row
            self._latest = place
        return self._latest

    def _rule_of(self, tail: bytes) -> dict[str, str] | None:
        page, width = self.page, len(self.layout.identity)
        if page.rule_at is None or b" Name" in tail or b"\xef\xbf\xbd" in tail or not tail.endswith(b"\n"):
            return None
        try:
            cells = split_row(tail.decode("utf-8").removesuffix("\n").rstrip("\r"), ",")
        except UnicodeDecodeError:
            return None
        if (
            cells is None
            or not page.rule_at < width + len(cells) <= len(page.header) + 1
            or cells[page.name_at - width]
        ):
            return None
        return page.rule([""] * width + cells)._asdict()

    def _open(self, page: LongPage, line: bytes) -> None:
        """A header, which is this line: the same one goes on in the same stretch, another one in a new one."""
        layout = Layout.of(page)
        if page.header != self.page.header:
            self._forget()
            self._end = self._other_end = NOWHERE
            self._end_stretch()
        if layout != self.layout:
            self.layout = layout
            self._stretch.layout = layout
            self._compile()
        self.page = page
        self._prefix = NOWHERE
        self._stretch.begin_page(self._page_number)

    def _take_row(self, cells: list[str], line: bytes) -> None:
        width = len(self.layout.identity)
        prefix = _written(cells[:width]) + b","
        self._begin_run(prefix)
        tail = _written(cells[width : width + len(self.layout.tail)])
        self._stretch.tails.write(tail + b"\n")
        self._stretch.endings.add(b"\n")
        self._noted += 1
        self._prefix = prefix if self._may_repeat(prefix) else NOWHERE
        ending = line[len(prefix) + len(tail) :]
        if line.startswith(prefix + tail) and ending in MAY_END_A_ROW:
            self._end_with(ending)

    def _may_repeat(self, prefix: bytes) -> bool:
        """Whether a line that begins so can be recognised by it."""
        if may_open_a_page(prefix) or (self.careful and not prefix.isascii()):
            return False
        return b"\r" not in prefix and b"\0" not in prefix and b"\xef\xbf\xbd" not in prefix

    def _take_rule(self, cells: list[str]) -> None:
        ids = f'"{cells[0]}","{cells[1]}"'.encode("utf-8", "replace")
        place = self._stretch.latest_of(ids)
        if place is None:
            place = self._place_of(_written(cells[: len(self.layout.identity)]) + b",")
        self._stretch.rules.add(place, self.page.rule(cells)._asdict())

    # ------------------------------------------------------------------------------------------------- stretches

    def _begin_stretch(self) -> None:
        self._stretch = Stretch(
            self.layout,
            endings={self._end[1:], self._other_end[1:]},
            pages=[(0, self._page_number)],
            judged=self.careful,
            rules=RuleLines(self._rules),
        )
        self._first = self._line  # see _rows
        self._latest = None
        self._noted = 0  # rows that are in the account of lines already
        self._prefix = NOWHERE  # the launch that it is of is not in this stretch

    def _end_stretch(self) -> None:
        stretch = self._stretch
        stretch.rows = self._rows
        self.account.report.lines[kinds.METRICS] += stretch.rows - self._noted
        self._begin_stretch()
        if stretch.prefixes:
            self._take(stretch)


def _written(cells: Sequence[str]) -> bytes:
    """Cells as a row prints them."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="").writerow(cells)
    return text.getvalue().encode("utf-8", "replace")
