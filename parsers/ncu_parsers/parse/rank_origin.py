"""Rank, host and device of reports in the run folder of a distributed run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from ncu_launch.files.run_files import MANIFEST, RANKS, REPORTS, STATE
from ncu_launch.files.typed_json import object_in

from ncu_parsers.report_data.report import Report
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.tables import field_metadata

HOST = "host"
"""The column with the host name of a launch."""


@dataclass(frozen=True)
class RankOrigin:
    """Where a report was made: its rank, or the rank of each of its processes; None or {} if unknown."""

    host: str | None
    rank: int | None = None
    device_id: int | None = None
    rank_of_process: dict[int, int] = field(default_factory=dict)


def origin_of(path: str) -> RankOrigin | None:
    """The origin of a report in the folder of a rank or node; None for any other report.

    A killed rank leaves no manifest; then the folder name gives the rank.
    """
    file = Path(path)
    if file.parent.name != REPORTS:
        return None
    folder = file.parent.parent
    manifest = object_in(folder / MANIFEST)
    place = _object(manifest.get("place"))
    if not place and folder.parent.name == RANKS and folder.name.isdecimal():
        place = {"rank": int(folder.name), "host": object_in(folder / STATE).get("host")}
    if not place:
        return None
    host, device = place.get("host"), _object(manifest.get("facts")).get("device_id")
    return RankOrigin(
        host if isinstance(host, str) and host else None, _number(place.get("rank")), _number(device), _processes(place)
    )


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int | None:
    """A rank, process id or device number; None if the value is not one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


def _processes(place: Mapping[str, Any]) -> dict[int, int]:
    """The known ranks of a node's processes."""
    entries = place.get("processes")
    objects = map(_object, entries) if isinstance(entries, list) else ()
    known = ((_number(one.get("process_id")), _number(one.get("rank"))) for one in objects)
    return {process: rank for process, rank in known if process is not None and rank is not None}


def by_origin(reports: Sequence[Report]) -> list[list[Report]]:
    """Group reports by rank or node; all others form one group. Launches of two ranks are never the same."""
    groups: dict[str, list[Report]] = {}
    for report in reports:
        known = origin_of(report.source) is not None
        groups.setdefault(str(Path(report.source).parent) if known else "", []).append(report)
    return list(groups.values())


def with_origin(table: pa.Table, path: str) -> pa.Table:
    """Add rank and host of a report to every row of its table, if they are known."""
    origin = origin_of(path)
    if origin is None:
        return table
    table = _with(table, "rank", arrays.integers(_ranks(table, origin), pa.int32()))
    if origin.device_id is not None and table.column("device_id").null_count == len(table):
        table = _with(table, "device_id", arrays.integers([origin.device_id] * len(table), pa.int32()))
    if origin.host is None:
        return table
    meaning = field_metadata(meaning="the machine that a rank of a distributed run ran on")
    host = arrays.repeated(origin.host, len(table))
    return table.append_column(pa.field(HOST, host.type, metadata=meaning), host)


def _ranks(table: pa.Table, origin: RankOrigin) -> list[int | None]:
    """The rank of each launch: that of the report, or that of its process."""
    if origin.rank is not None:
        return [origin.rank] * len(table)
    processes = tables.floats(table, "process_id")
    return [None if np.isnan(one) else origin.rank_of_process.get(int(one)) for one in processes]


def _with(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    index = table.schema.get_field_index(name)
    return table.set_column(index, table.schema.field(index), values)
