"""The scripts for machines with a GPU: their commands are valid, and they continue after failures. No GPU is needed."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement

from benchmarks.gpu.run_all import run
from benchmarks.gpu.steps import FAULTS, NCU_BENCH, Step, steps
from benchmarks.gpu.wheels import THERE, download, needed
from ncu_tools.cli import cli
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

GROUPS = [
    "machine", "flops", "bytes", "verdicts", "samples", "ceilings", "activity", "truth", "cost", "memory", "studies",
]  # fmt: skip


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
    assert [row["step"] for row in rows] == ["gpu", "ncu", "doctor"]


def test_each_fault_is_a_kernel_with_a_fixed_one_beside_it() -> None:
    source = (ROOT / "benchmarks/gpu/kernels.cu").read_text("utf-8")
    defined = re.findall(r"__global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(", source)
    assert sorted(defined) == sorted([*FAULTS, *(f"{fault}_fixed" for fault in FAULTS)])
    assert re.findall(r'if \(is\("(\w+)"\)\) (\w+)<<<', source) == [(name, name) for name in defined]


def test_wheels_are_of_all_that_ncu_bench_requires_and_the_machine_lacks() -> None:
    names = {Requirement(line).name for line in needed("3.12")}
    assert {"click", "msgspec", "adbc-driver-sqlite", "nvtx"} <= names
    assert not names & set(THERE)
    assert "tomli" not in names, "Python has it from 3.11 on"
    for name in names - {"nvtx", "nvidia-ml-py"}:
        required = [Requirement(line) for line in importlib.metadata.requires(name) or []]
        lacking = {one.name for one in required if not one.marker or one.marker.evaluate({"extra": ""})} - names
        assert lacking <= {"colorama"}, f"{name} requires {lacking}"


def test_wheels_are_downloaded_for_the_python_of_the_machine() -> None:
    command = download(Path("wheels"), "3.12")
    assert command[1:12] == [
        "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--implementation", "cp",
        "--python-version", "3.12", "--platform",
    ]  # fmt: skip
    assert command[command.index("--dest") + 1] == "wheels"
