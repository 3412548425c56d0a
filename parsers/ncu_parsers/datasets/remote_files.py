"""Files on disk, or at a URL of any file system supported by fsspec: s3, gs, memory and others.

fsspec is an optional dependency, imported for the first URL. It finds credentials by itself, in its configuration files
and the environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import unquote, urlsplit

from ncu_launch.errors import NcuBenchError
from ncu_launch.files.atomic_files import copy_whole

from ncu_parsers.sources.sources import is_url

LOCAL_SCHEMES = ("file://", "local://")
PACKAGES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs",
    "http": "requests aiohttp", "https": "requests aiohttp",
}  # fmt: skip
"""Scheme of a URL -> the packages that read it; fsspec itself names others, or none."""


@dataclass(frozen=True)
class RemoteFile:
    """A file or folder at a URL. Pickling it transfers only the URL."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.url.rstrip("/").rpartition("/")[2]

    def joinpath(self, *names: str) -> RemoteFile:
        """The file or folder at this relative path below."""
        return RemoteFile("/".join([self.url.rstrip("/"), *names]))

    def found(self) -> tuple[Any, str]:
        """The fsspec file system and the path on it. Raises `NcuBenchError` if it cannot be reached."""
        with _reached(self.url) as found:
            return found

    def is_file(self) -> bool:
        """True if the file exists. Raises `NcuBenchError` if the file system cannot be reached."""
        with _reached(self.url) as (system, path):
            return bool(system.isfile(path))

    def open(self) -> BinaryIO:
        """Open for reading; only bytes that are read are fetched. Raises `NcuBenchError` if it cannot be read."""
        with _reached(self.url) as (system, path):
            try:
                stream = system.open(path, "rb", cache_type="none")  # other caches read megabytes ahead
            except TypeError:
                stream = system.open(path, "rb")
        return cast(BinaryIO, stream)

    def read_bytes(self) -> bytes:
        """The whole content. Raises `NcuBenchError` if it cannot be read."""
        with _reached(self.url) as (system, path):
            return bytes(system.cat_file(path))

    def write_bytes(self, data: bytes) -> None:
        """Write the file in one call, atomically on object stores. Raises `NcuBenchError` if it cannot be written."""
        with _reached(self.url) as (system, path):
            system.makedirs(path.rpartition("/")[0], exist_ok=True)
            system.pipe_file(path, data)

    def upload(self, file: Path) -> None:
        """Upload a file from disk, atomically on object stores. Raises `NcuBenchError` if it cannot be written."""
        with _reached(self.url) as (system, path):
            system.makedirs(path.rpartition("/")[0], exist_ok=True)
            system.put_file(str(file), path)

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the file. Raises `NcuBenchError` if it cannot be deleted."""
        if missing_ok and not self.is_file():
            return
        with _reached(self.url) as (system, path):
            system.rm_file(path)

    def absolute(self) -> RemoteFile:
        """The file itself: a URL depends on no current folder."""
        return self

    def below(self) -> list[str]:
        """Relative paths of all files below, sorted; [] if the folder does not exist.

        Raises `NcuBenchError` if the file system cannot be reached.
        """
        with _reached(self.url) as (system, path):
            root = path.rstrip("/")
            return sorted(found[len(root) :].lstrip("/") for found in system.find(path) if found != path)


File = Path | RemoteFile


def file_at(text: str) -> File:
    """The file or folder for a path or URL."""
    if text.startswith(LOCAL_SCHEMES):
        return Path(unquote(urlsplit(text).path))
    return RemoteFile(text) if is_url(text) else Path(text)


def move(file: Path, target: File) -> None:
    """Put a file from disk at `target`, replacing a file there: renamed on the same disk, else copied or uploaded.

    Raises `NcuBenchError` if it cannot be written.
    """
    if isinstance(target, RemoteFile):
        target.upload(file)
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            file.replace(target)
        except OSError:  # another file system
            copy_whole(file, target)
    except OSError as error:
        raise NcuBenchError(
            f"{target} could not be written: {error.strerror or error}.",
            advice="Check that its folder is yours to write, and the disk's free space.",
        ) from error


@contextmanager
def _reached(url: str) -> Iterator[tuple[Any, str]]:
    """The file system of a URL and the path on it; converts errors raised in the block to `NcuBenchError`."""
    scheme = url.partition("://")[0].rpartition("::")[2]
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise NcuBenchError(
            f"{url} is a URL, and fsspec, which reads and writes them, could not be imported.",
            f"It is an optional dependency ({error}).", "Install it with: pip install '.[remote]'",
        ) from error  # fmt: skip
    try:
        yield url_to_fs(url)
    except NcuBenchError:
        raise
    except ImportError as error:
        package = PACKAGES.get(scheme)
        advice = f"Install it with: pip install {package}" if package else "Install that package with pip."
        raise NcuBenchError(f"{scheme}:// needs a package that is missing: {_one_line(error)}.", "", advice) from error
    except ValueError as error:
        raise NcuBenchError(
            f"{url} is not a URL of a supported file system: {_one_line(error)}.",
            advice="Use s3://, gs://, another scheme of fsspec, or a path on disk.",
        ) from error
    except FileNotFoundError as error:
        raise NcuBenchError(f"{url} does not exist.", advice="Check the URL, and that the bucket is there.") from error
    except PermissionError as error:
        raise NcuBenchError(
            f"{url} may not be read or written with these credentials: {_one_line(error)}.",
            advice="Set credentials with access, in the form that the store's own tools use, or use another URL.",
        ) from error
    except Exception as error:  # file systems raise their own errors, without a common base class
        raise NcuBenchError(
            f"{url} could not be reached: {type(error).__name__}: {_one_line(error)}.",
            advice="Check the URL, the network and the credentials of this shell.",
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
