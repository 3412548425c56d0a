"""Record the commands of docs/first-steps.md on a terminal of 80 columns, as docs/first-steps.txt.

    python -m tests.support.pages.first_steps

The commands run one after the other in a folder of their own, with the samples in it. Control sequences and progress
lines are left out of the recording.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from fcntl import ioctl
from pathlib import Path
from struct import pack
from tempfile import TemporaryDirectory
from termios import TIOCSWINSZ

from tests.conftest import ROOT, SAMPLES

PAGE, RECORDING = ROOT / "docs" / "first-steps.md", ROOT / "docs" / "first-steps.txt"
LINES, COLUMNS = 40, 80
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07")
_SPINNER = re.compile(r"^.*[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] .*$\n?", re.MULTILINE)


def commands() -> list[str]:
    """The commands of the page, in their order, without the one that sets the path."""
    found = [line for block in _BLOCK.findall(PAGE.read_text("utf-8")) for line in block.splitlines() if line]
    return [line for line in found if not line.startswith("export ")]


def on_a_terminal(command: str, folder: Path, settings: Mapping[str, str] = os.environ) -> tuple[int, str]:
    """The exit code of a shell's command in a folder, and what it shows on a terminal, as plain text."""
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {name: value for name, value in settings.items() if name not in ("COLUMNS", "LINES")}
    environment |= {"TERM": "xterm", "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen(
        [shutil.which("bash") or "/bin/sh", "-c", command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    ) as process:
        os.close(theirs)
        shown = b"".join(_pieces(ours))
    os.close(ours)
    text = _CONTROL.sub("", shown.decode("utf-8", "replace").replace("\r\n", "\n"))
    return process.returncode, _SPINNER.sub("", text.replace("\r", "\n"))


def _pieces(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the end, on Linux
            return
        if not piece:
            return
        yield piece


def main() -> None:
    """Record every command. Raises `SystemExit` if one fails."""
    recorded = []
    with TemporaryDirectory(prefix="ncu-bench-") as name, TemporaryDirectory(prefix="ncu-bench-home-") as home:
        folder = Path(name)
        settings = {name: value for name, value in os.environ.items() if not name.startswith("NCU_BENCH_")}
        settings |= {"HOME": home}  # a machine that nobody measured, with all its cores
        shutil.copytree(SAMPLES, folder / "sample_reports", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        for command in commands():
            code, shown = on_a_terminal(command, folder, settings)
            if code:
                raise SystemExit(f"{command} ended with exit code {code}:\n{shown}")
            lines = [line.rstrip() for line in shown.replace(name, ".").replace(home, "~").splitlines() if line.strip()]
            recorded.append("\n".join([f"$ {command}", *lines]))
    RECORDING.write_text("\n\n".join(recorded) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
