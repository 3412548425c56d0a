"""File locks that the system releases when the holding process ends, even if it is killed."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

WITHOUT_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
"""Error numbers of file systems that do not support locks."""
AS_THE_UMASK_SAYS = -1
"""Permissions of a new lock file: those that the process's umask allows."""


@contextmanager
def locked(path: Path, *, wait: bool, mode: int = AS_THE_UMASK_SAYS) -> Iterator[bool]:
    """Lock the file `path` within the block; a missing file is created empty with permissions `mode`.

    Yields True if locked, or if the file system has no locks; False if another process holds the lock and `wait` is
    false. The holder may delete the file in the block. Raises `OSError` if it cannot be opened or is a link.
    """
    from filelock import FileLock, Timeout  # takes 30 ms to import

    with ExitStack() as held:
        is_ours = True
        try:
            held.enter_context(FileLock(path, blocking=wait, mode=mode, fallback_to_soft=False))
        except Timeout:
            is_ours = False
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
        yield is_ours
