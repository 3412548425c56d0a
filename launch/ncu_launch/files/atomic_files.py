"""Atomic file writes: write to a temporary file in the same folder, then rename it.

Functions raise `OSError`; the ones for files that the user requested raise `NcuBenchError`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ncu_launch.errors import NcuBenchError
from ncu_launch.files.file_locks import locked


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a new temporary file beside `path`; rename it to `path` if the block succeeds, else remove it.

    If the block removes the temporary file, `path` is left unchanged. Raises `OSError` if the file cannot be created or
    renamed, or if `path` exists and is no regular file.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    temporary = path.with_name(f".{path.name[:40]}.{os.urandom(8).hex()}.part")
    try:  # Ctrl-C may come as soon as the file is there
        # os.open() applies the umask; reading the umask instead would change it for every thread.
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        yield temporary
        if temporary.exists():
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder for temporary files, which only this user may read; it is removed when the block ends.

    Its name is chosen before it is created, so that Ctrl-C at that moment leaves no folder; `TemporaryDirectory` may
    leave one. Raises `OSError` if it cannot be created.
    """
    import shutil
    import tempfile  # slow to import, like shutil

    # gettempdir() tests each candidate by writing a file, which Ctrl-C may leave behind.
    named = [os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")]
    known = (place for place in (*named, "/tmp") if place and os.access(place, os.W_OK | os.X_OK))  # noqa: S108
    folder = Path(next(known, None) or tempfile.gettempdir()) / f"ncu-bench-{os.urandom(8).hex()}"
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically. Raises `OSError` if it cannot be written."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def copy_whole(source: Path, path: Path) -> None:
    """Copy a file atomically. Raises `OSError` if it cannot be read or written."""
    import shutil  # slow to import, and most commands copy no file

    with replacing(path) as temporary:
        shutil.copyfile(source, temporary)


# ------------------------------------------------------------------------------------- output that the user asked for


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path`, deleted when the block ends.

    Raises `NcuBenchError` if the folder of `path` is not writable.
    """
    import tempfile  # slow to import, like shlex

    try:
        folder = tempfile.TemporaryDirectory(prefix=f".{path.name[:40]}.", suffix=".parts", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    with folder as name:
        yield Path(name)


def _unwritable(path: Path, error: OSError) -> NcuBenchError:
    if isinstance(error, FileNotFoundError):
        import shlex

        return NcuBenchError(
            f"{path} could not be written: its folder {path.parent} does not exist.",
            advice=f"Make it with: mkdir -p {shlex.quote(str(path.parent))}",
        )
    there_is_another = path.exists() and not path.is_file()
    advice = "Name a file." if there_is_another else "Check that its folder is yours to write."
    return NcuBenchError(f"{path} could not be written: {error.strerror}.", advice=advice)


@contextmanager
def replacing_output(path: Path) -> Iterator[Path]:
    """As `replacing`, for a file that the user requested: every `OSError`, the block's too, becomes `NcuBenchError`."""
    begun = False
    try:
        with replacing(path) as temporary:
            begun = True
            yield temporary
    except OSError as error:
        if not begun:
            raise _unwritable(path, error) from error
        raise NcuBenchError(
            f"{path} could not be written: {error.strerror or error}.", advice="Check the disk's free space."
        ) from error


def write_bytes_atomically(path: Path, data: bytes) -> None:
    """Write a file that the user requested atomically. Raises `NcuBenchError` if it cannot be written."""
    with replacing_output(path) as temporary:
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
