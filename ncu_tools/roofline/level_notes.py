"""Notes on memory levels without points or without a ceiling: missing data, and which metrics to collect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import tables
from ncu_parsers.schema.vendors import Vendor, vendors_in, why_no_ncu

from ncu_tools.ceilings.ceilings import Ceiling, unit_title
from ncu_tools.ceilings.levels import byte_metrics, bytes_of, ceiling_metrics
from ncu_tools.ceilings.machine_files import BYTES_COUNTED, DRAM, TRAFFIC


def on_missing_points(level: str, definition: str, runs: Sequence[pa.Table]) -> str:
    """The note on a level without points, and so without a ceiling: no bytes there, or no FLOPs with them."""
    if _has_bytes(level, definition, runs):
        return f"nothing has both FLOPs and bytes of {unit_title(level)}, so it has neither points nor a roof"
    how = ", as NVIDIA's charts count them since 2023" if definition != TRAFFIC and level != "shared" else ""
    metrics = ", ".join(byte_metrics(level, definition, runs))
    other = next(one for one in BYTES_COUNTED if one != definition)
    way = f", or take what the report has: --cache-bytes {other}" if _has_bytes(level, other, runs) else ""
    ask = why_no_ncu_in_all(runs) or f"ask ncu for {metrics}{way}"
    return f"no launch has bytes of {unit_title(level)}{how}, so it has neither points nor a roof: {ask}"


def why_no_ncu_in_all(runs: Iterable[pa.Table]) -> str:
    """Why ncu cannot collect the missing data, since all runs are of other vendors' GPUs; "" if it can."""
    return why_no_ncu(set[Vendor | None]().union(*map(vendors_in, runs)))


def _has_bytes(level: str, definition: str, runs: Iterable[pa.Table]) -> bool:
    return any(not np.isnan(bytes_of(table, [level], definition)[level]).all() for table in runs)


def on_missing_ceilings(
    levels: Sequence[str],
    known: Sequence[Ceiling],
    capability_of: Mapping[str, str | None],
    runs: Sequence[pa.Table],
) -> list[str]:
    """Notes on levels with points but without a ceiling, one per level.

    `capability_of` maps the devices of the runs to compute capabilities, `known` are all ceilings.
    """
    notes = []
    for level in levels:
        have = {ceiling.device for ceiling in known if ceiling.unit == level}
        without = [device for device in capability_of if device not in have]
        if not without:
            continue
        metrics = list(dict.fromkeys(name for one in without for name in ceiling_metrics(level, capability_of[one])))
        lacking = [name for name in metrics if all(np.isnan(tables.floats(table, name)).all() for table in runs)]
        of_devices = f" of {', '.join(without)}" if len(capability_of) > 1 else ""
        machine = ", or name a machine with --machine NAME" if level == DRAM else ""
        if elsewhere := why_no_ncu_in_all(runs):
            reason = machine.removeprefix(", or ") or elsewhere
        elif lacking:
            ask = f"Ask ncu for {'both' if len(lacking) > 1 else 'it'}{machine}"
            reason = f"the report lacks {' and '.join(lacking)}. {ask}"
        else:
            reason = f"no launch is long enough to show its clock{machine}"
        notes.append(f"{unit_title(level)}{of_devices} has no roof: {reason}")
    return notes
