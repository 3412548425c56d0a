"""--format github and --comment of `compare` and `history`: Markdown on standard output, annotations on standard error.

Standard output goes to the job's summary, as `>> "$GITHUB_STEP_SUMMARY"`; the runner reads annotations from the error
stream as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from ncu_launch.errors import NcuBenchError, WrongUsage

from ncu_tools.cli.options import FORMATS, echo_notes
from ncu_tools.report.table import printable

if TYPE_CHECKING:
    from ncu_tools.cli.github.annotations import PlacedOutcome
    from ncu_tools.compare.gate import GateOutcome
    from ncu_tools.report.head import Head
    from ncu_tools.report.table import Table

GITHUB = "github"
Function = TypeVar("Function", bound=Callable[..., Any])


def gate_format_options(function: Function) -> Function:
    """--format with github beside the usual formats, and --comment."""
    comment = click.option(
        "--comment", is_flag=True,
        help="With --format github, in a job: put it on the pull request, as one comment that is updated in place.",
    )  # fmt: skip
    form = click.option(
        "--format", "output_format", type=click.Choice((*FORMATS, GITHUB)), default="text", show_default=True,
        help="How the table is written to standard output; github: Markdown with arrows and folded parts, and "
        "annotations on standard error. Notes go to standard error.",
    )  # fmt: skip
    return form(comment(function))


def require_github(output_format: str, comment: bool) -> None:
    """Raise `WrongUsage` for --comment with another format, before anything is read."""
    if comment and output_format != GITHUB:
        raise WrongUsage(
            "--comment goes with --format github.", "A comment on a pull request is Markdown.", "Add: --format github"
        )


def lines_of_runs(outcomes: Mapping[str, Sequence[GateOutcome]]) -> dict[str, list[PlacedOutcome]]:
    """The outcomes of each new run, with the known source lines of the kernels that they name."""
    from ncu_tools.cli.github.annotations import placed

    checkout = Path(os.environ.get("GITHUB_WORKSPACE") or ".")
    return {run: placed(run, ones, checkout) for run, ones in outcomes.items()}


def show_on_github(
    table: Table, with_lines: Mapping[str, Sequence[PlacedOutcome]], heads: Sequence[Head], *, comment: bool
) -> None:
    """Write Markdown and annotations, and with `comment` the comment; if that fails, outcomes are unaffected.

    `with_lines` are the outcomes of each new run.
    """
    from ncu_tools.cli.github.annotations import commands
    from ncu_tools.cli.github.markdown import gates_in_markdown, table_in_markdown

    text = "\n\n".join(filter(None, (gates_in_markdown(with_lines), table_in_markdown(table, heads))))
    click.echo(text)
    for ones in with_lines.values():
        for line in commands(ones):
            click.echo(printable(line), err=True)
    if comment:
        _comment(text)


def _comment(text: str) -> None:
    from ncu_tools.cli.github.annotations import warning
    from ncu_tools.cli.github.pull_request import comment_on_pull_request

    try:
        where = comment_on_pull_request(text)
    except NcuBenchError as error:
        click.echo(printable(warning(error.paragraph)), err=True)
    else:
        echo_notes([f"commented: {where}" if where else "no comment was made: this job runs for no pull request"])
