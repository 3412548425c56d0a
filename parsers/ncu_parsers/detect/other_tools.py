"""Recognise files of other tools, so that their refusal says what they are: `other_tools.toml` lists them."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.sources.sources import encoding_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@lru_cache(maxsize=1)
def _tools() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["tool"]
    return found


def of_other_tool(name: str, head: bytes) -> NotAReport | None:
    """The refusal of a file by its first bytes, name or first words; None if it is not known whose it is."""
    text = head.decode(encoding_of(head), "replace")
    for tool in _tools():
        words = tool.get("words", [])
        if (
            any(head.startswith(magic.encode()) for magic in tool.get("magic", []))
            or name.lower().endswith(tuple(tool.get("suffixes", [])))
            or (words and all(word in text for word in words))
        ):
            return NotAReport(f"{name} {tool['what']}.", tool["cause"], tool["advice"].replace("-i FILE", f"-i {name}"))
    return None
