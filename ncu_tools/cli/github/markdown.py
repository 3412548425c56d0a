"""A comparison as a comment on GitHub: gates first, rows that changed with arrows, the rest folded, links to lines.

Names are data from reports. They are escaped as in all Markdown, and can mention nobody, refer to no issue and link
nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ncu_launch.notes import shown_notes

from ncu_tools.cli.github.annotations import PlacedOutcome, run_link, source_link
from ncu_tools.compare.gate import FROM_GOOD_TO_BAD, PASSED, TRIPPED
from ncu_tools.kernels.names.readable_names import readable_name
from ncu_tools.numbers.number_format import counted
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.head import Head
from ncu_tools.report.table import Column, Table, cell, markdown_text, to_markdown

ARROWS = {"slower": "▲ ", "more": "▲ ", "faster": "▼ ", "less": "▼ "}
UNCHANGED = ("same", "no change shown")
VERDICT = "verdict"
GATES = columns("gate outcome~0 reason")
_BREAKS = re.compile(r"(@|#|://|www\.)")
"""Text that GitHub turns into mentions, references and links."""


def gates_in_markdown(outcomes: Mapping[str, Sequence[PlacedOutcome]]) -> str:
    """A heading with the worst outcome, the table of gates, and the lines of kernels that they found; "" without."""
    every = [one for ones in outcomes.values() for one in ones]
    if not every:
        return ""
    worst = max((one.outcome.outcome for one in every), key=FROM_GOOD_TO_BAD.index)
    how_many = sum(one.outcome.outcome == worst for one in every)
    held = f"{counted(len(every), 'gate', 'gates')} held" if worst == PASSED else f"{how_many} of {len(every)} {worst}"
    rows = [
        {
            "gate": one.outcome.gate.text,
            "outcome": _marked(one.outcome.outcome),
            "reason": one.outcome.reason.replace(" -> ", " → "),
        }
        for one in every
    ]
    linked = [f"* {_place(name, one)}" for one in every for name in one.lines]
    return "\n".join([f"### ncu-bench: {held}", "", quiet(to_markdown(Table("gates", GATES, rows))), "", *linked])


def _marked(outcome: str) -> str:
    return f"❌ {outcome}" if outcome == TRIPPED else f"✅ {outcome}" if outcome == PASSED else f"⚠️ {outcome}"


def _place(name: str, one: PlacedOutcome) -> str:
    place = one.lines[name]
    words, link = quiet(markdown_text(f"{place.file}:{place.line}")), source_link(place)
    return f"{quiet(markdown_text(readable_name(name)))}: " + (f"[{words}]({link})" if link else words)


def table_in_markdown(table: Table, heads: Sequence[Head]) -> str:
    """The rows that changed, with arrows; then the others, the runs and the notes, folded."""
    table = _with_arrows(table)
    is_plain = [row.get(VERDICT) in UNCHANGED for row in table.rows]
    plain, changed = (
        [row for row, its in zip(table.rows, is_plain, strict=True) if its is wanted] for wanted in (True, False)
    )
    parts = [to_markdown(replace(table, rows=changed, notes=()))] if changed else []
    if plain:
        title = f"{counted(len(plain), 'row', 'rows')} without a change"
        parts.append(folded(title, to_markdown(replace(table, rows=plain, notes=()))))
    told = [*(markdown_text(head.text()) for head in heads), *(f"* {markdown_text(note)}" for note in _notes(table))]
    parts += [folded("Runs and notes", "\n\n".join(told))] if told else []
    link = run_link()
    return quiet("\n\n".join(parts)) + (f"\n\n[Run and artefacts]({link})" if link else "")


def _notes(table: Table) -> list[str]:
    return [str(note) for note in shown_notes(list(dict.fromkeys(table.notes)))]


def folded(title: str, text: str) -> str:
    """Markdown that is folded until clicked."""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def quiet(markdown: str) -> str:
    """Markdown without mentions, references and links: a zero-width space is inserted into each."""
    return _BREAKS.sub(lambda found: f"{found[0][:1]}\u200b{found[0][1:]}", markdown)


def _with_arrows(table: Table) -> Table:
    """The table with base and new values in one cell, `98.4 µs → 61.4 µs`, and an arrow before each verdict."""
    pairs = _pairs(table.columns)
    rows = []
    for row in table.rows:
        told: dict[str, Any] = {
            name: value.replace(" -> ", " → ") for name, value in row.items() if isinstance(value, str)
        }
        for name, (base, new) in pairs.items():
            before, after = cell(base, row), cell(new, row)
            told[name] = f"{before} → {after}" if before and after else before or after or None
        verdict = row.get(VERDICT)
        if isinstance(verdict, str):
            told[VERDICT] = ARROWS.get(verdict.partition(",")[0], "") + verdict
        rows.append({**row, **told})
    taken = {one.name for pair in pairs.values() for one in pair}
    kept = [_merged(one, pairs) for one in table.columns if one.name not in taken or one.name in pairs]
    return replace(table, columns=kept, rows=rows)


def _pairs(shown: Sequence[Column]) -> dict[str, tuple[Column, Column]]:
    """Name of a column of the base -> this column and the corresponding one of the new run."""
    known = {one.name: one for one in shown}
    return {
        one.name: (one, known[other])
        for one in shown
        if one.name.startswith("base_") and (other := f"new_{one.name.removeprefix('base_')}") in known
    }


def _merged(one: Column, pairs: Mapping[str, tuple[Column, Column]]) -> Column:
    if one.name not in pairs:
        return one
    return one._replace(title=one.title.removeprefix("base ").strip(), kind="text")
