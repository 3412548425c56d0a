"""Write the golden files and expectations anew: python -m tests.update_expectations. Read the diff before committing."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ncu_parsers.schema import instance_table, instructions_table
from ncu_parsers.schema.tables import COLUMNS, Field

from tests.conftest import ROOT
from tests.support import hottest_places as hottest
from tests.support import mistakes
from tests.support.reports import sample_files, shared_reports, summed_up
from tests.whole.test_samples import GOLDEN, golden_of

EXPECTATIONS = ROOT / "tests" / "expectations" / "ncu_csv.json"


def write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


PAGES = {
    "architecture.md": COLUMNS, "dialects.md": instance_table.COLUMNS, "source.md": instructions_table.COLUMNS,
}  # fmt: skip
"""Pages of docs/ with the columns of a contract."""


def columns_table(columns: Sequence[Field]) -> str:
    """The columns of a contract as a table of a page."""
    kinds = {
        "dictionary<values=string, indices=int32, ordered=0>": "string",
        "list<item: int32>": "list of 3 int32",
        "list<item: string>": "list of string",
    }
    rows = ["| column | type | unit | meaning | null |", "|---|---|---|---|---|"]
    for column in columns:
        kind = kinds.get(str(column.type), str(column.type).partition("<")[0])
        rows.append(f"| `{column.name}` | {kind} | {column.unit} | {column.meaning} | {column.null} |")
    return "\n".join(rows) + "\n"


def with_columns(text: str, columns: Sequence[Field] = COLUMNS) -> str:
    """The page with its table of columns made anew."""
    before, start, rest = text.partition("tests.update_expectations -->\n")
    _, end, after = rest.partition("<!-- end of columns -->")
    return before + start + columns_table(columns) + end + after


def write_mistakes() -> None:
    """What is printed for the most likely mistakes, tried in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        text = "\n\n".join(mistakes.every_mistake(Path(folder)))
        (Path(folder) / "closed").chmod(0o700)
    mistakes.EXPECTATIONS.write_text(text + "\n", encoding="utf-8")


def main() -> None:
    for name, columns in PAGES.items():
        page = ROOT / "docs" / name
        page.write_text(with_columns(page.read_text("utf-8"), columns), encoding="utf-8")
    for sample in sample_files():
        write(GOLDEN / f"{sample.name}.json", golden_of(sample))
    write_mistakes()
    full = shared_reports("ncu_rep_full")
    if full:
        write(hottest.EXPECTATIONS, {path.name: hottest.hottest_places(path) for path in full})
    found = shared_reports("ncu_csv")
    if found:
        write(EXPECTATIONS, {path.name: summed_up(path) for path in found})


if __name__ == "__main__":
    main()
