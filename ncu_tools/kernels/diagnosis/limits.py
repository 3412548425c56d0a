"""Utilization of each resource of the GPU during a kernel, and the resulting bound on what fixing a cause can save.

A kernel that keeps a resource busy for a share u of its time cannot become faster than u of that time by a change that
leaves this resource's work as it is. So if fixing a cause removes a share w of the work of each resource,

    new time / time >= max over resources of u x (1 - w),

and the cause costs at most 1 minus that. Of this the estimate is the part that its own mechanism explains: the time for
which a resource is busy with it. Waits for that resource come on top: on an H100 the removal of spills saved 96 % of
the time against an estimate of 68 %, and of bank conflicts 41 % against 53 % (docs/diagnosis.md).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ncu_tools.ceilings.ceilings import UNIT_TITLES
from ncu_tools.kernels.diagnosis.rules import CauseRule, Known, facts
from ncu_tools.kernels.kernel_row import NEAR_ITS_LIMIT, Hotspot

DRAM, L2, L1, LSU, SM, MEMORY, ROOF = "dram", "l2", "l1", "lsu", "sm", "memory", "roof"
LEVELS = (DRAM, L2, L1)
OF_ALL_SMS, WITHIN_AN_SM = (DRAM, L2), (L1, LSU, SM, ROOF)
"""Resources shared by all SMs, and resources within each SM, whose use is a mean over all SMs."""
MEMORY_METRIC = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
MOST_BUSY = 1.05
"""A share above this is impossible, allowing for rounding and clocks."""
MOST_SMS = 256
"""No GPU has more SMs: a grid of as many blocks leaves none of them empty."""
AS_BUSY = 0.01
"""If a unit is busier than its busiest part by no more than this, the more specific part is named."""


@dataclass(frozen=True)
class BusyResource:
    """One resource: the share of the kernel's time it is busy, and the metric of that share, or "roofline".

    `is_proven` is False if it is unknown which part of it is busy, and whether it bounds the kernel.
    """

    resource: str
    title: str
    share: float
    metric: str
    is_proven: bool = True


def busy_resources(known: Known, kernel: Hotspot) -> list[BusyResource]:
    """Every resource with known use, by its busiest part, the busiest resource first.

    The roofline's bound is one of them. Throughputs of a whole unit, of the SM or of the memory system are included
    only if they exceed every collected part.
    """
    parts: dict[str, BusyResource] = {}
    for place in sorted(known, key=lambda name: "throughput" in name):
        resource, _, rest = place.partition("/")
        title, _, metric = rest.partition("/")
        others = (L1, LSU) if resource == L1 and "throughput" in metric else (resource,)
        exceeds = known[place] - max((parts[one].share for one in others if one in parts), default=-1.0)
        if metric and exceeds > (AS_BUSY if "throughput" in metric else 0.0):
            parts[resource] = BusyResource(resource, title, known[place], metric)
    _add_l1_of_active_cycles(parts, known)
    _doubt_l2_beyond_the_memory_system(parts, known)
    found = list(parts.values())
    for resource, title, name, members in (
        (SM, "SM", "sm__throughput.avg.pct_of_peak_sustained_elapsed", (SM,)),
        (MEMORY, "memory system", MEMORY_METRIC, (*LEVELS, LSU)),
    ):
        whole = known.get(f"{resource}_busy", math.nan)
        if whole > max((parts[one].share for one in members if one in parts), default=0.0) + AS_BUSY:
            found.append(BusyResource(resource, title, whole, name))
    if kernel.bound is not None and kernel.bound_fraction is not None:
        resource = DRAM if kernel.bound == UNIT_TITLES["dram"] else ROOF
        found.append(BusyResource(resource, kernel.bound, kernel.bound_fraction, "roofline"))
    return sorted(found, key=lambda one: -one.share)


def split_by_range(busy: Sequence[BusyResource]) -> tuple[list[BusyResource], list[BusyResource]]:
    """The resources with a possible share of the time, and those with an impossible one."""
    return [one for one in busy if one.share <= MOST_BUSY], [one for one in busy if one.share > MOST_BUSY]


def near_its_limit(busy: Sequence[BusyResource]) -> BusyResource | None:
    """The busiest proven resource, if it is so near its peak that it bounds the kernel."""
    return next((one for one in busy if one.is_proven and one.share >= NEAR_ITS_LIMIT), None)


def both_sides_are_known(known: Known, busy: Sequence[BusyResource], kernel: Hotspot) -> bool:
    """True if something is known on both the SMs and the memory system, by counters or the roofline."""
    resources = {one.resource for one in busy}
    memory = DRAM in resources or not math.isnan(known.get("memory_busy", math.nan))
    return kernel.bound_fraction is not None or (memory and _compute_is_known(known, resources))


def none_can_be_busier(known: Known, busy: Sequence[BusyResource]) -> bool:
    """True if neither the SMs nor a level of memory can be busier than the busiest known resource.

    DRAM alone shows nothing about L1 and L2: cached data can keep L2 at its peak with DRAM idle.
    """
    resources = {one.resource for one in busy}
    levels = resources | ({L1} if LSU in resources else set())
    memory = levels.issuperset(LEVELS) or not math.isnan(known.get("memory_busy", math.nan))
    return memory and _compute_is_known(known, resources)


def _compute_is_known(known: Known, resources: Collection[str]) -> bool:
    return SM in resources or not math.isnan(known.get("sm_busy", math.nan))


@dataclass(frozen=True)
class Cost:
    """Shares of a kernel's time: `own` is explained by the cause's mechanism, NaN if unknown.

    `left` is the share that busy resources leave to gain, and `kept_by` the resource that leaves least, None if none is
    known.
    """

    own: float
    left: float
    kept_by: BusyResource | None

    @property
    def at_most(self) -> float | None:
        """The most that the cause can cost; None if unknown."""
        return None if math.isnan(self.own) else max(0.0, min(self.own, self.left))


def cost(rule: CauseRule, known: Known, busy: Sequence[BusyResource]) -> Cost:
    """The most that fixing a rule's cause can save, by its mechanism and by other busy resources.

    If the quantity of a rule's cost is unknown, the cost is the time for which the freed resources are busy with waste.
    """
    freed = _freed(rule, known)
    is_priced = not rule.costs_where_busy or bool({one.resource for one in busy} & set(freed))
    own = known.get(rule.costs, math.nan) if is_priced else math.nan
    own = _busy_with_waste(freed, known, busy) if math.isnan(own) else own

    def kept(one: BusyResource) -> float:
        return one.share * (1.0 - freed.get(one.resource, 0.0))

    kept_by = max(busy, key=kept, default=None)
    return Cost(own, 1.0 - (0.0 if kept_by is None else kept(kept_by)), kept_by)


def _freed(rule: CauseRule, known: Known) -> dict[str, float]:
    """Resource -> the share of its work that a fix would remove.

    An unknown share is bounded by the largest known one of another resource; the same bounds the memory system as a
    whole.
    """
    wastes = {resource: known.get(quantity, math.nan) for resource, quantity in rule.frees.items()}
    certain = [share for share in wastes.values() if not math.isnan(share)]
    if not certain:
        return {}
    freed = {resource: max(certain) if math.isnan(share) else share for resource, share in wastes.items()}
    if set(freed) & set(LEVELS):
        freed[MEMORY] = max(certain)
    return freed


def _busy_with_waste(freed: Mapping[str, float], known: Known, busy: Sequence[BusyResource]) -> float:
    """The largest share of the time that a resource may spend on work that a fix would remove; NaN if none is known.

    A level of memory with unknown use is at most as busy as the memory system, and delays no more than its waits. If
    neither was collected, the cost of its work is unknown, and a low one of other levels does not drop the cause.
    """
    shares: dict[str, float] = {}
    for one in busy:
        shares[one.resource] = max(one.share, shares.get(one.resource, 0.0))
    uses = {
        one: busy_where_it_counts(one, shares[one], known) if one in shares else _at_most_busy(one, known)
        for one in freed
        if one in shares or one in LEVELS
    }
    most = max((freed[one] * use for one, use in uses.items() if not math.isnan(use)), default=math.nan)
    worth = facts()["worth_naming"]
    may_cost_more = any(math.isnan(use) and freed[one] >= worth for one, use in uses.items())
    return math.nan if most < worth and may_cost_more else most


def _at_most_busy(level: str, known: Known) -> float:
    """Upper bound on the use of a level of memory that was not collected; NaN if there is none."""
    names = ("memory_busy", f"waits {level}", *(["l1_busy_while_active"] if level == L1 else []))
    bounds = [known.get(name, math.nan) for name in names]
    bounds[0] = busy_where_it_counts(level, bounds[0], known)
    return min((one for one in bounds if not math.isnan(one)), default=math.nan)


def busy_where_it_counts(resource: str, share: float, known: Known) -> float:
    """The share of the time for which a resource is busy on the SMs with work, which decide a kernel's time.

    One block on one of 30 SMs that keeps L1 busy half of the time is 1.7 % of the GPU's L1, and half of its own time.
    NaN if the share is, or if there may be fewer blocks than SMs.
    """
    if resource not in WITHIN_AN_SM:
        return share
    idle, empty = known.get("idle", math.nan), known.get("empty_sms", math.nan)
    if math.isnan(share) or (math.isnan(idle) and math.isnan(empty) and known.get("blocks", math.nan) < MOST_SMS):
        return math.nan
    at_work = 1.0 - (idle if not math.isnan(idle) else 0.0 if math.isnan(empty) else empty)
    return min(1.0, share / at_work) if at_work > 0 else 1.0


def shared_by_all_sms(known: Known, busy: Sequence[BusyResource]) -> BusyResource | None:
    """The busiest of the resources that all SMs share, else the memory system that contains them; or None."""
    whole = known.get("memory_busy", math.nan)
    found = next((one for one in busy if one.resource in OF_ALL_SMS), None)
    if found is None and not math.isnan(whole):
        return BusyResource(MEMORY, "memory system", whole, MEMORY_METRIC)
    return found


def _add_l1_of_active_cycles(parts: dict[str, BusyResource], known: Known) -> None:
    """Add L1's throughput over active cycles as a share of all cycles, unless L1 has one already.

    It is at most the throughput of the whole memory system, which includes L1.
    """
    active, idle = known.get("l1_busy_while_active", math.nan), known.get("idle", math.nan)
    bounds = [active * (1 - idle), known.get("memory_busy", math.nan)]
    certain = [bound for bound in bounds if not math.isnan(bound)]
    if L1 not in parts and not math.isnan(active) and certain:
        parts[L1] = BusyResource(L1, "L1", min(active, *certain), "l1tex__throughput.avg.pct_of_peak_sustained_active")


def _doubt_l2_beyond_the_memory_system(parts: dict[str, BusyResource], known: Known) -> None:
    """Mark L2 as not proven if its throughput exceeds that of the memory system, which lacks one of its parts.

    That part, most likely the fabric between the halves of L2, is in no report unless requested.
    """
    l2 = parts.get(L2)
    if l2 is not None and "throughput" in l2.metric and l2.share > known.get("memory_busy", math.nan) + AS_BUSY:
        parts[L2] = replace(l2, is_proven=False)
