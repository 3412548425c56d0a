"""Locks of files, which end with the process that holds them, however that ends."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

WITHOUT_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
"""What a file system says that has no locks."""
AS_THE_UMASK_SAYS = -1


@contextmanager
def locked(path: Path, *, wait: bool, mode: int = AS_THE_UMASK_SAYS) -> Iterator[bool]:
    """Lock the file `path`, made empty with the permissions `mode` where it is missing, for the block.

    Yields True; while another process holds it, False without `wait`. The holder may remove the file inside the block.
    Raises `OSError` when the file cannot be opened, or is a link. On a file system without locks, yields True.
    """
    from filelock import FileLock, Timeout  # imported in 30 ms

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
