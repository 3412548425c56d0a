"""How many words the docs have for people to read: python -m tests.support.pages.words.

Left out is what a program wrote: docs/reference, outputs of commands (blocks that begin with "```text", and lines of
code), and the tables of scripts in docs/dev/evidence, docs/dev/studies and docs/dev/advice-blind.md. A word has a letter
or a digit in it, so that the lines of tables are none.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import ROOT

DOCS = ROOT / "docs"
WRITTEN_BY_PROGRAMS = ("reference/", "dev/evidence/", "dev/studies/", "dev/advice-blind.md")


def pages() -> list[Path]:
    """The pages that people write and read, README.md first."""
    own = (page for page in sorted(DOCS.rglob("*.md")) if not _name(page).startswith(WRITTEN_BY_PROGRAMS))
    return [ROOT / "README.md", *own]


def words_of(page: Path) -> int:
    """The words of a page, outputs and code aside."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^ {4}.*$|<!--.*?-->|\]\([^)]*\)", "", text, flags=re.MULTILINE)
    return sum(re.search(r"\w", word) is not None for word in text.split())


def _name(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def main() -> None:
    """Print the words of every page, and their sum."""
    found = {page.relative_to(ROOT).as_posix(): words_of(page) for page in pages()}
    for name, words in sorted(found.items(), key=lambda one: -one[1]):
        print(f"{words:7,}  {name}")
    print(f"{sum(found.values()):7,}  in all")


if __name__ == "__main__":
    main()
