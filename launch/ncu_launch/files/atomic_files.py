"""Atomic writes: a file gets its name when all of it is there, and what had the name before stays until then."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file beside `path` to write to, renamed onto it when the block ends well and removed when it does not.

    A block that removes it itself leaves `path` as it is. Raises `OSError` where it cannot be made or renamed, and for
    a device or pipe, which nothing can replace.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    temporary = path.with_name(f".{path.name[:40]}.{os.urandom(8).hex()}.part")
    # Made by open(), so that the umask holds for it: asking for the umask would change it for every thread.
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        yield temporary
        if temporary.exists():
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all. Raises `OSError` where it cannot be written."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def copy_whole(source: Path, path: Path) -> None:
    """Copy a file, whole or not at all. Raises `OSError` where it cannot be read or written."""
    import shutil  # it imports what packs files, and most commands copy none

    with replacing(path) as temporary:
        shutil.copyfile(source, temporary)
