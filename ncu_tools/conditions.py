"""Under which conditions a run was made, and which of them keep two runs from being compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from ncu_launch.manifest import Manifest
from ncu_parsers import tables
from ncu_parsers.tables import table_metadata

REFUSED = ("source", "GPU", "compute capability", "clock control")
"""Conditions in which runs that are compared must agree, unless the user wants it anyway."""

CLOCKS_ALIKE = 0.02
"""How far the median SM clocks of two runs may be apart, as a share of the lower, without a word."""

NOT_KNOWN = "not known"

Conditions = dict[str, str | None]


@dataclass(frozen=True)
class Difference:
    """A condition in which two runs differ. `refused` says that a comparison of the two means little."""

    condition: str
    base: str
    new: str
    refused: bool

    def __str__(self) -> str:
        return f"{self.condition}: {self.base} in the base, {self.new} in the new run"


def conditions_of(table: pa.Table, manifest: Manifest | None = None) -> Conditions:
    """The conditions of a run; None where neither its table nor its manifest knows. A report has no manifest."""
    workload = manifest.workload if manifest else {}
    facts = manifest.facts if manifest else {}
    versions = manifest.versions if manifest else {}
    sources = _words(table, "source")
    reports = table_metadata(table).get("reports", [])
    return {
        "source": _listed(sources),
        "GPU": _listed(_words(table, "device_name")) or facts.get("device_name"),
        "compute capability": _listed(_words(table, "compute_capability")),
        "clock control": manifest.clock_control if manifest else None,
        "cache control": manifest.cache_control if manifest else None,
        "replay mode": manifest.replay_mode if manifest else None,
        "tool version": _listed(versions[source] for source in sources if source in versions)
        or _listed(report["tool_version"] for report in reports if report.get("tool_version")),
        **{f"version of {name}": versions.get(name) for name in ("torch", "torchvision", "transformers", "timm")},
        "target": _text(workload.get("target")),
        "dtype": _text(workload.get("dtype")),
        "batch size": _text(workload.get("batch_size")),
        "input size": _text(workload.get("input_size")),
        "sequence length": _text(workload.get("sequence_length")),
        "mode": _text(workload.get("mode")),
        "phases": _text(workload.get("phases")),
        "iterations": _text(workload.get("iterations")),
    }


def differences(base: Conditions, new: Conditions) -> list[Difference]:
    """The conditions that are known of both runs and differ, those that forbid a comparison first."""
    found = [
        Difference(name, before, after, name in REFUSED)
        for name in base
        if (before := base[name]) is not None and (after := new[name]) is not None and before != after
    ]
    return sorted(found, key=lambda difference: not difference.refused)


def known_of_one(base: Conditions, new: Conditions) -> list[str]:
    """The conditions that are known of one run only, so that nobody can tell whether the two agree."""
    return [name for name in base if (base[name] is None) != (new[name] is None)]


def clock_note(base: pa.Table, new: pa.Table) -> str | None:
    """A sentence where the median SM clocks that the reports hold are apart; None where they agree or are not known."""
    clocks = [tables.floats(table, "sm_clock_hz") for table in (base, new)]
    medians = [float(np.median(known)) if len(known := one[~np.isnan(one)]) else 0.0 for one in clocks]
    if min(medians) <= 0 or max(medians) / min(medians) - 1 <= CLOCKS_ALIKE:
        return None
    before, after = (f"{median / 1e9:.3g} GHz" for median in medians)
    return f"the median SM clock is {before} in the base and {after} in the new run: times scale with it"


def _words(table: pa.Table, name: str) -> list[str]:
    codes, values = tables.codes(table, name)
    return sorted({value for code in np.unique(codes) if (value := values[code]) is not None})


def _listed(words: Iterable[str]) -> str | None:
    return ", ".join(sorted(set(words))) or None


def _text(value: object) -> str | None:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return None if value is None else str(value)
