"""Short keys of kernels, which commands print for programs and accept: --id.

A key depends on the full name alone, so it is the same in every run, and a program need not quote names of a thousand
characters.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache

from ncu_launch.errors import WrongUsage

DIGITS = 10
"""Hexadecimal digits: of 10,000 names, two have the same key with a probability of 5e-5."""
_ID = re.compile(rf"k[0-9a-f]{{{DIGITS}}}")


@lru_cache(maxsize=65536)
def kernel_id(name: str) -> str:
    """The key of a kernel by its full name, such as "k1f0c2b9a7d"."""
    return "k" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def is_kernel_id(text: str) -> bool:
    """True if a text has the form of a key."""
    return _ID.fullmatch(text) is not None


def require_ids(ids: Iterable[str]) -> None:
    """Raise `WrongUsage` for a text that does not have the form of a key."""
    for text in ids:
        if not is_kernel_id(text):
            raise WrongUsage(
                f"--id {text!r} is no key of a kernel.",
                f"A key is k and {DIGITS} digits, as k1f0c2b9a7d; names are searched by --kernel.",
                "ncu-bench hotspots RUN --format json lists the keys of a run's kernels.",
            )


def of_ids(names: Iterable[str], ids: Iterable[str]) -> frozenset[str]:
    """The full names that have one of these keys."""
    wanted = set(ids)
    return frozenset(name for name in names if kernel_id(name) in wanted)
