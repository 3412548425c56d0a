"""The progress of profiles on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import click
from ncu_launch.profile.collect import LineCallback

from ncu_tools.cli.options import echo_notes
from ncu_tools.profiling.listener import Listener
from ncu_tools.report.table import printable


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
        from rich.console import Console
        from rich.text import Text

        console = Console(stderr=True)
        with console.status(title) if console.is_terminal else nullcontext() as status:

            def heard(line: str) -> None:
                if status is not None:
                    status.update(Text(printable(line.strip()[:100]) or title))  # as Text: brackets would be markup

            yield heard
