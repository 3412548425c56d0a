"""Analysis of launches: tables in; tables, text and pictures out. From Python: `load`, `profile`, `kernel`, `range`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ncu_launch.version import VERSION as __version__  # noqa: F401, N811  for others to read

if TYPE_CHECKING:
    from ncu_launch.workload.user_ranges import range as range

    from ncu_tools.profiling.from_python import profile as profile
    from ncu_tools.profiling.kernel_decorator import kernel as kernel
    from ncu_tools.report.notebook.profiled_run import load as load

_FROM = {
    "kernel": "ncu_tools.profiling.kernel_decorator",
    "load": "ncu_tools.report.notebook.profiled_run",
    "profile": "ncu_tools.profiling.from_python",
    "range": "ncu_launch.workload.user_ranges",
}


def __getattr__(name: str) -> Any:
    """What is used from Python, imported when it is: commands and decorated functions need none of it."""
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FROM[name]), name)
