"""Parse the cells of a report: numbers and units in any locale and scale, whole numbers, grids and blocks.

Base units are those of `ncu --print-units base` in current spelling: ns, byte, hz, byte/s, inst/cycle, %. Prefixes are
decimal (1 Mbyte = 1e6 byte). Older spellings are accepted: nsecond for ns, cycle/nsecond for Ghz, Gbyte/second for
Gbyte/s.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

# --------------------------------------------------------------------------------------------------------- units

PREFIXES = {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}

SECONDS_IN_NS = {
    **dict.fromkeys(("ns", "nsecond", "nanosecond", "nanoseconds"), 1.0),
    **dict.fromkeys(("us", "µs", "μs", "usecond", "microsecond", "microseconds"), 1e3),
    **dict.fromkeys(("ms", "msecond", "millisecond", "milliseconds"), 1e6),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1e9),
    **dict.fromkeys(("min", "minute"), 60e9),
}

# Words that take a prefix -> their base spelling.
SCALED_WORDS = {
    "byte": "byte", "bytes": "byte", "B": "byte",
    "hz": "hz", "Hz": "hz", "HZ": "hz",
    "inst": "inst", "cycle": "cycle", "cycles": "cycle", "sector": "sector", "request": "request",
    "warp": "warp", "thread": "thread", "op": "op", "ops": "op",
}  # fmt: skip

KNOWN_BASES = {"ns", "block", "register", *SCALED_WORDS.values()}
"""First words of base units that pages print."""

COUNTED = {
    "",
    "byte",
    "ns",
    "inst",
    "cycle",
    "sector",
    "request",
    "warp",
    "thread",
    "block",
    "op",
    "hz",
    "register/thread",
}
"""Base units of integer quantities, or of values so large that ncu never prints them with exactly three decimals."""


class Unit(NamedTuple):
    """A parsed unit: a value times `factor` is in the base unit `base`."""

    base: str
    factor: float


@lru_cache(maxsize=4096)
def unit(text: str) -> Unit:
    """Parse a printed unit; an unknown text is its own base unit."""
    text = text.strip()
    top, slash, bottom = text.partition("/")
    if top in SECONDS_IN_NS and not slash:
        return Unit("ns", SECONDS_IN_NS[top])
    base, factor = _scaled_word(top)
    if not slash:
        return Unit(base, factor)
    if bottom in SECONDS_IN_NS:
        per_second = factor * 1e9 / SECONDS_IN_NS[bottom]
        return Unit("hz" if base in ("cycle", "") else f"{base}/s", per_second)
    below, divisor = _scaled_word(bottom)
    if top == "%":  # ncu scales the value as a whole, and writes its prefix before the byte: 23,600 is 23.6 %/Kbyte
        divisor = 1 / divisor
    return Unit(f"{base}/{below}", factor / divisor)


def is_unit(text: str) -> bool:
    """True for per cent and units of time, bytes and counts, alone or per another; false for names of metrics."""
    return text == "%" or unit(text).base.partition("/")[0] in KNOWN_BASES


def _scaled_word(word: str) -> tuple[str, float]:
    if word in SCALED_WORDS:
        return SCALED_WORDS[word], 1.0
    if word[:1] in PREFIXES and word[1:] in SCALED_WORDS:
        return SCALED_WORDS[word[1:]], PREFIXES[word[0]]
    return word, 1.0


# ------------------------------------------------------------------------------------------------------- numbers

DECIMALS = (".", ",")
OTHER_GROUPING = "'’ \u00a0\u2009\u202f"
"""Further characters that group thousands, besides the one of . and , that is not the decimal mark."""


@cache
def _form(decimal: str) -> re.Pattern[str]:
    """The pattern of a number with this decimal mark."""
    grouping = "," if decimal == "." else "."
    whole = rf"\d+|\d{{1,3}}(?:[{grouping}{OTHER_GROUPING}]\d{{2,3}})*[{grouping}{OTHER_GROUPING}]\d{{3}}"
    return re.compile(
        rf"(?P<sign>[+-]?)(?P<whole>{whole})?(?:[{decimal}](?P<fraction>\d*))?(?:[eE](?P<exponent>[+-]?\d+))?$"
    )


@cache
def simple_form(decimal: str) -> re.Pattern[str]:
    """The pattern of nearly all numbers that ncu prints: digits, groups of three, decimals (group 1)."""
    grouping = "," if decimal == "." else "."
    return re.compile(rf"(?:[1-9][0-9]{{0,2}}(?:[{grouping}][0-9]{{3}})+|[0-9]+)(?:[{decimal}]([0-9]+))?", re.ASCII)


_NOT_A_DIGIT = r"\D"
_INSTANCES = r"(?s)^(?P<value>\S+) *(?:\((?P<values>.*)\)|\{(?P<count>[\d.,]+)\})$"


class Number(NamedTuple):
    """A value and the step of its last printed digit, both in the printed unit."""

    value: float
    step: float


ENOUGH_VOTES = 1000
"""Inference stops once more numbers than this require one decimal mark and none requires the other."""


class DecimalVotes(dict[str, int]):
    """How many numbers of a table require each decimal mark; the majority decides."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(DECIMALS, 0))

    @property
    def mark(self) -> str:
        """The table's decimal mark; "" while no number requires one."""
        return max(DECIMALS, key=self.__getitem__) if any(self.values()) else ""

    @property
    def is_resolved(self) -> bool:
        """True if so many numbers agree that no further ones are read."""
        return max(self.values()) > ENOUGH_VOTES and not min(self.values())


@dataclass(frozen=True)
class NumberFormat:
    """The number format of a table: decimal mark `.` or `,`; the other one groups thousands."""

    decimal: str = "."

    @classmethod
    def infer(cls, cells: Iterable[tuple[str, str]]) -> NumberFormat:
        """Infer the format of a table from its (text, base unit) cells.

        `65,77` and `27.595.520` require decimal commas, `65.77` and `1,234.5` decimal points; `117.344` and `1,234` are
        ambiguous. If all are ambiguous, points group thousands if every number with one is in a counted unit, because
        ncu prints counts with none, two or six decimals, never three.
        """
        votes = DecimalVotes()
        pointed_counts = other_points = 0
        for text, base in cells:
            found = vote(text)
            if found in votes:
                votes[found] += 1
                if votes.is_resolved:
                    break
            elif found == "?" and "." in text:
                pointed_counts += base in COUNTED
                other_points += base not in COUNTED
        return cls(votes.mark or ("," if pointed_counts and not other_points else "."))

    def parse(self, text: str) -> Number | None:
        """The number in a cell; None if it contains none.

        An unambiguous text is parsed by its own decimal mark, whatever the format.
        """
        simple = simple_form(self.decimal).fullmatch(text)
        if simple is not None:
            return Number(self.value_of(text), 10.0 ** -len(simple[1] or ""))
        decimal = _decimal_mark(text)
        match = _form(decimal if decimal in DECIMALS else self.decimal).match(text)
        if match is None or not (match["whole"] or match["fraction"]):
            return None
        whole, fraction = re.sub(_NOT_A_DIGIT, "", match["whole"] or "0"), match["fraction"] or ""
        exponent = int(match["exponent"] or 0)
        value = float(f"{match['sign']}{whole}.{fraction or 0}e{exponent}")
        if not math.isfinite(value) or abs(exponent) > 300:
            return None
        return Number(value, 10.0 ** (exponent - len(fraction)))

    def value_of(self, text: str) -> float:
        """The value of a text that matches `simple_form`."""
        return float(text.replace(",", "") if self.decimal == "." else text.replace(".", "").replace(",", "."))


def vote(text: str) -> str:
    """The decimal mark that a cell requires; `?` if it is ambiguous, "" if it has no mark or is no number."""
    if text.isdecimal():
        return ""
    decimal = _decimal_mark(text)
    if decimal in DECIMALS and _form(decimal).match(text) is None:
        return ""
    return decimal


@lru_cache(maxsize=65536)
def _decimal_mark(text: str) -> str:
    """The decimal mark that the text requires: `.` or `,`; `?` if it is ambiguous, "" without marks."""
    digits, *exponent = re.split(r"[eE]", text.lstrip("+-"))
    points, commas = digits.count("."), digits.count(",")
    if points and commas:
        return "." if digits.rfind(".") > digits.rfind(",") else ","
    mark, other, count = (".", ",", points) if points else (",", ".", commas)
    if count == 0:
        return ""
    if count > 1:
        return other
    before, _, after = digits.partition(mark)
    groups = len(after) == 3 and 1 <= len(before) <= 3 and before.isdecimal() and not before.startswith("0")
    groups &= not exponent  # numbers with a power of ten are not grouped
    return "?" if groups else mark


def instances(text: str) -> tuple[str, str | None]:
    """Split a cell `x (a; b; c)` or `x {n}` into its value and instance values (None without any)."""
    match = re.match(_INSTANCES, text)
    if match is None:
        return text, None
    return match["value"], match["values"]


# --------------------------------------------------------------------------- rows, whole numbers, grids and blocks

csv.field_size_limit(2**31 - 1)  # kernel names and instance lists have no length limit

MOST_DIGITS = 40
"""Longer digit strings occur in no report; Python refuses to convert thousands of digits."""

DELIMITERS = (",", ";", "\t")

_TRIPLE = re.compile(r"\(?\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)?$")


def split_row(line: str, delimiter: str) -> list[str] | None:
    """The cells of a line; None if a quote is not closed."""
    if line.count('"') % 2:
        return None
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return None


def whole(text: str | None, bits: int = 63) -> int | None:
    """A non-negative integer below 2**bits; None for any other text ("n/a")."""
    digits = text.strip() if text else ""
    number = int(digits) if digits.isdecimal() and len(digits) <= MOST_DIGITS else None
    return number if number is not None and number < 1 << bits else None


def triple(text: str | None) -> tuple[int, int, int] | None:
    """A grid or block such as "(16, 16, 1)" or "  512,  1,  1"; None for any other text."""
    match = _TRIPLE.match(text.strip()) if text else None
    x, y, z = (whole(part, bits=31) for part in match.groups()) if match else (None, None, None)
    return None if x is None or y is None or z is None else (x, y, z)


def present(text: str | None) -> str | None:
    """The stripped cell; None if it is empty or "n/a"."""
    return None if text is None or text.strip() in ("", "n/a") else text.strip()


def capability(text: str | None) -> str | None:
    """A compute capability as "8.0", also from "8,0" and "8" as saved by a spreadsheet; None for no text."""
    major, point, minor = (text or "").strip().replace(",", ".").partition(".")
    return f"{major}.{minor if point else 0}" if major.isdecimal() else text or None
