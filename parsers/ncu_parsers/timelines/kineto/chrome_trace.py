"""Stream the events of a Chrome trace, with only one block in memory.

A trace is a JSON object with a list traceEvents, or the bare list. The complete events of a block are decoded together
by msgspec. If it refuses, Python's json decodes them one by one, at least ten times slower: NaN, control characters in
names, values of other types. Bare words that are not JSON, such as N/A, are read as null, and quotes that were not
escaped as part of their name. Killed programs leave a truncated trace, and some write names that are invalid JSON:
broken events are counted and skipped. Format: "Trace Event Format", a document of the Chromium project.
"""

from __future__ import annotations

import codecs
import json
import math
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from zstandard import ZstdError

from ncu_parsers.schema.vendors import Vendor, vendor_named
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import encoding_of

BLOCK = 1 << 20
LONGEST_EVENT = 1 << 20
LONGEST_HEADER = 1 << 26
"""Maximum characters of an event, or of a value beside the events; longer ones count as broken."""

_DECODER = json.JSONDecoder(strict=False)  # kernel names may hold control characters
_SPACE = re.compile(r"\s*")
_BETWEEN = re.compile(r"[\s,]*")
_BARE_WORD = re.compile(r'(?<!\\)("\s*:\s*)(?!(?:null|true|false|NaN|-?Infinity)\b)[-+]?[A-Za-z][\w./+-]*(?=\s*[,}\]])')
"""A value that is a bare word and not JSON, as in "blocks per SM": N/A or "occupancy": nan."""
_NAME = re.compile(r'("name"\s*:\s*")((?:(?!"\s*:)[^\n])*?)("\s*,\s*"(?:pid|tid|ph|cat|ts)"\s*:)')
"""The name of an event up to the next key; before July 2026, quotes in names were not escaped."""
_BARE_QUOTE = re.compile(r'(?<!\\)"')
_STRING_OR_BRACE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)
_LONGEST_SCAN = 1 << 16
"""Characters of a broken event that are searched for its end."""
_NEXT_EVENT = re.compile(r'\{\s*"ph"\s*:')
_EVENTS_KEY = re.compile(r'"traceEvents"\s*:\s*\[')
_LATER_KEY = re.compile(r'"(?:traceName|displayTimeUnit|baseTimeNanoseconds)"\s*:')
"""Keys after the list of events; invalid JSON from the profiler's own messages may precede them."""
_OVERLAP = 64
"""Characters kept while searching, so that a match across two blocks is found."""
_END_OF_EVENT = re.compile(r"\}\s*,\s*\Z")
_BEGIN_OF_EVENT = re.compile(r'\{\s*"[^"\\]*"\s*:')
"""Text around a border between events. In a string the quote would be escaped; within nested objects the brackets
before the border do not match, which the decoder notices."""
_LONGEST_GAP = 256

NS_PER_US = 1000.0
LONGEST_TIME = 2**61 / NS_PER_US
"""Microseconds above which the end of an event may not fit into int64 nanoseconds."""
EXACT_UNTIL = 2.0**43
"""Microseconds (101 days) up to which neighbouring doubles are less than a nanosecond apart."""
SINCE_1970 = (
    "the trace prints microseconds since 1970, which JSON's numbers hold to a quarter of a microsecond; sums are exact "
    "in what was read"
)
"""Note for traces whose starts have a fraction and lie beyond `EXACT_UNTIL`."""

Thread = tuple[int | str, int | str]
"""Process and thread of an event."""


class TraceEvent(msgspec.Struct, gc=False):
    """The fields that all kinds of events have; None or NaN where one is missing or of another type.

    `ts` and `dur` are microseconds; `args` and the `id` of a flow are JSON.
    """

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float = math.nan
    dur: float = math.nan
    args: msgspec.Raw = msgspec.Raw(b"{}")
    id: msgspec.Raw = msgspec.Raw(b"")

    @property
    def thread(self) -> Thread | None:
        """Process and thread; None if either is missing."""
        return None if self.pid is None or self.tid is None else (self.pid, self.tid)

    @property
    def is_timed(self) -> bool:
        """True if start and duration are below `LONGEST_TIME`, and the duration is not negative."""
        return -LONGEST_TIME < self.ts < LONGEST_TIME and 0 <= self.dur < LONGEST_TIME


_TYPED = msgspec.json.Decoder(list[TraceEvent])


class TraceEvents:
    """The events of a trace: `batches` yields the events of a block at a time.

    Afterwards, `header` has the values beside the events. `broken` counts unreadable events; `cut` is true if the file
    ends early; `damage` describes damage of the compressed file. Raises `memory.TooBig`, naming the trace
    `name`, if the process exceeds its memory limit.
    """

    def __init__(self, stream: BinaryIO, name: str = "the trace") -> None:
        self.header: dict[str, Any] = {}
        self.broken = 0
        self.cut = False
        self._text = _Text(stream, name)

    @property
    def damage(self) -> str:
        """Description of the compressed file's damage; "" if none."""
        return self._text.damage

    def batches(self) -> Iterator[list[TraceEvent]]:
        """The events in lists, in file order."""
        for batch in self._batches():
            yield [_typed(event) if isinstance(event, dict) else event for event in batch]

    def _batches(self) -> Iterator[list[Any]]:
        opening = self._text.peek()
        if opening == "[":
            yield from self._events()
        elif opening == "{":
            self._text.at += 1
            yield from self._members()
        self.cut = self.cut or bool(self.damage)

    def _members(self) -> Iterator[list[Any]]:
        """Iterate over the events in the outer object; store its other members in the header."""
        had_events = False
        while self._text.peek(_BETWEEN) not in ("", "}"):
            try:
                key = self._text.value(LONGEST_EVENT)
                self._text.expect(":")
                opening = self._text.peek()
                if key == "traceEvents" and opening == "[":
                    yield from self._events()
                    had_events = not self.cut
                else:
                    self.header[str(key)] = self._text.value(LONGEST_HEADER)
            except ValueError:
                if not self._text.skip_to(_LATER_KEY if had_events else _EVENTS_KEY):
                    self.cut = not (had_events and self._text.ends_as_an_object)
                    self.broken += not self.cut
                    return
                self.broken += 1

    def _events(self) -> Iterator[list[Any]]:
        self._text.expect("[")
        one_by_one_until = 0
        while letter := self._text.peek(_BETWEEN):
            if letter == "]":
                self._text.at += 1
                return
            if self._text.position >= one_by_one_until and (whole := self._text.whole_events()):
                try:
                    batch = _TYPED.decode(f"[{whole}]".encode())
                except (msgspec.DecodeError, ValueError, RecursionError):
                    if self._text.mend():
                        continue
                    one_by_one_until = self._text.position + len(whole)
                else:
                    self._text.at += len(whole)
                    yield batch
                    continue
            try:
                event = self._text.value(LONGEST_EVENT)
            except ValueError:
                if self._text.mend():
                    continue
                has_end = self._text.has_closed_object()
                if not self._text.skip_to(_NEXT_EVENT):
                    self.cut = not has_end
                    self.broken += has_end
                    return
                self.broken += 1
                continue
            if isinstance(event, dict):
                yield [event]
            else:
                self.broken += 1


def _typed(event: dict[str, Any]) -> TraceEvent:
    """Convert an event that was decoded alone. Values nested too deeply to be encoded again are left out."""
    texts = {name: value for name in ("ph", "cat", "name") if isinstance(value := event.get(name), str)}
    process, thread = (value if isinstance(value, int | str) else None for value in map(event.get, ("pid", "tid")))
    try:
        args = json.dumps(event_mapping(event.get("args"))).encode()
    except RecursionError:
        args = b"{}"
    start, duration = event_number(event.get("ts")), event_number(event.get("dur"))
    number = msgspec.Raw(str(event["id"]).encode() if isinstance(event.get("id"), int) else b"")
    return TraceEvent(**texts, pid=process, tid=thread, ts=start, dur=duration, args=msgspec.Raw(args), id=number)


class _Text:
    """Text that is decoded as needed; consumed text is discarded."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.at = 0
        self._dropped = 0
        self._has_border = True
        self._name = name
        self.damage = ""
        # read1(), because read() discards data before damage
        self._read_some: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
        self._ended = False
        head = self._block()
        self._decoder = codecs.getincrementaldecoder(encoding_of(head[:4096]))("replace")
        self._text = self._decoder.decode(head)

    @property
    def position(self) -> int:
        """Number of characters before the current position."""
        return self._dropped + self.at

    def whole_events(self) -> str:
        """The text from here to the last border between events in the buffer; "" if there is none."""
        while not (end := self._last_border()):
            if len(self._text) - self.at >= LONGEST_EVENT or not self._more():
                return ""
        return self._text[self.at : end]

    def _last_border(self) -> int:
        """The end of the last object that is followed by another one; 0 if there is none ahead."""
        begin = len(self._text) if self._has_border else 0
        while (begin := self._text.rfind("{", self.at + 1, begin)) > 0:
            if _BEGIN_OF_EVENT.match(self._text, begin):
                end = _END_OF_EVENT.search(self._text, max(self.at, begin - _LONGEST_GAP), begin)
                if end is not None:
                    return end.start() + 1
        self._has_border = False
        return 0

    def has_closed_object(self) -> bool:
        """True if the object that begins here, which may be broken, has its closing brace."""
        depth = 0
        for found in _STRING_OR_BRACE.finditer(self._text, self.at, self.at + _LONGEST_SCAN):
            depth += {"{": 1, "}": -1}.get(found[0], 0)
            if depth <= 0 and found[0] == "}":
                return True
        return False

    def mend(self) -> bool:
        """Replace bare words that are not JSON by null, and escape quotes in names, in the text ahead.

        Returns False if there is nothing to mend.
        """
        ahead = self._text[self.at :]
        mended = _NAME.sub(_with_escaped_quotes, _BARE_WORD.sub(r"\1null", ahead))
        self._text, self.at, self._dropped = mended, 0, self._dropped + self.at
        self._has_border = True
        return mended != ahead

    @property
    def ends_as_an_object(self) -> bool:
        """Whether the rest of the text ends with a closing brace; the whole file has been read."""
        return self._text.rstrip().endswith("}")

    def peek(self, passed: re.Pattern[str] = _SPACE) -> str:
        """The next character after skipping `passed`; "" at the end."""
        while True:
            match = passed.match(self._text, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self._text):
                return self._text[self.at]
            if not self._more():
                return ""

    def expect(self, letter: str) -> None:
        """Consume `letter`. Raises `ValueError` if another character follows."""
        if self.peek() != letter:
            raise ValueError(letter)
        self.at += 1

    def value(self, longest: int) -> Any:
        """Parse the JSON value that starts here.

        Raises `ValueError` if it is broken, nested too deeply, or longer than `longest` characters.
        """
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self.at)
            except (ValueError, RecursionError) as error:
                if len(self._text) - self.at >= longest or not self._as_much_again():
                    raise ValueError(str(error)) from error
                continue
            if end < len(self._text) or not self._more():  # a number may continue in the next block
                self.at = end
                return value

    def skip_to(self, pattern: re.Pattern[str]) -> bool:
        """Advance to the next match of `pattern` after this position; False, at the end, if there is none."""
        self.at += 1
        while (match := pattern.search(self._text, self.at)) is None:
            self.at = max(self.at, len(self._text) - _OVERLAP)
            if not self._more():
                self.at = len(self._text)
                return False
        self.at = match.start()
        return True

    def _as_much_again(self) -> bool:
        """Read until twice as much text is available, since values are parsed again each time; False at the end."""
        enough = 2 * (len(self._text) - self.at)
        if not self._more():
            return False
        while len(self._text) < enough and self._more():
            pass
        return True

    def _more(self) -> bool:
        """Read the next block, dropping consumed text; False at the end."""
        if self._ended:
            return False
        block = self._block()
        self._text = self._text[self.at :] + self._decoder.decode(block, final=self._ended)
        self._dropped += self.at
        self.at = 0
        self._has_border = True
        return True

    def _block(self) -> bytes:
        memory.require_memory(self._name)
        parts: list[bytes] = []
        length = 0
        while length < BLOCK:
            try:
                part = self._read_some(BLOCK - length)
            except (OSError, EOFError, zlib.error, ZstdError) as error:
                self.damage, part = str(error) or type(error).__name__, b""
            if not part:
                self._ended = True
                break
            parts.append(part)
            length += len(part)
        return b"".join(parts)


def _with_escaped_quotes(name: re.Match[str]) -> str:
    return name[1] + _BARE_QUOTE.sub(r'\\"', name[2]) + name[3]


# -------------------------------------------------------------------------------------------------- values of events


def whole_nanoseconds(microseconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Convert finite times below `LONGEST_TIME` to ns exactly: whole microseconds and fraction separately."""
    whole = np.floor(microseconds)
    return whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * NS_PER_US).astype(np.int64)


def lost_times(
    start: npt.NDArray[np.float64], duration: npt.NDArray[np.float64], header: dict[str, Any]
) -> npt.NDArray[np.bool_]:
    """Mask of operations with start = end = 0, whose measurement the profiler lost.

    Times in microseconds. Newer traces count from a base time, so a zero appears as minus the base.
    """
    base = header.get("baseTimeNanoseconds")
    zero = base / NS_PER_US if isinstance(base, int | float) and not isinstance(base, bool) else 0.0
    found: npt.NDArray[np.bool_] = (duration == 0) & ((start == 0) | (np.abs(start + zero) < 1))
    return found


RUNTIMES = ("_runtime", "_driver")


def is_call(category: str) -> bool:
    """True for categories of calls that may launch GPU work: cuda_runtime, hip_runtime, xpu_runtime and the like."""
    return category == "Runtime" or category.endswith(RUNTIMES)


def event_number(value: object) -> float:
    """A finite number that stays finite in nanoseconds; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        number = float(value)
    except OverflowError:
        return math.nan
    return number if abs(number) < LONGEST_TIME else math.nan


def event_whole(value: object, bits: int = 63) -> int | None:
    """A non-negative integer of at most `bits` bits; None for anything else."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**bits:
        return None
    return value


def event_shape(value: object) -> tuple[int, ...] | None:
    """A grid or a block of three integers; None for anything else."""
    if not isinstance(value, list) or len(value) != 3:
        return None
    sizes = [event_whole(size, bits=31) for size in value]
    return None if None in sizes else tuple(size for size in sizes if size is not None)


def event_mapping(value: object) -> dict[str, Any]:
    """An object; {} for anything else."""
    return value if isinstance(value, dict) else {}


class TracedDevice(NamedTuple):
    """Name, compute capability and vendor of a GPU; None if not in the trace."""

    name: str | None
    compute_capability: str | None
    vendor: Vendor | None = None


KEYS_OF_VENDORS = {Vendor.AMD: ("hip_", "roctracer_", "rocprofiler_"), Vendor.NVIDIA: ("cuda_", "cupti_")}
"""Prefixes of header keys that name runtime versions, by vendor."""


def traced_devices(header: dict[str, Any]) -> dict[int, TracedDevice]:
    """The devices of a header by number. The "compute capability" of an AMD device means something else: ignored."""
    found = {}
    listed = header.get("deviceProperties")
    for properties in listed if isinstance(listed, list) else []:
        properties = event_mapping(properties)
        number, name = event_whole(properties.get("id"), bits=31), properties.get("name")
        major, minor = (event_whole(properties.get(f"compute{part}"), bits=31) for part in ("Major", "Minor"))
        if number is None or not isinstance(name, str):
            continue
        nvidia = "AMD" not in name and properties.get("warpSize", 32) == 32
        capability = f"{major}.{minor}" if nvidia and major is not None and minor is not None else None
        found[number] = TracedDevice(name, capability, vendor_named(name) or vendor_of_runtime(header))
    return found


def vendor_of_runtime(header: dict[str, Any]) -> Vendor | None:
    """The vendor whose runtime a trace was recorded from, by the versions that its header names."""
    for vendor, prefixes in KEYS_OF_VENDORS.items():
        if any(key.startswith(prefixes) for key in header):
            return vendor
    return None
