"""A stand-in for ncu, for machines without a GPU: replays recorded output.

It is started with ncu's arguments and does not run the program. What it does instead is said by the environment
variable STAND_IN_NCU:

good               the report of eight launches, exit code 0
chatter            the same, while the program prints lines that sound like failures of ncu
huge               the same, while the program prints 50 MB
asked              the report of eight launches with only the metrics asked for
unsteady           the same, and one launch less in every second run
flood              the same, while the program prints 1 GB
stubborn           as slow, but neither it nor the daemon that it leaves behind ends when it is asked to
slow               the report up to the middle of its third launch, then nothing for a minute
crash              the same, then a segmentation fault
permission         no permission to read counters, exit code 1
no-kernels         no kernels, exit code 0
application-error  the program said nothing and failed with exit code 3
exception          the program failed with an exception and exit code 1

STAND_IN_NCU_VERSION is the version it gives itself out for. Without --log-file everything goes to standard output, as
with versions before 2020.2.
"""

from __future__ import annotations

import csv
import io
import os
import signal
import sys
import time
from pathlib import Path

VERSION = os.environ.get("STAND_IN_NCU_VERSION", "2024.1.1.0")
REPORT = (Path(__file__).parents[2] / "sample_reports" / "d01-wide-raw.csv").read_text("utf-8")
CONNECTED = "==PROF== Connected to process 4711 (/home/user/app)\n"
PERMISSION = (
    CONNECTED + "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance "
    "Counters on the target device 0.\n==WARNING== No kernels were profiled.\n"
)
NO_KERNELS = CONNECTED + "==WARNING== No kernels were profiled.\n"
FAILED = CONNECTED + "==ERROR== The application returned an error code ({}).\n"
EXCEPTION = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\nKeyError: "no such data set"\n'
CHATTER = "Failed to connect to the dashboard, retrying\nConnection error\nlast batch skipped: OutOfMemory\n"


def half() -> str:
    """The report as a crash leaves it: two launches, and the third cut in the middle of a number."""
    lines = REPORT.splitlines(keepends=True)
    return "".join(lines[:6]) + lines[6][: len(lines[6]) // 2]


def only(asked: set[str], launches: int) -> str:
    """The report as ncu writes it with only some metrics."""
    header, units, *rows = csv.reader(line for line in REPORT.splitlines() if line.startswith('"'))
    kept = [at for at, name in enumerate(header) if "__" not in name or name in asked]
    written = io.StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([row[at] for at in kept] for row in (header, units, *rows[:launches]))
    return CONNECTED + written.getvalue()


def main(arguments: list[str]) -> int:
    """Act as STAND_IN_NCU says."""
    if "--version" in arguments:
        sys.stdout.write(
            "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c) 2018-2024 NVIDIA Corporation\n"
        )
        sys.stdout.write(f"Version {VERSION} (build 1) (public-release)\n")
        return 0
    if "--query-metrics" in arguments:
        return 1
    behaviour = os.environ["STAND_IN_NCU"]
    asked = set(arguments[arguments.index("--metrics") + 1].split(",")) if "--metrics" in arguments else set()
    second = any("ncu-instructions.csv" in argument for argument in arguments)
    says, code = {
        "asked": (only(asked, 8), 0),
        "unsteady": (only(asked, 7 if second else 8), 0),
        "good": (REPORT, 0),
        "chatter": (REPORT, 0),
        "huge": (REPORT, 0),
        "flood": (REPORT, 0),
        "stubborn": (half(), 0),
        "slow": (half(), 0),
        "crash": (half(), 0),
        "permission": (PERMISSION, 1),
        "no-kernels": (NO_KERNELS, 0),
        "application-error": (FAILED.format(3), 3),
        "exception": (FAILED.format(1), 1),
    }[behaviour]
    if behaviour == "chatter":
        sys.stdout.write(CHATTER)
    if behaviour == "exception":
        sys.stdout.write(EXCEPTION)
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            os.setsid()
            time.sleep(120)
            os._exit(0)
    if behaviour in ("huge", "flood"):
        for _ in range(500 if behaviour == "huge" else 10_000):
            sys.stdout.write(("step 1, loss = 2.3026 " + "." * 77 + "\n") * 1000)
    if "--log-file" in arguments:
        Path(arguments[arguments.index("--log-file") + 1]).write_text(says, encoding="utf-8")
    else:
        sys.stdout.write(says)
    sys.stdout.flush()
    if behaviour in ("slow", "stubborn"):
        time.sleep(60)
    if behaviour == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
