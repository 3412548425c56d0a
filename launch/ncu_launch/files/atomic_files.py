"""Atomic file writes: write to a temporary file in the same folder, then rename it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a new temporary file beside `path`; rename it to `path` if the block succeeds, else remove it.

    If the block removes the temporary file, `path` is left unchanged. Raises `OSError` if the file cannot be created or
    renamed, or if `path` is a device or pipe.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    temporary = path.with_name(f".{path.name[:40]}.{os.urandom(8).hex()}.part")
    # os.open() applies the umask; reading the umask instead would change it for every thread.
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        yield temporary
        if temporary.exists():
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically. Raises `OSError` if it cannot be written."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def copy_whole(source: Path, path: Path) -> None:
    """Copy a file atomically. Raises `OSError` if it cannot be read or written."""
    import shutil  # slow to import, and most commands copy no file

    with replacing(path) as temporary:
        shutil.copyfile(source, temporary)
