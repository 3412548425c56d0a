"""The file of gates that an earlier command wrote is gone once the next command begins, however that one ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from ncu_tools.cli.views import Verb


class RemovesOldGates(Verb):
    """A command with --junit, which removes the file of gates that is there before it reads its own arguments.

    A command that ends with a wrong option writes no gates, and CI would take those of an earlier command for its own.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remove the file, then parse as any command; nothing is removed to complete a word or to show the help."""
        if not ctx.resilient_parsing and not set(ctx.help_option_names) & set(args):
            from ncu_tools.report.export.junit import remove_old_gates

            for path in _named(args):
                remove_old_gates(path)
        return super().parse_args(ctx, args)


def _named(args: Sequence[str]) -> Iterator[Path]:
    """The files behind --junit."""
    for place, word in enumerate(args):
        option, is_whole, value = word.partition("=")
        if option == "--junit" and (is_whole or place + 1 < len(args)):
            yield Path(value if is_whole else args[place + 1])
