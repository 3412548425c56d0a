"""The lines of a long page recognised in a process of its own, which sends one stretch after another.

The loop over the lines holds Python's lock nearly always, and the threads that parse what it found ask for it at each
of their small steps. Two processes share none, and a long report takes a fifth to a quarter less time. The other one
is a new interpreter, never a fork, since this process may have threads; it imports what recognising lines takes, no
more.

A message is JSON and the bytes that belong to it, after the size of each.
"""

from __future__ import annotations

import json
import subprocess
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, BinaryIO, cast

import ncu_launch
from ncu_launch.errors import NcuBenchError

from ncu_parsers import memory
from ncu_parsers.engine import cores
from ncu_parsers.line_account import LineAccount, NotCertain, PageReader, read_lines
from ncu_parsers.long_lines import LINES_KEPT, Layout, LongLines, Stretch
from ncu_parsers.ncu_csv import LongPage, WidePage
from ncu_parsers.report import Report
from ncu_parsers.sources import DAMAGE, Source

WORTH_A_PROCESS = 16_000_000
"""From this size on another process recognises the lines of a report."""
HEAD_BYTES = 1 << 18
"""Programs seldom print more before the first page."""
METRIC_NAME = b'"Metric Name"'
"""Only long pages have this column."""
MESSAGES_AHEAD = 2
"""Each takes some 4 MB."""
PIPE_BYTES = 1 << 20
"""As much as Linux allows: a stretch travels in few steps."""
PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from ncu_parsers.line_process import recognise; recognise(sys.argv[2], sys.stdout.buffer)"
)

Rule = dict[str, str]
Message = tuple[dict[str, Any], list[bytes]]
PARTS = 5
"""Of a message: what it says, and the bytes that belong to it."""
SIZES = 8 * PARTS


class ReadHere(Exception):
    """A file that this process has to read itself: it is no long page, or the other process was lost."""


_begun: dict[str, LineProcess] = {}
"""What was begun before its lines were asked for, by the paths of the files."""


@contextmanager
def lines_begun(sources: Sequence[Source]) -> Iterator[None]:
    """Let the other process begin with the only report, if it is worth one, while this one has yet to import what it
    takes; it ends with the block.
    """
    source = sources[0] if len(sources) == 1 else None
    if source is not None and is_worth_a_process(source):
        with suppress(OSError):
            _begun[source.path] = LineProcess(source)
    try:
        yield
    finally:
        if source is not None and source.path in _begun:
            _begun.pop(source.path).end()


def is_worth_a_process(source: Source) -> bool:
    """Whether another process shall recognise the lines of a file: it is big, begins with a long page, and there is a
    core for it.
    """
    try:
        if not _is_python() or cores() < 2 or Path(source.path).stat().st_size < WORTH_A_PROCESS:
            return False
        return METRIC_NAME in source.head(HEAD_BYTES)
    except (OSError, NcuBenchError):
        return False


def _is_python() -> bool:
    """Whether this program can be started as an interpreter: one that was packed into a file of its own starts anew."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


@contextmanager
def lines_apart(source: Source) -> Iterator[SentLines]:
    """The lines of a file on disk, recognised by another process, which ends with the block.

    Raises `ReadHere` where there cannot be one.
    """
    try:
        process = _begun.pop(source.path, None) or LineProcess(source)
    except OSError as error:
        raise ReadHere from error
    try:
        yield SentLines(process.messages())
    finally:
        process.end()


def _command(path: str) -> list[str]:
    """This interpreter, isolated: what lies in the current folder is never imported, as the reports there may be
    anyone's.
    """
    packages = [str(Path(__file__).parents[1]), str(Path(ncu_launch.__file__).parents[1])]
    places = json.dumps([*packages, *filter(None, sys.path)])
    options = ["-I", "-S", *(["-B"] if sys.dont_write_bytecode else [])]
    return [sys.executable, *options, "-c", PROGRAM, places, path]


class LineProcess:
    """The other process; a few messages of it are taken in before they are asked for."""

    def __init__(self, source: Source) -> None:
        """Start it. Raises `OSError` where that fails."""
        self._process = subprocess.Popen(  # noqa: S603  our own interpreter and program, never a shell
            _command(source.path), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            pipesize=PIPE_BYTES,
        )  # fmt: skip
        self._stream = cast(BinaryIO, self._process.stdout)
        self._messages: Queue[Message | None] = Queue(MESSAGES_AHEAD)
        self._thread = Thread(target=self._receive, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        while self._thread.is_alive():  # it may wait to hand a message over
            with suppress(Empty):
                self._messages.get(timeout=0.01)
        self._stream.close()
        self._process.wait()

    def messages(self) -> Iterator[Message]:
        """All that it sends, to its end."""
        return iter(self._messages.get, None)

    def _receive(self) -> None:
        try:
            while message := received(self._stream):
                self._messages.put(message)
        finally:
            self._messages.put(None)


class SentLines:
    """What the other process says of a file, by the messages that it sends."""

    def __init__(self, messages: Iterator[Message]) -> None:
        self._messages = messages
        self._rules: list[Rule] = []
        self._said: dict[str, Any] = {}

    def stretches(self) -> Iterator[Stretch]:
        """All stretches of the file. Raises `ReadHere`, and `NotCertain` for a file that is for the plain reader."""
        for said, parts in self._messages:
            if "stretch" in said:
                yield self._stretch(said["stretch"], *parts)
            elif "not certain" in said:
                raise NotCertain(said["not certain"])
            elif "account" in said:
                self._said = said["account"]
                return
        raise ReadHere

    def give_account(self, account: LineAccount) -> bool:
        """Put what all lines were, once they are read, into an account; whether the last one was complete."""
        said, report = self._said, account.report
        account.number, account.replaced = said["number"], said["replaced"]
        account.reading.pages += [LongPage(*page) for page in said["pages"]]
        account.reading.tail.extend(said["tail"])
        report.lines = Counter(said["lines"])
        report.examples = {kind: (number, line) for kind, (number, line) in said["examples"].items()}
        report.messages = said["messages"]
        return bool(said["complete"])

    def _stretch(self, said: dict[str, Any], prefixes: bytes, tails: bytes, launches: bytes, starts: bytes) -> Stretch:
        self._rules += said["rules to keep"]
        rules = {int(place): [self._rule(one) for one in some] for place, some in said["rules"].items()}
        return Stretch(
            Layout(tuple(said["identity"]), tuple(said["tail"])),
            prefixes.split(b"\n"),
            BytesIO(tails),
            said["rows"],
            array("q", launches).tolist(),
            array("q", starts).tolist(),
            rules,
            endings={ending.encode() for ending in said["endings"]},
            pages=[(begin, number) for begin, number in said["pages"]],
        )

    def _rule(self, said: int | Rule) -> Rule:
        return self._rules[said] if isinstance(said, int) else said


def received(stream: BinaryIO) -> Message | None:
    """The next message of a stream; None where it ends, also within one."""
    head = stream.read(SIZES)
    if len(head) < SIZES:
        return None
    sizes = array("q", head).tolist()
    said, *parts = map(stream.read, sizes)
    return (json.loads(said), parts) if [len(said), *map(len, parts)] == sizes else None


# ---------------------------------------------------------------------------------------------- the other process


@memory.limited()
def recognise(path: str, out: BinaryIO) -> None:
    """Send the stretches of the file at `path`, and in the end the account of its lines or why there is none."""
    source, sender = Source(path), _Sender(out)
    account = LineAccount(Report(source.name))

    def reader_of(page: LongPage | WidePage) -> PageReader:
        if not isinstance(page, LongPage):
            raise ReadHere
        return LongLines(account, page, careful=False, take=sender.send)

    try:
        with source.open() as stream:
            complete = read_lines(account, stream, reader_of)
        message: dict[str, Any] = {"account": _said(account, complete)}
    except ReadHere:
        message = {"wide": {}}
    except NotCertain as error:
        message = {"not certain": str(error)}
    except (NcuBenchError, *DAMAGE) as error:
        message = {"not certain": f"it could not be read ({error})"}
    sender.write(message)


def _said(account: LineAccount, complete: bool) -> dict[str, Any]:
    report, reading = account.report, account.reading
    return {
        "complete": complete,
        "number": account.number,
        "replaced": account.replaced,
        "pages": [(page.header, page.delimiter, page.quoted) for page in reading.pages if isinstance(page, LongPage)],
        "tail": list(reading.tail),
        "lines": report.lines,
        "examples": report.examples,
        "messages": report.messages,
    }


class _Sender:
    """Writes messages. Rules say the same of many launches: of the first ones, each travels once."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._kept: list[Rule] = []
        self._numbers: dict[int, int] = {}

    def write(self, message: dict[str, Any], *parts: bytes | memoryview) -> None:
        """Write a message with its parts: the size of each, then all of them."""
        all_parts = [json.dumps(message).encode(), *parts]
        sizes = array("q", [*map(len, all_parts), *[0] * (PARTS - len(all_parts))])
        for part in (sizes.tobytes(), *all_parts):
            self._out.write(part)
        self._out.flush()

    def send(self, stretch: Stretch) -> None:
        """Write a stretch."""
        known = len(self._kept)
        rules = {place: [self._of(rule) for rule in some] for place, some in stretch.rules.items()}
        said = {
            "identity": stretch.layout.identity,
            "tail": stretch.layout.tail,
            "rows": stretch.rows,
            "rules": rules,
            "rules to keep": self._kept[known:],
            "endings": [ending.decode() for ending in stretch.endings],
            "pages": stretch.pages,
        }
        numbers = (memoryview(array("q", some)).cast("B") for some in (stretch.run_launches, stretch.run_starts))
        self.write({"stretch": said}, b"\n".join(stretch.prefixes), stretch.tails.getbuffer(), *numbers)

    def _of(self, rule: Rule) -> int | Rule:
        number = self._numbers.get(id(rule))
        if number is None and len(self._kept) < LINES_KEPT:
            number = self._numbers[id(rule)] = len(self._kept)
            self._kept.append(rule)
        return rule if number is None else number
