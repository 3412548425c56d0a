"""Where the files of a dataset lie: `run=.../rank=.../report=.../launches.parquet`, on disk or behind a URL.

The names are those that Hive uses, so that other tools read run, rank and report from the paths too: values are
percent-encoded, and `__HIVE_DEFAULT_PARTITION__` is a rank that is not known. A folder inside a dataset is a dataset.
What was refused stands in the log of its run, `run=.../_log.jsonl`, a line of JSON per report.
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
"""File systems allow names of 255 bytes."""

READ, REFUSED = "read", "refused"
_FILE_OF_A_REPORT = rf"{RANK}=[^/\\]+/{REPORT}=[^/\\]+/{re.escape(LAUNCHES)}"
"""From the folder of its run on: what a log names is removed when its report is read anew, so it names nothing else."""


@dataclass(frozen=True)
class Partition:
    """The file of one report, and what its path says of it; None where it says nothing."""

    file: File
    run: str | None = None
    rank: int | None = None
    report: str | None = None

    def __str__(self) -> str:
        return str(self.file)


@dataclass(frozen=True)
class LogLine:
    """What became of one report: `READ` into `file`, a path in its run, or `REFUSED` for a `reason`."""

    report: str
    outcome: str
    file: str | None = None
    launches: int | None = None
    bytes: int | None = None
    reason: str | None = None


@dataclass
class Dataset:
    """The partitions of a dataset in order: by run, rank (the unknown last) and report. `engine` reads them.

    `refused` are the reports that the logs of its runs say are not in it.
    """

    root: str
    partitions: list[Partition]
    refused: list[LogLine] = field(default_factory=list)
    engine: Engine = field(default_factory=InOrder, repr=False, compare=False)

    def __str__(self) -> str:
        return self.root

    @property
    def notes(self) -> list[str]:
        """The refused reports, in sentences."""
        return [f"left out of {self.root}: {line.reason}" for line in self.refused]


def find_dataset(root: str, engine: Engine | None = None) -> Dataset | None:
    """The dataset below a folder or URL; None where there is none.

    Raises `NcuBenchError` where a URL cannot be reached or a folder not be read.
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
    """The files of a dataset below a folder, as paths from there; only folders named `key=value` are entered."""
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
    """The files of that name in a folder or URL, or else in the folders in it, in order; `root` itself where it is one.

    Raises `NcuBenchError` where a URL cannot be reached.
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
    """The folders below a dataset that the file of a report lies in."""
    return f"{RUN}={encoded(run)}", f"{RANK}={NOT_KNOWN if rank is None else rank}", f"{REPORT}={encoded(report)}"


def encoded(value: str) -> str:
    """A value as part of a path, percent-encoded; one too long keeps its end and a hash of the whole."""
    text = quote(value, safe="+,@", errors="surrogateescape")
    if len(text) <= LONGEST_VALUE:
        return text
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    kept = text[-(LONGEST_VALUE - len(digest) - 1) :]
    return f"{digest}-{kept.partition('%')[2][2:] if '%' in kept[:3] else kept}"


def read_log(log: File) -> dict[str, LogLine]:
    """What became of the reports of a run, by report; {} without a log. Lines that cannot be read are left out."""
    try:
        texts = log.read_bytes().decode("utf-8", "replace").splitlines() if log.is_file() else []
    except (OSError, NcuBenchError):
        return {}
    return {line.report: line for line in map(_log_line, texts) if line is not None}


def _log_line(text: str) -> LogLine | None:
    """One line of a log, whoever wrote it; None where it is none, or names a file that is not a report's."""
    try:
        line = record_of(LogLine, json.loads(text))
    except UNREADABLE:
        return None
    return line if line.file is None or re.fullmatch(_FILE_OF_A_REPORT, line.file) else None


def log_bytes(lines: Iterable[LogLine]) -> bytes:
    """A log as it stands in its file. What of a path is not UTF-8 is written as JSON escapes it."""
    text = "".join(json.dumps(asdict(line), ensure_ascii=False) + "\n" for line in lines)
    return text.encode("utf-8", "backslashreplace")
