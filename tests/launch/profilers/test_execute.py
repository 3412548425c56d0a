"""Running a program: its output goes to the log, and everything that it started ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from ncu_launch.profilers import subprocesses
from ncu_launch.profilers.subprocesses import Finished

pytestmark = pytest.mark.slow

BEAR_IT = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "


@pytest.fixture(autouse=True)
def _no_long_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocesses, "GRACE_S", 0.5)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "output.txt"


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Path]:
    """A folder where programs create files named by their process ids; any still running at the end are killed."""
    folder = tmp_path / "pids"
    folder.mkdir()
    yield folder
    for pid in recorded(folder):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def recorded(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def soon(*, gone: int, within: float = 20.0) -> bool:
    """True if a process has ended or ends soon: init may take a moment to reap it."""
    deadline = time.monotonic() + within
    while alive(gone) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(gone)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def run(code: str, log: Path, timeout: float | None = None) -> Finished:
    return subprocesses.run(python(code), log, timeout=timeout)


class TestHowItEnded:
    @pytest.mark.parametrize("code", [0, 1, 3, 255])
    def test_the_exit_code_is_the_programs(self, code: int, log: Path) -> None:
        finished = run(f"raise SystemExit({code})", log)
        assert (finished.exit_code, finished.timed_out, finished.interrupted) == (code, False, False)

    @pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM])
    def test_a_signal_that_killed_it_is_a_negative_code(self, number: signal.Signals, log: Path) -> None:
        finished = run(f"import os; os.kill(os.getpid(), {int(number)})", log)
        assert (finished.exit_code, finished.timed_out) == (-number, False)

    def test_its_time_is_measured(self, log: Path) -> None:
        assert 0.3 <= run("import time; time.sleep(0.3)", log).seconds < 20

    def test_a_command_that_does_not_exist_cannot_be_started(self, log: Path, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            subprocesses.run([str(tmp_path / "no-such-program")], log)

    def test_a_command_that_is_not_executable_cannot_be_started(self, log: Path, tmp_path: Path) -> None:
        (tmp_path / "plain.txt").write_text("text")
        with pytest.raises(PermissionError):
            subprocesses.run([str(tmp_path / "plain.txt")], log)

    def test_it_gets_the_environment_it_was_given(self, log: Path) -> None:
        given = {**os.environ, "NCU_BENCH_TEST": "given"}
        code = "import os; print(os.environ.get('NCU_BENCH_TEST'))"
        assert subprocesses.run(python(code), log, environment=given).lines == ("given",)
        assert run(code, log).lines == ("None",)

    def test_it_cannot_wait_for_our_standard_input(self, log: Path) -> None:
        assert run("print(repr(input.__name__), len(__import__('sys').stdin.read()))", log, 5).lines == ("'input' 0",)


class TestItsOutput:
    def test_goes_to_the_log_and_never_to_our_own(self, log: Path, capfd: pytest.CaptureFixture[str]) -> None:
        finished = run("import sys, os; print('one'); sys.stderr.write('two\\n'); os.system('echo three')", log)
        assert sorted(finished.lines) == ["one", "three", "two"]
        assert sorted(log.read_text().splitlines()) == ["one", "three", "two"]
        assert capfd.readouterr() == ("", "")

    def test_is_passed_on_line_by_line(self, log: Path) -> None:
        printed: list[str] = []
        subprocesses.run(python("for n in range(3000): print('line', n)"), log, on_line=printed.append)
        assert printed == [f"line {n}" for n in range(3000)]

    def test_is_passed_on_while_the_program_still_runs(self, log: Path) -> None:
        times: list[float] = []
        code = "import time; print('first', flush=True); time.sleep(0.7); print('second', flush=True)"
        subprocesses.run(python(code), log, on_line=lambda line: times.append(time.monotonic()))
        assert times[1] - times[0] > 0.5

    def test_need_not_end_in_a_newline(self, log: Path) -> None:
        assert run("import sys; sys.stdout.write('no newline')", log).lines == ("no newline",)

    def test_may_be_no_utf_8(self, log: Path) -> None:
        finished = run(r"import sys; sys.stdout.buffer.write(b'caf\xe9 \xff\xfe\x00\n\xc3\xa9\n')", log)
        assert finished.lines == ("caf\ufffd \ufffd\ufffd\x00", "é")
        assert log.read_bytes() == "caf\ufffd \ufffd\ufffd\x00\né\n".encode()

    def test_of_20_mb_is_logged_whole_and_only_its_end_kept_in_memory(self, log: Path) -> None:
        finished = run("line = 'x' * 99\nfor n in range(200_000): print(line)\nprint('last')", log)
        assert log.stat().st_size == 200_000 * 100 + len("last\n")
        assert finished.lines[-1] == "last"
        assert len(finished.lines) <= 2 * subprocesses.LINES_KEPT

    def test_of_20_mb_in_one_line_is_not_kept_whole_in_memory(self, log: Path) -> None:
        finished = run("import sys\nfor n in range(200): sys.stdout.write('x' * 100_000)", log)
        assert log.read_text().count("x") == 20_000_000
        assert max(len(line) for line in finished.lines) < 1_000_000

    def test_that_makes_the_callback_raise_does_not_stop_the_program(
        self, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(threading, "excepthook", lambda arguments: None)

        def choke(line: str) -> None:
            raise ValueError(line)

        code = "for n in range(20_000): print('line', n)"
        finished = subprocesses.run(python(code), log, timeout=10, on_line=choke)
        assert (finished.exit_code, finished.timed_out) == (0, False)
        assert len(log.read_text().splitlines()) == 20_000


class TestTheEnd:
    def test_a_timeout_ends_the_program_and_keeps_its_output(self, log: Path) -> None:
        finished = run("import time; print('so far', flush=True); time.sleep(60)", log, 1.5)
        assert (finished.timed_out, finished.interrupted) == (True, False)
        assert finished.exit_code == -signal.SIGTERM
        assert finished.lines == ("so far",)
        assert finished.seconds < 30

    def test_a_timeout_lets_a_program_end_in_order(self, log: Path) -> None:
        code = (
            "import signal, sys, time\n"
            "def end(*_): print('in order', flush=True); sys.exit(7)\n"
            "signal.signal(signal.SIGTERM, end)\nprint('ready', flush=True)\ntime.sleep(60)"
        )
        finished = run(code, log, 2.0)
        assert (finished.timed_out, finished.exit_code, finished.lines) == (True, 7, ("ready", "in order"))

    def test_a_program_that_ignores_sigterm_is_killed(self, log: Path) -> None:
        finished = run(BEAR_IT + "time.sleep(60)", log, 2.0)
        assert (finished.timed_out, finished.exit_code) == (True, -signal.SIGKILL)
        assert finished.seconds < 30

    def test_a_timeout_ends_a_grandchild_in_its_own_session_that_ignores_sigterm(self, log: Path, pids: Path) -> None:
        grandchild = (
            BEAR_IT + f"import os, pathlib; (pathlib.Path({str(pids)!r}) / str(os.getpid())).touch(); time.sleep(60)"
        )
        child = (
            f"import os, pathlib, subprocess, sys, time\n(pathlib.Path({str(pids)!r}) / str(os.getpid())).touch()\n"
            f"subprocess.Popen([sys.executable, '-c', {grandchild!r}], start_new_session=True)\ntime.sleep(60)"
        )
        finished = run(child, log, 3.0)
        assert finished.timed_out
        assert len(recorded(pids)) == 2
        assert all(soon(gone=pid) for pid in recorded(pids))

    @pytest.mark.parametrize("session", [False, True])
    def test_a_timeout_ends_orphaned_processes(self, session: bool, log: Path, pids: Path) -> None:
        orphan = f"import os, pathlib, time; (pathlib.Path({str(pids)!r}) / str(os.getpid())).touch(); time.sleep(60)"
        parent = (
            f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {orphan!r}], start_new_session={session})"
        )
        code = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {parent!r}]); time.sleep(60)"
        finished = run(code, log, 3.0)
        assert finished.timed_out
        assert len(recorded(pids)) == 1
        assert soon(gone=recorded(pids)[0])

    @pytest.mark.parametrize("session", [False, True])
    def test_a_daemon_that_keeps_the_pipe_open_is_ended(
        self, session: bool, log: Path, pids: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trouble: list[object] = []
        monkeypatch.setattr(threading, "excepthook", trouble.append)
        daemon = (
            f"import os, pathlib, time; (pathlib.Path({str(pids)!r}) / str(os.getpid())).touch()\n"
            "for n in range(300): time.sleep(0.1); print('still here', flush=True)"
        )
        code = (
            "import pathlib, subprocess, sys, time\n"
            f"subprocess.Popen([sys.executable, '-c', {daemon!r}], start_new_session={session})\n"
            f"while not list(pathlib.Path({str(pids)!r}).iterdir()): time.sleep(0.01)\nprint('done', flush=True)"
        )
        finished = run(code, log)
        assert (finished.exit_code, finished.timed_out) == (0, False)
        assert "done" in finished.lines
        assert finished.seconds < 20  # the daemon talks for 30 s
        assert soon(gone=recorded(pids)[0])
        assert trouble == []

    def test_processes_that_the_program_did_not_start_keep_running(self, log: Path) -> None:
        import subprocess

        with subprocess.Popen(python("import time; time.sleep(60)")) as other:
            assert run(BEAR_IT + "time.sleep(60)", log, 0.6).timed_out
            assert other.poll() is None
            other.kill()


class TestCtrlC:
    def test_ends_the_program_and_is_reported(self, log: Path, pids: Path) -> None:
        code = (
            f"import os, pathlib, time; (pathlib.Path({str(pids)!r}) / str(os.getpid())).touch()\n"
            "print('so far', flush=True); time.sleep(60)"
        )
        timer = threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT))
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        timer.start()
        try:
            finished = run(code, log, 20)
        finally:
            timer.cancel()
            signal.signal(signal.SIGINT, before)
        assert (finished.interrupted, finished.timed_out) == (True, False)
        assert finished.lines == ("so far",)
        assert soon(gone=recorded(pids)[0])

    def test_twice_still_ends_the_program(self, log: Path, pids: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(subprocesses, "GRACE_S", 1.5)
        code = BEAR_IT + f"import os, pathlib; (pathlib.Path({str(pids)!r}) / str(os.getpid())).touch(); time.sleep(60)"
        timers = [threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT)) for after in (2.0, 2.9)]
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        for timer in timers:
            timer.start()
        finished = None
        try:
            finished = run(code, log, 20)
            timers[1].join()
        except KeyboardInterrupt:
            pass
        finally:
            for timer in timers:
                timer.cancel()
            signal.signal(signal.SIGINT, before)
        assert soon(gone=recorded(pids)[0])
        assert finished is not None
        assert finished.interrupted


def test_a_leftover_process_is_found_although_its_environment_is_not_readable_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subprocesses, "GRACE_S", 20.0)
    mark = f"NCU_BENCH_LEFT_{os.getpid()}"
    before = subprocesses._without_environment()
    with subprocess.Popen(["/bin/sh", "-c", f"sleep 0.5; {mark}=1 exec sleep 61"], env={}) as left:
        try:
            assert {one.pid for one in subprocesses._left(mark, before)} == {left.pid}
        finally:
            left.kill()


def test_a_process_that_never_had_an_environment_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocesses, "GRACE_S", 20.0)
    with subprocess.Popen(["/bin/sleep", "61"], env={}) as other:
        try:
            assert soon_bare(other.pid)
            began = time.monotonic()
            assert subprocesses._left("NCU_BENCH_LEFT", subprocesses._without_environment()) == set()
            assert time.monotonic() - began < 15
        finally:
            other.kill()


def soon_bare(pid: int) -> bool:
    """True if a process has no environment, or has none soon."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if pid in {one.pid for one in subprocesses._without_environment()}:
            return True
    return False


def test_a_process_that_gets_its_environment_between_two_scans_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    left: set[psutil.Process] = set()
    us = psutil.Process()

    def starting() -> set[psutil.Process]:
        left.add(us)
        return set()

    monkeypatch.setattr(subprocesses, "_without_environment", starting)
    monkeypatch.setattr(subprocesses, "_marked", lambda mark: set(left))
    assert subprocesses._left("NCU_BENCH_LEFT", set()) == {us}
