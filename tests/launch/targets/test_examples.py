"""docs/examples: what the page says that runs on a CPU runs, as its reader would call it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.called_here import called_here
from tests.support.models.models_here import models_run_here
from tests.support.nightly import by_day
from tests.support.ran import below_head

pytestmark = pytest.mark.slow
pytest.importorskip("torch")

EXAMPLES = ROOT / "docs" / "examples"
PAGE = (EXAMPLES / "README.md").read_text("utf-8")
ON_A_CPU, ON_A_GPU = PAGE.split("## On a GPU")


def commands(text: str) -> list[str]:
    return re.findall(r"^    \$ ncu-bench (.*)$", text, re.MULTILINE)


def shown_under(command: str) -> list[str]:
    """The lines of output under a command of the page."""
    after = PAGE.partition(f"    $ ncu-bench {command}\n")[2]
    return [line.strip() for line in after.partition("\n\n")[0].splitlines()]


@pytest.mark.parametrize(
    "command", by_day([one for one in commands(ON_A_CPU) if "compile" not in one], commands(ON_A_CPU))
)
def test_a_command_for_a_cpu_gives_the_columns_that_the_page_shows(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in EXAMPLES.glob("*.py"):
        shutil.copy(file, tmp_path)
    words = [*shlex.split(command), "--wide", *(("--max-time", "0.05") if command.startswith("bench") else ())]
    models_run_here(monkeypatch)
    here = called_here(*words, cwd=tmp_path, environment={**os.environ, "COLUMNS": "118"})
    said = below_head(here.out) if command.startswith("profile") else here.out
    assert here.code == 0, here.err
    titles, _, first, *_ = shown_under(command)
    of_intervals = {"95", "%", "from", "to"}  # there is none where the short time holds one measurement
    assert set(titles.split()) - of_intervals <= set(said.split("\n")[0].split())
    assert said.split("\n")[2].split()[0] == first.split()[0]
    if "--against" in command:
        assert "agree" in said


def test_every_example_is_on_the_page_and_every_command_names_one() -> None:
    files = {file.name for file in EXAMPLES.glob("*.py")}
    assert {name for name in files if f"[{name}]({name})" not in PAGE} == set()
    assert {word.partition(":")[0] for word in re.findall(r"\w+\.py:\w+", PAGE)} == files
    assert len(commands(ON_A_CPU)) == 4
    assert len(commands(ON_A_GPU)) == 5
