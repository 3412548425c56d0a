"""Load the recording at a path: a file of nsys or PyTorch's profiler, a run folder, or a table of launches."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from ncu_launch.errors import NcuBenchError, WrongUsage
from ncu_launch.files.run_files import REPORTS

from ncu_tools.runs.loading import on_disk

if TYPE_CHECKING:
    import pyarrow as pa
    from ncu_launch.profilers.sampling.power_readings import PowerReading
    from ncu_parsers.parse.file_kinds import FileKind
    from ncu_parsers.sources.sources import Source
    from ncu_parsers.timelines.activity.activity import Activity, Window
    from ncu_parsers.timelines.activity.names_to_hold import NamesToHold

TIMELINE_FOLDER = "timeline"
"""In a run folder of ncu, the folder with the preceding run of nsys."""


def load_activity(
    path: str,
    reading: Callable[[Source], None] = lambda source: None,
    *,
    trim: Window | None = None,
    whole_names: bool = False,
    named: NamesToHold | None = None,
) -> Activity:
    """Read the recording at `path`.

    For a run folder this is its recording, or its table of launches if it has none. With `trim` (ns since the first
    operation or API call), only that time of nsys's databases is read. Range names lack the numbers of PyTorch's
    `emit_nvtx`, except with `whole_names`. With `named`, ranges of nsys's databases with other names may be left in the
    file, to be looked up. Raises `NcuBenchError` if there is no timeline or it exceeds the memory
    limit, `WrongUsage` if a folder holds several.
    """
    from ncu_parsers.parse.file_kinds import activity_reader_of
    from ncu_parsers.parse.report_files import find_sources
    from ncu_parsers.sources.memory import OPTION, TooBig, limited
    from ncu_parsers.sources.sources import STANDARD_INPUT

    if path != STANDARD_INPUT and path and Path(path).is_dir():
        source = _recording_in(Path(path))
    elif on_disk(path) is not None:
        source = None
    else:
        sources = find_sources([path])
        if len(sources) > 1:
            raise _several_recordings(path, [one.path for one in sources])
        source = sources[0]
    if source is None:
        return _of_launches(path)
    reading(source)
    kind = _timeline_kind(source)
    try:
        with limited():
            if kind is None:
                return _of_launches(source.path)
            read = activity_reader_of(kind)
            return read(source, trim=trim, whole_names=whole_names, named=named) if kind.trims else read(source)
    except TooBig as error:
        can_trim = kind is not None and kind.trims and trim is None and not whole_names
        by_part = "Read a part of it alone: --trim 10s,20s. Or give" if can_trim else "Give"
        raise TooBig(error.what, error.cause, f"{by_part} it more memory: {OPTION} 8GB") from error


def load_power(path: str) -> dict[str, list[PowerReading]]:
    """The power readings of each GPU in a run folder; {} if there are none."""
    from ncu_launch.profilers.sampling.power_readings import read_readings

    folder = Path(path)
    return (read_readings(folder) or read_readings(folder / TIMELINE_FOLDER)) if path and folder.is_dir() else {}


def sampled_timeline_in(run: str) -> Source | None:
    """The recording in a file, or the only one in a run folder; None for anything else."""
    from ncu_parsers.sources.sources import Source

    if not Path(run).is_dir():
        source = Source(run)
        return source if _timeline_kind(source) is not None else None
    try:
        return _recording_in(Path(run))
    except NcuBenchError:
        return None


def is_recording(path: str) -> bool:
    """True if a file is a timeline, or a run folder holds one."""
    from ncu_parsers.sources.sources import Source

    if not Path(path).is_dir():
        return _timeline_kind(Source(path)) is not None
    try:
        return _recording_in(Path(path)) is not None
    except NcuBenchError:
        return False


def _recording_in(folder: Path) -> Source | None:
    """The recording in a folder; None if it has only a table of launches."""
    from ncu_parsers.parse.report_files import has_report_suffix
    from ncu_parsers.sources.nsys_siblings import drop_repeats
    from ncu_parsers.sources.sources import Source

    for files in _files_of(folder):
        named = [str(file) for file in sorted(files) if file.is_file() and has_report_suffix(file)]
        found = [file for file in drop_repeats(named) if _is_recording(file)]
        if len(found) > 1:
            raise _several_recordings(str(folder), found)
        if found:
            return Source(found[0])
    if on_disk(str(folder)) is None:
        raise NcuBenchError(
            f"{folder} holds no timeline.", "It has neither a recording of nsys nor a trace of PyTorch's profiler.",
            "Record one with: ncu-bench profile TARGET --tool nsys",
        )  # fmt: skip
    return None


def _files_of(folder: Path) -> Iterator[Iterable[Path]]:
    """Where a folder may hold its recording, likeliest place first; if it is no run, also below it, as for JAX."""
    for place in (folder / REPORTS, folder, folder / TIMELINE_FOLDER / REPORTS, folder / TIMELINE_FOLDER):
        if place.is_dir():
            yield place.iterdir()
    if on_disk(str(folder)) is None:
        yield folder.rglob("*")


def _is_recording(file: str) -> bool:
    """True for the file of a recording; a JSON file must be a trace, since run folders hold other JSON files."""
    from ncu_parsers.parse.report_files import is_what_its_name_says
    from ncu_parsers.sources.sources import Source

    return _timeline_kind(Source(file)) is not None and is_what_its_name_says(Path(file))


def _timeline_kind(source: Source) -> FileKind | None:
    """The kind of a timeline's file; None for other or unreadable files."""
    from ncu_parsers.parse.file_kinds import kind_of

    try:
        kind = kind_of(source)
    except (NcuBenchError, OSError):
        return None
    return kind if kind is not None and kind.origin else None


def _of_launches(path: str) -> Activity:
    from ncu_parsers.launches.launches_activity import NEEDED, read_launches_activity

    from ncu_tools.runs.loading import load

    run = load(path)
    table = run.read((*NEEDED, "report"))
    if len(together := _recordings_of_one_gpu(table)) > 1:
        raise _several_recordings(path, together)
    return read_launches_activity(run.name, table)


def _recordings_of_one_gpu(table: pa.Table) -> list[str]:
    """The recordings in a table that use the same GPU of a process, so cannot be one timeline; [] if none do."""
    from ncu_parsers.schema import tables

    if not tables.has_column(table, "report"):
        return []
    codes, names = tables.codes(table, "report")
    timed = ~np.isnan(tables.floats(table, "start_ns"))
    gpu = np.stack([np.nan_to_num(tables.floats(table, one), nan=-1) for one in ("process_id", "device_id")])
    of_gpu = np.unique(np.vstack([gpu, codes])[:, timed], axis=1)
    same = (np.diff(of_gpu[:2], axis=1) == 0).all(axis=0)
    found = np.unique(np.concatenate([of_gpu[2, :-1][same], of_gpu[2, 1:][same]])).astype(int).tolist()
    return [str(names[one]) for one in found]


def _several_recordings(path: str, found: list[str]) -> WrongUsage:
    names = ", ".join(Path(one).name for one in found[:4])
    return WrongUsage(
        f"{path} holds {len(found)} recordings: {names}.",
        "A timeline is of one, with all its GPUs.",
        f"Name one of them; of ranks of one run: ncu-bench timeline {shlex.quote(path)} --by kernel",
    )
