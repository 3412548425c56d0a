"""docs/kernel.md names the parts of `ncu-bench kernel`."""

from __future__ import annotations

import re

from ncu_tools.cli.reading.inside.kernel import PART_NAMES
from ncu_tools.kernels.view.facts import parts
from ncu_tools.kernels.view.part_rows import PARTS
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "kernel.md").read_text("utf-8")


def test_the_parts_of_the_option_are_those_of_the_page_and_of_the_facts() -> None:
    assert tuple(PARTS) == PART_NAMES
    assert set(parts()) <= set(PARTS)
    assert re.findall(r"^\| (\d [a-z ]+?) \|", PAGE, re.MULTILINE) == list(PARTS.values())
