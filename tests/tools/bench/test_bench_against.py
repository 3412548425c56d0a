"""ncu-bench bench --against: one function beside another with the same inputs, as a user calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ncu_tools.cli.collecting.bench_against import SPEEDUP
from tests.support.called_here import called_here
from tests.support.models.models_here import models_run_here
from tests.tools.cli.test_cli import PYTHONPATH, Result

pytestmark = pytest.mark.slow
pytest.importorskip("torch")

KERNELS = """
import torch

def softmax(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)

def wrong(x):
    return torch.softmax(x, -1) * 1.01

def scale(x, by: float = 2.0):
    return x * by

def doubled(x):
    return x + x

def in_place(x):
    x.mul_(2)

def in_place_too(x):
    x.add_(x)

def in_place_wrong(x):
    x.mul_(3)

def in_place_and_returned(x):
    return x.mul_(2)

def prints(x):
    print("ncu-bench is not said here, but this is:", x.shape)
    return x + x

def returns_nothing(x):
    x + x

def of_two(x, y):
    return x + y

def leaves(x):
    raise SystemExit(0)

def fails_for_four(x):
    if len(x) == 4:
        raise ValueError("no tile for four rows")
    return x + x

def makes_its_own(n: int = 8):
    return torch.randn(n) * 2

def makes_the_same(n: int = 8):
    y = torch.randn(n)
    return y + y

def makes_others(n: int = 8):
    torch.randn(1)
    return torch.randn(n) * 2

def closure(n: int = 8):
    return lambda x: x + x

def gradient_lost(x):
    return x * 2 + (x.detach() - x) * 0.5 + (x - x.detach()) * 0.0

def make_inputs(n: int = 16, batch_size: int = 2):
    return torch.randn(batch_size, n, requires_grad=True).detach()
"""
TRAINED = """
import torch

def mine(x):
    return x * 2

def reference(x):
    return x + x

def wrong_gradient(x):
    return x + x.detach()

def make_inputs():
    return torch.ones(4, requires_grad=True)
"""
MAIN = (sys.executable, "-c", "from ncu_tools.cli import main; main()")
QUICK = ("--max-time", "0.02", "--warmup", "2", "--on", "cpu")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "k.py").write_text(KERNELS)
    (tmp_path / "t.py").write_text(TRAINED)
    models_run_here(monkeypatch)
    return tmp_path


def against(folder: Path, *words: str) -> Result:
    return called_here("bench", *QUICK, "-o", "out", "--format", "json", *words, cwd=folder)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out" / "against.jsonl").read_text("utf-8").splitlines()]


class TestTheResults:
    def test_that_agree_come_with_both_times_and_their_ratio(self, folder: Path) -> None:
        result = against(folder, "k.py:softmax", "--against", "torch.nn.functional:softmax", "--arg", "dim=-1")
        assert result.code == 0, result.err
        (row,) = result.json()["rows"]
        assert (row["outcome"], row["agrees"], row["tolerance"]) == ("ok", True, 1e-5)
        assert (row["target"], row["reference"], row["arguments"]) == (
            "k.py:softmax", "torch.nn.functional:softmax", "dim=-1",
        )  # fmt: skip
        assert 0 < row["low"] <= row["ratio"] <= row["high"]
        assert row["mine_ns"] > 0
        assert row["reference_ns"] > 0
        assert 0 <= row["max_abs"] < 1e-6

    def test_of_both_functions_are_rows_of_the_sweep_too(self, folder: Path) -> None:
        from ncu_parsers.parquet.reader import read_bench

        assert against(folder, "k.py:scale", "--against", "k.py:doubled").code == 0
        mine, reference = read_bench(folder / "out" / "bench.parquet").to_pylist()
        assert (mine["target"], reference["target"]) == ("k.py:scale", "k.py:doubled")
        assert mine["point"] != reference["point"]
        for row in (mine, reference):
            assert (row["outcome"], row["batch_size"]) == ("ok", 1)
            assert (row["expected_flops"] > 0, row["expected_flops_basis"]) == (True, "all operators")
            assert row["iterations"] == len(row["samples_ns"]) > 0

    def test_that_differ_are_an_outcome_with_exit_code_1_and_the_largest_difference(self, folder: Path) -> None:
        result = against(folder, "k.py:wrong", "--against", "k.py:softmax")
        assert result.code == 1
        assert "1 point disagrees with k.py:softmax" in result.err
        (row,) = rows_of(folder)
        assert (row["outcome"], row["agrees"]) == ("disagrees", False)
        assert row["max_rel"] == pytest.approx(0.01, rel=0.01)
        assert row["ratio"] > 0

    def test_that_differ_within_a_given_tolerance_agree(self, folder: Path) -> None:
        assert against(folder, "k.py:wrong", "--against", "k.py:softmax", "--agree-within", "0.02").code == 0

    def test_that_one_function_returns_and_the_other_does_not_differ(self, folder: Path) -> None:
        result = against(folder, "k.py:in_place", "--against", "k.py:in_place_and_returned")
        assert result.code == 1
        assert "it gives no result, the reference 1" in result.err

    def test_of_two_functions_in_place_are_those_in_their_own_copies(self, folder: Path) -> None:
        result = against(folder, "k.py:in_place", "--against", "k.py:in_place_too")
        assert result.code == 0, result.err
        assert result.json()["rows"][0]["agrees"] is True
        assert any("changes its inputs in place" in note for note in result.json()["notes"])

    def test_of_two_functions_in_place_that_leave_other_values_differ(self, folder: Path) -> None:
        result = against(folder, "k.py:in_place", "--against", "k.py:in_place_wrong")
        assert result.code == 1
        assert "16 of 16 values differ" in result.err

    def test_agree_although_one_function_changes_its_inputs_and_a_note_says_so(self, folder: Path) -> None:
        result = against(folder, "k.py:in_place_and_returned", "--against", "k.py:doubled")
        assert result.code == 0, result.err
        note = "k.py:in_place_and_returned: it changes its inputs, and the other function does not"
        assert note in result.json()["notes"]

    def test_that_are_nothing_are_not_compared_and_both_are_timed_all_the_same(self, folder: Path) -> None:
        result = against(folder, "k.py:returns_nothing", "--against", "k.py:returns_nothing")
        assert result.code == 0, result.err
        (row,) = result.json()["rows"]
        assert (row["outcome"], row["agrees"]) == ("not compared", None)
        assert "there is nothing to compare" in row["reason"]
        assert row["ratio"] > 0

    def test_of_a_function_that_prints_are_as_good(self, folder: Path) -> None:
        result = against(folder, "k.py:prints", "--against", "k.py:doubled")
        assert result.code == 0, result.err
        assert "this is" in (folder / "out" / "logs" / "pair-1-1.txt").read_text("utf-8")

    def test_of_functions_that_make_their_inputs_come_from_the_same_seed(self, folder: Path) -> None:
        assert against(folder, "k.py:makes_its_own", "--against", "k.py:makes_the_same").code == 0
        (folder / "out").rename(folder / "first")
        assert against(folder, "k.py:makes_its_own", "--against", "k.py:makes_others").code == 1

    def test_of_a_closure_are_the_results_of_the_called_function(self, folder: Path) -> None:
        assert against(folder, "k.py:scale", "--against", "k.py:closure").code == 0

    def test_include_the_gradients_of_the_inputs_where_the_backward_pass_is_timed(self, folder: Path) -> None:
        assert against(folder, "t.py:mine", "--against", "t.py:reference", "--phase", "backward").code == 0
        (folder / "out").rename(folder / "first")
        result = against(folder, "t.py:mine", "--against", "t.py:wrong_gradient", "--phase", "backward")
        assert result.code == 1
        assert "result 2" in result.err


class TestAPoint:
    def test_that_fails_says_where_and_the_others_are_measured(self, folder: Path) -> None:
        words = ("k.py:fails_for_four", "--against", "k.py:doubled", "--batch-size", "2,4,8")
        result = against(folder, *words)
        assert result.code == 0, result.err
        outcomes = [(row["batch_size"], row["outcome"]) for row in result.json()["rows"]]
        assert outcomes == [(2, "ok"), (4, "failed"), (8, "ok")]
        reason = result.json()["rows"][1]["reason"]
        assert reason == "while running k.py:fails_for_four: ValueError: no tile for four rows"

    def test_whose_function_takes_other_inputs_names_its_arguments(self, folder: Path) -> None:
        result = against(folder, "k.py:doubled", "--against", "k.py:of_two")
        assert result.code == 1
        assert "k.py:of_two cannot be called with the inputs of k.py:doubled" in result.err
        assert "Its arguments are: x, y." in result.err

    def test_whose_function_ends_the_process_is_failed_and_says_so(self, folder: Path) -> None:
        result = against(folder, "k.py:leaves", "--against", "k.py:doubled")
        assert result.code == 1
        assert "exit code 0 while running k.py:leaves: a function exits" in result.err

    def test_measured_by_several_processes_has_the_interval_between_them(self, folder: Path) -> None:
        result = against(folder, "k.py:scale", "--against", "k.py:doubled", "--processes", "2")
        assert result.code == 0, result.err
        (row,) = result.json()["rows"]
        assert row["processes"] == 2
        assert row["low"] < row["ratio"] < row["high"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("resnet18", "--against", "k.py:doubled"), "resnet18 is not a function"),
        (("k.py:doubled", "--against", "resnet18"), "resnet18 is not a function"),
        (("k.py:doubled", "--agree-within", "0.1"), "--agree-within goes with --against"),
        (("k.py:doubled", "--against", "k.py:scale", "--dask", "local"), "--against does not go with --dask"),
        (("k.py:doubled", "--against", "k.py:scale", "--resume"), "--against does not go with --resume"),
    ],
)
def test_what_does_not_go_together_is_refused(words: tuple[str, ...], says: str, folder: Path) -> None:
    result = against(folder, *words)
    assert result.code == 2
    assert says in result.err


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("k.py:dubled", "Did you mean doubled?"),
        ("missing.py:f", "missing.py does not exist"),
        ("no_such_module:f", "could not be imported"),
    ],
)
def test_a_reference_that_is_not_there_is_named(reference: str, says: str, folder: Path) -> None:
    result = against(folder, "k.py:doubled", "--against", reference)
    assert result.code == 1
    assert says in result.err


@pytest.mark.nightly
def test_the_table_of_a_real_process_says_what_speedup_is_and_how_results_agree(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(KERNELS)
    words = [*MAIN, "bench", *QUICK, "k.py:scale", "--against", "k.py:doubled", "-o", "o"]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "COLUMNS": "200"}
    done = subprocess.run(words, capture_output=True, check=False, cwd=tmp_path, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    assert "speedup" in done.stdout.decode()
    assert "agree" in done.stdout.decode()
    assert "with tolerance 1e-05" in done.stderr.decode()
    assert f"note: {SPEEDUP}" in done.stderr.decode()
