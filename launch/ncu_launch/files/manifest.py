"""manifest.json of a run folder: what was requested and what ran. Read by everything that comes after collection."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ncu_launch.errors import NcuBenchError
from ncu_launch.files.atomic_files import write_whole
from ncu_launch.files.run_files import MANIFEST
from ncu_launch.files.typed_json import UNREADABLE, record_of

SCHEMA_VERSION = 1


class DamagedManifest(NcuBenchError, ValueError):
    """The manifest cannot be read, or has a newer schema version than this release supports."""


@dataclass
class ToolRun:
    """One executed command: its arguments, how it ended, its duration.

    `log` and `report` are the files that it wrote to logs/ and reports/ ("" if none); `kind` names the counters that it
    collected, `passes` is the expected number of passes per kernel, None if unknown. `ended_for` is the reason why
    ncu-bench ended it; "" if it ended by itself.
    """

    command: list[str]
    exit_code: int
    seconds: float
    timed_out: bool = False
    interrupted: bool = False
    log: str = "output.txt"
    report: str = ""
    kind: str = ""
    passes: int | None = None
    ended_for: str = ""

    @property
    def succeeded(self) -> bool:
        """True if the command exited with code 0 and was neither timed out nor interrupted."""
        return self.exit_code == 0 and not self.timed_out and not self.interrupted

    @property
    def why_ended(self) -> str:
        """The note on a command that ncu-bench ended; "" for a command that ended by itself."""
        return f"ended because {self.ended_for}" if self.ended_for else ""


@dataclass
class Manifest:
    """All information needed to interpret and reproduce a run's numbers.

    `source` is the tool: ncu, nsys, operators or pytorch; none for a rank without a tool, bench for a sweep. `plan`
    explains why there is one run of ncu or two, `expected` sums up the model's expected work. `partial`: the run ended
    early, or a sweep has not ended. `place`: the rank (or host and processes) of this part of a distributed run;
    `ranks`: how each rank ended, in the manifest of the whole run. `sampled`: power, clocks and activity of each GPU
    while the program ran, by its index. `commit` is the commit checked out where the run was started, `committed` its
    date (ISO 8601); both "" outside of a repository.
    """

    asked: list[str]
    source: str
    started: str
    workload: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    metrics: list[str] = field(default_factory=list)
    tool_runs: list[ToolRun] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    gpus: list[dict[str, Any]] = field(default_factory=list)
    chip: str | None = None
    plan: str | None = None
    expected: dict[str, Any] = field(default_factory=dict)
    place: dict[str, Any] = field(default_factory=dict)
    ranks: list[dict[str, Any]] = field(default_factory=list)
    clock_control: str | None = None
    cache_control: str | None = None
    replay_mode: str | None = None
    partial: bool = False
    notes: list[str] = field(default_factory=list)
    schema_version: int = SCHEMA_VERSION
    sampled: dict[str, dict[str, Any]] = field(default_factory=dict)
    commit: str = ""
    committed: str = ""


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Write the manifest to a run folder, atomically."""
    text = json.dumps(asdict(manifest), indent=1, ensure_ascii=False) + "\n"
    write_whole(folder / MANIFEST, text.encode("utf-8", "replace"))


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a run folder.

    Raises `OSError` if there is none, `DamagedManifest` (a `ValueError`) if it cannot be used.
    """
    path = folder / MANIFEST
    try:
        values = json.loads(path.read_text("utf-8"))
        version = values.get("schema_version", 0) if isinstance(values, dict) else 0
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise DamagedManifest(f"{path} follows a newer schema than this ncu-bench knows.", "", "Update ncu-bench.")
        runs = values.pop("tool_runs", []) if isinstance(values, dict) else []
        return record_of(Manifest, {**values, "tool_runs": [record_of(ToolRun, run) for run in runs]})
    except UNREADABLE as error:
        if isinstance(error, DamagedManifest):
            raise
        raise DamagedManifest(
            f"{path} could not be read: {error}.", "It was changed by hand, or damaged.", "Make the run again."
        ) from error


def manifest_in(folder: Path) -> Manifest | None:
    """The manifest of a run folder; None if there is none, or it cannot be used."""
    try:
        return read_manifest(folder)
    except (OSError, ValueError, TypeError):
        return None


def folder_of(path: str) -> Path:
    """The run folder named by a path, or containing the named file."""
    return Path(path) if Path(path).is_dir() else Path(path).parent
