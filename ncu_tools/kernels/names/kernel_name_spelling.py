"""Normalise kernel names, which tools spell differently.

ncu and nsys print `void f<(int)128, (bool)1, <unnamed>::T>(const float *, T1)` where PyTorch's profiler prints `void
f<128, true, (anonymous namespace)::T >(float const*, float)`. Casts, spaces, literals, lambdas and the place of `const`
can be normalised; parameters that one tool prints by number and the other by type cannot, so names are also compared
without parameters.
"""

from __future__ import annotations

import re
from functools import lru_cache

_CAST = re.compile(r"\([A-Za-z_][\w:]*(?: [\w:]+)*\)(?=-?\d)")
_SUFFIX = re.compile(r"\b(\d+)[uUlL]+\b")
_LAMBDA = re.compile(r"\[lambda\((.*?)\) \(instance (\d+)\)\]")
_LEADING_CONST = re.compile(r"\bconst ([A-Za-z_][\w:]*)")
_AROUND_SIGNS = re.compile(r"\s*([^\w\s])\s*")
_LITERALS = ((re.compile(r"\btrue\b"), "1"), (re.compile(r"\bfalse\b"), "0"))


@lru_cache(maxsize=65536)
def normalised_name(name: str) -> str:
    """The name in one normalised spelling, whatever tool printed it."""
    text = " ".join(name.split()).removeprefix("void ").replace("<unnamed>", "(anonymous namespace)")
    text = _LAMBDA.sub(r"{lambda(\1)#\2}", text)
    text = _SUFFIX.sub(r"\1", _CAST.sub("", text))
    for literal, number in _LITERALS:
        text = literal.sub(number, text)
    return _AROUND_SIGNS.sub(r"\1", _LEADING_CONST.sub(r"\1 const", text)).strip()


@lru_cache(maxsize=65536)
def drop_parameters(name: str) -> str:
    """The name normalised, without the list of parameters at its end."""
    text = normalised_name(name)
    if not text.endswith(")"):
        return text
    depth = 0
    for place in range(len(text) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(text[place], 0)
        if depth == 0:
            return text if text[:place].endswith("operator") else text[:place]
    return text


def is_bare(name: str) -> bool:
    """True if the name has neither template arguments nor parameters, as with `--kernel-name-base function`."""
    return "<" not in name and "(" not in name
