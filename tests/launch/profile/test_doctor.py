"""The doctor: every check on fake facts, collecting the facts, and the command that shows the checks."""

from __future__ import annotations

import builtins
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from ncu_launch.errors import NcuBenchError
from ncu_launch.profile import doctor
from ncu_launch.profile.doctor import OK, PROBLEM, UNKNOWN, Check, Importer, Lock, MachineFacts, Models
from ncu_launch.profilers import installed_tools
from ncu_launch.profilers.installed_tools import Gpu, Tool
from ncu_parsers.streaming.cells import rows

from ncu_tools.cli.collecting.doctor import LOOPS, check_loops, command
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

H200 = Gpu(0, "NVIDIA H200", "9.0", "570.86.15")
SAMPLES_GPUS = (
    "Possible --gpu-metrics-devices values are:\n\t0: NVIDIA H200 PCI[0000:17:00.0]\n"
    "\tall: Select all supported GPUs\n\tnone: Disable GPU Metrics [Default]\n"
)
"""As NVIDIA's user guide prints the answer."""
ROOT_CAPABILITIES, CONTAINER_CAPABILITIES = 0x1FFFFFFFFFF, 0xA80425FB
ADMIN_ONLY, EVERYONE = "RmMsg: \nRmProfilingAdminOnly: 1\nX: 2\n", "RmProfilingAdminOnly: 0\n"


def tool(name: str, version: tuple[int, int] | None) -> Tool:
    return Tool(name, f"/usr/bin/{name}", version, "" if version is None else f"{version[0]}.{version[1]}.0")


def healthy() -> MachineFacts:
    return MachineFacts(
        ncu=tool("ncu", (2025, 1)),
        nsys=tool("nsys", (2025, 1)),
        nvidia_smi=True,
        gpus=(H200,),
        driver_parameters=EVERYONE,
        user=1000,
        capabilities=0,
        processes=frozenset({"bash", "python"}),
        mig_modes=("Disabled",),
        models=Models("2.13.0", "13.0", visible_gpus=1, torchvision="0.28.0", operators=True, samples=False),
        nvtx="0.2.16",
        importer=Importer(debian=False, installed=False, linked=False),
        free_bytes=10**11,
        lock=Lock("/tmp/nsight-compute-lock"),  # noqa: S108
        gpu_metrics=SAMPLES_GPUS,
    )


def says(check: Check, status: str, found: str = "", advice: str = "") -> bool:
    """True if a check has this status and mentions these texts; an ok check needs no advice."""
    assert check.status == status, check
    assert found in check.found
    assert advice in check.advice
    assert check.advice or status != PROBLEM
    return True


def test_whether_pytorch_can_sample_is_said_and_no_problem_where_it_cannot() -> None:
    def of(permission: str = UNKNOWN, **models: Any) -> Check:
        counters = Check("counter permission", permission, "only administrators may read the counters", "run as root")
        return doctor.check_samples_of_torch(Models(torch="2.14.0", **models), counters)

    assert says(of(samples=False), OK, "has no torch.profiler.PerformanceMetricsConfig")
    assert says(of(samples=True, visible_gpus=1), OK, "where counters are permitted: profile MODEL --tool pytorch --me")
    assert says(of(OK, samples=True, visible_gpus=1), OK, "can sample: profile MODEL --tool pytorch --metrics dram,sm")
    assert says(of(PROBLEM, samples=True, visible_gpus=1), PROBLEM, "only administrators may", "see counter permission")
    assert says(of(samples=True), UNKNOWN, "sees no GPU")
    assert says(of(), UNKNOWN, "no PyTorch that could be asked")


class TestTools:
    def test_a_new_ncu_is_ok(self) -> None:
        assert says(doctor.check_ncu(tool("ncu", (2023, 2))), OK, "2023.2.0 at /usr/bin/ncu")
        assert doctor.check_ncu(tool("ncu", (2023, 2))).advice == ""

    def test_an_old_ncu_is_ok_but_counts_no_tensor_operations(self) -> None:
        assert says(doctor.check_ncu(tool("ncu", (2023, 1))), OK, "tensor operations", "2023.2")

    def test_a_missing_ncu_is_a_problem(self) -> None:
        assert says(doctor.check_ncu(None), PROBLEM, "not on PATH", "Nsight Compute")

    def test_a_missing_nsys_is_a_problem(self) -> None:
        assert says(doctor.check_nsys(None), PROBLEM, "not on PATH", "Nsight Systems")

    def test_an_nsys_is_ok(self) -> None:
        assert says(doctor.check_nsys(tool("nsys", (2022, 4))), OK, "2022.4.0 at /usr/bin/nsys")

    def test_a_tool_without_a_version_is_unknown(self) -> None:
        assert says(doctor.check_ncu(tool("ncu", None)), UNKNOWN, "", "--version")
        assert says(doctor.check_nsys(tool("nsys", None)), UNKNOWN, "", "--version")


class TestGpuMetrics:
    def test_gpus_that_nsys_lists_can_be_sampled(self) -> None:
        assert says(
            doctor.check_gpu_metrics(SAMPLES_GPUS), OK, "nsys can sample 1 GPU, while neither ncu nor DCGM counts"
        )

    @pytest.mark.parametrize(
        ("answer", "advice"),
        [
            ("None of the installed GPUs are supported:\n\tNVIDIA GB10 - Insufficient privilege, see ERR_NVGPUCTRPERM",
             "NVreg_RestrictProfilingToAdminUsers=0"),
            ("None of the installed GPUs are supported:\n\tNVIDIA L40S - Already under profiling", "dcgmi profile --pause"),
            ("None of the installed GPUs are supported:\n\tTesla P4", "--gpu-metrics-devices=help"),
        ],
        ids=["permission", "in use", "not supported"],
    )  # fmt: skip
    def test_a_gpu_that_cannot_be_sampled_is_a_problem_with_advice(self, answer: str, advice: str) -> None:
        assert says(doctor.check_gpu_metrics(answer), PROBLEM, "", advice)

    def test_without_a_gpu_or_an_answer_it_is_unknown(self) -> None:
        answer = "Possible --gpu-metrics-device values are:\n\tNVIDIA GPUs not found, feature is not available\n"
        assert says(doctor.check_gpu_metrics(answer), UNKNOWN, "finds no NVIDIA GPU")
        assert says(doctor.check_gpu_metrics(None), UNKNOWN, "no nsys")
        assert says(doctor.check_gpu_metrics("something else"), UNKNOWN, "does not say", "--gpu-metrics-devices=help")

    @pytest.mark.parametrize(
        ("version", "option"), [((2022, 4), "--gpu-metrics-device=help"), ((2025, 1), "--gpu-metrics-devices=help")]
    )
    def test_nsys_is_asked_in_the_words_of_its_version(
        self, version: tuple[int, int], option: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(installed_tools, "ask", lambda command: (0, " ".join(command)))
        assert installed_tools.sampled_gpus_by(tool("nsys", version)) == f"/usr/bin/nsys profile {option}"
        assert installed_tools.sampled_gpus_by(None) is None


class TestGpus:
    def test_equal_gpus_are_counted(self) -> None:
        listed = (H200, replace(H200, index=1), Gpu(2, "Tesla T4", None, "570.86.15"))
        assert doctor.check_gpus(listed, True).found == "2 × NVIDIA H200 (CC 9.0), 1 × Tesla T4, driver 570.86.15"

    def test_without_a_driver_profiling_falls_back(self) -> None:
        check = doctor.check_gpus((), False)
        assert says(check, PROBLEM, "nvidia-smi is not on PATH", "profiling falls back to the operator collector")

    def test_a_driver_that_lists_nothing_is_a_problem_of_its_own(self) -> None:
        assert says(doctor.check_gpus((), True), PROBLEM, "lists no GPU", "see what nvidia-smi says")


class TestCounterPermission:
    def test_counters_for_everyone_are_ok(self) -> None:
        assert says(doctor.check_counter_permission(EVERYONE, 1000, 0), OK)

    def test_counters_for_administrators_are_a_problem_for_others(self) -> None:
        check = doctor.check_counter_permission(ADMIN_ONLY, 1000, 0)
        assert says(check, PROBLEM, "RmProfilingAdminOnly: 1", "NVreg_RestrictProfilingToAdminUsers=0")

    @pytest.mark.parametrize("user", [0, 1000])
    def test_counters_for_administrators_are_ok_with_the_capability(self, user: int) -> None:
        assert says(doctor.check_counter_permission(ADMIN_ONLY, user, ROOT_CAPABILITIES), OK)

    @pytest.mark.parametrize("effective", [CONTAINER_CAPABILITIES, None])
    def test_root_without_the_capability_is_unknown(self, effective: int | None) -> None:
        assert says(doctor.check_counter_permission(ADMIN_ONLY, 0, effective), UNKNOWN, "root", "--cap-add=SYS_ADMIN")

    @pytest.mark.parametrize("parameters", [None, "", "RmMsg: \n"])
    def test_a_driver_without_the_parameter_is_unknown(self, parameters: str | None) -> None:
        assert says(doctor.check_counter_permission(parameters, 1000, 0), UNKNOWN)

    def test_capabilities_are_read_from_the_status_of_a_process(self) -> None:
        assert doctor.capabilities("CapPrm:\t00000000a80425fb\nCapEff:\t00000000a80425fb\n") == CONTAINER_CAPABILITIES
        assert doctor.capabilities("Name: x\n") is None
        assert doctor.capabilities(None) is None


class TestOtherProfilers:
    def test_none_is_ok(self) -> None:
        assert says(doctor.check_other_profilers(frozenset({"bash", "ncurses"})), OK)

    @pytest.mark.parametrize("monitor", ["nv-hostengine", "dcgm-exporter", "dcgmi"])
    def test_a_running_dcgm_is_a_problem_with_advice_to_pause_it(self, monitor: str) -> None:
        assert says(doctor.check_other_profilers(frozenset({monitor})), PROBLEM, monitor, "dcgmi profile --pause")

    def test_another_running_ncu_is_a_problem_with_advice_to_wait(self) -> None:
        check = doctor.check_other_profilers(frozenset({"ncu", "nsys"}))
        assert says(check, PROBLEM, "ncu, nsys", "wait")
        assert "dcgmi" not in check.advice

    def test_processes_that_cannot_be_listed_are_unknown(self) -> None:
        assert says(doctor.check_other_profilers(None), UNKNOWN)

    def test_process_names_with_parentheses_are_read_and_zombies_skipped(self, tmp_path: Path) -> None:
        for pid, stat in {
            "7": "7 (a) b) S 1",
            "8": "8 (nsys) Z 1",
            "9": "9 (nv-hostengine) S 1",
            "self": "x (ncu) S",
        }.items():
            (tmp_path / pid).mkdir()
            (tmp_path / pid / "stat").write_text(stat, "utf-8")
        assert doctor.processes(tmp_path) == {"a) b", "nv-hostengine"}

    def test_without_proc_no_processes_are_known(self, tmp_path: Path) -> None:
        assert doctor.processes(tmp_path / "none") is None


class TestSharing:
    def test_neither_is_ok(self) -> None:
        assert says(doctor.check_sharing(("Disabled", "[N/A]"), frozenset()), OK)

    def test_mig_on_any_gpu_is_a_problem(self) -> None:
        check = doctor.check_sharing(("Disabled", "Enabled"), frozenset())
        assert says(check, PROBLEM, "clocks cannot be locked", "--clock-control none")

    @pytest.mark.parametrize("modes", [("Disabled",), None])
    def test_mps_is_a_problem(self, modes: tuple[str, ...] | None) -> None:
        check = doctor.check_sharing(modes, frozenset({"nvidia-cuda-mps"}))
        assert says(check, PROBLEM, "MPS", "nvidia-cuda-mps-control")

    def test_both_are_named(self) -> None:
        check = doctor.check_sharing(("Enabled",), frozenset({"nvidia-cuda-mps"}))
        assert says(check, PROBLEM, "MIG")
        assert says(check, PROBLEM, "MPS")

    def test_without_an_answer_it_is_unknown(self) -> None:
        assert says(doctor.check_sharing(None, frozenset()), UNKNOWN, "nvidia-smi")
        assert says(doctor.check_sharing(("Disabled",), None), UNKNOWN, "MPS")

    @pytest.mark.parametrize(
        ("answer", "modes"),
        [
            ((0, "Enabled\n Disabled\n"), ("Enabled", "Disabled")),
            ((0, ""), None),
            ((2, 'Field "mig.mode.current" is not a valid field to query.\n'), None),
            (None, None),
        ],
    )
    def test_the_modes_are_read_from_nvidia_smi(
        self, answer: tuple[int, str] | None, modes: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
        monkeypatch.setattr(installed_tools, "ask", lambda asked: answer)
        assert installed_tools.mig_modes() == modes


class TestTorch:
    def test_a_cuda_build_with_gpus_is_ok(self) -> None:
        models = Models(torch="2.13.0", cuda="13.0", visible_gpus=2)
        assert says(doctor.check_torch(models, (H200,)), OK, "2.13.0, CUDA 13.0 build, 2 GPUs visible")

    @pytest.mark.parametrize("cuda", ["13.0", None])
    def test_without_a_gpu_any_build_is_ok(self, cuda: str | None) -> None:
        assert says(doctor.check_torch(Models(torch="2.13.0", cuda=cuda), ()), OK, "on the CPU")

    def test_a_cpu_build_beside_a_gpu_is_a_problem(self) -> None:
        assert says(doctor.check_torch(Models(torch="2.13.0+cpu"), (H200,)), PROBLEM, "CPU build", "CUDA build")

    def test_a_cuda_build_that_sees_no_gpu_is_a_problem_where_there_is_one(self) -> None:
        check = doctor.check_torch(Models(torch="2.13.0", cuda="13.0"), (H200,))
        assert says(check, PROBLEM, "sees none", "CUDA_VISIBLE_DEVICES")

    def test_a_missing_torch_is_a_problem(self) -> None:
        check = doctor.check_torch(Models(), ())
        assert says(check, PROBLEM, "models cannot be run", "pip install '.[models]'")

    def test_a_torch_that_cannot_be_imported_is_a_problem(self) -> None:
        check = doctor.check_torch(Models(torch_error="OSError: libcudart.so.13: cannot open"), ())
        assert says(check, PROBLEM, "libcudart.so.13")


class TestTorchvision:
    TORCH = Models(torch="2.13.0+cpu")

    def test_operators_that_load_are_ok(self) -> None:
        models = replace(self.TORCH, torchvision="0.28.0", operators=True)
        assert says(doctor.check_torchvision(models), OK, "0.28.0")

    def test_operators_that_do_not_load_are_a_problem_for_detection_only(self) -> None:
        check = doctor.check_torchvision(replace(self.TORCH, torchvision="0.28.0", operators=False))
        assert says(check, PROBLEM, "the compiled operators do not load with this PyTorch", "work all the same")

    def test_a_missing_torchvision_is_a_problem(self) -> None:
        assert says(doctor.check_torchvision(self.TORCH), PROBLEM, "not installed", ".[models]")

    def test_a_torchvision_that_kills_the_process_is_a_problem(self) -> None:
        models = replace(self.TORCH, torchvision_error="killed by SIGSEGV")
        assert says(doctor.check_torchvision(models), PROBLEM, "SIGSEGV")

    def test_operators_nobody_tried_are_unknown(self) -> None:
        assert says(doctor.check_torchvision(replace(self.TORCH, torchvision="0.28.0")), UNKNOWN)

    @pytest.mark.parametrize("models", [Models(torchvision="0.28.0"), Models(torch_error="OSError", operators=True)])
    def test_without_torch_it_is_unknown(self, models: Models) -> None:
        assert says(doctor.check_torchvision(models), UNKNOWN)


def said(**facts: Any) -> str:
    return "\nncu-bench-doctor:" + json.dumps(facts)


class TestTheChild:
    TORCH = said(torch="2.13.0", cuda=None, rocm=None, visible_gpus=0)

    def test_its_results_are_found_among_other_output(self) -> None:
        output = f"hello{self.TORCH}\nwarning{said(torchvision='0.28.0', operators=False)}\nUserWarning: old driver\n"
        expected = Models(torch="2.13.0", torchvision="0.28.0", operators=False)
        assert doctor.read_models((0, output)) == expected

    def test_a_missing_torch_is_no_error(self) -> None:
        assert doctor.read_models((0, said() + said())) == Models()

    def test_a_crash_of_torch_is_reported_with_its_last_line(self) -> None:
        models = doctor.read_models((-11, "first\nlast words\n"))
        assert "SIGSEGV" in models.torch_error
        assert "last words" in models.torch_error

    def test_a_crash_of_torchvision_keeps_the_result_of_torch(self) -> None:
        models = doctor.read_models((-6, self.TORCH + "\n"))
        assert (models.torch, models.torch_error) == ("2.13.0", "")
        assert "SIGABRT" in models.torchvision_error

    def test_a_crash_after_both_results_does_not_matter(self) -> None:
        assert doctor.read_models((-11, self.TORCH + said())) == Models(torch="2.13.0")

    def test_an_exit_code_and_an_unnamed_signal_are_reported(self) -> None:
        assert "exit code 3" in doctor.read_models((3, "")).torch_error
        assert "signal 99" in doctor.read_models((-99, "")).torch_error

    def test_a_child_that_hangs_is_a_finding(self) -> None:
        assert "in time" in doctor.read_models(None).torch_error

    def test_a_torch_that_kills_its_process_does_not_end_the_doctor(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "torch.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "utf-8")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        assert "SIGKILL" in doctor.ask_models().torch_error

    def test_a_torch_that_raises_is_a_finding(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "torch.py").write_text("raise OSError('first line\\nlibcudart.so.13 is missing')\n", "utf-8")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        assert doctor.ask_models().torch_error == "OSError: libcudart.so.13 is missing"

    def test_it_describes_the_torch_it_can_import(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "torch.py").write_text(
            "class version: cuda, hip = '13.0', None\n"
            "class cuda:\n is_available = staticmethod(lambda: True)\n device_count = staticmethod(lambda: 2)\n"
            "__version__ = '2.13.0'\nprint('noise', end='')\n",
            "utf-8",
        )
        (tmp_path / "torchvision-0.28.0.dist-info").mkdir()
        metadata = "Metadata-Version: 2.1\nName: torchvision\nVersion: 0.28.0\n"
        (tmp_path / "torchvision-0.28.0.dist-info" / "METADATA").write_text(metadata, "utf-8")
        (tmp_path / "torchvision").mkdir()
        (tmp_path / "torchvision" / "__init__.py").write_text("", "utf-8")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        models = doctor.ask_models()
        assert (models.torch, models.cuda, models.visible_gpus) == ("2.13.0", "13.0", 2)
        assert (models.torchvision, models.operators) == ("0.28.0", False)

    @pytest.mark.nightly
    def test_a_file_of_the_current_folder_is_not_taken_for_torch(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "torch.py").write_text("raise OSError('mine')\n", "utf-8")
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("PYTHONPATH", raising=False)
        assert "mine" not in doctor.ask_models().torch_error


class TestNvtx:
    def test_a_missing_nvtx_is_a_problem(self) -> None:
        assert says(doctor.check_nvtx(None, tool("nsys", (2025, 1))), PROBLEM, "not installed", ".[models]")

    @pytest.mark.parametrize("version", ["0.2.12", "0.2.16", "0.3", "0.2.12.post1"])
    def test_a_new_nvtx_is_not_recorded_by_an_old_nsys(self, version: str) -> None:
        check = doctor.check_nvtx(version, tool("nsys", (2022, 4)))
        assert says(check, PROBLEM, "records no ranges", "pip install nvtx==0.2.11")

    @pytest.mark.parametrize("version", [(2022, 5), (2023, 1), (2023, 4), None])
    def test_an_nsys_between_the_known_versions_is_unknown(self, version: tuple[int, int] | None) -> None:
        assert says(doctor.check_nvtx("0.2.12", tool("nsys", version)), UNKNOWN, "not known", "nvtx==0.2.11")

    @pytest.mark.parametrize("version", ["0.2.8", "0.2.11"])
    def test_an_older_nvtx_is_ok(self, version: str) -> None:
        assert says(doctor.check_nvtx(version, tool("nsys", (2022, 4))), OK)

    def test_a_newer_nsys_is_ok_and_so_is_none(self) -> None:
        assert says(doctor.check_nvtx("0.2.16", tool("nsys", (2024, 1))), OK)
        assert says(doctor.check_nvtx("0.2.16", None), OK)


class TestImporter:
    NSYS = tool("nsys", (2022, 4))

    def test_debians_nsys_without_the_link_is_a_problem(self) -> None:
        check = doctor.check_importer(self.NSYS, Importer(debian=True, installed=True, linked=False))
        link = "ln -sfn /usr/lib/nsight-systems/host-linux-x64 /usr/lib/x86_64-linux-gnu/nsight-systems/host-linux-x64"
        assert says(check, PROBLEM, ".qdstrm", link)

    def test_debians_nsys_with_the_link_is_ok(self) -> None:
        assert says(doctor.check_importer(self.NSYS, Importer(debian=True, installed=True, linked=True)), OK)

    def test_another_nsys_is_ok(self) -> None:
        assert says(doctor.check_importer(self.NSYS, Importer(debian=False, installed=True, linked=False)), OK)

    def test_an_importer_that_is_elsewhere_is_unknown(self) -> None:
        assert says(doctor.check_importer(self.NSYS, Importer(debian=True, installed=False, linked=False)), UNKNOWN)

    def test_without_nsys_it_is_unknown(self) -> None:
        assert says(doctor.check_importer(None, Importer(debian=False, installed=True, linked=False)), UNKNOWN)

    def test_debians_nsys_is_known_by_where_its_link_leads(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        target, host = tmp_path / "target", tmp_path / "host-linux-x64"
        target.mkdir()
        host.mkdir()
        (target / "nsys").touch()
        (tmp_path / "nsys").symlink_to(target / "nsys")
        monkeypatch.setattr(doctor, "DEBIAN_NSYS", target)
        monkeypatch.setattr(doctor, "DEBIAN_IMPORTER", host)
        debians = Tool("nsys", str(tmp_path / "nsys"), (2022, 4), "2022.4")
        assert doctor.find_importer(debians) == Importer(debian=True, installed=True, linked=False)
        (target / "host-linux-x64").symlink_to(host)
        assert doctor.find_importer(debians).linked
        assert not doctor.find_importer(replace(debians, path=str(host / "nsys"))).debian
        assert not doctor.find_importer(None).debian


class TestDiskAndLock:
    def test_little_room_is_a_problem(self) -> None:
        assert says(doctor.check_disk(10**9 - 1), PROBLEM, "1.0 GB free")
        assert says(doctor.check_disk(10**9), OK)

    def test_a_folder_without_disk_usage_is_unknown(self, tmp_path: Path) -> None:
        assert doctor.free_bytes(tmp_path / "none") is None
        assert says(doctor.check_disk(None), UNKNOWN)
        assert doctor.free_bytes(tmp_path)

    def test_no_lock_and_an_own_lock_are_ok(self, tmp_path: Path) -> None:
        assert says(doctor.check_lock(doctor.find_lock(tmp_path), os.getuid()), OK, "does not exist")
        (tmp_path / "nsight-compute-lock").touch()
        assert says(doctor.check_lock(doctor.find_lock(tmp_path), os.getuid()), OK, "is yours")

    def test_the_lock_of_another_user_is_a_problem(self, tmp_path: Path) -> None:
        (tmp_path / "nsight-compute-lock").touch()
        check = doctor.check_lock(doctor.find_lock(tmp_path), os.getuid() + 1)
        assert says(check, PROBLEM, f"uid {os.getuid()}", "export TMPDIR=")

    def test_a_lock_that_cannot_be_seen_is_unknown(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        assert says(doctor.check_lock(doctor.find_lock(tmp_path / "file"), 0), UNKNOWN)


class TestTheWhole:
    def test_a_healthy_machine_has_no_problem_and_check_names_are_unique(self) -> None:
        checks = doctor.examine(healthy())
        assert {check.status for check in checks} == {OK}
        assert len({check.name for check in checks}) == len(checks) == 14

    def test_the_facts_of_this_machine_can_be_gathered_without_torch_and_examined(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = builtins.__import__

        def refuse(name: str, *arguments: Any) -> Any:
            assert name.partition(".")[0] not in ("torch", "torchvision", "nvtx")
            return real(name, *arguments)

        monkeypatch.setattr(builtins, "__import__", refuse)
        checks = doctor.examine(doctor.gather())
        assert len(checks) == 14
        assert {check.status for check in checks} <= {OK, PROBLEM, UNKNOWN}

    def test_the_command_imports_nothing_heavy_to_be_shown_in_the_help(self) -> None:
        program = "import sys, ncu_tools.cli.collecting.doctor; print(sorted({'ncu_launch.profile.doctor', 'torch', 'pandas'} & set(sys.modules)))"
        path = os.pathsep.join(str(ROOT / part) for part in (".", "launch", "parsers"))
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        assert done.stdout.strip() == "[]"


@pytest.fixture
def ill(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = replace(healthy(), ncu=None, gpus=(), nvidia_smi=False, mig_modes=None, nvtx="0.2.16")
    monkeypatch.setattr(doctor, "gather", lambda: facts)


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(command, list(arguments))


class TestTheCommand:
    def test_it_is_a_command_that_ends_its_help_in_an_example(self) -> None:
        assert isinstance(command, click.Command)
        output = invoke("--help").output
        assert output.index("Example:") < output.index("ncu-bench doctor")

    @pytest.mark.usefixtures("ill")
    def test_the_table_shows_every_check_with_its_whole_advice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "400")
        result = invoke()
        lines = result.output.splitlines()
        assert result.exit_code == 0
        assert lines[0].split() == ["check", "status", "found", "what", "to", "do"]
        assert len(lines) == 2 + 15
        assert "…" not in result.output
        assert "install Nsight Compute and put ncu on PATH" in next(line for line in lines if line.startswith(" ncu "))

    @pytest.mark.usefixtures("ill")
    def test_json_has_a_row_per_check_and_null_where_there_is_no_advice(self) -> None:
        document = json.loads(invoke("--format", "json").stdout)
        assert (document["schema_version"], document["command"], document["notes"]) == (1, "doctor", [])
        assert list(document["columns"]) == ["check", "status", "found", "advice"]
        assert all(list(row) == list(document["columns"]) for row in document["rows"])
        by_name = {row["check"]: row for row in document["rows"]}
        assert by_name["ncu"]["status"] == PROBLEM
        assert by_name["MIG and MPS"]["status"] == UNKNOWN
        assert (by_name["disk space"]["status"], by_name["disk space"]["advice"]) == (OK, None)

    @pytest.mark.usefixtures("ill")
    def test_it_reports_missing_compiled_loops(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert check_loops(is_compiled=True) == Check("reading big reports", OK, "by compiled loops")
        monkeypatch.setattr(rows, "loops", None)
        row = next(row for row in json.loads(invoke("--format", "json").stdout)["rows"] if row["check"] == LOOPS)
        assert row["status"] == OK
        assert "a wheel, or a C compiler" in row["advice"]

    @pytest.mark.usefixtures("ill")
    def test_strict_fails_on_a_problem_after_showing_the_table(self) -> None:
        result = invoke("--strict")
        assert result.exit_code == 1
        assert isinstance(result.exception, NcuBenchError)
        assert "ncu, driver and GPUs" in str(result.exception)
        assert "disk space" in result.output

    def test_strict_passes_without_a_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        facts = replace(healthy(), mig_modes=None)
        monkeypatch.setattr(doctor, "gather", lambda: facts)
        assert invoke("--strict").exit_code == 0
