"""The house rules: stages import only from their left, every package is shipped, nothing heavy at the door."""

from __future__ import annotations

import ast
import configparser
from pathlib import Path

import pytest

from tests import conftest
from tests.conftest import ROOT

STAGES = ("ncu_launch", "ncu_parsers", "ncu_tools")
FOLDERS = {
    "ncu_launch": ROOT / "launch" / "ncu_launch",
    "ncu_parsers": ROOT / "parsers" / "ncu_parsers",
    "ncu_tools": ROOT / "ncu_tools",
}
SOURCES = sorted(path for folder in FOLDERS.values() for path in folder.rglob("*.py"))


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def stage_of(path: Path) -> str:
    return next(stage for stage, folder in FOLDERS.items() if path.is_relative_to(folder))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_stage_imports_only_from_its_left(path: Path) -> None:
    right = STAGES[STAGES.index(stage_of(path)) + 1 :]
    assert {name for name in imported(path) if name.partition(".")[0] in (*right, "tests", "sample_reports")} == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_parquet_is_opened_read_and_written_in_one_file_each(path: Path) -> None:
    if path.name not in ("parquet_file.py", "parquet.py", "row_groups.py"):
        assert "pyarrow.parquet" not in imported(path)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_command_line_prints_or_exits(path: Path) -> None:
    called = [node.func for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
    names = {function.id for function in called if isinstance(function, ast.Name)}
    methods = {function.attr for function in called if isinstance(function, ast.Attribute)}
    if "cli" not in path.parts:
        assert names & {"print", "exit"} == set()
        assert methods & {"echo", "exit"} == set()
    assert (names | methods) & {"eval", "exec", "check_output"} == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_programs_are_run_in_one_file_and_asked_for_their_version_in_another(path: Path) -> None:
    if path.name not in ("execute.py", "tools.py"):
        assert "subprocess" not in imported(path)


def test_no_module_imports_another_that_imports_it() -> None:
    modules = {
        ".".join(path.relative_to(FOLDERS[stage_of(path)].parent).with_suffix("").parts): imported(path)
        for path in SOURCES
    }
    mutual = {
        (one, other)
        for one, names in modules.items()
        for other in names & set(modules)
        if one in modules[other] and one != other
    }
    assert mutual == set()


def test_setup_cfg_ships_every_package_on_disk() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    on_disk = {
        ".".join(path.parent.relative_to(FOLDERS[stage_of(path)].parent).parts)
        for path in SOURCES
        if path.name == "__init__.py"
    }
    assert listed == on_disk


def test_drawers_without_a_name_are_not_opened() -> None:
    assert {path.stem for path in SOURCES} & {"utils", "common", "helpers", "manager", "misc"} == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text("utf-8")))


def test_init_files_of_packages_are_short() -> None:
    for path in SOURCES:
        if path.name == "__init__.py" and path.parent.name != "cli":
            assert len(path.read_text("utf-8").splitlines()) <= 5


class TestSkippingInCI:
    def forbidden(self, reason: str) -> bool:
        return conftest._is_forbidden(pytest.TestReport("a test", ("a file", 1, ""), {}, "skipped", reason, "setup"))

    @pytest.fixture(autouse=True)
    def _in_ci(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NCU_BENCH_NO_SKIPS", "1")

    def test_is_a_failure_where_something_can_be_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(conftest, "SHARED", Path("nowhere"))
        assert self.forbidden("nsys is not installed")
        assert self.forbidden("got empty parameter set for (path)")

    def test_is_allowed_for_the_lack_of_other_peoples_reports_alone(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        reason = "the folder ../shared/reports with other people's real reports is missing"
        monkeypatch.setattr(conftest, "SHARED", tmp_path / "nowhere")
        assert not self.forbidden(reason)
        monkeypatch.setattr(conftest, "SHARED", tmp_path)
        assert self.forbidden(reason)
