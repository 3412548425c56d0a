"""The options that select some of a run's launches, the same for every command that has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.nvtx_ranges import RUN_PHASES

if TYPE_CHECKING:
    from ncu_tools.runs.selection import Selection

OPTIONS = (
    click.option(
        "--kernel", "kernels", multiple=True, metavar="REGEX",
        help="Only kernels in whose full name this is found; may be repeated. Not with --dask, as the next three.",
    ),
    click.option(
        "--phase", "phases", type=click.Choice(RUN_PHASES), multiple=True, help="Only this phase; may be repeated."
    ),
    click.option(
        "--device", "devices", type=click.IntRange(min=0), multiple=True, metavar="N",
        help="Only launches on this CUDA device; may be repeated.",
    ),
    click.option(
        "--rank", "ranks", type=click.IntRange(min=0), multiple=True, metavar="N",
        help="Only launches of this rank; may be repeated.",
    ),
)  # fmt: skip


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --kernel, --phase, --device and --rank, which it gets together as `only`."""

    @wraps(command)
    def selected(
        *arguments: Any,
        kernels: tuple[str, ...],
        phases: tuple[str, ...],
        devices: tuple[int, ...],
        ranks: tuple[int, ...],
        **others: Any,
    ) -> Any:
        return command(*arguments, **others, only=_selection(kernels, phases, devices, ranks))

    for option in reversed(OPTIONS):
        selected = option(selected)
    return selected


def _selection(
    kernels: tuple[str, ...], phases: tuple[str, ...], devices: tuple[int, ...], ranks: tuple[int, ...]
) -> Selection | None:
    """The selection by these options; None if none was given, without an import."""
    if not (kernels or phases or devices or ranks):
        return None
    from ncu_tools.runs.selection import Selection, pattern_of

    return Selection(tuple(map(pattern_of, kernels)), phases, devices, ranks)


def require_no_dask(only: Selection | None, dask: str | None) -> None:
    """Raise `WrongUsage` for --dask with a selection, which is read in this process."""
    if only is not None and dask is not None:
        from ncu_launch.errors import WrongUsage

        raise WrongUsage(
            "--kernel, --phase, --device and --rank cannot be combined with --dask.",
            "Selected launches are read by this process.",
            "Leave out --dask.",
        )
