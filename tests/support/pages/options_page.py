"""Every command, view and option of the program, and the options as a table of docs/reference/commands.md."""

from __future__ import annotations

from collections.abc import Iterator

import click

from ncu_tools.cli import cli
from ncu_tools.cli.option_kinds.list_option import ListOption
from ncu_tools.cli.views import Verb

MANY = 14
"""From so many commands on, those without the option are fewer words."""


def commands() -> dict[str, click.Command]:
    """Every command and every view, as "hotspots --by layer"."""
    return dict(_all(click.Context(cli), cli))


def _all(context: click.Context, group: click.Group) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, Verb):
            yield from ((f"{name} {one.typed}", one.command) for one in command.views)


def options() -> dict[str, dict[str, click.Option]]:
    """Option, as "-o, --output" -> command -> the option there."""
    found: dict[str, dict[str, click.Option]] = {}
    for name, command in commands().items():
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                found.setdefault(", ".join((*option.opts, *option.secondary_opts)), {})[name] = option
    return found


def options_table() -> str:
    """The options in the order of the alphabet, with the values that each takes and the commands that have it."""
    rows = ["| option | takes | commands |", "|---|---|---|"]
    every = set(commands())
    for names, found in sorted(options().items(), key=lambda one: one[0].partition("--")[2]):
        kinds: dict[str, list[str]] = {}
        for command, option in found.items():
            kinds.setdefault(_takes(option), []).append(command)
        for kind, having in kinds.items():
            lacking = sorted(every - set(having))
            but = f" but {', '.join(lacking)}" if lacking else ""
            where = f"all{but}" if len(having) > MANY > len(lacking) else ", ".join(having)
            rows.append(f"| `{names}` | {kind} | {where} |")
    return "\n".join(rows) + "\n"


def _takes(option: click.Option) -> str:
    if option.is_flag:
        return "nothing"
    kind = option.type
    if isinstance(kind, click.Choice):
        words = " ".join(map(str, kind.choices))
    elif isinstance(kind, (click.types.IntParamType, click.types.FloatParamType)):
        words = "a number"
    elif isinstance(kind, click.Path):
        words = "a folder" if kind.dir_okay and not kind.file_okay else "a file"
    else:
        words = "text"
    if isinstance(option, ListOption):
        return f"a list: {words}"
    return f"{words}, repeated" if option.multiple else words
