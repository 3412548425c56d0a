"""Recognise files of other tools that a user passed by mistake, and say what to do instead."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ncu_launch.files.toml_tables import table_beside

from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.sources.sources import encoding_of


def of_other_tool(name: str, head: bytes) -> NotAReport | None:
    """The refusal of a file by its first bytes, name or first words; None if no tool of `other_tools.toml` wrote it."""
    text = head.decode(encoding_of(head), "replace")
    for tool in _tools():
        if (
            any(head.startswith(magic.encode()) for magic in tool.get("magic", []))
            or name.lower().endswith(tuple(tool.get("suffixes", [])))
            or _has_words(tool, text)
        ):
            return NotAReport(f"{name} {tool['what']}.", tool["cause"], tool["advice"].replace("-i FILE", f"-i {name}"))
    return None


def is_tar(head: bytes) -> bool:
    """True for the first bytes of a tar archive; read as text, its files would look like one."""
    return head[257:262] == b"ustar"


def is_json_of_other_tool(head: bytes) -> bool:
    """True if a file's first bytes are another tool's JSON, which may look like a trace of PyTorch's profiler."""
    if not head.lstrip().startswith((b"{", b"[")):
        return False
    text = head.decode(encoding_of(head), "replace")
    return any(tool.get("json", False) and _has_words(tool, text) for tool in _tools())


def _has_words(tool: dict[str, Any], text: str) -> bool:
    words = tool.get("words", [])
    return bool(words) and all(word in text for word in words)


@lru_cache(maxsize=1)
def _tools() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table_beside(__file__, "other_tools")["tool"]
    return found
