"""A test measured under ncu: a stand-in for ncu runs the program that it is given, and writes a report."""

from __future__ import annotations

import csv
import json
import os
import sys
from pathlib import Path

import pytest
from ncu_launch.errors import NcuBenchError
from ncu_parsers.report_data.report import Launch

from ncu_tools.pytest_plugin.under_ncu import CALLS, CHILD, Rerun, counts_of, profile_of
from tests.support.histories import counted
from tests.support.launches import table
from tests.support.plugin_here import runner
from tests.tools.cli.test_cli import PYTHONPATH

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

SHIM = """#!{python}
import os, subprocess, sys
words = sys.argv[1:]
if "--version" in words:
    print("Version 2024.1.1.0 (build 1) (public-release)")
elif "--query-metrics" in words:
    sys.exit(1)
else:
    assert words[words.index("--nvtx-include") + 1] == "ncu_bench@pytest_kernels"
    done = subprocess.run(words[words.index({python!r}):])
    with open(words[words.index("--log-file") + 1], "w") as log:
        log.write(open({report!r}).read())
    sys.exit(done.returncode)
"""
COLUMNS = (
    "ID",
    "Process ID",
    "Kernel Name",
    "Block Size",
    "Grid Size",
    "CC",
    "gpu__time_duration.sum",
    "smsp__inst_executed.sum",
)
TEST = """
from pathlib import Path

def test_two(kernels):
    with Path("calls.txt").open("a") as file:
        first = kernels.profile(lambda: file.write("a"))
        assert first.how == "ncu" and first.counts["launches"] == 2
        found = kernels.profile(lambda: file.write("b"))
        kernels.assert_counters(found, instructions=3000)
        kernels.assert_no_slower(found)
"""


def report(path: Path) -> None:
    """Four times the same two kernels, of 10 and 20 us and 1000 and 2000 instructions."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([COLUMNS, ("", "", "", "", "", "", "us", "inst")])
        for number in range(2 * CALLS):
            name, us, instructions = (("gemm(float*)", 10, 1000), ("relu(float*)", 20, 2000))[number % 2]
            writer.writerow([number, 1, name, "(256, 1, 1)", "(64, 1, 1)", "8.0", us, instructions])


@pytest.mark.nightly
def test_runs_each_call_of_the_test_in_a_process_of_its_own(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(pytester.path / "report.csv")
    tools = pytester.mkdir("tools")
    smi = f"#!{sys.executable}\nprint('0, NVIDIA A100-SXM4-40GB, 8.0, 550.54, 40536')\n"
    shim = SHIM.format(python=sys.executable, report=str(pytester.path / "report.csv"))
    for name, text in (("ncu", shim), ("nvidia-smi", smi)):
        (tools / name).write_text(text, "utf-8")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    pytester.makeini("[pytest]\naddopts = --strict-markers")
    pytester.makepyfile(test_kernels=TEST)
    done = runner(pytester)("--ncu-bench-update")
    done.assert_outcomes(passed=1)
    calls = (pytester.path / "calls.txt").read_text("utf-8")
    assert calls == "a" * (CALLS + 1) + "b" * (CALLS + 1)  # in two processes; the first result is given to the second
    done.stdout.fnmatch_lines(
        ["*= ncu-bench: by ncu on NVIDIA A100-SXM4-40GB =*", "*::test_two * 30 µs *launches 2, instructions 3,000"]
    )
    (file,) = (pytester.path / "ncu_bench_baselines").iterdir()
    assert [*json.loads(file.read_text("utf-8"))["tests"]] == ["test_kernels.py::test_two#2"]


def test_the_process_under_ncu_takes_what_was_measured_before_and_ends_after_its_call(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {
        "how": "ncu",
        "device": "a GPU",
        "samples_ns": [1.0],
        "counts": {"launches": 2.0},
        "unknown": {},
        "threads": None,
    }
    monkeypatch.setenv(CHILD, json.dumps([before]))
    pytester.makepyfile(test_in_the_child=TEST + "\n\ndef test_next():\n    Path('next').touch()\n")
    done = runner(pytester)("-p", "no:terminal")
    assert done.ret == 0
    assert (pytester.path / "calls.txt").read_text("utf-8") == "b" * (CALLS + 1)
    assert not (pytester.path / "next").exists()


def test_the_command_has_the_configuration_and_plugins_of_the_session(request: pytest.FixtureRequest) -> None:
    words = Rerun.of(request.node).words
    assert words[:3] == (sys.executable, "-m", "pytest")
    assert words[-1] == f"{__file__}::{request.node.name}"
    assert ("-n" in words) == request.config.pluginmanager.hasplugin("xdist")
    assert "no:cacheprovider" in words


def launches(*names: str) -> list[Launch]:
    return [one for name in names for one in counted(name, 10.0, instructions=1000, registers=40)]


def test_counts_are_per_call() -> None:
    found = counts_of(table(*launches(*("gemm", "relu") * CALLS)))
    assert found == {"launches": 2, "instructions": 2000, "registers": 40}


def test_calls_that_launch_other_kernels_are_no_measurement(tmp_path: Path) -> None:
    for names in (("gemm",) * 5, ("gemm", "relu", "gemm", "gemm", *("gemm", "relu") * 2)):
        with pytest.raises(NcuBenchError, match=f"{CALLS} calls launched {len(names)} kernels, and not the same"):
            profile_of(table(*launches(*names)), "a GPU", tmp_path)


def test_without_the_package_for_ranges_it_says_what_to_install(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ncu_tools.pytest_plugin.under_ncu.find_spec", lambda name: None)
    with pytest.raises(NcuBenchError, match="pip install nvtx"):
        Rerun.of(request.node).profiled([], ("flops",), "a GPU", tmp_path)
