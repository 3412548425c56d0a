"""The progress of profiles on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click
from ncu_launch.profile.collect import LineCallback

from ncu_tools.cli.options import echo_notes, status_and_lines
from ncu_tools.profiling.listener import Listener


class Terminal(Listener):
    """Prints the progress of a profile on standard error, with the tool's own progress on a terminal."""

    def message(self, text: str) -> None:
        """Print a sentence."""
        click.echo(text, err=True)

    def notes(self, notes: Sequence[str]) -> None:
        """Print notes."""
        echo_notes(list(notes))

    @contextmanager
    def step(self, title: str) -> Iterator[LineCallback]:
        """Show the last line that the tool or the program printed, while the block runs."""
        with status_and_lines(title) as (status, _):
            yield lambda line: status(line.strip()[:100] or title)
