"""Find ncu, nsys and NVIDIA GPUs on this machine. Read-only."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ncu_launch.profilers.command_line import GPU_METRICS_OF_SEVERAL, NEWEST, Version, nsys_export_command
from ncu_launch.profilers.subprocesses import run

_VERSION = re.compile(r"\b(20\d\d)\.(\d+)(?:\.\d+)*")
TIMEOUT_S = 30
EXPORT_TIMEOUT_S = 1800
MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Tool:
    """An installed profiler; `version` is None if `--version` prints none."""

    name: str
    path: str
    version: Version | None
    version_text: str


@dataclass(frozen=True)
class Gpu:
    """A GPU listed by nvidia-smi."""

    index: int
    name: str
    compute_capability: str | None
    driver: str | None
    memory_bytes: int | None = None


def ask(command: list[str]) -> tuple[int, str] | None:
    """Exit code and combined output of a short command; None if it could not start or timed out."""
    try:
        done = subprocess.run(  # noqa: S603
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.returncode, done.stdout + done.stderr


def find_tool(name: str, path: str | None = None) -> Tool | None:
    """The tool `name` on PATH, or the one at `path`; None if it is missing or does not start."""
    found = shutil.which(path or name)
    answer = ask([found, "--version"]) if found else None
    if found is None or answer is None:
        return None
    match = _VERSION.search(answer[1])
    version = (int(match[1]), int(match[2])) if match else None
    return Tool(name, found, version, match[0] if match else "")


def gpus() -> list[Gpu]:
    """The NVIDIA GPUs that nvidia-smi lists; [] without a driver."""
    found = shutil.which("nvidia-smi")
    if found is None:
        return []
    query = "--query-gpu=index,name,compute_cap,driver_version,memory.total"
    answer = ask([found, query, "--format=csv,noheader,nounits"])
    if answer is None or answer[0] != 0:
        return []
    result = []
    for line in answer[1].splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 5 and cells[0].isdecimal():
            capability = cells[2] if re.fullmatch(r"\d+\.\d", cells[2]) else None
            memory = int(cells[4]) * MEBIBYTE if cells[4].isdecimal() else None  # integrated GPUs print [N/A]
            result.append(Gpu(int(cells[0]), cells[1], capability, cells[3], memory))
    return result


def mig_modes() -> tuple[str, ...] | None:
    """The MIG mode of every GPU, as nvidia-smi prints it; None if nvidia-smi prints none."""
    found = shutil.which("nvidia-smi")
    answer = ask([found, "--query-gpu=mig.mode.current", "--format=csv,noheader"]) if found else None
    if answer is None or answer[0] != 0:
        return None
    return tuple(line.strip() for line in answer[1].splitlines() if line.strip()) or None


def sampled_gpus_by(nsys: Tool | None) -> str | None:
    """What nsys prints about the GPUs whose metrics it can sample; None without an nsys that answers."""
    if nsys is None:
        return None
    several = "s" if (nsys.version or NEWEST) >= GPU_METRICS_OF_SEVERAL else ""
    answer = ask([nsys.path, "profile", f"--gpu-metrics-device{several}=help"])
    return answer[1] if answer is not None else None


def listed_metrics(ncu: Tool, chip: str) -> frozenset[str]:
    """Base names of the metrics that this ncu lists for a chip; empty if it does not know the chip."""
    answer = ask([ncu.path, "--query-metrics", "--chips", chip.lower()])
    if answer is None or answer[0] != 0:
        return frozenset()
    names = (line.split(maxsplit=1)[0] for line in answer[1].splitlines() if line[:1].isalpha())
    return frozenset(name for name in names if "__" in name)


def export_timeline(nsys: Tool, report: Path, output: Path, log: Path) -> bool:
    """Export a report to SQLite at `output` with nsys, logging to `log`; False if nsys failed to start or timed out.

    Success is the existence of `output`, not the result: it is True for an nsys that failed, whose partial output is
    removed, since it looks like the timeline of a program that did nothing. Raises `KeyboardInterrupt` on Ctrl-C.
    """
    command = nsys_export_command(str(report.absolute()), str(output.absolute()), nsys.path)
    try:
        finished = run(command, log, timeout=EXPORT_TIMEOUT_S)
    except OSError:
        return False
    if finished.interrupted:
        raise KeyboardInterrupt
    if finished.exit_code != 0:
        output.unlink(missing_ok=True)
    return not finished.timed_out
