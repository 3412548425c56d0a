"""The kernels of a file of launches, kept beside it.

Of the launches only those columns are read that the aggregate needs: what bounds a kernel also depends on what the
report says of its board.
"""

from __future__ import annotations

from pathlib import Path

from ncu_launch import metrics as known
from ncu_parsers.parquet import contents, read_launches, write_table
from ncu_parsers.tables import IDENTITY_COLUMNS, MEASURE_COLUMNS

from ncu_tools.ceilings import ceilings_of
from ncu_tools.hotspots import hotspots, kernels_table
from ncu_tools.load import KERNELS

MOST_LAUNCHES = 100_000
"""Of more launches the kernels are not kept, because all of the needed columns would have to be in memory at once."""

OF_THE_BOARD = ("device__attribute_", known.TENSOR_PREFIX)
EXTREMES = ("gpu__time_duration.sum (minimum)", "gpu__time_duration.sum (maximum)")
NOT_NEEDED = frozenset({"grid", "block", "nvtx_path", "module", "phase", "report"})


def keep_kernels(launches: Path) -> Path | None:
    """Write the kernels of the file `launches` beside it, the hottest first, as `profile` does for a run folder.

    None when it holds more than `MOST_LAUNCHES`. Raises `NcuBenchError` when a file cannot be read or written.
    """
    names, rows = contents(launches)
    if rows > MOST_LAUNCHES:
        return None
    table = read_launches(launches, [name for name in names if is_needed(name)])
    path = launches.with_name(KERNELS)
    write_table(kernels_table(hotspots(table, ceilings_of(table)).rows), path)
    return path


def is_needed(name: str) -> bool:
    """Whether the aggregate depends on a column of the launches."""
    contract = {column.name for column in (*IDENTITY_COLUMNS, *MEASURE_COLUMNS)} - NOT_NEEDED
    of_ceilings = {ceiling.metric for ceiling in known.ceilings()}
    return name in contract | of_ceilings or name in EXTREMES or name.startswith(OF_THE_BOARD)
