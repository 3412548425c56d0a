"""The suite's own processes: each imports the files that it runs, and no test, failure or error of them is lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

RECORDED = """
import pathlib
with pathlib.Path("imported").open("a") as file:
    file.write(__name__ + " ")
"""
TESTS = RECORDED + (
    """
import pytest

@pytest.fixture(scope="module")
def shared():
    yield 1
    with pathlib.Path("ended").open("a") as file:
        file.write(__name__ + " ")

@pytest.mark.parametrize("n", range(3))
def test_good(n, shared):
    assert shared

class TestOthers:
    def test_bad(self):
        assert 0

    def test_skipped(self):
        pytest.skip()

    @pytest.mark.filterwarnings("ignore")
    def test_left_out(self):
        pass
"""
)


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed: pip install '.[test]'")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # each of the processes would import Hypothesis
    plugins = ("-p", "xdist.plugin", "-p", "tests.support.files_by_turns", "-p", "no:cacheprovider")
    return (*plugins, "-n", "2", "--dist", "loadfile")


def test_files_are_imported_once_and_all_of_their_tests_are_told(
    pytester: pytest.Pytester, words: tuple[str, ...]
) -> None:
    names = [f"test_{letter}" for letter in "abcd"]
    pytester.makepyfile(**dict.fromkeys(names, TESTS))
    pytester.makepyfile(test_broken=f"{RECORDED}\nimport no_such_module", test_empty=RECORDED)
    done = pytester.runpytest_subprocess(*words, "-m", "not filterwarnings")
    done.assert_outcomes(passed=12, failed=4, skipped=4, errors=1)
    done.stdout.fnmatch_lines("*No module named 'no_such_module'*")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert Counter(Path("imported").read_text("utf-8").split()) == dict.fromkeys(
        [*names, "test_broken", "test_empty"], 1
    )
    assert sorted(Path("ended").read_text("utf-8").split()) == names
    named = pytester.runpytest_subprocess(
        *words, "-n", "1", "test_a.py::test_good", "test_b.py::TestOthers::test_left_out"
    )
    named.assert_outcomes(passed=4)


def test_a_process_that_dies_ends_the_run(pytester: pytest.Pytester, words: tuple[str, ...]) -> None:
    pytester.makepyfile(
        test_a="def test(): pass", test_b="import os\ndef test(): os._exit(3)", test_c="def test(): pass"
    )
    done = pytester.runpytest_subprocess(*words, timeout=100)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert "A process died while it ran test_b.py::every test" in done.stdout.str() + done.stderr.str()
