"""A page of tables and pictures as one HTML file in which no script runs, for histories and insides of kernels.

Texts are escaped, pictures are SVG inside of images, where nothing is executed, and a Content-Security-Policy allows
the style sheet and these images, and nothing else.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from ncu_tools.report.html.html_page import STYLES, asset, style_hash
from ncu_tools.report.table import Table, cell, printable

OWN_STYLE = """
main { max-width: 75rem; margin: 0 auto; padding: 1rem; font-family: var(--sans); }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem; border-bottom: 1px solid var(--line); }
td { max-width: 40rem; overflow-wrap: anywhere; white-space: normal; }
figure { margin: 1rem 0; }
figure img { max-width: 100%; background: #ffffff; }
"""


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
    title = f"<h2>{_text(name)}</h2>" if name else ""
    columns = table.shown_columns()
    head = "".join(f"<th>{_text(column.title)}</th>" for column in columns)
    rows = ("".join(f"<td>{escape(cell(column, row))}</td>" for column in columns) for row in table.rows)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _figure(name: str, svg: bytes) -> str:
    title = _text(name)
    source, alt = base64.b64encode(svg).decode(), escape(printable(name), quote=True)
    return (
        f'<figure><figcaption>{title}</figcaption><img alt="{alt}" src="data:image/svg+xml;base64,{source}"></figure>'
    )
