"""What a page of several runs says of each: its place in groups of runs, and the devices of its ceilings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import pyarrow as pa
from ncu_launch.files.manifest import Manifest
from ncu_parsers.schema import tables

from ncu_tools.ceilings.ceilings import device_title
from ncu_tools.ceilings.launch_devices import devices_of
from ncu_tools.ceilings.machine_files import Machine

MOST_NAMED = 3
"""Up to that many runs a page is titled by their names."""


def title_of(labels: Sequence[str]) -> str:
    """The title of a page: the names of its runs, or how many they are."""
    return ", ".join(labels) if len(labels) <= MOST_NAMED else f"{len(labels):,} runs"


def distinct(table: pa.Table, column: str) -> str | None:
    """The distinct texts of a column, None if there are none."""
    return ", ".join(dict.fromkeys(filter(None, tables.words(table, column)))) or None


def groups_of_runs(runs: Mapping[str, tuple[pa.Table, Manifest | None]]) -> list[dict[str, Any]]:
    """The ways to group the runs, by device, folder and model, each with the name of every run's group; None: unknown.

    Ways that tell no two runs apart are left out.
    """
    ways: dict[str, list[str | None]] = {
        "device": [distinct(table, "device_name") for table, _ in runs.values()],
        "folder": [str(PurePath(name).parent) for name in runs],
        "model": [_model(manifest) for _, manifest in runs.values()],
    }
    return [{"title": title, "of": of_runs} for title, of_runs in ways.items() if len(set(of_runs)) > 1]


def _model(manifest: Manifest | None) -> str | None:
    target = manifest.workload.get("target") if manifest else None
    return target if isinstance(target, str) else None


def devices_with_ceilings(table: pa.Table, machine: Machine | None) -> list[str]:
    """The names under which the ceilings of a run's devices are shown."""
    devices = devices_of(table)
    return [device_title(device, devices, machine) for device in devices]
