"""Every command that a page shows works as it stands, in a folder with what its reader would have."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import webbrowser
from itertools import count
from pathlib import Path

import pytest

from tests.support.installed import needs_torch
from tests.support.kept_sass import use_kept_sass
from tests.support.models.models_here import called_with_models
from tests.support.nightly import by_day
from tests.support.pages.examples import (
    ON_A_GPU,
    PAGES,
    Example,
    examples,
    readers_files,
    readers_runs,
    use_a_stand_in_gpu,
    with_names_on_pages,
)
from tests.support.reports import needs_shared_reports
from tests.tools.cli.test_cli import PROGRAM, Result

pytestmark = [pytest.mark.slow, needs_torch, needs_shared_reports]

WITH_EXAMPLES = [page for page in PAGES if list(examples(page))]
BY_DAY = [page for page in WITH_EXAMPLES if page.name in ("advice.md", "compare.md", "kernel.md")]
SHORT = ("--max-time", "0.05")
NUMBERS = count()
ANSWERS = (0, 3, 4)
"""A command that is done, a gate that tripped, and one that cannot tell."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NCU_BENCH_NO_MEASURE", "1")
        patch.setenv("NCU_BENCH_IGNORE_LOAD", "1")
        readers_files(folder)
        readers_runs(folder)
    return folder


def failure(example: Example, folder: Path) -> str:
    """What is wrong with an example; "" if it works."""
    words = typed(example, folder)
    with pytest.MonkeyPatch.context() as patch:
        if example.command in ON_A_GPU:
            use_a_stand_in_gpu(folder, patch)
        found = served(words, folder) if words[:1] == ["mcp"] else called_with_models(*words, cwd=folder)
    if example.goes_to:
        (folder / example.goes_to).write_text(found.out, encoding="utf-8")
    return (
        "" if found.code in ANSWERS else f"{example.command}\n    ended with {found.code}: {found.err.strip()[-400:]}"
    )


def served(words: list[str], folder: Path) -> Result:
    """What a server gives whose client says nothing and leaves."""
    done = subprocess.run(
        [*PROGRAM, *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def typed(example: Example, folder: Path) -> list[str]:
    """The words of an example: a file for standard input, patterns as the shell has them, a new folder for a new run."""
    words = [example.comes_from if word == "-" else word for word in example.words_here]
    words = [
        path for word in words for path in (sorted(map(str, folder.glob(word))) if word.endswith("/*") else [word])
    ]
    if words[:1] not in (["profile"], ["bench"]) or "--dry-run" in words:
        return words
    measures = words[0] == "bench" and not (folder / words[1]).exists()
    if measures or words[0] == "profile":
        program = words.index("--") if "--" in words else len(words)
        if "-o" not in words[:program]:
            words[program:program] = ["-o", f"made-{next(NUMBERS)}"]
        if (folder / words[words.index("-o") + 1]).exists():
            words[words.index("-o") + 1] += f"-{next(NUMBERS)}"
    return [*words, *(SHORT if measures and "--max-time" not in words else ())]


@pytest.mark.parametrize("page", by_day(BY_DAY, WITH_EXAMPLES), ids=lambda page: page.name)
def test_the_commands_of_a_page_work_as_they_stand(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCU_BENCH_NO_MEASURE", "1")
    monkeypatch.setenv("NCU_BENCH_IGNORE_LOAD", "1")
    monkeypatch.setenv("STAND_IN_NCU", "asked")
    monkeypatch.setattr(webbrowser, "open", lambda url: True)
    use_kept_sass(monkeypatch, with_names_on_pages)
    failures = [failure(example, folder) for example in examples(page)]
    assert [one for one in failures if one] == []


@pytest.mark.nightly
def test_the_trace_that_the_page_on_shapes_records_has_flops(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    page = next(page for page in PAGES if page.stem == "shapes")
    monkeypatch.chdir(folder)
    (block,) = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    Path("recorded.py").write_text(block, encoding="utf-8")
    runpy.run_path("recorded.py", {"model": torch.nn.Linear(64, 64), "batch": torch.randn(8, 64)})
    found = called_with_models("hotspots", "mine.json", "--format", "json", cwd=folder)
    flops = {row["kernel"]: row["flops"] for row in json.loads(found.out)["rows"]}
    assert flops["aten::addmm"] == 2 * 8 * 64 * 64 + 8 * 64


def test_what_is_run_with_a_stand_in_gpu_is_on_a_page() -> None:
    assert set(ON_A_GPU) <= {example.command for page in PAGES for example in examples(page)}
