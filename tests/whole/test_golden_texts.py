"""What commands print at 80, 100 and 160 columns and in a pipe is what tests/expectations/texts keeps."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from tests.support.nightly import by_day
from tests.support.pages.golden_texts import WIDTHS, file_of, printed

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", by_day(["80"], list(WIDTHS)))
def test_commands_print_the_kept_texts_and_no_line_of_a_table_is_wider_than_asked(name: str) -> None:
    kept = file_of(name).read_text("utf-8")
    assert printed(WIDTHS[name]) == kept
    most = int(WIDTHS[name] or 120)
    for block in kept.split("\n$ ncu-bench "):
        command, *lines = block.splitlines()
        # notes, errors and commands to type are paragraphs that a terminal wraps; Markdown is for a renderer
        tables = [line for line in lines if not line.startswith(("note: ", "Error: ", "  next: "))]
        assert "markdown" in command or [line for line in tables if cell_len(line) > most] == [], command
