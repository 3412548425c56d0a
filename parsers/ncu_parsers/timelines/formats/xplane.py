"""XPlanes of XLA's profiler, as written by JAX and TensorFlow: work on each GPU or TPU, and host activity.

An XSpace is a message of planes, one per device and some for the host; a plane has lines of events, and numbered names
of events and of their attributes (stats). A GPU's lines are its streams; other lines of a device repeat the same work
by module, step or scope, and are skipped. For a TPU the line "XLA Ops" is read, its innermost events. A host event with
a correlation id is a call of the GPU's API. Times are picoseconds since the line's own time, and whole nanoseconds
here. Layout: xplane.proto and xplane_schema.cc of openxla/xla.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from ncu_parsers.report_data.protobuf_messages import Damaged, MessageTypes, fields_in, whole_fields
from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.schema.vendors import Vendor, vendor_named
from ncu_parsers.sources import memory
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.activity import activity
from ncu_parsers.timelines.activity.activity import KERNEL, MEMCPY, MEMSET, Activity, LaunchFacts
from ncu_parsers.timelines.activity.recording import Recording
from ncu_parsers.timelines.formats.whole_file import whole_file

TOOL = "XLA's profiler"
PLANE, ERROR, WARNING, HOST = 1, 2, 3, 4
"""Fields of an XSpace."""
NAME, LINE, EVENT_NAME, STAT_NAME, STAT = 2, 3, 4, 5, 6
"""Fields of a plane."""

XPLANE_MESSAGES = {
    "EventEntry": ((1, "key", "int64"), (2, "value", "EventName")),
    "StatEntry": ((1, "key", "int64"), (2, "value", "StatName")),
    "EventName": ((2, "name", "bytes"), (5, "stats", "Stat*")),
    "StatName": ((2, "name", "bytes"),),
    "Line": (
        (1, "id", "int64"), (2, "name", "bytes"), (3, "timestamp_ns", "int64"), (4, "events", "Event*"),
    ),
    "LineOfBytes": (
        (1, "id", "int64"), (2, "name", "bytes"), (3, "timestamp_ns", "int64"), (4, "events", "bytes*"),
    ),
    "Event": ((1, "name", "int64"), (2, "offset_ps", "int64"), (3, "duration_ps", "int64"), (4, "stats", "Stat*")),
    "Stat": (
        (1, "name", "int64"), (2, "real", "double"), (3, "positive", "uint64"), (4, "whole", "int64"),
        (5, "text", "bytes"), (6, "data", "bytes"), (7, "reference", "uint64"),
    ),
}  # fmt: skip
"""Number, name and type of the fields that are read; a reference is to the name of a stat."""
TYPES = MessageTypes("ncu_bench_xplane", XPLANE_MESSAGES)

STATS_OF_WORK = ("correlation_id", "kernel_details", "memcpy_details", "memset_details", "tf_op", "name", "hlo_op",
                 "hlo_module")  # fmt: skip
STATS_OF_HOST = ("correlation_id", "step_num")
STATS_OF_DEVICE = ("device_vendor", "device_type_string")
METADATA = "/host:metadata"
"""A plane with the HLO of modules, and no events."""

MEMORY_WORDS = {word: code for code, word in enumerate(activity.MEMORIES)}
DIRECTIONS = {
    "H2D": activity.HOST_TO_DEVICE, "D2H": activity.DEVICE_TO_HOST, "D2D": activity.DEVICE_TO_DEVICE,
    "P2P": activity.PEER_TO_PEER, "H2H": activity.HOST_TO_HOST,
}  # fmt: skip
NO_MODULES = re.compile(
    r"while|body|cond|scan|closed_call|core_call|checkpoint|remat\w*|custom_[jv][vj]p_call\w*|branch_\d+_fun"
)
"""Scopes of JAX that name control flow and transformations."""
WAIT = re.compile(r"\d block_until_ready$")
"""A function of JAX in which Python waits for the GPU: no call of the GPU's API is recorded within."""
MODULE_NAME = re.compile(r"[\w.~\[\]-]+")
"""Pattern of a scope that names a layer; einsum scopes, such as "bsd,de->bse", do not match."""


def read_activity(source: Source) -> Activity:
    """Read one file. Raises `NotAReport` if no plane can be read, `NcuBenchError` if it cannot be opened."""
    found = Recording(source.name, TOOL)
    data, damage = whole_file(source)
    planes, hosts = [], []
    for number, content in _parts(memoryview(data), "the file", found):
        if number == PLANE:
            memory.require_memory(source.name)
            planes.append(_Plane(content, found))
        elif number == HOST:
            hosts.append(_text(bytes(content)))
        elif number in (ERROR, WARNING):
            found.notes.append(f"the profiler says: {_text(bytes(content))[:500]}")
    if not any(plane.name for plane in planes):
        raise NotAReport(
            f"{source.name} has the name or the beginning of an XPlane, and holds no plane that can be read.",
            damage or ("It is empty." if not data else "It is damaged, or of another kind."),
            "Record one with: jax.profiler.trace(FOLDER); it is in FOLDER/plugins/profile/.",
        )
    if damage:
        found.notes.append(f"the file ends early and was read up to there ({damage})")
    if hosts:
        found.session["hosts"] = ", ".join(hosts)
    before: Counter[str] = Counter()
    several = len({plane.name for plane in planes}) < len(planes)
    for plane in planes:
        _take_plane(plane, before[plane.name] if several else None, found)
        before[plane.name] += 1
    return found.activity()


def _parts(data: memoryview, what: str, found: Recording) -> Iterator[tuple[int, memoryview]]:
    """The fields of a message up to its first damage, which is noted."""
    try:
        yield from fields_in(data)
    except Damaged as error:
        found.notes.append(f"{what} is cut off or damaged, and was read up to there: {error}")


class _Plane:
    """The parts of a plane, before its events are read."""

    def __init__(self, data: memoryview, found: Recording) -> None:
        self.name = ""
        self.lines: list[memoryview] = []
        self.events: dict[int, str] = {}
        self.said: dict[str, Any] = {}
        self._stats: dict[int, str] = {}
        own = []
        for number, content in _parts(data, "a plane", found):
            if number == NAME:
                self.name = _text(bytes(content))
            elif number == LINE:
                self.lines.append(content)
            elif self.name == METADATA:
                break
            elif number in (EVENT_NAME, STAT_NAME):
                self._take_name(number, bytes(content), found)
            elif number == STAT:
                own += self._message("Stat", bytes(content), found)
        self.said = self.stats(own, STATS_OF_DEVICE)

    def _message(self, kind: str, content: bytes, found: Recording) -> list[Any]:
        try:
            return [TYPES.decoded(kind, content)]
        except Damaged:
            found.broken += 1
            return []

    def _take_name(self, number: int, content: bytes, found: Recording) -> None:
        kind, names = ("EventEntry", self.events) if number == EVENT_NAME else ("StatEntry", self._stats)
        for entry in self._message(kind, content, found):
            names[entry.key] = _text(entry.value.name)

    def stats(self, stats: Iterable[Any], wanted: tuple[str, ...]) -> dict[str, Any]:
        """The stats of an event, or of the plane, by name: numbers and texts."""
        said = {}
        for stat in stats:
            name = self._stats.get(stat.name)
            values = [one for one in stat.ListFields() if one[0].name != "name"]
            if name in wanted and values:
                field, value = values[-1]
                if field.name == "reference":
                    value = self._stats.get(value, "")
                said[name] = _text(value) if isinstance(value, bytes) else value
        return said

    def lines_read(self, found: Recording) -> Iterator[tuple[Any, list[Any]]]:
        """Each line with its events; only complete events of a damaged line."""
        for content in self.lines:
            memory.require_memory("an XPlane")
            try:
                line = TYPES.decoded("Line", bytes(content))
                yield line, line.events
            except Damaged:
                yield from self._damaged_line(content, found)

    def _damaged_line(self, content: memoryview, found: Recording) -> Iterator[tuple[Any, list[Any]]]:
        whole = whole_fields(content)
        found.broken += len(whole) < len(content)
        for line in self._message("LineOfBytes", bytes(whole), found):
            yield line, [event for data in line.events for event in self._message("Event", data, found)]


def _take_plane(plane: _Plane, process: int | None, found: Recording) -> None:
    """Add the events of one plane. `process` numbers the hosts in a file with several."""
    device = re.fullmatch(r"/device:(GPU|TPU):(\d{1,9})", plane.name)
    if device is not None:
        gpu = (activity.MISSING if process is None else process, int(device[2]))
        is_tpu = device[1] == "TPU"
        vendor = Vendor.GOOGLE if is_tpu else vendor_named(str(plane.said.get("device_vendor", "")))
        if vendor is not None:
            found.vendors[gpu] = vendor
        if name := plane.said.get("device_type_string"):
            found.devices[gpu] = str(name)
        take = _take_tpu if is_tpu else _take_gpu
        take(plane, process, int(device[2]), found)
    elif plane.name.startswith("/host:") and plane.name != METADATA:
        _take_host(plane, process, found)


def _take_gpu(plane: _Plane, process: int | None, device: int, found: Recording) -> None:
    for line, events in plane.lines_read(found):
        stream = re.match(r"Stream #(\d{1,18})", _text(line.name))
        for event in events if stream is not None else ():
            said = plane.stats(event.stats, STATS_OF_WORK)
            name = plane.events.get(event.name) or "(no name)"
            copied = _copy_of(name, said)
            start, end = _times(line, event)
            correlation = said.get("correlation_id")
            found.operation(
                copied.kind, copied.name, start, end, process=process, device=device,
                stream=int(stream[1]) if stream else None, size=copied.size, copied=copied.copied,
                correlation=correlation if isinstance(correlation, int) else None, facts=_facts_of(said),
            )  # fmt: skip


def _facts_of(said: dict[str, Any]) -> LaunchFacts:
    words = (said.get(word) for word in ("kernel_details", "name", "tf_op", "hlo_op", "hlo_module"))
    return _facts(*(word if isinstance(word, str) else "" for word in words))


def _take_tpu(plane: _Plane, process: int | None, device: int, found: Recording) -> None:
    """Add the operations of a TPU that contain no others, unlike loops and calls."""
    for line, events in plane.lines_read(found):
        if _text(line.name) != "XLA Ops":
            continue
        timed = sorted((*_times(line, event), place) for place, event in enumerate(events))
        for at, (start, end, place) in enumerate(timed):
            if at + 1 < len(timed) and timed[at + 1][0] < end and timed[at + 1][1] <= end:
                continue
            event = events[place]
            facts = _facts_of(plane.stats(event.stats, STATS_OF_WORK))
            name = plane.events.get(event.name) or "(no name)"
            found.operation(KERNEL, name, start, end, process=process, device=device, stream=0, facts=facts)


def _take_host(plane: _Plane, process: int | None, found: Recording) -> None:
    """Add the events of a host. If a single thread calls the GPU's API, Python's waits become calls of that thread.

    A thread's calls and its Python are on different lines. If several threads call the API, Python waits for them too.
    """
    waits, calling = list[tuple[int, int]](), set[int]()
    for line, events in plane.lines_read(found):
        thread = _thread(line.id)
        for event in events:
            name = plane.events.get(event.name) or "(no name)"
            start, end = _times(line, event)
            said = plane.stats(event.stats, STATS_OF_HOST) if event.stats else {}
            correlation, step = said.get("correlation_id"), said.get("step_num")
            if isinstance(correlation, int):
                calling.add(thread)
                found.call(name, start, end, process=process, thread=thread, correlation=correlation)
            elif name.startswith("$"):
                if WAIT.search(name) and (not waits or start >= waits[-1][1]):  # a method calls its namesake function
                    waits.append((start, end))
                found.range(activity.PYTHON, name[1:], start, end, process=process, thread=thread)
            elif end > start:
                if isinstance(step, int):
                    found.step(step, start, end, process=process)
                    name = f"{name} {step}"
                found.range(activity.ANNOTATION, name, start, end, process=process, thread=thread)
    for start, end in waits if len(calling) == 1 else ():
        found.call("block_until_ready", start, end, process=process, thread=min(calling), correlation=None)


def _thread(line: int) -> int:
    """A thread number from a line's id: negative for ids beyond 32 bits, which are hashes, and for negative ids."""
    return line if 0 <= line < 1 << 32 else -1 - abs(line) % (1 << 61)


def _times(line: Any, event: Any) -> tuple[int, int]:
    """Start and end of an event in ns."""
    return (
        line.timestamp_ns + event.offset_ps // 1000,
        line.timestamp_ns + (event.offset_ps + event.duration_ps) // 1000,
    )


class _Work(NamedTuple):
    """Kind of a GPU event's operation, and the known facts of a copy or fill."""

    kind: int
    name: str
    size: int | None = None
    copied: tuple[int, int, int] | None = None


def _copy_of(name: str, said: dict[str, Any]) -> _Work:
    details = dict(re.findall(r"(\w+):([\w]+)", str(said.get("memcpy_details") or said.get("memset_details") or "")))
    size = int(details["size"]) if details.get("size", "").isdecimal() and len(details["size"]) < 19 else None
    if found := re.fullmatch(r"Memcpy(\w2\w|Other)", name):
        ends = [MEMORY_WORDS.get(details.get(f"kind_{end}", ""), activity.UNKNOWN_MEMORY) for end in ("src", "dst")]
        direction = DIRECTIONS.get(found[1], activity.OTHER_DIRECTION)
        return _Work(MEMCPY, f"Memcpy {found[1].replace('2', 'to')}", size, (direction, ends[0], ends[1]))
    if name == "Memset":
        return _Work(MEMSET, name, size)
    return _Work(KERNEL, re.sub(r"( \[clone )?\.kd\]?$", "", name))


@lru_cache(maxsize=65536)
def _facts(details: str, name: str, operation: str, hlo: str, module: str) -> LaunchFacts:
    """Facts on an operation from its stats; its place in the program is `tf_op`, or else `name`."""
    said = dict(re.findall(r"(\w+):([\d,]+)", details))
    shared = [said[one] for one in ("static_shared", "dynamic_shared", "group_mem") if one in said]
    *scopes, primitive = _scopes(operation if "/" in operation else name)
    own = map(_own_name, scopes)
    names = [one for one in own if MODULE_NAME.fullmatch(one) and not NO_MODULES.fullmatch(one)]
    known = [(key, value) for key, value in (("hlo_op", hlo), ("hlo_module", module)) if value]
    return LaunchFacts(
        _triple(said.get("grid", "")), _triple(said.get("block", "")), _number(said.get("regs", "")),
        sum(filter(None, map(_number, shared))) if shared else None, tuple(scopes), primitive if scopes else None,
        _phase(scopes), ".".join(names) or None, tuple(known),
    )  # fmt: skip


def _scopes(path: str) -> list[str]:
    """The scopes of an operation's path, whose last part is the operation: a/b(c/d)/e has three."""
    scopes, depth = [""], 0
    for letter in path.rstrip(":"):
        depth += (letter == "(") - (letter == ")")
        if letter == "/" and depth <= 0:
            scopes.append("")
        else:
            scopes[-1] += letter
    return scopes


def _own_name(scope: str) -> str:
    """The name inside a scope's transformations, such as transpose(jvp(Dense_0)); "" for a jitted function's scope."""
    while found := re.fullmatch(r"(\w+)\((.*)\)", scope):
        scope = "" if found[1] in ("jit", "pjit") else found[2]
    return scope


def _phase(scopes: list[str]) -> str | None:
    """The phase: JAX's `jvp` marks the forward pass of training, and its transpose the backward pass."""
    if any(scope.startswith("transpose(") for scope in scopes):
        return "backward"
    return "forward" if any(scope.startswith("jvp(") for scope in scopes) else None


def _triple(text: str) -> tuple[int, int, int] | None:
    numbers = [_number(part) for part in text.split(",")]
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 and all(numbers) else None  # type: ignore[return-value]


def _number(text: str) -> int | None:
    """A number of at most nine digits; None for other text."""
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
