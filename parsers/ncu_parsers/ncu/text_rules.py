"""Results of NVIDIA's rules in ncu's plain text: kind, estimated speed-up, and a message that runs over several lines.

They stand below the title of their section, with its indentation and a line of dashes between two. Further lines of a
message begin below its text, not below its kind; it ends at an empty line or one with another indentation:

    OPT   Est. Local Speedup: 39.06%
          The difference between calculated theoretical (100.0%) and measured achieved occupancy (60.9%) can be
          the result of warp scheduling overheads.

The text does not name the rule. Older versions say "Estimated Speedup", and not whether it is local. Messages without a
kind are not read: nothing tells them from other text.
"""

from __future__ import annotations

import re

from ncu_parsers.schema.tables import Rule

BETWEEN_RULES = re.compile(r"\s*-{5} -{20,}\s*$")
"""A line of dashes between two rules; tables of metrics have three columns or more."""

_BEGIN = re.compile(r"(?P<indent>\s*)(?P<kind>(?:OPT|WRN|INF|ERR)(?= {3,4}\S)|OK(?= {4,5}\S)) +(?P<text>.*)")
"""First line of a rule: the message begins three spaces after a kind of three letters, or with a further space."""

_ESTIMATE = re.compile(
    r"(?:Est\. (?P<local>Local )?|Estimated )Speedup: (?P<percent>\d+(?:\.\d+)?(?:e-\d+)?)%(?:\s+|$)"
)
_KINDS = {"OK": "INF"}
"""Kind in older versions -> kind of a message that only informs; both have the same number in binary reports."""
_DEPTHS = (4, 5, 6)
"""Indentation of a message relative to its kind, as ncu writes it or as editors leave it after replacing its spaces."""
_SECTIONS = {
    "GPU Speed Of Light": "SpeedOfLight",
    "GPU Speed Of Light Throughput": "SpeedOfLight",
    "GPU Speed Of Light Roofline Chart": "SpeedOfLight_RooflineChart",
    "Compute Workload Analysis": "ComputeWorkloadAnalysis",
    "Memory Workload Analysis": "MemoryWorkloadAnalysis",
    "Memory Workload Analysis Chart": "MemoryWorkloadAnalysis_Chart",
    "Memory Workload Analysis Tables": "MemoryWorkloadAnalysis_Tables",
    "Scheduler Statistics": "SchedulerStats",
    "Warp State Statistics": "WarpStateStats",
    "Instruction Statistics": "InstructionStats",
    "Launch Statistics": "LaunchStats",
    "Source Counters": "SourceCounters",
    "GPU and Memory Workload Distribution": "WorkloadDistribution",
}
"""Title of a section -> its name for rules in details pages and binary reports; others are kept as printed."""


class TextRules:
    """Reads the rules of a text page line by line; a rule ends at the first line that does not belong to it."""

    def __init__(self) -> None:
        self._section = ""
        self._indent: str | None = None
        self._kind = ""
        self._lines: list[str] = []
        self._depth: int | None = None
        self._rules: list[Rule] = []

    def open_section(self, indent: str, title: str) -> None:
        """Assign the following lines to a section whose title has this indentation."""
        self._section, self._indent = _SECTIONS.get(title, title), indent

    def close_section(self) -> None:
        """Expect no rule before the next section title."""
        self._indent = None

    def take(self, line: str, rules: list[Rule]) -> bool:
        """True if a line begins a rule, which is added to `rules` when it ends, or continues a message."""
        if self._goes_on(line):
            self._lines.append(line.strip())
            return True
        self.end()
        match = _BEGIN.match(line)
        if match is None or match["indent"] != self._indent:
            return False
        self._kind, self._lines, self._depth, self._rules = match["kind"], [match["text"].strip()], None, rules
        return True

    def _goes_on(self, line: str) -> bool:
        """True if a line continues the message above: all continuations have the indentation of the first one."""
        if not self._lines or self._indent is None or not line.startswith(self._indent):
            return False
        text = line[len(self._indent) :]
        depth = len(text) - len(text.lstrip())
        if self._depth is None and (depth in _DEPTHS or (not self._indent and depth == 0)):
            self._depth = depth
        return depth == self._depth and not (depth == 0 and (_BEGIN.match(line) or text.startswith(("==", "["))))

    def end(self) -> None:
        """Add the last rule, if there is one."""
        if self._lines:
            self._rules.append(self._rule(" ".join(self._lines)))
            self._lines = []

    def _rule(self, text: str) -> Rule:
        kind, estimate = _KINDS.get(self._kind, self._kind), _ESTIMATE.match(text)
        if estimate is None:
            return Rule(self._section, "", kind, text, "", "")
        of_what = "local" if estimate["local"] else "global" if text.startswith("Est. ") else ""
        return Rule(self._section, "", kind, text[estimate.end() :], of_what, estimate["percent"])
