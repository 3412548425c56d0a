"""Timelines of GPUs: readers of nsys, PyTorch, Perfetto, rocprofv3 and XLA, one `Activity` for all. See README.md.

`WINGS` in `tests/whole/test_house.py` lists all that they import from the rest of the project. Names are imported on
first use, since each reader needs its own library.
"""
# ruff: noqa: F401  a face has names for others

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ncu_parsers.timelines.activity.activity import MISSING as MISSING
    from ncu_parsers.timelines.activity.activity import Activity as Activity
    from ncu_parsers.timelines.activity.activity import ApiCalls as ApiCalls
    from ncu_parsers.timelines.activity.activity import GpuOperations as GpuOperations
    from ncu_parsers.timelines.activity.activity import HostRanges as HostRanges
    from ncu_parsers.timelines.activity.activity import RangeLabel as RangeLabel
    from ncu_parsers.timelines.activity.activity import Window as Window
    from ncu_parsers.timelines.activity.operation_times import without_impossible_ends as without_impossible_ends
    from ncu_parsers.timelines.activity.recording import Recording as Recording
    from ncu_parsers.timelines.activity.recording import launching_call as launching_call
    from ncu_parsers.timelines.formats.pftrace import read_activity as read_pftrace
    from ncu_parsers.timelines.formats.rocprofv3 import read_activity as read_rocprofv3
    from ncu_parsers.timelines.formats.xplane import read_activity as read_xplane
    from ncu_parsers.timelines.kineto.kineto import read_activity as read_kineto
    from ncu_parsers.timelines.nsys.nsys_activity import read_sqlite as read_nsys

_READERS = {
    "read_kineto": "kineto.kineto.read_activity", "read_nsys": "nsys.nsys_activity.read_sqlite",
    "read_pftrace": "formats.pftrace.read_activity",
    "read_rocprofv3": "formats.rocprofv3.read_activity", "read_xplane": "formats.xplane.read_activity",
}  # fmt: skip
_NAMES = {
    **dict.fromkeys(
        ("MISSING", "Activity", "ApiCalls", "GpuOperations", "HostRanges", "RangeLabel", "Window"), "activity.activity"
    ),
    "Recording": "activity.recording", "launching_call": "activity.recording",
    "without_impossible_ends": "activity.operation_times",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    place = _READERS.get(name) or (f"{_NAMES[name]}.{name}" if name in _NAMES else None)
    if place is None:
        raise AttributeError(f"{__name__} has no {name}")
    module, _, own = place.rpartition(".")
    return getattr(import_module(f"{__name__}.{module}"), own)
