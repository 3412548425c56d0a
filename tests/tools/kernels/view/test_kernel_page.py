"""docs/kernel.md: the ten questions, each with a command and its output, are what the commands print."""

from __future__ import annotations

import re

from ncu_tools.cli.reading.inside.kernel import PART_NAMES
from ncu_tools.kernels.view.facts import parts
from ncu_tools.kernels.view.part_rows import PARTS
from tests.conftest import ROOT
from tests.support.pages.printed_outputs import BLOCK

PAGE = (ROOT / "docs" / "kernel.md").read_text("utf-8")
QUESTIONS = PAGE.partition("## Ten questions")[2].partition("\n## ")[0]


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
