"""Small recordings of rocprofv3 and of XLA's profiler for tests, from a line for each event."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.support.binary_reports import field

AGENT, SECOND_AGENT, CPU_AGENT = 4001, 4002, 4000
NAMES = ("NONE", "HIP_RUNTIME_API", "MEMORY_COPY", "MARKER_CORE_RANGE_API", "KERNEL_DISPATCH")
OPERATIONS: dict[str, list[str]] = {
    "HIP_RUNTIME_API": ["hipLaunchKernel", "hipMemcpyAsync", "hipDeviceSynchronize"],
    "MEMORY_COPY": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_HOST", "MEMORY_COPY_HOST_TO_DEVICE",
                    "MEMORY_COPY_DEVICE_TO_HOST", "MEMORY_COPY_DEVICE_TO_DEVICE"],
    "MARKER_CORE_RANGE_API": ["roctxMarkA", "roctxThreadRangeA"],
}  # fmt: skip
PROCESS, THREAD = 70, 71


def _record(start: int, end: int, kind: str, operation: int, correlation: int, **more: Any) -> dict[str, Any]:
    return {
        "size": 100, "kind": NAMES.index(kind), "operation": operation, "thread_id": THREAD, "start_timestamp": start,
        "end_timestamp": end, "correlation_id": {"internal": correlation, "external": 0}, **more,
    }  # fmt: skip


def dispatch(start: int, end: int, kernel: int, *, correlation: int = 0, agent: int = AGENT, stream: int = 1,
             grid: tuple[int, int, int] = (1000, 2, 1), block: tuple[int, int, int] = (256, 1, 1)) -> dict[str, Any]:  # fmt: skip
    """A kernel that ran; `kernel` is its number among the symbols."""
    sides = ({"x": x, "y": y, "z": z} for x, y, z in (grid, block))
    info = {"agent_id": {"handle": agent}, "queue_id": {"handle": 9}, "kernel_id": kernel, "group_segment_size": 512}
    info.update(zip(("grid_size", "workgroup_size"), sides, strict=True))
    return _record(start, end, "KERNEL_DISPATCH", 2, correlation, dispatch_info=info, stream_id={"handle": stream})


def copy(start: int, end: int, operation: int, source: int, target: int, size: int = 64) -> dict[str, Any]:
    """A copy; `operation` is its direction's place among the names of copies."""
    return _record(
        start, end, "MEMORY_COPY", operation, 0, bytes=size, src_agent_id={"handle": source},
        dst_agent_id={"handle": target},
    )  # fmt: skip


def hip(start: int, end: int, operation: int, correlation: int) -> dict[str, Any]:
    """A call of HIP."""
    return _record(start, end, "HIP_RUNTIME_API", operation, correlation)


def marker(start: int, end: int, correlation: int) -> dict[str, Any]:
    """A range of ROCTx, whose text has the same correlation id."""
    return _record(start, end, "MARKER_CORE_RANGE_API", 1, correlation)


def rocprof(
    kernels: Sequence[Any] = (), *, copies: Sequence[Any] = (), calls: Sequence[Any] = (), markers: Sequence[Any] = (),
    texts: Mapping[int, str] | None = None, symbols: Sequence[str] = ("gemm", "softmax"), process: int = PROCESS,
) -> dict[str, Any]:  # fmt: skip
    """What one process recorded, as rocprofv3 writes it."""
    gpus = [
        {"id": {"handle": handle}, "type": 2, "name": "gfx942", "product_name": "AMD Instinct MI300X",
         "vendor_name": "AMD", "logical_node_type_id": number}
        for number, handle in enumerate((AGENT, SECOND_AGENT))
    ]  # fmt: skip
    return {
        "metadata": {"pid": process, "command": ["./train", "--fast"]},
        "agents": [{"id": {"handle": CPU_AGENT}, "type": 1, "name": "CPU", "logical_node_type_id": 0}, *gpus],
        "strings": {
            "buffer_records": [{"kind": name, "operations": OPERATIONS.get(name, [])} for name in NAMES],
            "marker_api": [{"key": key, "value": text} for key, text in (texts or {}).items()],
        },
        "kernel_symbols": [
            {"kernel_id": number, "kernel_name": f"{name}.kd", "formatted_kernel_name": name, "arch_vgpr_count": 32}
            for number, name in enumerate(symbols)
        ],
        "callback_records": {"counter_collection": []},
        "buffer_records": {
            "kernel_dispatch": list(kernels), "hip_api": list(calls), "marker_api": list(markers),
            "memory_copy": list(copies), "memory_allocation": [],
        },
    }  # fmt: skip


def rocprof_json(*processes: dict[str, Any], indent: int | None = 1) -> bytes:
    """The file of some processes."""
    return json.dumps({"rocprofiler-sdk-tool": list(processes)}, indent=indent).encode()


class XEvent(NamedTuple):
    """An event of a line; times in ps. What it says may be numbers, texts, or bytes, which are references to texts."""

    name: str
    offset: int
    duration: int
    says: Mapping[str, int | str | bytes] = {}


class XLine(NamedTuple):
    """A line of a plane; its time in ns."""

    name: str
    events: Sequence[XEvent]
    number: int = 1
    timestamp: int = 0


class XPlane(NamedTuple):
    """A plane of a device or of the host."""

    name: str
    lines: Sequence[XLine] = ()
    says: Mapping[str, int | str | bytes] = {}


def xspace(*planes: XPlane, hosts: Sequence[str] = ("a-host",), errors: Sequence[str] = ()) -> bytes:
    """The file of some planes."""
    return b"".join(
        [*(field(1, _plane(one)) for one in planes), *(field(2, text.encode()) for text in errors),
         *(field(4, name.encode()) for name in hosts)]
    )  # fmt: skip


def _plane(plane: XPlane) -> bytes:
    events: dict[str, int] = {}
    stats: dict[str, int] = {}
    lines = b"".join(field(3, _line(line, events, stats)) for line in plane.lines)
    own = b"".join(field(6, one) for one in _stats(plane.says, stats))
    tables = b"".join(
        field(table, field(1, number) + field(2, field(1, number) + field(2, name.encode())))
        for table, names in ((4, events), (5, stats))
        for name, number in names.items()
    )
    return field(2, plane.name.encode()) + lines + tables + own


def _line(line: XLine, events: dict[str, int], stats: dict[str, int]) -> bytes:
    coded = b"".join(
        field(
            4,
            field(1, events.setdefault(one.name, len(events) + 1))
            + field(2, one.offset)
            + field(3, one.duration)
            + b"".join(field(4, stat) for stat in _stats(one.says, stats)),
        )
        for one in line.events
    )
    return field(1, line.number % 2**64) + field(2, line.name.encode()) + field(3, line.timestamp) + coded


def _stats(says: Mapping[str, int | str | bytes], stats: dict[str, int]) -> list[bytes]:
    found = []
    for name, value in says.items():
        number = field(1, stats.setdefault(name, len(stats) + 1))
        if isinstance(value, bytes):
            found.append(number + field(7, stats.setdefault(value.decode(), len(stats) + 1)))
        else:
            found.append(number + (field(3, value) if isinstance(value, int) else field(5, value.encode())))
    return found
