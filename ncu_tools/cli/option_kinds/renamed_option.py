"""Options that were renamed: lines with the former name still run, and nothing shows it."""

from __future__ import annotations

from typing import Any

import click

from ncu_tools.cli.option_kinds.list_option import ListOption


class RenamedOption(click.Option):
    """An option that is taken by its `former` name too, which neither help, completion nor docs/options.md has."""

    def __init__(self, *names: Any, former: str, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.former = former

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let the parser take both names."""
        shown = self.opts
        self.opts = [*shown, self.former]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


class RenamedListOption(RenamedOption, ListOption):
    """A renamed option whose values are a list."""
