"""The nightly parts: together they try everything, each goes on where it was left, and the account says what was tried."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from subprocess import CompletedProcess

import pytest

from tests.conftest import ROOT
from tests.fuzz.campaign import NAMES
from tests.fuzz.oracle.compared import compared
from tests.fuzz.oracle.formats import FORMATS
from tests.fuzz.targets import TARGETS, try_input
from tests.nightly import __main__ as nightly
from tests.nightly import account, parts
from tests.nightly.account import Tried
from tests.nightly.parts import LEFT, Case
from tests.support.pages import tried
from tests.support.write_faults import WRITERS, of_each_row
from tests.whole.test_house import MODULES

pytestmark = pytest.mark.slow

Runs = Callable[..., list[int]]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Goes on with a case of three chunks on a commit, and returns the chunks that were tried; `says` of each chunk."""
    monkeypatch.setattr(account.load, "__defaults__", (tmp_path / "account.json",))
    monkeypatch.setattr(account.save, "__defaults__", (tmp_path / "account.json",))

    def run(
        commit: str = "abc", says: dict[int, str] | None = None, findings: int = 0, seconds: float = 60
    ) -> list[int]:
        tried: list[int] = []

        def one(chunk: int, left: float) -> Tried:
            tried.append(chunk)
            return Tried("", inputs=10, findings=findings, said=(says or {}).get(chunk, ""))

        monkeypatch.setattr(account, "commit_of_code", lambda code: commit)
        monkeypatch.setattr(account, "is_as_it_was", lambda tried_on, code: tried_on == commit)
        nightly.go_on([Case("a case", 3, one)], seconds, 1)
        return tried

    return run


def test_a_part_tries_each_chunk_once(runs: Runs) -> None:
    assert (runs(), runs()) == ([0, 1, 2], [])
    assert account.load()["a case"].inputs == 30


def test_a_chunk_that_the_clock_ended_is_tried_again_and_not_counted(runs: Runs) -> None:
    assert (runs(says={1: LEFT}), runs()) == ([0, 1, 2], [1])
    assert account.load()["a case"].inputs == 30


def test_another_commit_is_tried_anew(runs: Runs) -> None:
    assert (runs("abc"), runs("def")) == ([0, 1, 2], [0, 1, 2])
    assert (account.load()["a case"].commit, account.load()["a case"].inputs) == ("def", 30)


def test_code_is_as_it_was_until_a_file_of_it_changes() -> None:
    last = account.commit_of_code(("launch",)).rstrip("+")
    assert account.is_as_it_was(last, ("README.md", ":(exclude)README.md")) is True
    assert account.is_as_it_was("f" * 40, ("launch",)) is False
    assert account.is_as_it_was(f"{last}+", ("launch",)) is False


def unchanged_since_commit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, before: str, after: str | None
) -> bool:
    """Whether a file is as it was when it was committed, once its text has changed, or it is gone."""
    monkeypatch.setattr(account, "ROOT", folder)
    file = folder / name
    file.write_text(before)
    for words in (("init", "-q"), ("add", "."), ("-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "Halve")):
        account._git(*words)
    if after is None:
        file.unlink()
    else:
        file.write_text(after)
    return account.is_as_it_was.__wrapped__("HEAD", (name,))


@pytest.mark.parametrize(
    ("text", "unchanged"),
    [
        ('"""Halves of a number."""\n\ndef half(x):\n    """Half of `x`."""\n    return x / 2  # exact\n', True),
        ("def half(x):\n    return x / 3\n", False),
        ("def half(x):\n    return 'half'\n", False),
        (None, False),
    ],
    ids=["docstrings and comments", "a number", "a text that is returned", "the file is gone"],
)
def test_code_is_as_it_was_where_only_docstrings_and_comments_change(
    text: str | None, unchanged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = '"""Half."""\ndef half(x):\n    return x / 2\n'
    assert unchanged_since_commit(tmp_path, monkeypatch, "reader.py", before, text) is unchanged


@pytest.mark.parametrize(("text", "unchanged"), [("a = 1  # the least\n", True), ("a = 2\n", False)])
def test_tables_are_as_they_were_where_only_comments_change(
    text: str, unchanged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unchanged_since_commit(tmp_path, monkeypatch, "limits.toml", "a = 1\n", text) is unchanged


def test_no_chunk_begins_when_the_time_is_up(runs: Runs) -> None:
    assert runs(seconds=0) == []


def test_findings_add_up(runs: Runs) -> None:
    runs(findings=2)
    assert account.load()["a case"].findings == 6


class TestTheParts:
    def test_hold_every_target_format_and_set_of_mutants(self) -> None:
        assert sorted(one for targets in parts.TARGETS.values() for one in targets) == sorted(NAMES)
        assert tuple(FORMATS) == tuple(parts.FORMATS)
        assert tuple(writer.name for writer in WRITERS) == parts.WRITERS

    def test_hold_every_file_of_tests(self) -> None:
        places = [case.name.removeprefix("tests: ") for cases in parts.parts().values() for case in cases]
        files = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
        alone = [file for file in files if not any(file.is_relative_to(place) for place in places)]
        assert alone == []

    def test_have_cases_of_different_names(self) -> None:
        names = [case.name for cases in parts.parts().values() for case in cases]
        assert len(set(names)) == len(names)

    def test_try_a_million_inputs_of_each_target(self) -> None:
        assert {
            case.chunks * parts.CHUNK_OF_TARGET.get(case.name.removeprefix("mutated: "), parts.CHUNK)
            for name, cases in parts.parts().items()
            if name.startswith("fuzz")
            for case in cases
        } == {parts.INPUTS}


def files_that_run(read: Callable[[bytes], object], inputs: Sequence[bytes]) -> set[str]:
    """The files of the packages whose functions run to read inputs."""
    found: set[str] = set()
    sys.setprofile(lambda frame, event, of: found.add(frame.f_code.co_filename))
    try:
        for one in inputs:
            read(one)
    finally:
        sys.setprofile(None)
    return {str(path.relative_to(ROOT)) for path in map(Path, found) if path in MODULES.values()}


@pytest.fixture(scope="module")
def code() -> dict[str, set[str]]:
    """The files of each case's code."""
    return {case.name: {*case.code} for cases in parts.parts().values() for case in cases}


class TestTheCodeOfACase:
    @pytest.mark.parametrize("name", NAMES)
    def test_holds_every_file_that_runs_for_a_seed(self, name: str, code: dict[str, set[str]]) -> None:
        tried = partial(try_input, TARGETS[name], thorough=True)
        ran = files_that_run(tried, TARGETS[name].seeds())
        assert ran - code[f"mutated: {name}"] == set()
        assert ran

    @pytest.mark.parametrize("name", FORMATS)
    def test_holds_every_file_that_runs_to_compare(self, name: str, code: dict[str, set[str]], tmp_path: Path) -> None:
        inputs = [FORMATS[name].mutate(Random(seed)) for seed in range(5)]  # noqa: S311
        ran = files_that_run(lambda one: compared(FORMATS[name], one, tmp_path), inputs)
        assert ran - code[f"values: {name}"] == set()
        assert ran

    @pytest.mark.parametrize(
        ("changed", "waits", "goes_on"),
        [
            ("parsers/ncu_parsers/ncu_rep/blocks.py", "mutated: ncu-rep", "mutated: csv"),
            ("parsers/ncu_parsers/sources/sources.py", "mutated: csv", "mutated: points"),
            ("parsers/ncu_parsers/timelines/formats/xplane.py", "values: xplane", "values: pftrace"),
            ("parsers/ncu_parsers/streaming/cells/native", "values: csv-raw-fast", "values: csv-raw"),
            ("ncu_tools/ceilings/machines", "mutated: xplane", "values: xplane"),
        ],
    )
    def test_is_what_a_change_can_reach(
        self, changed: str, waits: str, goes_on: str, code: dict[str, set[str]]
    ) -> None:
        assert (changed in code[waits], changed in code[goes_on]) == (True, False)


class TestThePages:
    def test_are_those_of_the_account(self) -> None:
        assert [path.name for path, text in tried.pages() if path.read_text("utf-8") != text] == []

    def test_show_a_case_that_nobody_ran_as_not_run(self) -> None:
        page = tried.by_case({"mutated: csv": Tried("abc", "2026-01-02", 5_000, None, 1, 9.0, [0])})
        assert "| mutated: csv | 5,000 |  | 1 | 0.5 % | 2026-01-02 | abc |" in page
        assert "| mutated: kineto | not run |" in page


def test_faults_meet_every_file_and_the_ends_of_each_row_of_writes() -> None:
    assert of_each_row(["part"] * 9 + ["whole"] + ["part"] * 2) == [1, 2, 5, 8, 9, 10, 11, 12]


def test_the_launches_of_a_load_are_counted_once() -> None:
    lines = ["| load |", *(f"| 10,000 launches | 55.6 | {command} | 2.9 | 545 |" for command in ("parse", "report"))]
    printed = parts._printed("-c", f"print(*{lines!r}, sep=chr(10))", count=parts.LOADED)
    assert printed(0, 60).inputs == 10_000


def test_the_values_of_a_format_are_compared_and_counted() -> None:
    tried = parts._compared("points", 20, ("README.md",))(0, 100)
    assert (tried.inputs, tried.findings) == (20, 0)
    assert tried.read is not None
    assert tried.read > 5


def test_a_test_that_fails_is_a_finding_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_good(): pass\ndef test_bad(): assert False\n")
    tried = parts._tested(str(tmp_path / "test_it.py"), "-p", "no:xdist")(0, 100)
    assert (tried.inputs, tried.findings) == (2, 1)
    assert "test_bad" in tried.said


def test_what_takes_longer_than_its_time_is_left_for_the_next_call() -> None:
    assert parts._printed("-c", "import time; time.sleep(60)", count="x")(0, 0.5).said == LEFT


@pytest.mark.parametrize(("score", "findings"), [("95.0", 0), ("90.0", 0), ("87.5", 1)])
def test_too_few_mistakes_that_are_noticed_are_a_finding(
    score: str, findings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = CompletedProcess(
        [], 0, f"intervals: {score} % (35 noticed, 5 survived, 0 equivalent, of 507 mutants; 9 s)"
    )
    monkeypatch.setattr(parts, "_called", lambda *_: printed)
    tried = parts._scored("intervals")(0, 100)
    assert (tried.inputs, tried.findings) == (35, findings)
    monkeypatch.setattr(parts, "_called", lambda *_: CompletedProcess([], 1, "a test fails without a mistake"))
    assert parts._scored("intervals")(0, 100).findings == 1
