"""Explain how a run ended, from the output of the tool and the program.

Exit codes are not enough: ncu exits with 0 if it profiled nothing, and nsys with 0 if it left no report.
"""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path

from ncu_launch.errors import NcuBenchError, error_in_line
from ncu_launch.files.manifest import Manifest, ToolRun
from ncu_launch.files.run_files import LOGS, NCU_CSV, REPORTS
from ncu_launch.profilers.subprocesses import lines_of
from ncu_launch.profilers.tool_failures import ToolFailed, recognise

KILLED = (-9, 137)
"""Exit codes after SIGKILL: as the parent process sees it, and as a shell or tool in between reports it."""


def timelines(folder: Path) -> list[Path]:
    """The reports that nsys left in a run folder. An nsys without its importer leaves none and exits with 0."""
    return [path for suffix in ("nsys-rep", "qdrep") for path in (folder / REPORTS).glob(f"*.{suffix}")]


def explain(manifest: Manifest, folder: Path) -> NcuBenchError | None:
    """Why a run gave nothing or too little: the model's own error, a known failure of the tool, or the exit code.

    None if the run succeeded.
    """
    if not manifest.tool_runs:
        return None
    ran = manifest.tool_runs[-1]
    lines = _printed(folder, ran)
    own = next((error for line in reversed(lines) if (error := error_in_line(line)) is not None), None)
    if own is not None:
        return own
    log = folder / LOGS / ran.log
    if ran.interrupted:
        return NcuBenchError(
            "The run was stopped.", f"It had run for {ran.seconds:.0f} s.", f"What it printed is in {log}."
        )
    if ran.timed_out:
        return NcuBenchError(
            f"The run was ended after {ran.seconds:.0f} s.", "That was its --timeout.", f"What it printed is in {log}."
        )
    if manifest.source == "nsys" and ran.exit_code == 0 and not timelines(folder):
        return _no_timeline_error(lines, folder, log)
    messages = (
        lines if ran.exit_code else [line for line in lines if line.startswith("==")]
    )  # else: the program's output
    failure = recognise(messages)
    if failure is not None and failure[0].slug != "application-failed":
        return ToolFailed(manifest.source, *failure)
    if ran.exit_code in KILLED:
        return NcuBenchError(
            "The program was killed from outside.",
            "Usually that is the system, because memory ran out.",
            f"Try a smaller --batch-size or model. What it printed is in {log}.",
        )
    if ran.exit_code != 0 or failure is not None:
        code = f"exit code {ran.exit_code}" if ran.exit_code >= 0 else f"signal {-ran.exit_code}"
        last = last_error_line(lines) or (failure[1] if failure is not None else "")
        return NcuBenchError(
            f"The program ended with {code}.",
            f'It says: "{last.strip()[:300]}".' if last.strip() else "It printed nothing that says why.",
            f"All it printed is in {log}.",
        )
    return None


def _no_timeline_error(lines: list[str], folder: Path, log: Path) -> NcuBenchError:
    """Why nsys exited with 0 and left no report: no importer, a lost agent, or an unknown reason."""
    if list((folder / REPORTS).glob("*.qdstrm")) or any(line.startswith("Importer error") for line in lines):
        return NcuBenchError(
            "nsys ran the program, but left only the raw recording (.qdstrm) and no report.",
            "nsys did not find its importer; Debian's package needs a link to it.",
            "As root: ln -sfn /usr/lib/nsight-systems/host-linux-x64 "
            "/usr/lib/x86_64-linux-gnu/nsight-systems/host-linux-x64",
        )
    failure = recognise(lines)
    if failure is not None and failure[0].slug == "no-agent":
        return ToolFailed("nsys", *failure)
    return NcuBenchError(
        "nsys ran the program and left no report, though it ended with exit code 0.",
        "Usually its agent was killed, or its files in the temporary folder were removed.",
        f"Profile again, and run ncu-bench doctor. All it printed is in {log}.",
    )


LINES_ASKED = 2000
"""Number of lines at the end of a log that are searched for the reason of a failure."""

_EXCEPTION = re.compile(r"(?:\[rank\d+\]: )?[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b")


def _is_the_tools(line: str) -> bool:
    """True for messages of ncu and Kineto, and for nsys's progress and report path."""
    return line.startswith(("==", "[1/1]", "Generat", "USDT:")) or line.rstrip().endswith(
        (".nsys-rep", ".qdrep", ".qdstrm")
    )


def last_error_line(lines: list[str]) -> str:
    """The last exception in a program's output, else its last line that is no message of the tool, else ""."""
    printed = [line for line in lines if line.strip() and not _is_the_tools(line)]
    exceptions = [line for line in printed if _EXCEPTION.match(line)]
    return (exceptions or printed or [""])[-1]


def _printed(folder: Path, ran: ToolRun) -> list[str]:
    """The last lines of ncu's report, without its table, and of the log; reports that are no CSV are not read."""
    lines: list[str] = []
    report = ran.report or NCU_CSV
    for file in (folder / REPORTS / report, folder / LOGS / ran.log):
        if file.is_file() and (file.parent.name == LOGS or report.endswith(".csv")):
            lines += deque((line for line in lines_of(file) if not line.startswith('"')), maxlen=LINES_ASKED)
    return lines
