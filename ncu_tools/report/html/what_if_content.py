"""Savings of what-ifs at some factors of an operation's time, between which a page interpolates.

A replay ends when its longest path does, the largest of sums that are linear in the changed times, so the saving is a
concave function of the factor. Between two factors it lies above the line through their savings, and below the lines
through those of the next two on either side: the interval that a page shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ncu_tools.timeline.graph.asked import GAPS, KINDS
from ncu_tools.timeline.graph.operators import numbers_of_names
from ncu_tools.timeline.graph.what_if import ends, savings
from ncu_tools.timeline.levers.step_advice import StepAdvice

FACTORS = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.5, 2.0)
"""Factors of a time that are replayed; 1 saves nothing."""
MOST_KERNELS, MOST_OPERATORS = 10, 6
"""Most kernels and most operators offered: those with most time on the critical path."""
MOST_NODES = 60_000_000
"""Most nodes replayed for one run, over all what-ifs; they take some seconds."""


def what_ifs(found: StepAdvice, shown: Mapping[str, str]) -> dict[str, Any]:
    """The offered what-ifs, with the ns that a step saves at each factor or without the operation; {} without room.

    `kept` and `dropped` are the savings with unexplained waits kept and dropped; `gone` is the least, likely (or null)
    and most. `name` is the argument of `--what-if`; kernels have the names `shown`.
    """
    asked, graph = found.situation.asked, found.situation.graph
    most = MOST_NODES // max(len(graph) * (len(FACTORS) + 3), 1)
    chosen = list(_choices(found, shown))[:most]
    if not chosen:
        return {}
    rows = [asked.what_if(f"{name}={factor}x") for _, _, name in chosen for factor in FACTORS]
    end = ends(graph, [one.least for one in rows])
    saved = ((end[:, :1] - end[:, 1:]) / found.steps).reshape(2, len(chosen), len(FACTORS)).round()
    gone = savings(graph, [asked.what_if(f"{name}=0") for _, _, name in chosen])
    return {
        "factors": FACTORS,
        "choices": [
            {
                "group": group, "title": title, "name": name,
                "kept": saved[0, place].tolist(), "dropped": saved[1, place].tolist(),
                "gone": [
                    None if one is None else round(one / found.steps)
                    for one in (gone[place].low_ns, gone[place].likely_ns, gone[place].high_ns)
                ],
            }
            for place, (group, title, name) in enumerate(chosen)
        ],
    }  # fmt: skip


def _choices(found: StepAdvice, shown: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Group, title and name of each choice: kernels and copies, operators, kinds of work, gaps."""
    activity, work, around = found.situation.activity, found.path.work, found.situation.around
    names = activity.operations.names
    for number in _largest(activity.operations.name, work, MOST_KERNELS):
        yield "kernel", shown.get(names[number], names[number]), f"^{re.escape(names[number])}$"
    inside = around >= 0
    for number in _largest(numbers_of_names(activity.ranges)[around[inside]], work[inside], MOST_OPERATORS):
        name = activity.ranges.names[number]
        yield "operator, with what it calls", name, f"^{re.escape(name)}$"
    for name, kind in KINDS.items():
        if (found.situation.kinds == kind).any():
            yield "all of a kind", name, name
    for name in GAPS:
        yield "gaps", {"gap:launch": "launch gaps", "gap:call": "API calls", "gap:host": "host code"}[name], name


def _largest(codes: npt.NDArray[Any], weight: npt.NDArray[np.float64], most: int) -> list[int]:
    """The codes with the largest sums of weight, largest first; none without weight."""
    sums = np.bincount(codes, weight) if len(codes) else np.zeros(0)
    return [number for number in np.argsort(-sums, kind="stable")[:most].tolist() if sums[number] > 0]
