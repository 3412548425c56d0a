"""The entry point of the plugin: its options, the fixture `kernels`, and the tables at the end of a session.

pytest loads this module in every session of an environment with ncu-bench, so it imports only pytest; the fixture
imports the rest when a test requests it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ncu_tools.pytest_plugin.options import CPU, UPDATE, WITHOUT_NCU

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from ncu_tools.pytest_plugin.kernels import Kernels


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("ncu-bench", "times and counts of kernels")
    group.addoption(UPDATE, action="store_true", help="Write what is measured as the new baselines of this device.")
    group.addoption(
        CPU, action="store_true",
        help="Without a GPU, measure on the CPU in place of skipping: times by the clock, FLOPs and bytes of operators "
        "by formulas.",
    )  # fmt: skip
    group.addoption(
        WITHOUT_NCU, action="store_true",
        help="Time by CUDA events where ncu is installed too, as without the permission to read counters.",
    )  # fmt: skip


@pytest.fixture
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """Measure GPU code and hold it to a baseline: `profile`, `assert_no_slower`, `assert_counters` (docs/pytest.md).

    Skips the test without a GPU, unless --ncu-bench-cpu is given.
    """
    from ncu_tools.pytest_plugin.kernels import kernels_of_test

    return kernels_of_test(request)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Show what was measured as a table."""
    reports = [
        (report.nodeid, report.user_properties)
        for several in terminalreporter.stats.values()
        for report in several
        if isinstance(report, pytest.TestReport) and report.when == "call" and report.user_properties
    ]
    if not any(name.startswith("ncu-bench") for _, properties in reports for name, _ in properties):
        return
    import shutil

    from ncu_tools.pytest_plugin.summary import tables

    width = shutil.get_terminal_size().columns if terminalreporter.isatty else None
    for by, lines in tables(reports, width):
        terminalreporter.section(f"ncu-bench: {by}")
        for line in lines:
            terminalreporter.write_line(line)
