"""The contents of a roofline picture as plain data: marks, ceilings, arrows and notes, without pixels.

The picture, the JSON of `ncu-bench roofline --format json` (key `scene`) and the HTML report are views of one `Scene`,
so a picture can be drawn again from its JSON without the run. Values are in base units: FLOP/s (OP/s for integers),
B/s, ns, FLOP per byte. None is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_launch.files.typed_json import record_of

from ncu_tools.ceilings.machine_files import DRAM, MEMORY_LEVELS

SCENE_VERSION = 1
"""History: 1 (2026-11) the first."""

LEVELS = (*MEMORY_LEVELS, "shared")
"""Memory levels from the farthest to the nearest."""

KERNELS, LAUNCHES, OPERATORS, MODULES, PHASES, RUNS = "kernels", "launches", "operators", "modules", "phases", "runs"
VIEWS = (KERNELS, LAUNCHES, OPERATORS, MODULES, PHASES, RUNS)
"""Kinds of points of the plot."""

AUTO, DENSE, SPARSE, ALL = "auto", "dense", "sparse", "all"
CEILINGS = (AUTO, DENSE, SPARSE, ALL)
"""Choices of ceilings to draw."""

FLOPS, INSTRUCTIONS = "FLOP", "inst"
"""What marks count: FLOPs per byte, or warp instructions per transaction."""


def axis_titles(value_units: Set[str], *, achieved: bool) -> tuple[str, str]:
    """The title of the vertical axis, and the counted quantity of the horizontal one, by the units of drawn ceilings.

    `achieved` is True if there are marks, which count FLOPs; peaks of integer units are in OP/s.
    """
    if "OP/s" not in value_units:
        return ("achieved " if achieved else "") + "FLOP/s", "FLOP"
    if not achieved and "FLOP/s" not in value_units:
        return "OP/s of integers", "OP of integers"
    return ("achieved " if achieved else "") + "FLOP/s, OP/s of integers", "FLOP, OP of integers"


def short_names(runs: Sequence[str]) -> list[str]:
    """Short names of runs: the shortest ends of their paths that differ."""
    return [_shortest_end(run, [*runs[:place], *runs[place + 1 :]]) for place, run in enumerate(runs)]


def _shortest_end(run: str, others: Sequence[str]) -> str:
    """The last parts of a path that differ from all others; the whole path (a URL with its scheme) if none do."""
    parts = PurePath(run).parts
    ends = [PurePath(other).parts for other in others]
    for length in range(1, len(parts)):
        if all(parts[-length:] != other[-length:] for other in ends):
            return str(PurePath(*parts[-length:]))
    return run


@dataclass(frozen=True)
class LevelPlace:
    """An intensity at one memory level: FLOP per byte of that level, or warp instructions per transaction."""

    level: str
    intensity: float


@dataclass(frozen=True)
class Mark:
    """One point of the plot with a position per memory level: a kernel, launch, module, phase or whole run.

    `name` is the full name and `label` a short one. `run` is an index into `Scene.runs`. `weight` is its time as a
    share of the time of the longest run, shown as the area of the marker; `time_share` is its share of its own run.
    `unit` did most of its FLOPs. `lower_bound` is True if some of its FLOPs were not collected,
    `estimated` if some follow from shapes and were not counted.
    """

    name: str
    label: str
    run: int
    flops_per_s: float
    places: tuple[LevelPlace, ...]
    weight: float
    time_ns: float | None = None
    time_share: float | None = None
    launches: int | None = None
    unit: str | None = None
    bound: str | None = None
    bound_fraction: float | None = None
    lower_bound: bool = False
    estimated: bool = False

    @property
    def is_open(self) -> bool:
        """True if it is drawn hollow, since its FLOPs are not a complete count."""
        return self.lower_bound or self.estimated


@dataclass(frozen=True)
class SceneRun:
    """One run: its path or name, its label in the plot, its time, and its device if it has only one."""

    name: str
    label: str
    time_ns: float | None = None
    device: str | None = None
    model: str | None = None


@dataclass(frozen=True)
class DrawnCeiling:
    """One drawn ceiling: slanted for a bandwidth, flat for a peak. `label` is its text.

    `kind` is the clock at which it holds ("profiled clock", "board limit"), "data sheet", "measured" or "measured
    quickly". `instruction` is the tensor instruction it applies to, "" for all.
    """

    device: str
    unit: str
    value: float
    value_unit: str
    label: str
    kind: str
    source: str
    sparse: bool = False
    instruction: str = ""

    @property
    def is_bandwidth(self) -> bool:
        """True for the rate of a memory level, False for a peak."""
        return self.value_unit in ("byte/s", "transaction/s")


@dataclass(frozen=True)
class RidgePoint:
    """Ridge point of a bandwidth and a peak of one device: `intensity` in FLOP/B, `value` in FLOP/s (OP of integers).

    The bandwidth is DRAM's, or that of the only memory level shown.
    """

    device: str
    unit: str
    intensity: float
    value: float


@dataclass(frozen=True)
class Arrow:
    """From one mark to another, by their indices in `Scene.marks`: the same item in one run and in the next."""

    start: int
    end: int


@dataclass(frozen=True)
class Density:
    """The number of launches in each cell of a grid that is even in both logarithms.

    `x` and `y` are the decimal logarithms of the grid's ends in FLOP/B and FLOP/s. `cells` are (column, row, launches),
    columns counted from low intensity, rows from low performance; missing cells are empty.
    """

    x: tuple[float, float]
    y: tuple[float, float]
    columns: int
    rows: int
    cells: tuple[tuple[int, int, int], ...]


@dataclass
class Scene:
    """Everything that one roofline picture shows.

    `marks` are sorted by time, the longest first. With a `density` the launches are drawn as such, and the marks only
    show the means of kernels. `bytes_by_level` names the bytes of each level shown, `view` is one of `VIEWS`, and
    `time_title` the title of times, such as "self CPU" for operators. In the view of kernels a mark is called `noun`,
    such as "category". Marks count `work`, one of `FLOPS` and `INSTRUCTIONS`: with the latter `Mark.flops_per_s` are
    warp instructions per second, and every byte is a transaction.
    """

    view: str = KERNELS
    title: str = ""
    x_title: str = "arithmetic intensity (FLOP per DRAM byte)"
    levels: tuple[str, ...] = (DRAM,)
    bytes_by_level: dict[str, str] = field(default_factory=dict)
    runs: list[SceneRun] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    not_drawn: int = 0
    roofs: list[DrawnCeiling] = field(default_factory=list)
    ridges: list[RidgePoint] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    density: Density | None = None
    time_title: str = "time"
    work: str = FLOPS
    noun: str = "kernel"

    @property
    def intensity_unit(self) -> str:
        """The unit of the horizontal axis, in short form."""
        return "FLOP/B" if self.work == FLOPS else "inst/transaction"

    @property
    def rate_title(self) -> str:
        """The title of the vertical axis."""
        if self.work == INSTRUCTIONS:
            return "warp instructions/s"
        return axis_titles({roof.value_unit for roof in self.roofs}, achieved=bool(self.runs))[0]

    def as_json(self) -> dict[str, Any]:
        """The scene in JSON's types."""
        return {"version": SCENE_VERSION, **asdict(self)}


def scene_from_json(document: Mapping[str, Any]) -> Scene:
    """The scene from the result of `Scene.as_json`.

    Raises `NcuBenchError` if the document is not a scene, is incomplete, or has a newer version.
    """
    version = document.get("version")
    if not isinstance(version, int) or version > SCENE_VERSION:
        raise NcuBenchError(
            f"The scene is of version {version}; this ncu-bench knows versions up to {SCENE_VERSION}.",
            advice="Update ncu-bench, or make the JSON again: ncu-bench roofline RUN --format json",
        )
    try:
        return _scene(document)
    except (KeyError, TypeError, ValueError) as error:
        raise NcuBenchError(
            f"The scene is not whole: {error}.",
            "Its JSON was cut or edited.",
            "Make it again: ncu-bench roofline RUN --format json",
        ) from error


def _scene(document: Mapping[str, Any]) -> Scene:
    density = document["density"]
    runs = [record_of(SceneRun, entry) for entry in document["runs"]]
    return Scene(
        view=str(document["view"]),
        title=str(document["title"]),
        x_title=str(document["x_title"]),
        levels=tuple(document["levels"]),
        bytes_by_level=dict(document["bytes_by_level"]),
        runs=runs,
        marks=[_mark(entry, runs) for entry in document["marks"]],
        not_drawn=int(document["not_drawn"]),
        roofs=[record_of(DrawnCeiling, entry) for entry in document["roofs"]],
        ridges=[record_of(RidgePoint, entry) for entry in document["ridges"]],
        arrows=[_arrow(entry, len(document["marks"])) for entry in document["arrows"]],
        density=None if density is None else _density(density),
        time_title=str(document.get("time_title", "time")),
        work=str(document.get("work", FLOPS)),
        noun=str(document.get("noun", "kernel")),
    )


def _mark(entry: Mapping[str, Any], runs: Sequence[SceneRun]) -> Mark:
    places = tuple(record_of(LevelPlace, place) for place in entry["places"])
    mark = record_of(Mark, {**entry, "places": places})
    if not 0 <= mark.run < len(runs):
        raise ValueError(f"a mark is of run {mark.run}, of {len(runs)}")
    return mark


def _arrow(entry: dict[str, Any], marks: int) -> Arrow:
    arrow = record_of(Arrow, entry)
    if not (0 <= arrow.start < marks and 0 <= arrow.end < marks):
        raise ValueError(f"an arrow goes from mark {arrow.start} to {arrow.end}, of {marks}")
    return arrow


def _density(entry: Mapping[str, Any]) -> Density:
    cells = tuple((int(column), int(row), int(launches)) for column, row, launches in entry["cells"])
    low_x, high_x = entry["x"]
    low_y, high_y = entry["y"]
    values = {"x": (low_x, high_x), "y": (low_y, high_y), "cells": cells}
    return record_of(Density, {"columns": entry["columns"], "rows": entry["rows"], **values})
