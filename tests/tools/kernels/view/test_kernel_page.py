"""docs/kernel.md: the ten questions, each with a command and its output, are what the commands print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ncu_tools.cli.reading.inside.kernel import PART_NAMES
from ncu_tools.kernels.view.facts import parts
from ncu_tools.kernels.view.part_rows import PARTS
from tests.conftest import ROOT
from tests.support.pages.printed_outputs import BLOCK, reports_by_short_names, with_outputs
from tests.support.reports import needs_shared_reports

PAGE = (ROOT / "docs" / "kernel.md").read_text("utf-8")
QUESTIONS = PAGE.partition("## Ten questions")[2].partition("\n## ")[0]


@needs_shared_reports
@pytest.mark.slow
def test_the_outputs_on_the_page_are_what_the_commands_print(tmp_path: Path) -> None:
    """Written anew by python -m tests.update_expectations."""
    with reports_by_short_names(tmp_path):
        assert with_outputs(PAGE) == PAGE


def test_ten_questions_have_a_command_with_its_output() -> None:
    asked = re.split(r"^### ", QUESTIONS, flags=re.MULTILINE)[1:]
    assert len(asked) == 10
    for question in asked:
        (block,) = BLOCK.finditer(question)
        assert len(block[0].splitlines()) > 5, question.splitlines()[0]


def test_the_parts_of_the_option_are_those_of_the_page_and_of_the_facts() -> None:
    assert tuple(PARTS) == PART_NAMES
    assert set(parts()) <= set(PARTS)
    assert re.findall(r"^\| (\d [a-z ]+?) \|", PAGE, re.MULTILINE) == list(PARTS.values())
