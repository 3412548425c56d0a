"""Write the golden files and expectations anew: python -m tests.update_expectations. Read the diff before committing."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ncu_parsers.schema import instance_table, instructions_table
from ncu_parsers.schema.tables import COLUMNS, Field

from ncu_tools.kernels.view.columns.column_names import COMBINED, sets, short_names
from ncu_tools.report.columns.registry import SUBJECTS, entries_of
from tests.conftest import ROOT
from tests.support import hottest_places as hottest
from tests.support import mistakes
from tests.support.binary_expectations import OF_MADE, OF_REAL, held_by, instances_of, made
from tests.support.pages import golden_texts
from tests.support.pages.options_page import with_options
from tests.support.pages.printed_outputs import reports_by_short_names, with_outputs
from tests.support.reports import sample_files, shared_reports, summed_up
from tests.whole.test_samples import golden_file, golden_of, kept_of

EXPECTATIONS = ROOT / "tests" / "expectations" / "ncu_csv.json"


def write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


PAGES = {
    "architecture.md": COLUMNS, "dialects.md": instance_table.COLUMNS, "source.md": instructions_table.COLUMNS,
}  # fmt: skip
"""Pages of docs/ with the columns of a contract."""
UNITS_OF_KINDS = {"percent": "%", "byte": "byte", "time": "ns", "hz": "hz"}


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


def short_names_table() -> str:
    """The short names of metrics as a table of a page."""
    rows = ["| name | what it is | unit | metrics | launches | source |", "|---|---|---|---|---|---|"]
    for name, one in short_names().items():
        metrics = [f"`{metric}`" for metric in one.metrics] or [
            f"largest of `{one.largest_of.replace('|', chr(92) + '|')}`"
        ]
        made_of = ", else ".join(metrics) + (f" / `{one.over}`" if one.over else "")
        unit = UNITS_OF_KINDS.get(one.kind, one.unit)
        rows.append(
            f"| `{name}` | {one.means} | {unit} | {made_of} | {COMBINED[one.by]} | {one.source.split(', ', 3)[3]} |"
        )
    sets_of = [f"| `{name}` | {', '.join(f'`{one}`' for one in columns)} |" for name, columns in sets().items()]
    return "\n".join([*rows, "", "| set | columns |", "|---|---|", *sets_of]) + "\n"


def with_short_names(text: str) -> str:
    """The page with its tables of short names and sets made anew."""
    before, start, rest = text.partition("tests.update_expectations -->\n")
    _, end, after = rest.partition("<!-- end of short names -->")
    return before + start + short_names_table() + end + after


OUTPUT_COLUMNS = ROOT / "docs" / "output-columns.md"
OUTPUT_COLUMNS_HEAD = """# Columns of the tables that commands print

Text, Markdown and pages show titles; JSON and CSV have the names. A name means the same in every command; one that means
two things has the second as `subject.name` here, and without the subject in JSON and CSV. Shares are of 1. Null is what is
not known or was not collected, and what the last column says. `ncu-bench mcp --schema COMMAND` says which of them a command has.
Columns of metrics, of varied arguments and of SQL are those of the run.

<!-- written by python -m tests.update_expectations from ncu_tools/report/columns/ -->
"""


def output_columns_page() -> str:
    """The registry of columns as a page, a table for each of its files."""
    parts = [OUTPUT_COLUMNS_HEAD]
    for subject, title in SUBJECTS.items():
        rows = [f"## {title}", "", "| column | title | unit | meaning | null |", "|---|---|---|---|---|"]
        rows += [
            f"| `{name}` | {one.title} | {one.unit} | {one.meaning} | {one.null} |"
            for name, one in entries_of(subject).items()
        ]
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def write_mistakes() -> None:
    """What is printed for the most likely mistakes, tried in a folder of their own."""
    with TemporaryDirectory() as folder:
        text = "\n\n".join(mistakes.every_mistake(Path(folder)))
        (Path(folder) / "closed").chmod(0o700)
    mistakes.EXPECTATIONS.write_text(text + "\n", encoding="utf-8")


def main() -> None:
    columns_page = ROOT / "docs" / "columns.md"
    columns_page.write_text(with_short_names(columns_page.read_text("utf-8")), encoding="utf-8")
    OUTPUT_COLUMNS.write_text(output_columns_page(), encoding="utf-8")
    for name, columns in PAGES.items():
        page = ROOT / "docs" / name
        page.write_text(with_columns(page.read_text("utf-8"), columns), encoding="utf-8")
    options = ROOT / "docs" / "options.md"
    options.write_text(with_options(options.read_text("utf-8")), encoding="utf-8")
    readme = ROOT / "README.md"
    os.environ["COLUMNS"] = "80"
    readme.write_text(with_outputs(readme.read_text("utf-8")), encoding="utf-8")
    del os.environ["COLUMNS"]
    for sample in sample_files():
        write(golden_file(sample), kept_of(sample))
    write_mistakes()
    golden_texts.write()
    full = shared_reports("ncu_rep_full")
    if full:
        page = ROOT / "docs" / "kernel.md"
        with TemporaryDirectory() as folder, reports_by_short_names(Path(folder)):
            page.write_text(with_outputs(page.read_text("utf-8")), encoding="utf-8")
        write(hottest.EXPECTATIONS, {path.name: hottest.hottest_places(path) for path in full})
    binary = [*shared_reports("ncu_rep"), *full]
    if binary:
        write(OF_REAL, {path.name: held_by(path) for path in binary})
    with TemporaryDirectory() as folder:
        path = made(Path(folder))
        write(OF_MADE, {"launches": golden_of(path), "instances": instances_of(path)})
    found = shared_reports("ncu_csv")
    if found:
        write(EXPECTATIONS, {path.name: summed_up(path) for path in found})


if __name__ == "__main__":
    main()
