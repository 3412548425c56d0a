"""The scripts for machines with a GPU: their commands are valid, and they continue after failures. No GPU is needed."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement

from benchmarks.gpu.run_all import done_before, in_order, pack, run
from benchmarks.gpu.steps import FAULTS, NCU_BENCH, Step, steps
from benchmarks.gpu.tables import main as write_tables
from benchmarks.gpu.wheels import THERE, download, needed
from ncu_tools.cli import cli
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

GROUPS = [
    "machine", "flops", "bytes", "verdicts", "samples", "ceilings", "activity", "truth", "cost", "memory", "whole", "studies",
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


@pytest.mark.nightly
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
        "--pack",
        str(tmp_path / "packed"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "out" / "account.jsonl").read_text("utf-8").splitlines()]
    assert [row["step"] for row in rows] == ["gpu", "ncu", "doctor"]
    with tarfile.open(tmp_path / "packed" / "logs.tgz") as logs:
        assert {"logs/machine-doctor.txt", "account.jsonl"} <= set(logs.getnames())


def test_a_step_that_was_done_before_is_not_done_again(tmp_path: Path) -> None:
    rows = [{"group": "a", "step": "done", "exit_code": 0}, {"group": "a", "step": "cut off", "exit_code": None}]
    (tmp_path / "account.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    assert done_before(tmp_path / "account.jsonl") == {("a", "done")}
    assert done_before(tmp_path / "none.jsonl") == set()


def test_groups_run_in_the_order_in_which_they_are_named() -> None:
    every = list(steps(Path("out")))
    chosen = in_order(every, "studies,ceilings,truth")
    assert list(dict.fromkeys(step.group for step in chosen)) == ["studies", "ceilings", "truth"]
    assert [step for step in chosen if step.group == "truth"] == [step for step in every if step.group == "truth"]
    assert in_order(every, "") == every
    with pytest.raises(SystemExit, match="no group costs"):
        in_order(every, "costs,truth")


def test_a_group_is_packed_without_large_binary_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = tmp_path / "out" / "group" / "run"
    group.mkdir(parents=True)
    (group / "large.ncu-rep").write_bytes(bytes((4 << 20) + 1))
    (group / "small.ncu-rep").write_bytes(os.urandom(20_000))
    (group / "launches.parquet").write_bytes(os.urandom(1000))
    (tmp_path / "out" / "account.jsonl").write_text("{}", "utf-8")
    archive = tmp_path / "group.tgz"

    def packed() -> list[str]:
        assert pack(tmp_path / "out", ["group", "account.jsonl"], archive) == archive.stat().st_size
        with tarfile.open(archive) as found:
            return found.getnames()

    assert packed() == ["group/run/launches.parquet", "group/run/small.ncu-rep", "account.jsonl"]
    monkeypatch.setattr("benchmarks.gpu.run_all.MOST_BYTES", 10_000)
    assert packed() == ["group/run/launches.parquet", "account.jsonl"]
    monkeypatch.setattr("benchmarks.gpu.run_all.MOST_BYTES", 500)
    assert pack(tmp_path / "out", ["group"], archive) == 0
    assert not archive.exists()


def test_tables_are_written_of_the_groups_that_ran_and_the_others_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer = {"scope": "layer", "module": "gemms.gemm_8x8x8_fp32", "measured_flops": 1040, "expected_flops": 1024,
             "flops_ratio": 1.015625}  # fmt: skip
    logs = tmp_path / "out" / "logs"
    logs.mkdir(parents=True)
    (logs / "flops-gemms-expected.txt").write_text(json.dumps({"rows": [{"scope": "model"}, layer]}), "utf-8")
    write_tables(tmp_path / "out", tmp_path / "tables")
    assert (tmp_path / "tables" / "gemms.csv").read_text("utf-8").splitlines() == [
        "layer,measured operations,expected operations,ratio", "gemm_8x8x8_fp32,1040,1024,1.015625",
    ]  # fmt: skip
    assert [path.name for path in (tmp_path / "tables").iterdir()] == ["gemms.csv"]
    assert "convs: left out" in capsys.readouterr().out


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
