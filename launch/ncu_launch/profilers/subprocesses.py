"""Run a profiler or a model as a subprocess, and end it together with every process that it started.

Output goes to a log file, never to the stdout of ncu-bench. On a timeout or Ctrl-C the whole process tree is ended:
descendants, and orphans, which are found by a marker variable in their environment.
"""

from __future__ import annotations

import codecs
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import psutil

GRACE_S = 5.0
ASKED_EVERY_S = 1.0
LINES_KEPT = 400
LONGEST_LINE = 64 * 1024
MARK = "NCU_BENCH_RUN"
OWN_PYTHON = (sys.executable, "-P") if sys.version_info >= (3, 11) else (sys.executable,)
"""Command line of a Python child process. `-P` keeps the current folder, which may contain a json.py, off sys.path;
`user_functions` adds it when it imports a target."""


@dataclass(frozen=True)
class Finished:
    """How a command ended: exit code (negative: killed by that signal), wall-clock seconds, and its last 400 lines.

    `interrupted`: ended by Ctrl-C or by `should_end`, whose reason is `ended_for` (None otherwise).
    """

    exit_code: int
    seconds: float
    timed_out: bool
    interrupted: bool
    lines: tuple[str, ...]
    ended_for: str | None = None


def end_with_the_parent() -> None:
    """Make Linux kill this process when its parent ends, for whatever reason."""
    pr_set_pdeathsig = 1
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def own_environment() -> dict[str, str]:
    """An environment in which a child Python finds the same packages as this process."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([path for path in sys.path if path])}


def run(
    command: Sequence[str],
    log: Path,
    *,
    timeout: float | None = None,
    environment: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] = lambda line: None,
    should_end: Callable[[], str | None] | None = None,
    leaves_nothing: bool = False,
) -> Finished:
    """Run `command`, write its output to `log`, and call `on_line` with each line.

    `should_end` is called every second; if it returns a reason, the command is ended. With `leaves_nothing`, processes
    that the command left running are ended after it.

    Raises `OSError` if the command cannot be started. Ctrl-C ends the command and is reported in the result; a second
    Ctrl-C kills it at once.
    """
    began = time.monotonic()
    timed_out = interrupted = False
    kept: list[str] = []
    mark = f"{MARK}_{uuid.uuid4().hex}"  # unique, because nested runs inherit the outer marker
    family_environment = {**(os.environ if environment is None else environment), mark: "1"}
    ended_for = None
    not_ours = _without_environment() if leaves_nothing else set()
    with log.open("w", encoding="utf-8", errors="replace") as stream:
        process = subprocess.Popen(  # noqa: S603  a list of arguments, never a shell
            list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, env=family_environment,
        )  # fmt: skip
        reader = threading.Thread(target=_read, args=(process, stream, kept, on_line), daemon=True)
        try:
            reader.start()
            ended_for = _wait(process, timeout, should_end)
        except subprocess.TimeoutExpired:
            timed_out = True
        except KeyboardInterrupt:
            interrupted = True
        try:
            if process.poll() is None:
                end_tree(process, mark)
            if reader.ident is None:  # interrupted before it started
                reader.start()
            reader.join(GRACE_S)
            pipe_is_open = reader.is_alive()  # a daemon still holds it
            if pipe_is_open or (leaves_nothing and _left(mark, not_ours)):
                end_tree(process, mark)
        except KeyboardInterrupt:
            interrupted = True
            end_tree(process, mark, grace=0.0)
        reader.join(GRACE_S)
    seconds = time.monotonic() - began
    return Finished(
        process.returncode, seconds, timed_out, interrupted or ended_for is not None, tuple(kept), ended_for
    )


def lines_of(log: Path) -> Iterator[str]:
    """Lines of a log without trailing white space, read lazily; lines over 65,536 characters come in pieces."""
    with log.open(encoding="utf-8", errors="replace") as stream:
        while line := stream.readline(LONGEST_LINE):
            yield line.rstrip()


def _wait(
    process: subprocess.Popen[bytes], timeout: float | None, should_end: Callable[[], str | None] | None
) -> str | None:
    """Wait until a process ends, or until `should_end` returns a reason, which is returned.

    Raises `subprocess.TimeoutExpired` after `timeout` seconds.
    """
    if should_end is None:
        process.wait(timeout)
        return None
    deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
    while process.poll() is None:
        reason = should_end()
        if reason is not None:
            return reason
        left = deadline - time.monotonic()
        if left <= 0:
            raise subprocess.TimeoutExpired(process.args, timeout or 0.0)
        with suppress(subprocess.TimeoutExpired):
            process.wait(min(left, ASKED_EVERY_S))
    return None


def _read(process: subprocess.Popen[bytes], stream: TextIO, kept: list[str], on_line: Callable[[str], None]) -> None:
    """Read the pipe until it closes, even if writing the log fails: otherwise the program would block for ever."""
    assert process.stdout is not None  # noqa: S101  stdout=PIPE
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while raw := process.stdout.readline(LONGEST_LINE):
        text = decoder.decode(raw)
        with suppress(OSError, ValueError):  # the disk is full, or run() gave up waiting and closed the log
            stream.write(text)
            stream.flush()
        kept.append(text.rstrip("\r\n"))
        del kept[:-LINES_KEPT]
        with suppress(Exception):
            on_line(kept[-1])


def end_tree(process: subprocess.Popen[bytes], mark: str, grace: float | None = None) -> None:
    """End a process and everything that it started: SIGTERM first, SIGKILL after `grace` seconds (None: `GRACE_S`)."""
    family = _family(process, mark)
    _signal(family, signal.SIGTERM)
    deadline = time.monotonic() + (GRACE_S if grace is None else grace)
    while family and time.monotonic() < deadline:
        time.sleep(0.05)
        family = {one for one in family if _is_running(one)} | _family(process, mark)
    _signal(family, signal.SIGKILL)
    process.wait()


def _family(process: subprocess.Popen[bytes], mark: str) -> set[psutil.Process]:
    """The process, its descendants, and processes with the variable `mark` in their environment that still run.

    A process that was waited for is not looked up, since its id may have been reused.
    """
    family = _marked(mark)
    if process.poll() is None:
        with suppress(psutil.Error):
            root = psutil.Process(process.pid)
            family |= {root, *root.children(recursive=True)}
    return family


def _marked(mark: str) -> set[psutil.Process]:
    return _where(lambda one: mark in one.environ())


def _without_environment() -> set[psutil.Process]:
    """Programs whose environment is empty or not readable yet. Kernel threads (no executable) are excluded."""
    return _where(lambda one: not one.environ() and bool(one.exe()))


def _where(condition: Callable[[psutil.Process], bool]) -> set[psutil.Process]:
    found = set()
    for one in psutil.process_iter():
        with suppress(psutil.Error):  # ended, or owned by another user
            if condition(one) and _is_running(one):
                found.add(one)
    return found


def _left(mark: str, not_ours: set[psutil.Process]) -> set[psutil.Process]:
    """Processes with `mark` in their environment that still run after the main program exited.

    On Linux, a child's environment may not be readable yet when its parent goes on. So wait for processes without an
    environment, except those that existed before the program started (`not_ours`).
    """
    deadline = time.monotonic() + GRACE_S
    while True:
        starting = _without_environment() - not_ours  # before _marked(): whatever starts later has its mark
        found = _marked(mark)
        if found or not starting or time.monotonic() >= deadline:
            return found
        time.sleep(0.05)


def _signal(family: set[psutil.Process], number: signal.Signals) -> None:
    for one in family:
        with suppress(psutil.Error):
            one.send_signal(number)


def _is_running(one: psutil.Process) -> bool:
    """True if the process runs; False if it ended or is a zombie."""
    with suppress(psutil.Error):
        return one.is_running() and bool(one.status() != psutil.STATUS_ZOMBIE)
    return False
