"""Long pages by the compiled loop: rows of known launches are told apart a block at a time, what else there is line by
line, as `long_lines` has it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from itertools import islice
from operator import is_not
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ncu_parsers.ncu.csv_pages import LongPage
from ncu_parsers.report_data import report as kinds
from ncu_parsers.streaming.launch_columns import Codes
from ncu_parsers.streaming.line_accounting import LineAccount
from ncu_parsers.streaming.long_page_lines import NOWHERE, LongLines
from ncu_parsers.streaming.row_batch import Stretch

if TYPE_CHECKING:
    from ncu_parsers.streaming.cells._rows import Event

BLOCK_BYTES = 1 << 21
FEW_EVENTS, MANY_EVENTS = 16, 4096
"""What the compiled loop finds is taken in so many events at a time: few where it may have to go back to the first."""
LAUNCH, _, HEADER = range(3)
"""What events of the compiled loop are, beside any other line."""
NO_CODES: Codes = np.empty(0, np.intc)


class LongBlocks(LongLines):
    """Long pages of a file, read a block at a time; `take` gets each stretch."""

    def __init__(
        self, account: LineAccount, page: LongPage, take: Callable[[Stretch], None], loops: ModuleType
    ) -> None:
        self._loops = loops
        super().__init__(account, page, careful=False, take=take)

    def _forget(self) -> None:
        super()._forget()
        self._recogniser = self._loops.Recogniser()

    def _open(self, page: LongPage, line: bytes) -> None:
        super()._open(page, line)
        self._recogniser.keep_header(line)

    def _keep(self, tail: bytes, rule: dict[str, str]) -> int | None:
        if self._recogniser.keep(tail) != len(self._rules):
            return None
        return super()._keep(tail, rule)

    def _read_lines(self, stream: io.BufferedIOBase) -> bool:
        block, tails, begun = bytearray(BLOCK_BYTES), bytearray(BLOCK_BYTES), 0
        while more := stream.readinto(memoryview(block)[begun:]):
            end = self._read_block(memoryview(block)[: begun + more], tails)
            last = block[end : begun + more]
            begun = len(last)
            if 2 * begun > len(block):  # a line as long as a block
                block, tails = bytearray(2 * len(block)), bytearray(2 * len(block))
            block[:begun] = last
        if begun:
            number = self._line
            self._other(number, bytes(block[:begun]))
            self._line = number + 1
        return not begun

    def _read_block(self, block: memoryview, tails: bytearray) -> int:
        """Take in the complete lines of a block, in which `tails` is room for theirs; where they end."""
        at, most = 0, FEW_EVENTS
        while True:
            recognise, others = self._recogniser.recognise, len(self.layout.identity) - 2
            end, lines, written, events, said = recognise(
                block, at, self._prefix, self._end, self._other_end, others, most, tails
            )
            rules = Said.of(said, len(events))
            back_to = self._take_found(lines, memoryview(tails)[:written], events, rules)
            if back_to is None and len(events) + len(rules.codes) < most:
                return int(end)
            at, most = (end, MANY_EVENTS) if back_to is None else (back_to, FEW_EVENTS)

    def _take_found(self, lines: int, tails: memoryview, events: Sequence[Event], rules: Said) -> int | None:
        """Take in what the compiled loop found. Where a line changed what rows are known by, nothing behind it is
        taken in: then the loop has to go back to the end of that line, which is given.
        """
        first, taken, at = self._line, 0, 0
        while (at := self._take_known(events, rules, at, taken)) < len(events):
            what, text, end, line, written = events[at]
            taken = self._write(tails, taken, written)
            number, known_by = first + line, self._known_by
            if what == LAUNCH:
                self._turn_to_launch(number, text)
            else:
                self._other(number, text)
                if what == HEADER:  # of which the loop knows what it changes
                    known_by = NOWHERE, *known_by[1:-1], self.page
                if any(map(is_not, self._known_by, known_by)):
                    self._line = number + 1
                    return end
            self._line = first
            at += 1
        self._write(tails, taken, len(tails))
        self._line = first + lines
        return None

    def _take_known(self, events: Sequence[Event], rules: Said, begin: int, taken: int) -> int:
        """Take in events from that at `begin` on, and the `rules` between them, up to the first that is neither a
        launch for which the stretch has room, nor known noise, nor a rule that can be known again; which one that is.
        So many bytes of the tails are `taken` before.
        """
        stretch = self._stretch
        places, prefixes = stretch.places, stretch.prefixes
        full_at = taken + stretch.room
        rows_before = self._rows + rules.before(begin)
        latest = [self._latest_place]
        first_said: list[tuple[int, int, int]] = []
        at, noisy = begin, 0
        for what, text, _, line, written in islice(events, begin, None):
            if written >= full_at:
                break
            if what == LAUNCH:
                place = places.setdefault(text, len(prefixes))
                if place == len(prefixes):
                    prefixes.append(text)
                stretch.run_launches.append(place)
                stretch.run_starts.append(rows_before + line - rules.up_to[at] - len(first_said) - noisy)
                self._prefix, self._latest = text, place if place == len(prefixes) - 1 else None
            elif (noise := self._noise.get(text)) is not None:
                self.account.number = self._line + line
                self.account.note(*noise)
                noisy += 1
            elif (found := self._rule_in(text)) is not None:
                first_said.append((at, *found))
            else:
                break
            latest.append(self._latest_place)
            at += 1
        self._take_rules(rules, begin, latest, first_said)
        self._first += noisy
        return at

    def _take_rules(
        self, rules: Said, begin: int, latest: Sequence[int], first_said: Sequence[tuple[int, int, int]]
    ) -> None:
        """Take in the rules between the events from that at `begin` on, by each of which the current launch got these
        places, and those events that were rules: which one, the number of what it says, the place of its launch.
        """
        codes, events = rules.between(begin, begin + len(latest) - 1)
        if not len(codes) and not first_said:
            return
        launches = np.array(latest, np.intc)[events - begin]
        if first_said:
            at, others, places = np.array(first_said, np.intc).T
            between = np.searchsorted(events, at, side="right")
            codes, launches = np.insert(codes, between, others), np.insert(launches, between, places)
        self._stretch.rules.extend(codes, launches)
        self._first += len(codes)
        self.account.report.lines[kinds.RULE] += len(codes)

    def _rule_in(self, line: bytes) -> tuple[int, int] | None:
        """The number of what a line says and the place of its launch, where it is a rule that is known or can be."""
        if self.page.rule_at is None:
            return None
        if line.startswith(self._prefix):
            prefix = self._prefix
        elif (found := self._identity.match(line)) and self._may_repeat(found.group()):
            prefix = found.group()
        else:
            return None
        code = self._code_of(line[len(prefix) :])
        if code is None:
            return None
        return code, self._latest_place if prefix is self._prefix else self._place_of_ids(prefix)

    def _write(self, tails: memoryview, begin: int, end: int) -> int:
        """Add some tails to those of the stretch; where they end."""
        self._stretch.tails.write(tails[begin:end])
        return end

    @property
    def _known_by(self) -> tuple[object, ...]:
        """What rows are known by."""
        return self._prefix, self._end, self._other_end, self._stretch, self.page


class Said(NamedTuple):
    """Rules between events: the number of what each says, and how many events are before it; for each event, and
    behind the last, how many rules are before it.
    """

    codes: Codes
    events: Codes
    up_to: Sequence[int]

    @classmethod
    def of(cls, said: bytes, events: int) -> Said:
        """What the compiled loop says of them."""
        if not said:
            return cls(NO_CODES, NO_CODES, [0] * (events + 1))
        codes, before = np.frombuffer(said, np.intc).reshape(-1, 2).T.copy()
        return cls(codes, before, np.searchsorted(before, np.arange(events + 1), side="right").tolist())

    def before(self, event: int) -> int:
        """How many are before the one that stands before this event."""
        return self.up_to[event - 1] if event else 0

    def between(self, first: int, last: int) -> tuple[Codes, Codes]:
        """Those from behind the event before `first` up to `last`."""
        among = slice(self.before(first), self.up_to[last])
        return self.codes[among], self.events[among]
