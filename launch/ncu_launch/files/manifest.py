"""What was asked and what ran: manifest.json of a run folder. The contract between collecting and everything after."""

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
    """The manifest of a run folder cannot be read, or follows a newer schema than this release knows."""


@dataclass
class ToolRun:
    """One command that was run: its arguments, how it ended, how long it took.

    `log` and `report` are the files in logs/ and reports/ that it wrote; `kind` says which counters it collected, and
    `passes` how often ncu was expected to run each kernel.
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

    @property
    def ended_well(self) -> bool:
        """Whether it ran to its end and says that it did what it should."""
        return self.exit_code == 0 and not self.timed_out and not self.interrupted


@dataclass
class Manifest:
    """Everything needed to know what a run's numbers mean, and to make them again.

    `source` is how the numbers were got: ncu, nsys or operators. `plan` says why there is one run of ncu or two,
    `expected` sums up what the model should do. `partial` says that the run ended early. `place` is which rank of a
    distributed run it was, or on which host with which processes; `ranks` how each rank of one ended.
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


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Write the manifest into a run folder, whole or not at all."""
    text = json.dumps(asdict(manifest), indent=1, ensure_ascii=False) + "\n"
    write_whole(folder / MANIFEST, text.encode("utf-8", "replace"))


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a run folder.

    Raises `OSError` when there is none and `DamagedManifest`, which is a `ValueError`, when it cannot be used.
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
