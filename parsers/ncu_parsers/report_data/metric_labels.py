"""Display labels of the details page -> metric names.

`ncu --page details` prints "Duration", not gpu__time_duration.sum. NVIDIA's section files say which metric a label
stands for, per section; `labels.toml` holds those that mean the same metric in every tool version looked at (2018 to
2024.1, and 2025's reports agree). Any other label keeps a column of its own: "Section: Label".
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

# "{UNIT}: {COMPOUND_NAME} (dram__cycles_active.avg.pct_of_peak_sustained_elapsed)": a breakdown, named in brackets.
_BREAKDOWN = r"\{UNIT\}: \{COMPOUND_NAME\} \((?P<metric>\w+(?:\.\w+)*)\)$"
COMMAND_LINE_SECTION = "Command line profiler metrics"


class LabelledMetric(NamedTuple):
    """The metric a label stands for, with the section and label it was printed under."""

    name: str
    section: str
    label: str


@lru_cache(maxsize=1)
def _known() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("labels.toml").read_text("utf-8"))


@lru_cache(maxsize=65536)
def metric_of_label(section: str, body: str, label: str) -> LabelledMetric:
    """The metric that `label` stands for in `section`.

    `body` is the Body Item Label of `--print-details all`, "" elsewhere. Metric names stand for themselves.
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
