"""The grammar of tables on every command: `--by` chooses the rows, `--sort` their order.

Before `--sort` existed, orders were given to `--by`, and groupings to `--group`; both still work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click
from ncu_launch.errors import WrongUsage


@dataclass(frozen=True)
class Words:
    """The words that --by or --sort takes on a command, their help, and the default."""

    words: tuple[str, ...] = ()
    means: str = ""
    default: str | None = None

    @property
    def help(self) -> str:
        """The help of the option."""
        return self.means + (f"  [default: {self.default}]" if self.default else "")


NONE = Words()
KERNEL_ROWS = Words(
    ("name", "short", "grid", "nvtx", "operator", "category", "location", "report", "device"),
    "What a row is: a full kernel name, a function, a name and launch shape, an NVTX range, an operator of a trace, "
    "a category of kernels, as GEMM, a place in a Python program, a report or a device. Rows are of one device each.",
    "name",
)
"""Words that launches are grouped by, as in `kernel_row.GROUPS`, which cannot be imported without tables."""
KERNEL_ORDER = Words(
    ("time", "headroom", "flops", "dram"),
    "What rows are ordered by; headroom is the time that reaching its roof would save.",
    "time",
)


class RowsChoice(click.Choice[str]):
    """The words of --by, which also accepts words of --sort."""

    def __init__(self, rows: Words, orders: Words) -> None:
        super().__init__(rows.words or orders.words)
        self.rows, self.orders = rows.words, orders.words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The word. For any other text raises `click.BadParameter`, which lists the words for rows, if there are any.

        Raises `click.NoSuchOption` where --by takes only words of --sort, of before.
        """
        if value in self.orders:
            return value
        if not self.rows:
            raise click.NoSuchOption("--by", ctx=ctx)
        return super().convert(value, param, ctx)


def rows_and_order(rows: Words = NONE, orders: Words = NONE) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command --by and --sort, passed as `group` and `order`; one of the two may be missing.

    Raises `WrongUsage` when the command runs, for two different words of one kind.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def told_apart(*arguments: Any, by: str | None, old_group: str | None = None, **others: Any) -> Any:
            if rows.words:
                others["group"] = _one_word("--by", rows, by if by in rows.words else None, old_group)
            if orders.words:
                others["order"] = _one_word("--sort", orders, others.pop("sort"), by if by in orders.words else None)
            return command(*arguments, **others)

        with_options: Callable[..., Any] = told_apart
        if orders.words:
            sort = click.Choice(orders.words)
            with_options = click.option("--sort", type=sort, help=orders.help)(with_options)
        if rows.words:
            old = click.Choice(rows.words)
            with_options = click.option("--group", "old_group", type=old, hidden=True)(with_options)
        by = RowsChoice(rows, orders)
        return click.option("--by", type=by, help=rows.help, hidden=not rows.words)(with_options)

    return decorate


def _one_word(option: str, known: Words, first: str | None, second: str | None) -> str | None:
    if first is not None and second is not None and first != second:
        raise WrongUsage(
            f"{option} takes one word, and was given {first} and {second}.", advice="Leave one of them out."
        )
    return first or second or known.default
