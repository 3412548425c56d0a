"""File layout of a dataset: `run=.../rank=.../report=.../launches.parquet`, on disk or at a URL.

The layout is Hive's, so that other tools read run, rank and report from the paths: values are percent-encoded, and
`__HIVE_DEFAULT_PARTITION__` stands for an unknown rank. A folder inside a dataset is a dataset. The log of a run,
`run=.../_log.jsonl`, has a line of JSON per report, including refused ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

from ncu_launch.errors import NcuBenchError
from ncu_launch.files.run_files import LAUNCHES as LAUNCHES
from ncu_launch.files.typed_json import UNREADABLE, record_of

from ncu_parsers.datasets.engine import Engine, InOrder
from ncu_parsers.datasets.remote_files import File, RemoteFile, file_at

LOG = "_log.jsonl"
RUN, RANK, REPORT = "run", "rank", "report"
NOT_KNOWN = "__HIVE_DEFAULT_PARTITION__"
LONGEST_VALUE = 180
"""Longest encoded value, in characters: file systems allow names of 255 bytes."""

READ, REFUSED = "read", "refused"
_FILE_OF_A_REPORT = rf"{RANK}=[^/\\]+/{REPORT}=[^/\\]+/{re.escape(LAUNCHES)}"
"""Relative to a run's folder. Files named in a log may be deleted when a report is read again, so match strictly."""


@dataclass(frozen=True)
class Partition:
    """The file of one report, and the run, rank and report in its path; None if missing."""

    file: File
    run: str | None = None
    rank: int | None = None
    report: str | None = None


@dataclass(frozen=True)
class LogLine:
    """The outcome of one report: `READ` into `file`, a path inside its run, or `REFUSED` for a `reason`."""

    report: str
    outcome: str
    file: str | None = None
    launches: int | None = None
    bytes: int | None = None
    reason: str | None = None


@dataclass
class Dataset:
    """The partitions of a dataset, ordered by run, rank (unknown last) and report. `engine` reads them.

    `refused` lists reports that the logs record as refused.
    """

    root: str
    partitions: list[Partition]
    refused: list[LogLine] = field(default_factory=list)
    engine: Engine = field(default_factory=InOrder, repr=False, compare=False)


def find_dataset(root: str, engine: Engine | None = None) -> Dataset | None:
    """The dataset below a folder or URL; None if there is none.

    Raises `NcuBenchError` if a URL cannot be reached or a folder cannot be read.
    """
    place = file_at(root)
    names = place.below() if isinstance(place, RemoteFile) else sorted(_below(place))
    outer = place.absolute().parts if isinstance(place, Path) else tuple(place.url.split("/"))
    found = [_partition(place, name, outer) for name in names if name.rpartition("/")[2] == LAUNCHES]
    partitions = sorted((one for one in found if one.report is not None), key=_order)
    logs = [place.joinpath(*name.split("/")) for name in names if name.rpartition("/")[2] == LOG]
    refused = [line for log in logs for line in read_log(log).values() if line.outcome == REFUSED]
    if not partitions and not refused:
        return None
    return Dataset(root, partitions, refused, engine or InOrder())


def _below(folder: Path) -> Iterator[str]:
    """Relative paths of the dataset's files below a folder; only folders named `key=value` are searched."""
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise NcuBenchError(
            f"{folder} could not be read: {error.strerror or error}.", advice="Check its permissions."
        ) from error
    for entry in entries:
        if entry.is_dir():
            if entry.name.partition("=")[0] in (RUN, RANK, REPORT):
                yield from (f"{entry.name}/{name}" for name in _below(Path(entry)))
        elif entry.name in (LAUNCHES, LOG):
            yield entry.name


def _partition(root: File, name: str, outer: Sequence[str]) -> Partition:
    inner = name.split("/")
    values = dict(_value(segment) for segment in (*outer, *inner[:-1]) if "=" in segment)
    rank = values.get(RANK)
    return Partition(
        root.joinpath(*inner),
        values.get(RUN),
        int(rank) if rank is not None and rank.isdecimal() else None,
        values.get(REPORT),
    )


def _value(segment: str) -> tuple[str, str | None]:
    key, _, value = segment.partition("=")
    return key, None if value == NOT_KNOWN else unquote(value, errors="backslashreplace")


def _order(partition: Partition) -> tuple[str, bool, int, str]:
    return (partition.run or "", partition.rank is None, partition.rank or 0, partition.report or "")


def tables_named(name: str, root: str) -> list[File]:
    """Files called `name` in a folder or URL, or else in its subfolders, in order; `root` itself if it is a file.

    Raises `NcuBenchError` if a URL cannot be reached.
    """
    place = file_at(root)
    if isinstance(place, Path):
        inside = [place / name] if (place / name).is_file() else sorted(place.glob(f"*/{name}"))
        return [place] if place.is_file() else list(inside)
    if place.is_file():
        return [place]
    found = [path for path in place.below() if path.rpartition("/")[2] == name and path.count("/") < 2]
    return [place.joinpath(*path.split("/")) for path in ([name] if name in found else found)]


# ---------------------------------------------------------------------------------------------------------- writing


def folders_of(run: str, rank: int | None, report: str) -> tuple[str, str, str]:
    """The folders, below a dataset, of a report's file."""
    return f"{RUN}={encoded(run)}", f"{RANK}={NOT_KNOWN if rank is None else rank}", f"{REPORT}={encoded(report)}"


def encoded(value: str) -> str:
    """Percent-encode a value for a path; a value that is too long is replaced by a hash and its end."""
    text = quote(value, safe="+,@", errors="surrogateescape")
    if len(text) <= LONGEST_VALUE:
        return text
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    kept = text[-(LONGEST_VALUE - len(digest) - 1) :]
    return f"{digest}-{kept.partition('%')[2][2:] if '%' in kept[:3] else kept}"


def read_log(log: File) -> dict[str, LogLine]:
    """The outcomes of a run's reports, by report; {} without a readable log. Invalid lines are skipped."""
    try:
        texts = log.read_bytes().decode("utf-8", "replace").splitlines() if log.is_file() else []
    except (OSError, NcuBenchError):
        return {}
    return {line.report: line for line in map(_log_line, texts) if line is not None}


def _log_line(text: str) -> LogLine | None:
    """Parse one line of an untrusted log; None if it is invalid or its file name is not one of this layout."""
    try:
        line = record_of(LogLine, json.loads(text))
    except UNREADABLE:
        return None
    return line if line.file is None or re.fullmatch(_FILE_OF_A_REPORT, line.file) else None


def log_bytes(lines: Iterable[LogLine]) -> bytes:
    """Encode a log. Bytes of a path that are not UTF-8 are written as JSON escapes."""
    text = "".join(json.dumps(asdict(line), ensure_ascii=False) + "\n" for line in lines)
    return text.encode("utf-8", "backslashreplace")
