"""NVIDIA's rules over a whole run: each message once for all launches of a kernel, by its possible saving.

A rule may estimate a speed-up. A global one is the share of a launch's time that would be saved; a local one concerns
only the hardware that the rule examines, not the launch's time. Source: NVIDIA, NvRules API, IFrontend, SpeedupType
(https://docs.nvidia.com/nsight-compute/NvRulesAPI/classNV_1_1Rules_1_1IFrontend.html).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby, zip_longest
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from ncu_parsers.schema import arrays, tables
from ncu_parsers.schema.tables import Floats

from ncu_tools.kernels.grouping import rows_of
from ncu_tools.kernels.kernel_row import title_and_device
from ncu_tools.numbers.row_sums import Accumulator, Keys, RowSums, Seen, Sum
from ncu_tools.runs.partition_sums import OF_GROUPS, OF_OPERATORS, in_batches, notes_of_reports, sums_of_run
from ncu_tools.runs.run import Run

GLOBAL, LOCAL = "global", "local"
INFORMATION = ("INF", "")
"""Kinds of messages that only inform."""
BETWEEN_METRICS = "; "
RULES, RULE_METRICS = "rules", "rule_metrics"
LAUNCHES_AT_A_TIME = 1024
"""Most launches whose messages are Python objects at once."""
OF_LAUNCH = ("report", "run", "launch_id", "process_id", "kernel_name", "kernel_short", "duration_ns")
OF_MESSAGE = ("section", "rule", "kind", "message", "speedup_type")
OF_TABLE = (*OF_LAUNCH, RULES, RULE_METRICS)
TABLE_COLUMNS = (*OF_LAUNCH, *OF_MESSAGE, "estimated_speedup_percent", "metrics")
OF_SUMS = ("source", "kernel_name", "kernel_short", "invocations", "failed", "duration_ns", RULES, RULE_METRICS)


class RuleMessage(NamedTuple):
    """One message of a rule on one launch; `speedup` is in %, None if NVIDIA estimates none."""

    launch: int
    section: str
    rule: str
    kind: str
    message: str
    speedup: float | None
    speedup_type: str
    metrics: tuple[str, ...]


def rule_messages(table: pa.Table) -> Iterator[RuleMessage]:
    """Every message of every launch, identified by its row in the table."""
    if RULES in table.column_names and table.column(RULES).null_count < len(table):
        for first in range(0, len(table), LAUNCHES_AT_A_TIME):
            yield from _messages_of(table.slice(first, LAUNCHES_AT_A_TIME), first)


def _messages_of(table: pa.Table, first: int) -> Iterator[RuleMessage]:
    """The messages of some launches; the first launch is row `first` of the whole table."""
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
    """A printed speed-up; None without."""
    try:
        value = float(text or "nan")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


# ---------------------------------------------------------------------------------------------------- over a whole run


@dataclass
class RankedRule:
    """A message of a rule on the launches of one kernel. Times in ns, shares of the time of the whole run.

    `estimated_speedup` in % is the time-weighted mean of NVIDIA's estimates, None without any. `estimated_saving_ns`
    follows from it for these launches, None for a local speed-up and if a time is unknown.
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


class RuleRow(NamedTuple):
    """The identity of equal messages: `shape` is the first sentence without its numbers."""

    kernel: str
    rule: str
    section: str
    speedup_type: str
    shape: str


class _OfLongest(Accumulator):
    """The message of each row on the longest launch, the first of several."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[float, RuleMessage]] = {}

    def add(self, row: int, seconds: float, message: RuleMessage) -> None:
        """Store the message on a launch; NaN seconds are shorter than any."""
        longest, _ = self._found.setdefault(row, (-1.0, message))
        if seconds > longest:
            self._found[row] = seconds, message

    def merge(self, other: _OfLongest, numbers: Keys) -> None:
        """See `Accumulator.merge`."""
        for row, (seconds, message) in other._found.items():
            self.add(int(numbers[row]), seconds, message)

    def of(self, row: int) -> RuleMessage:
        """The message of a row."""
        return self._found[row][1]


class RuleSums(RowSums[RuleRow]):
    """Messages of rules by kernel, added in batches of launches; `group` is one of `hotspots.GROUPS`.

    Messages whose first sentences differ only in their numbers are the same one. Failed launches are left out.
    """

    def __init__(self, group: str) -> None:
        super().__init__()
        self.reports: dict[str, None] = {}
        self.seconds = 0.0
        self.launches = self.with_rules = self.informing = 0
        self._group = group
        self._said, self._metrics = _OfLongest(), Seen[str]()
        self._launches, self._untimed, self._seconds, self._saved, self._estimates = (Sum(self.rows) for _ in range(5))

    def add(self, table: pa.Table) -> None:
        """Add launches."""
        self.reports |= notes_of_reports(table)
        places, titles = rows_of(table, self._group)
        weight = np.where(tables.floats(table, "failed") > 0, 0.0, tables.launch_counts(table))
        seconds = tables.floats(table, "duration_ns") / 1e9 * weight
        self.seconds += float(np.nansum(seconds))
        self.launches += int((weight > 0).sum())
        found: dict[tuple[int, RuleRow], RuleMessage] = {}
        for launch, messages in groupby(rule_messages(table), key=lambda message: message.launch):
            if weight[launch] > 0:
                self.with_rules += 1
                found |= _of_launch(launch, titles[places[launch]], messages)
        asking = {
            key: message
            for key, message in found.items()
            if message.speedup is not None or message.kind not in INFORMATION
        }
        self.informing += len(found) - len(asking)
        self._add(asking, weight, seconds)

    def _add(self, messages: dict[tuple[int, RuleRow], RuleMessage], weight: Floats, seconds: Floats) -> None:
        """Add messages by launch and row; `weight` and `seconds` have an entry for every launch."""
        launches = np.array([launch for launch, _ in messages], np.int64)
        speedups = np.array([one.speedup or 0.0 for one in messages.values()])
        numbers = self.rows.use([row for _, row in messages])
        times = seconds[launches]
        timed = ~np.isnan(times)
        self._launches.add(weight[launches])
        self._untimed.count(~timed)
        self._seconds.add(times, timed)
        self._saved.add(times * speedups / 100, timed)
        self._estimates.add(weight[launches] * speedups)
        for row, one, time in zip(numbers.tolist(), messages.values(), times.tolist(), strict=True):
            self._said.add(row, time, one)
            self._metrics.add(row, one.metrics)

    def ranked(self) -> list[RankedRule]:
        """Global speed-ups by the time that they could save, then local ones, then messages without an estimate."""
        return sorted(map(self._ranked, range(len(self.rows))), key=_order)

    def _ranked(self, row: int) -> RankedRule:
        message, is_timed = self._said.of(row), not self._untimed.values[row]
        launches, seconds, saved, estimates = (
            float(one.values[row]) for one in (self._launches, self._seconds, self._saved, self._estimates)
        )
        title, device = title_and_device(self.titles[row].kernel)
        speedup = None
        if message.speedup is not None:
            speedup = 100 * saved / seconds if is_timed and seconds else estimates / launches
        saves = saved if is_timed and message.speedup is not None and message.speedup_type == GLOBAL else None
        return RankedRule(
            kernel=title,
            rule=message.rule,
            section=message.section,
            kind=message.kind,
            message=message.message,
            estimated_speedup=speedup,
            speedup_type=message.speedup_type,
            estimated_saving_ns=None if saves is None else saves * 1e9,
            estimated_saving_share=None if saves is None or not self.seconds else saves / self.seconds,
            launches=int(launches),
            time_ns=seconds * 1e9 if is_timed else None,
            time_share=seconds / self.seconds if is_timed and self.seconds else None,
            metrics=tuple(self._metrics.of(row)),
            device=device,
        )


def _of_launch(launch: int, kernel: str, messages: Iterable[RuleMessage]) -> dict[tuple[int, RuleRow], RuleMessage]:
    """The messages of one launch by row; of a repeated one, the one with the larger estimate."""
    found: dict[tuple[int, RuleRow], RuleMessage] = {}
    for message in messages:
        key = launch, RuleRow(kernel, message.rule, message.section, message.speedup_type, _shape(message.message))
        if key not in found or (message.speedup or 0.0) > (found[key].speedup or 0.0):
            found[key] = message
    return found


@lru_cache(maxsize=4096)
def _shape(message: str) -> str:
    """The first sentence of a message without its numbers."""
    return re.sub(r"\d[\d.,]*", "#", first_sentence(message))


def _order(one: RankedRule) -> tuple[Any, ...]:
    speedup = one.estimated_speedup
    group = 2 if speedup is None else 0 if one.speedup_type == GLOBAL else 1
    weight = one.estimated_saving_ns if group == 0 else (one.time_ns or 0.0) * (1.0 if speedup is None else speedup)
    return group, weight is None, -(weight or 0.0), -(speedup or 0.0), one.kernel, one.rule, one.message


def first_sentence(message: str) -> str:
    """A message up to its first full stop before a space, on one line."""
    return " ".join(message.split()).split(". ")[0].removesuffix(".")


def rule_sums(run: Run, group: str) -> RuleSums:
    """Sum the messages of a run's rules, with a few row groups in memory at a time.

    Raises `NcuBenchError` as `sums_of_run` does.
    """
    columns = {*OF_SUMS, *OF_GROUPS[group], *(OF_OPERATORS if group == "operator" else ())}
    return sums_of_run(run, partial(RuleSums, group), in_batches(columns))


# -------------------------------------------------------------------------------------------------------- as a table


def rules_table(launches: pa.Table) -> pa.Table:
    """A row per message, with its launch: the table `rules` of `ncu-bench query`, with the columns `TABLE_COLUMNS`."""
    messages = list(rule_messages(launches))
    at = arrays.whole(np.array([one.launch for one in messages], np.int64))
    speedups = np.array([np.nan if one.speedup is None else one.speedup for one in messages], np.float64)
    columns = {name: launches.column(name).take(at) for name in OF_LAUNCH if name in launches.column_names}
    columns |= {name: arrays.texts([getattr(one, name) or None for one in messages]) for name in OF_MESSAGE}
    return pa.table(
        {
            **columns,
            "estimated_speedup_percent": arrays.floats(speedups),
            "metrics": arrays.text_lists([one.metrics or None for one in messages]),
        }
    )
