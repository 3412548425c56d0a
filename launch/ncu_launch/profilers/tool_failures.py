"""Known failure messages of Nsight Compute, and of Nsight Systems as it starts, with what to do about each.

ncu often exits with 0 although it collected nothing, and writes its messages into the file meant for the CSV. So
failures are recognised by substrings of the output, not by the exit code. Order matters: the first matching entry
explains the output, and "No kernels were profiled" also follows most of the others.
"""

from __future__ import annotations

from typing import NamedTuple

from ncu_launch.errors import NcuBenchError


class Failure(NamedTuple):
    """A known failure: any of `signs` in the tool's output identifies it; `advice` says what to do."""

    slug: str
    signs: tuple[str, ...]
    meaning: str
    advice: str


FAILURES: tuple[Failure, ...] = (
    Failure(
        "counter-permission",
        ("ERR_NVGPUCTRPERM", "Insufficient privilege"),
        "the user may not read the GPU's performance counters (ERR_NVGPUCTRPERM)",
        "Run it as root or with CAP_SYS_ADMIN, add --cap-add=SYS_ADMIN to the container, or have the administrator "
        "load the driver with NVreg_RestrictProfilingToAdminUsers=0. nsys traces without it, if --gpu-metrics is left "
        "out.",
    ),
    Failure(
        "not-permitted-here",
        ("ERR_NVCMPGPU",),
        "profiling is not permitted on this GPU, virtual machine or confidential-computing mode",
        "Profile on a machine where the hypervisor or the vGPU profile allows counters.",
    ),
    Failure(
        "report-not-readable",
        ("Failed to load report file", "Could not open report file"),
        "this ncu could not load the report: the file is missing, or newer than the ncu that was asked to print it",
        "Name the binary report itself, which is read without an ncu, or export it with one at least as new as it: "
        "ncu --import FILE.ncu-rep --csv --page raw --print-units base > FILE.csv",
    ),
    Failure(
        "no-such-section",
        ("did not match any section", "did not match any set"),
        "a --section or --set that this ncu does not have was asked for, so it profiled nothing",
        "See ncu --list-sections and ncu --list-sets for the names, or ask for metrics by name with --metrics.",
    ),
    Failure(
        "bad-command-line",
        (
            "unrecognised option",
            "unrecognized option",
            "Invalid option",
            "the argument for option",
            "requires --nvtx",
            "does not exist or is not an executable",
        ),
        "the profiler refused its command line: an option this version does not have, or a program that is not there",
        "Compare the options with ncu --help or nsys profile --help of the same version, and check the program's path.",
    ),
    Failure(
        "unknown-metric",
        ("Failed to find metric",),
        "a metric was asked for that this GPU does not have",
        "List what it has with ncu --query-metrics, and drop or replace the name.",
    ),
    Failure(
        "counters-in-use",
        ("driver resource was unavailable", "Already under profiling", "sampling hardware unit is already in use"),
        "another profiler holds the performance counters, usually DCGM or a second ncu or nsys",
        "Pause it (dcgmi profile --pause) and profile again.",
    ),
    Failure(
        "lock-file",
        ("Failed to open/create lock file", "Failed to open lock file"),
        "the lock file nsight-compute-lock in the temporary folder belongs to another user",
        "Set TMPDIR to a folder of your own and profile again.",
    ),
    Failure(
        "gpu-not-supported",
        ("UnsupportedGpu", "Profiling is not supported on device"),
        "this ncu does not know the GPU: the GPU is newer than the tool, or too old for it",
        "Use an ncu of the GPU's generation: 2025.1 or newer for Blackwell, at most 2025.3 for Volta.",
    ),
    Failure(
        "gpu-metrics-not-supported",
        ("None of the installed GPUs are supported", "Illegal --gpu-metrics-device"),
        "nsys cannot sample GPU metrics here: it knows none of these GPUs, or the driver does not let it",
        "See what nsys profile --gpu-metrics-devices=help says of each GPU (--gpu-metrics-device=help before 2025), "
        "use an nsys of the GPU's generation, or leave out --gpu-metrics.",
    ),
    Failure(
        "driver-too-old",
        ("InsufficientDriverVersion", "LibraryInvalidVersion"),
        "the NVIDIA driver is older than this ncu needs",
        "Update the driver, or use an ncu from the CUDA release that matches it.",
    ),
    Failure(
        "library-not-loaded",
        ("LibraryNotLoaded",),
        "ncu could not load its target-side library",
        "Reinstall ncu from one package, and run it from that installation.",
    ),
    Failure(
        "out-of-memory",
        ("Failed to save memory for replay", "OutOfMemory"),
        "replaying the kernel needs to save more memory than is free",
        "Ask for fewer metrics, so that one pass suffices, or use --replay-mode application.",
    ),
    Failure(
        "kernel-failed",
        ("LaunchFailed", "Failed to prepare kernel for profiling", "Failed to profile", "Unknown Error on device"),
        "a kernel failed while it was being profiled",
        "Run the program without ncu first; then profile it with fewer metrics, without the sass metrics, or with a "
        "newer ncu.",
    ),
    Failure(
        "hang",
        ("Launching the workload is taking more time than expected",),
        "a profiled kernel waits for another kernel or rank (NCCL, NVSHMEM, a cooperative launch)",
        "Leave collectives out with --kernel-name regex:..., or use --replay-mode application or range.",
    ),
    Failure(
        "no-connection",
        ("Failed to connect", "terminated before first instrumented API call", "Connection error"),
        "ncu lost the program before it made its first CUDA call",
        "Check that the program starts without ncu and really uses the GPU; a statically linked or setuid program "
        "cannot be profiled.",
    ),
    Failure(
        "no-agent",
        (
            "Local Endpoint is not available",
            "[boost::errinfo_api_function_*] = sem_open",
            "Connection to the Agent lost",
        ),
        "nsys did not get to its own agent or semaphore, or lost it, as happens where several begin at once on a busy "
        "machine",
        "Profile again; with --tool-per node one nsys records all ranks of a machine.",
    ),
    Failure(
        "target-processes",
        ("requires the --target-processes all option",),
        "the kernels ran in a child process that ncu did not follow",
        "Pass --target-processes all.",
    ),
    Failure(
        "application-failed",
        ("The application returned an error code",),
        "the profiled program itself ended with an error",
        "Run it without ncu and look at its own message.",
    ),
    Failure(
        "nothing-profiled",
        (
            "No kernels were profiled",
            "No ranges were profiled",
            "No graphs were profiled",
            "No ranges/graphs were profiled",
        ),
        "no kernel was profiled: the filters matched none, the program launched none, or they ran in a child process",
        "Loosen --kernel-name, --nvtx-include and --launch-skip, pass --target-processes all, and check that the "
        "program uses the GPU.",
    ),
)


class ToolFailed(NcuBenchError):
    """The tool's output shows that it collected nothing."""

    def __init__(self, source: str, failure: Failure, quote: str) -> None:
        self.failure = failure
        super().__init__(f"{source} holds no profile: {failure.meaning}.", f'It says: "{quote}".', failure.advice)


def recognise(lines: list[str]) -> tuple[Failure, str] | None:
    """The first known failure in a tool's output and the line that shows it; None if there is none."""
    for failure in FAILURES:
        for line in lines:
            if any(sign in line for sign in failure.signs):
                return failure, line.strip()
    return None
