"""Recognise files of other tools, so that their refusal says what they are: `other_tools.toml` lists them."""

from __future__ import annotations

from ncu_launch.files.toml_tables import table_beside

from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.sources.sources import encoding_of


def of_other_tool(name: str, head: bytes) -> NotAReport | None:
    """The refusal of a file by its first bytes, name or first words; None if it is not known whose it is."""
    text = head.decode(encoding_of(head), "replace")
    for tool in table_beside(__file__, "other_tools")["tool"]:
        words = tool.get("words", [])
        if (
            any(head.startswith(magic.encode()) for magic in tool.get("magic", []))
            or name.lower().endswith(tuple(tool.get("suffixes", [])))
            or (words and all(word in text for word in words))
        ):
            return NotAReport(f"{name} {tool['what']}.", tool["cause"], tool["advice"].replace("-i FILE", f"-i {name}"))
    return None
