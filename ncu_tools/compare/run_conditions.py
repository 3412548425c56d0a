"""The conditions of a run, and differences of conditions that forbid a comparison."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from ncu_launch.files.manifest import Manifest
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import LONG_ENOUGH_NS, Floats, table_metadata

from ncu_tools.kernels.operator_times import clocks_of
from ncu_tools.numbers.change import Difference, clock_ratio
from ncu_tools.numbers.merged_by_field import MergedByField

END = "end"
"""Condition: whether a run ended early; only manifests have it."""
REFUSED = ("source", "GPU", "compute capability", "clock control", "threads", END)
"""Conditions that must agree between compared runs, unless the user overrides it."""

NOT_KNOWN = "not known"
COMMAND_LINE = "Profiler Command Line"
"""The session attribute with ncu's command line."""
CONTROLS = {"clock control": "--clock-control", "cache control": "--cache-control", "replay mode": "--replay-mode"}
"""Conditions set by options of ncu. Their defaults depend on its version and settings."""
CLOCKS_NOT_FIXED = ("without fixed GPU frequencies", "Running with unmodified GPU clocks")
"""Text of ncu's warning that it did not fix the clocks."""
OF_LAUNCHES = ("source", "device_name", "compute_capability", "flops_basis")
DIGITS_OF_CLOCKS = 4
"""Significant digits of stored clocks, so that memory does not grow with the run."""

Conditions = dict[str, str | None]


class Observed(MergedByField):
    """Conditions read from launches, and the number of failed ones, added in batches of launches."""

    def __init__(self) -> None:
        self.texts: dict[str, set[str]] = {name: set() for name in OF_LAUNCHES}
        self.tool_versions: set[str] = set()
        self.controls: dict[str, set[str]] = {name: set() for name in CONTROLS}
        self.failed = 0
        self.times: set[str] = set()
        """Titles of the times of launches: GPU times of kernels ("time"), or self times of operators."""
        self._clocks: Counter[float] = Counter()

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices by name, or by compute capability if none is named."""
        names = sorted(self.texts["device_name"])
        return tuple(names or [f"compute capability {one}" for one in sorted(self.texts["compute_capability"])])

    def add(self, table: pa.Table) -> None:
        """Add launches."""
        for name, known in self.texts.items():
            known.update(_words(table, name))
        reports = table_metadata(table).get("reports", [])
        versions = (report.get("tool_version") for report in reports)
        self.tool_versions.update(version for version in versions if isinstance(version, str) and version)
        for line in {str(report.get("session", {}).get(COMMAND_LINE, "")) for report in reports}:
            for name, option in CONTROLS.items():
                found = re.search(rf"\s{option}[\s=]+(\w[\w-]*)", line)
                self.controls[name] |= {found.group(1)} if found else set()
        notes = (note for report in reports for note in report.get("notes", ()))
        if any(words in note for note in notes for words in CLOCKS_NOT_FIXED):
            self.controls["clock control"].add("none")
        if "failed" in table.column_names:
            self.failed += int(np.nansum(tables.floats(table, "failed")))
        self.times |= clocks_of(table)
        clocks = tables.floats(table, "sm_clock_hz")
        shown = (clocks > 0) & (tables.floats(table, "duration_ns") >= LONG_ENOUGH_NS)
        values, counts = np.unique(_rounded(clocks[shown]), return_counts=True)
        self._clocks.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    @property
    def median_clock(self) -> float | None:
        """The median SM clock in Hz, rounded to the kept digits; None if no launch is long enough to show its own."""
        passed, total = 0, self._clocks.total()
        for value, count in sorted(self._clocks.items()):
            passed += count
            if 2 * passed >= total:
                return value
        return None


def _rounded(clocks: Floats) -> Floats:
    """Positive numbers rounded to the kept digits of clocks."""
    step: Floats = 10.0 ** (np.floor(np.log10(clocks)) + 1 - DIGITS_OF_CLOCKS)
    return np.round(clocks / step) * step


def conditions_of_run(table: pa.Table, manifest: Manifest | None) -> dict[str, str]:
    """The known conditions of a run: GPU, source, clock control, dtype and so on."""
    observed = Observed()
    observed.add(table)
    return {name: value for name, value in conditions_of(observed, manifest).items() if value is not None}


def conditions_of(observed: Observed, manifest: Manifest | None = None) -> Conditions:
    """The conditions of a run; None if neither its launches nor its manifest have one. A report has no manifest.

    ncu's command line is in the manifest, or in the session of a report.
    """
    workload = manifest.workload if manifest else {}
    facts = manifest.facts if manifest else {}
    versions = manifest.versions if manifest else {}
    sources = observed.texts["source"]
    controls = {name: _listed(found) for name, found in observed.controls.items()}
    if manifest is not None:
        asked = manifest.clock_control, manifest.cache_control, manifest.replay_mode
        controls = {name: own or controls[name] for name, own in zip(CONTROLS, asked, strict=True)}
    return {
        "source": _listed(sources),
        "GPU": _listed(observed.texts["device_name"]) or facts.get("device_name"),
        "compute capability": _listed(observed.texts["compute_capability"]),
        "threads": _text(facts.get("threads")),
        "clock control": controls["clock control"],
        "cache control": controls["cache control"],
        END: ("early" if manifest.partial else "as it should") if manifest else None,
        "replay mode": controls["replay mode"],
        "tool version": _listed(versions[source] for source in sources if source in versions)
        or _listed(observed.tool_versions),
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
    """Conditions known of both runs that differ; the ones that forbid a comparison come first."""
    found = [
        Difference(name, before, after, name in REFUSED)
        for name in base
        if (before := base[name]) is not None and (after := new[name]) is not None and before != after
    ]
    return sorted(found, key=lambda difference: not difference.refused)


def known_of_one(base: Conditions, new: Conditions) -> list[str]:
    """Conditions known of one run only, so that agreement cannot be checked."""
    return [name for name in base if name != END and (base[name] is None) != (new[name] is None)]


def clock_note(base: Observed, new: Observed) -> str | None:
    """A note if the median SM clocks of two runs differ; None if they agree or are unknown."""
    before, after = base.median_clock, new.median_clock
    if before is None or after is None or clock_ratio(before, after) == 1:
        return None
    return (
        f"the median SM clock is {before / 1e9:.3g} GHz in the base and {after / 1e9:.3g} GHz in the new run: "
        "times scale with it, those that DRAM bounds less"
    )


def _words(table: pa.Table, name: str) -> list[str]:
    codes, values = tables.codes(table, name)
    return sorted({value for code in np.unique(codes) if (value := values[code]) is not None})


def _listed(words: Iterable[str]) -> str | None:
    return ", ".join(sorted(set(words))) or None


def _text(value: object) -> str | None:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return None if value is None else str(value)
