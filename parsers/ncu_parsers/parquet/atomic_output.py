"""Atomic file writes: write to a temporary file in the same folder, then rename it; errors are `NcuBenchError`."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ncu_launch.errors import NcuBenchError
from ncu_launch.files import atomic_files
from ncu_launch.files.file_locks import locked


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path`, deleted when the block ends.

    Raises `NcuBenchError` if the folder of `path` is not writable.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix=f".{path.name[:40]}.", suffix=".parts", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    with folder as name:
        yield Path(name)


def _unwritable(path: Path, error: OSError) -> NcuBenchError:
    if isinstance(error, FileNotFoundError):
        return NcuBenchError(
            f"{path} could not be written: its folder {path.parent} does not exist.",
            advice=f"Make it with: mkdir -p {shlex.quote(str(path.parent))}",
        )
    there_is_another = path.exists() and not path.is_file()
    advice = "Name a file." if there_is_another else "Check that its folder is yours to write."
    return NcuBenchError(f"{path} could not be written: {error.strerror}.", advice=advice)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` if the block succeeds, else delete it.

    If the block deletes it, `path` is left unchanged. Raises `NcuBenchError` if the folder is not writable.
    """
    begun = False
    try:
        with atomic_files.replacing(path) as temporary:
            begun = True
            yield temporary
    except OSError as error:
        if not begun:
            raise _unwritable(path, error) from error
        raise NcuBenchError(
            f"{path} could not be written: {error.strerror or error}.", advice="Check the disk's free space."
        ) from error


def write_bytes_atomically(path: Path, data: bytes) -> None:
    """Write a small file atomically. Raises `NcuBenchError` if the folder is not writable."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def lock_beside(path: Path) -> Iterator[None]:
    """Lock the file `path` for this process, by locking a file beside it; other processes wait.

    Does not lock if the file system has no locks, or if the lock file is a link or belongs to another user.
    """
    beside = path.with_name(f".{path.name}.lock")
    with ExitStack() as lock:
        try:
            is_ours = lock.enter_context(locked(beside, wait=True))
        except OSError:
            is_ours = False
        try:
            yield
        finally:
            if is_ours:
                beside.unlink(missing_ok=True)  # still locked, so it is not another process's file
