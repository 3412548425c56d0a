"""The only file that reads or writes Parquet.

Floats are split by byte and compressed with zstd (a third smaller and faster than dictionaries for counters), names
are dictionaries. A file is written under a temporary name and renamed, so nobody ever sees half of one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from ncu_launch.errors import NcuBenchError

from ncu_parsers.tables import METADATA_KEY, SCHEMA_VERSION, table_metadata


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table of launches or kernels.

    Raises `NcuBenchError` when the folder does not exist or cannot be written.
    """
    floats = [field.name for field in table.schema if pa.types.is_float64(field.type)]
    dictionaries = [
        field.name for field in table.schema if field.name not in floats and not pa.types.is_nested(field.type)
    ]
    with replacing(path) as temporary:
        pq.write_table(
            table,
            temporary,
            compression="zstd",
            use_dictionary=dictionaries,
            use_byte_stream_split=floats,
            row_group_size=128 * 1024,
        )


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, renamed onto it when the block ends well and removed when it does not.

    Raises `NcuBenchError` when the folder cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise NcuBenchError(
            f"{path} could not be written: {error.strerror}.",
            advice="Check that its folder exists and is yours to write.",
        ) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise NcuBenchError(
            f"{path} could not be written: {error.strerror or error}.", advice="Check the disk's free space."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def is_parquet(path: Path) -> bool:
    """Whether a file starts like Parquet."""
    try:
        with path.open("rb") as stream:
            return stream.read(4) == b"PAR1"
    except OSError:
        return False


def read_launches(path: Path, columns: Iterable[str] | None = None) -> pa.Table:
    """Read a table of launches; with `columns`, only those of them that it has.

    Raises `NcuBenchError` when the file is damaged, not ours, or of a newer schema than this release knows.
    """
    try:
        file = pq.ParquetFile(path)
        names = file.schema_arrow.names
        wanted = None if columns is None else [name for name in columns if name in names]
        table = file.read(columns=wanted)
    except (OSError, pa.ArrowException) as error:
        raise NcuBenchError(
            f"{path} could not be read as Parquet: {error}.",
            "It may be cut or damaged.",
            "Make it again with: ncu-bench parse",
        ) from error
    if METADATA_KEY not in (table.schema.metadata or {}):
        raise NcuBenchError(
            f"{path} is a Parquet file, but not one of ncu-bench.",
            "It lacks the metadata that says which schema its columns follow.",
            "Make one from a report with: ncu-bench parse REPORT -o launches.parquet",
        )
    version = table_metadata(table).get("schema_version", 0)
    if version > SCHEMA_VERSION:
        raise NcuBenchError(
            f"{path} follows schema version {version}; this ncu-bench knows versions up to {SCHEMA_VERSION}.",
            advice="Update ncu-bench, or make the file again from its report.",
        )
    return table
