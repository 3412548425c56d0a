"""The most likely mistakes: what is printed is kept, and says what to do. At night each is made in its own process."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import SAMPLES
from tests.support.called_here import called_here
from tests.support.installed import WITHOUT_TORCH
from tests.support.mistakes import (
    CLOSED,
    EXPECTATIONS,
    MISSING,
    MISTAKES,
    as_a_user,
    kept_text,
    printed,
    printed_here,
    put_files,
)
from tests.support.models.models_here import models_run_here
from tests.support.nightly import by_day

pytestmark = pytest.mark.slow

KEPT = EXPECTATIONS.read_text("utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    there = tmp_path_factory.mktemp("mistakes")
    put_files(there)
    yield there
    (there / "closed").chmod(0o700)  # else pytest cannot remove it


def sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}


def test_the_page_has_each_of_the_mistakes_and_no_other() -> None:
    assert re.findall(r"^# (.*)$", KEPT, re.MULTILINE) == list(MISTAKES)
    assert re.findall(r"^\$ ncu-bench (.*)$", KEPT, re.MULTILINE) == [one for ones in MISTAKES.values() for one in ones]
    assert len(MISTAKES) > 20


EVERY_ONE = [(mistake, command) for mistake, ones in MISTAKES.items() for command in ones]
IN_A_PROCESS = [(mistake, command) for mistake, command in EVERY_ONE if mistake in (MISSING, CLOSED)]
"""Those whose process has other permissions or packages, and one more."""


@pytest.mark.parametrize(("mistake", "command"), [one for one in EVERY_ONE if one not in IN_A_PROCESS])
def test_a_mistake_is_answered_as_kept_in_one_paragraph(mistake: str, command: str, folder: Path) -> None:
    before = sizes(folder)
    assert_is_as_kept(command, *printed_here(folder, command))
    assert sizes(folder) == before


@pytest.mark.parametrize(("mistake", "command"), by_day([*IN_A_PROCESS, EVERY_ONE[0]], EVERY_ONE))
def test_a_mistake_is_answered_so_by_a_process_too(mistake: str, command: str, folder: Path) -> None:
    if mistake == CLOSED and as_a_user() and shutil.which("setpriv") is None:
        pytest.skip("root may enter every folder, and setpriv (util-linux) is not installed")
    before = sizes(folder)
    assert_is_as_kept(command, *printed(folder, mistake, command))
    assert sizes(folder) == before


def assert_is_as_kept(command: str, code: int, text: str) -> None:
    assert kept_text(command, code, text) in KEPT
    assert code in (1, 2)
    assert text.startswith("Error: ")
    assert "\n" not in text
    sentences = re.split(r"[.?:;] ", text.removeprefix("Error: "))
    assert len(sentences) > 1, "it has to say what to do too"


@pytest.mark.skipif(find_spec("torch") is None, reason=WITHOUT_TORCH)
@pytest.mark.parametrize(("command", "extra"), [
    ("profile hf:bert-base -o {folder}/run", "transformers"),
    ("estimate hf:bert-base", "transformers"),
    ("compare {folder}/report.csv --with formulas --target hf:bert-base", "transformers"),
    ("profile timm:resnet18 -o {folder}/run", "timm"),
])  # fmt: skip
def test_a_model_whose_library_is_missing_is_answered_with_what_installs_it(
    command: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copyfile(SAMPLES / "d01-wide-raw.csv", tmp_path / "report.csv")
    models_run_here(monkeypatch)
    for name in ("transformers", "timm"):
        monkeypatch.setitem(sys.modules, name, None)  # is imported as if it were not installed
    done = called_here(*command.format(folder=tmp_path).split(), cwd=tmp_path)
    assert_names_the_extra(extra, done.code, done.err[done.err.index("Error:") :].rstrip("\n"))


@pytest.mark.skipif(find_spec("torch") is None, reason=WITHOUT_TORCH)
@pytest.mark.nightly
def test_a_process_of_a_model_whose_library_is_missing_says_so_too(tmp_path: Path) -> None:
    without = tmp_path / "without"
    without.mkdir()
    text = "raise ModuleNotFoundError(\"No module named 'timm'\", name='timm')\n"
    (without / "timm.py").write_text(text, encoding="utf-8")
    assert_names_the_extra("timm", *printed(tmp_path, MISSING, f"profile timm:resnet18 -o {tmp_path}/run"))


def assert_names_the_extra(extra: str, code: int, text: str) -> None:
    assert code == 1
    assert text.endswith(f"Install it with: pip install '.[{extra}]'")
    assert "\n" not in text
