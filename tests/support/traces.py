"""Traces of PyTorch's profiler read as commands read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
from ncu_parsers.launches import launch_view
from ncu_parsers.report_data.report import Report, StreamedReport
from ncu_parsers.sources.sources import Source
from ncu_parsers.timelines.kineto.chrome_trace import TraceEvents
from ncu_parsers.timelines.kineto.kineto import TOOL, read_activity

READ = launch_view.for_launches(read_activity)


def read_report(source: Source) -> Report:
    """The launches of a trace, whatever the file is called."""
    return launch_view.report_of(source, READ, TOOL)


def stream_report(source: Source, write: Callable[[pa.Table], None]) -> StreamedReport:
    """The launches of a trace in parts."""
    return launch_view.stream_of(source, write, READ, TOOL)


def events_in(events: TraceEvents) -> list[dict[str, Any]]:
    """The events of a trace, each with the fields that it has."""
    return [_said(event) for batch in events.batches() for event in map(msgspec.structs.asdict, batch)]


def _said(event: dict[str, Any]) -> dict[str, Any]:
    event["args"] = json.loads(bytes(event["args"])) or None
    event["id"] = json.loads(bytes(event["id"]) or b"null")
    return {name: value for name, value in event.items() if value is not None and value == value}
