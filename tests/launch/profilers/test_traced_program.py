"""Programs of Python under PyTorch's profiler, where neither ncu nor a GPU is: recorded whole, and run as they are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.manifest import manifest_in
from ncu_launch.profile.plan import PYTORCH_TOOL, TRACED_PROGRAM, Request, make_plan
from ncu_parsers.parquet.reader import read_launches

from tests.support.called_here import called_here
from tests.support.installed import needs_torch
from tests.support.nightly import by_day
from tests.tools.cli.test_cli import Result

pytestmark = [pytest.mark.slow, needs_torch]

SCRIPT = """
import sys
import torch
import beside
for _ in range(int(sys.argv[1])):
    torch.ones(8, 4) @ torch.ones(4, 2)
print("ran", beside.X, sys.argv[1:], __name__)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program, the module that it imports, and a PATH without ncu and nvidia-smi."""
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "train.py").write_text(SCRIPT, "utf-8")
    (tmp_path / "program" / "beside.py").write_text("X = 1\n", "utf-8")
    monkeypatch.chdir(tmp_path / "program")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("ncu_launch.profilers.installed_tools.PLACES", (), raising=False)
    return tmp_path


def profiled(folder: Path, *words: str) -> Result:
    return called_here(
        "profile", "--no-measure", "-o", str(folder / "run"), "--", sys.executable, *words, cwd=folder / "program"
    )


def products(folder: Path) -> int:
    names: list[str] = read_launches(folder / "run" / "launches.parquet").column("kernel_name").to_pylist()
    return names.count("aten::mm")


@pytest.mark.parametrize("words", by_day(["-m train 3"], ["-m train 3", "-u train.py 3"]))
def test_a_program_runs_as_it_does_alone_and_its_trace_is_a_run_like_any_other(words: str, here: Path) -> None:
    done = profiled(here, *words.split())
    assert done.code == 0, done.err
    assert done.err.startswith("Recording with PyTorch's profiler (")
    assert "FLOPs and bytes follow from the shapes of operators" in done.err.splitlines()[0]
    assert "ran 1 ['3'] __main__" in (here / "run" / "logs" / "output.txt").read_text("utf-8")
    assert products(here) == 3
    manifest = manifest_in(here / "run")
    assert manifest is not None
    assert (manifest.source, manifest.partial) == (PYTORCH_TOOL, False)
    rows = called_here("hotspots", "run", "--format", "json", cwd=here).json()["rows"]
    row = next(row for row in rows if row["kernel"] == "aten::mm")
    assert (row["launches"], row["flops"]) == (3, 3 * 2 * 8 * 4 * 2)


@pytest.mark.nightly
def test_a_program_that_fails_leaves_what_it_did_and_says_why(here: Path) -> None:
    (here / "program" / "train.py").write_text(SCRIPT + "raise ValueError('too few')\n", "utf-8")
    done = profiled(here, "train.py", "2")
    assert done.code == 1
    assert 'It says: "ValueError: too few".' in done.err
    assert "ran 1 ['2'] __main__" in (here / "run" / "logs" / "output.txt").read_text("utf-8")
    assert products(here) == 2


@pytest.mark.nightly
def test_a_program_that_starts_the_profiler_itself_is_told_to_be_run_as_it_is(here: Path) -> None:
    own = "import torch\nwith torch.profiler.profile():\n    torch.ones(2)\n"
    (here / "program" / "own.py").write_text(own, "utf-8")
    done = profiled(here, "own.py")
    assert done.code == 1
    assert "The program starts PyTorch's profiler itself" in done.err


@pytest.mark.parametrize(
    "words",
    [("./train",), ("bash", "train.sh"), ("python",), ("python", "-"), ("python", "-X"), ("python", "-c", "pass")],
    ids=" ".join,
)
def test_other_programs_are_told_what_can_be_recorded(words: tuple[str, ...], here: Path) -> None:
    with pytest.raises(NcuBenchError, match=r"this program is not\. Here .*Write it as: python FILE\.py"):
        make_plan(Request(asked=(), metrics=("flops", "dram"), program=words), here / "run")


def test_options_of_python_stay_before_what_runs_the_program(here: Path) -> None:
    words = ("python3.11", "-W", "error", "-u", "train.py", "-m", "3")
    plan = make_plan(Request(asked=(), metrics=("flops", "dram"), program=words), here / "run")
    at = plan.command.index(str(TRACED_PROGRAM))
    assert plan.command[:at] == words[:4]
    assert plan.command[at + 2 :] == words[4:]
