"""Random changes of numbers, texts, rows and bytes that leave most of a file readable."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

NAMES = (
    "gemm", "void f<int, 2>(T1 *, float)", 'say "hi", twice', "a;b", "k\u00e4rnel", "ns::op<(bool)1>(int)::{lambda#1}",
    " spaces ", "1234", "nan", "x" * 300, "=1+1", "(8, 1, 1)", "kernel\u2028line", "tab\tbed", "%s%n", "0", "n/a",
)  # fmt: skip
"""Names that a program can give a kernel, a range or a metric."""


def whole(rng: random.Random) -> int:
    """A count of any size, zero included."""
    return rng.choice((0, 1, rng.randrange(10), rng.randrange(1000), rng.randrange(10**6), rng.randrange(2**53), 2**31))


def real(rng: random.Random) -> float:
    """A number of any size and sign."""
    return rng.choice((0.0, rng.random(), rng.uniform(-10, 1e6), 10.0 ** rng.uniform(-12, 18), 0.1 + 0.2, 1 / 3))


def some(rng: random.Random, most: int = 4) -> range:
    """How often to change something: once or a few times."""
    return range(rng.randint(1, most))


def moved(rng: random.Random, rows: Sequence[Any]) -> list[Any]:
    """The rows with one moved, lost or repeated, or all in another order."""
    rows = list(rows)
    if not rows:
        return rows
    at = rng.randrange(len(rows))
    change = rng.randrange(5)
    if change == 0:
        rows.insert(rng.randrange(len(rows)), rows.pop(at))
    elif change == 1 and len(rows) > 1:
        del rows[at]
    elif change == 2:
        rows.insert(rng.randrange(len(rows) + 1), rows[at])
    elif change == 3:
        rng.shuffle(rows)
    else:
        other = rng.randrange(len(rows))
        rows[at], rows[other] = rows[other], rows[at]
    return rows


def damaged_bytes(rng: random.Random, data: bytes) -> bytes:
    """The bytes with one of: a digit changed, a bit flipped, some lost, some repeated, or the end cut off."""
    if not data:
        return data
    at = rng.randrange(len(data))
    change = rng.randrange(5)
    if change == 0:
        digits = [place for place, byte in enumerate(data) if 48 <= byte < 58]
        place = rng.choice(digits) if digits else at
        return data[:place] + b"%d" % rng.randrange(10) + data[place + 1 :]
    if change == 1:
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if change == 2:
        return data[:at] + data[at + rng.randint(1, 9) :]
    if change == 3:
        length = rng.randint(1, 40)
        return data[: at + length] + data[at:]
    return data[:at]


def seldom_damaged(rng: random.Random, data: bytes) -> bytes:
    """The bytes, damaged in one input of six."""
    return damaged_bytes(rng, data) if rng.randrange(6) == 0 else data
