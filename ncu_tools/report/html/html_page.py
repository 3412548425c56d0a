"""The HTML report: the result of `html_content` in one page that needs no network and trusts no name in it.

The content is JSON in which no character can end or begin markup, and the scripts insert it as text only. A
Content-Security-Policy allows the scripts and the style sheet of the page by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from ncu_tools.report.plot.memory_chart import layout

LIBRARY = "d3.min.js"
SCRIPTS = (
    LIBRARY, "numbers.js", "tables.js", "address.js", "tips.js", "take_along.js", "roofline.js", "summary.js",
    "kernel_panel.js", "report.js",
)  # fmt: skip
"""In execution order: each uses only earlier ones."""

OPTIONAL = {
    "groups": ("several/runs.js", "several/runs.css"),
    "timeline": ("timeline/lanes.js", "timeline/lanes.css"),
    "levers": ("levers.js", "levers.css"),
    "pairs": ("several/pairs.js", "several/pairs.css"),
    "parts": ("parts.js", "parts.css"),
    "inside": ("inside.js", "inside.css"),
}
"""Script and style for optional page content; the scripts come right before the last one, which uses them."""

FINE_PARTS = "fine_parts"
"""Content in elements of its own, as texts of gzip in base64, which the page decodes as it needs them."""
PART = '<script type="text/plain" id="part-{}">{}</script>\n'

PAGE_LETTERS, LEAST_LETTERS = 1_500_000, 20_000
"""Characters of JSON with which a page is under 2 MB, and the minimum that a part of the page may take."""

STYLES = "report.css"
TEMPLATE = "report.html"
LICENCE = "d3.LICENSE"

_PLACES = re.compile(r"\{\{(\w+)\}\}")
_ESCAPED = {character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def page(content: dict[str, Any]) -> str:
    """The report as the text of an HTML file."""
    also = [files for name, files in OPTIONAL.items() if name in content]
    scripts = [asset(name) for name in (*SCRIPTS[:-1], *(script for script, _ in also), SCRIPTS[-1])]
    styles = "".join(asset(name) for name in (STYLES, *(style for _, style in also)))
    parts = {
        "policy": _policy(scripts, styles),
        "styles": f"<style>{styles}</style>",
        "licence": asset(LICENCE),
        "content": embedded({name: one for name, one in content.items() if name != FINE_PARTS}),
        "parts": _beside_content(content),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    return _PLACES.sub(lambda place: parts[place[1]], asset(TEMPLATE))


def _beside_content(content: dict[str, Any]) -> str:
    """What a page has beside its JSON: the layout of memory charts, and parts of lanes."""
    chart = f'<template id="memory-chart">{layout()}</template>\n' if "parts" in content else ""
    return chart + "".join(PART.format(number, text) for number, text in enumerate(content.get(FINE_PARTS, ())))


def embedded(value: Any) -> str:
    """JSON that is safe in a script element: ASCII, without characters that have a meaning in HTML.

    Raises `ValueError` on NaN and infinities, which JSON lacks.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character, escaped in _ESCAPED.items():
        text = text.replace(character, escaped)
    return text


def room_beside(rest: dict[str, Any], most: int) -> int:
    """The characters of JSON that a part of the page may take beside the rest of its content, `most` at most."""
    return max(min(most, PAGE_LETTERS - len(embedded(rest))), LEAST_LETTERS)


def asset(name: str) -> str:
    """The text of a file in `assets`, with the line ends that a browser hashes."""
    text = (Path(__file__).parent / "assets" / name).read_text("utf-8")
    return text.replace("\r\n", "\n")


def _policy(scripts: list[str], styles: str) -> str:
    """The Content-Security-Policy: no request, no other script, no style but ours, no form, no base address."""
    allowed = {"default-src": ["'none'"], "base-uri": ["'none'"], "form-action": ["'none'"]}
    allowed["img-src"] = ["data:"]  # the page's empty icon; without it a browser requests one from the server
    allowed["script-src"] = [style_hash(script) for script in scripts]
    allowed["style-src"] = [style_hash(styles)]
    return "; ".join(f"{directive} {' '.join(sources)}" for directive, sources in allowed.items())


def style_hash(text: str) -> str:
    """What a Content-Security-Policy knows a script or a style sheet of the page by."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
