"""Analysis of launches: tables in; tables, text and pictures out. From Python: `load`, `profile`, `estimate`, ..."""

from importlib import import_module

from ncu_launch.version import VERSION as __version__  # noqa: F401, N811  for others to read


def __getattr__(name: str) -> object:
    return getattr(import_module("ncu_tools.profiling.public_names"), name)
