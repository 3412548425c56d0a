"""Ranks: the place of a process, the exact commands, and real runs of several ranks that succeed, fail and are killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from ncu_launch.errors import WrongUsage
from ncu_launch.files.manifest import Manifest, ToolRun, read_manifest, write_manifest
from ncu_launch.files.run_files import STATE
from ncu_launch.profile.collect_ranks import (
    Beats,
    RankLaunch,
    Watch,
    failure_of,
    plan_around_ranks,
    record_failure,
    wait_for_parts,
    write_run,
)
from ncu_launch.profile.plan import Request, make_plan
from ncu_launch.profile.run_outcome import timelines
from ncu_launch.profilers.command_line import NEWEST, Lockstep, NcuOptions, ncu_command
from ncu_launch.profilers.installed_tools import find_tool
from ncu_launch.profilers.rank_environment import (
    LAUNCHERS,
    Nodes,
    Place,
    first_host,
    nodes_of,
    place_here,
    rank_folder,
    regex_without_collectives,
    runnable,
    starts_ranks,
    tasks_of_nodes,
    torchrun_command,
)
from ncu_launch.profilers.subprocesses import OWN_PYTHON, run
from ncu_launch.workload_spec import Workload
from ncu_parsers.parquet.reader import read_launches
from ncu_parsers.parse.parse import parse
from ncu_parsers.parse.report_files import find_sources

from ncu_tools.kernels.names.categories import COMMUNICATION, category_of
from tests.conftest import ROOT, SAMPLES, SHARED
from tests.support.installed import needs_ncu, needs_nsys, one_nsys
from tests.support.nightly import by_day
from tests.support.ran import ran
from tests.tools.cli.test_cli import PROGRAM, PYTHONPATH

pytestmark = pytest.mark.slow

PYTHON = sys.executable
RANK_3 = Place(3, 8, 1, 2, "torchrun", "gpu04")
METRIC = ("gpu__time_duration.sum",)
NO_COLLECTIVES = "regex:^(?!.*(?:nccl|nvshmem|cross_device_reduce|one_shot_all_reduce|two_shot_all_reduce|multimem_))"
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed (pip install '.[models]')")

TRAIN = """
import os, sys
import nvtx, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
with nvtx.annotate(f"work of rank {rank}"):
    total = torch.ones(4)
    dist.all_reduce(total)
print("the sum is", total[0].item(), "with", sys.argv[1:])
dist.barrier()
dist.destroy_process_group()
"""
ALONE = """
import os, sys, time
import nvtx
rank = int(os.environ["RANK"])
with nvtx.annotate(f"work of rank {rank}"):
    pass
if rank == 2 and "die" in sys.argv:
    raise KeyError("no such data set")
if rank == 2 and "be-killed" in sys.argv:
    os.kill(os.getppid(), 9)  # the process that profiles it
if rank != 2 and len(sys.argv) > 1 or "be-killed" in sys.argv:
    time.sleep(60)  # as in a collective
"""
"""A program whose ranks do not meet, and so need no PyTorch to start."""
MODEL = """
import torch
def small():
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)), torch.randn(16, 64)
"""


def profile(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """An nsys report contains the whole environment, so only necessary variables are passed on.

    Where nsys 2022.4 loses its own agent, as it can on a busy machine, what we say is to profile again: so we do, once.
    """
    with one_nsys(arguments):
        done = subprocess.run([*PROGRAM, "profile", *arguments], **started(folder, variables))  # type: ignore[call-overload]
        if "nsys did not get to its own agent" in done.stderr:
            shutil.rmtree(folder / "run")
            done = subprocess.run([*PROGRAM, "profile", *arguments], **started(folder, variables))  # type: ignore[call-overload]
    return done  # type: ignore[no-any-return]


def started(folder: Path, variables: dict[str, str]) -> dict[str, object]:
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1",
        "PYTHONPATH": PYTHONPATH, "NCU_BENCH_NO_MEASURE": "1", "NCU_BENCH_IGNORE_LOAD": "1", **variables,
    }  # fmt: skip
    return {"capture_output": True, "text": True, "cwd": folder, "env": environment, "check": False, "timeout": 120}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "alone.py").write_text(ALONE)
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


class TestThePlaceOfAProcess:
    @pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda launcher: launcher.name)
    def test_is_what_its_launcher_sets(self, launcher: object) -> None:
        names = (launcher.rank, launcher.world_size, launcher.local_rank, launcher.local_size)  # type: ignore[attr-defined]
        place = place_here(dict(zip(names, ("5", "8", "1", "4"), strict=True)) | {"SLURM_NODEID": "0"})
        assert place is not None
        assert (place.rank, place.world_size, place.local_rank, place.local_size) == (5, 8, 1, 4)

    def test_is_unknown_without_a_launcher(self) -> None:
        assert place_here({}) is None

    def test_is_none_in_a_batch_script_which_has_a_rank_variable_but_is_no_rank(self) -> None:
        assert place_here({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}) is None

    def test_is_none_for_a_single_process(self) -> None:
        assert place_here({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}) is None

    def test_is_that_of_the_innermost_launcher(self) -> None:
        outer = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}
        place = place_here({**outer, "RANK": "6", "WORLD_SIZE": "8", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4"})
        assert place is not None
        assert (place.launcher, place.rank) == ("torchrun", 6)

    def test_knows_the_tasks_of_its_own_node(self) -> None:
        slurm = {"SLURM_PROCID": "6", "SLURM_STEP_NUM_TASKS": "7", "SLURM_STEP_TASKS_PER_NODE": "2(x3),1"}
        place = place_here({**slurm, "SLURM_NODEID": "3"})
        assert place is not None
        assert place.local_size == 1
        assert tasks_of_nodes("2(x3),1") == [2, 2, 2, 1]
        assert tasks_of_nodes("two") == []


class TestWhoStartsTheRanks:
    def test_is_torchrun_without_a_launcher(self) -> None:
        assert starts_ranks(4, None)

    def test_is_the_launcher_without_nproc(self) -> None:
        assert not starts_ranks(None, RANK_3)

    def test_is_torchrun_on_each_node_if_the_launcher_started_one_process_there(self) -> None:
        assert starts_ranks(4, replace(RANK_3, local_size=1))

    @pytest.mark.parametrize("nproc", [2, 8])
    def test_is_the_launcher_if_it_started_as_many(self, nproc: int) -> None:
        assert not starts_ranks(nproc, RANK_3)

    def test_is_an_error_if_the_numbers_do_not_fit(self) -> None:
        with pytest.raises(WrongUsage, match="--nproc 4 does not fit the 2 processes that torchrun started on gpu04"):
            starts_ranks(4, RANK_3)


class TestNodes:
    @pytest.mark.parametrize(
        ("nodes", "first"),
        [("gpu[03-05,9],login", "gpu03"), ("a1,a2", "a1"), ("n7", "n7"), ("rack[1-2]-ib", "rack1-ib")],
    )
    def test_the_first_is_found_in_slurms_short_form(self, nodes: str, first: str) -> None:
        assert first_host(nodes) == first

    def test_meet_at_the_first_of_slurms_list(self) -> None:
        assert nodes_of(RANK_3, {"SLURM_JOB_NODELIST": "gpu[03-05]"}) == Nodes(8, 3, "gpu03")

    def test_meet_where_the_environment_says(self) -> None:
        environment = {"MASTER_ADDR": "head", "MASTER_PORT": "1234", "SLURM_JOB_NODELIST": "gpu3"}
        assert nodes_of(RANK_3, environment) == Nodes(8, 3, "head", "1234")

    def test_are_not_guessed_if_the_first_is_unknown(self) -> None:
        with pytest.raises(WrongUsage, match="MASTER_ADDR"):
            nodes_of(RANK_3, {})


def by_graph_node() -> list[str]:
    """The options for CUDA graphs of this machine's nsys, or of the newest without one."""
    nsys = find_tool("nsys")
    version = (nsys.version if nsys is not None else None) or NEWEST
    return ["--cuda-graph-trace", "node"] if version >= (2022, 4) else []


class TestTheCommands:
    def test_start_the_ranks_of_one_machine(self) -> None:
        assert RankLaunch(4, Path("RUN")).command() == [
            *OWN_PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", "--no-python",
            *OWN_PYTHON, "-m", "ncu_launch.profile.collect_ranks", "RUN",
        ]  # fmt: skip

    def test_start_the_ranks_of_one_of_several_machines(self) -> None:
        assert torchrun_command(4, ["program"], Nodes(2, 1, "gpu03")) == [
            *OWN_PYTHON, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", "1", "--master-addr", "gpu03",
            "--master-port", "29500", "--nproc-per-node", "4", "--no-python", "program",
        ]  # fmt: skip

    def test_trace_each_rank_with_nsys(self) -> None:
        request = Request((), (), program=("./app", "x"), tool="nsys", place=RANK_3, ranks=8)
        plan = make_plan(request, rank_folder(Path("RUN"), 3), dry=True)
        assert list(plan.command)[1:] == [
            "profile", "--trace", "cuda,nvtx", "--sample", "none", "--cpuctxsw", "none", "--force-overwrite", "true",
            "--output", "RUN/ranks/3/reports/timeline", *by_graph_node(), "./app", "x",
        ]  # fmt: skip

    def test_count_each_rank_with_ncu_without_its_collectives(self) -> None:
        request = Request(
            (), ("time",), program=("./app",), tool="ncu", place=RANK_3, ranks=8, collectives="exclude", plan="two-runs"
        )
        (command,) = make_plan(request, rank_folder(Path("RUN"), 3), dry=True).commands
        words = list(command.arguments)
        assert words[words.index("--log-file") + 1] == "RUN/ranks/3/reports/ncu.csv"
        assert words[-3:] == ["--kernel-name", NO_COLLECTIVES, "./app"]

    def test_run_once_however_many_runs_were_requested(self) -> None:
        request = Request((), ("flops", "dram"), program=("./app",), tool="ncu", place=RANK_3, ranks=8, plan="two-runs")
        plan = make_plan(request, Path("RUN"), dry=True)
        assert len(plan.commands) == 1
        assert plan.replayed is None
        assert plan.runs.startswith("ranks run once")

    def test_have_one_tool_around_the_ranks_of_a_node(self) -> None:
        request = Request((), (), program=("./app",), tool="nsys", tool_per="node", ranks=2)
        plan = plan_around_ranks(request, RankLaunch(2, Path("RUN")), dry=True)
        assert list(plan.command)[10:] == [
            "--output", "RUN/nodes/0/reports/timeline", *by_graph_node(),
            *OWN_PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python",
            *OWN_PYTHON, "-m", "ncu_launch.profilers.rank_wrapper", "RUN/nodes/0/processes", "./app",
        ]  # fmt: skip

    def test_leave_out_the_tool_except_on_rank_0(self) -> None:
        request = Request((), (), program=("./app",), tool="nsys", place=RANK_3, ranks=8, tool_per="rank0")
        assert make_plan(request, Path("RUN")).command == ("./app",)
        first = replace(request, place=replace(RANK_3, rank=0))
        assert make_plan(first, Path("RUN"), dry=True).command[1:2] == ("profile",)

    def test_keep_new_versions_of_ncu_in_lockstep_on_request(self) -> None:
        options = NcuOptions(METRIC, "ncu.csv", version=(2026, 1), lockstep=Lockstep(8, "gpu03"))
        assert ncu_command(options, ["./app"]) == [
            "ncu", "--csv", "--page", "raw", "--target-processes", "all", "--print-units", "base",
            "--replay-mode", "kernel", "--log-file", "ncu.csv", "--config-file", "off", "--clock-control", "base",
            "--cache-control", "all", "--metrics", "gpu__time_duration.sum",
            "--communicator", "tcp", "--communicator-tcp-num-peers", "8", "--communicator-tcp-hostname", "gpu03",
            "--lockstep-kernel-launch", "./app",
        ]  # fmt: skip

    def test_refuse_lockstep_for_an_ncu_that_is_too_old(self, tmp_path: Path) -> None:
        ncu = tmp_path / "ncu"
        ncu.write_text("#!/bin/sh\necho Version 2024.1.1.0\n")
        ncu.chmod(0o755)
        request = Request(
            (), ("time",), program=("./app",), tool="ncu", ncu=str(ncu), place=RANK_3, ranks=8, collectives="lockstep"
        )
        with pytest.raises(WrongUsage, match=r"2024\.1\S* is not known to have --lockstep-kernel-launch"):
            make_plan(request, tmp_path, dry=True)

    def test_accept_a_script_as_torchrun_does(self) -> None:
        assert runnable(("train.py", "--lr", "1")) == (PYTHON, "train.py", "--lr", "1")
        assert runnable(("-m", "train")) == (PYTHON, "-m", "train")
        assert runnable(("./app",)) == ("./app",)

    def test_survive_serialization_to_the_ranks(self) -> None:
        request = Request(("ncu-bench",), METRIC, workload=Workload("resnet18", data_parallel=True), ranks=4)
        assert Request.from_json(request.to_json()) == request


class TestCollectives:
    @pytest.mark.parametrize(
        "name",
        [
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclKernel_AllGather_RING_LL_Sum_int8_t",
            "nvshmemi_barrier_threadgroup_kernel", "cross_device_reduce_1stage", "multimem_all_reduce_kernel",
        ],
    )  # fmt: skip
    def test_are_left_out_by_name_and_are_communication_in_every_table(self, name: str) -> None:
        assert not re.search(regex_without_collectives(), name)
        assert category_of(name) == COMMUNICATION

    @pytest.mark.parametrize("name", ["ampere_sgemm_128x64_nn", "reduce_kernel", "aten::add", "all_reduce_is_not_me"])
    def test_are_not_recognised_in_other_kernels(self, name: str) -> None:
        assert re.search(regex_without_collectives(), name)

    @pytest.mark.parametrize("name", ["c10d::allreduce_", "_c10d_functional::wait_tensor", "gloo:all_reduce"])
    def test_of_a_cpu_are_communication_too(self, name: str) -> None:
        assert category_of(name) == COMMUNICATION

    @needs_ncu
    def test_are_left_out_of_a_real_report_by_real_ncu_with_their_expression(self) -> None:
        report = SHARED / "reports" / "ncu_rep" / "AveryClapp__ESMM-Research__profile_output.ncu-rep"
        if not report.is_file():
            pytest.skip(f"there is no {report}: put the folder of real reports beside the project, as ../shared")

        def kernels(expression: str) -> list[str]:
            command = ["ncu", "--import", str(report), "--csv", "--page", "raw", "--kernel-name", f"regex:{expression}"]
            lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
            return [line.split(",")[4] for line in lines[2:] if line.startswith('"')]

        every = kernels(regex_without_collectives())
        assert len(every) == 4
        as_collectives = regex_without_collectives("tiling").replace("nccl", "vectorized_")
        assert kernels(as_collectives) == [name for name in every if "vectorized" not in name]


class TestReportsInTheFolderOfARun:
    """The parser, on recorded reports of a single process that stand for those of ranks."""

    @staticmethod
    def put(folder: Path, place: dict[str, object], sample: str = "d01-wide-raw.csv") -> Path:
        report = folder / "reports" / "ncu.csv"
        report.parent.mkdir(parents=True)
        shutil.copy(SAMPLES / sample, report)
        write_manifest(Manifest([], "ncu", "", place=place), folder)
        return report

    @staticmethod
    def launches(*reports: Path) -> list[dict[str, object]]:
        parsed = parse(find_sources([str(report) for report in reports]))
        assert parsed.table is not None
        rows: list[dict[str, object]] = parsed.table.to_pylist()
        return rows

    def test_are_never_joined_across_ranks_however_similar(self, tmp_path: Path) -> None:
        for rank in (0, 1):
            self.put(rank_folder(tmp_path, rank), {"rank": rank, "host": f"gpu{rank}"})
        rows = self.launches(tmp_path)
        assert [(row["rank"], row["host"]) for row in rows] == [(0, "gpu0")] * 8 + [(1, "gpu1")] * 8

    def test_below_one_tool_have_the_rank_of_each_process(self, tmp_path: Path) -> None:
        report = self.put(tmp_path / "nodes" / "0", {})
        process = self.launches(report)[0]["process_id"]
        place = {"host": "gpu3", "processes": [{"rank": 5, "process_id": process}]}
        write_manifest(Manifest([], "ncu", "", place=place), tmp_path / "nodes" / "0")
        assert {(row["rank"], row["host"]) for row in self.launches(report)} == {(5, "gpu3")}

    def test_of_a_process_that_is_no_rank_have_none(self, tmp_path: Path) -> None:
        report = self.put(tmp_path, {"host": "gpu3", "processes": [{"rank": 5, "process_id": 1}]})
        assert {row["rank"] for row in self.launches(report)} == {None}

    def test_of_a_killed_rank_are_known_by_their_folder(self, tmp_path: Path) -> None:
        report = self.put(rank_folder(tmp_path, 6), {})
        (rank_folder(tmp_path, 6) / "manifest.json").unlink()
        (rank_folder(tmp_path, 6) / STATE).write_text(json.dumps({"host": "gpu1", "beat": 3, "ended": False}))
        assert {(row["rank"], row["host"]) for row in self.launches(report)} == {(6, "gpu1")}

    def test_of_a_single_process_have_no_rank_and_no_host(self, tmp_path: Path) -> None:
        rows = self.launches(self.put(tmp_path, {}))
        assert {row["rank"] for row in rows} == {None}
        assert "host" not in rows[0]

    def test_are_found_without_the_logs_and_timelines_beside_them(self, tmp_path: Path) -> None:
        report = self.put(rank_folder(tmp_path, 0), {"rank": 0, "host": "a"})
        write_manifest(Manifest([], "ncu", ""), tmp_path)
        for beside in (rank_folder(tmp_path, 0) / "logs", tmp_path / "logs", tmp_path / "timeline" / "reports"):
            beside.mkdir(parents=True)
            shutil.copy(report, beside / "output.csv")
        assert [source.path for source in find_sources([str(tmp_path)])] == [str(report)]


class TestRanksThatFail:
    def test_are_named_once_and_end_the_others_after_some_time(self, tmp_path: Path) -> None:
        watch, own = Watch(tmp_path, rank=1, grace=0.0), Watch(tmp_path, rank=2, grace=0.0)
        patient = Watch(tmp_path, rank=1, grace=60.0)
        assert watch() is None
        record_failure(tmp_path, 2, "gpu04", "no memory")
        record_failure(tmp_path, 1, "gpu03", "a peer was lost")
        assert watch() == "rank 2 on gpu04 failed: no memory"
        assert own() is None
        assert patient() is None

    def test_are_reported_missing_if_they_vanish_without_a_message(self, tmp_path: Path) -> None:
        for rank, over in (("1", False), ("2", True)):
            (tmp_path / "ranks" / rank).mkdir(parents=True)
            (tmp_path / "ranks" / rank / STATE).write_text(json.dumps({"host": "gpu03", "beat": 4, "ended": over}))
        beats = Beats(tmp_path, lost_after=0.05)
        assert beats.lost() == []
        time.sleep(0.1)
        assert beats.lost() == ["1"]
        assert beats.host("1") == "gpu03"

    def test_are_not_waited_for_forever(self, tmp_path: Path) -> None:
        (tmp_path / "ranks" / "0").mkdir(parents=True)
        (tmp_path / "ranks" / "0" / STATE).write_text(json.dumps({"host": "a", "beat": -1, "ended": True}))
        (tmp_path / "ranks" / "1").mkdir(parents=True)
        (tmp_path / "ranks" / "1" / STATE).write_text(json.dumps({"host": "b", "beat": 7, "ended": False}))
        first, second = wait_for_parts(tmp_path, 3, lost_after=0.3)
        assert "rank 1 did not end" in first
        assert "b is gone" in first
        assert second == "rank 2 never began"

    def test_that_are_gone_are_named_before_those_that_never_began(self, tmp_path: Path) -> None:
        (tmp_path / "ranks" / "2").mkdir(parents=True)
        (tmp_path / "ranks" / "2" / STATE).write_text(json.dumps({"host": "b", "beat": 7, "ended": False}))
        first, *others = wait_for_parts(tmp_path, 3, lost_after=0.1)
        assert "rank 2 did not end" in first
        assert others == ["rank 0 never began", "rank 1 never began"]

    def test_end_a_program_that_would_wait_for_them(self, tmp_path: Path) -> None:
        done = run(["sleep", "60"], tmp_path / "log", should_end=lambda: "rank 2 failed")
        assert done.ended_for == "rank 2 failed"
        assert done.interrupted
        assert done.seconds < 20

    def test_that_were_ended_say_why_and_the_whole_run_does_not_repeat_it(self, tmp_path: Path) -> None:
        ended = ToolRun(["ncu", "app"], 1, 1.0, interrupted=True, ended_for="rank 2 failed")
        notes = [ended.why_ended, "the clocks were not fixed"]
        (tmp_path / "ranks" / "0").mkdir(parents=True)
        write_manifest(Manifest(["app"], "ncu", "2026", tool_runs=[ended], notes=notes), tmp_path / "ranks" / "0")
        whole = write_run(Request(("app",), (), Workload("app"), ()), tmp_path, [], [])
        assert whole.notes == ["the clocks were not fixed"]
        assert [rank["notes"] for rank in whole.ranks] == [["ended because rank 2 failed"]]

    def test_leave_nothing_behind(self, tmp_path: Path) -> None:
        apart = "start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL"
        leaving = f"import subprocess; subprocess.Popen(['sleep', '61'], cwd={str(tmp_path)!r}, {apart})"
        run([PYTHON, "-c", leaving], tmp_path / "log", leaves_nothing=True)
        assert alive_in(tmp_path) == []


@needs_torch
class TestRealRanks:
    """Two and four ranks over gloo, on the CPU."""

    @pytest.mark.parametrize("ranks", by_day([2], [2, 4]))
    def test_of_a_model_are_one_run_with_rank_host_and_device_in_every_row(self, folder: Path, ranks: int) -> None:
        done = profile(folder, "model.py:small", "--nproc", str(ranks), "--tool", "operators", "-o", "run")
        assert done.returncode == 0, done.stderr
        rows = read_launches(folder / "run" / "launches.parquet").to_pylist()
        each = [sorted(row["kernel_name"] for row in rows if row["rank"] == rank) for rank in range(ranks)]
        assert each == [each[0]] * ranks
        assert each[0].count("aten::addmm") == 2
        assert "c10d::allreduce_" in each[0]
        assert {row["host"] for row in rows} == {os.uname().nodename}
        assert all(row["device_name"] for row in rows)
        manifest = read_manifest(folder / "run")
        assert [(rank["rank"], rank["exit_code"]) for rank in manifest.ranks] == [(rank, 0) for rank in range(ranks)]
        assert f"{ranks} ranks on 1 host" in done.stderr
        self._are_joined_again_from_their_reports(folder, rows)

    def _are_joined_again_from_their_reports(self, folder: Path, rows: list[dict[str, object]]) -> None:
        done = ran("parse", str(folder / "run"), "-o", str(folder / "again.parquet"))
        assert done.exit_code == 0, done.stderr
        again = read_launches(folder / "again.parquet").to_pylist()
        assert [(row["rank"], row["host"], row["duration_ns"]) for row in again] == [
            (row["rank"], row["host"], row["duration_ns"]) for row in rows
        ]

    @pytest.mark.nightly
    def test_started_by_a_launcher_write_their_own_parts_and_the_first_joins_them(self, folder: Path) -> None:
        arguments = [*PROGRAM, "profile", "model.py:small", "--tool", "operators", "-o", "run"]
        environment = started(folder, {})["env"]
        assert isinstance(environment, dict)
        ranks = [
            subprocess.Popen(
                arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                env={**environment, "PMI_RANK": str(rank), "PMI_SIZE": "2", "MPI_LOCALRANKID": str(rank)},
            )
            for rank in range(2)
        ]  # fmt: skip
        printed = [rank.communicate(timeout=120)[0] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0, 0], printed
        assert "aten::addmm" in printed[0]
        assert printed[1] == ""
        rows = read_launches(folder / "run" / "launches.parquet").to_pylist()
        assert {row["rank"] for row in rows} == {0, 1}

    @needs_nsys
    @pytest.mark.nightly
    @pytest.mark.parametrize("ranks", [2, 4])
    def test_of_a_program_are_each_traced_by_real_nsys(self, folder: Path, ranks: int) -> None:
        for _ in range(3):
            shutil.rmtree(folder / "run", ignore_errors=True)
            done = profile(folder, "--nproc", str(ranks), "--tool", "nsys", "-o", "run", "--", "train.py", "--lr")
            if "nsys did not get to its own agent" not in done.stderr:  # nsys 2022 can, if four start at once
                break
        assert done.returncode == 0, done.stderr
        assert f"The timelines of {ranks} ranks are in run" in done.stderr
        for rank in range(ranks):
            part = rank_folder(folder / "run", rank)
            (timeline,) = timelines(part)
            assert f"work of rank {rank}".encode() in _exported(timeline)
            assert read_manifest(part).place["rank"] == rank
            assert f"the sum is {ranks}.0 with ['--lr']" in (part / "logs" / "output.txt").read_text()

    @needs_nsys
    def test_below_one_tool_are_distinguished_by_their_processes(self, folder: Path) -> None:
        done = profile(
            folder, "--nproc", "2", "--tool", "nsys", "--tool-per", "node", "-o", "run", "--", "python", "alone.py"
        )
        assert done.returncode == 0, done.stderr
        (node,) = read_manifest(folder / "run").ranks
        assert [process["rank"] for process in node["processes"]] == [0, 1]
        exported = _exported(*timelines(folder / "run" / "nodes" / "0"))
        assert all(f"work of rank {rank}".encode() in exported for rank in range(2))

    @needs_nsys
    @pytest.mark.nightly
    def test_are_named_if_they_failed(self, folder: Path) -> None:
        done = profile(
            folder, "--nproc", "3", "--tool", "nsys", "--tool-per", "rank0", "-o", "run", "--", "alone.py", "die"
        )
        assert done.returncode == 1
        assert "Rank 2 on" in done.stderr
        assert "KeyError: 'no such data set'" in done.stderr
        failed = failure_of(folder / "run")
        assert failed is not None
        assert failed["rank"] == 2

    @needs_nsys
    @pytest.mark.nightly
    def test_are_named_if_their_profiler_was_killed_and_leave_nothing_of_it(self, folder: Path) -> None:
        done = profile(
            folder, "--nproc", "3", "--tool", "nsys", "--tool-per", "rank0", "-o", "run", "--", "alone.py", "be-killed"
        )
        assert done.returncode == 1
        assert "Rank 2 did not end: it was killed" in done.stderr
        assert alive_in(folder) == []


def alive_in(folder: Path) -> list[str]:
    """The processes that run with this working folder."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            found += [link.parent.name] if link.readlink() == folder.resolve() else []
    return found


def _exported(timeline: Path) -> bytes:
    """The bytes of a timeline as SQLite: its texts are stored unchanged."""
    sqlite = timeline.with_suffix(".sqlite")
    command = ["nsys", "export", "--type", "sqlite", "--output", str(sqlite), str(timeline)]
    subprocess.run(command, check=True, capture_output=True)
    return sqlite.read_bytes()


@needs_torch
class TestRanksUnderAStandInForNcu:
    @pytest.mark.nightly
    def test_are_joined_with_the_times_of_their_collectives(self, folder: Path) -> None:
        ncu = folder / "ncu"
        stand_in = ROOT / "tests" / "support" / "stand_in_ncu.py"
        ncu.write_text(f"#!{PYTHON}\nimport runpy\nrunpy.run_path({str(stand_in)!r}, run_name='__main__')\n")
        ncu.chmod(0o755)
        done = profile(
            folder, "--nproc", "2", "--tool", "ncu", "--ncu", str(ncu), "--no-timeline", "-o", "run", "--", "train.py",
            STAND_IN_NCU="good",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        rows = read_launches(folder / "run" / "launches.parquet").to_pylist()
        assert [sum(row["rank"] == rank for row in rows) for rank in range(2)] == [8, 8]
        assert "kernels of collectives are left out" in done.stderr
        assert "how long they take is not known" in done.stderr


@needs_nsys
def test_a_terminated_rank_keeps_its_part(folder: Path) -> None:
    (folder / "wait.py").write_text("import time; print('waiting', flush=True); time.sleep(60)")
    environment = started(folder, {})["env"]
    rank = subprocess.Popen(
        [*PROGRAM, "profile", "--tool", "nsys", "--tool-per", "rank0", "-o", "run", "--", "wait.py"],
        cwd=folder, stderr=subprocess.PIPE, text=True,
        env={**environment, "PMI_RANK": "1", "PMI_SIZE": "2"},  # type: ignore[dict-item]
    )  # fmt: skip
    log = rank_folder(folder / "run", 1) / "logs" / "output.txt"
    for _ in range(300):
        if log.is_file() and "waiting" in log.read_text():
            break
        time.sleep(0.1)
    rank.send_signal(signal.SIGTERM)
    said = rank.communicate(timeout=30)[1]
    assert rank.returncode == 1
    assert "The run was stopped" in said
    assert read_manifest(rank_folder(folder / "run", 1)).partial
