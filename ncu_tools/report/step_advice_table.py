"""Advice on a step as tables: levers and what-ifs, and the critical path by kind of time."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np

from ncu_tools.numbers.number_format import duration, percent
from ncu_tools.report.columns.registry import columns
from ncu_tools.timeline.graph.critical_path import PATH_KINDS
from ncu_tools.timeline.graph.evidence import BOUNDS_ONLY, REFUSED
from ncu_tools.timeline.levers.situation import step_lever_texts
from ncu_tools.timeline.levers.step_advice import LeverOnStep, SavedByStep, StepAdvice

Row = dict[str, Any]

LEVERS = columns(
    "step.step step.lever step.title step.saves_share step.saves_low step.saves_high step.saves_ns step.saves_low_ns "
    "step.saves_high_ns step.step_ns step.evidence step.remedy step.model step.source step.unknown step.check "
    "step.basis step.confidence step.operations"
)
SHOWN = columns(
    "step.title step.saves_ns step.saves_low_ns step.saves_high_ns step.saves_high step.confidence step.remedy"
)
PATH = columns("path.kind path.time_ns path.share")
BASIS = "replay of the recorded step"
NOT_CONFIRMED = "not confirmed on a GPU"
TOO_LITTLE = "not to be relied on, as the recording explains too little"


def lever_rows(found: StepAdvice, run: str | None = None, model: str | None = None) -> list[Row]:
    """The requested what-ifs, then the levers, largest saving first.

    Commands name the recording as `run` (default: its own name), and the `model` that ran, if known.
    """
    words = {"run": shlex.quote(run or found.situation.activity.name), "model": shlex.quote(model or "MODEL")}
    asked = [{**_row(found, title, saves), "confidence": _confidence(found)} for title, saves in found.asked]
    return [
        *asked,
        *({**row, "check": row["check"].format(**words)} for row in (_lever_row(found, one) for one in found.levers)),
    ]


def _row(found: StepAdvice, title: str, saves: SavedByStep) -> Row:
    return {
        "step": found.step, "lever": None, "title": title, "saves_share": saves.share(saves.likely_ns),
        "saves_low": saves.share(saves.low_ns), "saves_high": saves.share(saves.high_ns), "saves_ns": saves.likely_ns,
        "saves_low_ns": saves.low_ns, "saves_high_ns": saves.high_ns, "step_ns": found.step_ns, "evidence": [],
        "basis": BASIS,
    }  # fmt: skip


def _lever_row(found: StepAdvice, one: LeverOnStep) -> Row:
    said, where = step_lever_texts()[one.lever], found.situation.software
    words = {name: said[name] for name in ("model", "source", "unknown")}
    words |= {name: said.get(f"{name}_{where}", said[name]) for name in ("remedy", "check")}
    confidence = ", ".join(filter(None, (NOT_CONFIRMED if one.needs_gpu else None, _confidence(found))))
    return {
        **_row(found, one.title, one.saves), **words, "lever": one.lever, "evidence": list(one.found.evidence),
        "confidence": confidence or None, "operations": len(one.found.rows) or None,
    }  # fmt: skip


def _confidence(found: StepAdvice) -> str | None:
    return {BOUNDS_ONLY: BOUNDS_ONLY, REFUSED: TOO_LITTLE}.get(found.evidence.level)


def saving(row: Row) -> str:
    """The saving or loss of a lever in words, as an interval, with the likely value if it differs."""
    low, high, likely = (row[name] for name in ("saves_low_ns", "saves_high_ns", "saves_ns"))
    share = percent(abs(row["saves_high"] or 0.0))
    if _saves_or_loses(low) == _saves_or_loses(high):
        return f"{_saves_or_loses(high)} ({share})"
    if high <= 0:
        between = f"loses {duration(-high)} ({share}) to {duration(-low)}"
    elif low > 0:
        between = f"saves {duration(low)} to {duration(high)} ({share} at most)"
    else:
        or_loses = f", or loses up to {duration(-low)}" if low else ""
        between = f"saves up to {duration(high)} ({share} at most){or_loses}"
    if likely is None:
        return between
    expected = _saves_or_loses(likely) if low < 0 else duration(likely)
    return f"{between}, likely {expected if likely else 'nothing'}"


def _saves_or_loses(time_ns: float) -> str:
    return f"loses {duration(-time_ns)}" if time_ns < 0 else f"saves {duration(time_ns)}"


def path_rows(found: StepAdvice) -> list[Row]:
    """The kinds of time on the critical path, most first."""
    by_kind = found.path.by_kind
    return [
        {"kind": PATH_KINDS[kind], "time_ns": float(by_kind[kind]) / found.steps, "share": found.path.share(kind)}
        for kind in np.argsort(-by_kind, kind="stable").tolist()
        if by_kind[kind] > 0
    ]


def extra_of_advice(found: StepAdvice) -> Row:
    """Further JSON keys of the step: its critical path, the reliability of the graph, and pairs of levers."""
    return {
        "step": {
            "name": found.step, "steps": found.steps, "time_ns": found.step_ns, "host_alone_ns": found.host_alone_ns,
            "gpu_alone_ns": found.gpu_alone_ns,
        },
        "path": path_rows(found),
        "believed": {
            "level": found.evidence.level, "why": found.evidence.why, "explained_starts": found.evidence.explained,
            "unexplained_share": found.evidence.path_share, "no_launch": found.evidence.no_launch,
        },
        "together": [
            {
                "levers": list(one.levers), "saves_ns": one.saves.likely_ns, "saves_low_ns": one.saves.low_ns,
                "saves_high_ns": one.saves.high_ns, "saves_high": one.saves.share(one.saves.high_ns),
            }
            for one in found.pairs
        ],
    }  # fmt: skip
