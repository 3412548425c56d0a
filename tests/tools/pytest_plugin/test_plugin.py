"""The fixture `kernels` in tests that pytest runs inside this process, on a CPU and with stand-ins for measurements."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from ncu_launch.bench.latency_statistics import Effort
from ncu_launch.profilers.installed_tools import Gpu

from ncu_tools.pytest_plugin.baselines import FOLDER
from ncu_tools.pytest_plugin.measured import BY_EVENTS, KernelProfile
from tests.conftest import ROOT
from tests.support.installed import needs_torch
from tests.support.plugin_here import Ran, plugin_words, runner
from tests.tools.cli.test_cli import PYTHONPATH

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

TEST = """
def test_product(kernels):
    kernels.assert_no_slower(lambda: None)
    kernels.assert_counters(lambda: None)
"""
ON_THE_CPU = """
import torch

def test_product(kernels):
    a = torch.ones(16, 16)
    found = kernels.profile(torch.mm, a, a)
    kernels.assert_counters(found, flops=2 * 16**3, operators=1)
    kernels.assert_counters(found)
    kernels.assert_no_slower(found, within=10)
    kernels.assert_no_slower(torch.mm, a, a, than=torch.mm, within=10)
"""
H100 = Gpu(0, "NVIDIA H100 80GB HBM3", "9.0", "550.54")
QUIET = KernelProfile(BY_EVENTS, H100.name, (1000.0, 1002.0, 998.0, 1001.0), {"launches": 2.0, "flops": 4096.0})


@pytest.fixture
def ran(pytester: pytest.Pytester) -> Ran:
    return runner(pytester)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[KernelProfile], None]:
    """A function that says what each measurement on the GPU gives, of a machine that has one and no ncu."""
    monkeypatch.setattr("ncu_tools.pytest_plugin.kernels.gpus", lambda: [H100])
    monkeypatch.setattr("ncu_tools.pytest_plugin.kernels.visible_gpus", lambda: ["0"])
    monkeypatch.setattr("ncu_tools.pytest_plugin.kernels.find_tool", lambda name: None)
    monkeypatch.setattr("ncu_tools.pytest_plugin.kernels.find_spec", lambda name: True)

    def gives(found: KernelProfile) -> None:
        monkeypatch.setattr("ncu_tools.pytest_plugin.kernels.measured_here", lambda call, device: replace(found))

    gives(QUIET)
    return gives


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncu_tools.pytest_plugin.kernels.gpus", list)
    brief = Effort(precision=1, least=20, least_s=0, max_s=0.05, warmup=1, warm_s=0)
    monkeypatch.setattr("ncu_launch.bench.against.paired_rounds.BLOCK_NS", 1e5)
    for module in ("measured", "kernels"):
        monkeypatch.setattr(f"ncu_tools.pytest_plugin.{module}.EFFORT", brief)


def slower(by: float) -> KernelProfile:
    return replace(QUIET, samples_ns=tuple(one * by for one in QUIET.samples_ns))


def test_the_plugin_imports_nothing_but_itself_when_pytest_starts() -> None:
    script = (
        "import pytest, sys; before = set(sys.modules); import ncu_tools.pytest_plugin.plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONPATH": PYTHONPATH}
    )
    own = ("", ".options", ".plugin")
    assert done.stdout.split() == [
        "ncu_launch", "ncu_launch.version", "ncu_tools", "ncu_tools.lazy_names", *(f"ncu_tools.pytest_plugin{one}" for one in own),
    ]  # fmt: skip


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_tests_skip_with_the_reason(pytester: pytest.Pytester, ran: Ran) -> None:
    pytester.makepyfile(TEST)
    done = ran("-rs")
    done.assert_outcomes(skipped=1)
    done.stdout.fnmatch_lines("*no NVIDIA GPU here. On the CPU, --ncu-bench-cpu times the call*")


@pytest.mark.usefixtures("gpu")
def test_a_gpu_that_is_hidden_from_cuda_is_none(
    pytester: pytest.Pytester, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ncu_tools.pytest_plugin.kernels.visible_gpus", list)
    pytester.makepyfile(TEST)
    ran().assert_outcomes(skipped=1)


@needs_torch
@pytest.mark.usefixtures("no_gpu")
@pytest.mark.nightly
def test_on_a_cpu_operators_are_counted_and_held_to_a_baseline(pytester: pytest.Pytester, ran: Ran) -> None:
    import_module("torch")  # pytester forgets what is imported inside, and PyTorch cannot be imported twice
    file = pytester.makepyfile(ON_THE_CPU)
    ran("--ncu-bench-cpu").assert_outcomes(failed=1)
    ran("--ncu-bench-cpu", "--ncu-bench-update").assert_outcomes(passed=1)
    done = ran("--ncu-bench-cpu")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(
        [
            "*= ncu-bench: by the CPU's clock on * (no NVIDIA GPU) =*",
            "test * time * min * calls * change * counts",
            "*::test_product *operators 1, bytes 3.072 KB, flops 8.192 KFLOP",
            "*= ncu-bench: in turns with mm, by the CPU's clock =*",
        ]
    )
    file.write_text(ON_THE_CPU.replace("torch.ones(16, 16)", "torch.ones(32, 32)"), "utf-8")
    done = ran("--ncu-bench-cpu")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines("*flops 65.54 KFLOP, expected flops 8.192 KFLOP: 65,536 - 8,192 = +57,344 (+700 %).")


@pytest.mark.usefixtures("gpu")
def test_a_test_without_a_baseline_fails_and_says_what_to_type(pytester: pytest.Pytester, ran: Ran) -> None:
    pytester.makepyfile(test_gemm=TEST)
    done = ran()
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "no baseline in *NVIDIA-H100-80GB-HBM3.json.",
            "Measured: 1 µs * by CUDA events on NVIDIA H100 80GB HBM3, launches 2, *Not by ncu: ncu is not on PATH.",
            "Write one, and commit it with the test: pytest --ncu-bench-update test_gemm.py::test_product",
        ]
    )


class TestWithABaseline:
    @pytest.fixture(autouse=True)
    def _baseline(self, pytester: pytest.Pytester, ran: Ran, gpu: object) -> None:
        pytester.makepyfile(test_gemm=TEST)
        ran("--ncu-bench-update").assert_outcomes(passed=1)

    @pytest.fixture
    def file(self, pytester: pytest.Pytester) -> Path:
        (found,) = (pytester.path / FOLDER).iterdir()
        return found

    def test_the_file_has_a_line_a_measurement_beside_the_test(self, file: Path) -> None:
        assert file.name == "NVIDIA-H100-80GB-HBM3.json"
        known = json.loads(file.read_text("utf-8"))
        assert [*known["tests"]] == ["test_gemm.py::test_product", "test_gemm.py::test_product#2"]
        assert known["device"] == H100.name
        assert sum('"how"' in line for line in file.read_text("utf-8").splitlines()) == 2

    def test_the_same_passes(self, ran: Ran) -> None:
        ran().assert_outcomes(passed=1)

    def test_slower_fails_after_three_measurements(self, ran: Ran, gpu: Callable[[KernelProfile], None]) -> None:
        gpu(slower(1.2))
        done = ran()
        done.assert_outcomes(failed=1)
        done.stdout.fnmatch_lines(
            [
                "slower than its baseline by more than 5 %, measured 3 times: time 1 µs -> 1.2 µs: +20.0 % [[]*].",
                "If that is meant: pytest --ncu-bench-update test_gemm.py::test_product",
            ]
        )

    @pytest.mark.parametrize("by", [1.04, 0.5])
    def test_within_the_limit_passes(self, by: float, ran: Ran, gpu: Callable[[KernelProfile], None]) -> None:
        gpu(slower(by))
        ran().assert_outcomes(passed=1)

    def test_slower_within_its_noise_passes(self, ran: Ran, gpu: Callable[[KernelProfile], None]) -> None:
        gpu(replace(QUIET, samples_ns=(500.0, 2500.0, 700.0, 900.0)))
        done = ran()
        done.assert_outcomes(passed=1)
        done.stdout.fnmatch_lines("*  +15.0 % [[]*[]], no change shown  *")

    def test_another_count_fails_with_the_difference(self, ran: Ran, gpu: Callable[[KernelProfile], None]) -> None:
        gpu(replace(QUIET, counts={"launches": 3.0, "flops": 4096.0}))
        done = ran()
        done.assert_outcomes(failed=1)
        done.stdout.fnmatch_lines("launches 3, baseline launches 2: 3 - 2 = +1 (+50 %).")

    def test_a_count_that_is_no_longer_known_fails(self, ran: Ran, gpu: Callable[[KernelProfile], None]) -> None:
        gpu(replace(QUIET, counts={"launches": 2.0}, unknown={"flops": "there is no formula for aten.odd"}))
        done = ran()
        done.assert_outcomes(failed=1)
        done.stdout.fnmatch_lines("*flops was not counted: there is no formula for aten.odd.")

    def test_measured_by_another_tool_is_not_compared(self, ran: Ran, gpu: Callable[[KernelProfile], None]) -> None:
        gpu(replace(QUIET, how="ncu"))
        done = ran()
        done.assert_outcomes(failed=1)
        done.stdout.fnmatch_lines("*measured by ncu, and its baseline by CUDA events: they cannot be compared.")

    def test_another_device_has_a_baseline_of_its_own(
        self, pytester: pytest.Pytester, ran: Ran, gpu: Callable[[KernelProfile], None]
    ) -> None:
        gpu(replace(QUIET, device="NVIDIA L4"))
        ran().assert_outcomes(failed=1)
        ran("--ncu-bench-update").assert_outcomes(passed=1)
        assert {one.name for one in (pytester.path / FOLDER).iterdir()} == {
            "NVIDIA-H100-80GB-HBM3.json",
            "NVIDIA-L4.json",
        }

    @pytest.mark.parametrize("text", ["[]", '{"version": 1, "tests": {"a": 1}}', "\udcff"])
    def test_a_damaged_file_is_named_and_stays(self, text: str, ran: Ran, file: Path) -> None:
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
        for words in ((), ("--ncu-bench-update",)):
            done = ran(*words)
            done.assert_outcomes(failed=1)
            done.stdout.fnmatch_lines("*.json cannot be read as baselines: *or remove it and write it anew*")
        assert file.read_bytes() == text.encode("utf-8", "surrogateescape")

    def test_a_file_of_another_version_is_refused(self, ran: Ran, file: Path) -> None:
        file.write_text('{"version": 2, "tests": {}}', "utf-8")
        ran().stdout.fnmatch_lines("*is of version 2, and this ncu-bench reads 1*")

    def test_what_was_measured_is_in_the_junit_file(self, pytester: pytest.Pytester, ran: Ran) -> None:
        ran("--junitxml", "found.xml").assert_outcomes(passed=1)
        assert 'name="ncu-bench time" value="1 µs"' in (pytester.path / "found.xml").read_text("utf-8")

    def test_only_some_counts_may_be_held(
        self, pytester: pytest.Pytester, ran: Ran, gpu: Callable[[KernelProfile], None]
    ) -> None:
        gpu(replace(QUIET, counts={"launches": 3.0, "flops": 4096.0}))
        for only, outcome in (('"flops"', "passed"), ('["launches"]', "failed"), ('"flops, launches"', "failed")):
            pytester.makepyfile(
                test_gemm=TEST.replace("counters(lambda: None)", f"counters(lambda: None, only={only})")
            )
            ran().assert_outcomes(**{outcome: 1})

    def test_a_profile_of_another_test_is_refused(self, pytester: pytest.Pytester, ran: Ran) -> None:
        more = "import copy\n" + TEST.replace("counters(lambda: None)", "counters(copy.copy(kernels.profile(len, '')))")
        pytester.makepyfile(test_gemm=more)
        ran().stdout.fnmatch_lines("*This profile was measured by another test. Give the function, or profile it here.")

    def test_an_unknown_metric_is_refused_with_near_names(self, pytester: pytest.Pytester, ran: Ran) -> None:
        pytester.makepyfile(test_gemm="def test_product(kernels):\n    kernels.profile(len, '', metrics='flop')")
        ran().stdout.fnmatch_lines("*flop*flops*")

    def test_a_wrong_limit_is_refused(self, pytester: pytest.Pytester, ran: Ran) -> None:
        pytester.makepyfile(test_gemm=TEST.replace("lambda: None)", "lambda: None, within=-1)", 1))
        ran().stdout.fnmatch_lines("*within=-1 is no fraction. Write within=0.05 for 5 %.")


@pytest.mark.nightly
def test_workers_of_xdist_write_one_file(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makeconftest(
        f"""
        from ncu_launch.profilers.installed_tools import Gpu
        from ncu_tools.pytest_plugin import kernels
        from ncu_tools.pytest_plugin.measured import KernelProfile

        kernels.gpus = lambda: [Gpu(0, {H100.name!r}, "9.0", None)]
        kernels.visible_gpus = lambda: ["0"]
        kernels.find_tool = lambda name: None
        kernels.find_spec = lambda name: True
        kernels.measured_here = lambda call, device: KernelProfile("CUDA events", {H100.name!r}, (1.0, 2.0), {{"flops": 2.0}})
        """
    )
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("n", range(24))
        def test_all(kernels, n):
            kernels.assert_counters(len, "")
        """
    )
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    words = (*plugin_words(), "-p", "no:cacheprovider", "-n", "2")
    pytester.runpytest_subprocess(*words, "--ncu-bench-update").assert_outcomes(passed=24)
    (file,) = (pytester.path / FOLDER).iterdir()
    assert len(json.loads(file.read_text("utf-8"))["tests"]) == 24
    done = pytester.runpytest_subprocess(*words)
    done.assert_outcomes(passed=24)
    assert len([line for line in done.outlines if "  flops 2 FLOP" in line]) == 24


@pytest.mark.nightly
@pytest.mark.usefixtures("no_gpu")
@needs_torch
def test_the_example_of_the_page_runs_on_a_cpu(ran: Ran, pytester: pytest.Pytester) -> None:
    page = (ROOT / "docs" / "pytest.md").read_text("utf-8")
    (block,) = re.findall(r"^```python\n# test_softmax.py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    pytester.makepyfile(my_kernels="import torch\n\ndef softmax(x):\n    return torch.softmax(x, -1)\n")
    pytester.makepyfile(test_softmax=block.replace('"cuda"', '"cpu"'))
    ran("--ncu-bench-cpu", "--ncu-bench-update").assert_outcomes(passed=2)
