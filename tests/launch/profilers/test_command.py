"""The exact command lines for every version of ncu and nsys."""

from __future__ import annotations

import shlex

import pytest
from ncu_launch.profilers.command_line import (
    NEWEST,
    NcuOptions,
    NsysOptions,
    Version,
    ncu_command,
    nsys_command,
    nsys_export_command,
)

PROGRAM = ["python", "train.py"]
KERNEL = """.*gemm<int, "T">|it's (one)"""

MINIMAL: dict[Version, list[str]] = {
    (2019, 5): [
        "ncu", "--csv", "--page", "raw", "--target-processes", "all", "--units", "base",
        "--clock-control", "base", "--cache-control", "all", "--metrics", "gpu__time_duration.sum",
        "python", "train.py",
    ],
    (2020, 1): [
        "ncu", "--csv", "--page", "raw", "--target-processes", "all", "--units", "base",
        "--clock-control", "base", "--cache-control", "all", "--metrics", "gpu__time_duration.sum",
        "python", "train.py",
    ],
    (2020, 3): [
        "ncu", "--csv", "--page", "raw", "--target-processes", "all", "--print-units", "base",
        "--replay-mode", "kernel", "--log-file", "out.csv",
        "--clock-control", "base", "--cache-control", "all", "--metrics", "gpu__time_duration.sum",
        "python", "train.py",
    ],
    (2021, 1): [
        "ncu", "--csv", "--page", "raw", "--target-processes", "all", "--print-units", "base",
        "--replay-mode", "kernel", "--log-file", "out.csv",
        "--clock-control", "base", "--cache-control", "all", "--metrics", "gpu__time_duration.sum",
        "python", "train.py",
    ],
    (2022, 3): [
        "ncu", "--csv", "--page", "raw", "--target-processes", "all", "--print-units", "base",
        "--replay-mode", "kernel", "--log-file", "out.csv",
        "--clock-control", "base", "--cache-control", "all", "--metrics", "gpu__time_duration.sum",
        "python", "train.py",
    ],
    (2023, 1): [
        "ncu", "--csv", "--page", "raw", "--target-processes", "all", "--print-units", "base",
        "--replay-mode", "kernel", "--log-file", "out.csv", "--config-file", "off",
        "--clock-control", "base", "--cache-control", "all", "--metrics", "gpu__time_duration.sum",
        "python", "train.py",
    ],
    (2024, 1): [
        "ncu", "--csv", "--page", "raw", "--target-processes", "all", "--print-units", "base",
        "--replay-mode", "kernel", "--log-file", "out.csv", "--config-file", "off",
        "--clock-control", "base", "--cache-control", "all", "--metrics", "gpu__time_duration.sum",
        "python", "train.py",
    ],
    (2026, 1): [
        "ncu", "--csv", "--page", "raw", "--target-processes", "all", "--print-units", "base",
        "--replay-mode", "kernel", "--log-file", "out.csv", "--config-file", "off",
        "--clock-control", "base", "--cache-control", "all", "--metrics", "gpu__time_duration.sum",
        "python", "train.py",
    ],
}  # fmt: skip

RICH: dict[Version, list[str]] = {
    (2019, 5): [
        "my tools/ncu", "--csv", "--page", "raw", "--target-processes", "all", "--units", "base",
        "--clock-control", "boost", "--cache-control", "none",
        "--metrics", "gpu__time_duration.sum,dram__bytes.sum", "--profile-from-start", "off",
        "--kernel-regex", """.*gemm<int, "T">|it's (one)""", "--launch-skip", "3", "--launch-count", "2",
        "--nvtx", "--nvtx-include", "forward pass/", "--nvtx-include", "mine@step/",
        "--print-fp", "--devices", "0", "./my model", "--name", "it's \"it\"", "", "--kernel-name",
    ],
    (2020, 1): [
        "my tools/ncu", "--csv", "--page", "raw", "--target-processes", "all", "--units", "base",
        "--clock-control", "boost", "--cache-control", "none",
        "--metrics", "gpu__time_duration.sum,dram__bytes.sum", "--profile-from-start", "off",
        "--kernel-regex", """.*gemm<int, "T">|it's (one)""", "--launch-skip", "3", "--launch-count", "2",
        "--nvtx", "--nvtx-include", "forward pass/", "--nvtx-include", "mine@step/",
        "--print-fp", "--devices", "0", "./my model", "--name", "it's \"it\"", "", "--kernel-name",
    ],
    (2020, 3): [
        "my tools/ncu", "--csv", "--page", "raw", "--target-processes", "all", "--print-units", "base",
        "--replay-mode", "kernel", "--log-file", "my run/out.csv",
        "--clock-control", "boost", "--cache-control", "none",
        "--metrics", "gpu__time_duration.sum,dram__bytes.sum", "--profile-from-start", "off",
        "--kernel-regex", """.*gemm<int, "T">|it's (one)""", "--launch-skip", "3", "--launch-count", "2",
        "--nvtx", "--nvtx-include", "forward pass/", "--nvtx-include", "mine@step/",
        "--print-fp", "--devices", "0", "./my model", "--name", "it's \"it\"", "", "--kernel-name",
    ],
    (2021, 1): [
        "my tools/ncu", "--csv", "--page", "raw", "--target-processes", "all", "--print-units", "base",
        "--replay-mode", "kernel", "--log-file", "my run/out.csv",
        "--clock-control", "boost", "--cache-control", "none",
        "--metrics", "gpu__time_duration.sum,dram__bytes.sum", "--profile-from-start", "off",
        "--kernel-name", """regex:.*gemm<int, "T">|it's (one)""", "--launch-skip", "3", "--launch-count", "2",
        "--nvtx", "--nvtx-include", "forward pass/", "--nvtx-include", "mine@step/",
        "--print-fp", "--devices", "0", "./my model", "--name", "it's \"it\"", "", "--kernel-name",
    ],
    (2022, 3): [
        "my tools/ncu", "--csv", "--page", "raw", "--target-processes", "all", "--print-units", "base",
        "--replay-mode", "kernel", "--log-file", "my run/out.csv",
        "--clock-control", "boost", "--cache-control", "none",
        "--metrics", "gpu__time_duration.sum,dram__bytes.sum", "--profile-from-start", "off",
        "--kernel-name", """regex:.*gemm<int, "T">|it's (one)""", "--launch-skip", "3", "--launch-count", "2",
        "--nvtx", "--nvtx-include", "forward pass/", "--nvtx-include", "mine@step/",
        "--print-fp", "--devices", "0", "./my model", "--name", "it's \"it\"", "", "--kernel-name",
    ],
    (2023, 1): [
        "my tools/ncu", "--csv", "--page", "raw", "--target-processes", "all", "--print-units", "base",
        "--replay-mode", "kernel", "--log-file", "my run/out.csv", "--config-file", "off",
        "--clock-control", "boost", "--cache-control", "none",
        "--metrics", "gpu__time_duration.sum,dram__bytes.sum", "--profile-from-start", "off",
        "--kernel-name", """regex:.*gemm<int, "T">|it's (one)""", "--launch-skip", "3", "--launch-count", "2",
        "--nvtx", "--nvtx-include", "forward pass/", "--nvtx-include", "mine@step/",
        "--print-fp", "--devices", "0", "./my model", "--name", "it's \"it\"", "", "--kernel-name",
    ],
    (2024, 1): [
        "my tools/ncu", "--csv", "--page", "raw", "--target-processes", "all", "--print-units", "base",
        "--replay-mode", "kernel", "--log-file", "my run/out.csv", "--config-file", "off",
        "--clock-control", "boost", "--cache-control", "none",
        "--metrics", "gpu__time_duration.sum,dram__bytes.sum", "--profile-from-start", "off",
        "--kernel-name", """regex:.*gemm<int, "T">|it's (one)""", "--launch-skip", "3", "--launch-count", "2",
        "--nvtx", "--nvtx-include", "forward pass/", "--nvtx-include", "mine@step/",
        "--print-fp", "--devices", "0", "./my model", "--name", "it's \"it\"", "", "--kernel-name",
    ],
    (2026, 1): [
        "my tools/ncu", "--csv", "--page", "raw", "--target-processes", "all", "--print-units", "base",
        "--replay-mode", "kernel", "--log-file", "my run/out.csv", "--config-file", "off",
        "--clock-control", "boost", "--cache-control", "none",
        "--metrics", "gpu__time_duration.sum,dram__bytes.sum", "--profile-from-start", "off",
        "--kernel-name", """regex:.*gemm<int, "T">|it's (one)""", "--launch-skip", "3", "--launch-count", "2",
        "--nvtx", "--nvtx-push-pop-scope", "process",
        "--nvtx-include", "forward pass/", "--nvtx-include", "mine@step/",
        "--print-fp", "--devices", "0", "./my model", "--name", "it's \"it\"", "", "--kernel-name",
    ],
}  # fmt: skip


def minimal(version: Version) -> list[str]:
    return ncu_command(NcuOptions(("gpu__time_duration.sum",), "out.csv", version), PROGRAM)


def rich(version: Version) -> list[str]:
    options = NcuOptions(
        metrics=("gpu__time_duration.sum", "dram__bytes.sum"),
        log_file="my run/out.csv",
        version=version,
        binary="my tools/ncu",
        clock_control="boost",
        cache_control="none",
        kernel=KERNEL,
        launch_skip=3,
        launch_count=2,
        nvtx_include=("forward pass/", "mine@step/"),
        from_start=False,
        extra=("--print-fp", "--devices", "0"),
    )
    return ncu_command(options, ["./my model", "--name", 'it\'s "it"', "", "--kernel-name"])


@pytest.mark.parametrize("version", MINIMAL, ids=str)
def test_a_minimal_request_is_this_command(version: Version) -> None:
    assert minimal(version) == MINIMAL[version]


@pytest.mark.parametrize("version", RICH, ids=str)
def test_a_rich_request_is_this_command(version: Version) -> None:
    assert rich(version) == RICH[version]


@pytest.mark.parametrize("version", RICH, ids=str)
def test_a_shell_reads_a_printed_command_back(version: Version) -> None:
    assert shlex.split(shlex.join(rich(version))) == rich(version)


def test_an_unknown_version_counts_as_the_newest() -> None:
    assert minimal(NEWEST) == MINIMAL[2026, 1]
    assert ncu_command(NcuOptions(("gpu__time_duration.sum",), "out.csv"), PROGRAM) == MINIMAL[2026, 1]


def test_a_launch_skip_of_zero_is_passed_on() -> None:
    options = NcuOptions(("gpu__time_duration.sum",), "out.csv", (2026, 1), launch_skip=0)
    assert ncu_command(options, PROGRAM) == [
        "ncu", "--csv", "--page", "raw", "--target-processes", "all", "--print-units", "base",
        "--replay-mode", "kernel", "--log-file", "out.csv", "--config-file", "off",
        "--clock-control", "base", "--cache-control", "all", "--metrics", "gpu__time_duration.sum",
        "--launch-skip", "0", "python", "train.py",
    ]  # fmt: skip


@pytest.mark.parametrize("version", [(2021, 1), (2022, 4), (2026, 1)], ids=str)
def test_nsys_traces_a_program_from_its_start(version: Version) -> None:
    by_node = ["--cuda-graph-trace", "node"] if version >= (2022, 4) else []
    assert nsys_command(NsysOptions("out", version), PROGRAM) == [
        "nsys", "profile", "--trace", "cuda,nvtx", "--sample", "none", "--cpuctxsw", "none",
        "--force-overwrite", "true", "--output", "out", *by_node, "python", "train.py",
    ]  # fmt: skip


def test_nsys_traces_graphs_as_the_user_requests() -> None:
    options = NsysOptions("out", (2026, 1), extra=("--cuda-graph-trace=graph",))
    assert nsys_command(options, PROGRAM) == [
        "nsys", "profile", "--trace", "cuda,nvtx", "--sample", "none", "--cpuctxsw", "none",
        "--force-overwrite", "true", "--output", "out", "--cuda-graph-trace=graph", "python", "train.py",
    ]  # fmt: skip


@pytest.mark.parametrize("version", [(2021, 1), (2022, 4), (2026, 1)], ids=str)
def test_nsys_without_cuda_traces_ranges_only(version: Version) -> None:
    options = NsysOptions("my run/out", version, "my tools/nsys", cuda=False, extra=("--stats", "false"))
    assert nsys_command(options, PROGRAM) == [
        "my tools/nsys", "profile", "--trace", "nvtx", "--sample", "none", "--cpuctxsw", "none",
        "--force-overwrite", "true", "--output", "my run/out", "--stats", "false", "python", "train.py",
    ]  # fmt: skip


def test_nsys_of_2021_1_stops_at_the_end_of_the_capture_by_itself() -> None:
    assert nsys_command(NsysOptions("out", (2021, 1), from_start=False), PROGRAM) == [
        "nsys", "profile", "--trace", "cuda,nvtx", "--sample", "none", "--cpuctxsw", "none",
        "--force-overwrite", "true", "--output", "out",
        "--capture-range", "cudaProfilerApi", "python", "train.py",
    ]  # fmt: skip


@pytest.mark.parametrize("version", [(2022, 4), (2026, 1)], ids=str)
def test_newer_nsys_is_told_to_stop_at_the_end_of_the_capture(version: Version) -> None:
    assert nsys_command(NsysOptions("out", version, from_start=False), PROGRAM) == [
        "nsys", "profile", "--trace", "cuda,nvtx", "--sample", "none", "--cpuctxsw", "none",
        "--force-overwrite", "true", "--output", "out",
        "--capture-range", "cudaProfilerApi", "--capture-range-end", "stop",
        "--cuda-graph-trace", "node", "python", "train.py",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "devices"),
    [((2022, 4), "--gpu-metrics-device"), ((2024, 7), "--gpu-metrics-device"), ((2025, 1), "--gpu-metrics-devices"),
     (NEWEST, "--gpu-metrics-devices")], ids=str,
)  # fmt: skip
def test_nsys_samples_gpu_metrics_of_all_gpus_at_a_rate(version: Version, devices: str) -> None:
    assert nsys_command(NsysOptions("out", version, gpu_metrics_hz=20_000), PROGRAM) == [
        "nsys", "profile", "--trace", "cuda,nvtx", "--sample", "none", "--cpuctxsw", "none",
        "--force-overwrite", "true", "--output", "out", "--cuda-graph-trace", "node",
        devices, "all", "--gpu-metrics-frequency", "20000", "python", "train.py",
    ]  # fmt: skip


def test_nsys_exports_to_sqlite() -> None:
    assert nsys_export_command("timeline.nsys-rep", "timeline.sqlite") == [
        "nsys", "export", "--type", "sqlite", "--force-overwrite", "true",
        "--output", "timeline.sqlite", "timeline.nsys-rep",
    ]  # fmt: skip
