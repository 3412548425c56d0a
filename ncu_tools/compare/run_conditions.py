"""Under which conditions a run was made, and which of them keep two runs from being compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from ncu_launch.files.manifest import Manifest
from ncu_parsers.schema import tables
from ncu_parsers.schema.tables import Floats, table_metadata

from ncu_tools.kernels.operator_times import clocks_of

END = "end"
"""Whether a run ended as it should or early; only manifests know."""
REFUSED = ("source", "GPU", "compute capability", "clock control", "threads", END)
"""Conditions in which runs that are compared must agree, unless the user wants it anyway."""

CLOCKS_ALIKE = 0.02
"""How far the median SM clocks of two runs may be apart, as a share of the lower, without a word."""

NOT_KNOWN = "not known"
OF_LAUNCHES = ("source", "device_name", "compute_capability")
DIGITS_OF_CLOCKS = 4
"""So many digits of clocks are kept, so that what is kept of a run does not grow with it."""

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


class Observed:
    """What launches themselves say of their conditions, and how many failed, a stretch of launches at a time."""

    def __init__(self) -> None:
        self.words: dict[str, set[str]] = {name: set() for name in OF_LAUNCHES}
        self.tool_versions: set[str] = set()
        self.failed = 0
        self.times: set[str] = set()
        """What the times of launches are: GPU times of kernels ("time"), or self times of operators."""
        self._clocks: Counter[float] = Counter()

    def add(self, table: pa.Table) -> None:
        """Take the next launches."""
        for name, known in self.words.items():
            known.update(_words(table, name))
        reports = table_metadata(table).get("reports", [])
        versions = (report.get("tool_version") for report in reports)
        self.tool_versions.update(version for version in versions if isinstance(version, str) and version)
        if "failed" in table.column_names:
            self.failed += int(np.nansum(tables.floats(table, "failed")))
        self.times |= clocks_of(table)
        clocks = tables.floats(table, "sm_clock_hz")
        values, counts = np.unique(_rounded(clocks[clocks > 0]), return_counts=True)
        self._clocks.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def merge(self, other: Observed) -> None:
        """Take what other launches say."""
        for name, known in self.words.items():
            known |= other.words[name]
        self.tool_versions |= other.tool_versions
        self.failed += other.failed
        self.times |= other.times
        self._clocks.update(other._clocks)

    @property
    def median_clock(self) -> float | None:
        """The median SM clock in Hz, to so many digits as are kept; None where no launch knows its own."""
        passed, total = 0, self._clocks.total()
        for value, count in sorted(self._clocks.items()):
            passed += count
            if 2 * passed >= total:
                return value
        return None


def _rounded(clocks: Floats) -> Floats:
    """Numbers above 0 with as many digits as are kept of clocks."""
    step: Floats = 10.0 ** (np.floor(np.log10(clocks)) + 1 - DIGITS_OF_CLOCKS)
    return np.round(clocks / step) * step


def conditions_of(observed: Observed, manifest: Manifest | None = None) -> Conditions:
    """The conditions of a run; None where neither its launches nor its manifest know. A report has no manifest."""
    workload = manifest.workload if manifest else {}
    facts = manifest.facts if manifest else {}
    versions = manifest.versions if manifest else {}
    sources = observed.words["source"]
    return {
        "source": _listed(sources),
        "GPU": _listed(observed.words["device_name"]) or facts.get("device_name"),
        "compute capability": _listed(observed.words["compute_capability"]),
        "threads": _text(facts.get("threads")),
        "clock control": manifest.clock_control if manifest else None,
        "cache control": manifest.cache_control if manifest else None,
        END: ("early" if manifest.partial else "as it should") if manifest else None,
        "replay mode": manifest.replay_mode if manifest else None,
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
    """The conditions that are known of both runs and differ, those that forbid a comparison first."""
    found = [
        Difference(name, before, after, name in REFUSED)
        for name in base
        if (before := base[name]) is not None and (after := new[name]) is not None and before != after
    ]
    return sorted(found, key=lambda difference: not difference.refused)


def known_of_one(base: Conditions, new: Conditions) -> list[str]:
    """The conditions that are known of one run only, so that nobody can tell whether the two agree."""
    return [name for name in base if name != END and (base[name] is None) != (new[name] is None)]


def clock_note(base: Observed, new: Observed) -> str | None:
    """A sentence where the median SM clocks that the reports hold are apart; None where they agree or are not known."""
    before, after = base.median_clock, new.median_clock
    if before is None or after is None or max(before, after) / min(before, after) - 1 <= CLOCKS_ALIKE:
        return None
    return (
        f"the median SM clock is {before / 1e9:.3g} GHz in the base and {after / 1e9:.3g} GHz in the new run: "
        "times scale with it"
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
