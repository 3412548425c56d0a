"""A page of tables and pictures as one HTML file in which no script runs, for histories and insides of kernels.

Texts are escaped, pictures are SVG inside of images, where nothing is executed, and a Content-Security-Policy allows
the style sheet and these images, and nothing else.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from html import escape
from typing import Any

from ncu_tools.kernels.kernel_row import KERNEL, names_shown
from ncu_tools.report.html.html_page import STYLES, asset, style_hash
from ncu_tools.report.table import Column, Table, cell, printable

OWN_STYLE = """
main { max-width: 75rem; margin: 0 auto; padding: 1rem; font-family: var(--sans); }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem; border-bottom: 1px solid var(--line); }
td { max-width: 40rem; white-space: normal; }
.sentence { min-width: 16rem; }
td, figcaption { overflow-wrap: break-word; }
figure { margin: 1rem 0; }
.scrolled { --cover: var(--page); }
figure img { max-width: 100%; background: #ffffff; }
@media (max-width: 640px) { figure img { max-width: none; width: 640px; } }
"""
LONG = 40
"""Length of texts from which a cell gets at least the width of a sentence."""
_BEHIND = re.compile(r"(?<=[_/\\.,:;>)])(?=\w)(?!(?<=\d[.,])\d)")
"""Places at which a name may break: after a separator."""
_UNIT = re.compile(r"(?<=\d) (?=%|[nµm]?s\b|[kMGTPE]?(?:B|FLOP)\b)")


def still_page(
    title: str, head: str, tables: Sequence[tuple[str, Table]], pictures: Sequence[tuple[str, bytes]]
) -> str:  # fmt: skip
    """The page as text: a title, a line on the runs, titled tables with their notes, and titled pictures (SVG)."""
    styles = asset(STYLES) + OWN_STYLE
    policy = f"default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src {style_hash(styles)}"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy, quote=True)}">',
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">',
        f"<title>{_text(title)}</title><style>{styles}</style></head><body><main>",
        f"<h1>{_text(title)}</h1><p>{_text(head)}</p>",
        *(_table(name, table) for name, table in tables if table.rows),
        *(_figure(name, svg) for name, svg in pictures),
        *(f"<p>{_text(note)}</p>" for _, table in tables for note in table.notes),
        "</main></body></html>\n",
    ]
    return "\n".join(parts)


def _text(text: str) -> str:
    return escape(printable(text))


def _table(name: str, table: Table) -> str:
    label = escape(printable(name or ", ".join(column.title for column in table.columns)), quote=True)
    title = f"<h2>{_text(name)}</h2>" if name else ""
    columns = table.shown_columns()
    head = "".join(f"<th>{_text(column.title)}</th>" for column in columns)
    of_kernels = [column.name for column in columns if column.kind == KERNEL]
    short = names_shown({row[name] for name in of_kernels for row in table.rows if row.get(name)})

    def shown(column: Column, row: dict[str, Any]) -> str:
        whole = cell(column, row)
        name = short.get(row.get(column.name) or "", whole) if column.name in of_kernels else whole
        hint = f' title="{escape(whole, quote=True)}"' if name != whole else ""
        kind = ' class="sentence"' if len(name) > LONG else ""
        return f"<td{kind}{hint}>{_breakable(name)}</td>"

    rows = ("".join(shown(column, row) for column in columns) for row in table.rows)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'{title}<div class="scrolled" role="region" tabindex="0" aria-label="{label}">{whole}</div>'


def _breakable(text: str) -> str:
    """A text that may break after separators of names, but not between a number and its unit, nor within an arrow."""
    pieces = _BEHIND.split(_UNIT.sub("\u00a0", printable(text)))
    return "<wbr>".join(map(escape, pieces)).replace("-&gt;", '<span class="together">-&gt;</span>')


def _figure(name: str, svg: bytes) -> str:
    title = _text(name)
    source, alt = base64.b64encode(svg).decode(), escape(printable(name), quote=True)
    picture = f'<img alt="{alt}" src="data:image/svg+xml;base64,{source}">'
    return f'<figure class="scrolled" tabindex="0"><figcaption>{title}</figcaption>{picture}</figure>'
