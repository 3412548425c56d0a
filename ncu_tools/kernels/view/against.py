"""A kernel before and after a change: which values differ beyond their spread, and what explains the change of time.

A value has changed if the ranges of its launches in both runs do not overlap and its medians differ by more than
`LEAST_CHANGE`, per cents by more than `LEAST_POINTS`; launch parameters (grid, registers, ...) by anything. Launches of
one kernel in one run of an H100 differ by up to 1 % in clocks and bytes, so less than 2 % is not shown to be a change.
For times, with several launches of one shape on both sides, the 95 % interval of the ratio of means replaces the
ranges, so that this and `ncu-bench compare` agree: one slow launch in fifty hides no change.

The time of a kernel follows from its amount of work and its speed:

    time = instructions / (instructions per scheduler and cycle x schedulers x share of cycles with work x clock)
    instructions per scheduler and cycle = active warps / cycles between two instructions of a warp

so each of these ratios is a factor of the ratio of times, and the share that a factor explains is the ratio of their
logarithms. Bytes are a factor if their level is near its limit in the slower run, limited to the time for which the
level is busy: L1 also serves shared memory, which its bytes do not include. Other changes are listed without being
called a cause.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ncu_tools.kernels.diagnosis.diagnose import AT_ITS_LIMIT, KernelCause
from ncu_tools.kernels.kernel_row import NEAR_ITS_LIMIT
from ncu_tools.kernels.view.facts import Fact
from ncu_tools.kernels.view.kernel_view import KernelView, Shape
from ncu_tools.kernels.view.part_rows import written
from ncu_tools.numbers.number_format import percent
from ncu_tools.numbers.statistics import mean_of, ratio_interval

LEAST_CHANGE, LEAST_POINTS = 0.02, 1.0
LEAST_OF_STALLS = 0.01
"""The least change of a stall, of the cycles of all stalls: one of 0.001 cycles may double without meaning."""
STALL, DURATION = "stall_", "duration"
EXACT_PART = "identity"
MEASURED = ("time", "hz")
"""Kinds of values that are measured, among those of `EXACT_PART`."""
WORTH_TELLING = 0.1
"""The least share of the change of time that a factor must explain to be named as a reason."""
EXPLAINED = 0.8
"""If factors explain a smaller share of the change, the rest is named too."""
ISSUE_RATE = "instructions issued per scheduler and cycle"
LEAST_OF_BUSY = 0.05
"""Bytes and busy time whose logarithms differ by less are the same change, which bytes represent."""
LEVELS = {"dram": ("dram_read", "dram_write"), "l2": ("l2_bytes",), "l1": ("l1_bytes",)}
"""Level, as in the part "limits" -> the facts of the bytes that it moves."""
COMPANIONS = (
    "achieved", "theoretical", "registers", "shared_dynamic", "l1_hit_rate", "l2_hit_rate", "load_sectors",
    "store_sectors", "waves", "dram", "l2", "l1", "sm",
)  # fmt: skip
"""Values listed beside an unexplained change: the first ones that changed."""
MOST_COMPANIONS = 3
LEVEL_TITLES = {"dram": "DRAM", "l2": "L2", "l1": "L1"}


@dataclass(frozen=True)
class ValueChange:
    """One value in both runs: medians, and the minimum and maximum of the launches. Per cents are 0 to 100.

    A difference below `least` is no change, whatever its relative size. `interval` is the 95 % interval of the ratio of
    means, new / base; None if unknown.
    """

    part: str
    key: str
    title: str
    kind: str
    unit: str
    base: float
    new: float
    base_range: tuple[float, float]
    new_range: tuple[float, float]
    least: float = 0.0
    interval: tuple[float, float] | None = None

    @property
    def overlaps(self) -> bool:
        """True if the ranges of the launches overlap."""
        return self.base_range[1] >= self.new_range[0] and self.new_range[1] >= self.base_range[0]

    @property
    def apart(self) -> bool:
        """True if the interval shows a change in the medians' direction; without one, if the ranges do not overlap."""
        if self.interval is None:
            return not self.overlaps
        low, high = self.interval
        return low > 1 if self.new > self.base else high < 1

    @property
    def changed(self) -> bool:
        """True if both sides are apart, and the medians differ by more than the threshold."""
        apart = self.apart
        difference = abs(self.new - self.base)
        if self.part == EXACT_PART and self.kind not in MEASURED:
            return self.new != self.base
        if self.kind == "percent":
            return apart and difference > LEAST_POINTS
        return apart and difference > max(self.least, LEAST_CHANGE * max(abs(self.base), abs(self.new)))

    @property
    def growth(self) -> float | None:
        """The change as a fraction of the base; None for a base of 0."""
        return self.new / self.base - 1 if self.base else None

    @property
    def words(self) -> str:
        """Both numbers: "284.6 µs -> 153.1 µs"."""
        return f"{written(self.kind, self.base)} -> {written(self.kind, self.new)}"


@dataclass(frozen=True)
class Factor:
    """A reason for a change of time: its factor on the time, its share of the change, its numbers.

    The share is positive for a reason, and negative for a counteracting factor.
    """

    what: str
    factor: float
    share: float
    numbers: str


@dataclass(frozen=True)
class CauseChange:
    """A cause of the diagnosis in both runs: the largest share of the time that it can cost.

    None if it is no cause: not found, ruled out, or its numbers were not collected.
    """

    rule: str
    base: float | None
    new: float | None

    @property
    def changed(self) -> bool:
        """True if one run lacks it, or its cost differs by more than the threshold of per cents."""
        if self.base is None or self.new is None:
            return self.base is not self.new
        return abs(self.new - self.base) > LEAST_POINTS / 100


@dataclass(frozen=True)
class KernelChange:
    """A kernel in two runs: every common value, their causes, and why its time changed.

    `factors` are sorted by the share of the change that they explain; `lost` and `gained` are the titles of values that
    only one run has. `matched_by` says by what a renamed kernel was found, None for one of the same name or asked for.
    """

    base: KernelView
    new: KernelView
    values: list[ValueChange]
    causes: list[CauseChange]
    lost: list[str]
    gained: list[str]
    factors: list[Factor]
    why: str
    matched_by: str | None = None

    @property
    def time(self) -> ValueChange | None:
        """The change of the time of a launch; None if a run has no times."""
        return next((one for one in self.values if one.key == "duration"), None)


def common_shape(base: KernelView, new: KernelView) -> Shape | None:
    """The grid and block with the most of the base's time that the new run has too, if launches of a run differ in it.

    None if every launch has the same shape, or the runs share none.
    """
    if max(len(base.times_by_shape), len(new.times_by_shape)) <= 1:
        return None
    both = [shape for shape in base.times_by_shape if shape in new.times_by_shape]
    return max(both, key=lambda shape: base.times_by_shape[shape], default=None)


def against(base: KernelView, new: KernelView) -> KernelChange:
    """What changed of a kernel from the base to the new run, and why it is faster or slower."""
    before, after = _values(base), _values(new)
    cycles = max(sum(stall.per_issue or 0.0 for stall in view.stalls) for view in (base, new))
    values = [
        ValueChange(
            part=one.part, key=one.key, title=one.title, kind=one.kind, unit=one.unit,
            base=one.value, new=after[key].value,
            base_range=(one.low, one.high), new_range=(after[key].low, after[key].high),
            least=LEAST_OF_STALLS * cycles if key.startswith(STALL) else 0.0,
            interval=_interval_of_times(base, new) if key == DURATION else None,
        )
        for key, one in before.items() if key in after
    ]  # fmt: skip
    factors = _factors({one.key: one for one in values}, base, new)
    return KernelChange(
        base=base,
        new=new,
        values=values,
        causes=_causes(base, new),
        lost=[one.title for key, one in before.items() if key not in after],
        gained=[one.title for key, one in after.items() if key not in before],
        factors=factors,
        why=_why({one.key: one for one in values}, factors, base, new),
    )


def _interval_of_times(base: KernelView, new: KernelView) -> tuple[float, float] | None:
    """The 95 % interval of the ratio of mean times; None if one side has one launch, or launches of several shapes.

    Means over several shapes depend on how often each was launched.
    """
    sides = [np.asarray(view.times_ns, dtype=np.float64) for view in (base, new)]
    if min(map(len, sides)) < 2 or max(len(view.times_by_shape) for view in (base, new)) > 1:
        return None
    if any(np.isnan(side).any() for side in sides):
        return None
    return ratio_interval(mean_of(sides[0]), mean_of(sides[1]))


def _causes(base: KernelView, new: KernelView) -> list[CauseChange]:
    """The causes with a known cost in either run, the base's first."""
    before, after = (
        {} if view.diagnosis is None else {cause.rule: cause.cost for cause in view.diagnosis.causes if _costs(cause)}
        for view in (base, new)
    )
    return [CauseChange(rule, before.get(rule), after.get(rule)) for rule in {**before, **after}]


def _costs(cause: KernelCause) -> bool:
    """True for causes with a cost, except the limit of a resource, which part 2 shows."""
    return cause.cost is not None and cause.rule != AT_ITS_LIMIT


def _values(view: KernelView) -> dict[str, Fact]:
    """The facts, blocks per SM, stalls and instructions of a kernel by their keys."""
    found = {fact.key: fact for fact in view.facts}
    for resource, blocks in view.occupancy.blocks_by.items():
        key = f"blocks_by_{resource.replace(' ', '_')}"
        found[key] = _fact("occupancy", key, f"blocks per SM by {resource}", "count", "block", blocks)
    for stall in view.stalls:
        if stall.per_issue is None or stall.low is None or stall.high is None:
            continue
        key = f"{STALL}{stall.reason.replace(' ', '_')}"
        title = f"stalled, cycles per issue: {stall.reason}"
        found[key] = _fact("scheduler", key, title, "number", "cycle/issue", stall.per_issue, stall.low, stall.high)
    for kind, count in view.mix.of_a_launch.items() if view.mix else ():
        title = f"instructions: {kind.replace('_', '/')}"
        found[f"mix_{kind}"] = _fact("pipes", f"mix_{kind}", title, "count", "inst", count)
    return found


def _fact(
    part: str, key: str, title: str, kind: str, unit: str, value: float, low: float | None = None,
    high: float | None = None,
) -> Fact:  # fmt: skip
    low, high = value if low is None else low, value if high is None else high
    return Fact(part, key, title, kind, unit, value, low, high, None, None, "")


# ----------------------------------------------------------------------------------------------------- factors


def _factors(values: dict[str, ValueChange], base: KernelView, new: KernelView) -> list[Factor]:
    """The factors of the time, the largest share of its change first; [] if no change of time is shown."""
    time = values.get("duration")
    if time is None or not time.changed or _other_gpu(base, new):
        return []
    whole = math.log(time.new / time.base)
    found = []
    for what, key, power in (
        ("executed warp instructions", "executed", 1),
        (ISSUE_RATE, "issued", -1),
        ("SM clock", "sm_clock", -1),
    ):
        one = values.get(key)
        if one is not None and one.changed and one.base > 0 and one.new > 0:
            found.append((what, (one.new / one.base) ** power, one.words))
    found += _idle_factor(base, new)
    found += _byte_factors(values, base, new)
    factors = [Factor(what, factor, math.log(factor) / whole, words) for what, factor, words in found]
    return sorted(factors, key=lambda one: -one.share)


def _idle_factor(base: KernelView, new: KernelView) -> list[tuple[str, float, str]]:
    """The factor from the share of cycles in which SMs have work."""
    before, after = (1 - view.quantities.get("idle", math.nan) for view in (base, new))
    if not (before > 0 and after > 0) or abs(after - before) <= LEAST_POINTS / 100:
        return []
    return [("cycles in which SMs have work", before / after, f"{percent(before)} -> {percent(after)}")]


def _byte_factors(
    values: dict[str, ValueChange], base_view: KernelView, new_view: KernelView
) -> list[tuple[str, float, str]]:
    """The factors from bytes, for levels that are near their limit in the slower run.

    None if the level is busy for longer though it moves less, or the reverse.
    """
    found, time = [], values["duration"]
    for level, keys in LEVELS.items():
        limit, moved = values.get(level), [values[key] for key in keys if key in values]
        if limit is None or len(moved) < len(keys):
            continue
        if (limit.new if time.new > time.base else limit.base) < 100 * NEAR_ITS_LIMIT:
            continue
        base, new = sum(one.base for one in moved), sum(one.new for one in moved)
        if not (base > 0 and new > 0 and abs(new - base) > LEAST_CHANGE * max(base, new)):
            continue
        factor, numbers = new / base, f"{written('byte', base)} -> {written('byte', new)}"
        before = _busy_ns(level, limit.base, time.base, base_view)
        after = _busy_ns(level, limit.new, time.new, new_view)
        of_busy = after / before if before > 0 and after > 0 else factor
        if (of_busy - 1) * (factor - 1) <= 0:
            continue
        if abs(math.log(of_busy)) < abs(math.log(factor)) - LEAST_OF_BUSY:
            factor = of_busy
            numbers += f", {LEVEL_TITLES[level]} busy for {written('time', before)} -> {written('time', after)},"
        found.append((f"bytes moved, {LEVEL_TITLES[level]} at {limit.words} of its peak,", factor, numbers))
    return found


def _busy_ns(level: str, limit: float, time: float, view: KernelView) -> float:
    """The time for which a level is busy, ns: `limit` is its throughput in %, for L1 of the cycles with work."""
    idle = view.quantities.get("idle", math.nan) if level == "l1" else 0.0
    return time * limit / 100 * (1 - (0.0 if math.isnan(idle) else idle))


def _other_gpu(base: KernelView, new: KernelView) -> bool:
    """True if the runs are known to be of different GPUs, by their names or numbers of SMs."""
    sms = {view.quantities.get("sm_count", math.nan) for view in (base, new)}
    differ = len(sms) > 1 and not any(math.isnan(one) for one in sms)
    return differ or (base.device is not None and new.device is not None and base.device != new.device)


# --------------------------------------------------------------------------------------------------- the words


def _why(values: dict[str, ValueChange], factors: list[Factor], base: KernelView, new: KernelView) -> str:
    """The paragraph: the change of time, its reasons by share, counteracting factors, and the rest."""
    time = values.get("duration")
    if time is None:
        return "One of the runs has no times, so nothing is said of faster or slower."
    sentences = [_of_time(time, base, new)]
    if _other_gpu(base, new):
        names = f" ({base.device} -> {new.device})" if base.device != new.device else ""
        return f"{sentences[0]} The GPUs differ{names}, so no reason is given."
    if base.grids != new.grids or base.blocks != new.blocks:
        sentences.append("Grid or block differ, so the launches may have done other work.")
    if not time.changed:
        return " ".join(sentences)
    reasons = [one for one in factors if one.share >= WORTH_TELLING]
    against_it = [one for one in factors if one.share <= -WORTH_TELLING]
    for place, one in enumerate([*reasons, *against_it]):
        what = f"Against that, {one.what}" if one in against_it else _capital(one.what)
        alone = "alone would make" if place == 0 else "would make"
        sentences.append(f"{what} {one.numbers} {alone} it {one.factor:.3g} x the time.")
        if one.what == ISSUE_RATE:
            sentences += _of_issue(values)
    explained = sum(one.share for one in factors if not one.what.startswith("bytes"))
    bytes_explain = max((one.share for one in factors if one.what.startswith("bytes")), default=0.0)
    if max(explained, bytes_explain) < EXPLAINED:
        sentences.append(_of_rest(values, reasons))
    return " ".join(sentences)


def _of_time(time: ValueChange, base: KernelView, new: KernelView) -> str:
    one_each = base.launches == new.launches == 1
    of_what = "one launch each" if one_each else f"medians of {base.launches} and {new.launches} launches"
    if not time.changed:
        if one_each:
            return f"No change of time is shown: {time.words}, {of_what}."
        beyond = f" beyond {100 * LEAST_CHANGE:g} %" if time.apart else ""
        return f"No change of time{beyond} is shown: {time.words}, {of_what}{_ranges(time)}{_of_means(time)}."
    slower = time.new > time.base
    ratio = time.new / time.base if slower else time.base / time.new
    scatter = f"{_ranges(time)}{_of_means(time)}" if time.overlaps else ""
    return f"{ratio:.3g} x {'slower' if slower else 'faster'}: {time.words}, {of_what}{scatter}."


def _ranges(time: ValueChange) -> str:
    ranges = (
        f"{written(time.kind, low)} to {written(time.kind, high)}" for low, high in (time.base_range, time.new_range)
    )
    return f", which take {' and '.join(ranges)}"


def _of_means(time: ValueChange) -> str:
    """The interval of the change of means in words, as compare has it; "" without one."""
    if time.interval is None:
        return ""
    low, high = (f"{100 * (end - 1):+.1f} %" for end in time.interval)
    return f"; their means differ by {low} to {high}, with 95 % confidence"


def _of_issue(values: dict[str, ValueChange]) -> list[str]:
    """Why schedulers issue more or less: active warps, and the cycles between two instructions of a warp by stalls."""
    found = []
    active, latency = values.get("active"), values.get("latency")
    if active is not None and active.changed:
        achieved = values.get("achieved")
        occupancy = f" (achieved occupancy {achieved.words})" if achieved is not None and achieved.changed else ""
        found.append(f"active warps per scheduler {active.words}{occupancy}")
    stalls = [one for key, one in values.items() if key.startswith(STALL) and one.changed]
    if latency is not None and latency.changed:
        longer = latency.new > latency.base
        same_way = [one for one in stalls if (one.new > one.base) == longer]
        most = max(same_way, key=lambda one: abs(one.new - one.base), default=None)
        reason = "" if most is None else f", most of it {most.title.partition(': ')[2]} {most.words}"
        found.append(f"cycles between two instructions of a warp {latency.words}{reason}")
    return [f"Behind the issue rate: {'; '.join(found)}."] if found else []


def _of_rest(values: dict[str, ValueChange], reasons: list[Factor]) -> str:
    """The unexplained rest and why, and changes beside it, which are not called a cause."""
    names = {"executed": "instructions", "issued": "the issue rate"}
    lacking = " and ".join(title for key, title in names.items() if key not in values)
    were = "were" if "executed" not in values else "was"
    why = f": {lacking} {were} not collected in both runs (ncu --set full)" if lacking else ""
    also = [f"{values[key].title} {values[key].words}" for key in COMPANIONS if key in values and values[key].changed]
    with_it = f" Changed with it, which proves no cause: {', '.join(also[:MOST_COMPANIONS])}." if also else ""
    subject = "The rest of the change" if reasons else "The change"
    return f"{subject} is not explained by what was collected{why}.{with_it}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
