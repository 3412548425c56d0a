"""Build the command line of ncu or nsys, for any version, as a list of arguments. Nothing runs here.

Flags were added, removed and changed defaults between 2019 and 2026; comments say which version takes what. Every
default that ever changed is passed explicitly, so that a command means the same in every version. Sources: NVIDIA's
release notes, and the help texts of 2020.3, 2022.3 and 2024.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Version = tuple[int, int]

NEWEST: Version = (9999, 0)

GPU_METRICS_OF_SEVERAL: Version = (2025, 1)
"""Oldest nsys that is given --gpu-metrics-devices; older versions are given --gpu-metrics-device, which 2022.4 lists.
Which release introduced the new flag is not documented; by public notes, nsys of 2025 calls the old one deprecated."""
GPU_METRICS_HZ = 10_000
"""Default sampling rate of GPU metrics."""
LEAST_GPU_METRICS_HZ, MOST_GPU_METRICS_HZ = 10, 200_000
"""The sampling rates that nsys accepts, by the help text of 2022.4 and the User Guide of 2025 and later."""


@dataclass(frozen=True)
class Lockstep:
    """Settings for ncu instances that start each kernel in lockstep: their number, and the host they connect to."""

    instances: int
    host: str = "127.0.0.1"


@dataclass(frozen=True)
class NcuOptions:
    """What ncu collects. `log_file` receives the CSV; ncu before 2020.2 has no such flag and writes it to stdout."""

    metrics: tuple[str, ...]
    log_file: str
    version: Version = NEWEST
    binary: str = "ncu"
    clock_control: str = "base"
    cache_control: str = "all"
    kernel: str | None = None
    launch_skip: int | None = None
    launch_count: int | None = None
    nvtx: bool = False
    nvtx_include: tuple[str, ...] = ()
    from_start: bool = True
    lockstep: Lockstep | None = None
    extra: tuple[str, ...] = ()


def ncu_command(options: NcuOptions, program: Sequence[str]) -> list[str]:
    """The ncu command line that profiles `program` into a raw CSV page in base units."""
    version = options.version
    command = [options.binary, "--csv", "--page", "raw", "--target-processes", "all"]  # all is the default since 2023.3
    command += ["--print-units" if version >= (2020, 3) else "--units", "base"]  # raw is not in base units by itself
    if version >= (2020, 2):
        command += ["--replay-mode", "kernel", "--log-file", options.log_file]
    if version >= (2023, 1):
        command += ["--config-file", "off"]  # a user's file could change anything
    command += ["--clock-control", options.clock_control]  # base was the default until 2026.1, boost is since
    command += ["--cache-control", options.cache_control]
    command += ["--metrics", ",".join(options.metrics)]
    if not options.from_start:
        command += ["--profile-from-start", "off"]
    if options.lockstep is not None:
        command += ["--communicator", "tcp", "--communicator-tcp-num-peers", str(options.lockstep.instances)]
        command += ["--communicator-tcp-hostname", options.lockstep.host, "--lockstep-kernel-launch"]
    command += _ncu_filters(options)
    return [*command, *options.extra, *program]


def _ncu_filters(options: NcuOptions) -> list[str]:
    filters: list[str] = []
    if options.kernel is not None:
        by_name = ["--kernel-name", f"regex:{options.kernel}"]
        filters += by_name if options.version >= (2021, 1) else ["--kernel-regex", options.kernel]
    if options.launch_skip is not None:
        filters += ["--launch-skip", str(options.launch_skip)]
    if options.launch_count is not None:
        filters += ["--launch-count", str(options.launch_count)]
    if options.nvtx or options.nvtx_include:
        filters += ["--nvtx"]  # 2020.3 and newer refuse --nvtx-include without it; 2020.2 and newer print the ranges
    if options.nvtx_include:
        if options.version >= (2026, 1):
            filters += ["--nvtx-push-pop-scope", "process"]  # else ranges of one thread hide kernels of another
        for expression in options.nvtx_include:
            filters += ["--nvtx-include", expression]
    return filters


@dataclass(frozen=True)
class NsysOptions:
    """What nsys records. `output` has no suffix: nsys adds its own. `gpu_metrics_hz`: sampling rate, None for none."""

    output: str
    version: Version = NEWEST
    binary: str = "nsys"
    cuda: bool = True
    from_start: bool = True
    gpu_metrics_hz: int | None = None
    extra: tuple[str, ...] = ()


def nsys_command(options: NsysOptions, program: Sequence[str]) -> list[str]:
    """The nsys command line that traces CUDA and NVTX of `program`, without CPU samples or context switches.

    Kernels of a CUDA graph are traced node by node: newer versions default to one entry per graph, without kernels.
    """
    command = [options.binary, "profile", "--trace", "cuda,nvtx" if options.cuda else "nvtx"]
    command += ["--sample", "none", "--cpuctxsw", "none", "--force-overwrite", "true", "--output", options.output]
    if not options.from_start:
        command += ["--capture-range", "cudaProfilerApi"]
        if options.version >= (2021, 2):
            command += ["--capture-range-end", "stop"]  # before, the default was --stop-on-range-end true
    chosen = any(argument.startswith("--cuda-graph-trace") for argument in options.extra)
    if options.cuda and options.version >= (2022, 4) and not chosen:
        command += ["--cuda-graph-trace", "node"]
    if options.gpu_metrics_hz is not None:
        several = "s" if options.version >= GPU_METRICS_OF_SEVERAL else ""
        command += [f"--gpu-metrics-device{several}", "all"]
        command += ["--gpu-metrics-frequency", str(options.gpu_metrics_hz)]
    return [*command, *options.extra, *program]


def nsys_export_command(report: str, output: str, binary: str = "nsys") -> list[str]:
    """The nsys command line that exports a report to SQLite."""
    return [binary, "export", "--type", "sqlite", "--force-overwrite", "true", "--output", output, report]
