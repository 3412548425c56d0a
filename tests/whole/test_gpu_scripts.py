"""The scripts for machines with a GPU: their commands are valid, and they continue after failures. No GPU is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from benchmarks.gpu.run_all import NCU_BENCH, Step, run, steps
from ncu_tools.cli import cli
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

GROUPS = ["machine", "flops", "bytes", "samples", "cost", "truth", "ceilings", "studies"]


def test_every_command_of_ours_is_accepted_by_ncu_bench() -> None:
    context = click.Context(cli)
    checked = 0
    for step in steps(Path("out")):
        if step.command[: len(NCU_BENCH)] == NCU_BENCH:
            name, *arguments = step.command[len(NCU_BENCH) :]
            command = cli.get_command(context, name)
            assert command is not None, name
            command.make_context(name, arguments)
            checked += 1
    assert checked > 40


def test_no_two_steps_share_a_log_and_every_group_exists() -> None:
    every = list(steps(Path("out")))
    assert len({(step.group, step.name) for step in every}) == len(every)
    assert list(dict.fromkeys(step.group for step in every)) == GROUPS


@pytest.mark.parametrize(
    ("program", "limit", "code", "said"),
    [
        ("print('done')", 20, 0, "done\n"),
        ("raise SystemExit(3)", 20, 3, ""),
        ("print('begun', flush=True); import time; time.sleep(60)", 2, None, "begun\n"),
    ],
)
def test_a_step_keeps_its_output_and_exit_code(
    tmp_path: Path, program: str, limit: float, code: int | None, said: str
) -> None:
    (tmp_path / "logs").mkdir()
    row = run(Step("group", "name", (sys.executable, "-c", program), limit), tmp_path, 100)
    assert row["exit_code"] == code
    assert (tmp_path / "logs" / "group-name.txt").read_text("utf-8") == said
    assert sys.executable not in json.dumps(row)


def test_a_machine_without_a_gpu_lists_what_could_not_run(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu.run_all",
        str(tmp_path / "out"),
        "--only",
        "machine",
        "--budget",
        "60",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "out" / "account.jsonl").read_text("utf-8").splitlines()]
    assert [row["step"] for row in rows] == ["doctor", "gpu", "ncu"]
    assert (tmp_path / "out.tar.gz").is_file()
