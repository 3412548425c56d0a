"""Ranges of warps as a trace for Perfetto: a process for each block, a thread for each warp, slices that nest.

Format: Chrome's Trace Event Format, complete events, with times in µs from the begin of the launch. Ranges that cross
others have lanes of their own. Cycles are written as if one took a nanosecond, as the metadata says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TextIO

from ncu_launch.version import VERSION
from ncu_parsers.warp_ranges.warp_trace import MISSING

from ncu_tools.kernels.warp_ranges.launch_ranges import LaunchRanges

NS_PER_US = 1000
BESIDE = 1 << 20
"""Offset of the lane of a warp's crossing ranges from the warp's number."""


def write_warp_slices(ranges: LaunchRanges, file: TextIO, name: str, block: int | None = None) -> int:
    """Write the ranges of a launch, or of one block (a row); returns the number of slices written."""
    count = 0
    file.write('{"traceEvents": [\n')
    for event in _events(ranges, block):
        file.write(("," if count else "") + json.dumps(event, ensure_ascii=False) + "\n")
        count += 1
    metadata = {"exporter": f"ncu-bench {VERSION}", "trace": name, "clock": ranges.clock.value, "origin": ranges.origin}
    file.write('], "displayTimeUnit": "ns", "otherData": ' + json.dumps(metadata, ensure_ascii=False) + "}\n")
    return count


def _events(ranges: LaunchRanges, block: int | None) -> Iterator[dict[str, Any]]:
    lanes = range(len(ranges.block)) if block is None else [
        lane for lane in range(len(ranges.block)) if ranges.block_row[lane] == block
    ]  # fmt: skip
    named: set[int] = set()
    for lane in lanes:
        process, thread = int(ranges.block_row[lane]) + 1, int(ranges.warp[lane])
        if process not in named:
            named.add(process)
            sm = "" if ranges.sm[lane] == MISSING else f" on SM {int(ranges.sm[lane])}"
            yield _meta("process_name", process, 0, f"block {int(ranges.block[lane])}{sm}")
        role = ranges.roles[ranges.role[lane]]
        yield _meta("thread_name", process, thread, f"{ranges.lane_word} {thread}: {role}")
        begin, behind = ranges.lane.searchsorted([lane, lane + 1]).tolist()
        for row in range(begin, behind):
            name = int(ranges.name[row])
            yield {
                "ph": "X", "name": ranges.names[name], "cat": ranges.kinds[name].value, "pid": process,
                "tid": thread + BESIDE if ranges.is_async[row] else thread,
                "ts": int(ranges.start[row]) / NS_PER_US, "dur": int(ranges.length[row]) / NS_PER_US,
            }  # fmt: skip


def _meta(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}
