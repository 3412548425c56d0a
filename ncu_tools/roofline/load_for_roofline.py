"""Load runs for a roofline: only the drawn columns of a Parquet file, and the model of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
from ncu_launch.counters import metrics as known
from ncu_launch.errors import NcuBenchError
from ncu_launch.files.manifest import manifest_in
from ncu_launch.files.typed_json import UNREADABLE
from ncu_parsers.datasets.engine import Engine
from ncu_parsers.schema.vendors import VENDOR_COLUMN
from ncu_parsers.sources.settings import NOT_SET, Settings
from ncu_parsers.sources.sources import Source

from ncu_tools.ceilings import levels
from ncu_tools.ceilings.ceilings import PEAK_COLUMNS
from ncu_tools.ceilings.machine_files import DRAM, Machine
from ncu_tools.roofline import density
from ncu_tools.roofline.point_sums import Points, points_of
from ncu_tools.roofline.roofline import Look
from ncu_tools.roofline.scene import LAUNCHES
from ncu_tools.runs import loading, partition_sums
from ncu_tools.runs.run import notes_in
from ncu_tools.runs.selection import Selection

SCENE_KEY = "scene"


@dataclass
class Loaded:
    """One run: the needed columns of its launches, and its points if summed without loading launches.

    `model` is the model that it ran, None if unknown. `is_sampled`: whether a GPU was sampled meanwhile.
    """

    name: str
    table: pa.Table
    notes: list[str] = field(default_factory=list)
    points: Points | None = None
    model: str | None = None
    is_sampled: bool = False


def load_for(
    path: str,
    look: Look,
    machine: Machine | None,
    *,
    reading: Callable[[Source], None] = lambda source: None,
    engine: Engine | None = None,
    only: Selection | None = None,
    settings: Settings = NOT_SET,
    inductor: str = "",
) -> Loaded:
    """Load the run that `path` names: its points, and only the columns that `look` needs.

    With `only`, all columns of the selected launches are read, as with `inductor`, the file with lines of generated
    kernels. Kernels come from their cache beside the launches if there is one. Raises `NcuBenchError` as
    `loading.load`.
    """
    run = loading.load(path, reading=reading, engine=engine, settings=settings)
    if only is not None:
        run = only.of(run)
    if inductor:
        run = loading.with_compiled_lines(run, inductor)
    there = run.contents()
    rows = there.rows
    summed = look.view != LAUNCHES or rows >= density.DENSE_FROM
    wanted = _columns(there.filled, look, summed=summed)
    # Summed launches are only needed for ceilings, which are medians.
    table = run.in_parts(wanted, partial(density.thinned, of=rows)) if summed else run.read(wanted)
    notes = [*(run.told or notes_in(table))]
    points = points_of(run, machine, look) if summed else None
    if points is not None:  # notes on reading the run appear once, after the notes on its points
        points.spots.notes = [note for note in points.spots.notes if note not in notes]
    if summed and len(table) < rows:
        notes.append(f"{run.name}: ceilings are medians of {len(table):,} of its {rows:,} launches, evenly taken")
    return Loaded(run.name, table, notes, points, is_sampled="sampled_samples" in there.filled)


def _columns(filled: Sequence[str], look: Look, *, summed: bool) -> list[str]:
    """The columns to read; columns without any value would only take time."""
    wanted = {"source", "duration_ns", VENDOR_COLUMN}
    if not summed:
        wanted |= {*partition_sums.OF_SUMS}
    by_level = look.levels != (DRAM,) or not summed
    if by_level:
        wanted |= {*levels.COLUMNS.values()}
    wanted |= {ceiling.metric for ceiling in known.ceilings()} | partition_sums.OF_CEILINGS
    wanted |= {*PEAK_COLUMNS.values(), "dram_clock_hz"}
    others = levels.needed_metrics() if by_level else ()
    return [
        name
        for name in filled
        if name in wanted or name in others or name.startswith(partition_sums.DEVICE_PREFIXES) or name == "failed"
    ]


def model_of(path: str) -> str | None:
    """The model of a run folder by its manifest; None if unknown."""
    manifest = manifest_in(Path(path))
    target = manifest.workload.get("target") if manifest else None
    return target if isinstance(target, str) else None


def read_roofline_json(path: str) -> dict[str, object] | None:
    """The parsed file if `path` was written by `ncu-bench roofline --format json`; None for any other file.

    Raises `NcuBenchError` if the file is damaged or has no scene.
    """
    file = Path(path)
    if file.suffix.lower() != ".json" or not file.is_file():
        return None
    with file.open("rb") as stream:
        start = stream.read(200)
    if b'"command": "roofline"' not in start:
        return None
    try:
        document = json.loads(file.read_text("utf-8"))
    except UNREADABLE as error:
        raise NcuBenchError(
            f"{path} begins like a roofline and is no JSON: {error}.",
            "It may be cut.",
            "Make it again: ncu-bench roofline RUN --format json",
        ) from error
    if not isinstance(document, dict) or not isinstance(document.get(SCENE_KEY), dict):
        raise NcuBenchError(
            f"{path} holds a roofline without the scene of its picture.",
            "An older ncu-bench made it.",
            "Make it again: ncu-bench roofline RUN --format json",
        )
    return document
