"""Spans as a speedscope file. Format: https://www.speedscope.app/file-format-schema.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ncu_launch.version import VERSION

from ncu_tools.model.layers.trace_spans import Span

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def to_speedscope(spans: Sequence[Span], name: str, note: str = "") -> str:
    """One evented profile, in ns: phases, and the modules in them. The same module is one frame in every phase.

    `note` explains the spans; the format has no field for it except the name, which speedscope shows on top.
    """
    frames: dict[str, int] = {}
    events: list[dict[str, Any]] = []
    open_spans: list[tuple[Span, int]] = []
    for span in spans:
        _close(open_spans, events, span.depth)
        frame = frames.setdefault(_title(span), len(frames))
        events.append({"type": "O", "frame": frame, "at": span.start})
        open_spans.append((span, frame))
    _close(open_spans, events, 0)
    end = max((span.end for span in spans), default=0)
    profile = {
        "type": "evented", "name": name, "unit": "nanoseconds", "startValue": 0, "endValue": end, "events": events,
    }  # fmt: skip
    document = {
        "$schema": SCHEMA,
        "shared": {"frames": [{"name": title} for title in frames]},
        "profiles": [profile],
        "name": f"{name} ({note})" if note else name,
        "activeProfileIndex": 0,
        "exporter": f"ncu-bench@{VERSION}",
    }
    return json.dumps(document, ensure_ascii=False)


def _title(span: Span) -> str:
    """The whole path of a module, because speedscope adds up frames of the same name."""
    return span.name if span.layer is None else span.layer.module


def _close(open_spans: list[tuple[Span, int]], events: list[dict[str, Any]], depth: int) -> None:
    """Close every open span of `depth` or deeper, innermost first."""
    while open_spans and open_spans[-1][0].depth >= depth:
        span, frame = open_spans.pop()
        events.append({"type": "C", "frame": frame, "at": span.end})
