"""One process at a time has a lock, which is released when the process ends."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import filelock
import pytest
from ncu_launch.files.atomic_files import lock_beside, write_bytes_atomically
from ncu_launch.files.file_locks import WITHOUT_LOCKS, locked

HOLDER = (
    "import sys, time, pathlib; from ncu_launch.files.file_locks import locked\n"
    "with locked(pathlib.Path(sys.argv[1]), wait=False): print(flush=True); time.sleep(60)"
)
ADDER = (
    "import sys, pathlib; from ncu_launch.files.atomic_files import write_bytes_atomically, lock_beside\n"
    "log = pathlib.Path(sys.argv[1])\n"
    "for _ in range(20):\n"
    "    with lock_beside(log): write_bytes_atomically(log, (log.read_bytes() if log.exists() else b'') + b'x')"
)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock file `.lock`."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / ".lock")], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        yield other
        other.kill()


def test_a_lock_that_another_process_holds_is_not_ours(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    with locked(tmp_path / ".lock", wait=False) as is_ours:
        assert not is_ours


def test_a_lock_ends_with_the_process_that_is_killed(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    holder.kill()
    holder.wait()
    with locked(tmp_path / ".lock", wait=False) as is_ours:
        assert is_ours


def test_a_waiting_process_gets_the_lock_when_its_holder_ends(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    timer = threading.Timer(0.5, holder.kill)
    timer.start()
    with locked(tmp_path / ".lock", wait=True) as is_ours:
        assert is_ours
        assert not timer.is_alive()


def test_a_lock_whose_file_its_holder_removes_is_free_afterwards(tmp_path: Path) -> None:
    for _ in range(2):
        with locked(tmp_path / ".lock", wait=False) as is_ours:
            assert is_ours
            (tmp_path / ".lock").unlink()


def test_locking_keeps_the_content_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"kept")
    with pytest.raises(OSError, match="symbolic links"):
        (tmp_path / "link").symlink_to(tmp_path / "a")
        with locked(tmp_path / "link", wait=False):
            pass
    assert (tmp_path / "a").read_bytes() == b"kept"


@pytest.mark.parametrize("number", sorted(WITHOUT_LOCKS))
def test_a_file_system_without_locks_counts_as_locked(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: filelock.FileLock) -> None:
        raise OSError(number, "no locks here")

    monkeypatch.setattr(filelock.FileLock, "_acquire", refuse)
    for _ in range(2):
        with locked(tmp_path / ".lock", wait=True) as is_ours:
            assert is_ours


def test_other_errors_of_the_system_are_raised(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"directory|exists") as caught, locked(tmp_path / "file" / "lock", wait=False):
        pass
    assert caught.value.errno in (errno.ENOTDIR, errno.EEXIST)


def test_processes_that_add_to_one_file_lose_nothing_and_leave_nothing_else(tmp_path: Path) -> None:
    log = tmp_path / "log"
    several = [subprocess.Popen([sys.executable, "-c", ADDER, str(log)]) for _ in range(3)]
    assert [one.wait() for one in several] == [0, 0, 0]
    assert log.read_bytes() == b"x" * 60
    assert list(tmp_path.iterdir()) == [log]


def test_a_file_whose_lock_file_is_a_link_is_written_without_lock(tmp_path: Path) -> None:
    (tmp_path / ".log.lock").symlink_to(tmp_path / "elsewhere")
    with lock_beside(tmp_path / "log"):
        write_bytes_atomically(tmp_path / "log", b"x")
    assert (tmp_path / "log").read_bytes() == b"x"
    assert not (tmp_path / "elsewhere").exists()
