"""The grammar of tables on every command: `--by` chooses the rows, `--sort` their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click


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


def rows_and_order(rows: Words = NONE, orders: Words = NONE) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command --by and --sort, passed as `group` and `order`; one of the two may be missing."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option, name, known in (("--sort", "order", orders), ("--by", "group", rows)):
            if known.words:
                kind = click.Choice(known.words)
                command = click.option(option, name, type=kind, default=known.default, help=known.help)(command)
        return command

    return decorate
