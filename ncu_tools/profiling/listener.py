"""What a profile tells while it runs. The command line prints it; other programs may."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ncu_launch.profile.collect import LineCallback


class Listener:
    """Receives the messages of a running profile, and ignores them. Subclasses show them."""

    def message(self, text: str) -> None:
        """A sentence on what is done now."""

    def notes(self, notes: Sequence[str]) -> None:
        """Notes on the plan of what is done now."""

    @contextmanager
    def step(self, title: str) -> Iterator[LineCallback]:
        """A block that takes time. Yields a function that is called with every line that the tool and program print."""
        yield lambda line: None
