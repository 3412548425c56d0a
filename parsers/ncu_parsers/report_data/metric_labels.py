"""Map display labels of the details page to metric names.

`ncu --page details` prints "Duration" for gpu__time_duration.sum. NVIDIA's section files define the metric of a label,
per section; `labels.toml` lists labels with the same metric in every version examined (2018 to 2024.1, and reports of
2025 agree). Any other label becomes a column named "Section: Label".
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# "{UNIT}: {COMPOUND_NAME} (dram__cycles_active.avg.pct_of_peak_sustained_elapsed)": a breakdown of the metric.
_BREAKDOWN = r"\{UNIT\}: \{COMPOUND_NAME\} \((?P<metric>\w+(?:\.\w+)*)\)$"
COMMAND_LINE_SECTION = "Command line profiler metrics"


class LabelledMetric(NamedTuple):
    """The metric that a label stands for, and the section and label under which it was printed."""

    name: str
    section: str
    label: str


@lru_cache(maxsize=1)
def _known() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("labels.toml").read_text("utf-8"))


def labels_of_metrics() -> dict[str, tuple[str, str]]:
    """Section and label of each metric of `labels.toml`; of several the first."""
    found: dict[str, tuple[str, str]] = {}
    for section, labels in _known().items():
        for label, metric in labels.items():
            found.setdefault(metric, (section, label))
    return found


@lru_cache(maxsize=65536)
def metric_of_label(section: str, body: str, label: str) -> LabelledMetric:
    """The metric that `label` stands for in `section`.

    `body` is the Body Item Label of `--print-details all`, else "". A metric name stands for itself.
    """
    if "__" in label:
        breakdown = re.match(_BREAKDOWN, label)
        if breakdown:
            return LabelledMetric(breakdown["metric"], section, label)
        if " " not in label:
            return LabelledMetric(label, section, label)
    if not section or section == COMMAND_LINE_SECTION:
        return LabelledMetric(label, section, label)
    known = _known().get(section, {}).get(label)
    if known:
        return LabelledMetric(known, section, label)
    return LabelledMetric(": ".join(part for part in (section, body, label) if part), section, label)
