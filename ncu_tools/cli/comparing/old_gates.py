"""Delete an earlier command's file of gates when the next command begins, however that one ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from ncu_tools.cli.views import Verb


class RemovesOldGates(Verb):
    """A command with --junit, which deletes the existing file of gates before it parses its own arguments.

    A command that fails on a wrong option writes no gates, and CI would mistake the earlier file for its result.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Delete the file, then parse as any command; nothing is deleted for completion or help."""
        if not ctx.resilient_parsing and not set(ctx.help_option_names) & set(args):
            from ncu_tools.report.export.junit import remove_old_gates

            for path in _junit_files(args):
                remove_old_gates(path)
        return super().parse_args(ctx, args)


def _junit_files(args: Sequence[str]) -> Iterator[Path]:
    """The files given to --junit."""
    for place, word in enumerate(args):
        option, is_whole, value = word.partition("=")
        if option == "--junit" and (is_whole or place + 1 < len(args)):
            yield Path(value if is_whole else args[place + 1])
