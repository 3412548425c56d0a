"""A run folder while it is written: by one process at a time, each file whole or not there.

A process that was killed leaves a folder without a manifest, or without the launches that its reports hold. Its lock
ends with it, so the next run may have the folder, and puts what lies there aside.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.file_locks import locked
from ncu_launch.files.run_files import LAUNCHES, LOGS, MANIFEST, REPORTS

LOCK = ".lock"
UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG}


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Hold a folder, which is made where it is missing, for this process, until the block or the process ends.

    Raises `WrongUsage` while another process holds it, `NcuBenchError` when it cannot be made or, then or later, be
    written. On a file system without locks nothing is held.
    """
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            is_ours = held.enter_context(locked(folder / LOCK, wait=False))
        except OSError as error:
            raise NcuBenchError(
                f"{folder} cannot be made or written: {error.strerror}.", advice="Use another -o."
            ) from error
        if not is_ours:
            raise WrongUsage(
                f"Another process is writing {folder}.", advice="Wait for it to end, or name another folder with -o."
            )
        try:
            yield
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise
            raise NcuBenchError(
                f"{error.filename or folder} could not be written: {error.strerror}.",
                "What was written before is whole.",
                "Check the folder's permissions and the disk's free space.",
            ) from error
        finally:
            with suppress(OSError):  # while it is held, so that nobody else's is removed
                (folder / LOCK).unlink()


def make_folder(folder: Path) -> Path | None:
    """Make the parts of a run folder; where it has those of a run that was killed, the folder they were put into.

    Raises `WrongUsage` when it already holds a run whose launches were read, `NcuBenchError` when it cannot be made.
    """
    if all((folder / part).exists() for part in (REPORTS, MANIFEST, LAUNCHES)):
        raise WrongUsage(f"{folder} already holds a run.", advice="Name another folder with -o, or remove this one.")
    part = folder
    try:
        aside = _put_aside(folder) if (folder / REPORTS).exists() else None
        for part in (folder, folder / REPORTS, folder / LOGS):
            part.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NcuBenchError(f"{part} cannot be made: {error.strerror}.", advice="Use another -o.") from error
    return aside


def _put_aside(folder: Path) -> Path:
    aside = Path(tempfile.mkdtemp(prefix=f"{folder.absolute().name}-broken-off-", dir=folder.absolute().parent))
    for entry in folder.iterdir():
        if entry.name != LOCK:
            entry.rename(aside / entry.name)
    return aside
