"""Build the scene of a roofline: each point a mark with a position per memory level, arrows between runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from ncu_parsers.schema.flops_basis import BETWEEN_BASES
from ncu_parsers.schema.tables import SHAPES_BASIS

from ncu_tools.ceilings.ceilings import unit_title
from ncu_tools.ceilings.machine_files import DRAM
from ncu_tools.kernels.grouping import UNKNOWN_DEVICE
from ncu_tools.kernels.kernel_row import names_shown
from ncu_tools.kernels.names.kernel_name_spelling import normalised_name
from ncu_tools.roofline.drawn_ceilings import drawn_ceilings, ridge_points
from ncu_tools.roofline.roofline import Point, Roofline
from ncu_tools.roofline.scene import (
    AUTO,
    KERNELS,
    LAUNCHES,
    RUNS,
    Arrow,
    LevelPlace,
    Mark,
    Scene,
    SceneRun,
    axis_titles,
    short_names,
)

MOST_ARROWS = 30
"""Most arrows; pairs with the longest time come first."""

MARKS_OF_A_DENSITY = 12


def scene_of(
    result: Roofline,
    *,
    title: str = "",
    ceilings: str = AUTO,
    units: Sequence[str] = (),
    labels: Sequence[str] = (),
    models: Mapping[str, str] | None = None,
    arrows: bool = False,
) -> Scene:
    """Build the scene of a roofline.

    `ceilings` is one of `scene.CEILINGS`, `units` the compute units whose ceilings are drawn instead of the points'
    own. `labels` name the runs in order. `models` maps runs to models: with `arrows`, whole runs are joined with the
    next of the same model, and anything else with its counterpart in the next run. Raises `WrongUsage` if one of
    `units` has no ceiling.
    """
    runs = _labelled(result.runs, labels, models or {})
    points = sorted(result.points, key=lambda point: -(point.hotspot.time_total_ns or 0.0))
    marks = _marks(points, runs, result)
    if result.density is not None:
        marks = marks[:MARKS_OF_A_DENSITY]
    drawn = drawn_ceilings(result, ceilings, units)
    return Scene(
        view=result.view,
        title=title,
        x_title=_x_title(result, axis_titles({roof.value_unit for roof in drawn}, achieved=bool(runs))[1]),
        levels=result.levels,
        bytes_by_level=result.bytes_by_level,
        runs=runs,
        marks=marks,
        not_drawn=0 if result.density else len(points) - len(marks),
        roofs=drawn,
        ridges=ridge_points(drawn, result.levels[0] if len(result.levels) == 1 else DRAM),
        arrows=_arrows(marks, runs, result) if arrows else [],
        density=result.density,
        time_title=result.time_title,
        noun=result.noun if result.view == KERNELS else Scene.noun,
    )


def _labelled(runs: Sequence[SceneRun], labels: Sequence[str], models: Mapping[str, str]) -> list[SceneRun]:
    texts = [*labels, *short_names([run.name for run in runs])[len(labels) :]]
    return [replace(run, label=text, model=models.get(run.name)) for run, text in zip(runs, texts, strict=True)]


def _x_title(result: Roofline, work: str) -> str:
    if result.levels == (DRAM,):
        return f"arithmetic intensity ({work} per {result.bytes_title})"
    if len(result.levels) == 1:
        (level,) = result.levels
        return f"arithmetic intensity ({work} per {unit_title(level)} byte: {result.bytes_by_level[level]})"
    return f"arithmetic intensity ({work} per byte of each memory level)"


# ----------------------------------------------------------------------------------------------------------- marks


def _marks(points: Sequence[Point], runs: Sequence[SceneRun], result: Roofline) -> list[Mark]:
    number = {run.name: place for place, run in enumerate(runs)}
    longest, labels = longest_time(points, runs), _labels(points, runs, result)
    return [
        replace(_mark(point, places, number[point.run], longest, labels[point.hotspot.kernel] + apart), name=name)
        for point, name in zip(points, names_of(points), strict=True)
        for apart in [name.removeprefix(point.hotspot.kernel)]  # the device, if a kernel ran on several
        if (places := _places(point)) and point.hotspot.flops_per_s
    ]


def _labels(points: Sequence[Point], runs: Sequence[SceneRun], result: Roofline) -> dict[str, str]:
    """The name of each point -> a unique short one for kernels, the whole path for modules."""
    if result.view == RUNS:
        return {run.name: run.label for run in runs}
    group = result.group if result.view in (KERNELS, LAUNCHES) else result.view
    return names_shown([point.hotspot.kernel for point in points], group)


def names_of(points: Sequence[Point]) -> list[str]:
    """The name of each point, followed by the device if a run has the same kernel on several."""
    often = Counter((point.run, point.hotspot.kernel) for point in points)
    return [
        spot.kernel if often[point.run, spot.kernel] == 1 else f"{spot.kernel} on {spot.device or UNKNOWN_DEVICE}"
        for point in points
        for spot in [point.hotspot]
    ]


def longest_time(points: Sequence[Point], runs: Sequence[SceneRun]) -> float:
    """The time of the longest run in ns, the reference for weights of marks; 0 if unknown."""
    return max((run.time_ns or _known_time(points, run) for run in runs), default=0.0)


def weight_of(time_ns: float | None, longest: float) -> float:
    """The time of a mark as a share of the longest run's; 0 if unknown."""
    return (time_ns or 0.0) / longest if longest else 0.0


def _known_time(points: Sequence[Point], run: SceneRun) -> float:
    """The sum of the known times of a run's points."""
    return sum(point.hotspot.time_total_ns or 0.0 for point in points if point.run == run.name)


def _places(point: Point) -> tuple[LevelPlace, ...]:
    if point.places:
        return point.places
    return (LevelPlace(DRAM, point.place[0]),) if point.place[0] > 0 else ()


def _mark(point: Point, places: tuple[LevelPlace, ...], run: int, longest: float, label: str) -> Mark:
    spot = point.hotspot
    return Mark(
        name=spot.kernel,
        label=label,
        run=run,
        flops_per_s=spot.flops_per_s or 0.0,
        places=places,
        weight=weight_of(spot.time_total_ns, longest),
        time_ns=spot.time_total_ns,
        time_share=spot.time_share,
        launches=spot.launches,
        unit=spot.unit,
        bound=spot.bound,
        bound_fraction=spot.bound_fraction,
        lower_bound=spot.flops_lower_bound,
        estimated=SHAPES_BASIS in (spot.flops_basis or "").split(BETWEEN_BASES),
    )


# ---------------------------------------------------------------------------------------------------------- arrows


def _arrows(marks: Sequence[Mark], runs: Sequence[SceneRun], result: Roofline) -> list[Arrow]:
    """Arrows from each mark to its counterpart in the next run, those with the longest time."""
    if result.view == RUNS:
        return _between_runs(marks, runs)
    spelt = normalised_name if result.view == KERNELS else str  # another version of ncu writes `float const *`
    place = {(mark.run, spelt(mark.name)): number for number, mark in enumerate(marks)}
    found = []
    for end, mark in enumerate(marks):
        was = result.followed.get((runs[mark.run].name, mark.name), mark.name)
        start = place.get((mark.run - 1, spelt(was)))
        if start is not None:
            found.append(Arrow(start, end))
    return found[:MOST_ARROWS]


def _between_runs(marks: Sequence[Mark], runs: Sequence[SceneRun]) -> list[Arrow]:
    """Arrows between the runs of each model on a device in order; runs without a known model count as one model."""
    of_run = {mark.run: number for number, mark in enumerate(marks)}
    chains: dict[tuple[str | None, str | None], list[int]] = {}
    for number, run in enumerate(runs):
        if number in of_run:
            chains.setdefault((run.model, run.device), []).append(of_run[number])
    return [
        Arrow(start, end) for chain in chains.values() for start, end in pairwise(chain)
    ]  # fmt: skip
