"""JSON of `run-iket`, NVIDIA's In-Kernel Event Tracing for CuTe DSL and TIRx kernels, in both of its forms.

The documented form has names and places in each range:
https://docs.nvidia.com/cutlass/latest/media/docs/pythonDSL/cute_dsl_general/iket_profiling.html. What run-iket writes
refers to two tables, stringTable and locationTable, and has launches of CUDA graphs apart, in graphLaunches. Times are
ns of the GPU's global timer, in steps of 32 ns. Neither form has a version; a range of unknown keys is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import numpy as np

from ncu_parsers.report_data.refusals import NotAReport
from ncu_parsers.sources.sources import Source
from ncu_parsers.warp_ranges.json_elements import Cut, JsonElements
from ncu_parsers.warp_ranges.warp_trace import (
    MISSING,
    Codes,
    Integers,
    TracedLaunch,
    WarpRanges,
    Warps,
    WarpTrace,
    linear_blocks,
)

TOOL = "run-iket"
VERSIONS = ("version", "schemaVersion", "formatVersion", "meta")
KNOWN = (None, 0, 1, "1", "1.0")
"""Keys under which a later form may state its version, as run-iket's other files do in meta, and the versions that are
read; today's traces state none."""
LONGEST_NS = 10**9
"""A range of over a second is a corrupt timestamp, which run-iket writes now and then."""
NO_PLACE = -1


_Time = Annotated[int, msgspec.Meta(ge=0, le=2**61)]
_Index = Annotated[int, msgspec.Meta(ge=NO_PLACE, lt=2**31)]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _Place(msgspec.Struct, gc=False, rename="camel"):
    cta_id: Annotated[list[_Number], msgspec.Meta(min_length=3, max_length=3)]
    warp_id: _Number
    sm_id: _Index = NO_PLACE
    tpc_id: _Index = NO_PLACE
    gpc_id: _Index = NO_PLACE


class _Range(msgspec.Struct, gc=False, rename="camel"):
    start_ts: _Time
    end_ts: _Time
    range_name_idx: _Index = -1
    range_name: str = ""
    warp_loc_idxs: list[_Index] = []
    warp_locs: list[_Place] = []


class _Marker(msgspec.Struct, gc=False, rename="camel"):
    timestamp: _Time
    marker_name_idx: _Index = -1
    marker_name: str = ""
    loc_idx: _Index = NO_PLACE
    location: _Place | None = None


class _Life(msgspec.Struct, gc=False, rename="camel"):
    start_ts: _Time
    end_ts: _Time
    loc_idx: _Index = NO_PLACE
    warp_location: _Place | None = None


_RANGES, _MARKERS, _LIVES = (msgspec.json.Decoder(list[kind]) for kind in (_Range, _Marker, _Life))  # type: ignore[valid-type]


def read_trace(source: Source) -> WarpTrace:
    """Read a file of run-iket. Raises `NotAReport` if it is of an unknown version, or holds nothing readable."""
    reading = _Reading(source.name)
    with source.open() as stream:
        document = JsonElements(stream, source.name)
        try:
            reading.document(document)
        except Cut:
            reading.lost["the file ends before its end, or breaks: what is in front was read"] += 1
        reading.lost["{} could not be read"] += document.broken
    return reading.trace()


@dataclass
class _Columns:
    """Records as chunks of columns: launch, place, name, start, end."""

    chunks: list[tuple[Codes, Codes, Codes, Integers, Integers]] = field(default_factory=list)

    def add(self, launch: int, place: list[int], name: list[int], start: list[int], end: list[int]) -> None:
        some = [np.array(one, kind) for one, kind in zip((place, name, start, end), "iiqq", strict=True)]
        self.chunks.append((np.full(len(place), launch, np.int32), *some))  # type: ignore[arg-type]

    def whole(self) -> tuple[Codes, Codes, Codes, Integers, Integers]:
        empty = tuple(np.zeros(0, kind) for kind in "iiiqq")
        parts = self.chunks or [empty]  # type: ignore[list-item]
        whole = tuple(np.concatenate(column) for column in zip(*parts, strict=True))
        self.chunks = []
        return whole  # type: ignore[return-value]


class _Reading:
    """What was read so far. Inline places and names count from -2 down, until `trace` adds them to the tables."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lost: Counter[str] = Counter()
        self._launches: list[TracedLaunch] = []
        self._ranges, self._lives = _Columns(), _Columns()
        self._strings: list[Any] = []
        self._places: list[Any] = []
        self._own_names: dict[str, int] = {}
        self._own_places: dict[tuple[int, ...], int] = {}

    # ------------------------------------------------------------------------------------------------- the document

    def document(self, document: JsonElements) -> None:
        for key in document.members():
            if key == "launches":
                self._launch_list(document, "")
            elif key == "graphLaunches" and document.peek() == "{":
                for graph in document.members():
                    self._launch_list(document, graph)
            elif key == "stringTable":
                self._strings = _list_of(document.value())
            elif key == "locationTable":
                self._places = _list_of(document.value())
            else:
                value = document.value()
                value = value.get("version") if key == "meta" and isinstance(value, dict) else value
                if key in VERSIONS and value not in KNOWN:
                    raise NotAReport(
                        f"{self.name} is of version {value} of run-iket's JSON, which this release cannot read.",
                        "A newer run-iket wrote it.", "Update ncu-bench, or trace with an earlier nvidia-cutlass-dsl.",
                    )  # fmt: skip

    def _launch_list(self, document: JsonElements, graph: str) -> None:
        for _ in document.items():
            number, facts = len(self._launches), {}
            self._launches.append(TracedLaunch("", graph=graph))
            try:
                for key in document.members():
                    if (read := self._readers().get(key)) is not None and document.peek() == "[":
                        read(document, number)
                    else:
                        facts[key] = document.value()
            finally:
                self._launches[number] = _launch(facts, graph)

    def _readers(self) -> dict[str, Callable[[JsonElements, int], None]]:
        return {"ranges": self._read_ranges, "markers": self._read_markers, "warpLifetimes": self._read_lives}

    def _read_ranges(self, document: JsonElements, launch: int) -> None:
        known = unknown = 0
        for batch in document.elements(_RANGES):
            kept = [one for one in batch if one.warp_loc_idxs or one.warp_locs]
            known, unknown = known + len(kept), unknown + len(batch) - len(kept)
            self._ranges.add(
                launch, [self._place_of(one) for one in kept],
                [one.range_name_idx if not one.range_name else self._own_name(one.range_name) for one in kept],
                [one.start_ts for one in kept], [one.end_ts for one in kept],
            )  # fmt: skip
        if not known and (unknown or document.broken):
            raise NotAReport(
                f"{self.name} holds ranges in a form that this release does not know.",
                "They lack startTs, endTs, warpLocIdxs or warpLocs: another version of run-iket wrote them.",
                "Update ncu-bench, or trace with an earlier nvidia-cutlass-dsl.",
            )
        self.lost["{} are on no warp"] += unknown

    def _read_markers(self, document: JsonElements, launch: int) -> None:
        for batch in document.elements(_MARKERS):
            self._ranges.add(
                launch, [one.loc_idx if one.location is None else self._own_place(one.location) for one in batch],
                [one.marker_name_idx if not one.marker_name else self._own_name(one.marker_name) for one in batch],
                [one.timestamp for one in batch], [MISSING] * len(batch),
            )  # fmt: skip

    def _read_lives(self, document: JsonElements, launch: int) -> None:
        for batch in document.elements(_LIVES):
            self._lives.add(
                launch,
                [one.loc_idx if one.warp_location is None else self._own_place(one.warp_location) for one in batch],
                [0] * len(batch), [one.start_ts for one in batch], [one.end_ts for one in batch],
            )  # fmt: skip

    def _place_of(self, one: _Range) -> int:
        """The place of a range; `NO_PLACE` if it begins on one warp and ends on another."""
        if one.warp_locs:
            first, last = one.warp_locs[0], one.warp_locs[-1]
            same = first.cta_id == last.cta_id and first.warp_id == last.warp_id
            return self._own_place(first) if same else NO_PLACE
        first_index, last_index = one.warp_loc_idxs[0], one.warp_loc_idxs[-1]
        return first_index if first_index == last_index else NO_PLACE

    def _own_place(self, place: _Place) -> int:
        key = (*place.cta_id, place.warp_id, place.sm_id, place.tpc_id, place.gpc_id)
        return -2 - self._own_places.setdefault(key, len(self._own_places))

    def _own_name(self, name: str) -> int:
        return -2 - self._own_names.setdefault(name, len(self._own_names))

    # --------------------------------------------------------------------------------------------------- the result

    def trace(self) -> WarpTrace:
        places = self._place_table()
        names = [one if isinstance(one, str) and one else f"name {at}" for at, one in enumerate(self._strings)]
        listed = len(names)
        names += list(self._own_names)
        launch, place, name, start, end = self._ranges.whole()
        name = np.where(name < -1, listed - 2 - name, name)
        place = np.where(place < -1, len(self._places) - 2 - place, place)
        is_marker = end == MISSING
        known = np.append(places[:, 3], 0).astype(np.bool_)[np.where((place < 0) | (place >= len(places)), -1, place)]
        late = ~is_marker & ((end < start) | (end - start > LONGEST_NS))
        kept = np.ones(len(place), np.bool_)
        for what, bad in (
            ("{} begin on one warp and end on another, or on none that the file lists", ~known),
            ("{} have no name that the file lists", (name < 0) | (name >= len(names))),
            ("{} end before they start, or over a second later", late),
        ):
            self.lost[what] += int((kept & bad).sum())
            kept &= ~bad
        if not kept.all():
            launch, place, name = launch[kept], place[kept], name[kept]
            start, end = start[kept], end[kept]
        warps, rows = self._warps(places, launch, place)
        if not len(warps):
            raise NotAReport(
                f"{self.name} holds no range and no warp.", " ".join(self._damage()) or (
                    "Its launches list none, as those of the files that run-iket keeps between its steps."
                    if self._launches else "No instrumented kernel ran."
                ),
                "Read the *.trace.json that run-iket profile --postprocess json writes. Kernels are instrumented when "
                "they are compiled inside of run-iket: clear caches of compiled kernels.",
            )  # fmt: skip
        return WarpTrace(TOOL, self._launches, warps, WarpRanges(rows, name.astype(np.int32), start, end), names,
                         damage=self._damage())  # fmt: skip

    def _damage(self) -> list[str]:
        return [what.format(f"{count:,} ranges") for what, count in self.lost.items() if count]

    def _place_table(self) -> Integers:
        """x, y, z, whether it is known, warp, SM, TPC and GPC of each listed place, then of those written inline."""
        rows = [_place_row(one) for one in self._places] + [
            (*key[:3], 1, *key[3:]) for key in self._own_places
        ]  # fmt: skip
        table = np.array(rows, np.int64).reshape(-1, 8)
        table[:, 5:][table[:, 5:] < 0] = MISSING
        return table

    def _warps(self, places: Integers, launch: Codes, place: Codes) -> tuple[Warps, Codes]:
        """Every warp with a range or a life, and the row of the warp of each range."""
        of_life, at_life, _, begin, end = self._lives.whole()
        at_life = np.where(at_life < -1, len(self._places) - 2 - at_life, at_life)
        alive = (at_life >= 0) & (at_life < len(places)) & (end >= begin)
        of_life, at_life, begin, end = of_life[alive], at_life[alive], begin[alive], end[alive]
        if not len(places):
            return Warps.of([], [], []), np.zeros(0, np.int32)
        # a warp of a block has one number, whatever SM it ran on in other launches
        order, inverse = np.unique(places[:, [0, 1, 2, 4]], axis=0, return_inverse=True)
        used = np.concatenate([place, at_life])
        keys, first, rows = np.unique(
            np.concatenate([launch, of_life]).astype(np.int64) * len(order) + inverse.reshape(-1)[used],
            return_index=True, return_inverse=True,
        )  # fmt: skip
        row_of: Codes = rows.reshape(-1).astype(np.int32)
        of_launch, row = keys // len(order), used[first]
        block = np.zeros(len(keys), np.int64)
        for one in np.unique(of_launch).tolist():
            mine = of_launch == one
            block[mine] = linear_blocks(places[row[mine]][:, :3], self._launches[one].grid)
        life = {"start": np.full(len(keys), MISSING), "end": np.full(len(keys), MISSING)}
        life["start"][row_of[len(launch) :]], life["end"][row_of[len(launch) :]] = begin, end
        sm, tpc, gpc = places[row, 5:].T
        return Warps.of(of_launch, block, places[row, 4], sm=sm, tpc=tpc, gpc=gpc, **life), row_of[: len(launch)]


def _launch(facts: dict[str, Any], graph: str) -> TracedLaunch:
    kernel = facts.get("kernelName")
    named = kernel if isinstance(kernel, str) and kernel else "a kernel without a name"
    return TracedLaunch(named, _sizes(facts, "grid"), _sizes(facts, "block"), graph)


def _sizes(facts: dict[str, Any], of: str) -> tuple[int, ...]:
    """Grid or block in x, y and z; () if one of them is missing."""
    found = tuple(size for axis in "XYZ" if type(size := facts.get(f"{of}Dim{axis}")) is int and 0 < size < 2**31)
    return found if len(found) == 3 else ()


def _place_row(one: Any) -> tuple[int, ...]:
    """x, y, z, 1, warp, SM, TPC, GPC of a listed place; its fourth number is 0 if it is damaged."""
    values = one if isinstance(one, dict) else {}
    block = values.get("ctaId")
    numbers = [*(block if isinstance(block, list) and len(block) == 3 else [None] * 3), values.get("warpId")]
    if not all(type(number) is int and 0 <= number < 2**31 for number in numbers):
        return (0, 0, 0, 0, 0, MISSING, MISSING, MISSING)
    where = [values.get(name) for name in ("smId", "tpcId", "gpcId")]
    return (*numbers[:3], 1, numbers[3], *(one if type(one) is int and 0 <= one < 2**31 else MISSING for one in where))


def _list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
