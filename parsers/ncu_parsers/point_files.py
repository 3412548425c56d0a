"""Results of NVBench (`--json`) and pytest-benchmark (`--benchmark-json`) as points: a mean time and its variance.

Sources of both formats: https://github.com/NVIDIA/nvbench (json_printer.cu: devices, benchmarks, states with axis
values and summaries; since JSON version 1 summaries have tags, and numbers are texts) and
https://pytest-benchmark.readthedocs.io (machine_info, commit_info, benchmarks with statistics in seconds).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_launch.files.typed_json import UNREADABLE

PYTEST, NVBENCH = "pytest-benchmark", "NVBench"
WORDS = (b'"machine_info"', b'"sm_version"', b'"nvbench"')
"""A file of points contains one of these in its first `HEAD` bytes."""
HEAD = 1 << 16
LARGEST = 1 << 28
"""Largest file of points that is read, in bytes."""
UNVERSIONED = "unversioned"
"""Commit id that pytest-benchmark writes outside a repository."""
NS_PER_S = 1e9
TIMES = (
    "nv/cold/time/gpu/mean", "nv/batch/time/gpu/mean", "nv/cold/time/cpu/mean", "nv/cpu_only/time/cpu/mean",
    "Average GPU Time (Cold)", "Average GPU Time (Batch)", "Average CPU Time (Cold)",
)  # fmt: skip
"""NVBench summaries with the mean time of a state in s, by tag or (older releases) name; the first positive one is
used."""
DEVIATIONS = ("nv/cold/time/gpu/stdev/relative", "GPU Relative Standard Deviation (Cold)")
SAMPLES = ("nv/cold/sample_size", "Number of Trials (Cold)")
"""NVBench summaries with the relative standard deviation (a fraction) and the number of cold samples."""


@dataclass(frozen=True)
class MeasuredTime:
    """A point: its name, its mean time in ns, and the variance of that mean in ns^2 (NaN if unknown)."""

    name: str
    time_ns: float
    variance: float = math.nan


@dataclass
class PointFile:
    """The points of a file and the conditions of the run; "" for a text that the file does not have.

    `tool` is `PYTEST` or `NVBENCH`. `commit` is an id; `committed` and `measured` are dates in ISO 8601. `conditions`
    maps names ("machine", "GPU") to texts.
    """

    tool: str
    points: list[MeasuredTime]
    commit: str = ""
    committed: str = ""
    measured: str = ""
    conditions: dict[str, str] = field(default_factory=dict)


def is_point_file(path: Path) -> bool:
    """True for a JSON file that begins as one of these programs writes it."""
    if path.suffix.lower() != ".json":
        return False
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD)
    except OSError:
        return False
    return head.lstrip().startswith(b"{") and any(word in head for word in WORDS)


def read_points(path: Path) -> PointFile:
    """Read a file of points. Raises `NcuBenchError` if it is damaged, too large, or holds no measured time."""
    try:
        if path.stat().st_size > LARGEST:
            raise NcuBenchError(f"{path} is too large for a file of measured points: more than {LARGEST >> 20} MB.")
        values = json.loads(path.read_bytes())
    except (OSError, *UNREADABLE) as error:
        raise NcuBenchError(
            f"{path} could not be read as JSON: {error}.", "It may be cut.", "Measure again."
        ) from error
    root = values if isinstance(values, dict) else {}
    found = _of_pytest(root) if "machine_info" in root else _of_nvbench(root)
    if not found.points:
        raise NcuBenchError(f"{path} holds no measured time.", "Every benchmark in it was skipped, or has no times.")
    return found


def _of_pytest(root: Mapping[str, Any]) -> PointFile:
    machine, commit = _object(root.get("machine_info")), _object(root.get("commit_info"))
    known = "" if commit.get("id") == UNVERSIONED else _text(commit.get("id"))
    points = []
    for one in _objects(root.get("benchmarks")):
        stats = _object(one.get("stats"))
        mean, deviation = (_number(_number(stats.get(name)) * NS_PER_S) for name in ("mean", "stddev"))
        if mean > 0:
            variance = _variance_of_mean(deviation, _number(stats.get("rounds")))
            points.append(MeasuredTime(_text(one.get("fullname")) or _text(one.get("name")), mean, variance))
    conditions = {
        "machine": _text(_object(machine.get("cpu")).get("brand_raw")) or _text(machine.get("processor")),
        "host": _text(machine.get("node")),
        "version of Python": _text(machine.get("python_version")),
    }
    dates = _text(commit.get("time")), _text(root.get("datetime"))
    return PointFile(PYTEST, points, known, *dates, _known(conditions))


def _of_nvbench(root: Mapping[str, Any]) -> PointFile:
    names = {str(one.get("id")): _text(one.get("name")) for one in _objects(root.get("devices"))}
    used: dict[str, None] = {}
    points = []
    for benchmark in _objects(root.get("benchmarks")):
        for state in _objects(benchmark.get("states")):
            found = _summaries(state.get("summaries"))
            time = _number(next((found[tag] for tag in TIMES if found.get(tag, 0.0) > 0), 0.0) * NS_PER_S)
            if time > 0 and not state.get("is_skipped"):
                device = names.get(str(state.get("device")), "")
                used[device] = None
                axes = [f"{one.get('name')}={one.get('value')}" for one in _objects(state.get("axis_values"))]
                name = " ".join([_text(benchmark.get("name")), *axes, *([f"on {device}"] if len(names) > 1 else [])])
                points.append(MeasuredTime(name, time, _variance(found, time)))
    version = _object(_object(_object(root.get("meta")).get("version")).get("nvbench")).get("string")
    conditions = {"GPU": ", ".join(filter(None, used)), "version of NVBench": _text(version)}
    return PointFile(NVBENCH, points, conditions=_known(conditions))


def _summaries(values: Any) -> dict[str, float]:
    """Tag (name in older releases) -> value of each summary that has one; NaN if it is no number."""
    if isinstance(values, dict):
        named = [(name, _object(one).get("values")) for name, one in values.items()]
    else:
        named = [(_text(one.get("tag")), one.get("data")) for one in _objects(values)]
    found = {}
    for name, data in named:
        for one in _objects(data):
            if one.get("name") == "value":
                found[name] = _number(one.get("value"))
    return found


def _variance(found: Mapping[str, float], time: float) -> float:
    """The variance in ns^2 of a mean of `time` ns, from the cold samples; NaN if unknown."""
    deviation, samples = (
        next((found[tag] for tag in tags if tag in found), math.nan) for tags in (DEVIATIONS, SAMPLES)
    )
    return _variance_of_mean(deviation * time, samples)


def _variance_of_mean(deviation: float, count: float) -> float:
    """The variance of the mean of `count` samples; NaN if unknown or not finite."""
    return _number(deviation * deviation / count) if count > 1 else math.nan


# ----------------------------------------------------------------------------------------------------- untrusted JSON


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    return (one for one in value if isinstance(one, dict)) if isinstance(value, Sequence) else iter(())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float:
    """A finite number, also written as text; NaN for anything else."""
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def _known(conditions: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in conditions.items() if text}
