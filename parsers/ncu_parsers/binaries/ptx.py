"""The kernels of a PTX file, with the launch bounds in its directives. Source: "PTX ISA", directives."""

from __future__ import annotations

import re

from ncu_parsers.binaries.kernel_resources import PtxKernel

_TARGET = re.compile(r"^\s*\.target\s+(\w+)", re.MULTILINE)
_ENTRY = re.compile(r"\.entry\s+([\w$.%]+)")
_BOUND = re.compile(r"\.(maxntid|reqntid|minnctapersm)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_BEGINNING = re.compile(r"\s*(?://[^\n]*\s*|/\*.*?\*/\s*)*\.version\s+\d", re.DOTALL)
MOST_BEGINNING = 1 << 14


def is_ptx(head: bytes) -> bool:
    """True for the first bytes of a PTX file: comments, then its version."""
    text = head[:MOST_BEGINNING].decode("utf-8", "replace")
    return ".version" in text and _BEGINNING.match(text) is not None


def ptx_kernels(text: str) -> list[PtxKernel]:
    """The kernels of a PTX text, in text order."""
    target = _TARGET.search(text)
    found = []
    for entry in _ENTRY.finditer(text):
        body = text.find("{", entry.end())
        bounds = {
            match[1]: tuple(int(one or 1) for one in match.groups()[1:])
            for match in _BOUND.finditer(text, entry.end(), body if body >= 0 else len(text))
        }
        blocks = bounds.get("minnctapersm")
        found.append(
            PtxKernel(
                entry[1],
                target[1] if target else "",
                _three(bounds.get("maxntid")),
                _three(bounds.get("reqntid")),
                blocks[0] if blocks else None,
            )
        )
    return found


def _three(numbers: tuple[int, ...] | None) -> tuple[int, int, int] | None:
    return None if numbers is None else (numbers[0], numbers[1], numbers[2])
