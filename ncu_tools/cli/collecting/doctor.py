"""ncu-bench doctor: what prevents profiling on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from ncu_launch.errors import NcuBenchError

from ncu_tools.cli.options import format_option, show
from ncu_tools.report.columns.registry import columns
from ncu_tools.report.table import Table

if TYPE_CHECKING:
    from ncu_launch.profile.doctor import Check

LOOPS = "reading big reports"
COLUMNS = columns("check status found advice")


def check_loops(*, is_compiled: bool) -> Check:
    """The check that big reports are read by compiled loops."""
    from ncu_launch.profile.doctor import OK, Check

    if is_compiled:
        return Check(LOOPS, OK, "by compiled loops")
    found = "by loops in Python, since this installation could not compile its own: several times slower"
    return Check(LOOPS, OK, found, "install a wheel, or a C compiler and Python's headers, then ncu-bench again")


@click.command()
@click.option("--strict", is_flag=True, help="Exit with 1 when any check is a problem.")
@format_option
def command(strict: bool, output_format: str) -> None:
    """Check what this machine needs for profiling, and say what to type where something is missing.

    Nothing is changed. A check is ok, a problem, or unknown where the machine does not say.

    \b
    Example:
      ncu-bench doctor
      ncu-bench doctor --strict --format json
    """
    from ncu_launch.profile.doctor import PROBLEM, examine, gather
    from ncu_parsers.streaming.cells.rows import loops

    checks = [*examine(gather()), check_loops(is_compiled=loops is not None)]
    rows = [
        {"check": check.name, "status": check.status, "found": check.found, "advice": check.advice or None}
        for check in checks
    ]
    show(Table("doctor", COLUMNS, rows), output_format, full_names=True)
    problems = [check.name for check in checks if check.status == PROBLEM]
    if strict and problems:
        raise NcuBenchError(f"Problems: {', '.join(problems)}.", advice="Do what the table says about each.")
