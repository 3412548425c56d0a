"""Levers on the steps of a page's timelines as plain values: the critical path as lanes, and each lever's saving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncu_launch.errors import NcuBenchError

from ncu_tools.numbers.number_format import counted
from ncu_tools.report.step_advice_table import lever_rows, path_rows
from ncu_tools.timeline.graph.critical_path import PATH_KINDS, Stretch
from ncu_tools.timeline.graph.step_graph import Chain
from ncu_tools.timeline.levers.step_advice import StepAdvice, advice_on_recording
from ncu_tools.timeline.timeline import Timeline

MOST_STRETCHES, MOST_LEVERS, MOST_OPERATIONS = 1_500, 12, 1_000_000
"""Most (longest) stretches of a path on a page; most levers of a run; most operations in a recording with advice."""


def levers_content(timelines: Mapping[int, Timeline]) -> dict[str, Any]:
    """The levers of timelines by run index; {} if none has any.

    A part of a recording has none: the graph needs the whole.
    """
    runs = []
    for place, one in timelines.items():
        activity = one.activity
        if activity.whole is None and len(activity.operations) <= MOST_OPERATIONS:
            try:
                runs.append({"run": place, **_of_run(advice_on_recording(activity), one.origin_ns)})
            except NcuBenchError:  # its timeline is shown nevertheless
                continue
    return {"kinds": list(PATH_KINDS), "runs": runs} if runs else {}


def _of_run(found: StepAdvice, origin_ns: int) -> dict[str, Any]:
    lanes, left_out = _lanes(found)
    return {
        "step": found.step, "steps": found.steps, "step_ns": found.step_ns, "length_ns": found.path.length_ns,
        "gpu_alone_ns": found.gpu_alone_ns, "host_alone_ns": found.host_alone_ns, "path": path_rows(found),
        "origin_ns": found.situation.graph.origin - origin_ns,
        "lanes": lanes, "left_out": left_out, "levers": lever_rows(found)[:MOST_LEVERS], "notes": found.notes,
    }  # fmt: skip


def _lanes(found: StepAdvice) -> tuple[list[dict[str, Any]], str | None]:
    """A lane for each thread and stream on the critical path, with boxes [start, length, kind] in ns."""
    stretches: Sequence[Stretch] = found.path.stretches
    longest = sorted(stretches, key=lambda one: one.start_ns - one.end_ns)[:MOST_STRETCHES]
    chains = found.situation.graph.chains
    lanes = {
        chain: {"title": _title(chains[chain]), "boxes": list[list[int]]()}
        for chain in sorted({one.chain for one in stretches})
    }
    for one in sorted(longest, key=lambda one: one.start_ns):
        lanes[one.chain]["boxes"].append([round(one.start_ns), round(one.end_ns - one.start_ns), one.kind])  # type: ignore[attr-defined]
    rest = len(stretches) - len(longest)
    left_out = f"{counted(rest, 'shorter stretch is', 'shorter stretches are')} not drawn" if rest else None
    return list(lanes.values()), left_out


def _title(chain: Chain) -> str:
    return f"thread {chain.thread}" if chain.is_host else f"GPU {chain.device}, stream {chain.stream}"
