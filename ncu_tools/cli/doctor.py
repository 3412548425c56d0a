"""ncu-bench doctor: what of this machine stands in the way of profiling."""

from __future__ import annotations

import click

from ncu_tools.cli.options import format_option, show
from ncu_tools.report.table import Column, Table

COLUMNS = (
    Column("check", "check"),
    Column("status", "status"),
    Column("found", "found", prose=True),
    Column("advice", "what to do", prose=True),
)


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
    from ncu_launch.doctor import PROBLEM, examine, gather
    from ncu_launch.errors import NcuBenchError

    checks = examine(gather())
    rows = [
        {"check": check.name, "status": check.status, "found": check.found, "advice": check.advice or None}
        for check in checks
    ]
    show(Table("doctor", COLUMNS, rows), output_format, full_names=True)
    problems = [check.name for check in checks if check.status == PROBLEM]
    if strict and problems:
        raise NcuBenchError(f"Problems: {', '.join(problems)}.", advice="Do what the table says about each.")
