"""Spans as a trace for Perfetto and chrome://tracing.

Format: Chrome's Trace Event Format, complete events, with times in µs:
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ncu_launch.version import VERSION

from ncu_tools.model.layers.trace_spans import Span

PROCESS, TRACK = 1, 1
NS_PER_US = 1000
AMOUNTS = ("launches", "kernels", "time_share", "flops", "flops_lower_bound", "dram_bytes", "arithmetic_intensity")


def to_perfetto(spans: Sequence[Span], name: str, note: str = "") -> str:
    """One track of slices: phases, with their modules nested, and known FLOPs, bytes and launches as arguments.

    `note` explains the spans; it is in the metadata of the trace, which Perfetto shows under "Info and stats".
    """
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": PROCESS, "tid": TRACK, "args": {"name": name}},
        {"ph": "M", "name": "thread_name", "pid": PROCESS, "tid": TRACK, "args": {"name": "phases and modules"}},
    ]
    for span in spans:
        events.append({
            "ph": "X", "name": span.name, "cat": span.phase if span.layer else "phase", "pid": PROCESS, "tid": TRACK,
            "ts": span.start / NS_PER_US, "dur": (span.end - span.start) / NS_PER_US, "args": _arguments(span),
        })  # fmt: skip
    metadata = {"exporter": f"ncu-bench {VERSION}", "note": note}
    document = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": metadata}
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def _arguments(span: Span) -> dict[str, Any]:
    """The known values of a module in this phase; unknown ones are omitted, because slices have no null."""
    if span.layer is None:
        return {}
    amounts = {name: getattr(span.layer, name) for name in AMOUNTS}
    return {"module": span.layer.module, **{name: value for name, value in amounts.items() if value is not None}}
