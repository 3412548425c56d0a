"""Explain a rule, quantity, fact or stall: its formula, threshold and source, and their values for one kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from ncu_launch.errors import WrongUsage

from ncu_tools.kernels.diagnosis.diagnose import AT_ITS_LIMIT, Diagnosis
from ncu_tools.kernels.diagnosis.limits import (
    busy_resources,
    busy_where_it_counts,
    cost,
    near_its_limit,
    split_by_range,
)
from ncu_tools.kernels.diagnosis.rules import CauseRule, Conditions, facts, failing, quantities, rules, unknown
from ncu_tools.kernels.diagnosis.wording import percent
from ncu_tools.kernels.kernel_row import NEAR_ITS_LIMIT
from ncu_tools.kernels.source.instruction_mix import kinds, opcodes_of
from ncu_tools.kernels.source.stalls import Stall, stalls
from ncu_tools.kernels.view.facts import parts
from ncu_tools.kernels.view.kernel_view import KernelView

SIGNS = {"at_least": ">=", "above": ">", "at_most": "<=", "below": "<"}
RULES_FILE = "ncu_tools/kernels/diagnosis/rules.toml"
GUIDE = "NVIDIA, Kernel Profiling Guide (Metrics Reference); ncu_tools/kernels/view/parts.toml"
STALLS_FILE = "NVIDIA, Kernel Profiling Guide (Warp Stall Reasons); ncu_tools/kernels/source/stalls.toml"
OPCODES_FILE = "NVIDIA, CUDA Binary Utilities (Instruction Set Reference); ncu_tools/kernels/source/opcodes.toml"
STALL, MIX = "stall ", "mix_"
WHEN, ONLY_IF, CERTAIN_IF, EVIDENCE = "found when", "a cause only if", "certain if", "its other numbers"
COSTS, BUSY = "costs about", "busy"
LEFT = "left"
LEFT_TITLE = (
    "what busy resources leave to gain: 1 - max over resources of busy x (1 - share of its work that a fix removes)"
)
NEAR_NAMES = 5
LEAST_ALIKE = 0.5


@dataclass(frozen=True)
class ExplainedNumber:
    """One number of an explanation: its role, key, meaning, limit and value.

    `value` is None if it was not collected, `holds` None if there is no limit or no value.
    """

    role: str
    key: str
    title: str
    unit: str
    condition: str
    value: float | None
    holds: bool | None
    metrics: list[str]


@dataclass(frozen=True)
class ExplainedName:
    """Meaning of a name ("rule", "quantity", "fact" or "stall"), its numbers for a kernel, the outcome, its source."""

    name: str
    kind: str
    outcome: str
    numbers: list[ExplainedNumber]
    source: str
    says: str = ""
    formulas: list[str] = field(default_factory=list)


def names() -> list[str]:
    """Everything that can be explained, in the form to type: without spaces."""
    keys = [
        AT_ITS_LIMIT,
        *(rule.id for rule in rules()),
        *quantities(),
        *(key for part in parts().values() for key in part),
        *stalls(),
        *(f"{MIX}{kind}" for kind in kinds()),
    ]
    return sorted({key.replace(" ", "-") for key in keys})


def explain(view: KernelView, name: str) -> ExplainedName:
    """Explain a rule, else a fact, a quantity or a stall, for one kernel. Spaces, hyphens and underscores are alike.

    Raises `WrongUsage` for an unknown name, with near names.
    """
    wanted = _plain(name)
    if wanted == _plain(AT_ITS_LIMIT):
        return _limit(view)
    rule = next((one for one in rules() if _plain(one.id) == wanted), None)
    if rule is not None:
        return _rule(view, rule)
    for part, entries in parts().items():
        for key, entry in entries.items():
            if _plain(key) == wanted:
                return _fact(view, part, key, entry)
    quantity = next((key for key in quantities() if _plain(key) == wanted), None)
    if quantity is not None:
        return ExplainedName(quantity, "quantity", "", [_number(view, "quantity", quantity)], RULES_FILE)
    stall = next((one for one in stalls().values() if wanted.removeprefix(STALL) in _written(one)), None)
    if stall is not None:
        return _stall(view, stall)
    kind = next((one for one in kinds() if _plain(f"{MIX}{one}") == wanted), None)
    if kind is not None:
        return _kind(view, kind)
    near = get_close_matches(name.lower(), names(), NEAR_NAMES, LEAST_ALIKE)
    every = [AT_ITS_LIMIT, *(one.id for one in rules())]
    raise WrongUsage(
        f"No rule, quantity, fact or stall is called {name}.",
        f"Names like it: {', '.join(near)}." if near else f"The rules are: {', '.join(every)}.",
        "Quantities are those of rules.toml, facts have the keys of kernel --format json.",
    )


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", " ").replace("_", " ")


# --------------------------------------------------------------------------------------------------- rules


def _rule(view: KernelView, rule: CauseRule) -> ExplainedName:
    numbers = [
        *_conditions(view, WHEN, rule.when),
        *_conditions(view, ONLY_IF, rule.harms_if),
        *_conditions(view, CERTAIN_IF, rule.certain_if),
    ]
    used = {number.key for number in numbers}
    of_costs = [rule.costs] if _is_by_quantity(view, rule) else list(dict.fromkeys(rule.frees.values()))
    numbers += [_number(view, COSTS, key) for key in of_costs]
    numbers += _busy_and_left(view, rule)
    numbers += [_number(view, EVIDENCE, key) for key in rule.evidence if key not in used | set(of_costs)]
    return ExplainedName(
        rule.id,
        "rule",
        _outcome(view, rule),
        numbers,
        rule.source,
        _sentence(view, rule.id),
        _formulas(view, rule),
    )


def _busy_and_left(view: KernelView, rule: CauseRule) -> list[ExplainedNumber]:
    """How busy the resources are that a fix would relieve, and how much time all resources leave to gain."""
    every, _ = split_by_range(busy_resources(view.quantities, view.hotspot))
    found = []
    for resource in rule.frees:
        one = next((one for one in every if one.resource == resource), None)
        share, title, metrics = (one.share, one.title, [one.metric]) if one else (None, resource, [])
        counts = None if share is None else busy_where_it_counts(resource, share, view.quantities)
        while_at_work = "" if counts == share else " while SMs have work"
        title = f"{title} busy{while_at_work}"
        found.append(ExplainedNumber(COSTS, f"{resource}_busy", title, "fraction", "", counts, None, metrics))
    left = cost(rule, view.quantities, every).left if every else None
    return [*found, ExplainedNumber(COSTS, LEFT, LEFT_TITLE, "fraction", "", left, None, [])]


def _is_by_quantity(view: KernelView, rule: CauseRule) -> bool:
    """True if a rule costs its quantity, not the busy time of freed resources."""
    return bool(rule.costs) and (not rule.frees or not math.isnan(view.quantities.get(rule.costs, math.nan)))


def _formulas(view: KernelView, rule: CauseRule) -> list[str]:
    """The approximate cost of a rule, as a formula of its quantities."""
    if _is_by_quantity(view, rule):
        return [f"{rule.costs}, and no more than {LEFT}"]
    freed = ", ".join(f"{resource}_busy x {quantity}" for resource, quantity in rule.frees.items())
    return [f"the most of {freed}; and no more than {LEFT}"]


def _outcome(view: KernelView, rule: CauseRule) -> str:
    """The rule's outcome for the kernel: a cause, ruled out, possible, or the condition that does not hold."""
    known, ours = view.quantities, view.diagnosis or Diagnosis(None, [])
    for cause in ours.causes:
        if cause.rule == rule.id:
            return "here a cause"
    for one in ours.ruled_out:
        if one.rule == rule.id:
            return f"here ruled out, as {one.reason}"
    wrong, lacking = failing(known, rule.when), unknown(known, rule.when)
    if wrong:
        return f"not found here, as {', '.join(_condition(rule.when, key) for key in wrong)} does not hold"
    if lacking:
        return f"not known here, as {', '.join(lacking)} was not collected"
    if rule.instead_of and _is_found(known, rule.instead_of):
        return f"not tried here, as {rule.instead_of} is found"
    missing = unknown(known, {**rule.harms_if, **rule.certain_if})
    if missing:
        return f"possible here and not certain, as {', '.join(missing)} was not collected"
    doubts = failing(known, rule.certain_if)
    if doubts:
        conditions = ", ".join(_condition(rule.certain_if, key) for key in doubts)
        return f"possible here and not certain, as {conditions} does not hold"
    share = cost(rule, known, split_by_range(busy_resources(known, view.hotspot))[0]).at_most
    return f"found here and not named, as it can cost {percent(share or 0)}, below {percent(facts()['worth_naming'])}"


def _is_found(known: Mapping[str, float], rule_id: str) -> bool:
    when = next(one.when for one in rules() if one.id == rule_id)
    return not failing(known, when) and not unknown(known, when)


def _sentence(view: KernelView, rule: str) -> str:
    """The sentence of the diagnosis on a cause; "" if it is none here."""
    return next((one.says for one in view.diagnosis.causes if one.rule == rule), "") if view.diagnosis else ""


def _conditions(view: KernelView, role: str, conditions: Conditions) -> list[ExplainedNumber]:
    found = []
    for key in conditions:
        one = {key: conditions[key]}
        holds = None if unknown(view.quantities, one) else not failing(view.quantities, one)
        found.append(_number(view, role, key, _condition(conditions, key), holds))
    return found


def _condition(conditions: Conditions, key: str) -> str:
    return " and ".join(f"{key} {SIGNS[sign]} {limit:g}" for sign, limit in conditions[key].items())


def _number(view: KernelView, role: str, key: str, condition: str = "", holds: bool | None = None) -> ExplainedNumber:
    one, value = quantities()[key], view.quantities.get(key, math.nan)
    known = None if math.isnan(value) else value
    sources = list(view.quantity_sources.get(key, one.metrics))
    return ExplainedNumber(role, key, one.title, one.unit, condition, known, holds, sources)


def _limit(view: KernelView) -> ExplainedName:
    """The rule that the busiest resource bounds a kernel, with every known resource."""
    busy = busy_resources(view.quantities, view.hotspot)
    numbers = [
        ExplainedNumber(
            BUSY, one.resource, one.title, "fraction", f"{one.resource} >= {NEAR_ITS_LIMIT:g}", one.share,
            one.is_proven and one.share >= NEAR_ITS_LIMIT, [one.metric],
        )
        for one in busy
    ]  # fmt: skip
    limit = near_its_limit(busy)
    if not busy:
        outcome = "not known here: how busy the resources are was not collected"
    elif limit is not None:
        outcome = f"here a cause: {limit.title} at {percent(limit.share)}"
    else:
        outcome = f"not found here: the busiest is {busy[0].title}, at {percent(busy[0].share)}"
    source = "NVIDIA's speed-of-light rule: above 80 % a unit is the bottleneck (SpeedOfLight)"
    formulas = ["1 - the share for which the busiest resource is busy"]
    return ExplainedName(AT_ITS_LIMIT, "rule", outcome, numbers, source, _sentence(view, AT_ITS_LIMIT), formulas)


# --------------------------------------------------------------------------------------- stalls and facts


def _written(stall: Stall) -> tuple[str, str]:
    """The spellings of a reason: metrics of warp states have no_instruction, those of samples no_instructions."""
    return stall.title, stall.title.removesuffix("s")


def _stall(view: KernelView, stall: Stall) -> ExplainedName:
    """A stall reason; its time is 0 where only others were met."""
    found = next((one for one in view.stalls if one.reason in _written(stall)), None)
    share, cycles = (found.share, found.per_issue) if found is not None else (0.0 if view.stalls else None, None)
    of_time = "of the time of a warp between two instructions"
    numbers = [ExplainedNumber("value", "share", of_time, "fraction", "", share, None, [])]
    if cycles is not None:
        numbers.append(
            ExplainedNumber("value", "per_issue", "for each issued instruction", "cycle", "", cycles, None, [])
        )
    outcome = "not collected here" if share is None else "here the median of the launches"
    means = f"A warp does not issue, as {stall.meaning}. What helps: {stall.advice}"
    return ExplainedName(stall.title, "stall", outcome, numbers, STALLS_FILE, means)


def _kind(view: KernelView, kind: str) -> ExplainedName:
    """A kind of instructions: how many a launch executes; 0 if only other kinds were counted."""
    count, share = (None, None) if view.mix is None else (view.mix.of_a_launch.get(kind, 0.0), view.mix.share(kind))
    numbers = [
        ExplainedNumber("value", f"{MIX}{kind}", "warp instructions of a launch", "inst", "", count, None, []),
        ExplainedNumber("value", "share", "of all warp instructions", "fraction", "", share, None, []),
    ]
    outcome = "not collected here" if view.mix is None else "here the mean of the launches with counts of opcodes"
    opcodes = opcodes_of(kind)
    means = f"Warp instructions with {', '.join(opcodes)}" if opcodes else "Warp instructions of no kind that is known"
    return ExplainedName(f"{MIX}{kind}", "fact", outcome, numbers, OPCODES_FILE, means)


def _fact(view: KernelView, part: str, key: str, entry: Mapping[str, object]) -> ExplainedName:
    metrics, over = [str(one) for one in entry["metrics"]], entry.get("over")  # type: ignore[attr-defined]
    fact = next((one for one in view.facts if one.part == part and one.key == key), None)
    formula = " or else ".join(metrics) + (f", over {over}" if over else "")
    value = None if fact is None else fact.value
    unit = "" if fact is None else fact.unit
    number = ExplainedNumber("value", key, str(entry["title"]), unit, "", value, None, metrics)
    outcome = "not collected here" if fact is None else f"here from {fact.metric}, the median of the launches"
    numbers = [number]
    if fact is not None and fact.of is not None:
        numbers.append(ExplainedNumber("against", "of", f"compared with: {entry['of']}", unit, "", fact.of, None, []))
    formulas, means = [] if formula == metrics[0] else [formula], str(entry["means"])
    return ExplainedName(key, "fact", outcome, numbers, GUIDE, means[:1].upper() + means[1:], formulas)
