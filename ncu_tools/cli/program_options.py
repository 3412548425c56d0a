"""Options of every command, before its name or after: --debug, --notes, --wide, --full-names, --memory-limit.

--help imports this module and no module that reads or shows reports.
"""

from __future__ import annotations

from dataclasses import dataclass

import click


@dataclass
class Asked:
    """Values of the program's options, in the context's `obj` of the program and its command.

    `told` is set once a command has written JSON: a later error goes to stderr alone.
    """

    debug: bool = False
    notes: bool = False
    wide: bool = False
    full_names: bool = False
    told: bool = False


def program_options() -> Asked:
    """Values of the program's options; defaults if no command is running."""
    context = click.get_current_context(silent=True)
    found = context.find_object(Asked) if context is not None else None
    return found or Asked()


def _asked(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    """Store a flag in the context, under its name in `Asked`."""
    if given:
        setattr(context.ensure_object(Asked), parameter.name or "", True)


def _memory_limit(context: click.Context, parameter: click.Parameter, size: str | None) -> None:
    """Set the limit until the command ends. Raises `WrongUsage` for an invalid size."""
    if size is not None:
        from ncu_parsers.sources.memory import limited_to

        context.with_resource(limited_to(size))


PROGRAM_OPTIONS: tuple[click.Parameter, ...] = (
    click.Option(
        ("--debug",), is_flag=True, expose_value=False, is_eager=True, callback=_asked,
        help="Show the traceback of an error.",
    ),
    click.Option(
        ("--notes",), is_flag=True, expose_value=False, callback=_asked,
        help="Show all notes, not five lines of them.",
    ),
    click.Option(
        ("--wide",), is_flag=True, expose_value=False, callback=_asked,
        help="Show every column of a table, and nothing cut, however long lines get.",
    ),
    click.Option(
        ("--full-names",), is_flag=True, expose_value=False, callback=_asked,
        help="Show kernel names whole, however long.",
    ),
    click.Option(
        ("--memory-limit",), metavar="SIZE", expose_value=False, callback=_memory_limit,
        help="Memory limit for reading reports, as 512MB or 8GB.  [default: 2GB]",
    ),
)  # fmt: skip


def with_program_options(command: click.Command) -> click.Command:
    """The command with the program's options added, listed after its own in the help."""
    command.params += [option for option in PROGRAM_OPTIONS if option not in command.params]
    return command
