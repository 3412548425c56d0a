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

LIBRARY = "d3.min.js"
SCRIPTS = (LIBRARY, "numbers.js", "tables.js", "roofline.js", "report.js")
"""In the order in which they run: each uses only those before it."""

INSIDE_SCRIPT, INSIDE_STYLES = "inside.js", "inside.css"
"""Only in pages that show the inside of kernels; the script comes right before the last one, which uses it."""

STYLES = "report.css"
TEMPLATE = "report.html"
LICENCE = "d3.LICENSE"

_PLACES = re.compile(r"\{\{(\w+)\}\}")
_ESCAPED = {character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def page(content: dict[str, Any]) -> str:
    """The report as the text of an HTML file."""
    names = [*SCRIPTS[:-1], INSIDE_SCRIPT, SCRIPTS[-1]] if "inside" in content else SCRIPTS
    scripts = [asset(name) for name in names]
    styles = asset(STYLES) + (asset(INSIDE_STYLES) if "inside" in content else "")
    parts = {
        "policy": _policy(scripts, styles),
        "styles": f"<style>{styles}</style>",
        "licence": asset(LICENCE),
        "content": embedded(content),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    return _PLACES.sub(lambda place: parts[place[1]], asset(TEMPLATE))


def embedded(value: Any) -> str:
    """JSON that is safe in a script element: ASCII, without characters that have a meaning in HTML.

    Raises `ValueError` on NaN and infinities, which JSON lacks.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return "".join(_ESCAPED.get(character, character) for character in text)


def asset(name: str) -> str:
    """The text of a file in `assets`, with the line ends that a browser hashes."""
    text = (Path(__file__).parent / "assets" / name).read_text("utf-8")
    return text.replace("\r\n", "\n")


def _policy(scripts: list[str], styles: str) -> str:
    """The Content-Security-Policy: no request, no other script, no style but ours, no form, no base address."""
    allowed = {"default-src": ["'none'"], "base-uri": ["'none'"], "form-action": ["'none'"]}
    allowed["img-src"] = ["data:"]  # the page's empty icon; without it a browser requests one from the server
    allowed["script-src"] = [_hash(script) for script in scripts]
    allowed["style-src"] = [_hash(styles)]
    return "; ".join(f"{directive} {' '.join(sources)}" for directive, sources in allowed.items())


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
