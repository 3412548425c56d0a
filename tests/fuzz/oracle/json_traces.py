"""Traces in JSON: PyTorch's profiler (Chrome's trace events) and rocprofv3, read with the json module and exact decimals."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from ncu_parsers.launches.launch_view import report_of
from ncu_parsers.parse.file_kinds import KINDS, activity_reader_of
from ncu_parsers.report_data import report
from ncu_parsers.sources.sources import Source

from tests.fuzz.oracle.compared import Reading, Row
from tests.fuzz.oracle.damage import NAMES, moved, real, seldom_damaged, some, whole
from tests.support import other_timelines as amd

ODD: tuple[Any, ...] = (
    None, True, False, "", "7", -1, 0, 0.5, 7.0, 1e300, -0.0, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, [], {}, [1, 2], "NaN",
)  # fmt: skip
"""Values of JSON that a field does not expect."""

KEPT = (
    "kernel_name", "duration_ns", "start_ns", "device_id", "stream", "correlation_id", "grid", "block", "bytes", "operation",
)  # fmt: skip
UNNAMED, NO_NAME = "(kernel without a name)", "(no name)"
COPIES = {
    "MEMORY_COPY_HOST_TO_HOST": "HtoH", "MEMORY_COPY_HOST_TO_DEVICE": "HtoD", "MEMORY_COPY_DEVICE_TO_HOST": "DtoH",
    "MEMORY_COPY_DEVICE_TO_DEVICE": "DtoD",
}  # fmt: skip
CATEGORIES = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}


def changed_leaves(rng: random.Random, tree: Any) -> None:
    """Change some values in place: to an odd one, to another number or name, or by taking a field away."""
    places = list(_places(tree))
    for _ in some(rng):
        holder, key = rng.choice(places)
        if isinstance(holder, dict) and key not in holder:
            continue
        change = rng.randrange(6)
        if change == 0:
            holder[key] = rng.choice(ODD)
        elif change == 1 and isinstance(holder, dict):
            del holder[key]
        elif isinstance(holder[key], str):
            holder[key] = rng.choice(NAMES)
        elif isinstance(holder[key], int | float):
            holder[key] = rng.choice((whole(rng), round(real(rng), 3)))


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every holder and key of a value that is no list or object."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(value, dict | list):
            yield from _places(value)
        else:
            yield tree, key


def fast(origin: str) -> Callable[[Path], Reading]:
    """A reader of a file as a recording of that origin."""
    kind = next(one for one in KINDS if one.origin == origin)

    def read(path: Path) -> Reading:
        found = report_of(Source(str(path)), activity_reader_of(kind, launches=True), origin)
        assert found.table is not None
        has_losses = bool(found.lines[report.BROKEN]) or any(
            "ends early" in note or "cut off" in note for note in found.notes
        )
        rows = rows_of(found.table)
        lost_names = has_losses and any(row["kernel_name"] == NO_NAME for row in rows)
        return Reading(rows, has_losses, [*excused_times(found.notes), *(["kernel_name"] if lost_names else [])])

    return read


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The columns that slow readers of timelines give."""
    rows: list[dict[str, Any]] = table.select([name for name in KEPT if name in table.column_names]).to_pylist()
    return rows


def excused_times(notes: list[str]) -> list[str]:
    """The notes; those on impossible ends excuse durations, and one on times since 1970 their last digits."""
    excused = {"is impossible": "duration_ns", "since 1970": "start_ns"}
    return [*notes, *(name for words, name in excused.items() if any(words in note for note in notes))]


# --------------------------------------------------------------------------------------------------- PyTorch's profiler


def mutated_kineto(rng: random.Random) -> bytes:
    """A trace of some kernels, copies and calls, with some values changed."""
    events: list[Any] = []
    time = rng.choice((0.0, 1e6, 1.7e15))
    for number in range(rng.randint(1, 12)):
        time += round(rng.uniform(0, 100), rng.choice((0, 3)))
        category = rng.choice(("kernel", "kernel", "gpu_memcpy", "gpu_memset"))
        name = {"gpu_memcpy": "Memcpy HtoD (Pinned -> Device)", "gpu_memset": "Memset (Device)"}.get(category)
        arguments: dict[str, Any] = {
            "device": 0,
            "context": 1,
            "stream": rng.choice((7, 13)),
            "correlation": number + 1,
        }
        if category == "kernel":
            arguments |= {"grid": [whole(rng) % 2**20, 1, 1], "block": [128, 1, 1], "registers per thread": 32}
        else:
            arguments["bytes"] = whole(rng)
        events.append(
            {"ph": "X", "cat": category, "name": name or rng.choice(NAMES), "pid": 0, "tid": 7, "ts": round(time, 3),
             "dur": round(rng.uniform(0, 50), rng.choice((0, 3))), "args": arguments}
        )  # fmt: skip
        if rng.randrange(2):
            events.append(
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": round(time - 5, 3),
                 "dur": 2, "args": {"correlation": number + 1}}
            )  # fmt: skip
    changed_leaves(rng, events)
    events = moved(rng, events) if rng.randrange(2) else events
    tree: Any = {"schemaVersion": 1, "traceEvents": events, "traceName": "t"} if rng.randrange(4) else events
    text = json.dumps(tree, indent=rng.choice((None, 1)), ensure_ascii=bool(rng.randrange(2)))
    return seldom_damaged(rng, text.encode())


def slow_kineto(data: bytes) -> list[Row] | None:
    """The GPU operations of a trace in the order of the file; None if it is not JSON or holds none."""
    tree = _json(data)
    events = tree.get("traceEvents") if isinstance(tree, dict) else tree
    if not isinstance(events, list):
        return None
    found: list[Row] = []
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X" or str(event.get("cat")) not in CATEGORIES:
            continue
        start, lasts, name = _decimal(event.get("ts")), _decimal(event.get("dur")), event.get("name")
        if (
            start is None
            or lasts is None
            or lasts < 0
            or not isinstance(name, str)
            or max(abs(start), lasts) >= 2**61 / 1000
        ):
            continue
        if start > 2**43 and float(start) % 1 == 0:
            start = Decimal(
                float(start)
            )  # a number of JSON is a double; fractions that it keeps are said to be rounded
        arguments = event["args"] if isinstance(event.get("args"), dict) else {}
        found.append({
            "kernel_name": name, "operation": CATEGORIES[event["cat"]], "start_ns": _nanoseconds(start),
            "duration_ns": _nanoseconds(lasts), "device_id": _whole(arguments.get("device"), 31),
            "stream": _text(_whole(arguments.get("stream"))), "correlation_id": _whole(arguments.get("correlation")),
            "bytes": _whole(arguments.get("bytes")), "grid": _shape(arguments.get("grid")),
            "block": _shape(arguments.get("block")),
        })  # fmt: skip
    return found or None


def _json(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"), parse_float=Decimal, strict=False)
    except (ValueError, RecursionError):
        return None


def _decimal(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    number = Decimal(value)
    return number if number.is_finite() else None


def _nanoseconds(microseconds: Decimal) -> int:
    return int((microseconds * 1000).quantize(Decimal(1), ROUND_HALF_EVEN))


def _whole(value: Any, bits: int = 63) -> int | None:
    number = _decimal(value)
    if number is None or number != int(number) or not 0 <= number < 2**bits:
        return None
    return value if isinstance(value, int) else int(float(number))  # with an exponent it is a double, as in C++


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _shape(value: Any) -> list[int] | None:
    sides = [_whole(side, 31) for side in value] if isinstance(value, list) and len(value) == 3 else [None]
    return None if None in sides else [side for side in sides if side is not None]


# ------------------------------------------------------------------------------------------------------------ rocprofv3


def mutated_rocprofv3(rng: random.Random) -> bytes:
    """A recording of one or two processes, with some values changed."""
    processes = []
    for number in range(rng.randint(1, 2)):
        time, kernels, copies = rng.choice((0, 10**15)), [], []
        for place in range(rng.randint(1, 8)):
            time += rng.randrange(10**6)
            end = time + whole(rng) % 10**6
            grid = (rng.randrange(1, 10**6), rng.randrange(1, 9), 1)
            if rng.randrange(4):
                agent = rng.choice((amd.AGENT, amd.SECOND_AGENT))
                kernels.append(amd.dispatch(time, end, rng.randrange(3), correlation=place, agent=agent, grid=grid))
            else:
                copies.append(amd.copy(time, end, rng.choice((2, 3)), amd.CPU_AGENT, amd.AGENT, whole(rng)))
        made = amd.rocprof(kernels, copies=copies, symbols=[rng.choice(NAMES) for _ in range(2)], process=number + 1)
        changed_leaves(rng, made["buffer_records"])
        if rng.randrange(2):
            made["buffer_records"]["kernel_dispatch"] = moved(rng, made["buffer_records"]["kernel_dispatch"])
        processes.append(made)
    return seldom_damaged(rng, amd.rocprof_json(*processes, indent=rng.choice((None, None, None, 1))))


def slow_rocprofv3(data: bytes) -> list[Row] | None:
    """The kernels and copies of all processes, by start; None if it is not JSON."""
    tree = _json(data)
    tools = tree.get("rocprofiler-sdk-tool") if isinstance(tree, dict) else None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        return None
    try:
        found = [row for tool in tools for row in _of_process(tool)]
    except (TypeError, AttributeError, KeyError, IndexError):
        return None  # the tables beside the events are damaged
    return [row for _, row in sorted(found, key=lambda one: one[0])]


def _of_process(tool: dict[str, Any]) -> Iterator[tuple[tuple[int, int], Row]]:
    gpus = {agent["id"]["handle"]: agent["logical_node_type_id"] for agent in tool["agents"] if agent["type"] == 2}
    names = {one["kernel_id"]: one["formatted_kernel_name"] or one["kernel_name"] for one in tool["kernel_symbols"]}
    records = tool["buffer_records"]
    for one in records["kernel_dispatch"]:
        info = one.get("dispatch_info") if isinstance(one, dict) else None
        if not isinstance(info, dict) or not _is_timed(one):
            continue
        number = info.get("kernel_id")
        pairs = [
            (info.get("grid_size", {}).get(axis, 0), info.get("workgroup_size", {}).get(axis, 0)) for axis in "xyz"
        ]
        is_known = all(0 < side < 2**31 for pair in pairs for side in pair)
        name = names.get(number, "").removesuffix(".kd") or (f"(kernel {number})" if number is not None else UNNAMED)
        device = gpus.get(info.get("agent_id", {}).get("handle"))
        grid = [-(-items // group) for items, group in pairs] if is_known else None
        block = [group for _, group in pairs] if is_known else None
        yield _timed(one, "kernel", name, device_id=device, grid=grid, block=block)
    for one in records["memory_copy"]:
        if not isinstance(one, dict) or not _is_timed(one):
            continue
        source, target = (gpus.get(one.get(f"{end}_agent_id", {}).get("handle")) for end in ("src", "dst"))
        kinds, kind, number = tool["strings"]["buffer_records"], one.get("kind", -1), one.get("operation", -1)
        operations = kinds[kind].get("operations", []) if 0 <= kind < len(kinds) else []
        direction = COPIES.get(operations[number] if 0 <= number < len(operations) else "", "")
        if direction == "DtoD" and source != target:
            direction = "PtoP"
        device, size = source if target is None else target, one.get("bytes")
        yield _timed(
            one, "memcpy", f"Memcpy {direction}".strip(), device_id=device, bytes=size if _fits(size) else None
        )


def _fits(value: Any) -> bool:
    """Whether a value is a whole number that a column holds; fewer bits than JSON's."""
    return type(value) is int and 0 <= value < 2**62


def _is_timed(one: dict[str, Any]) -> bool:
    start, end = one.get("start_timestamp"), one.get("end_timestamp")
    return type(start) is int and type(end) is int and -(2**62) < start <= end < 2**62


def _timed(one: dict[str, Any], operation: str, name: str, **more: Any) -> tuple[tuple[int, int], Row]:
    start, end, info = one["start_timestamp"], one["end_timestamp"], one.get("dispatch_info") or {}
    queue = one["stream_id"] if one.get("stream_id") is not None else info.get("queue_id", {})
    stream = queue.get("handle")
    correlation = one.get("correlation_id", {}).get("internal")
    row = {
        "operation": operation, "kernel_name": name, "start_ns": start, "duration_ns": end - start,
        "stream": str(stream) if stream is not None and -(2**62) < stream < 2**62 else None,
        "correlation_id": correlation if _fits(correlation) else None, **more,
    }  # fmt: skip
    return (start, -end), row
