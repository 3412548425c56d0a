"""Diagnoses of kernels: the busiest resource, the causes that cost time, and suspects that were ruled out.

A cause fits if all conditions of its rule hold (`rules.toml`); causes are ranked by the share of the kernel's time that
each can cost at most (`limits`). A quantity that was not collected fulfils no condition.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from ncu_tools.kernels.diagnosis.derived import derived
from ncu_tools.kernels.diagnosis.limits import (
    ROOF,
    BusyResource,
    both_sides_are_known,
    busy_resources,
    cost,
    near_its_limit,
    none_can_be_busier,
    shared_by_all_sms,
    split_by_range,
)
from ncu_tools.kernels.diagnosis.rule_texts import completed
from ncu_tools.kernels.diagnosis.rules import CauseRule, Known, facts, failing, holds, quantities, rules, unknown
from ncu_tools.kernels.diagnosis.sums import DiagnosisSums, Inputs
from ncu_tools.kernels.diagnosis.wording import SentenceValues, leaves_no_more, percent
from ncu_tools.kernels.kernel_row import NEAR_ITS_LIMIT, Hotspot

WITHOUT_CEILING = "a ceiling of its device is missing: --machine NAME or ncu-bench machines measure gives one"
WITHOUT_ITS_PART = (
    "the memory system's throughput leaves out the part of L2 that is, perhaps the fabric between its halves: "
    "lts__ltcfabric2lts_cycles_active would tell"
)
WHY_BEYOND = {
    "ceiling": "the ceiling is for another clock or device, or the launch is too short to be measured",
    "peak": "its counters come from different passes, or the launch is too short to be measured",
}
AT_ITS_LIMIT = "near its limit"
MOST_NAMED = 3
"""Most causes that a sentence names, besides the limit of the busiest resource. JSON has all of them."""


MetricsThere = Collection[str] | Mapping[str, Sequence[str]]
"""The metrics of a report, or a mapping from each to its source columns."""


@dataclass(frozen=True)
class CauseEvidence:
    """One number that supports a cause: title, value, unit, and the metrics it comes from."""

    quantity: str
    title: str
    value: float
    unit: str
    metrics: Sequence[str]


@dataclass(frozen=True)
class KernelCause:
    """One cause of a kernel's time. `cost` is the largest share of the time it can cost, None if unknown.

    Causes are ordered by it, and JSON has it; texts leave gains to levers, which were held against real changes.
    """

    rule: str
    says: str
    cost: float | None
    evidence: Sequence[CauseEvidence]
    source: str


@dataclass(frozen=True)
class RuledOut:
    """A suspected cause, and the reason why it is ruled out."""

    rule: str
    label: str
    reason: str


@dataclass(frozen=True)
class Diagnosis:
    """Why a kernel takes its time, as far as metrics show it.

    `possible` are causes that depend on metrics that were not collected, or that the collected ones do not decide.
    `collect` are the groups of metrics to collect. `out_of_range` names resources with an impossible share of the time.
    `busiest_is_certain` is True if the SMs and all levels of memory were measured.
    """

    busiest: BusyResource | None
    causes: Sequence[KernelCause]
    ruled_out: Sequence[RuledOut] = ()
    possible: Sequence[str] = ()
    collect: Sequence[str] = ()
    busiest_is_certain: bool = True
    lacks_a_ceiling: bool = False
    out_of_range: Sequence[str] = ()

    @property
    def text(self) -> str:
        """The diagnosis as a sentence: causes by cost, busiest resource, what was ruled out, what to collect; or ""."""
        begins_with_the_limit = bool(self.causes) and self.causes[0].rule == AT_ITS_LIMIT
        named = self.causes[: MOST_NAMED + begins_with_the_limit]
        parts = [cause.says for cause in named] or self._unexplained()
        if self.causes and AT_ITS_LIMIT not in {cause.rule for cause in named} and self.busiest is not None:
            parts.append(self._busiest_is_at(self.busiest))
        parts += self._reservations()
        parts += [f"ruled out, as {reason}: {', '.join(labels)}" for reason, labels in self._by_reason().items()]
        if self.possible:
            parts.append(f"perhaps {', '.join(self.possible)}")
        if self.collect:
            parts.append(f"{', '.join(self.collect)} would say more")
        return "; ".join(parts)

    @property
    def bound(self) -> str:
        """The resource that bounds the kernel, or is busiest, if the first cause names another; "" if unknown."""
        if not self.causes or self.causes[0].rule == AT_ITS_LIMIT or self.busiest is None:
            return ""
        limit = next((cause.says for cause in self.causes if cause.rule == AT_ITS_LIMIT), "")
        return limit or self._busiest_is_at(self.busiest)

    @property
    def unexplained(self) -> str:
        """The text for a kernel without a cause, except what was ruled out or not collected; or ""."""
        return "; ".join([*self._unexplained(), *self._reservations()])

    def _reservations(self) -> list[str]:
        return [
            *self.out_of_range,
            *([WITHOUT_CEILING] if self.lacks_a_ceiling else []),
            *([WITHOUT_ITS_PART] if self._is_doubtful else []),
        ]

    @property
    def _is_doubtful(self) -> bool:
        """True if the busiest resource is near its peak, but it is not proven which part of it is busy."""
        one = self.busiest
        return one is not None and not one.is_proven and one.share >= NEAR_ITS_LIMIT

    def _by_reason(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for one in self.ruled_out:
            found.setdefault(one.reason, []).append(one.label)
        return found

    def _busiest_is_at(self, busiest: BusyResource) -> str:
        which = "busiest is" if self.busiest_is_certain else "busiest of what was collected is"
        return f"{which} {busiest.title}, at {percent(busiest.share)}"

    def _unexplained(self) -> list[str]:
        if self.busiest is None:
            return ["not explained by what was collected"] if self.collect and not self.lacks_a_ceiling else []
        lacks_something = bool(self.collect) or self._is_doubtful
        nothing = "not explained by what was collected" if lacks_something else "no cause stands out"
        return [f"{nothing}: {self._busiest_is_at(self.busiest)}"]

    def as_json(self) -> dict[str, Any]:
        """The diagnosis as plain values: shares as fractions of 1, each cause with its evidence."""
        return asdict(self)


def diagnoses(table: pa.Table, kernels: Sequence[Hotspot], group: str) -> dict[str, Diagnosis]:
    """The diagnosis of each kernel for which there is one, by `Hotspot.key`. `group` is the grouping of `kernels`."""
    sums = DiagnosisSums(group)
    sums.add(table)
    return diagnoses_of(sums, kernels)


def diagnoses_of(sums: DiagnosisSums, kernels: Sequence[Hotspot]) -> dict[str, Diagnosis]:
    """As `diagnoses`, from sums of launches with the same grouping as `kernels`.

    There is none for a kernel whose launches all failed.
    """
    collected, metrics = sums.quantities(), sums.metrics()
    found = {}
    for kernel in kernels:
        if not kernel.launches:
            continue
        place = sums.number(kernel.key)
        known = {name: float(values[place]) for name, values in collected.items()}
        diagnosis = diagnose(known, kernel, sums.inputs(place), metrics, by_ncu=sums.is_of_ncu(place))
        if diagnosis.text:
            found[kernel.key] = diagnosis
    return found


def diagnose(
    collected: Known, kernel: Hotspot, inputs: Inputs, metrics: MetricsThere = (), *, by_ncu: bool = True
) -> Diagnosis:
    """Diagnose one kernel from its collected quantities, its row of hotspots and its inputs.

    The evidence names only `metrics` that the report has. Groups of metrics to collect are named only for kernels
    profiled by ncu, and only if no resource is near its limit.
    """
    known, standing_on, busy, beyond = _known(collected, kernel, inputs)
    sources = _sources(standing_on, metrics)
    limit = near_its_limit(busy)
    is_near_its_limit = limit is not None
    found = _Tried(known, sources, busy, SentenceValues(known, inputs, busy))
    causes = [*([_limit(limit)] if limit is not None else []), *found.ranked()]
    causes.sort(key=lambda cause: -1.0 if cause.cost is None else round(cause.cost, 9), reverse=True)
    timed, moved = bool(kernel.time_total_ns), kernel.dram_bytes is not None
    complete = kernel.flops is not None and not kernel.flops_lower_bound
    compared, is_certain = both_sides_are_known(known, busy, kernel), none_can_be_busier(known, busy)
    return Diagnosis(
        busiest=limit or next(iter(busy), None),
        causes=causes,
        ruled_out=found.ruled_out,
        possible=[] if is_near_its_limit else found.possible,
        collect=_to_collect(found.missing, compared, is_certain, kernel) if by_ncu and not is_near_its_limit else [],
        busiest_is_certain=is_certain,
        out_of_range=[_beyond(one) for one in beyond],
        lacks_a_ceiling=timed and moved and complete and not compared and not is_near_its_limit,
    )


def quantities_of(table: pa.Table, kernel: Hotspot) -> tuple[dict[str, float], dict[str, Sequence[str]]]:
    """Every number that rules use, for the launches of one kernel (NaN if unknown), and the sources of each.

    Sources are the metrics in the report, or NVIDIA's rule whose message prints the number.
    """
    sums = DiagnosisSums("name")
    sums.add(table)
    place = sums.number(kernel.key)
    collected = {name: float(values[place]) for name, values in sums.quantities().items()}
    known, standing_on, _, _ = _known(collected, kernel, sums.inputs(place))
    return known, _sources(standing_on, sums.metrics())


def _sources(standing_on: Mapping[str, str], metrics: MetricsThere) -> dict[str, Sequence[str]]:
    """Quantity -> its source: metrics of the report, or a rule."""
    found = {name: _in_report(one.metrics, metrics) for name, one in quantities().items()}
    return found | {name: [rule] for name, rule in standing_on.items()}


def _known(
    collected: Known, kernel: Hotspot, inputs: Inputs
) -> tuple[dict[str, float], dict[str, str], list[BusyResource], list[BusyResource]]:
    """All quantities, the rules behind some, the busy resources, and the resources whose share is out of range."""
    completed_by_rules, standing_on = completed(collected)
    known = derived(completed_by_rules, kernel, inputs)
    busy, beyond = split_by_range(busy_resources(known, kernel))
    shared = shared_by_all_sms(known, busy)
    known["busiest"] = busy[0].share if busy else math.nan
    known["shared_busy"] = shared.share if shared is not None else math.nan
    return known, standing_on, busy, beyond


class _Tried:
    """All rules tried on one kernel: causes that fit, suspects ruled out, and possible causes."""

    def __init__(
        self, known: Known, sources: Mapping[str, Sequence[str]], busy: Sequence[BusyResource], words: SentenceValues
    ) -> None:
        self.ruled_out: list[RuledOut] = []
        self.possible: list[str] = []
        self.missing: set[str] = set()
        self._causes: list[tuple[float, KernelCause]] = []
        self._known, self._sources, self._busy, self._words = known, sources, busy, words
        found: set[str] = set()
        for rule in rules():
            if failing(known, rule.when) or rule.instead_of in found:
                continue
            if unknown(known, rule.when):
                self.missing.update(unknown(known, {**rule.when, **rule.harms_if, **rule.certain_if}))
                continue
            found.add(rule.id)
            self._judge(rule)

    def ranked(self) -> list[KernelCause]:
        """The causes, by the cost of their own mechanism: the order among causes with the same cost."""
        return [cause for _, cause in sorted(self._causes, key=lambda one: -one[0])]

    def _judge(self, rule: CauseRule) -> None:
        """File a rule whose `when` holds as a cause, as ruled out, or as possible."""
        costs, worth = cost(rule, self._known, self._busy), facts()["worth_naming"]
        share = costs.at_most
        reasons = failing(self._known, rule.harms_if)
        if reasons:
            self._rule_out(rule, self._words.fact(reasons[0]))
        elif share is not None and share < worth:
            if costs.own >= worth and costs.kept_by is not None:
                self._rule_out(rule, leaves_no_more(costs.kept_by))
        elif not holds(self._known, {**rule.harms_if, **rule.certain_if}):
            self.possible.append(self._words.label(rule))
            self.missing.update(unknown(self._known, {**rule.harms_if, **rule.certain_if}))
        else:
            evidence = _evidence(rule, self._known, self._sources)
            cause = KernelCause(rule.id, self._words.sentence(rule), share, evidence, rule.source)
            self._causes.append((0.0 if share is None else costs.own, cause))

    def _rule_out(self, rule: CauseRule, reason: str) -> None:
        self.ruled_out.append(RuledOut(rule.id, self._words.label(rule), reason))


def _to_collect(missing: set[str], compared: bool, is_certain: bool, kernel: Hotspot) -> list[str]:
    """The groups that collect the missing quantities; DRAM and FLOPs if a resource's use is unknown.

    If another resource can be busier than the busiest known one, NVIDIA's throughputs of the SM and of memory tell: for
    example for integer work or atomics, which neither FLOPs nor DRAM bytes count.
    """
    groups = {quantities()[name].group for name in missing} - {""}
    groups |= set() if is_certain else {"speed-of-light"}
    if not compared:
        groups |= {"dram"} if kernel.dram_bytes is None else set()
        groups |= {"flops"} if kernel.flops is None or kernel.flops_lower_bound else set()
    return sorted(groups)


def _in_report(metrics: Sequence[str], there: MetricsThere) -> Sequence[str]:
    """The metrics in the report, by the columns they come from, and name patterns; all if the report has none."""
    behind = there if isinstance(there, Mapping) else {name: (name,) for name in there}
    found = (name for one in metrics for name in ((one,) if "*" in one else behind.get(one, ())))
    return list(dict.fromkeys(found)) or metrics


def _beyond(one: BusyResource) -> str:
    of = "ceiling" if one.resource == ROOF or one.metric == "roofline" else "peak"
    return f"{one.title} at {percent(one.share)} of its {of} is out of range: {WHY_BEYOND[of]}"


def _limit(busiest: BusyResource) -> KernelCause:
    of = "ceiling" if busiest.resource == ROOF else "peak"
    return KernelCause(
        AT_ITS_LIMIT,
        f"{busiest.title} bound: at {percent(busiest.share)} of its {of}",
        max(0.0, 1.0 - busiest.share),
        [CauseEvidence("busiest", f"{busiest.title} busy", busiest.share, "fraction", [busiest.metric])],
        "NVIDIA's speed-of-light rule: above 80 % a unit is the bottleneck (SpeedOfLight)",
    )


def _evidence(rule: CauseRule, known: Known, sources: Mapping[str, Sequence[str]]) -> list[CauseEvidence]:
    found = []
    for name in rule.evidence:
        one = quantities()[name]
        if not math.isnan(known.get(name, math.nan)):
            found.append(CauseEvidence(name, one.title, known[name], one.unit, sources[name]))
    return found
