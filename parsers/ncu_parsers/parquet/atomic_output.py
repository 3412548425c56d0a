"""Files that are whole or not there: written under a temporary name beside their own, and renamed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ncu_launch.errors import NcuBenchError
from ncu_launch.files import atomic_files
from ncu_launch.files.file_locks import locked


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """A folder for what becomes the file `path`, removed when the block ends.

    Raises `NcuBenchError` when the folder of `path` cannot be written.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix=f".{path.name[:40]}.", suffix=".parts", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    with folder as name:
        yield Path(name)


def _unwritable(path: Path, error: OSError) -> NcuBenchError:
    there_is_another = path.exists() and not path.is_file()
    advice = "Name a file." if there_is_another else "Check that its folder exists and is yours to write."
    return NcuBenchError(f"{path} could not be written: {error.strerror}.", advice=advice)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, renamed onto it when the block ends well and removed when it does not.

    A block that removes it itself leaves `path` as it is.

    Raises `NcuBenchError` when the folder cannot be written.
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


def bytes_replaced(path: Path, data: bytes) -> None:
    """Write a small file, whole or not at all. Raises `NcuBenchError` when the folder cannot be written."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the file `path` for this process: others that ask for it wait. What is locked is a file beside it.

    Where that cannot be locked, because the file system has no locks, or it is a link or somebody else's, nothing is
    held.
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
                beside.unlink(missing_ok=True)  # while it is held, so that nobody else's is removed
