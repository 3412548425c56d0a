"""Files that are whole or not there: written under a temporary name beside their own, and renamed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ncu_launch.errors import NcuBenchError


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
    return NcuBenchError(
        f"{path} could not be written: {error.strerror}.", advice="Check that its folder exists and is yours to write."
    )


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, renamed onto it when the block ends well and removed when it does not.

    A block that removes it itself leaves `path` as it is.

    Raises `NcuBenchError` when the folder cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        if temporary.exists():
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
    except OSError as error:
        raise NcuBenchError(
            f"{path} could not be written: {error.strerror or error}.", advice="Check the disk's free space."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def bytes_replaced(path: Path, data: bytes) -> None:
    """Write a small file, whole or not at all. Raises `NcuBenchError` when the folder cannot be written."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
