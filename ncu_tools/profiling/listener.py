"""Progress messages of a running profile. The command line prints them; other programs may."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ncu_launch.profile.collect import LineCallback


class Listener:
    """Receives the progress messages of a profile and ignores them. Subclasses show them."""

    def message(self, text: str) -> None:
        """Receive a sentence on the current step."""

    def notes(self, notes: Sequence[str]) -> None:
        """Receive notes on the plan of the current step."""

    @contextmanager
    def step(self, title: str) -> Iterator[LineCallback]:
        """A block that takes time. Yields a function that is called with every line that the tool and program print."""
        yield lambda line: None
