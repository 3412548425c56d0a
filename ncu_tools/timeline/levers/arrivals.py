"""Ranks of one job, a recording of each: which rank arrives last at its collectives, and what it did instead.

Ranks leave a collective together, which identifies the kernels of one collective and the difference of two recordings'
clocks. The order of arrival is known only among the given ranks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from ncu_launch.errors import NcuBenchError
from ncu_parsers.timelines.activity.activity import KERNEL, Activity, Integers

from ncu_tools.timeline.communication import is_communication
from ncu_tools.timeline.gaps import ThreadsOfCalls
from ncu_tools.timeline.graph.step_graph import Numbers
from ncu_tools.timeline.intervals import IntervalSet
from ncu_tools.timeline.launch_links import launching_calls
from ncu_tools.timeline.levers.situation import lever_facts

COMPARED = 512
"""Number of a recording's collectives that are compared to find the difference of two clocks."""


@dataclass(frozen=True)
class Arrival:
    """One collective of several ranks (indices of recordings), in ns of the first recording's clock.

    `last` arrived `late_ns` after the second-last rank. `transfer_ns` is the shortest duration over ranks, `waits_ns`
    the time that each waited for the last. `instead` is what the last rank did most from the first arrival to its own.
    """

    name: str
    ranks: tuple[int, ...]
    start_ns: float
    last: int
    late_ns: float
    waits_ns: tuple[float, ...]
    transfer_ns: float
    instead: str


@dataclass(frozen=True)
class RankArrivals:
    """One rank over all collectives: how often it was last, by how much, and how long it waited itself.

    None if unknown, because no collective of its recording was found in the first one.
    """

    rank: int
    name: str
    collectives: int
    last: int | None
    late_ns: float | None
    waited_ns: float | None
    instead: str | None


@dataclass(frozen=True)
class Arrivals:
    """All ranks, sorted by how late they were, latest first; notes say what is unknown."""

    ranks: Sequence[RankArrivals]
    collectives: Sequence[Arrival]
    notes: Sequence[str]


class _Rank:
    """The collectives of one recording ordered by their ends, on the clock of the first recording."""

    def __init__(self, activity: Activity) -> None:
        operations = activity.operations
        named = np.array([is_communication(name) for name in operations.names], np.bool_)
        rows = np.flatnonzero(named[operations.name] & (operations.kind == KERNEL)) if len(operations) else named[:0]
        self.activity = activity
        self.rows: Integers = np.array(rows, np.int64)[np.argsort(operations.end[rows], kind="stable")]
        self.names = [operations.names[int(one)] for one in operations.name[self.rows]]
        self.offset = 0.0

    @property
    def end(self) -> Numbers:
        """When each collective ends."""
        return self.activity.operations.end[self.rows].astype(np.float64) - self.offset

    @property
    def start(self) -> Numbers:
        """When the rank arrived at each collective."""
        return self.activity.operations.start[self.rows].astype(np.float64) - self.offset


def arrivals(activities: Sequence[Activity]) -> Arrivals:
    """Find which rank arrives last at each collective, from a recording per rank.

    Raises `NcuBenchError` if no collective is in two recordings, or two recordings are of the same rank.
    """
    twice = [rank for rank, times in Counter(one.rank for one in activities).items() if rank is not None and times > 1]
    if twice:
        raise NcuBenchError(
            f"Two of these recordings are of rank {twice[0]}.", "They are of two runs, as before and after a change.",
            "Compare runs: ncu-bench compare BEFORE AFTER.",
        )  # fmt: skip
    ranks = [_Rank(one) for one in activities]
    first, *others = ranks
    matched = [dict[int, int]() for _ in first.rows]
    for place, one in enumerate(others, start=1):
        for mine, theirs in _same_collectives(first, one):
            matched[mine][place] = theirs
    found = [_arrival(ranks, {0: at, **places}) for at, places in enumerate(matched) if places]
    if not found:
        raise NcuBenchError(
            "No collective is in two of these recordings.",
            "Ranks of one job leave their collectives together, and none of these do.",
            "Give recordings of the same steps of one job: ncu-bench advise rank0.json.gz rank1.json.gz",
        )
    return Arrivals(_by_rank(activities, found), found, _notes(ranks, found))


def _same_collectives(one: _Rank, other: _Rank) -> list[tuple[int, int]]:
    """Pairs of collectives (indices) with one kernel name that end together; sets the other recording's clock by them.

    If no ends meet, the clocks differ by the most common difference of ends, provided that over half of the shorter
    recording's collectives meet then: recordings of different jobs have some common differences, too.
    """
    limit = lever_facts()["arrivals"]["together_ns"]
    pairs = _near(one, other, limit)
    if not pairs and (apart := _most_common_difference(one, other, limit)) is not None:
        other.offset = apart
        pairs = _near(one, other, limit)
        if 2 * len(pairs) <= min(len(one.rows), len(other.rows)):
            other.offset = 0.0
            return []
    if pairs:
        mine, theirs = np.array(pairs).T
        other.offset += float(np.median(other.end[theirs] - one.end[mine]))
    return pairs


def _most_common_difference(one: _Rank, other: _Rank, limit: float) -> float | None:
    """The most common difference between ends of equally named kernels, in ns; None if another one is as common.

    Recordings may begin in different steps, and may lack records.
    """
    mine, theirs = (np.array(rank.names[:COMPARED], np.object_) for rank in (one, other))
    same = mine[:, None] == theirs[None, :]
    apart = np.sort((other.end[None, :COMPARED] - one.end[:COMPARED, None])[same])
    alike = np.searchsorted(apart, apart + limit, side="right") - np.arange(len(apart))
    if not len(apart):
        return None
    first, most = int(alike.argmax()), int(alike.max())
    found = float(np.median(apart[first : first + most]))
    is_alone = (alike[np.abs(apart - found) > 2 * limit] < most).all()
    return found if is_alone else None


def _near(one: _Rank, other: _Rank, limit: float) -> list[tuple[int, int]]:
    if not len(other.rows):
        return []
    after = np.minimum(np.searchsorted(other.end, one.end), len(other.rows) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(np.abs(other.end[before] - one.end) < np.abs(other.end[after] - one.end), before, after)
    near = np.abs(other.end[nearest] - one.end) <= limit
    return [
        (mine, theirs)
        for mine, theirs in enumerate(nearest.tolist())
        if near[mine] and one.names[mine] == other.names[theirs]
    ]


def _arrival(ranks: Sequence[_Rank], places: dict[int, int]) -> Arrival:
    numbers = tuple(places)
    began = np.array([ranks[rank].start[at] for rank, at in places.items()])
    lasts = np.array([ranks[rank].end[at] for rank, at in places.items()]) - began
    order = np.argsort(began)
    last = numbers[int(order[-1])]
    return Arrival(
        ranks[0].names[places[0]], numbers, float(began.min()), last, float(began[order[-1]] - began[order[-2]]),
        tuple((began.max() - began).tolist()), float(lasts.min()),
        _did(ranks[last], float(began.min()), float(began.max())),
    )  # fmt: skip


def _did(rank: _Rank, start: float, end: float) -> str:
    """What a rank did most in a time: a kernel, or, if its GPU was idle for most of it, the host's range."""
    operations = rank.activity.operations
    low, high = round(start + rank.offset), round(end + rank.offset)
    window = IntervalSet.between(low, high)
    if not window.total:
        return "arrived at once"
    inside = window.within(operations.start, operations.end)
    busy = (IntervalSet.union_of(operations.start, operations.end) & window).total
    if 2 * busy >= window.total:
        longest = int(np.bincount(operations.name, inside).argmax())
        return operations.names[longest]
    call = launching_calls(rank.activity)
    by = call[rank.rows]
    if not (by >= 0).any():
        return "idle GPU"
    thread = int(rank.activity.calls.thread[by[by >= 0][0]])
    found = ThreadsOfCalls(rank.activity, call).of(thread).range_over(low, high)
    return f"idle GPU, the host in {found[0]}" if found is not None else "idle GPU"


def _by_rank(activities: Sequence[Activity], found: Sequence[Arrival]) -> list[RankArrivals]:
    rows = []
    for place, activity in enumerate(activities):
        mine = [one for one in found if place in one.ranks]
        last = [one for one in mine if one.last == place]
        is_known = len(mine) > 0
        did: dict[str, float] = defaultdict(float)
        for one in last:
            did[one.instead] += one.late_ns
        rows.append(
            RankArrivals(
                place if activity.rank is None else activity.rank, activity.name, len(mine),
                len(last) if is_known else None, sum(one.late_ns for one in last) if is_known else None,
                sum(one.waits_ns[one.ranks.index(place)] for one in mine) if is_known else None,
                max(did, key=did.__getitem__, default=None),
            )
        )  # fmt: skip
    return sorted(rows, key=lambda one: -(one.late_ns or 0.0))


def _notes(ranks: Sequence[_Rank], found: Sequence[Arrival]) -> list[str]:
    known = {one for rank in ranks for one in rank.activity.collectives.values()}
    most = max((one.ranks or 0 for one in known), default=0)
    among = f", of {most} that take part" if most > len(ranks) else "; others of the job may be later"
    notes = [f"who arrives last is known only among the {len(ranks)} ranks at hand{among}"]
    unmatched = [at + 1 for at in range(len(ranks)) if not any(at in one.ranks for one in found)]
    if unmatched:
        named = f"recording {unmatched[0]}" if len(unmatched) == 1 else f"recordings {', '.join(map(str, unmatched))}"
        notes.append(f"no collective of {named} is found in the first one: nothing is known of who arrives there")
    least = min((len(rank.rows) for at, rank in enumerate(ranks) if at + 1 not in unmatched), default=0)
    if len(found) < least:
        notes.append(
            f"{least - len(found):,} of {least:,} collectives end with none of the other ranks, and are left out"
        )
    for one, other in combinations(range(len(ranks)), 2):
        apart = abs(ranks[one].offset - ranks[other].offset)
        if one == 0 and apart > lever_facts()["arrivals"]["together_ns"]:
            notes.append(
                f"the clocks of recordings 1 and {other + 1} are {apart / 1e6:,.3f} ms apart, by their collectives"
            )
    return notes
