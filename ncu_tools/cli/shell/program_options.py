"""The options of the program itself, `--debug`, `--notes` and `--memory-limit`: before the command and after it."""

from __future__ import annotations

import os
from dataclasses import dataclass

import click

COMPLETE = "_NCU_BENCH_COMPLETE"
"""The variable by which a shell asks click for completions."""


@dataclass
class Asked:
    """What the options of the program asked for, in the context's `obj` of the program and its command.

    `told` is set once a command has written JSON: an error after that is told on stderr alone.
    """

    debug: bool = False
    notes: bool = False
    told: bool = False


def _debug(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        context.ensure_object(Asked).debug = True


def _notes(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        context.ensure_object(Asked).notes = True


def _memory_limit(context: click.Context, parameter: click.Parameter, size: str | None) -> None:
    """Set the limit for this process and those that it starts. Raises `WrongUsage` for a text that is no size."""
    if size is not None:
        from ncu_parsers.sources.memory import SETTING, size_of

        size_of(size)
        os.environ[SETTING] = size


PROGRAM_OPTIONS: tuple[click.Parameter, ...] = (
    click.Option(
        ("--debug",), is_flag=True, expose_value=False, is_eager=True, callback=_debug,
        help="Show the traceback of an error.",
    ),
    click.Option(
        ("--notes",), is_flag=True, expose_value=False, callback=_notes,
        help="Show all notes, where a terminal shows five lines of them.",
    ),
    click.Option(
        ("--memory-limit",), metavar="SIZE", expose_value=False, callback=_memory_limit,
        help="The most that reading may take, as 512MB or 8GB.  [default: 2GB]",
    ),
)  # fmt: skip


def with_program_options(command: click.Command) -> click.Command:
    """The command, which takes the options of the program too, after its own in the help."""
    command.params += [option for option in PROGRAM_OPTIONS if option not in command.params]
    return command
