"""The documentation is checked against the code: commands, columns, links and examples."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

import ncu_tools
from benchmarks.house import SMALL_SAMPLE, code_rows, way_of_parse
from ncu_tools.cli import COMMANDS, run
from tests.conftest import ROOT
from tests.nightly.parts import AT_NIGHT
from tests.support.models.models_here import models_run_here
from tests.support.nightly import by_day
from tests.support.pages import reference
from tests.support.pages.examples import examples, misunderstood, readers_files
from tests.support.pages.printed_outputs import pages_with_outputs, with_printed_outputs
from tests.support.pages.words import pages, words_of

pytestmark = pytest.mark.slow

TOPS = ("launch/ncu_launch", "parsers/ncu_parsers", "ncu_tools")
README = (ROOT / "README.md").read_text("utf-8")
COMMANDS_PAGE = (ROOT / "docs" / "commands.md").read_text("utf-8")
LISTED = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
    ROOT / "sample_reports" / "README.md",
]


def blocks(text: str) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_first_two_blocks_of_the_readme_are_one_line_each() -> None:
    first, second = blocks(README)[:2]
    assert first.count("\n") == second.count("\n") == 1
    assert "ncu-bench profile resnet18 --metrics flops,dram" in first
    assert "pytest" in second


def test_ci_runs_the_second_command_of_the_readme() -> None:
    assert "README.md" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_ci_runs_at_night_what_the_page_for_contributors_says() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert "tests.nightly" in (ROOT / ".ci" / "run").read_text("utf-8")
    assert re.search(r"-m ['\"](.*)['\"] --hypothesis-profile night", page)[1] in AT_NIGHT  # type: ignore[index]
    assert ".ci/run nightly PART" in page


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed (the extra models)")
def test_every_ncu_bench_line_of_the_readmes_first_command_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [part.strip() for part in blocks(README)[0].split("&&") if "ncu-bench" in part]
    assert len(lines) == 2
    monkeypatch.chdir(tmp_path)
    models_run_here(monkeypatch)
    for line in lines:
        assert run(shlex.split(line)[1:]) == 0
    assert (tmp_path / "roofline.svg").stat().st_size > 5000


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_on_the_page_of_commands(name: str) -> None:
    assert re.search(rf"^\| `ncu-bench {name}\b", LISTED, re.MULTILINE)


def test_the_page_of_commands_lists_none_that_does_not_exist() -> None:
    assert set(re.findall(r"^\| `ncu-bench (\w+)", LISTED, re.MULTILINE)) == set(COMMANDS)


FIGURES = (
    ("advice.md", "| 81 % |", "advice", "of those that gained > 2 % | 81 % |"),
    ("advice.md", "| 92 % (78 %", "advice", "real saving inside the interval | 92 %"),
    ("advice.md", "8.1 points; 5.8", "advice", "error of the middle | 8.1 |"),
    ("advice.md", "10.4 points now (11.9", "advice", "error of the middle | 11.9 | 10.4 |"),
    ("advice.md", "15.8 in the last one (20.3 before", "advice", "error of the middle | 20.3 | 15.8 |"),
    ("advice-steps.md", "In 13 of 16 public recordings", "advice-steps", "One step holds in 13 of 16 recordings"),
    ("diagnosis.md", "3,741 agreed", "diagnosis", "| all | 8935 | 3741 |"),
    ("diagnosis.md", "**agreed** (69)", "diagnosis", "| all | 201 | 69 |"),
    ("estimate.md", "| 3.9 % | 13.7 % |", "estimate", "| all | 75,222 | 3.9 | 13.7 |"),
    ("estimate.md", "| 4.5 % | 13.5 % |", "estimate", "| all | 52,672 | 4.5 | 13.5 |"),
    ("estimate.md", "median error is 4.4 % in BF16", "estimate", "| all, bf16 | 612 | 4.4 |"),
    ("estimate.md", "and 12.4 % in FP8", "estimate", "| all, fp8 | 588 | 12.4 |"),
    (
        "history.md",
        "a median of 5 runs",
        "history",
        "step of 2 spreads after 50 runs, within 5           median 5 runs",
    ),
    ("bench.md", "94 to 96 % of the", "exponents", "94 to 96 % of the intervals contain the exponent"),
)
"""A page, a figure on it, the page of the evidence, and the figure there."""


@pytest.mark.parametrize(("page", "figure", "evidence", "figure_there"), FIGURES)
def test_a_figure_of_a_page_is_that_of_the_evidence(page: str, figure: str, evidence: str, figure_there: str) -> None:
    assert figure in " ".join((ROOT / "docs" / page).read_text("utf-8").split())
    assert figure_there in (ROOT / "docs" / "dev" / "evidence" / f"{evidence}.md").read_text("utf-8")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_a_page_opens_with_what_one_types(page: Path) -> None:
    if page.stem == "reliability":  # a promise, and nothing to type
        return
    assert re.search(r"ncu-bench |pytest |import ", page.read_text("utf-8")[:800])


def test_people_have_at_most_35_000_words_to_read() -> None:
    assert sum(map(words_of, pages())) <= 35_000


def test_the_readme_is_short_and_shows_outputs() -> None:
    assert len(README.splitlines()) < 150
    assert README.count("```text\n$ ncu-bench ") >= 3


@pytest.fixture(scope="module")
def readers_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    readers_files(folder)
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_words_of_every_command_are_understood(
    page: Path, readers_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options exist and have values that they take; between backquotes, a target or a VALUE may be missing."""
    monkeypatch.chdir(readers_folder)
    for example in examples(page):
        assert misunderstood(example.words_here) == "", example.command
    prose = re.sub(r"^```.*?^```|^ {4}.*$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for command in re.findall(r"`ncu-bench ([^`]*)`", prose):
        said = misunderstood(shlex.split(command.replace("COMMAND", "hotspots")))
        assert re.fullmatch(r"|Missing .*|.*'[A-Z]+' is not one of .*", said), f"{command}: {said}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_call_of_the_package_has_arguments_that_it_takes(page: Path) -> None:
    for name, given in re.findall(r"ncu_tools\.(\w+)(\((?:[^()]|\([^()]*\))*\))", page.read_text("utf-8")):
        call = ast.parse("f" + given.replace(", ...)", ")"), mode="eval").body
        assert isinstance(call, ast.Call)
        words = {word.arg or "": None for word in call.keywords}
        inspect.signature(getattr(ncu_tools, name)).bind(*call.args, **words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_that_a_page_runs_exists(page: Path) -> None:
    for module in re.findall(r"python -m ((?:ncu_|tests|benchmarks)[\w.]*)", page.read_text("utf-8")):
        assert find_spec(module.rstrip(".")) is not None, module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_and_picture_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_file(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}, (
                target
            )


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_of_the_reference_is_what_the_code_says(name: str) -> None:
    """Written anew by python -m tests.update_expectations."""
    assert (reference.FOLDER / name).read_text("utf-8") == reference.PAGES[name]()


WITH_OUTPUTS = pages_with_outputs()


@pytest.mark.parametrize(
    "page",
    by_day([page for page in WITH_OUTPUTS if page.stem in ("README", "advice", "gate", "hotspots")], WITH_OUTPUTS),
    ids=lambda page: page.name,
)
def test_the_outputs_on_a_page_are_what_its_commands_print(page: Path) -> None:
    """Written anew by python -m tests.update_expectations."""
    assert with_printed_outputs(page) == page.read_text("utf-8")


@pytest.mark.nightly
def test_the_figures_of_the_architecture_page_are_rows_of_the_script_that_prints_them() -> None:
    page = (ROOT / "docs" / "dev" / "architecture.md").read_text("utf-8")
    rows = list(code_rows())
    assert len(rows) == 9
    assert [row.what for row in rows if f"\n{row.what} " not in page] == []


def test_the_figures_count_the_files_that_a_report_passes() -> None:
    """Among them the command, the reader of the page and the writer, and no file that is imported alone."""
    assert 10 < way_of_parse(SMALL_SAMPLE)["files"] < 60


def test_the_number_of_machines_in_the_readme_is_right() -> None:
    count = len(list((ROOT / "ncu_tools" / "ceilings" / "machines").glob("*.toml")))
    assert f"of {count} machines" in COMMANDS_PAGE


def test_every_file_named_by_the_pages_for_contributors_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = set(re.findall(r"`((?:launch|parsers|ncu_tools|tests|sample_reports|docs|benchmarks)/[\w./]*)", text))
    assert len(named) > 15
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_an_advisory_is_cited_with_the_address_of_its_record() -> None:
    code = [file for top in (*TOPS, "tests", "benchmarks") for file in (ROOT / top).rglob("*.py")]
    for file in [*PAGES, ROOT / "CHANGELOG.md", *code]:
        for line in file.read_text("utf-8").splitlines():
            if re.search(r"(?:CVE|PYSEC)-[0-9]{4}-[0-9]|GHSA-[0-9a-z]{4}-", line):
                assert "https://" in line, f"{file}: {line}"
