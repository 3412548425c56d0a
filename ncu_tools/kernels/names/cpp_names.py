"""C++ names of kernels in parts: the path of the function, and the template arguments of each part."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from ncu_tools.kernels.names.kernel_name_spelling import normalised_name

KNOWN_NAMES = 65536
"""Most parsed names that are cached."""

MOST_LETTERS = 20_000
"""Most characters of a name that are examined: reports are untrusted, and patterns are slow on endless names."""

COPY = re.compile(r"\[|Mem(?:cpy|set)\b")
"""Beginnings of copy names in nsys and PyTorch's profiler, which are not functions."""

_VERSION = re.compile(r"(?:CUB|THRUST|ROCPRIM)_\w+|__\d+")
"""Inline namespaces of versions: cub::CUB_200600_890_NS is cub."""

_OPENING, _CLOSING = "<({[", ">)}]"


class NamePart(NamedTuple):
    """One part of a path between `::`: an identifier, and its template arguments."""

    name: str
    arguments: tuple[str, ...]


def prepared(name: str) -> str:
    """The normalised name, with unnamed scopes and operators as single words."""
    text = normalised_name(name).replace("(anonymous namespace)", "{unnamed}")
    return re.sub(r"\boperator(?:\(\)|[^\w\s(]+)", "operator", text).replace(")const", ")").replace("->", "")


def path_of(text: str) -> list[NamePart]:
    """The parts of a qualified name, without return type, parameters, versions, and lambdas at its end."""
    words = list(split_outside_brackets(re.sub(r"(?: const|[*&])+$", "", text), " "))
    parts = [_part(piece) for piece in split_outside_brackets(words[-1], "::")] if words else []
    kept = [part for part in parts if part is not None and not _VERSION.fullmatch(part.name)]
    while len(kept) > 1 and ("lambda" in kept[-1].name or kept[-1].name == "operator"):
        kept.pop()
    return kept


def _part(piece: str) -> NamePart | None:
    found = re.match(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|[~\w$.@-]+", piece)
    if found is None:
        return None
    rest = piece[found.end() :]
    if not rest.startswith("<"):
        return NamePart(found[0], ())
    inside = next(split_outside_brackets(rest[1:], ">"))
    return NamePart(found[0], tuple(argument.strip() for argument in split_outside_brackets(inside, ",")))


def split_outside_brackets(text: str, separator: str) -> Iterator[str]:
    """Split a text at separators outside all brackets."""
    depth, start = 0, 0
    for found in _bracket_or(separator).finditer(text):
        if depth == 0 and found[0] == separator:
            yield text[start : found.start()]
            start = found.end()
        elif found[0] in _OPENING:
            depth += 1
        elif found[0] in _CLOSING:
            depth = max(depth - 1, 0)
    yield text[start:]


@lru_cache
def _bracket_or(separator: str) -> re.Pattern[str]:
    return re.compile(f"{re.escape(separator)}|[{re.escape(_OPENING + _CLOSING)}]")
