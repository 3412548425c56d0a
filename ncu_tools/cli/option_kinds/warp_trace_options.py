"""Options of commands that read traces from inside kernels, passed to them as one `WarpTraceOptions`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from ncu_launch.errors import WrongUsage

if TYPE_CHECKING:
    from ncu_parsers.sources.settings import Settings
    from ncu_parsers.warp_ranges.trace_table import Lines
    from ncu_parsers.warp_ranges.warp_trace import WarpTrace

    from ncu_tools.kernels.warp_ranges.range_kinds import RangeKind

roles_option = click.option(
    "--roles",
    metavar="WARPS=NAME,...",
    default="",
    help="Name warps by their role, as 0-3=softmax,12+14=mma.  [default: by their ranges]",
)
LAYOUTS = ("sm", "wide", "mirage", "triton-dist")


@dataclass(frozen=True)
class WarpTraceOptions:
    """How to read a trace, and which of its launches to analyse; `kernel` is searched in the names of kernels."""

    settings: Settings
    launch: int | None = None
    kernel: str | None = None
    roles: Mapping[int, str] = field(default_factory=dict)
    kinds: Mapping[str, RangeKind] = field(default_factory=dict)

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """The regular expression for the kernel's name. Raises `WrongUsage` if it is invalid."""
        from ncu_tools.runs.selection import pattern_of

        return None if self.kernel is None else pattern_of(self.kernel)

    def read(self, path: str) -> tuple[WarpTrace, Lines]:
        """The trace of a file, and the lines of its ranges. Raises `NcuBenchError` if it cannot be read."""
        from ncu_parsers.parse.warp_trace_files import read_warp_trace

        return read_warp_trace(path, self.settings)


def buffer_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --layout and --event-names of buffers, passed to the command as `Settings`."""

    @wraps(command)
    def told(**values: Any) -> Any:
        from ncu_parsers.sources.settings import Settings

        settings = Settings(layout=values.pop("layout") or "", event_names=values.pop("event_names"))
        return command(**values, settings=settings)

    layout = click.option(
        "--layout", type=click.Choice(LAYOUTS),
        help="Fields of the tags of a buffer: sm of flashinfer with SM numbers, wide of earlier ones, TIRx and "
        "warpscope, mirage, triton-dist of Triton-distributed.  [default: told by its words]",
    )  # fmt: skip
    names = click.option(
        "--event-names",
        metavar="NAME,...|@FILE",
        default="",
        help="Names of a buffer's events, from 0 on, as the program has them; a file has one in each line.",
    )
    return layout(names(told))


def warp_trace_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add WARP_TRACE, NAME and all options of a trace; all but WARP_TRACE are passed as `options`."""

    @wraps(command)
    def told(settings: Settings, launch: int | None, roles: str, kinds: tuple[str, ...], **values: Any) -> Any:
        from ncu_tools.kernels.warp_ranges.launch_ranges import roles_in

        options = WarpTraceOptions(settings, launch, values.pop("name"), roles_in(roles), _kinds_in(kinds))
        return command(**values, options=options)

    found = buffer_options(told)
    for added in (
        click.option(
            "--kind", "kinds", metavar="RANGE=KIND", multiple=True,
            help="What a range is: wait, barrier, copy, store, compute or other.  [default: by the words of its name]",
        ),
        roles_option,
        click.option("--launch", type=click.IntRange(min=0), help="This launch.  [default: the median of its kernel]"),
        click.argument("name", required=False),
        click.argument("trace", metavar="WARP_TRACE"),
    ):  # fmt: skip
        found = added(found)
    return found


def _kinds_in(given: tuple[str, ...]) -> dict[str, RangeKind]:
    from ncu_tools.kernels.warp_ranges.range_kinds import RangeKind

    found = {}
    for one in given:
        name, _, kind = one.rpartition("=")
        if not name or kind not in {each.value for each in RangeKind}:
            raise WrongUsage(
                f'--kind "{one}" is no kind of a range.', "It is the name of a range and a kind.",
                f"Write it as in: --kind load_q=copy; kinds are {', '.join(each.value for each in RangeKind)}.",
            )  # fmt: skip
        found[name] = RangeKind(kind)
    return found
