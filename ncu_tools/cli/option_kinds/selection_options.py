"""The options that select some of a run's launches, the same for every command that has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.nvtx_ranges import RUN_PHASES

from ncu_tools.cli.option_kinds.list_option import list_option

if TYPE_CHECKING:
    from ncu_tools.runs.selection import Selection

OPTIONS = (
    click.option(
        "--kernel", "kernels", multiple=True, metavar="REGEX",
        help="Only kernels whose full name matches; repeatable.",
    ),
    list_option("--id", "ids", metavar="ID,...", help="Only the kernels with these ids, as in JSON and digests."),
    list_option("--phase", "phases", type=click.Choice(RUN_PHASES), help="Only these phases."),
    list_option(
        "--layer", "in_layers", metavar="LAYER,...", help="Only these layers of the model, with their sublayers."
    ),
    list_option(
        "--device", "devices", type=click.IntRange(min=0), metavar="N,...", help="Only launches on these CUDA devices."
    ),
    list_option(
        "--rank", "ranks", type=click.IntRange(min=0), metavar="N,...", help="Only launches of these ranks."
    ),
    click.option(
        "--point", "at_points", multiple=True, metavar="NAME=VALUE,...",
        help="Only this point of a profile --vary: n=64, or m=64,n=128; may be repeated.",
    ),
)  # fmt: skip
OPTION_NAMES = ("kernels", "ids", "phases", "in_layers", "devices", "ranks", "at_points")
NAMES = "--kernel, --id, --phase, --layer, --device, --rank and --point"


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that select launches, passed together as `only`."""

    @wraps(command)
    def selected(*arguments: Any, **options: Any) -> Any:
        given = {name: options.pop(name) for name in OPTION_NAMES}
        return command(*arguments, **options, only=_selection(**given) if any(given.values()) else None)

    for option in reversed(OPTIONS):
        selected = option(selected)
    return selected


def _selection(
    kernels: tuple[str, ...],
    ids: tuple[str, ...],
    phases: tuple[str, ...],
    in_layers: tuple[str, ...],
    devices: tuple[int, ...],
    ranks: tuple[int, ...],
    at_points: tuple[str, ...],
) -> Selection:
    """The selection of these options; its modules are imported only if there is one."""
    from ncu_tools.kernels.names.kernel_ids import require_ids
    from ncu_tools.runs.selection import Selection, pattern_of, point_of

    require_ids(ids)
    patterns, at = tuple(map(pattern_of, kernels)), tuple(map(point_of, at_points))
    return Selection(patterns, phases, in_layers, devices, ranks, at, ids)


def require_no_dask(only: Selection | None, dask: str | None) -> None:
    """Raise `WrongUsage` for --dask with a selection, which only this process can read."""
    if only is not None and dask is not None:
        from ncu_launch.errors import WrongUsage

        raise WrongUsage(
            f"{NAMES} cannot be combined with --dask.",
            "Selected launches are read by this process.",
            "Leave out --dask.",
        )
