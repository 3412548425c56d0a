"""A JSON document whose long arrays are read in parts: values one at a time, elements of an array many at once."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, TypeVar

import msgspec

from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import DAMAGE, encoding_of, read_some

Element = TypeVar("Element")
BLOCK = 1 << 20
LONGEST_VALUE = 1 << 26
"""Most characters of a value outside the long arrays, and of one of their elements."""
_SPACE = re.compile(r"\s*")
_FIRST_KEY = re.compile(r'\{\s*"([^"\\]{1,64})"\s*:')
_ANY = json.JSONDecoder(strict=False)


class Cut(Exception):
    """The document ends or breaks before its end."""


class JsonElements:
    """Walks a document from its beginning. `broken` counts elements that could not be read.

    Raises `memory.TooBig` if the process exceeds its memory limit, `Cut` where the document ends too early.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.broken = 0
        self._stream, self._name = stream, name
        self._at, self._ended = 0, False
        head = self._bytes()
        self._decoder = codecs.getincrementaldecoder(encoding_of(head[:4096]))("replace")
        self._text = self._decoder.decode(head, final=self._ended)

    def members(self) -> Iterator[str]:
        """The keys of the object that begins here; the caller consumes each value."""
        self._expect("{")
        while (letter := self.peek()) != "}":
            self._at += letter == ","
            key = self.value()
            if not isinstance(key, str):
                raise Cut
            self._expect(":")
            yield key
        self._at += 1

    def items(self) -> Iterator[None]:
        """Stops at each element of the array that begins here; the caller consumes it."""
        self._expect("[")
        while (letter := self.peek()) != "]":
            self._at += letter == ","
            yield None
        self._at += 1

    def elements(self, decoder: msgspec.json.Decoder[list[Element]]) -> Iterator[list[Element]]:
        """The objects of the array that begins here, many at a time; broken ones are counted and left out."""
        self._expect("[")
        border: re.Pattern[str] | None = None
        while (letter := self.peek()) != "]":
            self._at += letter == ","
            self.peek()
            if border is None and (first := self._first_key()):
                border = re.compile(r"\}\s*,\s*(?=\{\s*" + re.escape(json.dumps(first)) + r"\s*:)")
            if border is not None and (end := self._last_border(border)):
                try:
                    found = decoder.decode(f"[{self._text[self._at : end]}]".encode())
                except (msgspec.DecodeError, ValueError, RecursionError):
                    pass  # one by one, to lose only what is broken
                else:
                    self._at = end
                    yield found
                    continue
            value = self.value()
            try:
                yield decoder.decode(json.dumps([value]).encode())
            except (msgspec.DecodeError, ValueError, RecursionError):
                self.broken += 1
        self._at += 1

    def peek(self) -> str:
        """The next letter that is no space. Raises `Cut` at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                raise Cut

    def value(self) -> Any:
        """The value that begins here, whole."""
        self.peek()
        while True:
            try:
                value, end = _ANY.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if len(self._text) - self._at >= LONGEST_VALUE or not self._as_much_again():
                    raise Cut from error
                continue
            if end < len(self._text) or not self._more():  # a number may go on in the next block
                self._at = end
                return value

    def _expect(self, letter: str) -> None:
        if self.peek() != letter:
            raise Cut
        self._at += 1

    def _first_key(self) -> str:
        found = _FIRST_KEY.match(self._text, self._at)
        return found[1] if found else ""

    def _last_border(self, border: re.Pattern[str]) -> int:
        """The end of the last object in the buffer that another element follows; 0 if there is none."""
        if len(self._text) - self._at < BLOCK // 2:
            self._more()
        low = max(self._at, len(self._text) - (1 << 14))
        while True:
            found = [match.start() + 1 for match in border.finditer(self._text, low)]
            if found or low == self._at:
                return found[-1] if found else 0
            low = self._at

    def _as_much_again(self) -> bool:
        enough = 2 * (len(self._text) - self._at)
        grew = self._more()
        while grew and len(self._text) < enough and self._more():
            pass
        return grew

    def _more(self) -> bool:
        if self._ended:
            return False
        block = self._bytes()
        self._text = self._text[self._at :] + self._decoder.decode(block, final=self._ended)
        self._at = 0
        return bool(block)

    def _bytes(self) -> bytes:
        memory.require_memory(self._name)
        parts: list[bytes] = []
        while not self._ended and sum(map(len, parts)) < BLOCK:
            try:
                part = read_some(self._stream, BLOCK)
            except DAMAGE:
                part = b""
            self._ended = not part
            parts.append(part)
        return b"".join(parts)
