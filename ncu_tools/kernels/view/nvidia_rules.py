"""What NVIDIA's rules say over a whole run: each message once for all launches of a kernel, by what it could save.

A rule may estimate a speed-up. A global one is the share of a launch's time that would be saved; a local one concerns
the hardware that the rule looks at, by itself, and says nothing of the launch's time. Source: NVIDIA, NvRules API,
IFrontend, SpeedupType (https://docs.nvidia.com/nsight-compute/NvRulesAPI/classNV_1_1Rules_1_1IFrontend.html).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import groupby, zip_longest
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import arrays, tables

from ncu_tools.kernels.grouping import rows_of
from ncu_tools.kernels.kernel_row import title_and_device
from ncu_tools.numbers.merged_by_field import MergedByField
from ncu_tools.runs.partition_sums import OF_GROUPS, OF_OPERATORS, in_batches, notes_of_reports, sums_of_run
from ncu_tools.runs.run import Run

GLOBAL, LOCAL = "global", "local"
INFORMATION = ("INF", "")
"""Kinds of messages that ask for nothing."""
BETWEEN_METRICS = "; "
RULES, RULE_METRICS = "rules", "rule_metrics"
LAUNCHES_AT_A_TIME = 1024
"""How many launches have their messages as Python objects at once."""
OF_LAUNCH = ("report", "run", "launch_id", "process_id", "kernel_name", "kernel_short", "duration_ns")
OF_MESSAGE = ("section", "rule", "kind", "message", "speedup_type")
OF_TABLE = (*OF_LAUNCH, RULES, RULE_METRICS)
TABLE_COLUMNS = (*OF_LAUNCH, *OF_MESSAGE, "estimated_speedup_percent", "metrics")
OF_SUMS = ("source", "kernel_name", "kernel_short", "invocations", "failed", "duration_ns", RULES, RULE_METRICS)


class RuleMessage(NamedTuple):
    """One message of a rule on one launch; `speedup` is in %, None where NVIDIA estimates none."""

    launch: int
    section: str
    rule: str
    kind: str
    message: str
    speedup: float | None
    speedup_type: str
    metrics: tuple[str, ...]


def rule_messages(table: pa.Table) -> Iterator[RuleMessage]:
    """Every message of every launch, which is named by its row in the table."""
    if RULES in table.column_names:
        for first in range(0, len(table), LAUNCHES_AT_A_TIME):
            yield from _messages_of(table.slice(first, LAUNCHES_AT_A_TIME), first)


def _messages_of(table: pa.Table, first: int) -> Iterator[RuleMessage]:
    """The messages of some launches, of which the first is in this row of the whole table."""
    of_rules, of_metrics = table.column(RULES).to_pylist(), [None] * len(table)
    if RULE_METRICS in table.column_names:
        of_metrics = table.column(RULE_METRICS).to_pylist()
    for launch, (rules, metrics) in enumerate(zip(of_rules, of_metrics, strict=True), first):
        for rule, named in zip_longest(rules or (), metrics or ()):
            if rule is not None:
                yield RuleMessage(
                    launch,
                    rule["section"] or "",
                    rule["name"] or "",
                    rule["kind"] or "",
                    rule["description"] or "",
                    _percent(rule["speedup"]),
                    rule["speedup_type"] or "",
                    tuple(named.split(BETWEEN_METRICS)) if named else (),
                )


def _percent(text: str | None) -> float | None:
    """A printed speed-up; None where there is none."""
    try:
        value = float(text or "nan")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


# ---------------------------------------------------------------------------------------------------- over a whole run


@dataclass
class RankedRule:
    """A message of a rule on the launches of one kernel. Times in ns, shares of the time of the whole run.

    `estimated_speedup` in % is the mean weighted by time of what NVIDIA estimates, None where it estimates nothing.
    `estimated_saving_ns` follows from it for these launches, None for a local speed-up and where a time is unknown.
    """

    kernel: str
    rule: str
    section: str
    kind: str
    message: str
    estimated_speedup: float | None
    speedup_type: str
    estimated_saving_ns: float | None
    estimated_saving_share: float | None
    launches: int
    time_ns: float | None
    time_share: float | None
    metrics: tuple[str, ...]
    device: str | None = None


@dataclass
class _Told:
    """What is added up of one message on the launches of one kernel; `longest` is the time of the launch it is of."""

    said: RuleMessage
    longest: float = -1.0
    launches: float = 0.0
    seconds: float = 0.0
    saved: float = 0.0
    estimates: float = 0.0
    untimed: int = 0
    metrics: dict[str, None] = field(default_factory=dict)

    def add(self, said: RuleMessage, weight: float, seconds: float) -> None:
        """Add a launch, of so many invocations and seconds."""
        if math.isnan(seconds):
            self.untimed += 1
        else:
            self.seconds += seconds
            self.saved += seconds * (said.speedup or 0.0) / 100
        if seconds > self.longest:
            self.said, self.longest = said, seconds
        self.launches += weight
        self.estimates += weight * (said.speedup or 0.0)
        self.metrics |= dict.fromkeys(said.metrics)

    def merge(self, other: _Told) -> None:
        """Merge what is known of later launches."""
        if other.longest > self.longest:
            self.said, self.longest = other.said, other.longest
        for name in ("launches", "seconds", "saved", "estimates", "untimed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.metrics |= other.metrics


class RuleSums(MergedByField):
    """Messages of rules by kernel, added in batches of launches; `group` is one of `hotspots.GROUPS`.

    Messages whose first sentences differ only in their numbers are the same one. Failed launches are left out.
    """

    def __init__(self, group: str) -> None:
        self.reports: dict[str, None] = {}
        self.seconds = 0.0
        self.launches = self.with_rules = self.informing = 0
        self._group = group
        self._told: dict[tuple[str, ...], _Told] = {}

    def add(self, table: pa.Table) -> None:
        """Add launches."""
        self.reports |= notes_of_reports(table)
        places, titles = rows_of(table, self._group)
        weight = np.where(tables.floats(table, "failed") > 0, 0.0, tables.launch_counts(table))
        seconds = tables.floats(table, "duration_ns") / 1e9 * weight
        self.seconds += float(np.nansum(seconds))
        self.launches += int((weight > 0).sum())
        for launch, told in groupby(rule_messages(table), key=lambda said: said.launch):
            if weight[launch] > 0:
                self.with_rules += 1
                self._add_launch(titles[places[launch]], told, float(weight[launch]), float(seconds[launch]))

    def _add_launch(self, kernel: str, told: Iterable[RuleMessage], weight: float, seconds: float) -> None:
        """Add the messages of one launch; of one that it has twice that with the larger estimate."""
        found: dict[tuple[str, ...], RuleMessage] = {}
        for said in told:
            key = _key(said, kernel)
            if key not in found or (said.speedup or 0.0) > (found[key].speedup or 0.0):
                found[key] = said
        for key, said in found.items():
            self._add_message(key, said, weight, seconds)

    def _add_message(self, key: tuple[str, ...], said: RuleMessage, weight: float, seconds: float) -> None:
        if said.speedup is None and said.kind in INFORMATION:
            self.informing += 1
        else:
            self._told.setdefault(key, _Told(said)).add(said, weight, seconds)

    def ranked(self) -> list[RankedRule]:
        """Global speed-ups by the time that they could save, then local ones, then messages without an estimate."""
        found = [_ranked(key[0], told, self.seconds) for key, told in self._told.items()]
        return sorted(found, key=_order)


def _key(said: RuleMessage, kernel: str) -> tuple[str, ...]:
    return kernel, said.rule, said.section, said.speedup_type, _shape(said.message)


@lru_cache(maxsize=4096)
def _shape(message: str) -> str:
    """The first sentence of a message without its numbers."""
    return re.sub(r"\d[\d.,]*", "#", first_sentence(message))


def _ranked(kernel: str, told: _Told, run_seconds: float) -> RankedRule:
    said, is_timed = told.said, told.untimed == 0
    title, device = title_and_device(kernel)
    speedup = None
    if said.speedup is not None:
        speedup = 100 * told.saved / told.seconds if is_timed and told.seconds else told.estimates / told.launches
    saves = told.saved if is_timed and said.speedup is not None and said.speedup_type == GLOBAL else None
    return RankedRule(
        kernel=title,
        rule=said.rule,
        section=said.section,
        kind=said.kind,
        message=said.message,
        estimated_speedup=speedup,
        speedup_type=said.speedup_type,
        estimated_saving_ns=None if saves is None else saves * 1e9,
        estimated_saving_share=None if saves is None or not run_seconds else saves / run_seconds,
        launches=int(told.launches),
        time_ns=told.seconds * 1e9 if is_timed else None,
        time_share=told.seconds / run_seconds if is_timed and run_seconds else None,
        metrics=tuple(told.metrics),
        device=device,
    )


def _order(one: RankedRule) -> tuple[Any, ...]:
    speedup = one.estimated_speedup
    group = 2 if speedup is None else 0 if one.speedup_type == GLOBAL else 1
    weight = one.estimated_saving_ns if group == 0 else (one.time_ns or 0.0) * (1.0 if speedup is None else speedup)
    return group, weight is None, -(weight or 0.0), -(speedup or 0.0), one.kernel, one.rule, one.message


def first_sentence(message: str) -> str:
    """A message up to its first full stop before a space, on one line."""
    return " ".join(message.split()).split(". ")[0].removesuffix(".")


def rule_sums(run: Run, group: str) -> RuleSums:
    """Add up what rules say of a run, with a few row groups in memory at a time.

    Raises `NcuBenchError` as `sums_of_run` does.
    """
    columns = {*OF_SUMS, *OF_GROUPS[group], *(OF_OPERATORS if group == "operator" else ())}
    return sums_of_run(run, partial(RuleSums, group), in_batches(columns))


# -------------------------------------------------------------------------------------------------------- as a table


def rules_table(launches: pa.Table) -> pa.Table:
    """A row per message, with its launch: the table `rules` of `ncu-bench query`, with the columns `TABLE_COLUMNS`."""
    told = list(rule_messages(launches))
    at = arrays.whole(np.array([one.launch for one in told], np.int64))
    speedups = np.array([np.nan if one.speedup is None else one.speedup for one in told], np.float64)
    columns = {name: launches.column(name).take(at) for name in OF_LAUNCH if name in launches.column_names}
    columns |= {name: arrays.texts([getattr(one, name) or None for one in told]) for name in OF_MESSAGE}
    return pa.table(
        {
            **columns,
            "estimated_speedup_percent": arrays.floats(speedups),
            "metrics": arrays.text_lists([one.metrics or None for one in told]),
        }
    )
