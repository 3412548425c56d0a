"""Write a run folder: one process at a time, each file atomically.

A killed process leaves a folder without a manifest, or without the launches of its reports. Its lock is released when
it ends, so the next run may use the folder; it moves the files of the killed run to a new folder.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.file_locks import locked
from ncu_launch.files.manifest import Manifest, write_manifest
from ncu_launch.files.run_files import LAUNCHES, LOGS, MANIFEST, REPORTS

LOCK = ".lock"
UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG}


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Lock a run folder, created if missing, for this process until the block ends.

    Raises `WrongUsage` if another process holds the lock, `NcuBenchError` if the folder cannot be created or written.
    On a file system without locks, does not lock.
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
            with suppress(OSError):  # still locked, so it is not another process's file
                (folder / LOCK).unlink()


def begin_sweep(folder: Path, asked: Sequence[str], commit: tuple[str, str] = ("", "")) -> Manifest:
    """Create the folder of a sweep's logs, and write its manifest, which is partial until the sweep ends.

    `asked` is the command line, `commit` the checked-out commit and its date. Raises `NcuBenchError` if the folder
    cannot be created, `OSError` if the manifest cannot be written.
    """
    logs = folder / LOGS
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NcuBenchError(f"{logs} cannot be made: {error.strerror}.", advice="Use another -o.") from error
    manifest = Manifest(list(asked), "bench", datetime.now(timezone.utc).isoformat(timespec="seconds"), partial=True)
    manifest.commit, manifest.committed = commit
    write_manifest(manifest, folder)
    return manifest


def end_sweep(manifest: Manifest, folder: Path, versions: Collection[str]) -> None:
    """Write the manifest of a completed sweep, with the PyTorch versions of its points."""
    manifest.partial = False
    manifest.versions = {"torch": ", ".join(sorted(versions))} if versions else {}
    write_manifest(manifest, folder)


def make_folder(folder: Path) -> Path | None:
    """Create the parts of a run folder. Returns the folder to which files of a killed run were moved, or None.

    Raises `WrongUsage` if the folder already holds a parsed run, `NcuBenchError` if it cannot be created.
    """
    if all((folder / part).exists() for part in (REPORTS, MANIFEST, LAUNCHES)):
        raise WrongUsage(f"{folder} already holds a run.", advice="Name another folder with -o, or remove this one.")
    part = folder
    try:
        aside = put_aside(folder) if (folder / REPORTS).exists() else None
        for part in (folder, folder / REPORTS, folder / LOGS):
            part.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NcuBenchError(f"{part} cannot be made: {error.strerror}.", advice="Use another -o.") from error
    return aside


def put_aside(folder: Path) -> Path:
    """Move the contents of a folder, except its lock, to a new folder beside it; returns the new folder."""
    aside = Path(tempfile.mkdtemp(prefix=f"{folder.absolute().name}-broken-off-", dir=folder.absolute().parent))
    for entry in folder.iterdir():
        if entry.name != LOCK:
            entry.rename(aside / entry.name)
    return aside
