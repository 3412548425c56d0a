"""Levers on the steps of a page's timelines as plain values: the critical path, what-ifs, and each lever's saving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ncu_tools.report.html.host_lanes import LanesOfThread
from ncu_tools.report.html.lane_boxes import LaneBox, LanePieces, boxes_of, resolution_of
from ncu_tools.report.html.step_lanes import FIRST_OF_PATH, NO_NAME
from ncu_tools.report.html.timeline_content import host_title
from ncu_tools.report.html.what_if_content import what_ifs
from ncu_tools.report.step_advice_table import lever_rows, path_rows, saving
from ncu_tools.timeline.graph.critical_path import PATH_KINDS, Stretch
from ncu_tools.timeline.graph.step_graph import Chain
from ncu_tools.timeline.levers.step_advice import StepAdvice, advice_on_timeline
from ncu_tools.timeline.timeline import Timeline

MOST_STRETCHES, MOST_LEVERS = 1_500, 12
"""Most boxes of the critical path of a whole recording (short stretches are merged), and most levers of a run."""


def advice_on(timelines: Mapping[int, Timeline]) -> dict[int, StepAdvice]:
    """Advice on the steps of timelines by run index; runs without advice are absent."""
    found = {place: advice_on_timeline(one) for place, one in timelines.items()}
    return {place: one for place, one in found.items() if one is not None}


def levers_content(advice: Mapping[int, StepAdvice], shown: Mapping[str, str]) -> dict[str, Any]:
    """The levers by run index; {} if no run has any. Kernels have the names `shown`."""
    runs = [{"run": place, **_of_run(one, shown)} for place, one in advice.items()]
    return {"kinds": list(PATH_KINDS), "runs": runs} if runs else {}


def pieces_of_path(found: StepAdvice) -> LanePieces:
    """The critical path as pieces of one lane, in ns of the recording."""
    pieces = _pieces(found.path.stretches)
    origin = found.situation.graph.origin
    return LanePieces(pieces.start + origin, pieces.end + origin, pieces.kind + FIRST_OF_PATH, pieces.name)


def _of_run(found: StepAdvice, shown: Mapping[str, str]) -> dict[str, Any]:
    levers = [{**row, "saving": saving(row)} for row in lever_rows(found)[:MOST_LEVERS]]
    return {
        "step": found.step, "steps": found.steps, "step_ns": found.step_ns, "length_ns": _end_of_path(found),
        "gpu_alone_ns": found.gpu_alone_ns, "host_alone_ns": found.host_alone_ns, "path": path_rows(found),
        "lanes": _lanes(found), "levers": levers, "what_ifs": what_ifs(found, shown),
        "notes": found.notes,
    }  # fmt: skip


def _lanes(found: StepAdvice) -> list[dict[str, Any]]:
    """A lane for each thread and stream on the critical path, with boxes [start, length, kind] in ns."""
    chains = found.situation.graph.chains
    mine = {
        chain: _pieces([one for one in found.path.stretches if one.chain == chain])
        for chain in sorted({one.chain for one in found.path.stretches})
    }
    resolution = resolution_of(list(mine.values()), round(_end_of_path(found)), MOST_STRETCHES)
    return [
        {"title": _title(chains[chain]), "boxes": [_box(box) for box in boxes_of(pieces, resolution)]}
        for chain, pieces in mine.items()
    ]


def _end_of_path(found: StepAdvice) -> float:
    """When the path ends, in ns since the graph's origin."""
    return found.path.before_ns + found.path.length_ns


def _box(box: LaneBox) -> list[int]:
    """Start, length and the kind that takes most of a box."""
    return [box.start, box.end - box.start, max(box.times, key=box.times.__getitem__)]


def _pieces(stretches: Sequence[Stretch]) -> LanePieces:
    """Stretches as pieces of a lane, in ns since the graph's origin."""
    ordered = sorted(stretches, key=lambda one: one.start_ns)
    columns = [[round(one.start_ns), round(one.end_ns), one.kind, NO_NAME] for one in ordered]
    return LanePieces(*np.array(columns, np.int64).reshape(-1, 4).T)


def _title(chain: Chain) -> str:
    if chain.thread is None:
        return f"GPU {chain.device}, stream {chain.stream}"
    return host_title(LanesOfThread((chain.process, chain.thread), []))
