"""Traces from inside kernels as files: run-iket's JSON in both forms, Proton's trace and tree, buffers of records."""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter, defaultdict
from typing import Any

import numpy as np
from ncu_parsers.warp_ranges.warp_trace import MISSING, WarpTrace

WRAP = 1 << 32
ASYNC = 1
"""The number of the range that Proton's traces have as an event that a warp begins and ends by itself."""


def _place(trace: WarpTrace, warp: int) -> dict[str, Any]:
    warps = trace.warps
    numbers = {f"{one}Id": int(getattr(warps, one)[warp]) for one in ("sm", "tpc", "gpc")}
    return {"ctaId": [int(warps.block[warp]), 0, 0], **{name: max(one, -1) for name, one in numbers.items()},
            "warpId": int(warps.warp[warp])}  # fmt: skip


def iket(trace: WarpTrace, *, tables: bool = True, graph: bool = False, indent: int | None = None) -> bytes:
    """What run-iket writes: with `tables` as real files, else as documented; launches of a `graph` apart."""
    places = [_place(trace, warp) for warp in range(len(trace.warps))]
    at = list(map(list, zip(*(one.tolist() for one in (trace.ranges.warp, trace.ranges.name, trace.ranges.start,
                                                       trace.ranges.end)), strict=True)))  # fmt: skip
    launches = []
    for number, launch in enumerate(trace.launches):
        mine = [one for one in at if trace.warps.launch[one[0]] == number]
        found: dict[str, Any] = {"contextId": 1, "gridId": number, "kernelName": launch.kernel}
        for name, sizes in (("grid", launch.grid), ("block", launch.block)):
            found |= {f"{name}Dim{axis}": size for axis, size in zip("XYZ", sizes, strict=False)}
        alive = [row for row in np.flatnonzero(trace.warps.launch == number).tolist() if trace.warps.start[row] >= 0]
        if tables:
            found["markers"] = [
                {"locIdx": warp, "markerNameIdx": name, "payloadType": 0, "payloadVal": 0, "timestamp": start}
                for warp, name, start, end in mine if end == MISSING
            ]  # fmt: skip
            found["ranges"] = [
                {"endTs": end, "internalEvents": [{"eventId": 1, "timestamp": start}, {"eventId": 1, "timestamp": end}],
                 "rangeColor": 0, "rangeId": number, "rangeNameIdx": name, "rangeScope": 0, "rangeType": 1,
                 "startTs": start, "warpLocIdxs": [warp, warp]}
                for number, (warp, name, start, end) in enumerate(mine) if end != MISSING
            ]  # fmt: skip
            found["warpLifetimes"] = [
                {"endTs": int(trace.warps.end[row]), "locIdx": row, "startTs": int(trace.warps.start[row])}
                for row in alive
            ]
        else:
            found["ranges"] = [
                {"rangeName": trace.names[name], "rangeScope": 0, "startTs": start, "endTs": end,
                 "warpLocs": [places[warp]], "internalEvents": []}
                for warp, name, start, end in mine if end != MISSING
            ]  # fmt: skip
            found["markers"] = [
                {"markerName": trace.names[name], "timestamp": start, "location": places[warp], "payloadType": 0,
                 "payloadVal": 0}
                for warp, name, start, end in mine if end == MISSING
            ]  # fmt: skip
            found["warpLifetimes"] = [
                {"startTs": int(trace.warps.start[row]), "endTs": int(trace.warps.end[row]),
                 "warpLocation": places[row]} for row in alive
            ]  # fmt: skip
        launches.append(dict(sorted(found.items())) if tables else found)
    document: dict[str, Any] = {"launches": [] if graph else launches}
    if tables:
        document = {"graphLaunches": {"0x7f00": launches} if graph else {}, **document, "locationTable": places,
                    "stringTable": list(trace.names)}  # fmt: skip
    separators = (",", ":") if indent is None else None
    return json.dumps(document, indent=indent, separators=separators).encode()


def proton(trace: WarpTrace, *, aligned: bool = True, in_cycles: bool = True, begins: bool = True) -> bytes:
    """Proton's Chrome trace: cycles as us; with `aligned` as newer releases write it.

    Markers are the ends of events across warps. As in its files, they and ranges of the category "async" stand behind
    the others of their block, and do not say when the block began. Not `in_cycles`, the file has no frequency; without
    `begins`, nothing says when its block began, as in the first release that aligned blocks.
    """
    events: list[tuple[tuple[int, int, bool], dict[str, Any]]] = []
    warps = trace.warps
    first = int(min(trace.ranges.start.min(), warps.start[warps.start != MISSING].min(initial=2**62)))
    begun: dict[tuple[int, int], int] = defaultdict(lambda: 2**62)
    for warp, start in zip(trace.ranges.warp.tolist(), trace.ranges.start.tolist(), strict=True):
        key = int(warps.launch[warp]), int(warps.block[warp])
        begun[key] = min(begun[key], start)
    for warp, name, start, end in zip(
        *(one.tolist() for one in (trace.ranges.warp, trace.ranges.name, trace.ranges.start, trace.ranges.end)),
        strict=True,
    ):
        launch, block = int(warps.launch[warp]), int(warps.block[warp])
        kernel = trace.launches[launch].kernel
        origin = first if aligned else begun[launch, block] - launch * 1_000_000
        pid = f"{kernel} Core{int(warps.sm[warp])} CTA{block}" + (
            "" if aligned else " [measure in clock cycle (assume 1GHz)]"
        )
        args: dict[str, Any] = {"Unit": "GPU cycle", "Kernel Gap": "1000000cycle(ns)"}
        category = "flow" if end == MISSING else "async" if aligned and name == ASYNC else kernel
        if aligned:
            args = {"call_stack": ["/nowhere/kernel.py:run@12"]}
        if aligned and category == kernel:
            args |= {"Finalization Time (ns)": 5} | ({"Frequency (MHz)": 1000.0} if in_cycles else {})
            args |= {"Init Time (ns)": 10**15 + begun[launch, block]} if begins else {}
        events.append(((launch, block, category != kernel), {
            "args": args, "cat": category, "cname": "good", "dur": 0 if end == MISSING else (end - start) / 1000,
            "name": trace.names[name], "ph": "X", "pid": pid, "tid": f"warp {int(warps.warp[warp])} (line 0)",
            "ts": (start - origin) / 1000,
        }))  # fmt: skip
    found = [event for _, event in sorted(events, key=lambda one: one[0])]
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": found}, separators=(",", ":")).encode()


def tree(trace: WarpTrace) -> bytes:
    """Proton's tree for Hatchet: cycles of each range over all warps."""
    totals: Counter[str] = Counter()
    for name, start, end in zip(trace.ranges.name.tolist(), trace.ranges.start.tolist(), trace.ranges.end.tolist(),
                                strict=True):  # fmt: skip
        totals[trace.names[name]] += end - start
    device = {"device_id": "0", "device_type": "0"}
    nodes = [{"children": [], "frame": {"name": name, "type": "function"},
              "metrics": {"cycles": cycles, **device, "normalized_cycles": cycles / len(trace.warps)}}
             for name, cycles in totals.items()]  # fmt: skip
    kernel = {"children": nodes, "frame": {"name": trace.launches[0].kernel, "type": "function"}, "metrics": {}}
    scope = {"children": [kernel], "frame": {"name": "forward", "type": "function"}, "metrics": {}}
    root = {"children": [scope], "frame": {"name": "ROOT", "type": "function"},
            "metrics": {"cycles": 0, "normalized_cycles": 0}}  # fmt: skip
    devices = {"CUDA": {"0": {"arch": "90", "bus_width": 5120, "clock_rate": 1980000, "num_sms": 132}}}
    return json.dumps([root, devices]).encode()


def buffer(trace: WarpTrace, *, layout: str = "wide", origin: int = 0, groups: int | None = None) -> bytes:
    """A buffer of 64-bit records, with times that wrap at 2^32; a lane's words are `blocks * groups` apart.

    A tag of flashinfer with SM numbers names the block and no group; Triton-distributed writes the SM of each block in
    front of the records.
    """
    warps = trace.warps
    blocks = int(warps.block.max()) + 1
    groups = groups or int(warps.warp.max()) + 1
    stride = blocks * groups
    words: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for warp, name, start, end in zip(
        *(one.tolist() for one in (trace.ranges.warp, trace.ranges.name, trace.ranges.start, trace.ranges.end)),
        strict=True,
    ):
        if end == MISSING:
            words[warp].append((start, 2, name))
        else:
            words[warp] += [(start, 0, name), (end, 1, name)]
    longest = max(map(len, words.values()), default=0)
    found = np.zeros(1 + stride * longest, np.uint64)
    found[0] = blocks | groups << 32
    for warp, records in words.items():
        lane = int(warps.block[warp]) * groups + int(warps.warp[warp])
        for at, (time, kind, name) in enumerate(_in_order(records)):
            tag = _tag(layout, lane, groups, name, kind, int(warps.sm[warp]), at)
            found[1 + at * stride + lane] = tag | (time + origin) % WRAP << 32
    if layout == "triton-dist":
        sms = {int(block): int(sm) for block, sm in zip(warps.block, warps.sm, strict=True)}
        of_blocks = np.array([block | sms[block] << 32 for block in range(blocks)], np.uint64)
        found = np.concatenate([found[:1], of_blocks, found[1:]])
    return found.tobytes()


def _in_order(records: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Records by time; of one moment, ends are in front of begins, as the program runs on."""
    return sorted(records, key=lambda one: (one[0], one[1] != 1))


def _tag(layout: str, lane: int, groups: int, event: int, kind: int, sm: int, number: int) -> int:
    if layout == "mirage":
        return number << 19 | lane << 11 | event << 2 | kind
    if layout == "triton-dist":
        return lane << 12 | event << 1 | (kind == 0)
    return (sm << 24 | lane // groups << 12 if layout == "sm" else lane << 12) | event << 2 | kind


def saved_by_numpy(words: bytes) -> bytes:
    """The buffer as numpy.save writes it."""
    stream = io.BytesIO()
    np.save(stream, np.frombuffer(words, np.uint64))
    return stream.getvalue()


def saved_by_torch(words: bytes) -> bytes:
    """The buffer as torch.save writes a tensor: an archive with the storage as it is."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("buffer/data.pkl", b"\x80\x02.")
        archive.writestr("buffer/data/0", words)
    return stream.getvalue()
