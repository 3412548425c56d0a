"""Functions that print, return nothing, fail, exit, change their inputs or cannot be called: profile and bench say so.

That one function is wrong must not end what asks for it, or the points beside it. Functions that print or exit are real
processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ncu_parsers.parquet.reader import read_bench

from tests.support.called_here import called_here
from tests.support.models.models_here import models_run_here
from tests.tools.cli.test_cli import PYTHONPATH

pytestmark = pytest.mark.slow
pytest.importorskip("torch")

MAIN = (sys.executable, "-c", "from ncu_tools.cli import main; main()")
TO_RUN, QUICKLY = ("--on", "cpu", "-o", "run"), ("--max-time", "0.1")
ALONE = """
import torch

def prints(batch_size: int = 1):
    print('{"ncu_bench_error": "not one of ours"}')
    print("ncu-bench: no stage of ours")
    return torch.ones(batch_size, 4) * 2

def nothing(n: int = 4):
    torch.ones(n) * 2

def wants_more(n: int, m: int, *, k: int):
    return torch.ones(n, m)

def positional_only(n, /):
    return torch.ones(3) * n

def no_operator(n: int = 4):
    return sum(range(n))

def leaves(n: int = 4):
    raise SystemExit(0)

def yields(n: int = 4):
    yield torch.ones(n) * 2

async def waits(n: int = 4):
    return torch.ones(n) * 2

def fails_for_four(batch_size: int = 1):
    if batch_size == 4:
        raise ValueError("no tile for four rows")
    return torch.ones(batch_size, 8) * 2

def fails_later(batch_size: int = 1, calls=[]):
    calls.append(1)
    if len(calls) > 4 and batch_size == 2:
        raise RuntimeError("the fifth call failed")
    return torch.ones(batch_size, 8) * 2
"""
WITH_INPUTS = """
import torch

def changes(x):
    x += 1
    return x

def of_two(x, y):
    return x + y

def make_inputs(n: int = 4):
    return torch.ones(n)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "k.py").write_text(ALONE)
    (tmp_path / "i.py").write_text(WITH_INPUTS)
    (tmp_path / "broken.py").write_text("x = 1\ndef broken(:\n")
    (tmp_path / "no_data.py").write_text(
        "def make_inputs():\n    raise ValueError('no data')\ndef f(x):\n    return x\n"
    )
    return tmp_path


def process(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "COLUMNS": "160"}
    return subprocess.run(
        [*MAIN, *words, *TO_RUN], capture_output=True, text=True, check=False, cwd=folder,
        env=environment, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("k.py:wants_more", "k.py:wants_more needs a value for n. Say --arg n=VALUE"),
        ("k.py:positional_only", "k.py:positional_only cannot be called with no inputs."),
        (
            "i.py:of_two",
            "i.py:of_two cannot be called with 1 input, which make_inputs returns. Its arguments are: x, y.",
        ),
        ("k.py:yields", "k.py:yields is a generator, so that calling it does nothing yet."),
        ("k.py:waits", "k.py:waits is asynchronous, so that calling it does nothing yet."),
        ("k.py:leaves", "The target ended its process with exit code 0. It calls sys.exit."),
        ("k.py:no_operator", "k.py:no_operator ran no operator of PyTorch."),
        ("broken.py:broken", "broken.py could not be imported: invalid syntax in line 2 of"),
        ("no_data.py:f", "ValueError: no data"),
    ],
)
def test_profile_names_what_is_wrong_in_one_paragraph(
    target: str, says: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models_run_here(monkeypatch)
    result = called_here("profile", target, *TO_RUN, cwd=folder)
    assert result.code in (1, 2)
    (error,) = [line for line in result.err.splitlines() if line.startswith("Error")]
    assert says in error
    assert "Traceback" not in result.err


@pytest.mark.nightly
class TestAsProcesses:
    def test_a_function_that_prints_what_looks_like_our_own_lines_is_profiled(self, folder: Path) -> None:
        done = process(folder, "profile", "k.py:prints")
        assert done.returncode == 0, done.stderr
        assert "aten::mul" in done.stdout
        assert "not one of ours" not in done.stdout + done.stderr

    def test_a_function_that_exits_is_an_error_of_its_own(self, folder: Path) -> None:
        done = process(folder, "profile", "k.py:leaves")
        assert done.returncode == 1
        assert "The target ended its process with exit code 0" in done.stderr


class TestInThisProcess:
    @pytest.fixture(autouse=True)
    def _here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        models_run_here(monkeypatch)

    def test_a_function_that_returns_nothing_is_the_work_itself(self, folder: Path) -> None:
        done = called_here("profile", "k.py:nothing", *TO_RUN, cwd=folder)
        assert done.code == 0, done.err
        assert "note: nothing() is called as it is" in done.err

    def test_a_function_that_changes_its_inputs_is_profiled_with_a_note(self, folder: Path) -> None:
        done = called_here("profile", "i.py:changes", *TO_RUN, cwd=folder)
        assert done.code == 0, done.err
        assert "the work changes its inputs in place" in done.err

    def test_a_sweep_goes_on_where_a_function_fails_at_one_point(self, folder: Path) -> None:
        done = called_here("bench", "k.py:fails_for_four", "--batch-size", "2,4,8", *QUICKLY, *TO_RUN, cwd=folder)
        assert done.code == 0, done.err
        rows = read_bench(folder / "run" / "bench.parquet").to_pylist()
        assert [(row["batch_size"], row["outcome"]) for row in rows] == [(2, "ok"), (4, "failed"), (8, "ok")]
        assert rows[1]["reason"] == "ValueError: no tile for four rows"
        assert rows[1]["latency_mean_ns"] is None

    def test_a_function_that_fails_in_the_middle_of_the_timing_is_a_row_beside_the_others(self, folder: Path) -> None:
        targets = ("k.py:prints", "k.py:fails_later")
        called_here("bench", *targets, "--batch-size", "2", *QUICKLY, *TO_RUN, cwd=folder)
        rows = {row["target"]: row for row in read_bench(folder / "run" / "bench.parquet").to_pylist()}
        assert rows["k.py:prints"]["outcome"] == "ok"
        assert (rows["k.py:fails_later"]["outcome"], rows["k.py:fails_later"]["reason"]) == (
            "failed", "RuntimeError: the fifth call failed",
        )  # fmt: skip
