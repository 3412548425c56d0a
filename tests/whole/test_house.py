"""The house rules: imports in one direction, one class per name, no output from below."""

from __future__ import annotations

import ast
import configparser
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path
from subprocess import run
from typing import Any

import pytest

from tests import conftest
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

STAGES = ("ncu_launch", "ncu_parsers", "ncu_tools")
FOLDERS = {
    "ncu_launch": ROOT / "launch" / "ncu_launch",
    "ncu_parsers": ROOT / "parsers" / "ncu_parsers",
    "ncu_tools": ROOT / "ncu_tools",
}
MOST_PARAMETERS = 12
"""Limit of the widest function. Lower it when it shrinks."""

WINGS = {
    "ncu_launch.operators": {"ncu_launch.errors", "ncu_launch.files.toml_tables"},
    "ncu_parsers.ncu_rep": {
        "ncu_launch.files.atomic_files",  # a folder for the disassemblers that Ctrl-C leaves nowhere
        "ncu_launch.files.toml_tables",
        "ncu_launch.profilers.installed_tools",
        "ncu_launch.profilers.subprocesses",
        "ncu_parsers.report_data.protobuf_messages",
        "ncu_parsers.schema.arrays",
        "ncu_parsers.schema.instance_table",
        "ncu_parsers.schema.instructions_table",
        "ncu_parsers.schema.tables",
        "ncu_parsers.sources.elf",
        "ncu_parsers.sources.memory",
        "ncu_parsers.sources.sources",
    },
    "ncu_parsers.timelines": {
        "ncu_launch.errors",
        "ncu_launch.files.toml_tables",
        "ncu_launch.notes",
        "ncu_parsers.report_data.protobuf_messages",
        "ncu_parsers.report_data.refusals",
        "ncu_parsers.schema.arrays",
        "ncu_parsers.schema.vendors",
        "ncu_parsers.sources.memory",
        "ncu_parsers.sources.sources",
    },
}
"""Folders for people who want nothing else, and all that each imports of the rest. A README.md has an example."""


def module_of(path: Path) -> str:
    """The dotted name of a file, that of the package for `__init__`."""
    top = next(folder.parent for folder in FOLDERS.values() if path.is_relative_to(folder))
    parts = path.relative_to(top).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for folder in FOLDERS.values() for path in folder.rglob("*.py")}


@cache
def trees() -> dict[Path, ast.Module]:
    """Every file of the packages, parsed when the first test asks."""
    return {path: ast.parse(path.read_text("utf-8")) for path in MODULES.values()}


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Every node of a file of the packages, listed when the first test asks."""
    return list(ast.walk(trees()[path]))


@pytest.fixture(scope="module", autouse=True)
def _nodes_of_these_tests_alone() -> Iterator[None]:
    """A million nodes are let go behind the last test: each later search for garbage would look through them."""
    yield
    trees.cache_clear()
    nodes_of.cache_clear()


def imported(tree: ast.AST, here: str, *, is_package: bool = False, in_strings: bool = True) -> Iterator[str]:
    """As `imported_by_nodes`, of all nodes of a tree."""
    return imported_by_nodes(ast.walk(tree), here, is_package=is_package, in_strings=in_strings)


def imported_by_nodes(
    nodes: Iterable[ast.AST], here: str, *, is_package: bool = False, in_strings: bool = True
) -> Iterator[str]:
    """Every name that code imports, at the top or in a function, as an absolute one; of `from a import b` also a.b.

    Names of modules in strings count too: they are imported by importlib.
    """
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = here.split(".")[: len(here.split(".")) - node.level + is_package] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif in_strings and isinstance(node, ast.Constant):
            yield from [node.value] if isinstance(node.value, str) and node.value.startswith(STAGES) else ()


@cache
def imports_of(module: str) -> frozenset[str]:
    path = MODULES[module]
    return frozenset(imported_by_nodes(nodes_of(path), module, is_package=path.name == "__init__.py"))


def modules_imported_by(module: str) -> set[str]:
    """The project's modules that one imports; a package counts only for names in its `__init__`."""
    named = imports_of(module) & MODULES.keys()
    return {name for name in named if not any(other.startswith(f"{name}.") for other in named)} - {module}


class TestImports:
    def test_go_from_a_stage_only_to_those_on_its_left(self) -> None:
        wrong = {
            (module, name)
            for module in MODULES
            for name in imports_of(module)
            for right in (
                *STAGES[STAGES.index(module.partition(".")[0]) + 1 :],
                "tests",
                "sample_reports",
                "benchmarks",
            )
            if name.partition(".")[0] == right
        }
        assert wrong == set()

    def test_make_no_cycle_of_modules(self) -> None:
        assert_no_cycle({module: modules_imported_by(module) for module in MODULES})

    def test_of_the_analysis_do_not_reach_report(self) -> None:
        telling = ("ncu_tools.report", "ncu_tools.cli", "ncu_tools.profiling")
        wrong = {
            (module, name)
            for module in MODULES
            if module != "ncu_tools" and not module.startswith(telling)
            for name in modules_imported_by(module)
            if name.startswith("ncu_tools.report")
        }
        assert wrong == set()

    @pytest.mark.parametrize(
        "text",
        [
            "import ncu_tools.cli.options",
            "from ncu_tools.cli import options",
            "from ..cli import options",
            "def late():\n    from ncu_tools.cli.options import show",
            "importlib.import_module('ncu_tools.cli.options')",
        ],
    )
    def test_are_detected_however_they_are_written(self, text: str) -> None:
        found = set(imported(ast.parse(text), "ncu_tools.runs.loading"))
        assert "ncu_tools.cli.options" in found

    def test_that_make_a_cycle_are_detected(self) -> None:
        with pytest.raises(AssertionError, match="a -> b -> a"):
            assert_no_cycle({"a": {"b"}, "b": {"a"}})


@pytest.mark.parametrize("wing", WINGS)
class TestWing:
    def test_imports_exactly_its_core(self, wing: str) -> None:
        inside = {module for module in MODULES if f"{module}.".startswith(f"{wing}.")}
        assert set().union(*map(modules_imported_by, inside)) - inside == WINGS[wing]

    def test_has_a_face_of_a_dozen_names_with_docstrings(self, wing: str) -> None:
        face = faces(wing)
        assert 10 <= len(face) <= 16
        described = {name for name, value in face.items() if isinstance(value, type) or callable(value)}
        assert len(described) >= len(face) - 1  # the other is a constant
        assert [name for name in described if not face[name].__doc__] == []

    def test_runs_the_example_of_its_readme_without_the_rest(self, wing: str) -> None:
        page = (MODULES[wing].parent / "README.md").read_text("utf-8")
        (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        assert len(page.splitlines()) <= 24
        allowed = (wing, *WINGS[wing], *(name for one in WINGS[wing] for name in imports_below(one)))
        rest = f"import sys; print(*(name for name in sys.modules if name.startswith({STAGES})))"
        done = run([sys.executable, "-c", f"{example}\n{rest}"], capture_output=True, text=True, cwd=ROOT, check=True)
        loaded = {name for name in done.stdout.split("\n")[-2].split() if MODULES[name].name != "__init__.py"}
        assert {name for name in loaded if not name.startswith(f"{wing}.")} - {*allowed} == set()


def faces(wing: str) -> dict[str, Any]:
    """The public names of a wing and what they stand for."""
    package = import_module(wing)
    names = re.findall(r" as (\w+)$", MODULES[wing].read_text("utf-8"), re.MULTILINE)
    return {name: getattr(package, name) for name in names}


@cache
def imports_below(module: str) -> frozenset[str]:
    """The modules that are loaded with one."""
    own = modules_imported_by(module)
    return frozenset(own).union(*map(imports_below, own))


APART = """
    bench-compare bench-kernels bench-model bench-profiling bench-roofline bench-runs bench-timeline ceilings-compare
    compare-profiling compare-roofline compare-timeline model-roofline model-runs model-timeline profiling-roofline
    profiling-timeline roofline-timeline
"""
"""Parts of ncu_tools that know nothing of each other: what both need lies below them, and commands put them together."""


def pairs_of_parts() -> set[str]:
    """The parts of ncu_tools of which one imports from the other."""
    part = {module: module.split(".")[1] for module in MODULES if module.count(".") > 1}
    own = [module for module in part if module.startswith("ncu_tools.")]
    others = ((module, name) for module in own for name in modules_imported_by(module) & set(own))
    return {"-".join(sorted((part[one], part[other]))) for one, other in others if part[one] != part[other]}


def test_parts_that_know_nothing_of_each_other_stay_so() -> None:
    assert pairs_of_parts() & set(APART.split()) == set()


def test_the_architecture_page_lists_every_folder_in_the_order_of_its_imports() -> None:
    text = (ROOT / "docs" / "dev" / "architecture.md").read_text("utf-8")
    listed: list[str] = []
    top = ""
    for line in text.partition("## Folders")[2].partition("### ")[0].splitlines():
        if found := re.match(r" {4}(\S+)/$", line):
            top = found[1]
            listed.append(top)
        elif found := re.match(r" {8}(\S+)/ ", line):
            listed.append(f"{top}/{found[1]}")
    assert set(listed) == {folder_of(module) for module in MODULES}
    tops = {str(folder.relative_to(ROOT)) for folder in FOLDERS.values()}
    place = {folder: number for number, folder in enumerate(listed)}
    wrong = {
        (folder_of(module), folder_of(name))
        for module in MODULES
        if module not in WINGS  # a face has names of the folders below it
        for name in modules_imported_by(module)
        if place[folder_of(name)] > place[folder_of(module)] and folder_of(module) not in tops
    }
    assert wrong == set()


def folder_of(module: str) -> str:
    return str(MODULES[module].parent.relative_to(ROOT))


def assert_no_cycle(graph: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(sorted_cycle(error.args[1]))) from None


def sorted_cycle(cycle: list[str]) -> list[str]:
    """A cycle starting from its first name in order, so that it reads the same every time."""
    names = cycle[:-1]
    first = names.index(min(names))
    return [*names[first:], *names[:first], min(names)]


PRINTING = {"print", "exit", "quit", "sys.exit", "click.echo", "click.secho", "echo"}
EVALUATING = {"eval", "exec", "subprocess.check_output", "os.system", "os.popen", "pickle.load", "pickle.loads"}


def calls_in(nodes: Iterable[ast.AST]) -> set[str]:
    """The names of calls as written: `print`, `click.echo`; what is called by no such name is left out."""
    called = (node.func for node in nodes if isinstance(node, ast.Call))
    return {ast.unparse(one) for one in called if isinstance(getattr(one, "value", one), ast.Name)}


def test_only_the_command_line_prints_or_ends_the_program_and_nothing_evaluates_text() -> None:
    for path in trees():
        called = calls_in(nodes_of(path))
        if "cli" not in path.parts:
            assert called & PRINTING == set(), path
        assert called & EVALUATING == set(), path


@pytest.mark.parametrize("text", ["def f():\n    print(1)", "click.echo('x')", "sys.exit(3)"])
def test_a_printing_module_would_be_detected(text: str) -> None:
    assert calls_in(ast.walk(ast.parse(text))) & PRINTING


def test_processes_are_started_only_in_the_listed_modules() -> None:
    started = {module for module in MODULES if imports_of(module) & {"subprocess", "multiprocessing"}}
    assert started == {
        "ncu_launch.profilers.subprocesses", "ncu_launch.profilers.installed_tools", "ncu_parsers.datasets.process_engine",
    }  # fmt: skip


def test_no_function_has_too_many_parameters() -> None:
    for path in trees():
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
                assert count <= MOST_PARAMETERS, (path, node.name)


def test_a_class_name_stands_for_one_class() -> None:
    names = Counter(
        node.name for path in trees() for node in nodes_of(path)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )  # fmt: skip
    assert [name for name, count in names.items() if count > 1] == []


def test_every_file_on_disk_is_shipped_and_named() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    packages = {module for module, path in MODULES.items() if path.name == "__init__.py"}
    assert set(config["options"]["packages"].split()) == packages
    assert {path.stem for path in trees()} & {"utils", "common", "helpers", "manager", "misc"} == set()
    long = [path for path in trees() if path.name == "__init__.py" and path.parent.name != "cli"]
    assert max(len(path.read_text("utf-8").splitlines()) for path in long if module_of(path) not in WINGS) <= 10


class TestSkippingInCI:
    def forbidden(self, reason: str) -> bool:
        return conftest._is_forbidden(pytest.TestReport("a test", ("a file", 1, ""), {}, "skipped", reason, "setup"))

    @pytest.fixture(autouse=True)
    def _in_ci(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NCU_BENCH_NO_SKIPS", "1")

    def test_is_a_failure_if_something_can_be_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(conftest, "SHARED", Path("nowhere"))
        assert self.forbidden("nsys is not installed")
        assert self.forbidden("got empty parameter set for (path)")

    def test_is_allowed_only_for_missing_reports_of_other_people(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        reason = "the folder ../shared/reports with other people's real reports is missing"
        monkeypatch.setattr(conftest, "SHARED", tmp_path / "nowhere")
        assert not self.forbidden(reason)
        monkeypatch.setattr(conftest, "SHARED", tmp_path)
        assert self.forbidden(reason)
