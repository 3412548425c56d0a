"""Options whose values are lists: commas between the values, the option repeated, or both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

Function = TypeVar("Function", bound=Callable[..., Any])


class ListOption(click.Option):
    """An option that takes `--phase forward,backward` and `--phase forward --phase backward` alike: a tuple of values.

    Each value is converted by the option's type, and each is completed by it.
    """

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """The values as a tuple. Raises `click.BadParameter` for an empty one, and as the option's type does."""
        if not isinstance(value, (tuple, list)):
            return super().type_cast_value(ctx, value)
        values = [part.strip() for one in value for part in str(one).split(",")]
        if not all(values):
            raise click.BadParameter("a value is missing beside a comma, or empty.", ctx, self)
        return super().type_cast_value(ctx, values)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the text after the last comma."""
        before, comma, last = incomplete.rpartition(",")
        found = super().shell_complete(ctx, last)
        return [CompletionItem(before + comma + str(one.value), one.type, one.help) for one in found]


def list_option(*names: str, **settings: Any) -> Callable[[Function], Function]:
    """As `click.option`, for a list; `default` is a tuple."""
    return click.option(*names, cls=ListOption, multiple=True, **settings)
