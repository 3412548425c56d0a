"""Completion as the shells ask for it: click's protocol, and bash and fish with a process of the command."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import pytest

from ncu_tools.cli import run as run_here
from ncu_tools.cli.shell.bash_words import rejoined
from ncu_tools.cli.shell.completed_values import NO_PATHS, VALUES
from tests.conftest import ROOT
from tests.support.called_here import called_here
from tests.support.nightly import by_day
from tests.support.pages.options_page import commands
from tests.tools.cli.test_cli import PROGRAM, PYTHONPATH, Result

pytestmark = pytest.mark.slow

RUN = ROOT / "tests" / "released" / "schema-1" / "run"
REPORT = ROOT / "tests" / "released" / "schema-1" / "report.parquet"
BASH = shutil.which("bash") or ""
needs_bash = pytest.mark.skipif(not BASH, reason="bash is not installed")


def completed(line: str, shell: str = "bash", cwd: Path | None = None) -> list[str]:
    """What a shell offers for the last word of a line, as bash splits it."""
    words = line.replace("=", " = ").replace(":", " : ").split() + ([""] if line[-1] in " =:" else [])
    at = len(words) - (2 if line[-1] in "=:" else 1)
    asked = {"_NCU_BENCH_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(at)}
    printed, said = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()  # click writes bytes
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed), redirect_stderr(said):
        patch.chdir(cwd or ROOT)
        for name, value in asked.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit, match=r"^0$"):
            run_here([])
    assert said.getvalue() == ""
    printed.seek(0)
    return printed.read().split()


@pytest.mark.parametrize(("line", "offered"), [
    ("ncu-bench hots", ["plain,hotspots"]),
    ("ncu-bench --mem", ["plain,--memory-limit"]),
    ("ncu-bench hotspots --mem", ["plain,--memory-limit"]),
    ("ncu-bench roofline --machine h100", ["plain,h100-nvl", "plain,h100-pcie", "plain,h100-sxm"]),
    ("ncu-bench roofline --machine=h100-s", ["plain,h100-sxm"]),
    ("ncu-bench roofline --machine t4,H100-s", ["plain,t4,h100-sxm"]),
    ("ncu-bench machines meas", ["plain,measure"]),
    ("ncu-bench machines --chip gh1", ["plain,gh100"]),
    ("ncu-bench machines --metrics flo", ["plain,flops"]),
    ("ncu-bench metrics --chip gh1", ["plain,gh100"]),
    ("ncu-bench hotspots run --by la", ["plain,layer"]),
    ("ncu-bench hotspots run --by layer --forw", ["plain,--forward-backward"]),
    ("ncu-bench profile --metrics flops,dr", ["plain,flops,dram"]),
    ("ncu-bench profile hf:bert-b", ["plain,bert-base"]),
    ("ncu-bench estimate gemm", ["plain,gemms"]),
    ("ncu-bench bench gemms --dtype fp32,b", ["plain,fp32,bf16"]),
    ("ncu-bench hotspots --format m", ["plain,markdown"]),
    ("ncu-bench hotspots rep", ["file,rep"]),
    ("ncu-bench parse report.csv -o ", ["file,"]),
    ("ncu-bench query run sel", []),
    ("ncu-bench no-such-command --x", []),
])  # fmt: skip
def test_a_word_is_completed_by_what_it_can_be(line: str, offered: list[str]) -> None:
    assert completed(line) == offered


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed (the extra models)")
def test_models_are_those_of_the_installed_torchvision() -> None:
    assert completed("ncu-bench profile resnet1") == ["plain,resnet18", "plain,resnet101", "plain,resnet152"]


class TestKernels:
    @pytest.mark.parametrize("run", by_day([RUN], [RUN, REPORT]), ids=["run folder", "Parquet file"])
    def test_are_those_of_the_run_in_the_line(self, run: Path) -> None:
        offered = completed(f"ncu-bench hotspots {run} --kernel ")
        expected = {
            line.split(",")[0]
            for line in called_here("query", str(run), "SELECT DISTINCT kernel_short FROM launches", "--format", "csv", cwd=ROOT)
            .out.splitlines()[1:]
        }  # fmt: skip
        assert {line.removeprefix("plain,") for line in offered} == expected
        assert len(expected) > 2

    def test_begin_as_what_is_typed(self) -> None:
        (name,) = completed(f"ncu-bench hotspots {REPORT} --phase forward --kernel sg")
        assert name == "plain,sgemm_tiled"
        assert completed(f"ncu-bench kernel {REPORT} sg") == [name]

    def test_are_described_by_what_they_do(self) -> None:
        offered = completed(f"ncu-bench hotspots {REPORT} --kernel vec", "zsh")
        assert offered == ["plain", "vectorized_elementwise_kernel", "elementwise", "relu", "fp32"]

    def test_are_none_for_a_run_that_is_not_there_or_no_run_of_ours(self, tmp_path: Path) -> None:
        (tmp_path / "other.parquet").write_bytes(b"PAR1 and no more")
        assert completed("ncu-bench hotspots missing --kernel ") == []
        assert completed(f"ncu-bench hotspots {tmp_path / 'other.parquet'} --kernel ") == []

    def test_that_a_shell_would_take_apart_are_not_offered(self, tmp_path: Path) -> None:
        report = tmp_path / "report.csv"
        text = (ROOT / "sample_reports" / "d04-long-metrics.csv").read_text("utf-8")
        report.write_text(text.replace("sgemm_tiled", "$(touch x);`id`"), encoding="utf-8")
        assert called_here("parse", str(report), "-o", str(tmp_path / "launches.parquet"), cwd=ROOT).code == 0
        offered = completed(f"ncu-bench hotspots {tmp_path} --kernel ")
        assert offered
        assert not [line for line in offered if set("$;`* '\"()<>|&") & set(line)]


def test_zsh_and_fish_are_answered_too() -> None:
    assert completed("ncu-bench hots", "zsh")[:2] == ["plain", "hotspots"]
    done = subprocess.run(
        PROGRAM, capture_output=True, check=True, text=True,
        env={
            **os.environ, "PYTHONPATH": PYTHONPATH, "_NCU_BENCH_COMPLETE": "fish_complete",
            "COMP_WORDS": "ncu-bench machines --chip gh", "COMP_CWORD": "gh",
        },
    )  # fmt: skip
    assert "gh100" in done.stdout


def test_every_value_belongs_to_an_option_or_argument_that_exists() -> None:
    there: set[str] = set()
    for name, command in commands().items():
        for parameter in command.params:
            there |= set(parameter.opts) | {f"{name} {parameter.name}"}
    assert {*VALUES, *NO_PATHS} <= there


@pytest.mark.parametrize(("words", "typed"), [
    (["a", "hf", ":", "b"], ["a", "hf:b"]),
    (["a", "hf", ":"], ["a", "hf:"]),
    (["--machine", "=", "h"], ["--machine=h"]),
    (["a", "FILE.py", ":", "f", "--x"], ["a", "FILE.py:f", "--x"]),
    (["a", ""], ["a", ""]),
])  # fmt: skip
def test_words_that_bash_split_are_put_together(words: list[str], typed: list[str]) -> None:
    assert rejoined(words) == typed


# --------------------------------------------------------------------------------------------------------- the script


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_click_prints_the_script_of_a_shell_and_so_does_the_old_command(shell: str) -> None:
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "_NCU_BENCH_COMPLETE": f"{shell}_source"}
    done = subprocess.run(PROGRAM, capture_output=True, check=True, timeout=60, text=True, env=environment)
    assert "_ncu_bench_completion" in done.stdout
    old = called_here("completion", shell, cwd=ROOT)
    assert old.out == done.stdout
    assert old.err == f"ncu-bench completion has a new name: _NCU_BENCH_COMPLETE={shell}_source ncu-bench\n"


def test_the_old_command_installs_nothing_and_says_what_to_add_to_which_file() -> None:
    refused = called_here("completion", "zsh", "--install", cwd=ROOT)
    assert refused.code == 2
    assert 'eval "$(_NCU_BENCH_COMPLETE=zsh_source ncu-bench)"' in refused.err


# --------------------------------------------------------------------------------------------------------- real bash


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the command ncu-bench, on the path."""
    command = tmp_path / "bin" / "ncu-bench"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nfrom ncu_tools.cli import program\nprogram()\n", encoding="utf-8")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    return command.parent


def bash(text: str, cwd: Path) -> Result:
    done = subprocess.run(
        [BASH, "--norc", "--noprofile", "-c", text], capture_output=True, cwd=cwd, check=False, timeout=60
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


@needs_bash
def test_bash_registers_the_script_and_fills_its_replies(on_path: Path, tmp_path: Path) -> None:
    script = """
        eval "$(_NCU_BENCH_COMPLETE=bash_source ncu-bench)"
        complete -p ncu-bench
        COMP_WORDS=(ncu-bench roofline --machine t4,h100); COMP_CWORD=3
        _ncu_bench_completion ncu-bench; printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = bash(script, tmp_path)
    assert done.err == ""
    assert done.out.splitlines() == [
        "complete -o nosort -F _ncu_bench_completion ncu-bench", "t4,h100-nvl", "t4,h100-pcie", "t4,h100-sxm",
    ]  # fmt: skip


@needs_bash
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no terminals of this kind")
def test_tab_at_a_prompt_of_bash_completes_a_line(on_path: Path, tmp_path: Path) -> None:
    import pty
    import select

    terminal, inner = pty.openpty()
    shell = subprocess.Popen(
        [BASH, "--norc", "--noprofile", "-i"], stdin=inner, stdout=inner, stderr=inner, cwd=tmp_path,
        start_new_session=True, env={**os.environ, "PS1": "ready> ", "TERM": "dumb", "COLUMNS": "200"},
    )  # fmt: skip
    os.close(inner)

    def until(awaited: str) -> None:
        seen, end = b"", time.monotonic() + 60
        while awaited.encode() not in seen:
            assert time.monotonic() < end, seen
            if select.select([terminal], [], [], 1)[0]:
                seen += os.read(terminal, 4096)

    try:
        until("ready> ")
        os.write(terminal, b'eval "$(_NCU_BENCH_COMPLETE=bash_source ncu-bench)"; echo regis""tered\n')
        until("registered")
        os.write(terminal, b"ncu-bench profile hf:bert-b\t")
        until("ncu-bench profile hf:bert-base ")
        os.write(terminal, b"--met\t")
        until("rics ")
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal)
