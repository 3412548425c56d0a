"""The pytest plugin inside pytester: by its entry point where one is installed, else by its module."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

import pytest

MODULE = "ncu_tools.pytest_plugin.plugin"
NAME = "ncu-bench"


def plugin_words() -> tuple[str, str]:
    """The words that load the plugin, which an environment may know already."""
    return "-p", NAME if any(one.name == NAME for one in entry_points(group="pytest11")) else MODULE


Ran = Callable[..., pytest.RunResult]


def runner(pytester: pytest.Pytester) -> Ran:
    """A function that runs pytest in this process, with the plugin and without a cache."""

    def ran(*words: str) -> pytest.RunResult:
        return pytester.runpytest_inprocess(*plugin_words(), "-p", "no:cacheprovider", *words)

    return ran
